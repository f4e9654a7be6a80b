//! Elects the leader among replicas by a Lease.
//!
//! One replica writes: the holder of the Lease. The others do all but hand out jobs. No other room has to know, because no change passes the
//! fence of host/cluster without the Lease. The fence remembers writes that got no answer: their Lease is not given back until they are settled,
//! one Lease duration later.
//!
//! The Lease is timed by a clock that stands still while a virtual machine is paused (CLOCK_MONOTONIC), as in client-go: a replica that
//! is paused whole, and goes on, believes for a moment that it still leads.

pub mod leadership;
pub mod lease_task;
