//! Reads the SBOM of a plugin, CycloneDX or SPDX in JSON: `push` attaches one that another tool made, and `inspect` sums
//! it up.

use std::collections::BTreeMap;

use anyhow::bail;
use pilothouse_core::text::printable::printable;
use serde_json::{Value, json};

/// The largest SBOM, in bytes.
pub const SBOM_LIMIT: u64 = 16 << 20;

/// Licences that the summary of an SBOM names.
const MAX_LICENSES: usize = 8;

/// The media types of SBOMs, which are also their artifact types: CycloneDX and SPDX.
pub const MEDIA_TYPES: [&str; 2] = ["application/vnd.cyclonedx+json", "application/spdx+json"];

/// Summary of an SBOM.
#[derive(Debug, PartialEq, Eq)]
pub struct Sbom {
    /// One of [`MEDIA_TYPES`].
    pub media_type: &'static str,
    /// Number of components, or of SPDX's packages.
    pub components: usize,
    /// Number of components by licence. SPDX 3 keeps licences in relationships, which are not read.
    licenses: BTreeMap<String, usize>,
}

impl Sbom {
    /// Parses a document. The result is only shown to people; nothing of it is verified.
    pub fn parse(document: &[u8]) -> anyhow::Result<Self> {
        let document: Value = match serde_json::from_slice(document) {
            Ok(document) => document,
            Err(error) => bail!("it is not JSON ({error}); write CycloneDX or SPDX as JSON"),
        };
        let is_text = |member: &str, prefix: &str| document[member].as_str().is_some_and(|it| it.starts_with(prefix));
        let [cyclonedx, spdx] = MEDIA_TYPES;
        let (media_type, member) = if document["bomFormat"] == "CycloneDX" {
            (cyclonedx, "components")
        } else if is_text("spdxVersion", "SPDX-2.") {
            (spdx, "packages")
        } else if is_text("@context", "https://spdx.org/rdf/3.") {
            (spdx, "@graph")
        } else {
            bail!("it is neither CycloneDX (bomFormat) nor SPDX (spdxVersion 2, or @context of version 3)");
        };
        let listed: Vec<&Value> = match &document[member] {
            Value::Null => Vec::new(),
            Value::Array(listed) if member == "@graph" => {
                listed.iter().filter(|it| it["type"] == "software_Package").collect()
            }
            Value::Array(listed) => listed.iter().collect(),
            _ => bail!("its {member} is not a list"),
        };
        let mut licenses = BTreeMap::new();
        for license in listed.iter().filter_map(|it| license(it)) {
            *licenses.entry(license.to_owned()).or_insert(0) += 1;
        }
        Ok(Self {
            media_type,
            components: listed.len(),
            licenses,
        })
    }

    /// Returns the summary as JSON.
    pub fn as_json(&self) -> Value {
        json!({"components": self.components, "licenses": self.licenses})
    }

    /// Returns the summary as one line.
    pub fn as_text(&self) -> String {
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
        match named.as_slice() {
            [] => format!("{} components", self.components),
            named => format!("{} components ({})", self.components, named.join(", ")),
        }
    }
}

/// Returns the first licence of a component of CycloneDX, or the licence of a package of SPDX 2.
fn license(component: &Value) -> Option<&str> {
    let of_cyclonedx = &component["licenses"][0];
    [
        &of_cyclonedx["expression"],
        &of_cyclonedx["license"]["id"],
        &of_cyclonedx["license"]["name"],
        &component["licenseConcluded"],
        &component["licenseDeclared"],
    ]
    .into_iter()
    .filter_map(Value::as_str)
    .find(|it| !matches!(*it, "NOASSERTION" | "NONE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(document: &Value) -> Sbom {
        Sbom::parse(document.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn components_are_counted_by_licence() {
        let cyclonedx = parse(&json!({"bomFormat": "CycloneDX", "specVersion": "1.5", "components": [
            {"name": "a", "licenses": [{"expression": "MIT OR Apache-2.0"}]},
            {"name": "b", "licenses": [{"license": {"id": "MIT"}}]},
            {"name": "c", "licenses": [{"license": {"name": "MIT"}}]},
            {"name": "d"},
        ]}));
        assert_eq!(cyclonedx.media_type, "application/vnd.cyclonedx+json");
        assert_eq!(cyclonedx.as_text(), "4 components (MIT 2, MIT OR Apache-2.0 1)");
        let spdx = parse(&json!({"spdxVersion": "SPDX-2.3", "packages": [
            {"name": "a", "licenseConcluded": "NOASSERTION", "licenseDeclared": "MIT"},
            {"name": "b", "licenseConcluded": "Zlib", "licenseDeclared": "MIT"},
            {"name": "c", "licenseDeclared": "NONE"},
        ]}));
        assert_eq!(spdx.media_type, "application/spdx+json");
        assert_eq!(spdx.as_text(), "3 components (MIT 1, Zlib 1)");
        let spdx = parse(
            &json!({"@context": "https://spdx.org/rdf/3.0.1/spdx-context.jsonld", "@graph": [
                {"type": "software_Package", "name": "a"}, {"type": "Relationship"},
            ]}),
        );
        assert_eq!(
            (spdx.media_type, &*spdx.as_text()),
            ("application/spdx+json", "1 components")
        );
        assert_eq!(parse(&json!({"bomFormat": "CycloneDX"})).components, 0);
    }

    #[test]
    fn a_summary_is_short_and_printable() {
        let components: Vec<_> = (0..20)
            .map(|number| json!({"licenses": [{"license": {"name": format!("L{number}\u{1b}")}}]}))
            .collect();
        let text = parse(&json!({"bomFormat": "CycloneDX", "components": components})).as_text();
        assert!(
            text.ends_with("12 more licenses)") && !text.contains('\u{1b}'),
            "{text}"
        );
    }

    #[test]
    fn other_documents_are_refused_with_the_cause() {
        for (document, cause) in [
            ("", "not JSON"),
            ("<bom xmlns=\"http://cyclonedx.org/schema/bom/1.5\"/>", "not JSON"),
            ("SPDXVersion: SPDX-2.3", "not JSON"),
            ("[]", "neither CycloneDX"),
            ("{\"bomFormat\": \"cyclonedx\"}", "neither CycloneDX"),
            ("{\"spdxVersion\": 2.3}", "neither CycloneDX"),
            (
                "{\"bomFormat\": \"CycloneDX\", \"components\": 1}",
                "components is not a list",
            ),
            (
                "{\"spdxVersion\": \"SPDX-2.2\", \"packages\": {}}",
                "packages is not a list",
            ),
        ] {
            let error = Sbom::parse(document.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(cause), "{document}: {error}");
        }
    }
}
