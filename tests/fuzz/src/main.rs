//! Program that libFuzzer is linked into: it runs the target that an environment variable names, so that all targets
//! are one program to build.
#![no_main]
#![forbid(unsafe_code)]

use std::alloc::System;
use std::sync::OnceLock;

use cap::Cap;
use pilothouse_fuzz::targets;

/// Names the target.
const TARGET: &str = "PILOTHOUSE_FUZZ_TARGET";

/// Without memory an allocation fails, and libFuzzer keeps the input that asked for it.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

static RUN: OnceLock<fn(&[u8])> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let run = RUN.get_or_init(|| {
        let name = std::env::var(TARGET).unwrap_or_default();
        let target = targets::ALL.iter().find(|target| target.name == name);
        let target = target.unwrap_or_else(|| panic!("{TARGET} is {name:?}, which is no target"));
        ALLOCATOR
            .set_limit(ALLOCATOR.allocated() + target.memory)
            .expect("it is more than what is taken");
        target.run
    });
    run(data);
});
