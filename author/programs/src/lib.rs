//! Foreign programs that tests run: builds them from pinned Go modules into a cache, and runs processes that end with
//! their owner. `pilothouse-testkit`, `pilothouse-external` and the xtask define which programs.
#![forbid(unsafe_code)]

pub mod environment;
pub mod go;
pub mod supervisor;
