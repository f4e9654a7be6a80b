//! Owns `pilothouse inspect`: what a plugin is and touches, for people and for programs. Needs no cluster. What is said of an
//! artifact beside its component is left to `artifact/details.rs`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use pilothouse_artifact::{ArtifactError, Location, Reference};
use pilothouse_core::Limits;
use pilothouse_core::manifest::{self, Access, CheckedManifest, Controller, Manifest, Touch, TouchScope};
use pilothouse_core::path::FieldPath;
use pilothouse_core::status;
use pilothouse_sandbox::PluginComponent;
use serde_json::{Value, json};

use crate::artifact::RegistryArguments;
use crate::artifact::details::{self, ArtifactDetails, FetchedArtifact};
use crate::plugins::{CacheArguments, read_document};

/// Help that stands below the options.
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

    /// Output format: text for humans, json for programs
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,

    #[command(flatten)]
    cache: CacheArguments,

    #[command(flatten)]
    registries: RegistryArguments,
}

/// Where a component is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    Artifact(Location),
}

impl FromStr for Source {
    type Err = ArtifactError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let schemes = ["oci://", "oci-layout:", "oci-archive:"];
        if schemes.iter().any(|scheme| text.starts_with(scheme)) {
            return text.parse().map(Self::Artifact);
        }
        Ok(Self::File(text.into()))
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

impl InspectCommand {
    /// Prints.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self {
            plugin,
            config,
            output,
            cache,
            registries,
        } = self;
        let config = config.map(|path| read_document(&path)).transpose()?;
        let sandbox = cache.sandbox()?;
        let (plugin, details) = match plugin {
            Source::File(file) => {
                let loaded = sandbox.load(&file);
                let looks_like_a_reference = || !file.exists() && file.to_str().is_some_and(is_reference);
                if loaded.is_err() && looks_like_a_reference() {
                    bail!(
                        "there is no file {0}; for the artifact in a registry write oci://{0}",
                        file.display()
                    );
                }
                (loaded?, None)
            }
            Source::Artifact(location) => {
                let FetchedArtifact {
                    name,
                    component,
                    details,
                } = details::fetch(&location, registries)?;
                (sandbox.load_bytes(&name, &component)?, Some(details))
            }
        };
        let described = plugin
            .describe(config.map(|config| config.to_string()).as_deref(), &Limits::default())
            .with_context(|| format!("{} cannot be described", plugin.name()))?;
        let checked = manifest::parse(&described).with_context(|| format!("{} cannot be used", plugin.name()))?;
        let text = match output {
            Format::Text => {
                let details = details.as_ref().map(ArtifactDetails::as_text).unwrap_or_default();
                as_text(&plugin, &checked) + &details
            }
            Format::Json => {
                let manifest: Value = serde_json::from_str(&described).context("the manifest is not JSON")?;
                let mut document = as_json(&plugin, &checked, &manifest);
                if let Some(details) = details {
                    document["artifact"] = details.as_json();
                }
                let mut text = serde_json::to_string_pretty(&document)?;
                text.push('\n');
                text
            }
        };
        print!("{text}");
        Ok(())
    }
}

fn is_reference(text: &str) -> bool {
    text.parse::<Reference>().is_ok()
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

/// What will not work in full, and what to do about it.
pub fn warnings(checked: &CheckedManifest) -> Vec<String> {
    let of_controller = |controller: &Controller| {
        let mut crds = checked.crds.iter();
        let crd = crds.find(|crd| crd.group == controller.kind.group && crd.kind == controller.kind.kind)?;
        status::gaps(crd, &controller.kind.version)
    };
    checked.manifest.controllers.iter().filter_map(of_controller).collect()
}

fn as_json(plugin: &PluginComponent, checked: &CheckedManifest, manifest: &Value) -> Value {
    json!({
        "digest": format!("sha256:{}", plugin.digest()),
        "contract": plugin.contract_version(),
        "interfaces": interfaces(plugin),
        "componentBytes": plugin.component_bytes(),
        "codeBytes": plugin.code_bytes(),
        "warnings": warnings(checked),
        "manifest": manifest,
    })
}

fn as_text(plugin: &PluginComponent, checked: &CheckedManifest) -> String {
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
        let _ = write!(text, ": {description}");
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
    for crd in crds {
        let _ = writeln!(text, "brings        {} ({} {})", crd.name, crd.group, crd.kind);
    }
    let fields = configuration_schema
        .as_ref()
        .and_then(|schema| schema["properties"].as_object());
    let fields = fields.map(|fields| fields.keys().map(String::as_str).collect::<Vec<_>>().join(", "));
    let _ = writeln!(text, "configuration {}", fields.as_deref().unwrap_or("none"));
    for controller in controllers {
        controller_text(controller, &mut text);
    }
    for warning in warnings(checked) {
        let _ = writeln!(text, "\nwarning: {warning}");
    }
    text
}

fn controller_text(controller: &Controller, text: &mut String) {
    let Controller {
        name,
        kind,
        fields,
        filter,
        finalizer,
        admission: _,
        failure_reason,
        touches,
    } = controller;
    let _ = writeln!(
        text,
        "\ncontroller {name}\n  reconciles   {kind}, looks at {}",
        listed(fields)
    );
    if let Some(annotation) = &filter.annotation {
        let _ = writeln!(text, "  only with    annotation {annotation}");
    }
    if let Some(labels) = &filter.label_selector {
        let _ = writeln!(text, "  only with    labels {labels}");
    }
    if let Some(finalizer) = finalizer {
        let _ = writeln!(text, "  finalizer    {finalizer}");
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
    fn what_has_no_scheme_is_a_file() {
        let source = |text: &str| text.parse::<Source>();
        assert_eq!(source("ghcr.io/a:1").unwrap(), Source::File("ghcr.io/a:1".into()));
        for text in ["oci://ghcr.io/acme/a:1", "oci-layout:plugins:1", "oci-archive:a.tar"] {
            assert!(matches!(source(text).unwrap(), Source::Artifact(_)), "{text}");
        }
        assert!(source("oci://a").is_err() && source("oci-layout:").is_err());
    }
}
