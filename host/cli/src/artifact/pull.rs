//! `pilothouse pull`: downloads a component from a registry or an OCI layout to a file.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use pilothouse_artifact::{Location, annotation};

use super::fetch::{Found, find};
use super::{RegistryArguments, Session, bytes, wait_for};

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse pull ghcr.io/acme/app-service:0.1.0
  pilothouse pull ghcr.io/acme/app-service:0.1.0 -o app-service.wasm
  pilothouse pull oci-archive:plugins.tar:0.1.0 -o app-service.wasm

The file has the digest that the artifact names. Whether anybody signed the artifact is not looked at; `pilothouse verify`
does that, with the reference that this command prints.

Exit code: 0 the file is there, 1 it is not, 2 the command line is wrong.";

/// `pilothouse pull`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct PullCommand {
    /// The artifact: HOST/REPOSITORY:TAG, HOST/REPOSITORY@DIGEST, or the same in oci-layout:DIRECTORY or
    /// oci-archive:FILE.tar
    #[arg(value_name = "REF")]
    from: Location,

    /// The file to write (default: the name that the artifact gives the component, in the current directory, unless there
    /// is such a file)
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    registries: RegistryArguments,
}

impl PullCommand {
    /// Pulls, and prints the reference with the digest.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self {
            from,
            output,
            registries,
        } = self;
        let session = registries.session()?;
        wait_for(pull(&session, &from, output))
    }
}

async fn pull(session: &Session, from: &Location, output: Option<PathBuf>) -> anyhow::Result<()> {
    let found = find(session, from).await?;
    let file = match output {
        Some(file) => file,
        None => unused_name(&found)?,
    };
    let directory = match file.parent() {
        Some(directory) if directory != Path::new("") => directory,
        _ => Path::new("."),
    };
    let failed = || format!("cannot write {}", file.display());
    let temporary = tempfile::Builder::new()
        .prefix(".pilothouse-")
        // Permissions of an ordinary file of the user; tempfile's own default is for secrets.
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .tempfile_in(directory)
        .with_context(failed)?;
    let mut sink = tokio::fs::File::from_std(temporary.reopen().with_context(failed)?);
    let component = &found.manifest.component;
    {
        let progress = session.progress("pulling");
        found.store.blob(component, &mut sink, &progress).await?;
    }
    sink.sync_all().await.with_context(failed)?;
    temporary
        .persist(&file)
        .map_err(|error| error.error)
        .with_context(failed)?;
    println!("{}", found.pinned);
    session.say(format_args!("pulled {} to {}", bytes(component.size), file.display()));
    Ok(())
}

/// Returns the file name of the artifact, which its author chose: a plain name, of a file that does not exist yet.
fn unused_name(found: &Found) -> anyhow::Result<PathBuf> {
    let titles = [&found.manifest.component.annotations, &found.manifest.annotations];
    let title = titles.into_iter().find_map(|it| it.get(annotation::TITLE));
    let repository = match &found.pinned {
        Location::Registry(reference) => reference.repository().rsplit('/').next(),
        Location::Layout(_) => None,
    };
    let name = title
        .and_then(|title| file_name(title))
        .or_else(|| repository.and_then(file_name))
        .unwrap_or_else(|| "plugin.wasm".to_owned());
    if Path::new(&name).symlink_metadata().is_ok() {
        bail!("{name} exists already; name the file to write with --output");
    }
    Ok(name.into())
}

/// Returns a harmless file name: the last part of a path, with the ending `.wasm`.
fn file_name(title: &str) -> Option<String> {
    let name = title.rsplit('/').next().unwrap_or(title);
    let stem = name.strip_suffix(".wasm").unwrap_or(name);
    let is_plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    let is_harmless =
        !stem.is_empty() && stem.len() <= 128 && stem.chars().all(is_plain) && !stem.starts_with(['.', '-']);
    is_harmless.then(|| format!("{stem}.wasm"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_an_artifact_gives_its_component_is_a_plain_one() {
        assert_eq!(file_name("app-service"), Some("app-service.wasm".to_owned()));
        assert_eq!(file_name("../../bin/sh"), Some("sh.wasm".to_owned()));
        assert_eq!(file_name("build/plugin.wasm"), Some("plugin.wasm".to_owned()));
        for refused in ["", ".wasm", ".profile", "-rf", "a b", "a\nb", "../", &"a".repeat(200)] {
            assert_eq!(file_name(refused), None, "{refused}");
        }
    }
}
