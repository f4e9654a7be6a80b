//! `pilothouse manifests`: prints all objects that a plugin needs in a cluster, for kubectl and for a repository that a
//! GitOps controller applies. The plugin's rights are decided in `pilothouse_core::rights`.

mod argocd;
pub(crate) mod sample;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use pilothouse_build::write_if_changed;
use pilothouse_core::rights::objects::Acting;
use pilothouse_host::artifact::wait_for;
use pilothouse_host::install::{DescribedPlugin, Format, InstallationArguments, printed, tell_remarks};
use pilothouse_host::plugins::NamedFile;
use pilothouse_host::run::ClusterArguments;
use serde_json::Value;

use crate::build::{self, BuildOptions};
use crate::components;

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse manifests
  pilothouse manifests website.wasm --config config.yaml | kubectl apply --server-side -f -
  pilothouse manifests -o deploy --namespace shop
  pilothouse manifests oci://ghcr.io/acme/website:0.1.0 -o deploy
  pilothouse manifests website.wasm --argocd > argocd-health.yaml

A folder is built first, as by `pilothouse build`. With -o, the folder gets crds.yaml, rbac.yaml, plugin.yaml, sample.yaml and
a kustomization.yaml that names the first three.

A component that is given as a file has to be in the host's --plugin-dir under the same name. A cluster is asked only about
kinds whose CRD the plugin does not bring and that are not Kubernetes' own.

Exit code: 0, 1 if the documents cannot be made, 2 if the command line is wrong.";

/// The file with an object of the plugin's kind, beside Cargo.toml or beside the component.
const SAMPLE: &str = "sample.yaml";

/// `pilothouse manifests`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ManifestsCommand {
    /// The folder of the plugin's crate, or its component: a file, oci://HOST/REPOSITORY:TAG, oci-layout:DIRECTORY:TAG or
    /// oci-archive:FILE.tar:TAG. NAME= gives the Plugin another name than the manifest
    #[arg(value_name = "[NAME=]PATH|FILE|REF", default_value = ".")]
    plugin: NamedFile,

    /// The namespace of the sample (default: what the sample says)
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// Write files into this folder rather than to standard output
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Print health checks for Argo CD and nothing else: a part of the ConfigMap argocd-cm, for Plugins and for the kinds
    /// whose CRD the plugin brings
    #[arg(long, conflicts_with_all = ["namespace", "output"])]
    argocd: bool,

    #[command(flatten)]
    installation: InstallationArguments,

    #[command(flatten)]
    cluster: ClusterArguments,
}

impl ManifestsCommand {
    /// Prints, or writes.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self {
            mut plugin,
            namespace,
            output,
            argocd,
            installation,
            cluster,
        } = self;
        let mut folder = plugin.file.parent().unwrap_or(Path::new("")).to_path_buf();
        if plugin.reference().is_none() && plugin.file.is_dir() {
            let built = if let Some(component) = components::of_other_language(&plugin.file)? {
                component
            } else {
                let options = BuildOptions::of(installation.config(), installation.cache());
                build::build(&plugin.file, None, &options)?.path
            };
            folder = std::mem::replace(&mut plugin.file, built);
        }
        let described = installation.describe(plugin, Acting::Impersonation)?;
        described.check()?;
        if argocd {
            print!("{}", printed(&[argocd::config_map(&described)], Format::Yaml)?);
            return Ok(());
        }
        let rights = wait_for(described.rights(cluster.target()))?;
        tell_remarks(&rights);
        let sample = samples(&described, &folder, namespace.as_deref())?;
        let definitions = described.checked.crds.iter().map(|crd| crd.definition.clone());
        let parts = [
            ("crds.yaml", definitions.collect::<Vec<_>>()),
            ("rbac.yaml", described.grants(&rights)),
            ("plugin.yaml", vec![described.resource()?]),
            (SAMPLE, sample),
        ];
        match output {
            None => {
                let documents: Vec<Value> = parts.into_iter().flat_map(|(_, documents)| documents).collect();
                print!("{}", printed(&documents, Format::Yaml)?);
            }
            Some(folder) => write(&folder, &parts)?,
        }
        Ok(())
    }
}

/// Returns sample objects: those in the file, else one for each kind whose CRD the plugin brings.
fn samples(plugin: &DescribedPlugin, folder: &Path, namespace: Option<&str>) -> anyhow::Result<Vec<Value>> {
    let file = folder.join(SAMPLE);
    let mut samples: Vec<Value> = if file.is_file() {
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        serde_saphyr::from_multiple(&text).with_context(|| format!("{} is not YAML", file.display()))?
    } else {
        let controllers = plugin.checked.manifest.controllers.iter();
        let brought = controllers.filter_map(|controller| {
            let mut crds = plugin.checked.crds.iter();
            let crd = crds.find(|crd| crd.group == controller.kind.group && crd.kind == controller.kind.kind)?;
            sample::of(&crd.definition, &controller.kind.version)
        });
        brought.collect()
    };
    if let Some(namespace) = namespace {
        for sample in samples.iter_mut().filter(|sample| !is_of_the_cluster(plugin, sample)) {
            sample["metadata"]["namespace"] = namespace.into();
        }
    }
    Ok(samples)
}

fn is_of_the_cluster(plugin: &DescribedPlugin, object: &Value) -> bool {
    let mut crds = plugin.checked.crds.iter();
    let crd = crds.find(|crd| object["kind"] == crd.kind.as_str());
    crd.is_some_and(|crd| crd.definition["spec"]["scope"] == "Cluster")
}

fn write(folder: &Path, parts: &[(&str, Vec<Value>)]) -> anyhow::Result<()> {
    let mut resources = String::from("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n");
    for (name, documents) in parts.iter().filter(|(_, documents)| !documents.is_empty()) {
        let path = folder.join(name);
        write_if_changed(&path, printed(documents, Format::Yaml)?.as_bytes())?;
        println!("{}", path.display());
        if *name != SAMPLE {
            resources.extend(["- ", name, "\n"]);
        }
    }
    let path = folder.join("kustomization.yaml");
    write_if_changed(&path, resources.as_bytes())?;
    println!("{}", path.display());
    Ok(())
}
