//! `pilothouse push`: uploads a component as an artifact, with its attachments. The component is checked before
//! anything is sent, and the same input has the same digest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, bail};
use clap::Args;
use jiff::Timestamp;
use pilothouse_artifact::fetch::versions;
use pilothouse_artifact::{Artifact, ArtifactBuilder, Attachment, ComponentInfo, Location, annotation, media_type};
use pilothouse_core::Limits;
use pilothouse_core::plugin::manifest;
use pilothouse_core::plugin::manifest::CheckedManifest;
use pilothouse_core::plugin::wasi::Wasi;
use pilothouse_sandbox::ComponentInterfaces;

use super::cargo_package::CargoPackage;
use super::sbom::{SBOM_LIMIT, Sbom};
use super::{RegistryArguments, Session, bytes, pinned, wait_for};
use crate::options::settings;
use crate::plugins::{CacheArguments, read_document};

/// Artifact types of attachments.
pub mod artifact_type {
    /// The plugin's CRDs, YAML documents.
    pub const CRDS: &str = "application/vnd.pilothouse.crds.v1+yaml";
    /// The README.
    pub const README: &str = "application/vnd.pilothouse.readme.v1+markdown";
}

/// The longest README that is attached, in bytes.
const README_LIMIT: u64 = 1 << 20;

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse push target/plugins/app-service.wasm ghcr.io/acme/app-service:0.1.0
  pilothouse push app-service.wasm ghcr.io/acme/app-service:0.1.0 --crate plugins/app-service
  pilothouse push app-service.wasm oci-layout:plugins:0.1.0 --annotation org.opencontainers.image.vendor=Acme

The artifact has the CNCF's format for WebAssembly, which wkg and oras pull too. Name, version and description are those of
the plugin's manifest; source and licence those of its Cargo package, which is looked for if FILE lies below Cargo's target
directory. The CRDs, the README and the file of --sbom are attached. The tag is set at the end, when everything is there.

The same input gives the same digest: the creation time is 1970-01-01T00:00:00Z unless --created or SOURCE_DATE_EPOCH gives
another.

Exit code: 0 everything is there, 1 it is not, 2 the command line is wrong.";

/// `pilothouse push`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct PushCommand {
    /// The plugin's component
    file: PathBuf,

    /// Where to push it: HOST/REPOSITORY[:TAG], oci-layout:DIRECTORY[:TAG] or oci-archive:FILE.tar[:TAG]
    #[arg(value_name = "REF")]
    to: Location,

    /// An annotation of the artifact; it replaces the one that the plugin or its crate gives. May be repeated
    #[arg(long = "annotation", value_name = "KEY=VALUE")]
    annotations: Vec<Annotation>,

    /// The directory of the plugin's crate (default: the package below whose target directory FILE lies, if one library
    /// there is called like FILE)
    #[arg(long = "crate", value_name = "DIRECTORY")]
    package: Option<PathBuf>,

    /// The SBOM to attach, CycloneDX or SPDX as JSON, such as `cargo cyclonedx` writes
    #[arg(long, value_name = "FILE")]
    sbom: Option<PathBuf>,

    /// The README to attach (default: the crate's)
    #[arg(long, value_name = "FILE")]
    readme: Option<PathBuf>,

    /// The artifact's creation time, such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    created: Option<Timestamp>,

    /// The plugin's configuration, YAML or JSON, for a plugin that does not describe itself without one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    cache: CacheArguments,

    #[command(flatten)]
    registries: RegistryArguments,
}

/// `KEY=VALUE`
#[derive(Clone, Debug, PartialEq, Eq)]
struct Annotation {
    key: String,
    value: String,
}

impl FromStr for Annotation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((key, value)) = text.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err("write KEY=VALUE".to_owned());
        };
        if key == annotation::CREATED {
            return Err("the creation time is also in the artifact's config; give it with --created".to_owned());
        }
        Ok(Self {
            key: key.to_owned(),
            value: value.to_owned(),
        })
    }
}

/// A component that this host would run, and its description.
struct Checked {
    component: Vec<u8>,
    interfaces: ComponentInterfaces,
    manifest: CheckedManifest,
}

impl PushCommand {
    /// Checks, pushes, and prints the reference with the digest.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self {
            file,
            to,
            annotations,
            package,
            sbom,
            readme,
            created,
            config,
            cache,
            registries,
        } = self;
        if let Location::Registry(reference) = &to
            && reference.digest().is_some()
        {
            bail!("{to} has a digest, which follows from the content; leave it off");
        }
        let session = registries.session()?;
        let created = created.or(settings::source_date_epoch()?);
        let checked = check(&file, config.as_deref(), &cache)?;
        let package = match &package {
            Some(directory) => Some(CargoPackage::in_directory(directory)?),
            None => found_package(&session, &file),
        };
        let attachments = attachments(&checked.manifest, package.as_ref(), readme, sbom.as_deref())?;
        let artifact = artifact(&checked, package.as_ref(), annotations, created);
        wait_for(push(&session, &to, &artifact, &attachments))?;
        let reference = pinned(&to, artifact.descriptor.digest);
        println!("{reference}");
        say_what_is_next(&session, &checked, &to, &reference, &attachments);
        Ok(())
    }
}

/// Checks that this host would run the component.
fn check(file: &Path, config: Option<&Path>, cache: &CacheArguments) -> anyhow::Result<Checked> {
    let config = config.map(read_document).transpose()?;
    // Its users grant the plugin the interfaces that it imports.
    let sandbox = cache.sandbox()?.granting(Wasi::Inert);
    // Read once, so that what is checked is what is pushed.
    let read = sandbox.read(file, None)?;
    let interfaces = read.interfaces()?;
    let described = sandbox
        .load_read(&read)?
        .describe(config.as_ref().map(ToString::to_string).as_deref(), &Limits::default())
        .with_context(|| format!("{} cannot be described", file.display()))?;
    let manifest = manifest::parse_configured(&described, config.as_ref())
        .with_context(|| format!("{} cannot be used", file.display()))?;
    Ok(Checked {
        component: read.into_bytes(),
        interfaces,
        manifest,
    })
}

/// Returns the package that the file was built from. Without one, the artifact has fewer annotations.
fn found_package(session: &Session, file: &Path) -> Option<CargoPackage> {
    match CargoPackage::of_component(file) {
        Ok(Some(package)) => {
            session.say(format_args!(
                "the component is that of the Cargo package {} in {}",
                package.name,
                package.directory().display()
            ));
            Some(package)
        }
        Ok(None) => {
            session.say(
                "no Cargo package is known for the component, so the artifact gets no source, licence and README; name it with --crate",
            );
            None
        }
        Err(error) => {
            session.say(format_args!(
                "the component's Cargo package cannot be read, so the artifact gets no source, licence and README: {error:#}"
            ));
            None
        }
    }
}

fn artifact(
    checked: &Checked,
    package: Option<&CargoPackage>,
    given: Vec<Annotation>,
    created: Option<Timestamp>,
) -> Artifact {
    let about = &checked.manifest.manifest;
    let mut annotations = BTreeMap::from([
        (annotation::TITLE.to_owned(), about.name.clone()),
        (annotation::VERSION.to_owned(), about.version.clone()),
        (annotation::DESCRIPTION.to_owned(), about.description.clone()),
    ]);
    let of_package = package.map(|it| {
        [
            (annotation::SOURCE, it.repository()),
            (annotation::LICENSES, it.license()),
        ]
    });
    for (key, value) in of_package.into_iter().flatten() {
        annotations.extend(value.map(|value| (key.to_owned(), value.to_owned())));
    }
    annotations.extend(given.into_iter().map(|Annotation { key, value }| (key, value)));
    let ComponentInterfaces { imports, exports } = checked.interfaces.clone();
    let info = ComponentInfo {
        exports,
        imports,
        target: None,
    };
    let mut builder = ArtifactBuilder::new(checked.component.clone(), info);
    for (key, value) in &annotations {
        builder = builder.annotation(key, Some(value));
    }
    if let Some(created) = created {
        builder = builder.created(created);
    }
    builder.build()
}

/// Returns the attachments, each with its name for people.
fn attachments(
    manifest: &CheckedManifest,
    package: Option<&CargoPackage>,
    readme: Option<PathBuf>,
    sbom: Option<&Path>,
) -> anyhow::Result<Vec<(String, Attachment)>> {
    let mut attachments = Vec::new();
    let mut attach = |what: String, artifact_type: &str, media_type: &str, file: &str, content: Vec<u8>| {
        let annotations = BTreeMap::from([(annotation::TITLE.to_owned(), file.to_owned())]);
        let attachment = Attachment {
            artifact_type: artifact_type.to_owned(),
            media_type: media_type.to_owned(),
            content: content.into(),
            annotations,
        };
        attachments.push((what, attachment));
    };
    let crds = &manifest.manifest.crds;
    if !crds.is_empty() {
        let what = match crds.len() {
            1 => "1 CRD".to_owned(),
            count => format!("{count} CRDs"),
        };
        attach(
            what,
            artifact_type::CRDS,
            "application/yaml",
            "crds.yaml",
            yaml(crds).into(),
        );
    }
    let readme = readme.or_else(|| package?.readme());
    if let Some(file) = readme {
        let text = read_text("README", &file, README_LIMIT)?;
        attach(
            "README".to_owned(),
            artifact_type::README,
            "text/markdown",
            "README.md",
            text.into(),
        );
    }
    if let Some(file) = sbom {
        let text = read_text("SBOM", file, SBOM_LIMIT)?;
        let sbom =
            Sbom::parse(text.as_bytes()).with_context(|| format!("cannot attach the SBOM {}", file.display()))?;
        let what = format!("SBOM with {} components", sbom.components);
        attach(what, sbom.media_type, sbom.media_type, "sbom.json", text.into());
    }
    Ok(attachments)
}

/// Reads a file that is attached.
fn read_text(what: &str, file: &Path, limit: u64) -> anyhow::Result<String> {
    let failed = || format!("cannot read the {what} {}", file.display());
    if std::fs::metadata(file).with_context(failed)?.len() > limit {
        bail!("the {what} {} has more than {limit} bytes; shorten it", file.display());
    }
    std::fs::read_to_string(file).with_context(failed)
}

/// Concatenates documents. JSON is YAML, too.
fn yaml(documents: &[String]) -> String {
    let mut yaml = String::new();
    for document in documents {
        let document = document
            .trim()
            .trim_start_matches("---")
            .trim_start_matches(['\r', '\n']);
        yaml.extend(["---\n", document, "\n"]);
    }
    yaml
}

async fn push(
    session: &Session,
    to: &Location,
    artifact: &Artifact,
    attachments: &[(String, Attachment)],
) -> anyhow::Result<()> {
    let store = session.open(to)?;
    let progress = session.progress("pushing");
    artifact.push(&store, None, &progress).await?;
    for (what, attachment) in attachments {
        let attached = store.attach(&artifact.descriptor, attachment).await;
        attached.with_context(|| format!("cannot attach the {what}"))?;
    }
    if let Some(tag) = to.tag() {
        // The tag comes last, so that an artifact found by it is complete.
        store
            .push_manifest(&artifact.manifest, media_type::MANIFEST, Some(tag))
            .await?;
    }
    store.finish().await?;
    Ok(())
}

fn say_what_is_next(
    session: &Session,
    checked: &Checked,
    to: &Location,
    reference: &Location,
    attachments: &[(String, Attachment)],
) {
    let about = &checked.manifest.manifest;
    let size = bytes(checked.component.len() as u64);
    let attached: Vec<_> = attachments.iter().map(|(what, _)| what.as_str()).collect();
    let attached = match attached.as_slice() {
        [] => "nothing".to_owned(),
        attached => attached.join(", "),
    };
    session.say(format_args!(
        "pushed {} {} ({size}) to {to}; attached: {attached}",
        about.name, about.version
    ));
    if checked.interfaces.wasi_imports().next().is_some() {
        session
            .say("note: the component imports interfaces of WASI; it runs only where its Plugin has spec.wasi: Inert");
    }
    if let Some(version) = to.tag().and_then(versions::version)
        && version.to_string() != about.version
    {
        session.say(format_args!(
            "warning: the tag says {version}, and the plugin's manifest {}; a SemVer range goes by the tag",
            about.version
        ));
    }
    session.say(match to {
        Location::Registry(_) => format!(
            "next:\n  cosign sign --key cosign.key {reference}\n  pilothouse verify {reference} --key cosign.pub\n  \
             put the reference into spec.source.oci.reference of a Plugin"
        ),
        Location::Layout(_) => {
            format!("next:\n  pilothouse copy {reference} HOST/REPOSITORY:TAG")
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_has_a_key_and_may_have_any_value() {
        let parse = |text: &str| text.parse::<Annotation>();
        let annotation = parse("a.b/c=d=e").unwrap();
        assert_eq!((&*annotation.key, &*annotation.value), ("a.b/c", "d=e"));
        assert_eq!(parse("a=").unwrap().value, "");
        assert!(parse("a").is_err() && parse("=a").is_err());
        let error = parse("org.opencontainers.image.created=2026-01-01T00:00:00Z").unwrap_err();
        assert!(error.contains("--created"), "{error}");
    }

    #[test]
    fn crds_become_one_stream_of_documents() {
        let crds = ["kind: A\n", "---\nkind: B", "{\"kind\": \"C\"}\n\n"].map(str::to_owned);
        assert_eq!(yaml(&crds), "---\nkind: A\n---\nkind: B\n---\n{\"kind\": \"C\"}\n");
    }
}
