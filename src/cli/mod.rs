//! The command line: arguments in, words out. The only place that prints or knows colours.

use std::process::ExitCode;

/// Runs the program and returns its exit status.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
