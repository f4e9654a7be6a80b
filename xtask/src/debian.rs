//! Owns fetching programs that Debian packages: unpacked into a folder, for which nobody has to be root. Leaves what is done
//! with them to those who ask.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Downloads the packages as apt is set up to, with new lists where it has none or old ones, and unpacks them.
pub(crate) fn fetch(name: &str, packages: &[&str], folder: &Path) -> Result<()> {
    println!("fetching Debian's {name} to {}", folder.display());
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    if let Err(error) = download(folder, packages, &[]) {
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
        download(folder, packages, &options)?;
    }
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let package = entry.with_context(|| format!("read {}", folder.display()))?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            call(Command::new("dpkg").arg("-x").arg(&package).arg(folder))?;
        }
    }
    Ok(())
}

fn download(folder: &Path, packages: &[&str], options: &[String]) -> Result<()> {
    call(apt_get(folder, options).arg("download").args(packages))
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
