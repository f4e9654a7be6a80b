//! Builds and reads software bills of materials: the crates from which a component was built, as CycloneDX 1.5 in JSON.
//!
//! The text is derived from the output of `cargo metadata`. The same metadata gives the same text: everything is
//! sorted, there is no time, and the serial number comes from the content. It is written with serde and not with the
//! crate cyclonedx-bom, which would bring an XML parser, regular expressions and clocks for some thirty lines of JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::content::digest::Digest;
use crate::content::json::sorted;

/// The media type of the text, and its artifact type as a referrer.
pub const SBOM_MEDIA_TYPE: &str = "application/vnd.cyclonedx+json";

/// The supported version of CycloneDX.
const SPECIFICATION: &str = "1.5";

/// The bill of materials cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SbomError {
    /// The metadata is not the output of `cargo metadata`.
    #[error("the metadata is not what cargo metadata --format-version 1 prints: {0}")]
    Metadata(String),
    /// The metadata has no dependencies.
    #[error("the metadata has no resolved dependencies; run cargo metadata without --no-deps")]
    Unresolved,
    /// The package does not exist, or none was named in a workspace with several.
    #[error("{}; the workspace has the packages {}", .name.as_ref().map_or_else(|| "a package has to be named".to_owned(), |name| format!("the workspace has no package {name:?}")), .members.join(", "))]
    Package {
        /// The given name.
        name: Option<String>,
        /// The existing names.
        members: Vec<String>,
    },
    /// Two packages have the same package URL.
    #[error("the packages {0} and {1} have the same package URL, {2}; give one of them another version")]
    Ambiguous(String, String, String),
    /// The text is not a CycloneDX document.
    #[error("not a CycloneDX document in JSON: {0}")]
    Document(String),
}

/// The content of a bill of materials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sbom {
    /// Its subject, as `NAME VERSION`.
    pub subject: Option<String>,
    /// The components that it was built from, in the document's order.
    pub components: Vec<SbomComponent>,
}

/// A component of a bill of materials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SbomComponent {
    /// The crate's name.
    pub name: String,
    /// Its version.
    pub version: Option<String>,
    /// Its licence, an SPDX expression if the crate has one.
    pub licence: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
    resolve: Option<Resolve>,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    source: Option<String>,
    license: Option<String>,
    description: Option<String>,
    repository: Option<String>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
    root: Option<String>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// `None` for a normal dependency, otherwise `dev` or `build`.
    kind: Option<String>,
}

/// Builds the bill of materials of a package. `metadata` is the output of `cargo metadata --format-version 1
/// --filter-platform TARGET`, where the filter leaves out what the target does not need. `package` names the package;
/// without it, the package is the one whose manifest cargo was given.
///
/// The bill lists the crates linked into the component: normal dependencies and theirs. Dependencies of tests and build
/// scripts, and procedural macros, run on the machine that builds and are not listed.
pub fn cyclonedx(metadata: &[u8], package: Option<&str>) -> Result<String, SbomError> {
    let metadata: Metadata =
        serde_json::from_slice(metadata).map_err(|error| SbomError::Metadata(error.to_string()))?;
    let Metadata {
        packages,
        workspace_members,
        resolve,
    } = metadata;
    let Resolve { nodes, root } = resolve.ok_or(SbomError::Unresolved)?;
    let packages: BTreeMap<&str, &Package> = packages.iter().map(|package| (&*package.id, package)).collect();
    let root = find(&packages, &workspace_members, root.as_deref(), package)?;
    let nodes: BTreeMap<&str, &Node> = nodes.iter().map(|node| (&*node.id, node)).collect();
    let linked = linked(&packages, &nodes, root)?;

    let mut by_url: BTreeMap<String, &Package> = BTreeMap::new();
    for id in linked.keys() {
        let package = package_of(&packages, id)?;
        if let Some(other) = by_url.insert(package_url(package), package) {
            let name = |package: &Package| format!("{} {}", package.name, package.version);
            return Err(SbomError::Ambiguous(name(other), name(package), package_url(package)));
        }
    }
    let components = by_url.iter().filter(|(_, package)| package.id != root);
    let components: Vec<Value> = components
        .map(|(url, package)| component("library", url, package))
        .collect();
    let mut dependencies = BTreeMap::new();
    for (id, direct) in &linked {
        let urls = direct.iter().map(|id| package_of(&packages, id).map(package_url));
        dependencies.insert(
            package_url(package_of(&packages, id)?),
            urls.collect::<Result<BTreeSet<_>, _>>()?,
        );
    }
    let dependencies: Vec<Value> = dependencies
        .into_iter()
        .map(|(url, direct)| json!({ "ref": url, "dependsOn": direct }))
        .collect();
    let root = package_of(&packages, root)?;
    let mut document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "version": 1,
        "metadata": { "component": component("application", &package_url(root), root) },
        "components": components,
        "dependencies": dependencies,
    });
    document["serialNumber"] = json!(serial_number(&document));
    Ok(format!("{:#}\n", sorted(document)))
}

/// Parses a CycloneDX document in JSON. The result is only shown to people; nothing of it is verified.
pub fn read_sbom(document: &[u8]) -> Result<Sbom, SbomError> {
    let invalid = |cause: &str| SbomError::Document(cause.to_owned());
    let document: Value = serde_json::from_slice(document).map_err(|error| invalid(&error.to_string()))?;
    if document["bomFormat"] != "CycloneDX" {
        return Err(invalid("it has no bomFormat CycloneDX"));
    }
    let components = match &document["components"] {
        Value::Null => Vec::new(),
        Value::Array(components) => components.iter().filter_map(listed).collect(),
        _ => return Err(invalid("its components are no list")),
    };
    let subject = listed(&document["metadata"]["component"]);
    let subject = subject.map(|SbomComponent { name, version, .. }| match version {
        Some(version) => format!("{name} {version}"),
        None => name,
    });
    Ok(Sbom { subject, components })
}

fn listed(component: &Value) -> Option<SbomComponent> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let licence = &component["licenses"][0];
    let licence = [
        &licence["expression"],
        &licence["license"]["id"],
        &licence["license"]["name"],
    ];
    Some(SbomComponent {
        name: text(&component["name"])?,
        version: text(&component["version"]),
        licence: licence.into_iter().find_map(text),
    })
}

/// The package of the bill.
fn find<'a>(
    packages: &BTreeMap<&'a str, &'a Package>,
    members: &'a [String],
    root: Option<&str>,
    name: Option<&str>,
) -> Result<&'a str, SbomError> {
    let members = || members.iter().filter_map(|id| packages.get(&**id)).copied();
    let found = members().find(|member| match name {
        Some(name) => member.name == name,
        None => root == Some(&*member.id),
    });
    found.map(|package| &*package.id).ok_or_else(|| {
        let mut members: Vec<String> = members().map(|package| package.name.clone()).collect();
        members.sort();
        SbomError::Package {
            name: name.map(str::to_owned),
            members,
        }
    })
}

/// The packages linked into a package, including itself, with the direct dependencies of each.
fn linked<'a>(
    packages: &BTreeMap<&'a str, &'a Package>,
    nodes: &BTreeMap<&'a str, &'a Node>,
    root: &'a str,
) -> Result<BTreeMap<&'a str, Vec<&'a str>>, SbomError> {
    let mut linked = BTreeMap::new();
    let mut waiting = vec![root];
    while let Some(id) = waiting.pop() {
        if linked.contains_key(id) {
            continue;
        }
        let node = nodes
            .get(id)
            .ok_or_else(|| SbomError::Metadata(format!("it does not resolve {id}")))?;
        let mut direct = Vec::new();
        for dependency in &node.deps {
            let is_normal = dependency.dep_kinds.iter().any(|kind| kind.kind.is_none());
            if is_normal && !is_macro(package_of(packages, &dependency.pkg)?) {
                direct.push(&*dependency.pkg);
            }
        }
        waiting.extend(&direct);
        linked.insert(id, direct);
    }
    Ok(linked)
}

fn is_macro(package: &Package) -> bool {
    package
        .targets
        .iter()
        .any(|target| target.kind.iter().any(|kind| kind == "proc-macro"))
}

fn package_of<'a>(packages: &BTreeMap<&str, &'a Package>, id: &str) -> Result<&'a Package, SbomError> {
    packages
        .get(id)
        .copied()
        .ok_or_else(|| SbomError::Metadata(format!("it does not describe {id}")))
}

fn component(kind: &str, url: &str, package: &Package) -> Value {
    let Package {
        name,
        version,
        license,
        description,
        repository,
        ..
    } = package;
    let mut component = Map::new();
    component.insert("type".into(), json!(kind));
    component.insert("bom-ref".into(), json!(url));
    component.insert("name".into(), json!(name));
    component.insert("version".into(), json!(version));
    if let Some(description) = description {
        component.insert("description".into(), json!(description.trim()));
    }
    if let Some(license) = license {
        component.insert("licenses".into(), licenses(license));
    }
    component.insert("purl".into(), json!(url));
    if let Some(repository) = repository.as_deref().filter(|url| is_web_address(url)) {
        component.insert(
            "externalReferences".into(),
            json!([{ "type": "vcs", "url": repository }]),
        );
    }
    Value::Object(component)
}

/// The licence as an SPDX expression, or as a name if it is none. Crates from before Rust 1.40 write `MIT/Apache-2.0`.
fn licenses(license: &str) -> Value {
    let expression = license.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ");
    let is_word = |word: &str| {
        let word = word.trim_matches(['(', ')']);
        !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b".-+:".contains(&byte))
    };
    // Identifiers and operators alternate, so an expression has an odd number of words.
    let words: Vec<&str> = expression.split(' ').collect();
    let takes_turns = words.iter().enumerate().all(|(index, word)| {
        let is_operator = matches!(*word, "OR" | "AND" | "WITH");
        is_operator == (index % 2 == 1)
    });
    if words.len() % 2 == 1 && takes_turns && words.iter().all(|word| is_word(word)) {
        json!([{ "expression": expression }])
    } else {
        json!([{ "license": { "name": license } }])
    }
}

/// The package URL. Crates of crates.io and of the workspace look alike; the local path of the latter is private.
fn package_url(package: &Package) -> String {
    const CRATES_IO: [&str; 2] = [
        "registry+https://github.com/rust-lang/crates.io-index",
        "sparse+https://index.crates.io/",
    ];
    let url = format!("pkg:cargo/{}@{}", package.name, encoded(&package.version));
    match package.source.as_deref() {
        None => url,
        Some(source) if CRATES_IO.contains(&source) => url,
        Some(source) => match (source.strip_prefix("git+"), source.split_once('+')) {
            (Some(repository), _) => {
                let (repository, commit) = repository.split_once('#').unwrap_or((repository, ""));
                let repository = repository.split('?').next().unwrap_or_default();
                format!("{url}?vcs_url={}", encoded(&format!("git+{repository}@{commit}")))
            }
            (None, Some((_, registry))) => format!("{url}?repository_url={}", encoded(registry)),
            (None, None) => url,
        },
    }
}

/// Percent-encodes the characters that a version or a qualifier of a package URL must not have.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b'~' | b':' | b'/' => {
                encoded.push(char::from(byte));
            }
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

fn is_web_address(text: &str) -> bool {
    text.starts_with("https://")
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte))
}

/// A UUID of version 8 from the document's digest, so that equal documents have the same number.
fn serial_number(document: &Value) -> String {
    let mut bytes = *Digest::of(sorted(document.clone()).to_string().as_bytes()).as_bytes();
    bytes[6] = (bytes[6] & 0x0f) | 0x80;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = Digest::from_bytes(bytes).hex();
    format!(
        "urn:uuid:{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..32]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = include_str!("../../tests/data/metadata.json");

    fn bill(metadata: &str, package: Option<&str>) -> Value {
        serde_json::from_str(&cyclonedx(metadata.as_bytes(), package).unwrap()).unwrap()
    }

    fn urls(bill: &Value) -> Vec<&str> {
        let components = bill["components"].as_array().unwrap();
        components
            .iter()
            .map(|component| component["purl"].as_str().unwrap())
            .collect()
    }

    #[test]
    fn what_is_linked_is_listed_and_nothing_else() {
        let (bill, of_root) = (bill(METADATA, Some("greeter")), bill(METADATA, None));
        assert_eq!(
            urls(&bill),
            [
                "pkg:cargo/forked@0.3.0?vcs_url=git%2Bhttps://github.com/example/forked%400123abcd",
                "pkg:cargo/itoa@1.0.0",
                "pkg:cargo/private@2.0.0?repository_url=https://cargo.example.com/index",
                "pkg:cargo/shared@0.1.0",
                "pkg:cargo/wasi@0.11.1%2Bwasi-snapshot",
            ]
        );
        let dependencies = bill["dependencies"].as_array().unwrap();
        assert_eq!(dependencies.len(), 6);
        let greeter = dependencies
            .iter()
            .find(|entry| entry["ref"] == "pkg:cargo/greeter@1.2.0")
            .unwrap();
        let direct = json!([urls(&bill)[0], "pkg:cargo/itoa@1.0.0", "pkg:cargo/shared@0.1.0"]);
        assert_eq!(greeter["dependsOn"], direct);
        assert_eq!(bill["metadata"]["component"]["name"], "greeter");
        assert!(
            !bill.to_string().contains("/home/"),
            "a path of the machine that builds: {bill}"
        );
        // The package whose manifest cargo was given.
        assert_eq!(of_root["metadata"]["component"]["name"], "shared");
    }

    /// The rules of the schema of CycloneDX 1.5 for the members that are written.
    #[test]
    fn the_document_follows_the_schema() {
        let bill = bill(METADATA, Some("greeter"));
        let is_among = |value: &Value, allowed: &[&str]| {
            let members = value.as_object().unwrap();
            assert!(members.keys().all(|name| allowed.contains(&&**name)), "{members:?}");
        };
        is_among(
            &bill,
            &[
                "bomFormat",
                "specVersion",
                "version",
                "serialNumber",
                "metadata",
                "components",
                "dependencies",
            ],
        );
        assert_eq!(
            (&bill["bomFormat"], &bill["specVersion"], &bill["version"]),
            (&json!("CycloneDX"), &json!("1.5"), &json!(1))
        );
        let uuid = bill["serialNumber"]
            .as_str()
            .unwrap()
            .strip_prefix("urn:uuid:")
            .unwrap();
        let parts: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(parts, [8, 4, 4, 4, 12]);
        assert!(
            uuid.bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'))
        );
        let mut references = BTreeSet::new();
        let components = bill["components"].as_array().unwrap();
        for component in components.iter().chain([&bill["metadata"]["component"]]) {
            let members = [
                "type",
                "bom-ref",
                "name",
                "version",
                "description",
                "licenses",
                "purl",
                "externalReferences",
            ];
            is_among(component, &members);
            assert!(["application", "library"].contains(&component["type"].as_str().unwrap()));
            assert!(
                ["name", "version", "purl"]
                    .iter()
                    .all(|name| component[*name].is_string())
            );
            assert!(
                references.insert(component["bom-ref"].as_str().unwrap()),
                "a reference is not unique"
            );
            for licence in component
                .get("licenses")
                .map_or(&Vec::new(), |list| list.as_array().unwrap())
            {
                is_among(licence, &["expression", "license"]);
                assert!(licence["expression"].is_string() != licence["license"]["name"].is_string());
            }
            for reference in component
                .get("externalReferences")
                .map_or(&Vec::new(), |list| list.as_array().unwrap())
            {
                is_among(reference, &["type", "url"]);
            }
        }
        for dependency in bill["dependencies"].as_array().unwrap() {
            is_among(dependency, &["ref", "dependsOn"]);
            let depends_on = dependency["dependsOn"].as_array().unwrap();
            for reference in depends_on.iter().chain([&dependency["ref"]]) {
                assert!(
                    references.contains(reference.as_str().unwrap()),
                    "{reference} is no component"
                );
            }
        }
    }

    #[test]
    fn same_crates_give_the_same_text_in_any_order() {
        let mut metadata: Value = serde_json::from_str(METADATA).unwrap();
        let text = cyclonedx(METADATA.as_bytes(), Some("greeter")).unwrap();
        metadata["packages"].as_array_mut().unwrap().reverse();
        let nodes = metadata["resolve"]["nodes"].as_array_mut().unwrap();
        nodes.reverse();
        for node in nodes {
            node["deps"].as_array_mut().unwrap().reverse();
        }
        assert_eq!(
            cyclonedx(metadata.to_string().as_bytes(), Some("greeter")).unwrap(),
            text
        );
        let other = bill(&METADATA.replace("1.0.0", "1.0.1"), Some("greeter"));
        assert_ne!(other["serialNumber"], bill(METADATA, Some("greeter"))["serialNumber"]);
    }

    #[test]
    fn licences_are_expressions_where_they_can_be() {
        let expression = |text| json!([{ "expression": text }]);
        assert_eq!(licenses("MIT"), expression("MIT"));
        assert_eq!(licenses("MIT/Apache-2.0"), expression("MIT OR Apache-2.0"));
        let llvm = "Apache-2.0 WITH LLVM-exception OR (MIT AND Zlib)";
        assert_eq!(licenses(llvm), expression(llvm));
        for text in ["see LICENSE", "", "MIT OR", "custom, no SPDX"] {
            assert_eq!(licenses(text), json!([{ "license": { "name": text } }]), "{text:?}");
        }
    }

    #[test]
    fn metadata_that_cannot_be_used_is_refused() {
        let error = |metadata: &str, package| cyclonedx(metadata.as_bytes(), package).unwrap_err().to_string();
        assert!(error("{}", None).contains("cargo metadata --format-version 1"));
        let text = error(METADATA, Some("other"));
        assert!(
            text.contains("no package \"other\"; the workspace has the packages greeter, shared"),
            "{text}"
        );
        let mut metadata: Value = serde_json::from_str(METADATA).unwrap();
        metadata["resolve"]["root"] = Value::Null;
        assert!(error(&metadata.to_string(), None).contains("a package has to be named"));
        metadata["resolve"]["nodes"] = json!([]);
        assert!(error(&metadata.to_string(), Some("greeter")).contains("does not resolve"));
        metadata["resolve"] = Value::Null;
        assert!(error(&metadata.to_string(), Some("greeter")).contains("--no-deps"));
        let same = METADATA.replace(
            "\"name\": \"itoa\", \"version\": \"1.0.0\"",
            "\"name\": \"shared\", \"version\": \"0.1.0\"",
        );
        assert!(error(&same, Some("greeter")).contains("the same package URL"));
    }

    #[test]
    fn what_was_written_is_read_back() {
        let read = read_sbom(cyclonedx(METADATA.as_bytes(), Some("greeter")).unwrap().as_bytes()).unwrap();
        assert_eq!(read.subject.as_deref(), Some("greeter 1.2.0"));
        let itoa = SbomComponent {
            name: "itoa".to_owned(),
            version: Some("1.0.0".to_owned()),
            licence: Some("MIT OR Apache-2.0".to_owned()),
        };
        assert_eq!((read.components.len(), &read.components[1]), (5, &itoa));
        for text in ["", "[]", "{}", "{\"bomFormat\":\"CycloneDX\",\"components\":1}"] {
            assert!(
                matches!(read_sbom(text.as_bytes()), Err(SbomError::Document(_))),
                "{text}"
            );
        }
        assert_eq!(
            read_sbom(b"{\"bomFormat\":\"CycloneDX\"}").unwrap(),
            Sbom {
                subject: None,
                components: Vec::new()
            }
        );
    }
}
