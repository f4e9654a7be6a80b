//! Behaviour that follows from several requests, or from time: watches, pages, deletion, controllers, faults, the log.

#![forbid(unsafe_code)]

mod client;
mod controllers;
mod faults;
mod services;
mod sizes;
mod watches;
