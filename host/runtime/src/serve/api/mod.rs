//! The JSON API of the host, by which people ask what it does: `documents` defines the answers, `status`, `objects` and
//! `usage` make them, `access` decides who may see what, `review_limit` limits the reviews that this takes, `next_step`
//! advises on a failure, and `server` answers requests. docs/api.md describes it. It changes nothing, and has no
//! content of objects: only names, kinds, times and the messages of conditions. `recordings` is the exception, which a
//! host has to be told to allow. Other replicas of the host take artifacts over by it.

mod access;
pub mod documents;
mod local;
mod next_step;
mod objects;
mod recordings;
mod review_limit;
mod server;
mod status;
mod usage;

pub use self::access::{AUDIENCE, ClientAccess, Refusal};
pub use self::objects::{ObjectQuestion, UnknownObject};
pub use self::server::{ArtifactAnswers, HostApi, HostApiServer};

/// The values of `trigger` in a run.
pub fn triggers() -> impl Iterator<Item = &'static str> {
    crate::queue::TriggerReason::ALL
        .into_iter()
        .map(crate::queue::TriggerReason::as_str)
}
