//! Defines the format of the trust file. `rule.rs` checks and interprets the fields.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::content::json::sorted;

/// Which plugins the host runs: from which repositories, and signed by whom.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(title = "TrustFile")]
pub(super) struct TrustFile {
    /// What happens to an artifact of a repository that no rule matches.
    #[serde(default)]
    pub default: Default,
    /// The rules. The most specific rule that matches a repository decides alone; the order in the file matters only
    /// between rules that are equally specific, where the first one decides.
    #[serde(default)]
    #[schemars(with = "Vec<RepositoryRule>")]
    pub repositories: Vec<Value>,
}

/// What happens to an artifact of a repository that no rule matches.
#[derive(Clone, Copy, Debug, std::default::Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum Default {
    /// It is refused before anything is downloaded.
    #[default]
    Refuse,
    /// It runs, and is reported as unsigned or unverified.
    Accept,
}

/// What is accepted from the repositories that a pattern matches: artifacts that one of the keys or one of the keyless
/// identities has signed, or with `unsigned: true` every artifact.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RepositoryRule {
    /// The repositories, as `REGISTRY[:PORT]/REPOSITORY` without tag or digest. `*` stands for any characters within one
    /// path segment, and a segment `**` for any number of segments, including none. For OCI layouts:
    /// `oci-layout:/DIRECTORY`.
    #[serde(rename = "match")]
    #[schemars(
        length(min = 1, max = 512),
        regex(pattern = r"^(oci-layout:/.*|([A-Za-z0-9.*-]+|\[[0-9A-Fa-f:]+\])(:[0-9]+)?(/[^/:@\s]+)+)$")
    )]
    pub pattern: String,
    /// Public keys. A signature by any of them is enough, so that a new key can be added before the old one is removed.
    #[serde(default)]
    pub keys: Vec<KeySource>,
    /// Identities that sign with short-lived certificates of Sigstore. Any of them is enough.
    #[serde(default)]
    pub keyless: Vec<KeylessIdentity>,
    /// Accept every artifact, signed or not.
    #[serde(default)]
    pub unsigned: bool,
    /// Whether signatures by a key need proof that they are in a transparency log.
    #[serde(default)]
    pub transparency_log: TransparencyLog,
    /// The file of the trusted root (`trusted_root.json`) for `transparencyLog: required`, and for keyless identities that
    /// name none of their own. Relative to the trust file's directory. It is never fetched from a network.
    #[serde(default)]
    pub trusted_root: Option<PathBuf>,
}

/// Whether signatures by a key need proof that they are in a transparency log.
#[derive(Clone, Copy, Debug, std::default::Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum TransparencyLog {
    /// The signature by the key is enough, and log entries are not looked at.
    #[default]
    Ignored,
    /// The signature must carry an entry of a log that the trusted root names.
    Required,
}

/// A public key: ECDSA P-256 (what `cosign generate-key-pair` makes), ECDSA P-384, or RSA with 2048 to 8192 bits.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct KeySource {
    /// What reports and conditions call the key. By default the file's name without its extension, or the start of the
    /// key's SHA-256 digest.
    #[serde(default)]
    #[schemars(length(min = 1, max = 128))]
    pub name: Option<String>,
    /// The PEM file of the key, relative to the trust file's directory. Either this or `pem`.
    #[serde(default)]
    pub file: Option<PathBuf>,
    /// The key, PEM. Either this or `file`.
    #[serde(default)]
    pub pem: Option<String>,
}

/// Who signs with a short-lived certificate, such as a workflow or a person.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct KeylessIdentity {
    /// The OpenID Connect issuer that the certificate names, compared exactly.
    #[schemars(length(min = 1))]
    pub issuer: String,
    /// The subject alternative name that the certificate names: an email address or a URI. `*` stands for any characters
    /// but `/`, so that neither a branch nor a file name can pretend to be another workflow.
    #[schemars(length(min = 1))]
    pub subject: String,
    /// The file of the trusted root, if it is not that of the rule. Relative to the trust file's directory.
    #[serde(default)]
    pub trusted_root: Option<PathBuf>,
}

/// The JSON schema of the trust file.
pub(super) fn json_schema() -> Value {
    sorted(schemars::schema_for!(TrustFile).to_value())
}
