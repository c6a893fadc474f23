//! The command `cake-verify`.

use std::process::ExitCode;

use cake_verify::cases::random::DEFAULT_SEED;
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
    /// For `run`: asks a process without devices what it finds.
    #[command(name = checks::absence::SUBCOMMAND, hide = true)]
    WithoutDevice,
    /// For `run`: uses one device in a process of its own.
    #[command(name = checks::devices::SUBCOMMAND, hide = true)]
    OnOneDevice { ordinal: u32 },
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
        Command::WithoutDevice => said(checks::absence::without_device(DEFAULT_SEED)),
        Command::OnOneDevice { ordinal } => said(checks::devices::on_one_device(ordinal, DEFAULT_SEED)),
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

/// Prints what a fresh process has found.
fn said(found: Result<String, String>) -> anyhow::Result<bool> {
    println!("{}", found.map_err(anyhow::Error::msg)?);
    Ok(true)
}
