//! wkg, alone and with oras.

use pilothouse_external::oras::{Artifact, Layer, Oras};
use pilothouse_external::wkg::Wkg;
use serde_json::Value;

use super::{CONFIG, WASM, blob, component, digest, on_both, push};

#[test]
fn what_wkg_pushes_is_one_layer_with_a_config() {
    on_both(|registry| {
        let wkg = Wkg::new();
        let annotations = [("org.opencontainers.image.version", "1.0.0")];
        let pushed = wkg.push(registry, "wkg/a:1.0.0", &component(), &annotations).unwrap();
        let manifest = registry.manifest("wkg/a", "1.0.0").unwrap();
        assert_eq!(digest(&manifest), pushed);
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        assert_eq!(manifest["annotations"]["org.opencontainers.image.version"], "1.0.0");
        assert_eq!(manifest["config"]["mediaType"], CONFIG);
        let [layer] = <[_; 1]>::try_from(manifest["layers"].as_array().unwrap().clone()).unwrap();
        assert_eq!(layer["mediaType"], WASM);
        let artifact = format!("wkg/a@{pushed}");
        assert_eq!(blob(registry, &artifact, &layer), component());
        let config: Value = serde_json::from_slice(&blob(registry, &artifact, &manifest["config"])).unwrap();
        assert_eq!(config["layerDigests"][0], layer["digest"]);
        assert_eq!(
            (&config["architecture"], &config["os"]),
            (&"wasm".into(), &"wasip2".into())
        );
        assert_eq!(wkg.pull(registry, "wkg/a:1.0.0").unwrap(), component());
    });
}

#[test]
fn wkg_and_oras_pull_from_each_other() {
    on_both(|registry| {
        let (wkg, oras) = (Wkg::new(), Oras::new());
        let by_wkg = wkg.push(registry, "both/wkg:1.0.0", &component(), &[]).unwrap();
        let pulled = oras.pull(registry, &format!("both/wkg@{by_wkg}")).unwrap();
        assert_eq!(pulled, [("plugin.wasm".to_owned(), component())]);
        let by_oras = push(&oras, registry, "both/oras");
        assert_eq!(wkg.pull(registry, &by_oras).unwrap(), component());
    });
}

#[test]
fn wkg_refuses_an_artifact_without_the_config_of_a_component() {
    on_both(|registry| {
        let layer = Layer {
            name: "plugin.wasm",
            media_type: WASM,
            bytes: &component(),
        };
        let artifact = Artifact {
            artifact_type: Some(CONFIG),
            layers: &[layer],
            ..Artifact::default()
        };
        Oras::new().push(registry, "untyped:1", &artifact).unwrap();
        let refused = Wkg::new().pull(registry, "untyped:1").unwrap_err();
        assert!(
            refused.printed.errors.contains("must have a config of type"),
            "{refused}"
        );
    });
}
