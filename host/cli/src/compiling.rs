//! Loads a component in an interactive command: compiling a large one takes so long that a silent command looks stuck.
//! Leaves compiling itself to the sandbox.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use indicatif::BinaryBytes;
use pilothouse_sandbox::{LoadError, PluginComponent, Sandbox};

use crate::plugins::meant_instead;

/// Time of compiling after which a line is printed.
const SILENT_FOR: Duration = Duration::from_secs(1);

/// Loads a component from a file. If compiling it takes a moment, a line on standard error says so.
pub fn load(sandbox: &Sandbox, file: &Path) -> anyhow::Result<PluginComponent> {
    if let Some(hint) = meant_instead(file) {
        anyhow::bail!("cannot read the component {}: {hint}", file.display());
    }
    if let Some(known) = sandbox.load_known(file, None)? {
        return Ok(known);
    }
    let component = sandbox.read(file, None)?;
    let bytes = file.metadata().map_or(0, |metadata| metadata.len());
    Ok(announced(file, bytes, || sandbox.load_read(&component))?)
}

/// Loads a component from memory, in the same way. Messages call it by `name`.
pub fn load_bytes(sandbox: &Sandbox, name: &str, component: &[u8]) -> Result<PluginComponent, LoadError> {
    let load = || sandbox.load_bytes(name, component);
    announced(Path::new(name), component.len() as u64, load)
}

/// Returns the message about a component of so many bytes that is being compiled.
pub fn notice(component: &Path, bytes: u64) -> String {
    let name = component.file_name().unwrap_or(component.as_os_str());
    format!(
        "compiling {} ({}); this is done once",
        name.to_string_lossy(),
        BinaryBytes(bytes)
    )
}

fn announced<T>(component: &Path, bytes: u64, compile: impl FnOnce() -> T) -> T {
    let say = || eprintln!("{}", notice(component, bytes));
    with_notice(SILENT_FOR, say, compile)
}

/// Does some work, and calls `say` if it is not done after a while.
fn with_notice<T>(after: Duration, say: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
    let (working, worked) = mpsc::channel::<()>();
    thread::scope(move |scope| {
        scope.spawn(move || {
            if worked.recv_timeout(after) == Err(RecvTimeoutError::Timeout) {
                say();
            }
        });
        let result = work();
        drop(working);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_takes_long_is_announced_while_it_is_done() {
        let (say, said) = mpsc::channel();
        let work = || said.recv_timeout(Duration::from_mins(1)).is_ok();
        let was_heard = with_notice(Duration::ZERO, || say.send(()).unwrap(), work);
        assert!(was_heard, "it was said before the work was done");
    }

    #[test]
    fn work_that_is_soon_done_is_not_announced() {
        let result = with_notice(Duration::from_hours(1), || panic!("it says something"), || 7);
        assert_eq!(result, 7);
    }

    #[test]
    fn a_notice_has_the_name_and_the_size() {
        let said = notice(Path::new("/build/target/plugins/site.wasm"), 18_438_172);
        assert_eq!(said, "compiling site.wasm (17.58 MiB); this is done once");
    }
}
