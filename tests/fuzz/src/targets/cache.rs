//! Target `cache`: a directory of compiled plugins in which files were cut, changed, exchanged or replaced. The plugin
//! loads all the same, compiled again where necessary, and from no other bytes.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use arbitrary::{Arbitrary as _, Unstructured};
use pilothouse_core::Limits;
use pilothouse_sandbox::{Compiler, PluginComponent, Sandbox, SandboxOptions};
use tempfile::TempDir;

use crate::plugin::smallest;
use crate::refused;

const NAME: &str = "cached.wasm";

/// The most changes of one input.
const MOST_CHANGES: u8 = 4;

struct Stage {
    sandbox: Sandbox,
    directory: TempDir,
    component: Vec<u8>,
    /// The files as the sandbox has made them.
    files: Vec<(PathBuf, Vec<u8>)>,
    /// Answer of a plugin whose files are intact.
    answer: Result<String, String>,
}

static STAGE: LazyLock<Stage> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let options = SandboxOptions::new(directory.path(), Compiler::InProcess);
    let sandbox = Sandbox::new(options).expect("a sandbox can be made");
    let component = smallest();
    let plugin = sandbox
        .load_bytes(NAME, &component)
        .expect("the smallest plugin is one");
    let mut files: Vec<_> = paths(directory.path())
        .map(|path| {
            let bytes = fs::read(&path).expect("it can be read");
            (path, bytes)
        })
        .collect();
    files.sort();
    assert_eq!(files.len(), 3, "component, code and index");
    Stage {
        sandbox,
        directory,
        component,
        files,
        answer: answer(&plugin),
    }
});

fn paths(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(directory).expect("it can be read");
    entries.map(|entry| entry.expect("it can be read").path())
}

pub(super) fn run(data: &[u8]) {
    let stage = &*STAGE;
    stage.restore();
    let _ = stage.spoil(&mut Unstructured::new(data));
    match stage.sandbox.load_bytes(NAME, &stage.component) {
        // Whatever was there, it does what the component says: nothing but trap.
        Ok(plugin) => assert_eq!(answer(&plugin), stage.answer),
        Err(error) => refused(&error, NAME),
    }
}

/// Returns the plugin's description of itself, or the error.
fn answer(plugin: &PluginComponent) -> Result<String, String> {
    let limits = Limits {
        // The machine may be busy, and what is asked for is the same answer each time.
        call_milliseconds: 10_000,
        ..Limits::default()
    };
    plugin.describe(None, &limits).map_err(|failure| failure.to_string())
}

impl Stage {
    fn restore(&self) {
        for path in paths(self.directory.path()) {
            if fs::remove_file(&path).is_err() {
                fs::remove_dir_all(&path).expect("it can be removed");
            }
        }
        for (path, bytes) in &self.files {
            fs::write(path, bytes).expect("it can be written");
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("it is ours");
        }
    }

    fn spoil(&self, input: &mut Unstructured<'_>) -> arbitrary::Result<()> {
        for _ in 0..input.int_in_range(1..=MOST_CHANGES)? {
            let (path, bytes) = input.choose(&self.files)?;
            let mut bytes = bytes.clone();
            match u8::arbitrary(input)? % 8 {
                0 => bytes.truncate(input.choose_index(bytes.len())?),
                1 => {
                    let at = input.choose_index(bytes.len())?;
                    bytes[at] ^= u8::arbitrary(input)?.max(1);
                }
                2 => bytes.extend_from_slice(<&[u8]>::arbitrary(input)?),
                3 => bytes = <&[u8]>::arbitrary(input)?.to_vec(),
                4 => bytes.clone_from(&input.choose(&self.files)?.1),
                other => {
                    // Something else stands in its place; what cannot be put there is left as it was.
                    let _ = fs::remove_file(path);
                    let _ = match other {
                        5 => fs::create_dir(path),
                        6 => symlink(input.choose(&["/dev/zero", "/nowhere", "."])?, path),
                        _ => Ok(()),
                    };
                    continue;
                }
            }
            let _ = fs::write(path, bytes);
        }
        Ok(())
    }
}
