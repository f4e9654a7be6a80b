//! Details of an artifact that `pilothouse inspect` prints beside its component: digest, annotations, signatures,
//! attachments and the summary of the SBOM.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pilothouse_artifact::{Descriptor, Location, Sbom, read_sbom};
use serde_json::{Value, json};

use super::fetch::{Found, find};
use super::push::artifact_type;
use super::{RegistryArguments, wait_for};
use pilothouse_core::text::printable::printable;

/// The largest SBOM that is read.
const SBOM_LIMIT: u64 = 16 << 20;

/// Licences that the summary of an SBOM names.
const MAX_LICENSES: usize = 8;

/// An artifact's component and details.
pub struct FetchedArtifact {
    /// The reference with the digest.
    pub name: String,
    /// The component.
    pub component: Vec<u8>,
    /// The rest.
    pub details: ArtifactDetails,
}

/// Details of an artifact, none of them verified.
pub struct ArtifactDetails {
    reference: String,
    digest: String,
    annotations: BTreeMap<String, String>,
    signatures: usize,
    attachments: Vec<Attached>,
    sbom: Option<SbomSummary>,
}

struct Attached {
    artifact_type: String,
    digest: String,
}

/// Summary of an SBOM.
#[derive(Debug, PartialEq, Eq)]
struct SbomSummary {
    components: usize,
    /// Number of components by licence.
    licenses: BTreeMap<String, usize>,
}

/// Fetches an artifact and its details.
pub fn fetch(location: &Location, registries: RegistryArguments) -> anyhow::Result<FetchedArtifact> {
    let session = registries.session()?;
    wait_for(async {
        let found = find(&session, location).await?;
        let signatures = found.store.signatures(found.digest).await?.len();
        let mut attachments = Vec::new();
        let mut sbom = None;
        for referrer in found.store.referrers(found.digest, None).await? {
            let attached = attachment(&found, &referrer).await?;
            if attached.artifact_type == artifact_type::SBOM && sbom.is_none() {
                sbom = summary_of(&found, &referrer).await?;
            }
            attachments.push(attached);
        }
        attachments.sort_by(|a, b| (&a.artifact_type, &a.digest).cmp(&(&b.artifact_type, &b.digest)));
        let component = found.component(&session).await?;
        let name = found.pinned.to_string();
        Ok(FetchedArtifact {
            component,
            details: ArtifactDetails {
                reference: name.clone(),
                digest: found.digest.to_string(),
                annotations: found.manifest.annotations,
                signatures,
                attachments,
                sbom,
            },
            name,
        })
    })
}

/// Returns a referrer with its true type: some registries list another.
async fn attachment(found: &Found, referrer: &Descriptor) -> anyhow::Result<Attached> {
    let manifest: Value = manifest(found, referrer).await?;
    let artifact_type = manifest["artifactType"].as_str().or(referrer.artifact_type.as_deref());
    Ok(Attached {
        artifact_type: artifact_type.unwrap_or("unknown").to_owned(),
        digest: referrer.digest.to_string(),
    })
}

async fn manifest(found: &Found, referrer: &Descriptor) -> anyhow::Result<Value> {
    let bytes = found.store.manifest(referrer.digest).await?;
    Ok(serde_json::from_slice(&bytes).unwrap_or_default())
}

async fn summary_of(found: &Found, referrer: &Descriptor) -> anyhow::Result<Option<SbomSummary>> {
    let manifest = manifest(found, referrer).await?;
    let Ok(layer) = serde_json::from_value::<Descriptor>(manifest["layers"][0].clone()) else {
        return Ok(None);
    };
    let bytes = found.store.small_blob(&layer, SBOM_LIMIT).await?;
    Ok(read_sbom(&bytes).ok().as_ref().map(SbomSummary::of))
}

impl SbomSummary {
    fn of(sbom: &Sbom) -> Self {
        let mut licenses = BTreeMap::new();
        for licence in sbom.components.iter().filter_map(|it| it.licence.as_ref()) {
            *licenses.entry(licence.clone()).or_insert(0) += 1;
        }
        Self {
            components: sbom.components.len(),
            licenses,
        }
    }

    fn text(&self) -> String {
        let mut licenses: Vec<_> = self.licenses.iter().collect();
        licenses.sort_by_key(|(name, count)| (std::cmp::Reverse(**count), *name));
        let more = licenses.len().saturating_sub(MAX_LICENSES);
        let mut named: Vec<_> = licenses
            .iter()
            .take(MAX_LICENSES)
            .map(|(name, count)| format!("{} {count}", printable(name)))
            .collect();
        if more > 0 {
            named.push(format!("{more} more licenses"));
        }
        format!("{} components ({})", self.components, named.join(", "))
    }
}

impl ArtifactDetails {
    /// Returns the details as JSON.
    pub fn as_json(&self) -> Value {
        let Self {
            reference,
            digest,
            annotations,
            signatures,
            attachments,
            sbom,
        } = self;
        let attachments: Vec<_> = attachments
            .iter()
            .map(|it| json!({"artifactType": it.artifact_type, "digest": it.digest}))
            .collect();
        let sbom = sbom
            .as_ref()
            .map(|it| json!({"components": it.components, "licenses": it.licenses}));
        json!({
            "reference": reference,
            "digest": digest,
            "annotations": annotations,
            "signatures": signatures,
            "attachments": attachments,
            "sbom": sbom,
        })
    }

    /// Returns the details as text, to be printed below the component's own description.
    pub fn as_text(&self) -> String {
        let mut text = format!("\nartifact {}\n", self.reference);
        for (key, value) in &self.annotations {
            let key = key.strip_prefix("org.opencontainers.image.").unwrap_or(key);
            let _ = writeln!(text, "  {:<12} {}", printable(key), printable(value));
        }
        let signatures = match self.signatures {
            0 => "none".to_owned(),
            count => format!("{count} found, not verified; `pilothouse verify` does that"),
        };
        let _ = writeln!(text, "  {:<12} {signatures}", "signatures");
        for Attached { artifact_type, digest } in &self.attachments {
            let _ = writeln!(text, "  {:<12} {} {digest}", "attached", printable(artifact_type));
        }
        if let Some(sbom) = &self.sbom {
            let _ = writeln!(text, "  {:<12} {}", "SBOM", sbom.text());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_sbom_is_summed_up_by_licence() {
        let component = |licence: Option<&str>| pilothouse_artifact::SbomComponent {
            name: "a".to_owned(),
            version: None,
            licence: licence.map(str::to_owned),
        };
        let licences = [Some("MIT OR Apache-2.0"), Some("MIT"), Some("MIT"), None];
        let mut sbom = Sbom {
            subject: None,
            components: licences.map(component).into(),
        };
        let text = SbomSummary::of(&sbom).text();
        assert_eq!(text, "4 components (MIT 2, MIT OR Apache-2.0 1)");
        sbom.components = (0..20)
            .map(|number| component(Some(&format!("L{number}\u{1b}"))))
            .collect();
        let text = SbomSummary::of(&sbom).text();
        assert!(
            text.ends_with("12 more licenses)") && !text.contains('\u{1b}'),
            "{text}"
        );
    }
}
