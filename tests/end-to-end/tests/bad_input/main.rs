//! Bad input gets a clear answer: bad components, answers, command lines and clusters. Each is refused in words that name
//! the object, the cause and the next step, and everything beside it goes on.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

use pilothouse_end_to_end::{program, stage};

mod certificates;
mod clusters;
mod command;
mod contributions;
mod hostile;
mod hot_loops;
mod lost;
mod ordinary_work;
mod plugins;
mod races;
mod recordings;
mod webhooks;
mod writes;
