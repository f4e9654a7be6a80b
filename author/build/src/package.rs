//! Cargo's metadata of a plugin's crate: its name, its library, the folders of its build. `compile` builds it.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::TARGET;
use crate::toolchain::{self, Toolchain};

/// Crate for calling JavaScript. A component that is linked with it has imports that no host provides.
const JAVASCRIPT: &str = "wasm-bindgen";

/// The crate [`JAVASCRIPT`], and crates that only give access to it.
const OF_JAVASCRIPT: [&str; 4] = [JAVASCRIPT, "js-sys", "web-sys", "wasm-bindgen-futures"];

/// Crates whose default features depend on it, with features that do not.
const WITHOUT_JAVASCRIPT: [(&str, &str); 1] = [("chrono", "\"alloc\", \"serde\"")];

/// The crate by which others ask for randomness. It does not compile for a plugin's target unless something else stands in for it.
const RANDOMNESS: &str = "getrandom";

/// The compiler flag that selects the backend of getrandom.
const BACKEND: &str = "getrandom_backend";

/// Where a plugin has something random from, and what to write where a crate cannot do without.
const SEED: &str = "A plugin has no randomness, because equal input gives equal output: derive what should differ from metadata.uid, \
                    for example as the seed of a generator. Where a crate only links it, docs/from-kube-rs.md of Pilothouse shows a \
                    backend that fails when it is called";

/// Crates that bring it by their default features, with features that do not.
const WITHOUT_RANDOMNESS: [(&str, &str); 3] = [
    ("ahash", "\"std\""),
    ("rand", "\"small_rng\""),
    ("uuid", "\"v5\", \"serde\""),
];

/// Words in the names of features that ask for it.
const RANDOM_FEATURES: [&str; 5] = ["rng", "rand", "v4", "v7", "runtime"];

/// The library that makes a crate a plugin.
const CDYLIB: &str = "cdylib";

/// Setting that makes a crate a plugin.
const CRATE_TYPE: &str = "its Cargo.toml needs\n\n[lib]\ncrate-type = [\"cdylib\", \"rlib\"]\n";

/// A plugin's crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// The package's name, which is the plugin's too.
    pub name: String,
    /// Version.
    pub version: String,
    /// The folder with its Cargo.toml.
    pub folder: PathBuf,
    /// The name of its library, as rustc writes it.
    pub library: String,
    /// The root of the workspace that it is in; its own folder if it is in none.
    pub workspace: PathBuf,
    /// Cargo's target directory.
    pub target_directory: PathBuf,
    /// Folders of crates outside of the workspace that it is built with, such as a checkout of the SDK, by name.
    pub neighbours: Vec<(PathBuf, String)>,
    /// Set if it is built with other crates of its workspace.
    pub has_members: bool,
}

impl Package {
    /// Finds the plugin in a folder, with further arguments for cargo, such as `--offline`.
    pub fn find(toolchain: Toolchain, folder: &Path, arguments: &[OsString]) -> Result<Self> {
        ensure!(
            folder.is_dir(),
            "{} is no folder; give the folder of the plugin's crate, or its component",
            folder.display()
        );
        let folder = fs::canonicalize(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let manifest = folder.join("Cargo.toml");
        ensure!(
            manifest.is_file(),
            "{} has no Cargo.toml; run the command in the folder of a plugin's crate, or make one with `pilothouse new`",
            folder.display()
        );
        let metadata = Metadata::of(toolchain, &folder, arguments)?;
        let Some(found) = metadata.packages.iter().find(|it| it.manifest_path == manifest) else {
            let plugins = metadata
                .packages
                .iter()
                .filter(|it| it.source.is_none() && it.library().is_some());
            let plugins: Vec<_> = plugins.map(|it| it.folder().display().to_string()).collect();
            bail!(
                "{} is a workspace and no crate; give the folder of a plugin{}{}",
                folder.display(),
                if plugins.is_empty() { "" } else { ": " },
                plugins.join(", ")
            );
        };
        metadata.check_dependencies(found)?;
        metadata.package(found)
    }

    /// Returns the plugins of a workspace whose folders fit, in the order of their names.
    pub fn of_workspace(toolchain: Toolchain, root: &Path, fits: impl Fn(&Path) -> bool) -> Result<Vec<Self>> {
        let metadata = Metadata::of(toolchain, root, &["--no-deps".into()])?;
        let fitting = metadata.packages.iter().filter(|it| fits(it.folder()));
        let mut packages: Vec<_> = fitting.map(|it| metadata.package(it)).collect::<Result<_>>()?;
        packages.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(packages)
    }
}

/// Parts of cargo's metadata that are read.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
    workspace_root: PathBuf,
    target_directory: PathBuf,
    /// None if dependencies were not requested.
    resolve: Option<Resolve>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
    features: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Debug, Deserialize)]
struct DependencyKind {
    /// `dev` or `build`; none for a normal dependency.
    kind: Option<String>,
}

#[derive(Debug, Deserialize)]
struct MetadataPackage {
    id: String,
    name: String,
    version: String,
    manifest_path: PathBuf,
    source: Option<String>,
    targets: Vec<MetadataTarget>,
}

#[derive(Debug, Deserialize)]
struct MetadataTarget {
    name: String,
    kind: Vec<String>,
}

impl Metadata {
    fn of(toolchain: Toolchain, folder: &Path, arguments: &[OsString]) -> Result<Self> {
        let mut command = toolchain.cargo(folder);
        command
            .args(["metadata", "--format-version", "1", "--filter-platform", TARGET])
            .args(arguments)
            .stderr(Stdio::inherit());
        let output = command.output().context("running cargo metadata")?;
        ensure!(
            output.status.success(),
            "cargo cannot read {}: the reason is above",
            folder.join("Cargo.toml").display()
        );
        serde_json::from_slice(&output.stdout).context("reading what cargo metadata says")
    }

    fn package(&self, found: &MetadataPackage) -> Result<Package> {
        let Some(library) = found.library() else {
            bail!("{} is no plugin: {CRATE_TYPE}", found.name);
        };
        let is_outside = |it: &&MetadataPackage| it.source.is_none() && !it.folder().starts_with(&self.workspace_root);
        let neighbours = self.packages.iter().filter(is_outside);
        let linked = self.linked(&found.id);
        let is_member = |it: &&MetadataPackage| it.source.is_none() && it.folder().starts_with(&self.workspace_root);
        let members = self.packages.iter().filter(is_member);
        let has_members = members
            .filter(|it| it.id != found.id)
            .any(|it| linked.contains_key(it.id.as_str()));
        Ok(Package {
            name: found.name.clone(),
            version: found.version.clone(),
            folder: found.folder().to_path_buf(),
            library: library.name.replace('-', "_"),
            workspace: self.workspace_root.clone(),
            target_directory: self.target_directory.clone(),
            neighbours: neighbours
                .map(|it| (it.folder().to_path_buf(), it.name.clone()))
                .collect(),
            has_members,
        })
    }

    /// Returns the packages that are linked with a package, each with its dependent on one of the shortest paths.
    fn linked<'a>(&'a self, root: &'a str) -> HashMap<&'a str, &'a str> {
        let nodes = self.resolve.iter().flat_map(|resolve| &resolve.nodes);
        let nodes: HashMap<&str, &Node> = nodes.map(|node| (node.id.as_str(), node)).collect();
        let (mut asked_by, mut queue) = (HashMap::new(), VecDeque::from([root]));
        while let Some(id) = queue.pop_front() {
            for dependency in nodes.get(id).iter().flat_map(|node| &node.deps) {
                let is_linked = dependency.dep_kinds.iter().any(|it| it.kind.is_none());
                if is_linked && dependency.pkg != root && !asked_by.contains_key(dependency.pkg.as_str()) {
                    asked_by.insert(dependency.pkg.as_str(), id);
                    queue.push_back(&dependency.pkg);
                }
            }
        }
        asked_by
    }

    /// Returns an error for a dependency that calls JavaScript or wants randomness, which would otherwise be noticed after compiling.
    fn check_dependencies(&self, root: &MetadataPackage) -> Result<()> {
        let linked = self.linked(&root.id);
        let is_linked = |it: &&MetadataPackage| linked.contains_key(it.id.as_str());
        let mut packages = self.packages.iter().filter(is_linked);
        let Some(javascript) = packages.clone().find(|it| it.name == JAVASCRIPT) else {
            let random = packages.find(|it| it.name == RANDOMNESS && !self.has_backend(root, it));
            return random.map_or(Ok(()), |random| {
                self.refuse_randomness(root, &self.way(&linked, random))
            });
        };
        let path = self.way(&linked, javascript);
        let is_own = |it: &&&MetadataPackage| OF_JAVASCRIPT.contains(&it.name.as_str());
        let brings = path.iter().rev().find(|it| !is_own(it)).copied().unwrap_or(root);
        let names: Vec<String> = path.iter().map(|it| format!("{} {}", it.name, it.version)).collect();
        bail!(
            "{} cannot become a plugin: it is linked with {JAVASCRIPT}, which calls JavaScript, and a plugin has none ({}). {}; `cargo \
             tree --target {TARGET} --edges normal,features --invert {JAVASCRIPT}` shows who asks for it",
            root.name,
            names.join(" -> "),
            self.cure(root, brings)
        );
    }

    /// The packages from the root to a linked one, each of which asks for the next.
    fn way<'a>(&'a self, linked: &HashMap<&'a str, &'a str>, to: &'a MetadataPackage) -> Vec<&'a MetadataPackage> {
        let mut path = vec![to.id.as_str()];
        while let Some(asking) = path.last().and_then(|id| linked.get(id)) {
            path.push(asking);
        }
        path.reverse();
        let package = |id: &&str| self.packages.iter().find(|it| it.id == **id);
        path.iter().filter_map(package).collect()
    }

    /// Reports whether a backend replaces the randomness that the target lacks: a feature until 0.2, a flag of the compiler since.
    fn has_backend(&self, root: &MetadataPackage, random: &MetadataPackage) -> bool {
        if ["0.1.", "0.2."]
            .iter()
            .any(|version| random.version.starts_with(version))
        {
            let features = self.features(random);
            return features
                .iter()
                .any(|feature| ["custom", "dummy"].contains(&feature.as_str()));
        }
        let variables = ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"];
        let flags = variables.iter().filter_map(|name| std::env::var(name).ok());
        let files = root
            .folder()
            .ancestors()
            .map(|folder| folder.join(".cargo/config.toml"));
        let own = toolchain::cargo_home().map(|home| home.join("config.toml"));
        let settings = files.chain(own).filter_map(|file| fs::read_to_string(file).ok());
        flags.chain(settings).any(|text| text.contains(BACKEND))
    }

    /// The features of a package that are switched on.
    fn features(&self, package: &MetadataPackage) -> &[String] {
        let mut nodes = self.resolve.iter().flat_map(|resolve| &resolve.nodes);
        nodes
            .find(|node| node.id == package.id)
            .map_or(&[], |node| &node.features)
    }

    /// Refuses a dependency that wants randomness, which cargo would say only after minutes.
    fn refuse_randomness(&self, root: &MetadataPackage, way: &[&MetadataPackage]) -> Result<()> {
        let is_own = |it: &&&MetadataPackage| [RANDOMNESS, "rand_core", "rand_chacha"].contains(&it.name.as_str());
        let brings = way.iter().rev().find(|it| !is_own(it)).copied().unwrap_or(root);
        let name = &brings.name;
        let cure = if brings.id == root.id {
            format!("Remove {RANDOMNESS} from Cargo.toml")
        } else if let Some(replacement) = brings.without(&WITHOUT_RANDOMNESS) {
            replacement
        } else {
            let which = self.suspects(brings, &RANDOM_FEATURES);
            format!("{name} brings it: switch off {which}, or do without {name}")
        };
        let names: Vec<String> = way.iter().map(|it| format!("{} {}", it.name, it.version)).collect();
        bail!(
            "{} cannot become a plugin: it is linked with {RANDOMNESS}, which has no randomness on {TARGET} and does not compile ({}). \
             {cure}. {SEED}; `cargo tree --target {TARGET} --edges normal,features --invert {RANDOMNESS}` shows who asks for it",
            root.name,
            names.join(" -> ")
        );
    }

    /// Names the features of a package that are switched on and have one of these words in their names.
    fn suspects(&self, package: &MetadataPackage, words: &[&str]) -> String {
        let features = self.features(package).iter().map(String::as_str);
        let suspects: Vec<&str> = features
            .filter(|feature| words.iter().any(|word| feature.contains(word)))
            .collect();
        if suspects.is_empty() {
            "the feature that does so".to_owned()
        } else {
            format!("its feature {}", suspects.join(", "))
        }
    }

    /// Returns the change of Cargo.toml that keeps a package from depending on JavaScript.
    fn cure(&self, root: &MetadataPackage, brings: &MetadataPackage) -> String {
        if brings.id == root.id {
            return format!("Remove the dependencies {} from Cargo.toml", OF_JAVASCRIPT.join(", "));
        }
        if let Some(replacement) = brings.without(&WITHOUT_JAVASCRIPT) {
            return format!("{replacement}; the time comes from `Cluster::now`");
        }
        let (name, which) = (&brings.name, self.suspects(brings, &["js", "wasm", "web"]));
        format!("{name} brings it: switch off {which}, for example with default-features = false, or do without {name}")
    }
}

impl MetadataPackage {
    /// Returns the line of Cargo.toml with the features that this table has for the package, if it has any.
    fn without(&self, table: &[(&str, &str)]) -> Option<String> {
        let Self { name, version, .. } = self;
        let (_, features) = table
            .iter()
            .find(|(package, features)| package == name && !features.is_empty())?;
        Some(format!(
            "In Cargo.toml write {name} = {{ version = \"{version}\", default-features = false, features = [{features}] }}"
        ))
    }

    fn folder(&self) -> &Path {
        self.manifest_path.parent().expect("a manifest is in a folder")
    }

    fn library(&self) -> Option<&MetadataTarget> {
        self.targets.iter().find(|it| it.kind.iter().any(|kind| kind == CDYLIB))
    }
}
