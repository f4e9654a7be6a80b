//! Serves the whole process, and knows no lanes: threads, slots, memory, clocks and limits of the log.

pub mod blocking;
pub mod call_slots;
pub mod clock;
pub mod contact;
pub mod heartbeat;
pub mod idle;
pub mod log_limit;
pub mod resume_slots;
pub mod room;
