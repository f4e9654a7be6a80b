//! `pilothouse replay`: repeats the calls of a recording offline and prints the differences. Reading, repeating and
//! comparing are done by the test kit.

use std::path::PathBuf;

use anyhow::{bail, ensure};
use clap::{Args, ValueEnum};
use pilothouse_testkit::recording::Recording;
use serde_json::json;

use crate::plugin::WasiArguments;
use crate::verdict::NotAsExpected;

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse replay web.recording.jsonl
  pilothouse replay web.recording.jsonl --component target/plugins/app-service.wasm
  pilothouse replay web.recording.jsonl --component new.wasm -o json
  pilothouse replay - --component new.wasm < web.recording.jsonl

Without --component, the component is read from where the host has read it, and has to be the recorded one. A read that the
recording does not have is answered as if nothing were there, and named. Differences that masked values of Secrets explain are
shown and do not count.

Exit code: 0 if nothing differs, 1 if the recording or the component cannot be read, 2 if the command line is wrong, 3 if an
answer differs.";

/// `pilothouse replay`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ReplayCommand {
    /// The recording, as `pilothouse record` has written it; - for standard input
    #[arg(value_name = "FILE|-")]
    recording: PathBuf,

    /// The component to replay the calls with, which may be another version
    #[arg(long, value_name = "FILE.wasm")]
    component: Option<PathBuf>,

    #[command(flatten)]
    wasi: WasiArguments,

    /// The form of the output
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    output: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Diffs for people.
    Text,
    /// One document, as the page "Record and replay" of the documentation describes it.
    Json,
}

impl ReplayCommand {
    /// Replays.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self {
            recording: file,
            component,
            wasi,
            output,
        } = self;
        let recording = Recording::read(&file)?;
        let header = &recording.header;
        let (file, digest) = (file.display(), &header.digest);
        let is_given = component.is_some();
        let path = component.unwrap_or_else(|| PathBuf::from(&header.component));
        if !is_given && !path.is_file() {
            bail!(
                "the recording {file} is of plugin {} {} with the digest {digest}, which the host has read from {}, and there is \
                 no such file here; give the component with --component",
                header.plugin,
                header.version,
                header.component
            );
        }
        let plugin = recording.load_granting(&path, wasi.or(None))?;
        let is_same_component = recording.is_of(&plugin);
        ensure!(
            is_given || is_same_component,
            "the recording {file} is of the component {digest}, and {} is now sha256:{}; to compare it with the recording, give it \
             with --component",
            path.display(),
            plugin.digest()
        );
        let report = recording.replay(&plugin);
        match output {
            Format::Text => print!("{report}"),
            Format::Json => {
                let document = json!({
                    "recording": {"plugin": header.plugin, "version": header.version, "digest": header.digest},
                    "component": {"file": path, "digest": format!("sha256:{}", plugin.digest()), "same": is_same_component},
                    "different": report.different(),
                    "report": report,
                });
                println!("{}", serde_json::to_string_pretty(&document)?);
            }
        }
        if report.is_same() {
            return Ok(());
        }
        let verdict = match report.different() {
            0 => "the recording cannot be replayed with this component".to_owned(),
            1 => "1 call differs from the recording".to_owned(),
            calls => format!("{calls} calls differ from the recording"),
        };
        Err(NotAsExpected(verdict).into())
    }
}
