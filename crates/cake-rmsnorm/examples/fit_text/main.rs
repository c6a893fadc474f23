//! Fits the weight of an RMSNorm to a text file, on a GPU or on the host, and prints a digest of the result: the same on
//! every machine. `fit/` says what is fitted and how; this file reads, chooses where to run, and reports.
//!
//! ```text
//! cargo run --release -p cake-rmsnorm --example fit_text -- [FILE] [--device host|cuda:N] [--steps N] [--check]
//! ```

mod fit;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cake_rmsnorm::Device;
use clap::Parser;
use fit::engine::{Engine, Gpu, Host, Output};
use fit::{Fit, LEAST_BYTES, MOST_BYTES, Rows, STEPS, WIDTH};
use indicatif::{ProgressBar, ProgressStyle};

/// Fits the weight of an RMSNorm to a text: real bytes in, bits per byte and a digest of the result out.
#[derive(Parser)]
struct Options {
    /// The text; any file will do. Without one, the Apache licence that is built in.
    file: Option<PathBuf>,
    /// Where the norm runs: `host` or `cuda:N`. Without it, cuda:0 if Cake serves it, else the host.
    #[arg(long)]
    device: Option<Where>,
    /// Steps of gradient descent.
    #[arg(long, default_value_t = STEPS)]
    steps: u32,
    /// On a GPU: compares y, rstd and dw with the host's, bit by bit, every few steps.
    #[arg(long)]
    check: bool,
}

#[derive(Clone, Copy)]
enum Where {
    Host,
    Cuda(u32),
}

impl FromStr for Where {
    type Err = String;

    fn from_str(text: &str) -> Result<Where, String> {
        match text.strip_prefix("cuda:").map(str::parse) {
            Some(Ok(ordinal)) => Ok(Where::Cuda(ordinal)),
            None if text == "host" => Ok(Where::Host),
            _ => Err("expected host or cuda:N".into()),
        }
    }
}

/// Steps from one line of output, and one check, to the next.
const LINE_EVERY: u32 = 5;

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let start = Instant::now();

    let text = match &options.file {
        Some(path) => read(path)?,
        None => {
            let text = include_bytes!("../../LICENSE-APACHE");
            println!("text     the Apache licence, built in: {} bytes", text.len());
            text.to_vec()
        }
    };
    let rows = Rows::of(&text);
    println!("rows     {} of {WIDTH} in BF16, {:.1} MB", rows.count(), size_of_val(&rows.x[..]) as f64 / 1e6);

    let (device, reason) = choose(options.device)?;
    let mut engine: Box<dyn Engine> = match &device {
        Some(device) => Box::new(Gpu::new(device, &rows.x)?),
        None => Box::new(Host::new(&rows.x)?),
    };
    match &device {
        Some(device) => println!("norm     on {device:?}"),
        None => println!("norm     on the host, {} threads{reason}", rayon::current_num_threads()),
    }
    println!("the rest on the host: softmax and loss");

    let mut checker = match (options.check, &device) {
        (false, _) => None,
        (true, Some(_)) => Some((Host::new(&rows.x)?, Output::new(rows.count()))),
        (true, None) => {
            println!("check    nothing to compare: the norm runs on the host");
            None
        }
    };

    let mut fit = Fit::new(&rows, &mut *engine)?;
    let bar = ProgressBar::new(options.steps.into())
        .with_style(ProgressStyle::with_template("step     {pos}/{len} {bar:40} {elapsed}")?);
    for step in 0..=options.steps {
        if step > 0 {
            fit.step(&mut *engine)?;
            bar.inc(1);
        }
        if step % LINE_EVERY == 0 || step == options.steps {
            let mut line = format!("step {step:3} {:.4} bits per byte", fit.bits);
            if let Some((host, expected)) = &mut checker {
                host.forward(&fit.w, expected)?;
                if let Some(difference) = fit.output.difference(expected) {
                    bail!("step {step}: the GPU and the host differ at {difference}");
                }
                let [mut dw, mut right] = [[0.0_f32; WIDTH]; 2];
                engine.backward(&fit.w, &fit.output, &fit.dy, &mut dw)?;
                host.backward(&fit.w, &fit.output, &fit.dy, &mut right)?;
                if let Some(j) = (0..WIDTH).find(|&j| dw[j].to_bits() != right[j].to_bits()) {
                    bail!("step {step}: the GPU and the host differ at dw[{j}]: {} and {}", dw[j], right[j]);
                }
                line += ", y, rstd and dw as on the host, bit by bit";
            }
            bar.suspend(|| println!("{line}"));
        }
    }
    bar.finish_and_clear();

    let calls = if device.is_some() { 200 } else { 10 };
    report(rows.count(), calls, fit.time(&mut *engine, calls)?);
    println!("total    {:.1} s", start.elapsed().as_secs_f64());
    println!("sha256   {}", fit.digest());
    println!("         of the weights, y and rstd: the same on the host and on every GPU");
    Ok(())
}

/// The text, or as much of it as the fit takes.
fn read(path: &Path) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let file = std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    file.take(MOST_BYTES as u64 + 1)
        .read_to_end(&mut text)
        .with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(
        text.len() >= LEAST_BYTES,
        "{} holds {} bytes, expected at least {LEAST_BYTES}: a byte is predicted from the {} before it",
        path.display(),
        text.len(),
        LEAST_BYTES - 1
    );
    if text.len() > MOST_BYTES {
        text.truncate(MOST_BYTES);
        println!("text     {}: the first {MOST_BYTES} bytes, the rest is left out", path.display());
    } else {
        println!("text     {}: {} bytes", path.display(), text.len());
    }
    Ok(text)
}

/// The GPU to run on, or none, and then why.
fn choose(wanted: Option<Where>) -> Result<(Option<Device>, String)> {
    match wanted {
        Some(Where::Host) => Ok((None, String::new())),
        Some(Where::Cuda(ordinal)) => Ok((Some(Device::new(ordinal)?), String::new())),
        None => match Device::new(0) {
            Ok(device) => Ok((Some(device), String::new())),
            Err(reason) => Ok((None, format!(" ({reason})"))),
        },
    }
}

/// Speed of the forward pass: x is read, y and rstd are written.
fn report(rows: usize, calls: u32, time: Duration) {
    let bytes = (4 * rows * WIDTH + 4 * rows) as f64;
    let seconds = time.as_secs_f64() / f64::from(calls);
    println!(
        "forward  {:.1} GB/s: {:.1} MB read and written in {:.3} ms, mean of {calls} calls in a row",
        bytes / seconds / 1e9,
        bytes / 1e6,
        seconds * 1e3
    );
}
