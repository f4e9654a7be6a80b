//! Owns the files of the builders: writes them, or says which is stale.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};

use super::crd_schemas::PUBLISHED;
use super::schema::Schemas;
use super::{EXTRACT, GROUPS, crd_schemas, emit};
use crate::root;

/// Where the generated files are.
const FOLDER: &str = "plugins/sdk/src/k8s/generated";

/// The file with the schemas, beside the code.
const SCHEMAS: &str = "schemas.json";

/// Writes the generated files, or compares them with what `openapi.json` and the published schemas give.
pub fn run(check: bool) -> Result<()> {
    let extract = fs::read_to_string(EXTRACT).context("reading openapi.json")?;
    let schemas: Schemas = serde_json::from_str(&extract).context("reading openapi.json")?;
    let published = fs::read_to_string(root().join(PUBLISHED)).with_context(|| format!("reading {PUBLISHED}"))?;
    let published = serde_json::from_str(&published).with_context(|| format!("reading {PUBLISHED}"))?;
    let folder = root().join(FOLDER);
    for group in &GROUPS {
        let code = formatted(&emit::file(group, &schemas))?;
        keep(&folder.join(group.file()), &code, check)?;
    }
    keep(&folder.join(SCHEMAS), &crd_schemas::file(&schemas, &published)?, check)
}

fn keep(path: &Path, generated: &str, check: bool) -> Result<()> {
    if check {
        let kept = fs::read_to_string(path).unwrap_or_default();
        ensure!(
            kept == generated,
            "{} is stale: run `cargo xtask generate`",
            path.display()
        );
        return Ok(());
    }
    let folder = path.parent().expect("it is in a folder");
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    fs::write(path, generated).with_context(|| format!("writing {}", path.display()))
}

/// The code as the project's rustfmt.toml has it.
fn formatted(code: &str) -> Result<String> {
    let mut rustfmt = Command::new(env::var_os("RUSTFMT").unwrap_or_else(|| "rustfmt".into()))
        .args(["--edition", "2024", "--config-path"])
        .arg(Path::new(&root()).join("rustfmt.toml"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting rustfmt, a component of the toolchain")?;
    let mut input = rustfmt.stdin.take().expect("it is piped");
    // rustfmt reads everything before it writes.
    input.write_all(code.as_bytes()).context("writing to rustfmt")?;
    drop(input);
    let output = rustfmt.wait_with_output().context("waiting for rustfmt")?;
    ensure!(output.status.success(), "rustfmt cannot read the generated code");
    String::from_utf8(output.stdout).context("reading from rustfmt")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_builders_are_those_of_the_openapi_documents() {
        super::run(true).unwrap();
    }
}
