//! Decides which StreamIngress holds a port, among all of the cluster that want it and are not being deleted.
//!
//! The holder is the one whose entry is in the ConfigMap. A status is no evidence against an entry, since its owner can
//! write it: it only counts if there is no entry, for a holder whose upstream is missing, and for a holder that now
//! wants another value in its namespace. If none of them holds the port, the oldest gets it.

use pilothouse_plugin::{Cluster, Failure, Fields, ListOptions, ObjectMeta, Resource};
use serde::Deserialize;

use crate::accept::ACCEPTED;
use crate::grant;
use crate::resource::{StreamIngress, destination};
use crate::settings::Settings;

/// A StreamIngress, as far as it is read to compare it with others. Invalid parts of it block no other.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(group = "nginx-stream.jeffthecoder.xyz", version = "v1beta1", kind = "StreamIngress")]
pub struct Rival {
    /// Name and age.
    pub metadata: ObjectMeta,
    spec: RivalSpec,
    #[serde(default)]
    status: RivalStatus,
}

#[derive(Clone, Debug, Deserialize, Fields)]
struct RivalSpec {
    #[expect(dead_code, reason = "the query names it")]
    listen: u16,
    #[serde(default)]
    protocol: Option<String>,
    #[serde(default)]
    upstream: RivalUpstream,
}

#[derive(Clone, Debug, Default, Deserialize, Fields)]
#[serde(default)]
struct RivalUpstream {
    namespace: Option<String>,
    service: Option<String>,
    port: Option<u32>,
}

#[derive(Clone, Debug, Default, Deserialize, Fields)]
#[serde(default)]
struct RivalStatus {
    conditions: Vec<RivalCondition>,
}

#[derive(Clone, Debug, Default, Deserialize, Fields)]
#[serde(default)]
struct RivalCondition {
    r#type: String,
    message: String,
}

impl Rival {
    fn own_namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    fn upstream_namespace(&self) -> &str {
        let upstream = &self.spec.upstream;
        upstream.namespace.as_deref().unwrap_or_else(|| self.own_namespace())
    }

    /// Returns the entry that it wants, if there can be one.
    fn destination(&self) -> Option<String> {
        let RivalUpstream { service, port, .. } = &self.spec.upstream;
        Some(destination(self.upstream_namespace(), service.as_deref()?, (*port)?))
    }

    /// Reports whether its condition claims that it holds a port. Other conditions of its owner do not count.
    fn says_that_it_holds(&self, port: &str) -> bool {
        let mut conditions = self.status.conditions.iter();
        let accepted = conditions.find(|condition| condition.r#type == ACCEPTED);
        accepted.is_some_and(|accepted| accepted.message.starts_with(&held_for(port)))
    }

    fn is_permitted(&self, settings: &Settings, cluster: &Cluster) -> Result<bool, Failure> {
        let service = self.spec.upstream.service.as_deref().unwrap_or_default();
        grant::permits(
            self.own_namespace(),
            self.upstream_namespace(),
            service,
            settings,
            cluster,
        )
    }
}

/// Evidence that a StreamIngress holds its port; the stronger comes first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Hold {
    Entry,
    Status,
    Nothing,
}

impl Hold {
    fn of(destination: Option<&str>, namespace: &str, says_so: bool, entry: Option<&str>) -> Self {
        let is_in_namespace = |entry: &str| entry.split_once('/').is_some_and(|(it, _)| it == namespace);
        if entry.is_some() && entry == destination {
            Self::Entry
        } else if says_so && entry.is_none_or(is_in_namespace) {
            Self::Status
        } else {
            Self::Nothing
        }
    }
}

/// Returns the beginning of the message of each condition which claims that its StreamIngress holds a port.
pub fn held_for(port: &str) -> String {
    format!("{port} is held for ")
}

/// A StreamIngress that holds the port which another one wants.
pub struct Holder {
    /// The holder.
    pub rival: Rival,
    /// Set if it is older than the other.
    pub is_older: bool,
}

/// Finds the other StreamIngress that holds the wanted port; none if it is this one. `entry` is the ConfigMap's value.
///
/// The answer depends only on those that want the same number, so the next one takes over at once.
pub fn other_holder(
    stream: &StreamIngress,
    entry: Option<&str>,
    settings: &Settings,
    cluster: &Cluster,
) -> Result<Option<Holder>, Failure> {
    let (wanted, port) = (&stream.spec, stream.port());
    // Selected by the number alone: the protocol may have been left out, which a condition on a field would miss.
    let claimants = cluster.list::<Rival>(ListOptions::new().field(".spec.listen", wanted.listen))?;
    let is_own = |rival: &Rival| rival.metadata.uid == stream.metadata.uid;
    let says_so = claimants
        .iter()
        .any(|rival| is_own(rival) && rival.says_that_it_holds(&port));
    let own_hold = Hold::of(Some(&stream.destination()), stream.upstream_namespace(), says_so, entry);
    let mut first = None;
    let mut first_place = (own_hold, age(&stream.metadata));
    for rival in claimants.iter().filter(|rival| !is_own(rival)) {
        let says_so = rival.says_that_it_holds(&port);
        let hold = Hold::of(
            rival.destination().as_deref(),
            rival.upstream_namespace(),
            says_so,
            entry,
        );
        let place = (hold, age(&rival.metadata));
        if wanted.protocol.is(rival.spec.protocol.as_deref())
            && rival.metadata.deletion_timestamp.is_none()
            && place < first_place
            // A StreamIngress that may not lead to its destination holds no port.
            && rival.is_permitted(settings, cluster)?
        {
            (first, first_place) = (Some(rival), place);
        }
    }
    Ok(first.map(|first| Holder {
        is_older: age(&first.metadata) < age(&stream.metadata),
        rival: first.clone(),
    }))
}

/// Returns the key of the order by age. The API server writes all times in one form, so they sort as text.
fn age(metadata: &ObjectMeta) -> (&str, &str) {
    (
        metadata.creation_timestamp.as_deref().unwrap_or_default(),
        &metadata.uid,
    )
}
