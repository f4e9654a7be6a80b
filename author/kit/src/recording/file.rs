//! Reads a recording from a file, with an error for each way in which it can be invalid.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pilothouse_core::plugin::contract::VERSIONS;
use pilothouse_core::plugin::wasi::Wasi;
use pilothouse_core::recording::{FORMAT, Header, Line, RecordedCall, Trailer};
use pilothouse_sandbox::{Compiler, LoadError, PluginComponent, Sandbox, SandboxOptions};
use serde_json::Value;
use thiserror::Error;

use crate::documents::STANDARD_INPUT;
use crate::environment;

/// The longest beginning of a line that a message shows.
const SHOWN: usize = 60;

/// The calls of a plugin as a host has recorded them.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Common data of the calls.
    pub header: Header,
    /// The calls, in their order.
    pub calls: Vec<RecordedCall>,
    /// Data that the recording leaves out.
    pub trailer: Trailer,
}

/// Errors of a recording that cannot be replayed.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// The file cannot be read.
    #[error("cannot read the recording {}: {source}; give the file that `pilothouse record -o FILE` has written", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Empty file.
    #[error("the recording {0} is empty; record again with `pilothouse record`")]
    Empty(String),
    /// File that is no recording.
    #[error(
        "{name} is no recording: its first line is {beginning:?} instead of {{\"recording\": ...}}; give the file that \
         `pilothouse record -o FILE` has written"
    )]
    NoRecording {
        /// The file.
        name: String,
        /// Beginning of the file.
        beginning: String,
    },
    /// Recording in another version of the format.
    #[error(
        "the recording {name} has the format {format:?}, and this version of pilothouse reads {FORMAT}; replay it with the \
         version of pilothouse that has recorded it, or record again"
    )]
    Format {
        /// The file.
        name: String,
        /// Format of the recording.
        format: String,
    },
    /// Recording of another version of the contract.
    #[error(
        "the recording {name} is of version {contract} of the contract pilothouse:plugin, and this version of pilothouse runs \
         {}; replay it with the version of pilothouse that has recorded it, or record again", VERSIONS.join(", ")
    )]
    Contract {
        /// The file.
        name: String,
        /// Contract version of the recording.
        contract: String,
    },
    /// A line cannot be read.
    #[error(
        "line {line} of the recording {name} cannot be read: {problem}; a recording is not edited by hand: record again"
    )]
    Line {
        /// The file.
        name: String,
        /// Line number, from 1.
        line: usize,
        /// The cause.
        problem: String,
    },
    /// The last line is missing, or counts other calls.
    #[error(
        "the recording {name} is not whole: {problem}; it was cut off when it was written or copied. Copy it again, or record \
         again"
    )]
    Truncated {
        /// The file.
        name: String,
        /// Missing part.
        problem: String,
    },
    /// The place for compiled plugins.
    #[error("{0}")]
    Sandbox(String),
    /// The component cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl Recording {
    /// Reads a file, or standard input where it is called `-`.
    pub fn read(file: impl AsRef<Path>) -> Result<Self, RecordingError> {
        let file = file.as_ref();
        let is_input = file == Path::new(STANDARD_INPUT);
        let text = if is_input {
            io::read_to_string(io::stdin())
        } else {
            fs::read_to_string(file)
        };
        let text = text.map_err(|source| RecordingError::Read {
            file: file.to_owned(),
            source,
        })?;
        let name = if is_input {
            "of standard input".to_owned()
        } else {
            file.display().to_string()
        };
        Self::parse(&name, &text)
    }

    /// Parses a recording; messages call it `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self, RecordingError> {
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        let Some((_, first)) = lines.next() else {
            return Err(RecordingError::Empty(name.to_owned()));
        };
        let header = header(name, first)?;
        let (mut calls, mut trailer) = (Vec::new(), None);
        let count = text.lines().count();
        for (index, line) in lines {
            let at = |problem: String| RecordingError::Line {
                name: name.to_owned(),
                line: index + 1,
                problem,
            };
            if trailer.is_some() {
                return Err(at("it comes after the end".to_owned()));
            }
            match serde_json::from_str(line) {
                Ok(Line::Call(call)) => calls.push(*call),
                Ok(Line::End(end)) => trailer = Some(end),
                Ok(Line::Recording(_)) => return Err(at("it begins another recording".to_owned())),
                // What was cut off is not what was edited.
                Err(error) if error.is_eof() && index + 1 == count => {
                    return Err(RecordingError::Truncated {
                        name: name.to_owned(),
                        problem: format!("line {} ends in the middle", index + 1),
                    });
                }
                Err(error) => return Err(at(error.to_string())),
            }
        }
        let truncated = |problem: String| RecordingError::Truncated {
            name: name.to_owned(),
            problem,
        };
        let trailer = trailer.ok_or_else(|| truncated("its last line, {\"end\": ...}, is missing".to_owned()))?;
        if trailer.calls != calls.len() as u64 {
            return Err(truncated(format!(
                "it should have {} calls and has {}",
                trailer.calls,
                calls.len()
            )));
        }
        Ok(Self { header, calls, trailer })
    }

    /// Loads a component to replay the calls with; whether it is the recorded one is not asked.
    pub fn load(&self, component: impl AsRef<Path>) -> Result<PluginComponent, RecordingError> {
        self.load_granting(component, Wasi::None)
    }

    /// Loads a component that imports interfaces of WASI.
    pub fn load_granting(&self, component: impl AsRef<Path>, wasi: Wasi) -> Result<PluginComponent, RecordingError> {
        let sandbox = |problem: String| RecordingError::Sandbox(problem);
        let cache = environment::cache()
            .ok_or_else(|| sandbox("set HOME or XDG_CACHE_HOME, for the compiled plugins".to_owned()))?;
        let folder = cache.join("pilothouse").join("testkit").join("compiled");
        fs::create_dir_all(&folder).map_err(|error| sandbox(format!("cannot make {}: {error}", folder.display())))?;
        let options = SandboxOptions::new(folder, Compiler::InProcess);
        let made = Sandbox::new(options).map_err(|error| sandbox(error.to_string()))?;
        Ok(made.granting(wasi).load(component.as_ref())?)
    }

    /// Returns `true` if a component is the one whose calls were recorded.
    pub fn is_of(&self, plugin: &PluginComponent) -> bool {
        self.header.digest == format!("sha256:{}", plugin.digest())
    }
}

/// The format and the contract are looked at first: the rest is understood only if these are.
fn header(name: &str, line: &str) -> Result<Header, RecordingError> {
    let none = || RecordingError::NoRecording {
        name: name.to_owned(),
        beginning: line.chars().take(SHOWN).collect(),
    };
    let said: Value = match serde_json::from_str(line) {
        Ok(said) => said,
        Err(error) if error.is_eof() && line.starts_with("{\"recording\":") => {
            return Err(RecordingError::Truncated {
                name: name.to_owned(),
                problem: "its first line ends in the middle".to_owned(),
            });
        }
        Err(_) => return Err(none()),
    };
    let said = &said["recording"];
    let text = |member: &str| said[member].as_str().map(str::to_owned);
    let format = text("format").ok_or_else(none)?;
    if format != FORMAT {
        let name = name.to_owned();
        return Err(RecordingError::Format { name, format });
    }
    let contract = text("contract").unwrap_or_default();
    if !VERSIONS.contains(&contract.as_str()) {
        let name = name.to_owned();
        return Err(RecordingError::Contract { name, contract });
    }
    match serde_json::from_str(line) {
        Ok(Line::Recording(header)) => Ok(*header),
        Ok(_) => Err(none()),
        Err(error) => Err(RecordingError::Line {
            name: name.to_owned(),
            line: 1,
            problem: error.to_string(),
        }),
    }
}
