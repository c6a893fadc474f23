//! The command `cake-verify`.

use std::process::ExitCode;

use cake_verify::{bench, checks, doctor, report, routes, run};
use clap::{Parser, Subcommand};

/// Judges the Cake kernels.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the whole matrix; exits with 1 when anything fails.
    Run(run::Options),
    /// Times every program against the device's own copy of as many bytes; needs a GPU.
    Bench(bench::Options),
    /// Makes pages, comparisons and plots of what `run` and `bench` wrote.
    #[command(subcommand)]
    Report(report::command::Command),
    /// Shows which program serves a shape on an architecture; needs no GPU.
    Routes(routes::Options),
    /// Says what is here, what would be used, and what is missing.
    Doctor,
    /// For `run`: work in a process of its own.
    #[command(subcommand, hide = true)]
    Fresh(checks::fresh::Work),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Run(options) => run::run(&options),
        Command::Bench(options) => bench::bench(&options),
        Command::Report(command) => report::command::command(&command),
        Command::Routes(options) => routes::routes(&options).map(|text| {
            print!("{text}");
            true
        }),
        Command::Doctor => {
            print!("{}", doctor::doctor());
            Ok(true)
        }
        Command::Fresh(work) => work.run().map_err(anyhow::Error::msg).map(|found| {
            println!("{found}");
            true
        }),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cake-verify: {error:#}");
            ExitCode::from(2)
        }
    }
}
