//! Owns the AppService that the demo applies: read once, and what of it is expected to come true.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// An AppService from a file.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The file, as it was named.
    pub path: PathBuf,
    /// The whole of it.
    pub body: Value,
    /// `metadata.name`
    pub name: String,
    /// `metadata.namespace`, or `default`.
    pub namespace: String,
    /// `spec.size`
    pub size: u64,
    /// `spec.image`
    pub image: String,
    /// `spec.ports`
    pub ports: Vec<Value>,
}

impl Sample {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("read the sample {}", path.display()))?;
        Self::parse(path, &text).with_context(|| format!("the sample {} can't be used", path.display()))
    }

    fn parse(path: &Path, text: &str) -> Result<Self> {
        let body: Value = serde_saphyr::from_str(text).context("it is not YAML")?;
        let kind = (body["apiVersion"].as_str(), body["kind"].as_str());
        ensure!(
            kind == (Some("kosmos.io/v1"), Some("AppService")),
            "it is not a kosmos.io/v1 AppService"
        );
        let name = body["metadata"]["name"]
            .as_str()
            .context("it has no metadata.name")?
            .to_owned();
        let namespace = body["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
        let spec = &body["spec"];
        let size = spec["size"].as_u64().context("it has no spec.size")?;
        let image = spec["image"].as_str().context("it has no spec.image")?.to_owned();
        let ports = spec["ports"].as_array().cloned().unwrap_or_default();
        Ok(Self {
            path: path.to_owned(),
            body,
            name,
            namespace,
            size,
            image,
            ports,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two replicas and a port.
    pub(crate) fn sample() -> Sample {
        let text = "{apiVersion: kosmos.io/v1, kind: AppService, metadata: {name: web}, \
                    spec: {size: 2, image: 'nginx:1', ports: [{port: 80, nodePort: 30002}]}}";
        Sample::parse(Path::new("web.yaml"), text).unwrap()
    }

    #[test]
    fn the_sample_that_is_shipped_can_be_used() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/samples/app-service.yaml");
        let Sample {
            name,
            namespace,
            size,
            ports,
            ..
        } = Sample::read(&path).unwrap();
        assert_eq!(
            (name.as_str(), namespace.as_str(), size, ports.len()),
            ("example-appservice", "default", 2, 1)
        );
    }

    #[test]
    fn another_kind_is_refused_by_the_files_name() {
        let refused = Sample::parse(Path::new("a.yaml"), "{apiVersion: v1, kind: Pod}").unwrap_err();
        assert_eq!(refused.to_string(), "it is not a kosmos.io/v1 AppService");
        let missing = format!("{:#}", Sample::read(Path::new("no/such.yaml")).unwrap_err());
        assert!(missing.starts_with("read the sample no/such.yaml"), "{missing}");
    }
}
