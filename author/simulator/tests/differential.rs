//! Plays the same requests against the simulated and a real API server and compares the answers: where they differ, the
//! simulated one is wrong.
//!
//! The requests are in `differential/*.yaml`. With `PILOTHOUSE_REAL_URL` and `PILOTHOUSE_REAL_TOKEN` set they are played against
//! that server too; otherwise the simulated server is compared with what a real one answered when the golden files were
//! written. `UPDATE_GOLDEN=1` writes them anew from the real server, which must then be an API server alone: scripts that say
//! `bare` are about objects that controllers change.

#![forbid(unsafe_code)]

mod harness;
mod ownership;

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use harness::{Real, Script, Simulated, play};
use serde_json::Value;

#[test]
fn the_simulated_server_answers_like_a_real_one() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential");
    let mut paths: Vec<_> = std::fs::read_dir(&folder)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    ensure!(!paths.is_empty(), "no scripts in {}", folder.display());
    let only = std::env::var("ONLY").unwrap_or_default();
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let real = Real::from_environment();
    ensure!(
        !update || real.is_some(),
        "golden files are written from a real server: set PILOTHOUSE_REAL_URL"
    );
    let controllers = real.as_ref().map(Real::has_controllers).transpose()?.unwrap_or(false);
    ensure!(
        !update || !controllers,
        "golden files are written from an API server without controllers"
    );
    let (mut differences, mut steps) = (Vec::new(), 0);
    for path in paths {
        let name = path
            .file_stem()
            .and_then(|name| name.to_str())
            .context("a script's name is text")?
            .to_owned();
        if !name.contains(&only) {
            continue;
        }
        let script = Script::read(&path)?;
        let golden = folder.join("golden").join(format!("{name}.json"));
        let playable = real.as_ref().filter(|_| !script.bare || !controllers);
        let expected: Vec<Value> = if let Some(real) = playable {
            let answers = play(&script, real)?;
            if update {
                std::fs::write(&golden, format!("{:#}\n", Value::from(answers.clone())))?;
            }
            answers
        } else {
            let text = std::fs::read_to_string(&golden).with_context(|| format!("read {}", golden.display()))?;
            serde_json::from_str(&text)?
        };
        let actual = play(&script, &Simulated::new()?)?;
        ensure!(
            expected.len() == actual.len(),
            "{name}: the golden file has other steps; write it anew with UPDATE_GOLDEN=1"
        );
        steps += actual.len();
        for (expected, actual) in expected.iter().zip(&actual) {
            if let Some(difference) = harness::difference(expected, actual) {
                differences.push(format!("{name}: {}\n{difference}", actual["step"]));
            }
        }
    }
    ensure!(
        differences.is_empty(),
        "{} of {steps} steps differ (- real, + simulated):\n{}",
        differences.len(),
        differences.join("\n")
    );
    Ok(())
}
