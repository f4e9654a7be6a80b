//! Services of the whole process, independent of lanes: threads, slots, memory, clocks and log limits.

pub mod blocking;
pub mod call_slots;
pub mod clock;
pub mod contact;
pub mod heartbeat;
pub mod idle;
pub mod log_limit;
pub mod resume_slots;
pub mod room;
pub mod usage;
