//! Reads and writes the Leases by which replicas elect a leader and divide shards. [`pilothouse_core::replicas::lease`]
//! decides what to write.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Client;
use pilothouse_core::replicas::lease::LeaseRecord;
use pilothouse_core::replicas::peers::{ReplicaState, StoredLease};
use pilothouse_core::rights::objects::{MANAGED_BY, MANAGED_BY_LABEL};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::RequestError;
use crate::resources::own_object::{OwnKind, OwnObject, is_ours};

const LEASE: OwnKind = OwnKind {
    api_version: "coordination.k8s.io/v1",
    kind: "Lease",
    plural: "leases",
    is_unfenced: true,
};

/// The highest number of attempts to release a Lease that changes meanwhile.
const GIVE_BACK_ATTEMPTS: usize = 3;

/// A Lease as it was read or written.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveLease {
    /// The spec.
    pub record: LeaseRecord,
    /// The whole object, so that other members are preserved.
    object: Value,
}

impl LiveLease {
    /// Reports whether a host has created it, and not other software.
    pub fn is_ours(&self) -> bool {
        is_ours(&self.object)
    }
}

impl StoredLease for LiveLease {
    fn record(&self) -> &LeaseRecord {
        &self.record
    }

    fn replica(&self) -> ReplicaState {
        ReplicaState::read(|annotation| self.object["metadata"]["annotations"][annotation].as_str())
    }
}

/// The result of writing a Lease of a group, whose list shows only Leases with the label of the host.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupWrite {
    /// The Lease was written.
    Written(LiveLease),
    /// The Lease has changed since it was read.
    Changed,
    /// The Lease was to be created, but exists without the label, with this holder.
    Unlabelled(String),
}

/// Annotations of a Lease, by name.
pub type LeaseAnnotations<'a> = [(&'a str, String)];

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LeaseSpec {
    holder_identity: Option<String>,
    lease_duration_seconds: Option<i32>,
    acquire_time: Option<String>,
    renew_time: Option<String>,
    lease_transitions: Option<i32>,
}

/// One Lease.
#[derive(Clone)]
pub struct LeaseApi(OwnObject);

impl LeaseApi {
    /// The Lease of this name, with a time-out for each request.
    pub fn new(client: Client, namespace: String, name: String, timeout: Duration) -> Self {
        Self(OwnObject {
            client,
            kind: LEASE,
            namespace,
            name,
            timeout,
        })
    }

    /// Its namespace and name, for messages.
    pub fn title(&self) -> String {
        self.0.title()
    }

    /// The live Lease, if it exists.
    pub async fn read(&self) -> Result<Option<LiveLease>, RequestError> {
        self.0.read().await?.map(read).transpose()
    }

    /// Writes the Lease if it is unchanged, or still does not exist. None means that it has changed.
    pub async fn write(
        &self,
        live: Option<&LiveLease>,
        record: &LeaseRecord,
    ) -> Result<Option<LiveLease>, RequestError> {
        self.annotate(live, record, &[]).await
    }

    /// The same with annotations.
    pub async fn annotate(
        &self,
        live: Option<&LiveLease>,
        record: &LeaseRecord,
        annotations: &LeaseAnnotations<'_>,
    ) -> Result<Option<LiveLease>, RequestError> {
        let LeaseRecord {
            holder,
            duration_seconds,
            acquired,
            renewed,
            transitions,
        } = record;
        let mut object = live.map_or_else(|| self.0.empty(), |live| live.object.clone());
        // The label may have been removed; the caller has checked that the Lease is one of the host's.
        object["metadata"]["labels"][MANAGED_BY_LABEL] = json!(MANAGED_BY);
        object["spec"]["holderIdentity"] = json!(holder);
        object["spec"]["leaseDurationSeconds"] = json!(duration_seconds);
        object["spec"]["acquireTime"] = json!(acquired);
        object["spec"]["renewTime"] = json!(renewed);
        object["spec"]["leaseTransitions"] = json!(transitions);
        for (name, value) in annotations {
            object["metadata"]["annotations"][*name] = json!(value);
        }
        self.0.write(&object, live.is_none()).await?.map(read).transpose()
    }

    /// The same for a Lease that was missing in a list: it may exist without the label. If it names the holder to be
    /// written, it has lost the label, and gets it again.
    pub async fn write_in_group(
        &self,
        live: Option<&LiveLease>,
        record: &LeaseRecord,
        annotations: &LeaseAnnotations<'_>,
    ) -> Result<GroupWrite, RequestError> {
        if let Some(written) = self.annotate(live, record, annotations).await? {
            return Ok(GroupWrite::Written(written));
        }
        if live.is_some() {
            return Ok(GroupWrite::Changed);
        }
        let found = match self.read().await? {
            Some(found) if !found.is_ours() => found,
            _ => return Ok(GroupWrite::Changed),
        };
        if found.record.holder != record.holder {
            return Ok(GroupWrite::Unlabelled(found.record.holder));
        }
        let written = self.annotate(Some(&found), record, annotations).await?;
        Ok(written.map_or(GroupWrite::Changed, GroupWrite::Written))
    }

    /// Releases the Lease for its holder. A write of the holder's own whose response was not awaited may have changed
    /// it since it was read. None means that another process holds it.
    pub async fn give_back(&self, live: &LiveLease, time: &str) -> Result<Option<LiveLease>, RequestError> {
        let holder = &live.record.holder;
        let mut live = live.clone();
        for _ in 0..GIVE_BACK_ATTEMPTS {
            let written = self.write(Some(&live), &live.record.given_back(time)).await?;
            if written.is_some() {
                return Ok(written);
            }
            match self.read().await? {
                Some(read) if read.record.holder == *holder => live = read,
                _ => break,
            }
        }
        Ok(None)
    }

    /// Deletes the Lease if it is unchanged.
    pub async fn delete(&self, live: &LiveLease) -> Result<(), RequestError> {
        self.0.delete(&live.object).await
    }
}

fn read(object: Value) -> Result<LiveLease, RequestError> {
    let spec = object.get("spec").cloned().unwrap_or_default();
    let spec: Option<LeaseSpec> =
        serde_json::from_value(spec).map_err(|error| RequestError::Garbled(error.to_string()))?;
    let spec = spec.unwrap_or_default();
    Ok(LiveLease {
        record: LeaseRecord {
            holder: spec.holder_identity.unwrap_or_default(),
            duration_seconds: spec.lease_duration_seconds.unwrap_or_default(),
            acquired: spec.acquire_time,
            renewed: spec.renew_time,
            transitions: spec.lease_transitions.unwrap_or_default(),
        },
        object,
    })
}

/// The Leases with a common name prefix: those of one host's shards and replicas.
#[derive(Clone)]
pub struct LeaseGroup(LeaseApi);

impl LeaseGroup {
    /// The Leases with this prefix, with a time-out for each request.
    pub fn new(client: Client, namespace: String, prefix: String, timeout: Duration) -> Self {
        Self(LeaseApi::new(client, namespace, prefix, timeout))
    }

    /// One Lease, by the suffix of its name.
    pub fn lease(&self, suffix: &str) -> LeaseApi {
        let Self(LeaseApi(all)) = self;
        LeaseApi(OwnObject {
            name: format!("{}{suffix}", all.name),
            ..all.clone()
        })
    }

    /// The namespace and prefix, for messages.
    pub fn title(&self) -> String {
        self.0.title()
    }

    /// The live Leases that a host has created, by the suffix of their names.
    pub async fn list(&self) -> Result<BTreeMap<String, LiveLease>, RequestError> {
        let Self(LeaseApi(all)) = self;
        let items = all.list().await?;
        let suffix = |object: &Value| Some(object["metadata"]["name"].as_str()?.strip_prefix(&all.name)?.to_owned());
        let leases = items
            .into_iter()
            .filter_map(|object| Some((suffix(&object)?, read(object))));
        leases.map(|(suffix, lease)| Ok((suffix, lease?))).collect()
    }
}
