//! The example `fit_text`: it learns, and its result depends on nothing but the text and the number of steps.

#[allow(dead_code)] // the example runs on GPUs too
#[path = "../examples/fit_text/fit/mod.rs"]
mod fit;

use fit::engine::Host;
use fit::{Fit, Rows};

const LICENCE: &[u8] = include_bytes!("../LICENSE-APACHE");

/// Losses of `steps` steps on the host with `threads` threads, and the digest.
fn run(text: &[u8], steps: u32, threads: usize) -> (Vec<f64>, String) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| {
        let rows = Rows::of(text);
        let mut host = Host::new(&rows.x).unwrap();
        let mut fit = Fit::new(&rows, &mut host).unwrap();
        let mut bits = vec![fit.bits];
        for _ in 0..steps {
            fit.step(&mut host).unwrap();
            bits.push(fit.bits);
        }
        (bits, fit.digest())
    })
}

/// The README shows it, so that anyone can compare.
#[test]
fn the_default_run_gives_the_published_digest() {
    let (_, digest) = run(LICENCE, fit::STEPS, 2);
    assert!(include_str!("../../../README.md").contains(&digest), "{digest}");
}

#[test]
fn two_runs_give_the_same_digest_whatever_the_threads() {
    let one = run(&LICENCE[..2000], 5, 1);
    assert_eq!(one, run(&LICENCE[..2000], 5, 1));
    assert_eq!(one, run(&LICENCE[..2000], 5, 2));
    assert_eq!(one, run(&LICENCE[..2000], 5, 5));
}

#[test]
fn another_text_or_another_step_gives_another_digest() {
    let (_, digest) = run(&LICENCE[..2000], 3, 2);
    assert_ne!(digest, run(&LICENCE[..2001], 3, 2).1);
    assert_ne!(digest, run(&LICENCE[..2000], 4, 2).1);
}

#[test]
fn the_loss_falls_at_every_step() {
    for text in [&LICENCE[..3000], include_bytes!("fit_text.rs")] {
        let (bits, _) = run(text, 20, 2);
        assert!(bits.windows(2).all(|pair| pair[1] < pair[0]), "{bits:?}");
        assert!(*bits.last().unwrap() < 0.8 * bits[0], "{bits:?}");
    }
}

#[test]
fn the_least_text_is_one_row() {
    let (bits, _) = run(&LICENCE[..fit::LEAST_BYTES], 3, 1);
    assert!(bits.iter().all(|bits| bits.is_finite()), "{bits:?}");
}
