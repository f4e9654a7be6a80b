//! What a plugin costs that has nothing to do: distinct components, of which no two share a file or a page, in the released
//! host on a real API server.

use std::path::{Path, PathBuf};
use std::time::Instant;

use pilothouse_end_to_end::{components, variants};
use pilothouse_sandbox::{Compiler, Sandbox, SandboxOptions};
use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::controlplane::Options;
use pilothouse_testkit::host::SteeredHost as _;

use crate::figures::{heading, line, mebibytes, number};
use crate::steered::{self, NEVER, asked, memory, process, program, settled, until};
use crate::{Outcome, Size};

/// The plugin that they all are: it brings no kind of its own, and no Service asks for it.
const PLUGIN: &str = "service-ingress";

/// What all of them are to fit into, in MiB.
const ALL: f64 = 256.0;

/// Measures and prints.
pub async fn measure(size: &Size) -> Outcome<()> {
    let Size { plugins, .. } = *size;
    let folder = tempfile::tempdir()?;
    let files = distinct(plugins + 1, folder.path())?;
    heading(&format!("{plugins} distinct plugins with nothing to do"));
    // Beside the host, because only the sandbox can be told when to let a plugin sleep.
    let (awake, asleep) = in_a_sandbox(&files)?;
    line(
        "in a sandbox: KiB for each plugin, awake",
        &format!("{awake:.1}"),
        "aim 64",
    );
    line(
        "in a sandbox: KiB for each plugin, asleep",
        &format!("{asleep:.1}"),
        "aim 4",
    );
    let cluster = Cluster::real_with(Options::default()).await?;
    let (one, _) = in_the_host(&cluster, &files[..1]).await?;
    let (all, seconds) = in_the_host(&cluster, &files).await?;
    let each = (all - one) / number(plugins);
    line(
        "in the host: KiB for each plugin, lanes included",
        &format!("{each:.1}"),
        "aim 64",
    );
    let all = format!("{:.1}", mebibytes(all));
    line("in the host: PSS of all, MiB", &all, &format!("1000 within {ALL}"));
    line("in the host: s until all are open", &format!("{seconds:.1}"), "");
    Ok(())
}

/// So many files.
fn distinct(number: usize, folder: &Path) -> Outcome<Vec<PathBuf>> {
    let component = std::fs::read(components::folder().join(format!("{PLUGIN}.wasm")))?;
    (0..number)
        .map(|number| {
            let path = folder.join(format!("plugin-{number}.wasm"));
            std::fs::write(&path, variants::marked(&component, &format!("number {number}")))?;
            Ok(path)
        })
        .collect()
}

/// Memory for each of the files but the first, in KiB, while they are mapped and while they sleep.
fn in_a_sandbox(files: &[PathBuf]) -> Outcome<(f64, f64)> {
    let compiler = Compiler::Child {
        program: program("pilothouse"),
    };
    let cache = components::root().join("target").join("bench-code");
    let sandbox = Sandbox::new(SandboxOptions::new(cache, compiler))?;
    let load = |file: &PathBuf| sandbox.load(file);
    // Once before, so that compiling is over when it counts.
    let compiled = files.iter().map(load).collect::<Result<Vec<_>, _>>()?;
    drop(compiled);
    let first = load(&files[0])?;
    let before = memory(std::process::id())?;
    let others = files[1..].iter().map(load).collect::<Result<Vec<_>, _>>()?;
    let awake = memory(std::process::id())? - before;
    others.iter().for_each(pilothouse_sandbox::Plugin::sleep);
    let asleep = memory(std::process::id())? - before;
    drop(first);
    let count = number(others.len());
    Ok((awake / count, asleep / count))
}

/// The host's PSS in KiB with these plugins, and how long it took until all were open.
async fn in_the_host(cluster: &Cluster, files: &[PathBuf]) -> Outcome<(f64, f64)> {
    let arguments = files.iter().enumerate().flat_map(|(number, file)| {
        let plugin = format!("plugin-{number}={}", file.display());
        ["--plugin".to_owned(), plugin]
    });
    let mut host = steered::host(NEVER).with_arguments(arguments);
    let (mark, begun) = (cluster.mark()?, Instant::now());
    host.start(cluster, &[]).await?;
    // Each plugin reads its events back when it comes up.
    until("all plugins to come up", &mut host, async || {
        let events = asked(cluster, mark)?;
        Ok(events.iter().filter(|request| request.resource == "events").count() >= files.len())
    })
    .await?;
    let seconds = begun.elapsed().as_secs_f64();
    settled(cluster, &mut host).await?;
    let used = memory(process(&host)?)?;
    host.stop().await?;
    Ok((used, seconds))
}
