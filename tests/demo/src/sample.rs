//! Resources that the demo applies: each is read once from its file.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::kind::Kind;

/// A resource from a file.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The file, as it was named.
    pub path: PathBuf,
    /// The whole of it.
    pub body: Value,
    /// Its kind.
    pub kind: Kind,
    /// `metadata.name`
    pub name: String,
    /// `metadata.namespace`, or `default`; none where the kind has no namespaces.
    pub namespace: Option<String>,
}

impl Sample {
    /// Reads a file, which must have this kind.
    pub fn read(path: &Path, kind: Kind) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("read the sample {}", path.display()))?;
        Self::parse(path, kind, &text).with_context(|| format!("the sample {} can't be used", path.display()))
    }

    /// Parses a text as if it were in that file.
    pub fn parse(path: &Path, kind: Kind, text: &str) -> Result<Self> {
        let body: Value = serde_saphyr::from_str(text).context("it is not YAML")?;
        let resource = kind.resource();
        ensure!(
            body["apiVersion"] == resource.api_version && body["kind"] == resource.kind,
            "it is not a {} {}",
            resource.api_version,
            resource.kind
        );
        let metadata = &body["metadata"];
        let name = metadata["name"].as_str().context("it has no metadata.name")?.to_owned();
        let namespace = metadata["namespace"].as_str().unwrap_or("default").to_owned();
        let namespace = kind.is_namespaced().then_some(namespace);
        Ok(Self {
            path: path.to_owned(),
            body,
            kind,
            name,
            namespace,
        })
    }

    /// The namespace as scenes have it.
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acts::acts;

    #[test]
    fn the_samples_that_are_shipped_can_be_used() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/samples");
        for act in acts() {
            let sample = Sample::read(&folder.join(act.sample), act.kind).unwrap();
            assert!(sample.name.starts_with("example-"), "{}", sample.name);
        }
    }

    #[test]
    fn another_kind_is_refused_by_the_files_name() {
        let refused = Sample::parse(Path::new("a.yaml"), Kind::AppService, "{apiVersion: v1, kind: Pod}").unwrap_err();
        assert_eq!(refused.to_string(), "it is not a kosmos.io/v1 AppService");
        let missing = format!(
            "{:#}",
            Sample::read(Path::new("no/such.yaml"), Kind::AppService).unwrap_err()
        );
        assert!(missing.starts_with("read the sample no/such.yaml"), "{missing}");
    }
}
