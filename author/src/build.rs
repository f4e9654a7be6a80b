//! `pilothouse build`: makes a plugin's crate, or the output of another toolchain, a component that a host will run.
//! Compiling and wrapping is left to `pilothouse_build`, checking the manifest to the host.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use pilothouse_build::compile::Compilation;
use pilothouse_build::package::Package;
use pilothouse_build::toolchain::{Toolchain, ToolchainChoice};
use pilothouse_build::{TARGET, component, generated, write_if_changed};
use pilothouse_core::Limits;
use pilothouse_core::plugin::description::Finding;
use pilothouse_core::plugin::manifest;
use pilothouse_core::plugin::wasi::Wasi;
use pilothouse_host::plugins::{CacheArguments, read_document};
use pilothouse_host::{accepted, compiling, inspect};

use crate::new::Language;

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse build
  pilothouse build operators/website --out website.wasm
  pilothouse build -- --locked --offline
  pilothouse build module.wasm --out website.wasm

The crate needs neither a profile nor linker flags in its own settings. CRDs in crds/ that a test of the crate keeps are
written anew first. The same source gives the same bytes in every folder and on every machine with the same compiler; a
dependency by a path outside of the crate's workspace makes them depend on that path, but not on the crate's folder.

A file of another toolchain is a core module with the contract's WIT embedded, which is wrapped, or a component, which is
checked.

Exit code: 0, 1 if the component cannot be built or no host would run it, 2 if the command line is wrong.";

/// `pilothouse build`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct BuildCommand {
    /// The folder of the plugin's crate, or the module or component that another toolchain has made
    #[arg(value_name = "PATH|FILE.wasm", default_value = ".")]
    path: PathBuf,

    /// The module or component that another toolchain has made, as PATH
    #[arg(long, value_name = "FILE.wasm", conflicts_with = "path")]
    component: Option<PathBuf>,

    /// Where the component goes (default: plugins/NAME.wasm in cargo's target directory; for a module, NAME.component.wasm
    /// beside it)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    #[command(flatten)]
    options: BuildOptions,
}

/// How a plugin is built.
#[derive(Args)]
pub struct BuildOptions {
    /// Build with this profile of the project rather than with the one that is best for plugins (opt-level 3, fat LTO, no
    /// symbols)
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,

    /// Leave CRDs and the schema of the configuration as they are, and compile no tests
    #[arg(long)]
    no_generate: bool,

    /// The configuration with which the plugin is asked what it is, YAML or JSON
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The compiler
    #[arg(long, value_enum, default_value_t)]
    toolchain: ToolchainChoice,

    #[command(flatten)]
    cache: CacheArguments,

    /// Arguments for cargo
    #[arg(last = true, value_name = "CARGO ARGUMENTS")]
    cargo: Vec<OsString>,
}

/// A component that a host will run.
#[derive(Debug)]
pub struct BuiltComponent {
    /// The file.
    pub path: PathBuf,
    /// Set if the file was written: it was missing, or had other bytes.
    pub changed: bool,
    /// The name and the version in its manifest.
    pub title: String,
    /// Size in bytes.
    pub bytes: usize,
    /// `sha256:` and the digest of its bytes.
    pub digest: String,
    /// Probable mistakes.
    pub findings: Vec<Finding>,
}

impl BuildOptions {
    /// Returns the default options.
    pub fn of(config: Option<&Path>, cache: &CacheArguments) -> Self {
        Self {
            profile: None,
            no_generate: false,
            config: config.map(Path::to_path_buf),
            toolchain: ToolchainChoice::default(),
            cache: cache.clone(),
            cargo: Vec::new(),
        }
    }
}

impl BuildCommand {
    /// Builds, and prints the result.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self {
            path,
            component,
            out,
            options,
        } = self;
        let path = component.unwrap_or(path);
        let built = if path.is_file() {
            wrap(&path, out, &options)?
        } else {
            build(&path, out, &options)?
        };
        let BuiltComponent {
            path,
            changed,
            title,
            bytes,
            digest,
            findings,
        } = built;
        inspect::print_findings(&findings);
        let unchanged = if changed { "" } else { "  (unchanged)" };
        println!("{title}  {bytes} bytes  {digest}\n{}{unchanged}", path.display());
        Ok(())
    }
}

/// Builds the crate in a folder.
pub fn build(folder: &Path, out: Option<PathBuf>, options: &BuildOptions) -> anyhow::Result<BuiltComponent> {
    let BuildOptions {
        profile,
        no_generate,
        toolchain,
        cargo,
        ..
    } = options;
    if let Some(language) = Language::of_project(folder) {
        let missing = language.missing_tool();
        bail!(
            "{} is a project in {}, which its own tools build: run `{}` there{}",
            folder.display(),
            language.name,
            language.build,
            missing.map_or_else(String::new, |missing| format!(". {missing}"))
        );
    }
    let toolchain = Toolchain::find(*toolchain)?;
    let package = Package::find(toolchain, folder, &for_metadata(cargo))?;
    let Package {
        name,
        version,
        target_directory,
        ..
    } = &package;
    let first = if target_directory.join(TARGET).exists() {
        ""
    } else {
        "; the first build compiles the SDK and its dependencies, which takes about a minute"
    };
    eprintln!("building {name} {version} for {TARGET}{first}");
    if !no_generate {
        for path in generated::refresh(&package.folder, cargo)? {
            eprintln!("wrote {}", path.display());
        }
    }
    let module = Compilation {
        toolchain,
        package: &package,
        target_directory,
        profile: profile.as_deref(),
        arguments: cargo,
    }
    .run()?;
    let component = component::wrap(&module).with_context(|| format!("{name} is no plugin"))?;
    let out = out.unwrap_or_else(|| target_directory.join("plugins").join(format!("{name}.wasm")));
    let mut built = checked(&component, out, options)?;
    built.findings = accepted::remaining(built.findings, &package.folder)?;
    Ok(built)
}

/// Returns the arguments for cargo that `cargo metadata` accepts, too.
fn for_metadata(arguments: &[OsString]) -> Vec<OsString> {
    let known = ["--locked", "--offline", "--frozen"];
    arguments
        .iter()
        .filter(|argument| known.iter().any(|it| *argument == *it))
        .cloned()
        .collect()
}

/// Wraps and checks the output of another toolchain.
fn wrap(file: &Path, out: Option<PathBuf>, options: &BuildOptions) -> anyhow::Result<BuiltComponent> {
    ensure!(
        options.cargo.is_empty() && options.profile.is_none(),
        "{} is already compiled; give the folder of a crate to give arguments to cargo",
        file.display()
    );
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let wrapped =
        component::wrap_foreign(bytes).with_context(|| format!("{} cannot become a plugin", file.display()))?;
    if !wrapped.wasi.is_empty() {
        eprintln!(
            "note: the component imports {}; it runs only with spec.wasi: Inert",
            wrapped.wasi.join(", ")
        );
    }
    let out = out.unwrap_or_else(|| {
        if wrapped.was_module {
            file.with_extension("component.wasm")
        } else {
            file.to_path_buf()
        }
    });
    let mut built = checked(&wrapped.bytes, out, options)?;
    built.findings = accepted::remaining(built.findings, &built.path)?;
    Ok(built)
}

/// Loads a component like a host, describes it, and only then puts it in place.
fn checked(component: &[u8], out: PathBuf, options: &BuildOptions) -> anyhow::Result<BuiltComponent> {
    let config = options.config.as_deref().map(read_document).transpose()?;
    let name = out.display().to_string();
    // The inert set gives access to nothing. A crate in Rust that imports it was refused before.
    let sandbox = options.cache.sandbox()?.granting(Wasi::Inert);
    let plugin = compiling::load_bytes(&sandbox, &name, component)?;
    let described = plugin
        .describe(config.as_ref().map(ToString::to_string).as_deref(), &Limits::default())
        .with_context(|| format!("{name} cannot be described"))?;
    let checked =
        manifest::parse_configured(&described, config.as_ref()).with_context(|| format!("{name} cannot be used"))?;
    let findings = inspect::findings(&plugin, &checked);
    if let Err(error) = inspect::refuse(&name, &findings) {
        inspect::print_findings(&findings);
        return Err(error);
    }
    let changed = write_if_changed(&out, component)?;
    if !changed {
        // `pilothouse test` compares this time with its sources'.
        let file = File::options().write(true).open(&out);
        let set = file.and_then(|file| file.set_modified(SystemTime::now()));
        set.with_context(|| format!("cannot set the time of {}", out.display()))?;
    }
    Ok(BuiltComponent {
        path: out,
        changed,
        title: format!("{} {}", checked.manifest.name, checked.manifest.version),
        bytes: component.len(),
        digest: format!("sha256:{}", plugin.digest()),
        findings,
    })
}
