//! Finds signatures: cosign's bundles among the referrers, and its older scheme with a tag. Results are bounded in
//! number and size, and not trusted.

use serde::Deserialize;

use crate::content::descriptor::parse_lenient;
use crate::limits::{SIGNATURE_LIMIT, SIGNATURES_LIMIT};
use crate::registry::Referrers;
use crate::store::absent;
use crate::{ArtifactError, ArtifactStore, Descriptor, Digest, ErrorKind, SignatureMaterial, media_type};

/// The prefix of the media types of Sigstore bundles; their version follows.
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";
/// The layer of an older signature.
const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The annotation of a bundle's manifest with the predicate of the bundle.
const PREDICATE: &str = "dev.sigstore.bundle.predicateType";
/// The predicate's prefix if the bundle is a signature and not another attestation.
const SIGNATURE_PREDICATE: &str = "https://sigstore.dev/cosign/sign/";

/// The number of failed bundle requests after which no other is sent: the registry does not respond.
const MOST_FAILURES: usize = 4;

#[derive(Default, Deserialize)]
struct Layers {
    #[serde(default)]
    layers: Vec<Descriptor>,
}

fn layers(manifest: &[u8]) -> Vec<Descriptor> {
    parse_lenient::<Layers>(manifest).layers
}

/// The found signatures of an artifact. Nothing in them has been verified.
#[derive(Debug, Default)]
pub struct FoundSignatures {
    /// The signatures: at most [`SIGNATURES_LIMIT`], each of at most [`SIGNATURE_LIMIT`] bytes.
    pub signatures: Vec<SignatureMaterial>,
    /// The first failed source: there may be further signatures.
    pub problem: Option<ArtifactError>,
}

impl FoundSignatures {
    /// The value of a result; a failure is recorded.
    fn record<T>(&mut self, answer: Result<T, ArtifactError>) -> Option<T> {
        answer
            .map_err(|error| {
                self.problem.get_or_insert(error);
            })
            .ok()
    }

    fn is_full(&self) -> bool {
        self.signatures.len() >= SIGNATURES_LIMIT
    }
}

impl ArtifactStore {
    /// The signatures of a manifest: cosign's bundles, and those of its older tag scheme. Invalid candidates are left
    /// out. An error means that there may be further signatures.
    pub async fn signatures(&self, digest: Digest) -> Result<Vec<SignatureMaterial>, ArtifactError> {
        let FoundSignatures { signatures, problem } = self.find_signatures(digest).await;
        problem.map_or(Ok(signatures), Err)
    }

    /// The same, with the found signatures beside the failure: a failed source hides no signature of another one.
    pub async fn find_signatures(&self, digest: Digest) -> FoundSignatures {
        let time = self.limits.transfer;
        let mut found = FoundSignatures::default();
        let all = async {
            self.bundles(digest, &mut found).await;
            self.older_signatures(digest, &mut found).await;
        };
        if tokio::time::timeout(time, all).await.is_err() {
            found.record::<()>(Err(self.late("finding the signatures", time)));
        }
        found
    }

    async fn bundles(&self, digest: Digest, found: &mut FoundSignatures) {
        let Referrers {
            found: mut referrers,
            problem,
        } = self.find_referrers(digest, None).await;
        found.record(problem.map_or(Ok(()), Err));
        // Some registries list the config's type, which has no meaning here.
        referrers.retain(|it| match it.artifact_type.as_deref() {
            None | Some(media_type::EMPTY) => true,
            Some(other) => other.starts_with(BUNDLE),
        });
        // Signatures come before other attestations, of which there may be many.
        referrers.sort_by_key(|it| {
            !it.annotations
                .get(PREDICATE)
                .is_none_or(|it| it.starts_with(SIGNATURE_PREDICATE))
        });
        let mut failures = 0;
        for referrer in referrers.iter().take(SIGNATURES_LIMIT) {
            let manifest = match found.record(absent(self.manifest(referrer.digest).await)) {
                Some(Some(manifest)) => manifest,
                Some(None) => continue,
                None if failures == MOST_FAILURES => return,
                None => {
                    failures += 1;
                    continue;
                }
            };
            for layer in layers(&manifest)
                .iter()
                .filter(|it| it.media_type.starts_with(BUNDLE))
                .take(SIGNATURES_LIMIT)
            {
                if found.is_full() {
                    return;
                }
                if let Some(json) = found.record(self.text(layer).await).flatten() {
                    found.signatures.push(SignatureMaterial::Bundle { json });
                }
            }
        }
    }

    async fn older_signatures(&self, digest: Digest, found: &mut FoundSignatures) {
        let Some(manifest) = found.record(self.belonging(digest, "sig").await).flatten() else {
            return;
        };
        for layer in layers(&manifest).iter().filter(|it| it.media_type == SIMPLE_SIGNING) {
            if found.is_full() {
                return;
            }
            let annotation = |name: &str| layer.annotations.get(name).cloned();
            let Some(signature) = annotation("dev.cosignproject.cosign/signature") else {
                continue;
            };
            if let Some(payload) = found.record(self.text(layer).await).flatten() {
                found.signatures.push(SignatureMaterial::SimpleSigning {
                    payload,
                    signature,
                    certificate: annotation("dev.sigstore.cosign/certificate"),
                    chain: annotation("dev.sigstore.cosign/chain"),
                    log_entry: annotation("dev.sigstore.cosign/bundle"),
                    timestamp: annotation("dev.sigstore.cosign/rfc3161timestamp"),
                });
            }
        }
    }

    async fn text(&self, layer: &Descriptor) -> Result<Option<String>, ArtifactError> {
        let bytes = absent(self.small_blob(layer, SIGNATURE_LIMIT).await)?;
        Ok(bytes.and_then(|bytes| String::from_utf8(bytes.into()).ok()))
    }
}

/// The blobs of a manifest: its config and its layers; and the manifests of an index.
pub(crate) struct Parts {
    pub(crate) blobs: Vec<Descriptor>,
    pub(crate) manifests: Vec<Descriptor>,
}

impl Parts {
    pub(crate) fn read(name: &str, bytes: &[u8]) -> Result<Self, ArtifactError> {
        #[derive(Deserialize)]
        struct Document {
            config: Option<Descriptor>,
            #[serde(default)]
            layers: Vec<Descriptor>,
            #[serde(default)]
            manifests: Vec<Descriptor>,
        }
        let document: Document = serde_json::from_slice(bytes).map_err(|error| {
            ArtifactError::new(
                ErrorKind::NotAPlugin,
                format!("the manifest of {name} cannot be read: {error}"),
            )
        })?;
        Ok(Self {
            blobs: document.config.into_iter().chain(document.layers).collect(),
            manifests: document.manifests,
        })
    }
}
