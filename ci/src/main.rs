//! What CI runs and what a person runs: `cargo ci <task>`.

mod candle;
mod demo;
mod fuzz;
mod gpu;
mod images;
mod mutate;
mod python;
mod shell;
mod structure;
mod test;
mod tools;

use anyhow::Result;
use clap::Parser;

/// Tasks of this repository. `cargo ci test` is all that CI runs.
#[derive(Parser)]
#[command(name = "cargo ci", bin_name = "cargo ci")]
enum Task {
    /// Checks everything that needs no GPU: format, lints, docs, structure, images, tests.
    Test,
    /// Compiles the CUDA images and writes crates/cake-kernels/images and images.lock.
    Images {
        /// Writes nothing; fails if the images are not what the sources compile to.
        #[arg(long)]
        check: bool,
    },
    /// Checks the rules about who may name whom, where unsafe code and PTX may stand, and the links between the pages.
    Structure,
    /// Builds the Python wheel and runs its tests, which `test` does too.
    Python,
    /// Builds examples/candle and runs its tests; candle takes minutes to compile.
    Candle,
    /// Packs into target/gpu what a GPU machine without Rust needs to run the tests, the verification and the demo,
    /// and one with two GPUs and PyTorch the checks of both.
    Gpu,
    /// Asks the properties of the tests with inputs that libFuzzer makes.
    Fuzz {
        /// Only these targets; all, if there is none.
        targets: Vec<String>,
        /// Seconds for each.
        #[arg(long, default_value_t = 60)]
        seconds: u32,
    },
    /// Puts faults into a copy of the sources, one at a time, and fails unless the tests notice each.
    Mutate(mutate::Options),
    /// Fits a norm to a text file, on the host or a GPU: `[FILE] [--device host|cuda:N]`, see `cargo ci demo -- --help`.
    Demo {
        /// Passed on to crates/cake-rmsnorm/examples/fit_text.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> Result<()> {
    match Task::parse() {
        Task::Test => test::run(),
        Task::Images { check } => images::run(check),
        Task::Structure => structure::run(),
        Task::Python => python::run(),
        Task::Candle => candle::run(),
        Task::Gpu => gpu::run(),
        Task::Fuzz { targets, seconds } => fuzz::run(&targets, seconds),
        Task::Mutate(options) => mutate::run(&options),
        Task::Demo { arguments } => demo::run(&arguments),
    }
}
