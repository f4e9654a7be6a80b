//! A checked rule of the trust file: its pattern, its keys and its identities. All files are read here, when the trust
//! file is loaded, and none later.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sigstore_verify::crypto::{
    KeyAlgorithm, SubjectAltName, VerificationKey, parse_certificate_info, validate_raw_public_key,
};
use sigstore_verify::trust_root::TrustedRoot;
use sigstore_verify::types::{DerCertificate, DerPublicKey};
use sigstore_verify::{VerificationPolicy, Verifier};

use super::configuration::{KeySource, KeylessIdentity, RepositoryRule, TransparencyLog};
use super::error::{Rejection, TrustPolicyError, quoted};
use super::pattern::{Pattern, glob};
use crate::content::digest::Digest;

/// The longest file of a key, in bytes.
const MAX_KEY_BYTES: u64 = 64 << 10;

/// The longest trusted root, in bytes. That of Sigstore's public instance has about 10 KiB.
const MAX_ROOT_BYTES: u64 = 4 << 20;

/// The longest name of a key, in bytes.
const MAX_NAME: usize = 128;

/// A rule that is ready to verify.
pub(super) struct Rule {
    pub index: usize,
    pub text: String,
    pub pattern: Pattern,
    pub accepts: Accepts,
}

/// The artifacts that a rule accepts.
pub(super) enum Accepts {
    /// Every artifact.
    Unsigned,
    /// Artifacts with a signature of these.
    Signed {
        keys: Vec<Key>,
        /// The trusted root that verifies log entries, if key signatures need one in a transparency log.
        log: Option<Arc<Root>>,
        identities: Vec<Identity>,
    },
}

/// A public key.
pub(super) struct Key {
    pub name: String,
    /// The key's SHA-256 digest in base64, as in the hints of bundles.
    pub hint: String,
    pub der: DerPublicKey,
    pub algorithm: KeyAlgorithm,
    pub verification: VerificationKey,
}

/// A keyless identity.
pub(super) struct Identity {
    issuer: String,
    subject: String,
    pub root: Arc<Root>,
}

/// A trusted root.
pub(super) struct Root {
    pub verifier: Verifier,
    lists: Lists,
}

/// The parts of a trusted root that are present.
#[expect(clippy::struct_excessive_bools, reason = "four lists, each of which is empty or not")]
struct Lists {
    authorities: bool,
    logs: bool,
    certificate_logs: bool,
    timestamps: bool,
}

/// The identity that a certificate claims.
pub(super) struct Claim {
    pub identity: SubjectAltName,
    pub issuer: String,
}

/// Reads the files in rules, each once.
pub(super) struct Loader<'a> {
    directory: &'a Path,
    roots: BTreeMap<PathBuf, Arc<Root>>,
}

impl Rule {
    /// The rule's name in messages.
    pub fn description(&self) -> String {
        format!("the trust file's rule for {:?}", self.text)
    }

    /// The accepted signers, for messages.
    pub fn accepted(&self) -> String {
        match &self.accepts {
            Accepts::Unsigned => "every artifact".to_owned(),
            Accepts::Signed { keys, log, identities } => {
                let keys = keys.iter().map(|key| format!("the key {}", key.name));
                let identities = identities
                    .iter()
                    .map(|identity| format!("the identity {} of the issuer {}", identity.subject, identity.issuer));
                let mut text = keys.chain(identities).collect::<Vec<_>>().join(" or ");
                if log.is_some() {
                    text.push_str(", keys with an entry of the transparency log");
                }
                text
            }
        }
    }
}

impl Identity {
    pub fn accepts(&self, claim: &Claim) -> bool {
        self.issuer == claim.issuer && glob(&self.subject, claim.identity.as_str())
    }
}

impl Claim {
    /// The claim of a certificate. Nothing of it is verified.
    pub fn of(certificate: &DerCertificate) -> Result<Self, Rejection> {
        let malformed = |cause: &str| Rejection::Malformed(quoted(cause));
        let information = parse_certificate_info(certificate).map_err(|error| malformed(&error.to_string()))?;
        let Some(identity) = information.identity else {
            return Err(malformed("the certificate has no subject alternative name"));
        };
        let issuer = information
            .issuer
            .ok_or_else(|| malformed("the certificate names no issuer"))?;
        Ok(Self { identity, issuer })
    }

    pub fn signer(&self) -> String {
        format!("{} of {}", quoted(self.identity.as_str()), quoted(&self.issuer))
    }
}

impl Root {
    /// The policy for exactly this identity. It requires an inclusion proof if the trusted root lists transparency
    /// logs, and a signed certificate timestamp if it lists certificate transparency logs.
    pub fn policy(&self, claim: &Claim) -> VerificationPolicy {
        let mut policy = VerificationPolicy::new(&claim.identity, claim.issuer.as_str());
        if !self.lists.logs {
            policy = policy.skip_tlog_unsafe();
        }
        if !self.lists.certificate_logs {
            policy = policy.skip_sct();
        }
        policy
    }
}

impl<'a> Loader<'a> {
    pub fn new(directory: &'a Path) -> Self {
        Self {
            directory,
            roots: BTreeMap::new(),
        }
    }

    /// Checks a rule and reads its files.
    pub fn rule(&mut self, index: usize, value: &Value) -> Result<Rule, TrustPolicyError> {
        let invalid = |cause: String| TrustPolicyError::Rule { index, cause };
        if !value.is_object() {
            return Err(invalid(
                "it is not a mapping with match and what is accepted".to_owned(),
            ));
        }
        let rule: RepositoryRule = serde_json::from_value(value.clone()).map_err(|error| invalid(error.to_string()))?;
        let RepositoryRule {
            pattern: text,
            keys,
            keyless,
            unsigned,
            transparency_log,
            trusted_root,
        } = rule;
        let pattern = Pattern::parse(&text).map_err(|cause| {
            invalid(format!(
                "its pattern {text:?} {cause}; write it as registry.example.com/plugins/*"
            ))
        })?;
        if unsigned {
            if !keys.is_empty() || !keyless.is_empty() || transparency_log == TransparencyLog::Required {
                return Err(invalid(format!(
                    "{text:?} has unsigned: true beside keys, keyless or transparencyLog, which it would make meaningless; \
                     remove one of them"
                )));
            }
            return Ok(Rule {
                index,
                text,
                pattern,
                accepts: Accepts::Unsigned,
            });
        }
        if keys.is_empty() && keyless.is_empty() {
            return Err(invalid(format!(
                "{text:?} accepts nothing; give it keys, keyless, or unsigned: true"
            )));
        }
        let log = match transparency_log {
            TransparencyLog::Ignored => None,
            TransparencyLog::Required => Some(self.log(index, trusted_root.as_deref(), keys.is_empty())?),
        };
        // A configured trusted root must be used by something.
        if trusted_root.is_some() && log.is_none() && keyless.iter().all(|identity| identity.trusted_root.is_some()) {
            return Err(invalid(
                "its trustedRoot is not used; add transparencyLog: required, or remove it".to_owned(),
            ));
        }
        let keys = keys
            .into_iter()
            .map(|source| self.key(index, source))
            .collect::<Result<Vec<_>, _>>()?;
        let mut names = BTreeSet::new();
        if let Some(key) = keys.iter().find(|key| !names.insert(&key.name)) {
            return Err(invalid(format!(
                "two keys have the name {:?}; give each a name of its own",
                key.name
            )));
        }
        let identities = keyless
            .into_iter()
            .map(|source| self.identity(index, source, trusted_root.as_deref()));
        let identities = identities.collect::<Result<Vec<_>, _>>()?;
        Ok(Rule {
            index,
            text,
            pattern,
            accepts: Accepts::Signed { keys, log, identities },
        })
    }

    fn log(&mut self, index: usize, path: Option<&Path>, is_unused: bool) -> Result<Arc<Root>, TrustPolicyError> {
        let invalid = |cause: &str| TrustPolicyError::Rule {
            index,
            cause: cause.to_owned(),
        };
        if is_unused {
            return Err(invalid(
                "transparencyLog concerns keys, and the rule has none; keyless signatures always need what the trusted \
                 root lists",
            ));
        }
        let path = path.ok_or_else(|| {
            invalid("transparencyLog: required needs a trustedRoot that names the log; cosign trusted-root create makes one")
        })?;
        let root = self.root(index, path)?;
        if root.lists.logs {
            return Ok(root);
        }
        Err(self.file(
            index,
            path,
            "a trusted root without a transparency log; name one that has it".to_owned(),
        ))
    }

    fn key(&self, index: usize, source: KeySource) -> Result<Key, TrustPolicyError> {
        let KeySource { name, file, pem } = source;
        let (pem, stem, path) = match (file, pem) {
            (Some(path), None) => {
                let stem = path.file_stem().map(|stem| quoted(&stem.to_string_lossy()));
                (self.read(index, &path, MAX_KEY_BYTES)?, stem, Some(path))
            }
            (None, Some(pem)) => (pem, None, None),
            _ => {
                let cause = "each key needs either file or pem".to_owned();
                return Err(TrustPolicyError::Rule { index, cause });
            }
        };
        let invalid = |cause: String| match &path {
            Some(path) => self.file(index, path, cause),
            None => TrustPolicyError::Rule {
                index,
                cause: format!("a key's pem is {cause}"),
            },
        };
        let (der, algorithm, verification) = public_key(&pem).map_err(invalid)?;
        let digest = Digest::of(der.as_bytes());
        let name = name
            .or(stem)
            .unwrap_or_else(|| format!("sha256:{}", &digest.hex()[..16]));
        if name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control) {
            let cause =
                format!("the key's name {name:?} is empty, longer than {MAX_NAME} bytes or has control characters");
            return Err(TrustPolicyError::Rule { index, cause });
        }
        Ok(Key {
            name,
            hint: STANDARD.encode(digest.as_bytes()),
            der,
            algorithm,
            verification,
        })
    }

    fn identity(
        &mut self,
        index: usize,
        source: KeylessIdentity,
        shared: Option<&Path>,
    ) -> Result<Identity, TrustPolicyError> {
        let KeylessIdentity {
            issuer,
            subject,
            trusted_root,
        } = source;
        let invalid = |cause: String| TrustPolicyError::Rule { index, cause };
        if issuer.is_empty() || issuer.contains('*') {
            return Err(invalid(format!(
                "the issuer {issuer:?} has to be written in full, without *"
            )));
        }
        if subject.bytes().all(|byte| matches!(byte, b'*' | b'/' | b'@' | b'.')) {
            return Err(invalid(format!(
                "the subject {subject:?} would accept everybody with an account at the issuer; write an address or a URI \
                 in which * stands for a part"
            )));
        }
        let path = trusted_root.as_deref().or(shared).ok_or_else(|| {
            invalid(format!(
                "the identity {subject:?} needs a trustedRoot; cosign trusted-root create makes one"
            ))
        })?;
        let root = self.root(index, path)?;
        if !root.lists.authorities {
            let cause = "a trusted root without a certificate authority; name one that has it".to_owned();
            return Err(self.file(index, path, cause));
        }
        if !root.lists.logs && !root.lists.timestamps {
            let cause = "a trusted root with neither a transparency log nor a timestamp authority, which keyless \
                         signatures need; name one that has it";
            return Err(self.file(index, path, cause.to_owned()));
        }
        Ok(Identity { issuer, subject, root })
    }

    fn root(&mut self, index: usize, path: &Path) -> Result<Arc<Root>, TrustPolicyError> {
        if let Some(root) = self.roots.get(path) {
            return Ok(Arc::clone(root));
        }
        let json = self.read(index, path, MAX_ROOT_BYTES)?;
        let invalid = |error: &dyn fmt::Display| {
            let cause = format!(
                "which is no trusted root ({}); cosign trusted-root create makes one",
                quoted(&error.to_string())
            );
            self.file(index, path, cause)
        };
        let root = TrustedRoot::from_json(&json).map_err(|error| invalid(&error))?;
        let root = Arc::new(Root {
            verifier: Verifier::new(&root).map_err(|error| invalid(&error))?,
            lists: Lists {
                authorities: !root.certificate_authorities.is_empty(),
                logs: !root.tlogs.is_empty(),
                certificate_logs: !root.ctlogs.is_empty(),
                timestamps: !root.timestamp_authorities.is_empty(),
            },
        });
        self.roots.insert(path.to_owned(), Arc::clone(&root));
        Ok(root)
    }

    fn read(&self, index: usize, path: &Path, most: u64) -> Result<String, TrustPolicyError> {
        let unreadable = |cause: String| self.file(index, path, cause);
        let file = File::open(self.directory.join(path)).map_err(|error| {
            let hint = if self.directory.as_os_str().is_empty() {
                ""
            } else {
                "; relative names begin at the trust file's directory"
            };
            unreadable(format!("which cannot be opened ({error}){hint}"))
        })?;
        if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return Err(unreadable("which is not a file".to_owned()));
        }
        let mut bytes = Vec::new();
        let read = file.take(most + 1).read_to_end(&mut bytes);
        read.map_err(|error| unreadable(format!("which cannot be read ({error})")))?;
        if bytes.len() as u64 > most {
            return Err(unreadable(format!("which has more than {most} bytes")));
        }
        String::from_utf8(bytes).map_err(|_| unreadable("which is not text; give a PEM or JSON file".to_owned()))
    }

    fn file(&self, index: usize, path: &Path, cause: String) -> TrustPolicyError {
        TrustPolicyError::File {
            index,
            path: self.directory.join(path),
            cause,
        }
    }
}

/// The key of a PEM text. The errors never repeat the text, which may be a private key by mistake.
fn public_key(pem: &str) -> Result<(DerPublicKey, KeyAlgorithm, VerificationKey), String> {
    if pem.contains("PRIVATE KEY-----") {
        return Err("a private key; give the public key, such as cosign.pub".to_owned());
    }
    if pem.contains("-----BEGIN CERTIFICATE-----") {
        return Err("a certificate; give the public key alone (openssl x509 -pubkey -noout)".to_owned());
    }
    if pem.matches("-----BEGIN ").count() > 1 {
        return Err("a text with several keys; list each key of its own".to_owned());
    }
    let no_key =
        || "not a PEM text with a PUBLIC KEY; give what cosign generate-key-pair wrote, such as cosign.pub".to_owned();
    let der = DerPublicKey::from_pem(pem).map_err(|_| no_key())?;
    let algorithm = KeyAlgorithm::from_spki(&der)
        .map_err(|error| format!("of a kind that is not supported ({error}); use ECDSA P-256, P-384 or RSA"))?;
    match algorithm {
        KeyAlgorithm::EcdsaP256 | KeyAlgorithm::EcdsaP384 | KeyAlgorithm::Rsa => {}
        KeyAlgorithm::Ed25519 => {
            return Err(
                "an Ed25519 key, with which cosign signs as Ed25519ph, which is not supported; use ECDSA P-256, \
                        P-384 or RSA"
                    .to_owned(),
            );
        }
        _ => return Err("of a kind that is not supported; use ECDSA P-256, P-384 or RSA".to_owned()),
    }
    let verification = VerificationKey::from_spki(&der).map_err(|_| no_key())?;
    validate_raw_public_key(verification.scheme(), verification.as_bytes())
        .map_err(|error| format!("a key that cannot be used ({error})"))?;
    Ok((der, algorithm, verification))
}
