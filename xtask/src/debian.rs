//! Fetches programs from Debian packages and unpacks them into a folder, which needs no root.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Downloads the packages as apt is set up to, with new lists where it has none or old ones, and unpacks them.
pub(crate) fn fetch(name: &str, packages: &[&str], folder: &Path) -> Result<()> {
    fetch_by(name, folder, |options| download(folder, packages, options))
}

/// The same with all that the packages need and the machine does not have.
pub(crate) fn fetch_with_dependencies(name: &str, packages: &[&str], folder: &Path) -> Result<()> {
    fetch_by(name, folder, |options| {
        let missing = missing(folder, packages, options)?;
        download(folder, &missing.iter().map(String::as_str).collect::<Vec<_>>(), options)
    })
}

fn fetch_by(name: &str, folder: &Path, download: impl Fn(&[String]) -> Result<()>) -> Result<()> {
    println!("fetching Debian's {name} to {}", folder.display());
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    if let Err(error) = download(&[]) {
        println!("{error}: trying again with new lists of packages");
        let lists = folder.join("lists");
        fs::create_dir_all(lists.join("partial")).with_context(|| format!("make {}", lists.display()))?;
        // Lists of our own need no root, and no caches that the machine's apt would find.
        let options = [
            format!("Dir::State::Lists={}", lists.display()),
            "Dir::Cache::pkgcache=".to_owned(),
            "Dir::Cache::srcpkgcache=".to_owned(),
        ];
        call(apt_get(folder, &options).arg("update"))?;
        download(&options)?;
    }
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let package = entry.with_context(|| format!("read {}", folder.display()))?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            call(Command::new("dpkg").arg("-x").arg(&package).arg(folder))?;
            fs::remove_file(&package).with_context(|| format!("remove {}", package.display()))?;
        }
    }
    Ok(())
}

fn download(folder: &Path, packages: &[&str], options: &[String]) -> Result<()> {
    call(apt_get(folder, options).arg("download").args(packages))
}

/// Returns the packages that apt would install, by a simulation, which needs no root.
fn missing(folder: &Path, packages: &[&str], options: &[String]) -> Result<Vec<String>> {
    let output = apt_get(folder, options)
        .args(["--simulate", "--no-install-recommends", "install"])
        .args(packages)
        .output()
        .context("run apt-get")?;
    ensure!(
        output.status.success(),
        "apt-get ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(installed(&String::from_utf8_lossy(&output.stdout)))
}

/// Returns the packages in the lines of the simulation: `Inst NAME (VERSION ...)`.
fn installed(trial: &str) -> Vec<String> {
    let names = trial.lines().filter_map(|line| line.strip_prefix("Inst "));
    names
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect()
}

fn apt_get(folder: &Path, options: &[String]) -> Command {
    let mut command = Command::new("apt-get");
    command.current_dir(folder);
    // Whoever runs this may write to the folder; the user that apt would become may not.
    for option in ["APT::Sandbox::User=root"]
        .into_iter()
        .chain(options.iter().map(String::as_str))
    {
        command.args(["-o", option]);
    }
    command
}

fn call(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("run {program}"))?;
    ensure!(status.success(), "{program} ended with {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_of_apt_names_what_it_would_install() {
        let trial = "NOTE: This is only a simulation!\nReading package lists...\nInst cpp-12 (12.2.0 Debian [amd64])\n\
                     Inst gcc [1.0] (1.1 Debian [amd64])\nConf cpp-12 (12.2.0 Debian [amd64])\n";
        assert_eq!(installed(trial), ["cpp-12", "gcc"]);
    }
}
