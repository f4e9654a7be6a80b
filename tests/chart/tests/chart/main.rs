//! The chart and the image: what is rendered, what is refused, and that a host works with the account, the rights and the
//! arguments that they give it.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

mod external;
mod simulated;
