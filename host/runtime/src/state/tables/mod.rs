//! Holds the tables of the shared state, one type each. None of them takes the lock.

pub mod claims;
pub mod competing_waits;
pub mod earlier_desires;
pub mod echo;
pub mod history;
pub mod namespace_waits;
pub mod orphans;
pub mod paused;
pub mod reads;
pub mod refusals;
pub mod unpersisted;
pub mod visibility;
