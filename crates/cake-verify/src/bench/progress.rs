//! How far a run is: a bar where someone is looking, lines elsewhere. Results go to the standard output, this to the
//! standard error.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

/// The state of a run.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    lines: bool,
    begin: Instant,
    steps: usize,
    step: usize,
}

impl Progress {
    /// A run of so many steps, which take times in proportion to shares of `weight`.
    pub fn new(steps: usize, weight: u64) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::new(weight) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{wide_bar} {msg}, {elapsed} gone, {eta} to go");
        bar.set_style(style.expect("the template is well-formed"));
        Progress { bar, lines: !terminal, begin: Instant::now(), steps, step: 0 }
    }

    /// A step begins.
    pub fn begin(&mut self, name: &str) {
        self.step += 1;
        let text = format!("{}/{} {name}", self.step, self.steps);
        if self.lines {
            eprintln!("[{:6.1} s] {text}", self.begin.elapsed().as_secs_f64());
        }
        self.bar.set_message(text);
    }

    /// The step ended, and was a share of `weight`.
    pub fn end(&self, weight: u64) {
        self.bar.inc(weight);
    }

    /// Shows results at once.
    pub fn print(&self, text: &str) {
        self.bar.suspend(|| {
            print!("{text}");
            // A closed pipe shows at the next print.
            let _ = std::io::stdout().flush();
        });
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
