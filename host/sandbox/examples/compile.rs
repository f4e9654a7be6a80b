//! The hidden command `compile-component IN OUT` on its own, for the tests of compiling in a child process.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [command, input, output] = arguments.as_slice() else {
        eprintln!("usage: compile compile-component IN OUT");
        return ExitCode::FAILURE;
    };
    assert_eq!(command, "compile-component");
    match pilothouse_sandbox::compile_file(Path::new(input), Path::new(output)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
