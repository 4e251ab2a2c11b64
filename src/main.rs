//! The `windowflow` command: hands its arguments to the library and ends with its exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    windowflow::cli::main(std::env::args_os())
}
