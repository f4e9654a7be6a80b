//! Defines the form of a plugin's artifact: the CNCF's wasm OCI artifact (one layer `application/wasm`), its encoding
//! byte for byte, and the forms that are accepted from other tools.
//!
//! The format: <https://tag-runtime.cncf.io/wgs/wasm/deliverables/wasm-oci-artifact/>. `wkg oci push` writes it; `oras push
//! FILE.wasm:application/wasm` writes the layer with an empty config, which is accepted too.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::content::annotation;
use crate::content::descriptor::media_type;
use crate::error::quoted;
use crate::limits::PARSED_LIMIT;
use crate::{ArtifactError, ArtifactStore, Content, Descriptor, Digest, ErrorKind, Progress};

/// The media type of the config.
pub const CONFIG: &str = "application/vnd.wasm.config.v0+json";
/// The media type of the layer.
pub const LAYER: &str = "application/wasm";
/// The layer's media type before the format was settled.
const OLD_LAYER: &str = "application/vnd.wasm.content.layer.v1+wasm";
/// The default creation time: a fixed one, so that the same input has the same digest.
const EPOCH: &str = "1970-01-01T00:00:00Z";

/// The parsed members of a manifest. Others may be anything.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    schema_version: u64,
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default)]
    manifests: Option<IgnoredAny>,
    #[serde(default)]
    config: Option<ConfigType>,
    #[serde(default)]
    layers: Option<Vec<Descriptor>>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfigType {
    media_type: String,
}

/// A plugin's manifest: the component to fetch, and its annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginManifest {
    /// The component.
    pub component: Descriptor,
    /// The manifest's annotations.
    pub annotations: BTreeMap<String, String>,
}

impl PluginManifest {
    /// Reads a manifest whose component may have at most this many bytes. `name` names the artifact in messages.
    pub fn parse(name: &str, bytes: &[u8], largest: u64) -> Result<Self, ArtifactError> {
        let refuse = |problem: String| {
            ArtifactError::new(
                ErrorKind::NotAPlugin,
                format!("{name} is not a plugin: {problem}; push a component with `pilothouse push FILE.wasm REF`"),
            )
        };
        if bytes.len() as u64 > PARSED_LIMIT {
            return Err(refuse(format!("its manifest is larger than {PARSED_LIMIT} bytes")));
        }
        let document: Document =
            serde_json::from_slice(bytes).map_err(|error| refuse(format!("its manifest cannot be read: {error}")))?;
        let media_type = document.media_type.as_deref();
        if document.manifests.is_some() || matches!(media_type, Some(media_type::INDEX | media_type::DOCKER_INDEX)) {
            return Err(refuse(
                "it is an image index, which has one manifest for each platform; name one of its manifests by digest"
                    .to_owned(),
            ));
        }
        if document.schema_version != 2 {
            return Err(refuse(format!(
                "its schemaVersion is {} and not 2",
                document.schema_version
            )));
        }
        if let Some(other) = media_type.filter(|it| *it != media_type::MANIFEST) {
            return Err(refuse(format!(
                "its manifest has the media type {} and not {}",
                quoted(other),
                media_type::MANIFEST
            )));
        }
        let layers = document.layers.unwrap_or_default();
        let is_component = |layer: &&Descriptor| layer.media_type == LAYER || layer.media_type == OLD_LAYER;
        let mut components = layers.iter().filter(is_component);
        let component = match (components.next(), components.count(), layers.len()) {
            (Some(component), 0, 1) => component,
            (Some(_), 0, all) => {
                return Err(refuse(format!("it has {} other layers beside the component", all - 1)));
            }
            (Some(_), more, _) => return Err(refuse(format!("it has {} components and must have one", more + 1))),
            (None, _, 0) => return Err(refuse("it has no layer".to_owned())),
            (None, _, _) => {
                let config = document
                    .config
                    .map_or_else(|| "none".to_owned(), |it| quoted(&it.media_type));
                return Err(refuse(format!(
                    "its layer has the media type {} and not {LAYER} (its config: {config})",
                    quoted(&layers[0].media_type)
                )));
            }
        };
        if component.size == 0 {
            return Err(refuse("its component has 0 bytes".to_owned()));
        }
        if component.size > largest {
            return Err(ArtifactError::new(
                ErrorKind::TooLarge,
                format!(
                    "the component of {name} has {} bytes, and at most {largest} are accepted; push a smaller component",
                    component.size
                ),
            ));
        }
        Ok(Self {
            component: component.clone(),
            annotations: document.annotations.unwrap_or_default(),
        })
    }
}

/// The component's interface, as in the config.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ComponentInfo {
    /// The interfaces and functions that it exports.
    pub exports: Vec<String>,
    /// The interfaces and functions that it imports.
    pub imports: Vec<String>,
    /// The world that it targets.
    pub target: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Config<'a> {
    created: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    author: Option<&'a str>,
    architecture: &'a str,
    os: &'a str,
    layer_digests: [Digest; 1],
    component: &'a ComponentInfo,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a> {
    schema_version: u8,
    media_type: &'a str,
    config: &'a Descriptor,
    layers: [&'a Descriptor; 1],
    annotations: &'a BTreeMap<String, String>,
}

/// Builds an artifact. The same input gives the same bytes, and so the same digest.
#[derive(Clone, Debug)]
pub struct ArtifactBuilder {
    component: Bytes,
    info: ComponentInfo,
    annotations: BTreeMap<String, String>,
    author: Option<String>,
    created: String,
}

/// A plugin's artifact, ready to push.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// The manifest.
    pub manifest: Bytes,
    /// The manifest's descriptor.
    pub descriptor: Descriptor,
    /// The config.
    pub config: Bytes,
    /// The config's descriptor.
    pub config_descriptor: Descriptor,
    /// The component.
    pub component: Bytes,
    /// The component's descriptor.
    pub component_descriptor: Descriptor,
}

impl ArtifactBuilder {
    /// An artifact of this component.
    pub fn new(component: impl Into<Bytes>, info: ComponentInfo) -> Self {
        Self {
            component: component.into(),
            info,
            annotations: BTreeMap::new(),
            author: None,
            created: EPOCH.to_owned(),
        }
    }

    /// Adds an annotation of the manifest, unless the value is none.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: Option<&str>) -> Self {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            self.annotations.insert(key.to_owned(), value.to_owned());
        }
        self
    }

    /// Sets the author of the component.
    #[must_use]
    pub fn author(mut self, author: &str) -> Self {
        self.author = Some(author.to_owned());
        self
    }

    /// Sets the creation time, for example from `SOURCE_DATE_EPOCH`. The default is 1970-01-01.
    #[must_use]
    pub fn created(mut self, time: jiff::Timestamp) -> Self {
        self.created = time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        self
    }

    /// Builds the artifact.
    pub fn build(self) -> Artifact {
        let Self {
            component,
            info,
            mut annotations,
            author,
            created,
        } = self;
        let mut component_descriptor = Descriptor::of(LAYER, &component);
        // oras writes the layer to a file of this name, and does not pull a layer without one.
        let title = annotations.get(annotation::TITLE).map_or("plugin", String::as_str);
        let file: String = title
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .trim_end_matches(".wasm")
            .chars()
            .map(|it| {
                if it.is_ascii_alphanumeric() || "-_".contains(it) {
                    it
                } else {
                    '_'
                }
            })
            .collect();
        component_descriptor
            .annotations
            .insert(annotation::TITLE.to_owned(), format!("{file}.wasm"));
        annotations.insert(annotation::CREATED.to_owned(), created.clone());
        let config = Config {
            created: &created,
            author: author.as_deref(),
            architecture: "wasm",
            os: "wasip2",
            layer_digests: [component_descriptor.digest],
            component: &info,
        };
        let config = Bytes::from(serde_json::to_vec(&config).expect("it is written as JSON"));
        let config_descriptor = Descriptor::of(CONFIG, &config);
        let manifest = Manifest {
            schema_version: 2,
            media_type: media_type::MANIFEST,
            config: &config_descriptor,
            layers: [&component_descriptor],
            annotations: &annotations,
        };
        let manifest = Bytes::from(serde_json::to_vec(&manifest).expect("it is written as JSON"));
        Artifact {
            descriptor: Descriptor::of(media_type::MANIFEST, &manifest),
            manifest,
            config,
            config_descriptor,
            component,
            component_descriptor,
        }
    }
}

impl Artifact {
    /// Pushes blobs and manifest, and sets the tag last.
    pub async fn push(
        &self,
        store: &ArtifactStore,
        tag: Option<&str>,
        progress: &dyn Progress,
    ) -> Result<Descriptor, ArtifactError> {
        let component = Content::Bytes(self.component.clone());
        store
            .push_blob(&self.component_descriptor, &component, progress)
            .await?;
        let config = Content::Bytes(self.config.clone());
        store
            .push_blob(&self.config_descriptor, &config, &crate::Silent)
            .await?;
        store.push_manifest(&self.manifest, media_type::MANIFEST, tag).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const LIMIT: u64 = 1000;

    fn layer(media_type: &str, size: u64) -> Value {
        json!({"mediaType": media_type, "digest": Digest::of(b"x"), "size": size})
    }

    fn manifest(layers: &Value) -> Value {
        json!({
            "schemaVersion": 2, "mediaType": media_type::MANIFEST, "config": layer(CONFIG, 2), "layers": layers,
        })
    }

    fn parse(value: &Value) -> Result<PluginManifest, ArtifactError> {
        PluginManifest::parse("ghcr.io/acme/plugin:1", value.to_string().as_bytes(), LIMIT)
    }

    #[test]
    fn what_wkg_oras_and_push_write_is_a_plugin() {
        let wkg = manifest(&json!([layer(LAYER, 15)]));
        assert_eq!(parse(&wkg).unwrap().component.size, 15);
        let mut oras = manifest(&json!([layer(LAYER, 15)]));
        oras["config"] = layer(media_type::EMPTY, 2);
        oras["artifactType"] = json!("application/vnd.unknown.artifact.v1");
        oras["layers"][0]["annotations"] = json!({annotation::TITLE: "plugin.wasm"});
        assert!(parse(&oras).is_ok());
        assert!(parse(&manifest(&json!([layer(OLD_LAYER, 15)]))).is_ok());
        let mut without_type = manifest(&json!([layer(LAYER, 15)]));
        without_type.as_object_mut().unwrap().remove("mediaType");
        assert!(parse(&without_type).is_ok());
        let own = ArtifactBuilder::new(&b"\0asm"[..], ComponentInfo::default())
            .annotation(annotation::VERSION, Some("1.0.0"))
            .build();
        let read = PluginManifest::parse("own", &own.manifest, LIMIT).unwrap();
        assert_eq!(read.component, own.component_descriptor);
        assert_eq!(read.annotations[annotation::VERSION], "1.0.0");
    }

    #[test]
    fn what_is_no_plugin_is_refused_with_the_reason() {
        let mut docker = manifest(&json!([layer(LAYER, 15)]));
        docker["mediaType"] = json!(media_type::DOCKER_MANIFEST);
        let mut first = manifest(&json!([layer(LAYER, 15)]));
        first["schemaVersion"] = json!(1);
        let mut sha512 = manifest(&json!([layer(LAYER, 15)]));
        sha512["layers"][0]["digest"] = json!("sha512:00");
        for (value, problem) in [
            (json!([]), "cannot be read"),
            (json!({}), "cannot be read"),
            (json!({"schemaVersion": 2, "manifests": []}), "image index"),
            (
                json!({"schemaVersion": 2, "mediaType": media_type::INDEX}),
                "image index",
            ),
            (docker, "docker"),
            (first, "schemaVersion is 1"),
            (sha512, "SHA-256"),
            (manifest(&json!([])), "no layer"),
            (
                manifest(&json!([layer("application/vnd.oci.image.layer.v1.tar+gzip", 15)])),
                "tar+gzip",
            ),
            (manifest(&json!([layer(LAYER, 15), layer(LAYER, 15)])), "2 components"),
            (
                manifest(&json!([layer(LAYER, 15), layer("text/plain", 15)])),
                "1 other layers",
            ),
            (manifest(&json!([layer(LAYER, 0)])), "0 bytes"),
            (
                manifest(&json!([{"mediaType": LAYER, "digest": Digest::of(b""), "size": -1}])),
                "cannot be read",
            ),
        ] {
            let error = parse(&value).expect_err(&value.to_string());
            assert_eq!(error.kind(), ErrorKind::NotAPlugin, "{error}");
            let message = error.to_string();
            assert!(
                message.contains(problem) && message.contains("ghcr.io/acme/plugin:1"),
                "{message}"
            );
        }
        let error = parse(&manifest(&json!([layer(LAYER, LIMIT + 1)]))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge);
        let huge = " ".repeat(usize::try_from(PARSED_LIMIT).unwrap() + 1);
        assert!(PluginManifest::parse("huge", huge.as_bytes(), LIMIT).is_err());
    }

    #[test]
    fn the_same_input_has_the_same_digest() {
        let build = |version| {
            ArtifactBuilder::new(
                &b"\0asm component"[..],
                ComponentInfo {
                    exports: vec!["a:b/c".into()],
                    ..Default::default()
                },
            )
            .annotation(annotation::TITLE, Some("acme/plugin"))
            .annotation(annotation::VERSION, Some(version))
            .annotation(annotation::SOURCE, None)
            .build()
        };
        // The digest is in the test so that it cannot change with the day, the machine or a dependency.
        assert_eq!(
            build("1.0.0").descriptor.digest.to_string(),
            "sha256:ccb5d0bd8a9d768b9effc5d927e6be12cac341c7506bfe8e46a13f872ce62095"
        );
        assert_ne!(build("1.0.0").descriptor, build("1.0.1").descriptor);
        let text = String::from_utf8(build("1.0.0").manifest.to_vec()).unwrap();
        assert!(
            text.contains("\"org.opencontainers.image.created\":\"1970-01-01T00:00:00Z\""),
            "{text}"
        );
        assert!(
            text.contains("\"org.opencontainers.image.title\":\"plugin.wasm\""),
            "{text}"
        );
    }
}
