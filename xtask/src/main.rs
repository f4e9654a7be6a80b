//! The program of the chores. What it can do is in the library beside it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(ended) = xtask::fuzz::as_rustc() {
        return match ended {
            Ok(status) => status
                .code()
                .and_then(|code| u8::try_from(code).ok())
                .map_or(ExitCode::FAILURE, ExitCode::from),
            Err(error) => {
                eprintln!("xtask: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    xtask::command_line::execute()
}
