//! The program for people. Its commands are in the library beside it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    pilothouse::command_line::execute()
}
