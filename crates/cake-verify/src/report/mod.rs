//! What a run found, for people and for machines. docs/reports.md documents the JSON.
//!
//! | room | holds |
//! | --- | --- |
//! | [`tally`] | counts, failures and errors, by check, and those by program |
//! | [`errors`] | the errors of an output: the worst, and how many of which size |
//! | [`results`] | the report of a run: facts, and what each task found; reads, writes and resumes it |
//! | [`text`] | the report as text |
//! | [`html`] | the report as one page |
//! | [`plots`] | what is drawn on it, and beside records of benchmarks |
//! | [`files`] | the report's folder |
//! | [`mod@diff`] | two reports |
//! | [`command`] | `cake-verify report` |

pub mod command;
pub mod diff;
pub mod errors;
pub mod files;
pub mod html;
pub mod plots;
pub mod results;
pub mod tally;
pub mod text;

pub use results::{Facts, Report, TaskResult};
pub use tally::{ByProgram, Outcome, Tally};
