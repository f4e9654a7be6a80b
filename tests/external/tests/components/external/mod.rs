//! Shared parts of the tests of all tools: both registries, and a component to push.

mod registries;
mod signatures;
mod wkg;

use std::fmt::Write as _;

use pilothouse_external::oras::{Artifact, Layer, Oras};
use pilothouse_external::registry::Registry;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The media type of a component's config.
const CONFIG: &str = "application/vnd.wasm.config.v0+json";

/// The media type of a component.
const WASM: &str = "application/wasm";

/// The media type of a Sigstore bundle.
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// A config whose content no tool looks at.
const NO_CONFIG: &[u8] = b"{}";

/// Runs a test with a new registry of each kind.
fn on_both(test: impl Fn(&Registry)) {
    for registry in [Registry::docker().unwrap(), Registry::with_referrers().unwrap()] {
        test(&registry);
    }
}

fn component() -> Vec<u8> {
    wat::parse_str("(component)").unwrap()
}

/// Pushes the component, and returns `repository@digest`.
fn push(oras: &Oras, registry: &Registry, repository: &str) -> String {
    let layer = Layer {
        name: "plugin.wasm",
        media_type: WASM,
        bytes: &component(),
    };
    let artifact = Artifact {
        config: Some((CONFIG, NO_CONFIG)),
        layers: &[layer],
        ..Artifact::default()
    };
    let digest = oras.push(registry, &format!("{repository}:1.0.0"), &artifact).unwrap();
    format!("{repository}@{digest}")
}

fn digest(bytes: &[u8]) -> String {
    let mut digest = "sha256:".to_owned();
    for byte in Sha256::digest(bytes) {
        let _ = write!(digest, "{byte:02x}");
    }
    digest
}

/// The digest in `repository@digest`.
fn digest_in(artifact: &str) -> &str {
    artifact.split_once('@').unwrap().1
}

/// The tag under which clients of a registry without the referrers API list what refers to a digest.
fn fallback_tag(artifact: &str) -> String {
    digest_in(artifact).replace(':', "-")
}

/// The manifests that refer to an artifact: by the referrers API, or by the fallback tag.
fn referrers(registry: &Registry, artifact: &str) -> Vec<Value> {
    let (repository, digest) = artifact.split_once('@').unwrap();
    let index = registry.referrers(repository, digest).or_else(|| {
        let index = registry.manifest(repository, &fallback_tag(artifact))?;
        Some(serde_json::from_slice(&index).unwrap())
    });
    let entries = index.unwrap()["manifests"].as_array().unwrap().clone();
    let manifests = entries.iter().map(|entry| {
        let manifest = registry.manifest(repository, entry["digest"].as_str().unwrap());
        serde_json::from_slice(&manifest.unwrap()).unwrap()
    });
    manifests.collect()
}

/// A blob that a descriptor names, which has that digest.
fn blob(registry: &Registry, artifact: &str, descriptor: &Value) -> Vec<u8> {
    let (repository, named) = (
        artifact.split_once('@').unwrap().0,
        descriptor["digest"].as_str().unwrap(),
    );
    let bytes = registry.blob(repository, named).unwrap();
    assert_eq!(digest(&bytes), named);
    bytes
}
