//! Decides whether an artifact may run: selects the rule of the trust file for its repository, and checks whether one
//! of its signatures satisfies that rule.
//!
//! All inputs of the decision are read when the trust file is loaded: keys, trusted roots, patterns. Verification is a
//! pure function of the repository, the manifest and the found signatures, so a signature from the cache is verified at
//! each start exactly as one from a registry, without a network.
//!
//! With `default: accept`, a rule restricts a registry's name and not its contents: a user who may name a source can
//! use another name of the same machine. Where that matters, the default has to be `refuse`.
//!
//! sigstore-verify, which verifies as cosign does and offline, takes a provider of algorithms (`crypto`). Its own, aws-lc-rs, has 2 MB of
//! code. ring lacks only ML-DSA, and Ed25519ph, as which cosign 3 signs with keys of the type Ed25519: such keys are refused when the
//! trust file is loaded. A signature is the statement of `cosign sign`. cosign itself takes any attestation for one, also that of a scan
//! that has failed.

mod accepted;
mod bundle;
mod configuration;
mod crypto;
pub(crate) mod discovery;
mod error;
mod pattern;
mod rule;
pub(crate) mod signature;
mod simple_signing;
pub(crate) mod source;
#[cfg(test)]
mod tests;
mod verify;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::configuration::Default as DefaultRule;
use self::error::quoted;
pub use self::error::{TrustError, TrustErrorKind, TrustPolicyError};
use self::pattern::Repository;
use self::rule::{Accepts, Loader, Rule};
use self::verify::first_accepted;
use crate::trust::accepted::{Manifest, Signers};
use crate::trust::signature::SignatureMaterial;

/// The policy for the artifacts that the host runs. Cheap to clone.
#[derive(Clone)]
pub struct TrustPolicy {
    rules: Arc<[Rule]>,
    default: DefaultRule,
    /// Set if there is a trust file, which messages then name.
    is_from_file: bool,
}

/// The rule for a repository, unless that is refused.
#[derive(Clone, Copy)]
pub struct RuleRef<'a> {
    /// The rule; none if no rule matches, and the default accepts.
    rule: Option<&'a Rule>,
    is_from_file: bool,
}

/// The permission of an artifact to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// The result for the signer.
    pub outcome: Outcome,
    /// The rule that allowed it, for messages.
    pub rule: String,
}

/// The result of verifying an artifact that may run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// The artifact has no signature, and needs none.
    Unsigned,
    /// The artifact has signatures that were not verified, because it needs none.
    Unverified {
        /// The number of found signatures.
        signatures: usize,
    },
    /// A signature was verified.
    Signed {
        /// The key's name, or `SUBJECT of ISSUER`.
        signer: String,
        /// The form of the signature.
        format: SignatureFormat,
        /// The time of the signature, if a trusted transparency log or timestamp authority states it.
        signed_at: Option<Timestamp>,
    },
}

/// The form of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SignatureFormat {
    /// A Sigstore bundle (cosign 3 and later).
    Bundle,
    /// Simple signing (cosign before version 3).
    SimpleSigning,
}

impl TrustPolicy {
    /// Loads the policy of a trust file, which the caller has parsed from YAML. Reads the files that the rules name,
    /// relative to `directory`.
    pub fn load(value: &Value, directory: &Path) -> Result<Self, TrustPolicyError> {
        // serde would read a list as a struct's fields in their order.
        if !value.is_object() {
            return Err(TrustPolicyError::Form(
                "it is not a mapping with default and repositories".to_owned(),
            ));
        }
        let file: configuration::TrustFile =
            serde_json::from_value(value.clone()).map_err(|error| TrustPolicyError::Form(error.to_string()))?;
        let configuration::TrustFile { default, repositories } = file;
        crypto::install();
        let mut loader = Loader::new(directory);
        let mut rules: Vec<Rule> = Vec::with_capacity(repositories.len());
        for (index, value) in repositories.iter().enumerate() {
            let rule = loader.rule(index, value)?;
            if let Some(other) = rules.iter().find(|other| other.pattern == rule.pattern) {
                let cause = format!(
                    "repositories[{}] has the same pattern, {:?}; merge the two",
                    other.index, other.text
                );
                return Err(TrustPolicyError::Rule { index, cause });
            }
            rules.push(rule);
        }
        Ok(Self {
            rules: rules.into(),
            default,
            is_from_file: true,
        })
    }

    /// The policy without a trust file: every artifact is accepted, and reported as unsigned or unverified.
    pub fn accept_unsigned() -> Self {
        Self {
            rules: Arc::default(),
            default: DefaultRule::Accept,
            is_from_file: false,
        }
    }

    /// The policy for keys without a trust file: every repository needs a signature by one of them.
    pub fn of_keys(files: &[PathBuf]) -> Result<Self, TrustPolicyError> {
        let mut keys = Vec::with_capacity(files.len());
        for file in files {
            let Some(text) = file.to_str() else {
                let cause = "whose name is not UTF-8; rename it".to_owned();
                return Err(TrustPolicyError::Key {
                    path: file.clone(),
                    cause,
                });
            };
            keys.push(json!({"file": text}));
        }
        let value = json!({"repositories": [{"match": "**", "keys": keys}]});
        match Self::load(&value, Path::new("")) {
            Ok(policy) => Ok(Self {
                is_from_file: false,
                ..policy
            }),
            Err(TrustPolicyError::File { path, cause, .. }) => Err(TrustPolicyError::Key { path, cause }),
            Err(error) => Err(error),
        }
    }

    /// The JSON schema of the trust file.
    pub fn json_schema() -> Value {
        configuration::json_schema()
    }

    /// The rule for a repository (`registry/repository` or `oci-layout:/directory`), or an error if it is refused. Call
    /// it before anything is downloaded.
    ///
    /// Of the rules whose pattern matches, the most specific one decides alone. Patterns are compared segment by segment
    /// from the left, and the first difference decides: a literal segment is more specific than one with `*` (of which one
    /// with more literal characters is more specific), and that is more specific than `**`. If no segment differs, the
    /// longer pattern is more specific; if they are equally long, the first one in the file decides. Before comparison
    /// names are lower-cased, the ports 80 and 443 and a dot behind the host are removed, and Docker Hub's names become
    /// `docker.io`.
    pub fn rule_for(&self, repository: &str) -> Result<RuleRef<'_>, TrustError> {
        let refused = |cause: String| TrustError::NotAllowed {
            repository: quoted(repository),
            cause,
        };
        let parsed = Repository::parse(repository).map_err(|cause| refused(format!("the name {cause}")))?;
        let matching = self.rules.iter().filter(|rule| rule.pattern.matches(&parsed));
        // `max_by` takes the last of equal ones, and the first in the file shall decide.
        let rule = matching.rev().max_by(|a, b| a.pattern.compare(&b.pattern));
        if rule.is_none() && self.default == DefaultRule::Refuse {
            let cause = "no rule of the trust file matches it and its default is refuse; add a rule to the trust file, or \
                         use an artifact of an allowed repository";
            return Err(refused(cause.to_owned()));
        }
        Ok(RuleRef {
            rule,
            is_from_file: self.is_from_file,
        })
    }

    /// Decides whether the artifact with this manifest may run, given its found signatures. One valid signature is
    /// enough, whatever other signatures there are. The manifest's bytes are hashed and not parsed.
    pub fn verify(
        &self,
        repository: &str,
        manifest: &[u8],
        signatures: &[SignatureMaterial],
    ) -> Result<Verification, TrustError> {
        let found = self.rule_for(repository)?;
        let unverified = match signatures.len() {
            0 => Outcome::Unsigned,
            signatures => Outcome::Unverified { signatures },
        };
        let accepted = |outcome| {
            Ok(Verification {
                outcome,
                rule: found.description(),
            })
        };
        let Some(rule) = found.rule else {
            return accepted(unverified);
        };
        let signers = match &rule.accepts {
            Accepts::Unsigned => return accepted(unverified),
            Accepts::Signed { keys, log, identities } => Signers {
                keys,
                log: log.as_ref(),
                identities,
            },
        };
        let manifest = Manifest::of(manifest);
        match first_accepted(&manifest, signatures, &signers) {
            Ok((signature, format)) => {
                let accepted::Accepted { signer, signed_at } = signature;
                accepted(Outcome::Signed {
                    signer,
                    format,
                    signed_at,
                })
            }
            Err(rejections) => {
                let artifact = format!("{}@{}", quoted(repository), manifest.digest);
                Err(TrustError::refused(
                    artifact,
                    found.description(),
                    rule.accepted(),
                    rejections,
                    self.is_from_file,
                ))
            }
        }
    }
}

impl RuleRef<'_> {
    /// The rule for messages.
    pub fn description(&self) -> String {
        match self.rule {
            Some(rule) if self.is_from_file => rule.description(),
            Some(_) => "the command line".to_owned(),
            None if self.is_from_file => "the trust file's default, accept".to_owned(),
            None => "no trust file, which accepts every artifact".to_owned(),
        }
    }

    /// Reports whether the artifact needs a signature. If not, signatures need not be searched.
    pub fn needs_signature(&self) -> bool {
        self.rule
            .is_some_and(|rule| matches!(rule.accepts, Accepts::Signed { .. }))
    }
}

impl fmt::Debug for RuleRef<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.description())
    }
}

impl fmt::Debug for TrustPolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.rules.iter().map(|rule| (&rule.text, rule.accepted()));
        formatter
            .debug_map()
            .entries(rules)
            .entry(&"default", &self.default)
            .finish()
    }
}
