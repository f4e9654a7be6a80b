//! Faulty registries, caches and pull secrets, through a host on the simulated cluster with the program's own store:
//! each problem is a condition that names reference, cause and next step, running plugins go on, and nothing else runs.
//!
//! The registries answer over sockets, so time is not paused here; the limits are short instead.
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

mod caches;
mod command_line;
mod rows;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_artifact::{ArtifactCache, Client, Descriptor, Fetcher, Limits, RegistriesConfig, TrustSource};
use pilothouse_end_to_end::components;
use pilothouse_end_to_end::fleet::Fleet;
use pilothouse_end_to_end::host::RuntimeHost;
use pilothouse_end_to_end::stage::unhurried;
use pilothouse_runtime::HostOptions;
use pilothouse_test_registry::{REPOSITORY, Registry, plugin};
use pilothouse_testkit::cluster::Cluster;
use serde_json::{Value, json};

use crate::artifact::host::store::HostArtifacts;

/// The namespace of pull secrets.
const NAMESPACE: &str = "pilothouse";

/// Limits under which a faulty registry fails soon, and one on a busy machine does not.
fn limits() -> Limits {
    Limits {
        blob: 8 << 20,
        exchange: Duration::from_secs(1),
        progress_interval: Duration::from_millis(500),
        attempts: 2,
        back_off: Duration::from_millis(5),
        ..Limits::default()
    }
}

/// A built component; with another mark or size of its last section it is another version.
fn component(name: &str, mark: u8, size: u32) -> Vec<u8> {
    let mut bytes = std::fs::read(components::folder().join(format!("{name}.wasm"))).unwrap();
    // A custom section with the name "m", whose size is written in five bytes.
    let length = size + 2;
    bytes.push(0);
    bytes.extend((0..4).map(|place| (length >> (7 * place)).to_le_bytes()[0] | 0x80));
    bytes.extend([(length >> 28) as u8, 1, b'm']);
    bytes.resize(bytes.len() + size as usize, mark);
    bytes
}

/// A registry that has a component under the tag `1`.
async fn registry_of(component: &[u8]) -> (Registry, Descriptor) {
    let registry = Registry::start().await;
    let manifest = plugin(&registry, "1", component);
    (registry, manifest)
}

/// Returns a registries file for these registries, all in plain HTTP.
fn plain<'a>(registries: impl IntoIterator<Item = &'a Registry>) -> Value {
    let plain = |registry: &Registry| json!({"host": registry.host(), "plainHttp": true});
    json!({"registries": registries.into_iter().map(plain).collect::<Vec<_>>()})
}

fn fetcher(registries: Value, trust: TrustSource, cache: &Path, cache_bytes: u64) -> Fetcher {
    let client = Client::new(RegistriesConfig::from_value(registries).unwrap(), limits());
    let cache = ArtifactCache::open(cache, cache_bytes).unwrap();
    Fetcher::new(client, cache, Arc::new(trust))
}

/// A host on a cluster of its own.
async fn host_with(fetcher: Fetcher) -> Fleet {
    // The program's store; layouts are not tested here.
    let store = Arc::new(HostArtifacts::new(fetcher, Path::new("/nowhere").to_owned()));
    let options = HostOptions {
        namespace: Some(NAMESPACE.to_owned()),
        ..HostOptions::default()
    };
    let mut host = RuntimeHost::new(options, unhurried());
    host.fetch_from(store);
    Fleet::start_host_with(Cluster::simulated(), host).await
}

fn reference(registry: &Registry) -> String {
    format!("{}/{REPOSITORY}:1", registry.host())
}

/// Returns the spec of a Plugin that runs the artifact of a tag.
fn tagged(reference: &str) -> Value {
    json!({"source": {"oci": {"reference": reference, "updatePolicy": "Tag", "interval": "10s", "pullSecret": null}}})
}

/// Waits until a Plugin runs this artifact and has no problem.
async fn runs(fleet: &Fleet, name: &str, manifest: &Descriptor) {
    let digest = manifest.digest.to_string();
    let runs = |plugin: Value| plugin["status"]["artifact"]["digest"] == digest;
    let what = format!("{name} runs {digest}");
    fleet
        .until(&what, |stage| stage.find("Plugin", name).is_some_and(runs))
        .await;
    fleet.is_ready(name).await;
}
