//! Finds the real programs that the external tests run: Debian's docker-registry, the registry of go-containerregistry,
//! cosign, oras, wkg, promtool, helm, kustomize and kubectl; cargo-component; kstatus; and the image of the host. Each is
//! searched for in its environment variable, on the search path in the pinned version, and in the cache; missing ones
//! are fetched or built.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use pilothouse_programs::environment;
use pilothouse_programs::go::{GoModule, GoProgram, required_version};

use crate::{cargo, debian, image, root};

/// The Go module that pins cosign, oras and the registry of go-containerregistry: one version of each, and by go.sum the
/// content of everything that they are built from. The registry's version is the one that cosign requires.
const MODULE: &[(&str, &str)] = &[
    ("go.mod", include_str!("../../tests/external/programs/go.mod")),
    ("go.sum", include_str!("../../tests/external/programs/go.sum")),
    (
        "registry/main.go",
        include_str!("../../tests/external/programs/registry/main.go"),
    ),
];

/// The Go module that pins promtool.
const PROMTOOL_MODULE: &[(&str, &str)] = &[
    ("go.mod", include_str!("../../tests/external/promtool/go.mod")),
    ("go.sum", include_str!("../../tests/external/promtool/go.sum")),
];

/// The Go module that pins helm and kustomize.
const HELM_MODULE: &[(&str, &str)] = &[
    ("go.mod", include_str!("../../tests/external/helm/go.mod")),
    ("go.sum", include_str!("../../tests/external/helm/go.sum")),
];

/// The Go module that pins kstatus and the interpreter of Argo CD's health checks.
const GITOPS_MODULE: &[(&str, &str)] = &[
    ("go.mod", include_str!("../../tests/external/gitops/go.mod")),
    ("go.sum", include_str!("../../tests/external/gitops/go.sum")),
    ("main.go", include_str!("../../tests/external/gitops/main.go")),
];

const GITOPS: GoProgram = GoProgram {
    package: "pilothouse.dev/tests/external/gitops",
    name: "gitops",
};

const HELM: GoProgram = GoProgram {
    package: "helm.sh/helm/v4/cmd/helm",
    name: "helm",
};

const KUSTOMIZE: GoProgram = GoProgram {
    package: "sigs.k8s.io/kustomize/kustomize/v5",
    name: "kustomize",
};

const PROMTOOL: GoProgram = GoProgram {
    package: "github.com/prometheus/prometheus/cmd/promtool",
    name: "promtool",
};

const COSIGN: GoProgram = GoProgram {
    package: "github.com/sigstore/cosign/v3/cmd/cosign",
    name: "cosign",
};

const ORAS: GoProgram = GoProgram {
    package: "oras.land/oras/cmd/oras",
    name: "oras",
};

const REFERRERS_REGISTRY: GoProgram = GoProgram {
    package: "./registry",
    name: "registry",
};

/// A program that cargo installs from the crate of its name, whose lock file pins its dependencies.
struct CrateProgram {
    name: &'static str,
    version: &'static str,
    /// Names another one.
    variable: &'static str,
    /// Further options of cargo.
    options: &'static [&'static str],
}

/// The wkg whose artifacts are tested.
const WKG: CrateProgram = CrateProgram {
    name: "wkg",
    version: "0.16.1",
    variable: "PILOTHOUSE_WKG",
    options: &["--no-default-features"],
};

/// Builder of plugins without the commands of this repository.
const CARGO_COMPONENT: CrateProgram = CrateProgram {
    name: "cargo-component",
    version: "0.21.1",
    variable: "PILOTHOUSE_CARGO_COMPONENT",
    options: &[],
};

/// Programs, and the variables in which tests find them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Programs {
    environment: Vec<(&'static str, PathBuf)>,
    missing: Vec<(&'static str, String)>,
}

impl Programs {
    /// Returns the variables in which the tests find the programs.
    pub(crate) fn environment(&self) -> &[(&'static str, PathBuf)] {
        &self.environment
    }

    /// The programs that are missing, and why. Only the tests in modules of their names need them.
    pub(crate) fn missing(&self) -> &[(&'static str, String)] {
        &self.missing
    }
}

/// Finds the programs, fetching or building those that are missing, or says why there is none.
pub(crate) fn find() -> Result<Programs> {
    let mut found = Programs::default();
    found.environment.push(docker_registry()?);
    found.environment.extend(go_programs()?);
    let one = |program: Result<_>| program.map(|program| vec![program]);
    for (name, programs) in [
        ("wkg", one(WKG.obtain())),
        ("cargo_component", one(CARGO_COMPONENT.obtain())),
        ("promtool", one(promtool())),
        ("gitops", one(gitops())),
        ("helm", helm()),
        ("kubectl", one(kubectl())),
        ("image", one(image())),
    ] {
        match programs {
            Ok(programs) => found.environment.extend(programs),
            Err(error) => found.missing.push((name, format!("{error:#}"))),
        }
    }
    Ok(found)
}

fn docker_registry() -> Result<(&'static str, PathBuf)> {
    const VARIABLE: &str = "PILOTHOUSE_DOCKER_REGISTRY";
    // A registry with the referrers API would not be the one that the tests are for.
    let fits = |program: &Path| prints(program, &["--version"], " 2.");
    let unpacked = root().join("target/tools/docker-registry");
    let fetched = unpacked.join("usr/bin/docker-registry");
    if let Some(program) = given(VARIABLE)?.or_else(|| on_path("docker-registry", fits)) {
        return Ok((VARIABLE, program));
    }
    if !fits(&fetched) {
        debian::fetch("docker-registry", &["docker-registry"], &unpacked).context(
            "there is no docker-registry 2, and Debian's package can't be fetched; install it, or set \
             PILOTHOUSE_DOCKER_REGISTRY to the program",
        )?;
        ensure!(
            fits(&fetched),
            "Debian's docker-registry does not run here or is not version 2; install docker-registry 2, or set {VARIABLE} to it"
        );
    }
    Ok((VARIABLE, fetched))
}

/// cosign, oras and the registry of go-containerregistry.
pub(crate) fn go_programs() -> Result<Vec<(&'static str, PathBuf)>> {
    let version = |module| {
        let required = required_version(MODULE, module).with_context(|| format!("go.mod does not require {module}"));
        required.map(|version| version.trim_start_matches('v'))
    };
    let cosign = format!("v{}\n", version("github.com/sigstore/cosign/v3")?);
    let oras = format!(" {}\n", version("oras.land/oras")?);
    let wanted = [
        ("PILOTHOUSE_COSIGN", COSIGN, Some(cosign)),
        ("PILOTHOUSE_ORAS", ORAS, Some(oras)),
        // Only this module has the program.
        ("PILOTHOUSE_REFERRERS_REGISTRY", REFERRERS_REGISTRY, None),
    ];
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for (variable, program, version) in wanted {
        let suitable = || {
            let version = version?;
            on_path(program.name, |path| prints(path, &["version"], &version))
        };
        match given(variable)?.or_else(suitable) {
            Some(path) => found.push((variable, path)),
            None => missing.push((variable, program)),
        }
    }
    if missing.is_empty() {
        return Ok(found);
    }
    let module = GoModule {
        name: "external",
        files: MODULE,
        programs: missing.iter().map(|(_, program)| *program).collect(),
        tags: "",
        linker_flags: "-s -w".to_owned(),
        duration: "about six minutes on two cores",
    };
    let variables: Vec<&str> = missing.iter().map(|(variable, _)| *variable).collect();
    let folder = module.obtain().with_context(|| {
        let variables = variables.join(" and ");
        format!("not all of cosign, oras and the registry can be built; to use other programs, set {variables} to them")
    })?;
    found.extend(
        missing
            .iter()
            .map(|(variable, program)| (*variable, folder.join(program.name))),
    );
    Ok(found)
}

fn promtool() -> Result<(&'static str, PathBuf)> {
    let module = GoModule {
        name: "promtool",
        files: PROMTOOL_MODULE,
        programs: vec![PROMTOOL],
        // Without the ways to discover targets in clouds, which are most of its code.
        tags: "remove_all_sd",
        linker_flags: "-s -w".to_owned(),
        duration: "about five minutes on two cores",
    };
    only_program("PILOTHOUSE_PROMTOOL", &module)
}

fn gitops() -> Result<(&'static str, PathBuf)> {
    let module = GoModule {
        name: "gitops",
        files: GITOPS_MODULE,
        programs: vec![GITOPS],
        tags: "",
        linker_flags: "-s -w".to_owned(),
        duration: "about a minute on two cores",
    };
    only_program("PILOTHOUSE_GITOPS", &module)
}

/// The program of the variable, or the only one of a module, which is built.
fn only_program(variable: &'static str, module: &GoModule) -> Result<(&'static str, PathBuf)> {
    if let Some(program) = given(variable)? {
        return Ok((variable, program));
    }
    let name = module.name;
    let folder = module
        .obtain()
        .with_context(|| format!("{name} can't be built; to use another one, set {variable} to it"))?;
    Ok((variable, folder.join(name)))
}

/// helm and kustomize. Both are in one module, so that a test of the chart has both or neither.
fn helm() -> Result<Vec<(&'static str, PathBuf)>> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for (variable, program) in [("PILOTHOUSE_HELM", HELM), ("PILOTHOUSE_KUSTOMIZE", KUSTOMIZE)] {
        match given(variable)? {
            Some(path) => found.push((variable, path)),
            None => missing.push((variable, program)),
        }
    }
    if missing.is_empty() {
        return Ok(found);
    }
    let module = GoModule {
        name: "helm",
        files: HELM_MODULE,
        programs: missing.iter().map(|(_, program)| *program).collect(),
        tags: "",
        linker_flags: "-s -w".to_owned(),
        duration: "about four minutes on two cores",
    };
    let folder = module.obtain().context(
        "helm and kustomize can't be built; to use others, set PILOTHOUSE_HELM and PILOTHOUSE_KUSTOMIZE to them",
    )?;
    found.extend(
        missing
            .iter()
            .map(|(variable, program)| (*variable, folder.join(program.name))),
    );
    Ok(found)
}

fn kubectl() -> Result<(&'static str, PathBuf)> {
    const VARIABLE: &str = "PILOTHOUSE_KUBECTL";
    let program = given(VARIABLE)?.or_else(|| on_path("kubectl", |_| true));
    let program = program.with_context(|| format!("there is no kubectl; install it, or set {VARIABLE} to it"))?;
    Ok((VARIABLE, program))
}

/// The image of the host. Its program takes too long to be built for every test.
fn image() -> Result<(&'static str, PathBuf)> {
    const VARIABLE: &str = "PILOTHOUSE_IMAGE";
    let archive = given(VARIABLE)?.unwrap_or_else(image::archive);
    ensure!(
        archive.is_file(),
        "there is no image of the host; `cargo xtask image` makes it"
    );
    Ok((VARIABLE, archive))
}

impl CrateProgram {
    /// The program of the variable, of the search path in the pinned version, or of the cache, where it is installed.
    fn obtain(&self) -> Result<(&'static str, PathBuf)> {
        let Self {
            name,
            version,
            variable,
            ..
        } = *self;
        let fits = |program: &Path| prints(program, &["--version"], &format!("{name} {version}\n"));
        if let Some(program) = given(variable)?.or_else(|| on_path(name, fits)) {
            return Ok((variable, program));
        }
        let cache = environment::cache()
            .with_context(|| format!("there is no folder for {name}: set HOME or XDG_CACHE_HOME"))?;
        let folder = cache.join("pilothouse/external");
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let installed = folder.join(format!("{name}-{version}"));
        let program = installed.join("bin").join(name);
        // Held while cargo builds: a second chore waits, and finds what the first one has built.
        let lock = folder.join(format!("{name}.lock"));
        let lock = File::create(&lock).with_context(|| format!("make {}", lock.display()))?;
        lock.lock().with_context(|| format!("wait for the lock of {name}"))?;
        if !fits(&program) {
            self.install(&folder, &installed)?;
        }
        Ok((variable, program))
    }

    fn install(&self, folder: &Path, installed: &Path) -> Result<()> {
        let Self {
            name,
            version,
            variable,
            options,
        } = self;
        println!("installing {name} {version} (about five minutes on two cores)");
        let target = tempfile::Builder::new()
            .prefix(&format!("building-{name}-"))
            .tempdir_in(folder)
            .with_context(|| format!("make a folder in {}", folder.display()))?;
        let status = cargo()
            .args(["install", "--locked", "--quiet", name, "--version", version])
            .args(*options)
            .arg("--root")
            .arg(installed)
            .arg("--target-dir")
            .arg(target.path())
            // Its own choice of profile takes longer, and no test is about its speed.
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
            .status()
            .context("run cargo install")?;
        ensure!(
            status.success(),
            "{name} {version} can't be installed (cargo ended with {status}); install it, or set {variable} to the program"
        );
        Ok(())
    }
}

/// The program that a variable names.
fn given(variable: &str) -> Result<Option<PathBuf>> {
    match environment::path(variable) {
        Some(path) if !path.is_file() => bail!(
            "{variable} names {}, which is no file: correct it, or unset it to have the program found",
            path.display()
        ),
        // The tests run in folders of their own.
        Some(path) => Ok(Some(
            env::current_dir().context("find the working directory")?.join(path),
        )),
        None => Ok(None),
    }
}

fn on_path(name: &str, fits: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    environment::program(name).filter(|program| fits(program))
}

/// Returns `true` if a program runs and prints this.
fn prints(program: &Path, arguments: &[&str], text: &str) -> bool {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    output.is_ok_and(|output| {
        let printed = [output.stdout, output.stderr].concat();
        output.status.success() && String::from_utf8_lossy(&printed).contains(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_pins_every_program() {
        for module in [
            "github.com/sigstore/cosign/v3",
            "oras.land/oras",
            "github.com/google/go-containerregistry",
        ] {
            assert!(required_version(MODULE, module).is_some(), "{module}");
        }
    }

    #[test]
    fn a_program_fits_only_if_it_runs_and_prints_the_version() {
        let shell = Path::new("/bin/sh");
        assert!(prints(shell, &["-c", "echo GitVersion: v3.1.3 >&2"], "v3.1.3\n"));
        assert!(!prints(shell, &["-c", "echo v3.1.30"], "v3.1.3\n"));
        assert!(!prints(shell, &["-c", "echo v3.1.3; exit 1"], "v3.1.3\n"));
        assert!(!prints(Path::new("/nowhere"), &[], ""));
    }
}
