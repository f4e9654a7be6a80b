//! Owns who holds a port: of all StreamIngresses of the cluster that want it, the oldest that is not being deleted.

use pilothouse_plugin::{Cluster, Failure, Fields, ListOptions, ObjectMeta, Resource};
use serde::Deserialize;

use crate::resource::StreamIngress;

/// What is read of the other StreamIngresses.
#[derive(Debug, Deserialize, Resource)]
#[resource(group = "nginx-stream.jeffthecoder.xyz", version = "v1beta1", kind = "StreamIngress")]
pub struct Rival {
    /// Its name and age.
    pub metadata: ObjectMeta,
    spec: RivalSpec,
}

/// The protocol as a text, so that one that cannot be used stands in nobody's way.
#[derive(Debug, Deserialize, Fields)]
struct RivalSpec {
    #[expect(dead_code, reason = "the query names it")]
    listen: u16,
    #[serde(default)]
    protocol: Option<String>,
}

/// The StreamIngress that holds the port which this one wants; none when it is this one.
///
/// The answer depends on those that want the same number and on no others, so the next one takes over the moment the
/// holder goes.
pub fn other_holder(stream: &StreamIngress, cluster: &Cluster) -> Result<Option<Rival>, Failure> {
    let wanted = &stream.spec;
    // By the number alone: the protocol may have been left out, which a condition on a field would miss.
    let rivals = cluster.list::<Rival>(ListOptions::new().field(".spec.listen", wanted.listen))?;
    let older = rivals.into_iter().filter(|rival| {
        wanted.protocol.is(rival.spec.protocol.as_deref())
            && rival.metadata.deletion_timestamp.is_none()
            && age(&rival.metadata) < age(&stream.metadata)
    });
    Ok(older.min_by(|one, other| age(&one.metadata).cmp(&age(&other.metadata))))
}

/// What the order of age goes by. The API server writes all times in one form, so their order is that of their texts.
fn age(metadata: &ObjectMeta) -> (&str, &str) {
    (
        metadata.creation_timestamp.as_deref().unwrap_or_default(),
        &metadata.uid,
    )
}
