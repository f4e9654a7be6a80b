//! The registries themselves, and oras.

use pilothouse_external::oras::{CREATED, Layer, Oras, Place};
use pilothouse_external::registry::Registry;
use serde_json::{Value, json};

use super::{component, digest, digest_in, fallback_tag, on_both, push, referrers};

/// The media type of an image index.
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

const README: Layer<'static> = Layer {
    name: "README.md",
    media_type: "text/markdown",
    bytes: b"# A plugin\n",
};

#[test]
fn docker_registry_wants_a_password_and_the_other_one_does_not() {
    let docker = Registry::docker().unwrap();
    let answer = docker.get_anonymously("/v2/").unwrap();
    assert_eq!(answer.status, 401);
    let challenge = answer.headers["www-authenticate"].to_str().unwrap();
    assert!(challenge.starts_with("Basic "), "{challenge}");
    assert_eq!(docker.get("/v2/").unwrap().status, 200);

    let other = Registry::with_referrers().unwrap();
    assert_eq!(other.get_anonymously("/v2/").unwrap().status, 200);
}

#[test]
fn a_client_of_one_registry_does_not_trust_the_ca_of_another() {
    let (one, other) = (Registry::docker().unwrap(), Registry::docker().unwrap());
    let oras = Oras::new();
    let trusting = |ca: &Registry| oras.login(&one, ca.ca_file());
    assert!(trusting(&one).is_ok());
    let error = trusting(&other).unwrap_err().to_string();
    assert!(error.contains("certificate signed by unknown authority"), "{error}");
}

#[test]
fn the_docker_config_is_what_a_login_writes() {
    let registry = Registry::docker().unwrap();
    let oras = Oras::new();
    let file = oras.login(&registry, registry.ca_file()).unwrap();
    let written: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(written, registry.docker_config());
}

#[test]
fn a_tag_moves_to_the_manifest_that_is_put_under_it() {
    on_both(|registry| {
        let artifact = push(&Oras::new(), registry, "plugins/moved");
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": []}).to_string();
        let answer = registry.put_manifest("plugins/moved", "1.0.0", INDEX, index.as_bytes());
        assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
        assert_eq!(registry.manifest("plugins/moved", "1.0.0").unwrap(), index.as_bytes());
        assert!(registry.manifest("plugins/moved", digest_in(&artifact)).is_some());
    });
}

#[test]
fn oras_pulls_what_it_has_pushed() {
    on_both(|registry| {
        let oras = Oras::new();
        let artifact = push(&oras, registry, "plugins/pulled");
        let expected = [("plugin.wasm".to_owned(), component())];
        assert_eq!(oras.pull(registry, &artifact).unwrap(), expected);
        assert_eq!(oras.pull(registry, "plugins/pulled:1.0.0").unwrap(), expected);
        let manifest = registry.manifest("plugins/pulled", "1.0.0").unwrap();
        assert_eq!(digest(&manifest), digest_in(&artifact));
    });
}

#[test]
fn equal_content_has_one_digest_in_both_registries() {
    let oras = Oras::new();
    let pushed = [Registry::docker().unwrap(), Registry::with_referrers().unwrap()].map(|registry| {
        let artifact = push(&oras, &registry, "plugins/same");
        let manifest = registry.manifest("plugins/same", "1.0.0").unwrap();
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        assert_eq!(manifest["annotations"]["org.opencontainers.image.created"], CREATED);
        artifact
    });
    assert_eq!(pushed[0], pushed[1]);
}

#[test]
fn attachments_are_found_by_tag_only_without_the_api() {
    on_both(|registry| {
        let oras = Oras::new();
        let artifact = push(&oras, registry, "plugins/read");
        let attached = oras.attach(registry, &artifact, "application/vnd.example.readme", &README);
        let attached = attached.unwrap();
        let [manifest] = <[_; 1]>::try_from(referrers(registry, &artifact)).unwrap();
        assert_eq!(manifest["artifactType"], "application/vnd.example.readme");
        assert_eq!(manifest["subject"]["digest"], digest_in(&artifact));
        let found = oras.discover(registry, &artifact).unwrap();
        assert_eq!(found["referrers"][0]["digest"], attached.as_str(), "{found}");

        let listed = registry.referrers("plugins/read", digest_in(&artifact));
        assert_eq!(listed.is_some(), registry.credentials().is_none(), "{listed:?}");
        if let Some(listed) = listed {
            // The registry takes the config's media type for the artifact's type, so nobody may trust the list with it.
            assert_eq!(
                listed["manifests"][0]["artifactType"],
                "application/vnd.oci.empty.v1+json"
            );
        } else {
            assert!(registry.tags("plugins/read").contains(&fallback_tag(&artifact)));
        }
    });
}

#[test]
fn a_stopped_registry_keeps_its_data_over_a_restart() {
    let mut registry = Registry::docker().unwrap();
    let oras = Oras::new();
    let artifact = push(&oras, &registry, "plugins/kept");
    let address = registry.address();
    registry.stop().unwrap();
    assert!(registry.get("/v2/").is_err());
    assert!(oras.pull(&registry, &artifact).is_err());
    registry.start().unwrap();
    assert_eq!(registry.address(), address);
    assert_eq!(oras.pull(&registry, &artifact).unwrap()[0].1, component());
}

#[test]
fn a_copy_through_a_layout_has_all_that_refers_to_the_artifact() {
    let (from, to) = (Registry::docker().unwrap(), Registry::with_referrers().unwrap());
    let oras = Oras::new();
    let artifact = push(&oras, &from, "plugins/copied");
    let attached = oras.attach(&from, &artifact, "application/vnd.example.readme", &README);
    let layout = tempfile::tempdir().unwrap();
    let place = Place::Layout(layout.path(), "1.0.0");
    oras.copy(Place::Registry(&from, "plugins/copied:1.0.0"), place)
        .unwrap();
    drop(from);
    oras.copy(place, Place::Registry(&to, "elsewhere:1.0.0")).unwrap();
    let copied = format!("elsewhere@{}", digest_in(&artifact));
    assert_eq!(oras.pull(&to, &copied).unwrap()[0].1, component());
    let manifests = referrers(&to, &copied);
    assert_eq!(manifests.len(), 1);
    assert!(to.manifest("elsewhere", &attached.unwrap()).is_some());
}
