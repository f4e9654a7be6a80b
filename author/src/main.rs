//! The program for people. What it can do is in the library beside it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    pilothouse::command_line::execute()
}
