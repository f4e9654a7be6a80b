//! Reads the CRD of a kind that exists already: which kind in which version, and an object that the CRD admits. The types of its
//! members are left to `members`.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail, ensure};
use pilothouse_core::Kind;
use pilothouse_core::text::printable::printable;
use pilothouse_description::{Controller, Crd, Description, Exports, Field, FieldStep, Finding, Severity};
use pilothouse_testkit::documents;
use pilothouse_testkit::properties::sample::{SampleError, storable};
use serde_json::{Map, Value, json};

use super::members::{COMMON, ObjectTypes};
use super::names::{self, NewKind};
use super::template::{Language, Values};
use super::{KindOptions, Scope, samples, values};
use crate::manifests::sample;

/// Indentation of members in a scenario, and in a test in Rust.
const SCENARIO_INDENT: usize = 10;
const RUST_INDENT: usize = 12;

/// A kind whose CRD exists already.
#[derive(Debug)]
pub struct PublishedKind {
    /// The kind, in the version that the plugin reconciles.
    pub kind: NewKind,
    /// The file as it is.
    text: String,
    definition: Value,
    /// The schema of the version.
    schema: Value,
    sample: Value,
    /// Why the API server refuses the sample, if no better one was found.
    refusal: Option<String>,
}

impl PublishedKind {
    /// Reads a file with one CRD. Of several versions `wanted` names one.
    pub fn read(file: &Path, wanted: Option<&NewKind>) -> anyhow::Result<Self> {
        let named = || format!("--crd {}", file.display());
        let bytes = fs::read(file).with_context(named)?;
        let text = String::from_utf8(bytes).map_err(|_| anyhow!("{}: the file is not UTF-8", named()))?;
        let documents = documents::parse(text.as_bytes(), file)
            .with_context(|| format!("{} has no CRD that can be read", named()))?;
        let is_definition = |kind: &Kind| kind.kind == "CustomResourceDefinition";
        let definitions = documents
            .iter()
            .filter(|document| is_definition(&document.kind))
            .count();
        let only = match documents.as_slice() {
            [only] if definitions == 1 => only,
            _ if definitions == 0 => bail!(
                "{} has no CustomResourceDefinition; `kubectl get crd NAME -o yaml` prints one of a cluster",
                named()
            ),
            others => bail!(
                "{} has {definitions} CustomResourceDefinitions among {} documents, and the plugin brings the file as it is: put the \
                 one into a file of its own; --crd may be repeated",
                named(),
                others.len()
            ),
        };
        ensure!(
            only.kind.version == "v1",
            "{}: the CRD is of {}, which no API server serves any more; get the one of apiextensions.k8s.io/v1",
            named(),
            only.kind.api_version()
        );
        let definition = only.object.clone();
        let kind = chosen(&definition, wanted).with_context(named)?;
        let version = version_of(&definition, &kind.version);
        let schema = version.map_or(Value::Null, |version| version["schema"]["openAPIV3Schema"].clone());
        ensure!(
            schema.is_object(),
            "{}: version {} has no schema.openAPIV3Schema; a CRD of apiextensions.k8s.io/v1 has one for each version",
            named(),
            kind.version
        );
        let (sample, refusal) = sample_of(&definition, &kind).with_context(named)?;
        Ok(Self {
            kind,
            text,
            definition,
            schema,
            sample,
            refusal,
        })
    }

    /// Says it to the templates.
    pub fn values(&self, project: &str, language: &Language) -> anyhow::Result<Values> {
        let Self {
            kind,
            text,
            definition,
            schema,
            sample,
            refusal: _,
        } = self;
        let is_of_cluster = definition["spec"]["scope"] == "Cluster";
        let options = KindOptions {
            scope: if is_of_cluster {
                Scope::Cluster
            } else {
                Scope::Namespaced
            },
            plural: definition["spec"]["names"]["plural"].as_str().map(str::to_owned),
            finalizer: false,
            admission: false,
        };
        let mut values = values(project, language, kind, &options);
        let types = ObjectTypes::of(schema, kind, self.takes_status());
        let example = types.example(sample);
        let (child, place) = if is_of_cluster {
            ("\"web-$NAMESPACE\"", ", namespace: default")
        } else {
            ("web", "")
        };
        let named = |name: &str| {
            let mut object = sample.clone();
            object["metadata"] = json!({"name": name});
            serde_saphyr::to_string(&object).context("writing the sample")
        };
        let required = types.required_status();
        let findings = self.findings();
        let conditions = [
            ("existing", true),
            ("conditions", takes_conditions(&findings)),
            ("example", example.is_of_spec),
            ("required-status", !required.is_empty()),
        ];
        values.holds.remove("template");
        values
            .holds
            .extend(conditions.into_iter().filter_map(|(name, holds)| holds.then_some(name)));
        let indented = |text: &str, spaces: usize| {
            let lines: Vec<String> = text.lines().map(|line| " ".repeat(spaces) + line).collect();
            lines.join("\n")
        };
        let own: Map<String, Value> = own_members(sample);
        let fields: Vec<String> = own_members(&schema["properties"])
            .keys()
            .map(|name| format!("\".{name}\""))
            .collect();
        let fields = fields.join(", ");
        let members = own.iter().map(|(name, value)| {
            let value = samples::in_rust(value, RUST_INDENT);
            format!("{}{name:?}: {value},\n", " ".repeat(RUST_INDENT))
        });
        values.texts.extend([
            ("description", format!("A ConfigMap for each {}.", kind.kind)),
            ("crd", text.clone()),
            ("accepted", accepted(&findings)),
            ("sample", named("sample")?.trim_end().to_owned()),
            (
                "scenario_object",
                indented(&named(child.trim_matches('"'))?, SCENARIO_INDENT),
            ),
            ("rust_members", members.collect()),
            ("json_object", sample.to_string()),
            ("go_fields", format!("{{{fields}}}")),
            ("fields", fields),
            ("types", types.in_rust()),
            ("uses", types.uses()),
            ("status", types.status_in_rust()),
            ("status_json", Value::Object(required).to_string()),
            ("example_name", example.name),
            ("example_literal", format!("{:?}", example.text)),
            ("example_text", Value::from(example.text).to_string()),
            ("example_rust", example.rust),
            ("example_js", example.js),
            ("example_python", example.python),
            ("child_place", place.to_owned()),
            ("child", child.to_owned()),
        ]);
        Ok(values)
    }

    /// Reports whether the version has the status subresource.
    fn takes_status(&self) -> bool {
        let version = version_of(&self.definition, &self.kind.version);
        version.is_some_and(|version| version["subresources"]["status"].is_object())
    }

    /// Says on standard error what the author has to know.
    pub fn tell(&self) {
        if let Some(refusal) = &self.refusal {
            eprintln!(
                "note: no object was found that the CRD of {} takes; complete sample.yaml and the object in scenarios/, of which the \
                 API server would say: {refusal}",
                self.kind
            );
        }
        for finding in self
            .findings()
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
        {
            eprintln!("error ({}): {}", finding.name, printable(&finding.message));
        }
    }

    /// Returns the findings that the CRD causes.
    pub fn findings(&self) -> Vec<Finding> {
        let members = own_members(&self.schema["properties"]);
        let steps: Vec<_> = members.keys().map(|name| [FieldStep::Field(name.clone())]).collect();
        let fields = members.keys().zip(&steps);
        let controller = Controller {
            name: "published",
            kind: pilothouse_description::Kind {
                group: &self.kind.group,
                version: &self.kind.version,
                kind: &self.kind.kind,
            },
            fields: fields
                .map(|(name, steps)| Field {
                    text: format!(".{name}").into(),
                    steps,
                })
                .collect(),
            has_filter: false,
            has_finalizer: false,
            defaulter: None,
            validator: None,
            has_admission: false,
            touches: Vec::new(),
        };
        pilothouse_description::check(&Description {
            controllers: vec![controller],
            crds: Crd::of(&self.definition).into_iter().collect(),
            exports: Exports::default(),
        })
    }
}

/// The version that a plugin reconciles: the wanted one, else the one that is stored, else the only one that is served.
fn chosen(definition: &Value, wanted: Option<&NewKind>) -> anyhow::Result<NewKind> {
    let spec = &definition["spec"];
    let text = |value: &Value, path: &str| {
        let text = value.as_str().filter(|text| !text.is_empty());
        text.map(str::to_owned)
            .with_context(|| format!("the CRD has no {path}"))
    };
    let group = text(&spec["group"], "spec.group")?;
    let kind = text(&spec["names"]["kind"], "spec.names.kind")?;
    text(&spec["names"]["plural"], "spec.names.plural")?;
    let versions: Vec<&Value> = spec["versions"].as_array().into_iter().flatten().collect();
    let name = |version: &&Value| version["name"].as_str().unwrap_or_default().to_owned();
    let wanted = wanted.filter(|wanted| wanted.group == group && wanted.kind == kind);
    let served: Vec<&&Value> = versions.iter().filter(|version| version["served"] == true).collect();
    let names: Vec<String> = served.iter().map(|version| name(version)).collect();
    let is_stored = |version: &&&&Value| version["storage"] == true;
    let version = match (wanted, served.as_slice()) {
        (_, []) => bail!("the CRD of {group} {kind} serves no version, so nobody can create an object of it"),
        (Some(wanted), _) => {
            ensure!(
                names.contains(&wanted.version),
                "the CRD of {group} {kind} serves no version {}; it serves {}",
                wanted.version,
                names.join(", ")
            );
            wanted.version.clone()
        }
        (None, [only]) => name(only),
        (None, several) => match several.iter().find(is_stored) {
            Some(stored) => name(stored),
            None => bail!(
                "the CRD serves {} and stores none of them; choose one with --kind {group}/{}/{kind}",
                names.join(", "),
                names[0]
            ),
        },
    };
    let chosen = NewKind { group, version, kind };
    names::check_published(&chosen)?;
    Ok(chosen)
}

fn version_of<'a>(definition: &'a Value, version: &str) -> Option<&'a Value> {
    let versions = definition["spec"]["versions"].as_array()?;
    versions.iter().find(|it| it["name"] == version)
}

/// Reports whether the host can write the condition `Reconciled`.
fn takes_conditions(findings: &[Finding]) -> bool {
    !findings
        .iter()
        .any(|finding| ["no-status-subresource", "status-fields"].contains(&finding.name))
}

/// The findings as the file has them in which they are accepted.
fn accepted(findings: &[Finding]) -> String {
    let warnings = findings.iter().filter(|finding| finding.severity == Severity::Warning);
    let entries = warnings.map(|finding| {
        let reason = format!("The CRD is published by others and stays as it is: {}", finding.message);
        format!("- finding: {}\n  reason: {}\n", finding.name, Value::from(reason))
    });
    entries.collect()
}

/// An object that the CRD admits, and what the server says of it if it does not.
fn sample_of(definition: &Value, kind: &NewKind) -> anyhow::Result<(Value, Option<String>)> {
    let simplest = sample::of(definition, &kind.version).context("the CRD has no such version")?;
    let named = Kind::new(&*kind.group, &*kind.version, &*kind.kind);
    match storable(definition, &named, simplest.clone()) {
        Ok(found) => Ok((found, None)),
        Err(SampleError::Object(refusal)) => Ok((simplest, Some(refusal.to_string()))),
        Err(error @ SampleError::Definition(_)) => Err(error.into()),
    }
}

/// The members of an object that are the kind's own.
fn own_members(object: &Value) -> Map<String, Value> {
    let mut members = object.as_object().cloned().unwrap_or_default();
    members.retain(|name, _| !COMMON.contains(&name.as_str()));
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, wanted: Option<&str>) -> anyhow::Result<PublishedKind> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("crd.yaml");
        fs::write(&file, text).unwrap();
        PublishedKind::read(&file, wanted.map(|wanted| wanted.parse().unwrap()).as_ref())
    }

    /// A CRD with these versions, each `NAME served storage`.
    fn crd(versions: &[(&str, bool, bool)]) -> String {
        let versions = versions.iter().map(|(name, served, storage)| {
            let spec = json!({"type": "object", "properties": {"host": {"type": "string"}}});
            let schema = json!({"type": "object", "properties": {"spec": spec}});
            json!({"name": name, "served": served, "storage": storage, "schema": {"openAPIV3Schema": schema}})
        });
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "sites.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"kind": "Site", "plural": "sites"},
                "versions": versions.collect::<Vec<_>>(),
            },
        })
        .to_string()
    }

    #[test]
    fn the_version_is_the_stored_one_the_only_served_one_or_the_named_one() {
        let version = |versions: &[_], wanted| read(&crd(versions), wanted).map(|it| it.kind.version);
        let (v1, v2, old) = (("v1", true, true), ("v2", true, false), ("v1alpha1", false, false));
        assert_eq!(version(&[old, v2, v1], None).unwrap(), "v1");
        assert_eq!(version(&[("v1", false, true), v2], None).unwrap(), "v2");
        assert_eq!(version(&[v1, v2], Some("example.com/v2/Site")).unwrap(), "v2");
        let refused = |versions: &[_], wanted| format!("{:#}", version(versions, wanted).unwrap_err());
        let stored = ("v1beta1", false, true);
        let error = refused(&[stored, v2, ("v3", true, false)], None);
        assert!(error.contains("choose one with --kind example.com/v2/Site"), "{error}");
        let error = refused(&[v1, v2], Some("example.com/v7/Site"));
        assert!(error.contains("serves no version v7; it serves v1, v2"), "{error}");
        assert!(refused(&[stored], None).contains("serves no version, so nobody"));
    }

    #[test]
    fn what_is_no_crd_is_refused_with_its_cause() {
        let without_schema = crd(&[("v1", true, true)]).replace("\"schema\"", "\"other\"");
        let old = crd(&[("v1", true, true)]).replace("k8s.io/v1\"", "k8s.io/v1beta1\"");
        let other = crd(&[("v1", true, true)]).replace("sites", "pages");
        let two = format!("{}\n---\n{other}", crd(&[("v1", true, true)]));
        for (text, words) in [
            ("", "has no CRD"),
            ("a: [", "has no CRD"),
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
                "has no CustomResourceDefinition",
            ),
            (two.as_str(), "put the one into a file of its own"),
            (old.as_str(), "no API server serves any more"),
            (without_schema.as_str(), "version v1 has no schema.openAPIV3Schema"),
        ] {
            let error = format!("{:#}", read(text, None).unwrap_err());
            assert!(error.starts_with("--crd ") && error.contains(words), "{text}: {error}");
        }
    }
}
