//! Holds what the shared state remembers, one type for each: none of them takes the lock.

pub mod claims;
pub mod earlier_desires;
pub mod echo;
pub mod history;
pub mod namespace_waits;
pub mod orphans;
pub mod reads;
pub mod refusals;
pub mod unpersisted;
pub mod visibility;
