//! `pilothouse inspect`: describes a plugin and the kinds that it accesses, for people and for programs. Needs no
//! cluster. Details of an artifact beside its component are left to `artifact/details.rs`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, ensure};
use clap::Args;
use pilothouse_artifact::{ArtifactError, Location};
use pilothouse_core::Limits;
use pilothouse_core::kubernetes::path::FieldPath;
use pilothouse_core::plugin::description;
use pilothouse_core::plugin::description::{Exports, Finding, Severity};
use pilothouse_core::plugin::manifest;
use pilothouse_core::plugin::manifest::{
    Access, Admission, CheckedManifest, Controller, FailurePolicy, Manifest, Touch, TouchScope,
};
use pilothouse_core::plugin::wasi;
use pilothouse_core::plugin::wasi::Wasi;
use pilothouse_core::rights::AdmissionExports;
use pilothouse_sandbox::{Optional, PluginComponent};
use serde_json::{Value, json};

use crate::accepted;
use crate::artifact::RegistryArguments;
use crate::artifact::details::{self, ArtifactDetails, FetchedArtifact};
use crate::compiling;
use crate::output::Format;
use crate::plugins::{CacheArguments, read_document, reference_of};
use pilothouse_core::text::printable::printable;

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse inspect app-service.wasm
  pilothouse inspect oci://ghcr.io/acme/app-service:0.1.0
  pilothouse inspect oci-layout:plugins:0.1.0 -o json

Of an artifact, the command also prints digest, annotations, attachments, how many signatures there are, and a summary of the
SBOM. It verifies no signature.

Exit code: 0, 1 if the plugin cannot be read or would not run, 2 if the command line is wrong.";

/// `pilothouse inspect`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct InspectCommand {
    /// The plugin's component: a file, oci://HOST/REPOSITORY:TAG, oci-layout:DIRECTORY:TAG or oci-archive:FILE.tar:TAG; a
    /// digest (@sha256:...) may stand for the tag
    #[arg(value_name = "FILE|REF")]
    plugin: Source,

    /// The plugin's configuration, YAML or JSON
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Output format
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,

    #[command(flatten)]
    cache: CacheArguments,

    #[command(flatten)]
    registries: RegistryArguments,
}

/// Source of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    Artifact(Location),
}

impl FromStr for Source {
    type Err = ArtifactError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match reference_of(Path::new(text)) {
            Some(reference) => reference.parse().map(Self::Artifact),
            None => Ok(Self::File(text.into())),
        }
    }
}

impl InspectCommand {
    /// Prints the description.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self {
            plugin,
            config,
            output,
            cache,
            registries,
        } = self;
        let config = config.map(|path| read_document(&path)).transpose()?;
        // The inert set gives access to nothing, so a component can be inspected before it is granted anything.
        let sandbox = cache.sandbox()?.granting(Wasi::Inert);
        let file = match &plugin {
            Source::File(file) => Some(file.clone()),
            Source::Artifact(_) => None,
        };
        let (plugin, details) = match plugin {
            Source::File(file) => (compiling::load(&sandbox, &file)?, None),
            Source::Artifact(location) => {
                let FetchedArtifact {
                    name,
                    component,
                    details,
                } = details::fetch(&location, registries)?;
                (compiling::load_bytes(&sandbox, &name, &component)?, Some(details))
            }
        };
        let described = plugin
            .describe(config.as_ref().map(ToString::to_string).as_deref(), &Limits::default())
            .with_context(|| format!("{} cannot be described", plugin.name()))?;
        let checked = manifest::parse_configured(&described, config.as_ref())
            .with_context(|| format!("{} cannot be used", plugin.name()))?;
        let mut findings = findings(&plugin, &checked);
        if let Some(file) = &file {
            findings = accepted::remaining(findings, file)?;
        }
        let text = match output {
            Format::Text => {
                let details = details.as_ref().map(ArtifactDetails::as_text).unwrap_or_default();
                as_text(&plugin, &checked, &findings) + &details
            }
            Format::Json => {
                let manifest: Value = serde_json::from_str(&described).context("the manifest is not JSON")?;
                let mut document = as_json(&plugin, &checked, &manifest, &findings);
                if let Some(details) = details {
                    document["artifact"] = details.as_json();
                }
                let mut text = serde_json::to_string_pretty(&document)?;
                text.push('\n');
                text
            }
        };
        print!("{text}");
        refuse(plugin.name(), &findings)
    }
}

fn interfaces(plugin: &PluginComponent) -> Vec<&'static str> {
    let optional = plugin.optional();
    [
        (true, "manifest"),
        (true, "reconciler"),
        (optional.finalizer, "finalizer"),
        (optional.defaulter, "defaulter"),
        (optional.validator, "validator"),
        (optional.converter, "converter"),
    ]
    .into_iter()
    .filter_map(|(exported, name)| exported.then_some(name))
    .collect()
}

/// Returns the interfaces that a component exports.
pub fn exports(plugin: &PluginComponent) -> Exports {
    let Optional {
        finalizer,
        defaulter,
        validator,
        converter,
    } = plugin.optional();
    Exports {
        finalizer,
        defaulter,
        validator,
        converter,
    }
}

/// Returns contradictions between component and manifest, and how to resolve them.
pub fn findings(plugin: &PluginComponent, checked: &CheckedManifest) -> Vec<Finding> {
    description::check(checked, exports(plugin))
}

/// Prints the findings to standard error.
pub fn print_findings(findings: &[Finding]) {
    for Finding {
        severity,
        name,
        message,
    } in findings
    {
        eprintln!("{severity} ({name}): {}", printable(message));
    }
}

/// Returns an error if the plugin cannot work as it is described; the reasons have been printed.
pub fn refuse(origin: &str, findings: &[Finding]) -> anyhow::Result<()> {
    ensure!(
        findings.iter().all(|finding| finding.severity != Severity::Error),
        "{origin} would not work as it is described; correct the plugin, or have its author do so"
    );
    Ok(())
}

/// Interfaces that are called for the objects of a controller before they are stored and reconciled.
struct Asked {
    /// Their names.
    interfaces: Vec<&'static str>,
    /// Set if the manifest leaves open whether one of them is for this kind.
    is_open: bool,
    /// Admission settings by which API servers call them; none if only the host does, before a reconcile.
    by_api_servers: Option<Admission>,
}

impl Asked {
    fn of(plugin: &PluginComponent, checked: &CheckedManifest, controller: &Controller) -> Self {
        let Optional {
            defaulter, validator, ..
        } = plugin.optional();
        let asked = AdmissionExports { defaulter, validator }.about(controller);
        let interfaces = [
            (asked.defaulter, controller.defaulter, "defaulter"),
            (asked.validator, controller.validator, "validator"),
        ];
        let called = || interfaces.iter().filter(|(is_asked, ..)| *is_asked);
        let by_api_servers = controller.effective_admission(checked.brings(&controller.kind));
        Self {
            interfaces: called().map(|(.., name)| *name).collect(),
            is_open: called().any(|(_, declared, _)| declared.is_none()),
            by_api_servers: by_api_servers.filter(|_| !asked.is_empty()),
        }
    }

    /// Returns the phases in which they are called.
    fn phases(&self) -> &'static [&'static str] {
        match (&self.by_api_servers, self.interfaces.is_empty()) {
            (_, true) => &[],
            (None, false) => &["reconcile"],
            (Some(_), false) => &["create", "update", "reconcile"],
        }
    }
}

fn failure_policy(admission: &Admission) -> &'static str {
    match admission.failure_policy {
        FailurePolicy::Fail => "Fail",
        FailurePolicy::Ignore => "Ignore",
    }
}

/// Returns the grant that the component needs.
fn needed_grant(plugin: &PluginComponent) -> Wasi {
    if plugin.wasi_imports().is_empty() {
        Wasi::None
    } else {
        Wasi::Inert
    }
}

fn wasi_text(plugin: &PluginComponent) -> String {
    let imports = plugin.wasi_imports();
    if imports.is_empty() {
        return "none".to_owned();
    }
    let purposes = wasi::purposes(imports.iter().map(String::as_str));
    format!(
        "imports {} (for {}); it runs only with spec.wasi: Inert, which gives access to none of these",
        imports.join(", "),
        purposes.join(", ")
    )
}

fn as_json(plugin: &PluginComponent, checked: &CheckedManifest, manifest: &Value, findings: &[Finding]) -> Value {
    let of = |severity: Severity| -> Vec<&str> {
        let of = findings.iter().filter(|finding| finding.severity == severity);
        of.map(|finding| finding.message.as_str()).collect()
    };
    let controllers = checked.manifest.controllers.iter().map(|controller| {
        let asked = Asked::of(plugin, checked, controller);
        let finalizer = controller.finalizer.as_ref().map(|_| "finalizer");
        let interfaces: Vec<&str> = std::iter::once("reconciler")
            .chain(finalizer)
            .chain(asked.interfaces.iter().copied())
            .collect();
        json!({
            "name": controller.name,
            "kind": controller.kind,
            "interfaces": interfaces,
            "phases": asked.phases(),
            "admission": asked.by_api_servers.map(|asked| json!({
                "failurePolicy": failure_policy(&asked), "timeoutSeconds": asked.timeout_seconds,
            })),
        })
    });
    // A CRD in the manifest is text; here it is parsed.
    let mut manifest = manifest.clone();
    if !checked.crds.is_empty() {
        manifest["crds"] = checked.crds.iter().map(|crd| crd.definition.clone()).collect();
    }
    json!({
        "digest": format!("sha256:{}", plugin.digest()),
        "contract": plugin.contract_version(),
        "interfaces": interfaces(plugin),
        "wasi": {"imports": plugin.wasi_imports(), "grant": needed_grant(plugin)},
        "componentBytes": plugin.component_bytes(),
        "codeBytes": plugin.code_bytes(),
        "errors": of(Severity::Error),
        "warnings": of(Severity::Warning),
        "controllers": controllers.collect::<Vec<_>>(),
        "manifest": manifest,
    })
}

fn as_text(plugin: &PluginComponent, checked: &CheckedManifest, findings: &[Finding]) -> String {
    let CheckedManifest { manifest, crds } = checked;
    let Manifest {
        name,
        version,
        description,
        controllers,
        crds: _,
        configuration_schema,
    } = manifest;
    let mut text = format!("{name} {version}");
    if !description.is_empty() {
        let _ = write!(text, ": {}", printable(description));
    }
    let _ = write!(
        text,
        "\n\ncontract      pilothouse:plugin@{}\ninterfaces    {}\ndigest        sha256:{}\nsize          {} bytes, compiled {} bytes\n",
        plugin.contract_version(),
        interfaces(plugin).join(", "),
        plugin.digest(),
        plugin.component_bytes(),
        plugin.code_bytes()
    );
    let _ = writeln!(text, "WASI          {}", wasi_text(plugin));
    for crd in crds {
        let _ = writeln!(text, "brings        {} ({} {})", crd.name, crd.group, crd.kind);
    }
    let fields = configuration_schema
        .as_ref()
        .and_then(|schema| schema["properties"].as_object());
    let fields = fields.map(|fields| fields.keys().map(String::as_str).collect::<Vec<_>>().join(", "));
    let fields = fields.map_or_else(|| "none".to_owned(), |fields| printable(&fields));
    let _ = writeln!(text, "configuration {fields}");
    for controller in controllers {
        controller_text(controller, &Asked::of(plugin, checked, controller), &mut text);
    }
    for Finding {
        severity,
        name,
        message,
    } in findings
    {
        let _ = writeln!(text, "\n{severity} ({name}): {}", printable(message));
    }
    text
}

fn controller_text(controller: &Controller, asked: &Asked, text: &mut String) {
    let Controller {
        name,
        kind,
        optional,
        fields,
        filter,
        finalizer,
        defaulter: _,
        validator: _,
        admission: _,
        failure_reason,
        touches,
        options,
    } = controller;
    let _ = writeln!(
        text,
        "\ncontroller {name}\n  reconciles   {kind}, looks at {}{}",
        listed(fields),
        if *optional { ", where the cluster serves it" } else { "" }
    );
    if let Some(annotation) = &filter.annotation {
        let _ = writeln!(text, "  only with    annotation {}", printable(annotation));
    }
    if !filter.annotations.is_empty() {
        let any = printable(&filter.annotations.join(" or "));
        let _ = writeln!(text, "  only with    annotation {any}");
    }
    if let Some(labels) = &filter.label_selector {
        let _ = writeln!(text, "  only with    labels {}", printable(&labels.to_string()));
    }
    if let Some(finalizer) = finalizer {
        let _ = writeln!(text, "  finalizer    {finalizer}");
    }
    let Asked {
        interfaces,
        is_open,
        by_api_servers,
    } = asked;
    if !interfaces.is_empty() {
        let _ = write!(text, "  admission    {}", interfaces.join(", "));
        match by_api_servers {
            Some(asked) => {
                let _ = writeln!(
                    text,
                    " before each reconcile, and at create and update where webhooks are in place (failurePolicy {}, {} s)",
                    failure_policy(asked),
                    asked.timeout_seconds
                );
            }
            None => text.push_str(" before each reconcile\n"),
        }
        if *is_open {
            text.push_str("               (the manifest does not say whether they are for this kind)\n");
        }
    }
    if !options.is_empty() {
        let _ = writeln!(text, "  may ask for  {}", options.join(", "));
    }
    if let Some(reason) = failure_reason {
        let _ = writeln!(text, "  fails with   reason {reason}");
    }
    for Touch {
        kind,
        access,
        fields,
        label_selector,
        scope,
        namespaces,
        names,
        optional,
    } in touches
    {
        let access = access.iter().map(|access| match access {
            Access::Read => "reads",
            Access::Owned => "owns",
            Access::Contributed => "contributes to",
        });
        let _ = write!(text, "  {:<12} {kind}", access.collect::<Vec<_>>().join(", "));
        if !fields.is_empty() {
            let _ = write!(text, ", looks at {}", listed(fields));
        }
        if let Some(labels) = label_selector {
            let _ = write!(text, ", with labels {labels}");
        }
        for (what, which) in [("in namespaces", namespaces), ("named", names)] {
            if !which.is_empty() {
                let _ = write!(text, ", {what} {}", which.join(", "));
            }
        }
        if *scope == TouchScope::Any && namespaces.is_empty() {
            text.push_str(", in any namespace");
        }
        text.push_str(if *optional {
            ", where the cluster serves it\n"
        } else {
            "\n"
        });
    }
}

fn listed(fields: &[FieldPath]) -> String {
    if fields.is_empty() {
        return "metadata only".to_owned();
    }
    fields.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_needs_no_scheme() {
        let source = |text: &str| text.parse::<Source>();
        assert_eq!(source("a/b.wasm").unwrap(), Source::File("a/b.wasm".into()));
        for text in [
            "ghcr.io/acme/a:1",
            "oci://ghcr.io/acme/a:1",
            "oci-layout:plugins:1",
            "oci-archive:a.tar",
        ] {
            assert!(matches!(source(text).unwrap(), Source::Artifact(_)), "{text}");
        }
        assert!(source("oci://a").is_err() && source("oci-layout:").is_err());
    }
}
