//! The `gpuenv` program: everything happens in the library, this file only turns
//! its outcome into a process exit status.

use std::process::ExitCode;

fn main() -> ExitCode {
    gpuenv::cli::main()
}
