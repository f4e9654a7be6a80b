//! `pilothouse push` of a component, next to a plain HTTP client that sends the same bytes to the same registry, and to a
//! copy of the file.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use pilothouse_artifact::Digest;
use pilothouse_end_to_end::{components, variants};
use serde_json::json;
use ureq::Agent;
use ureq::http::header::LOCATION;

use super::PLUGIN;
use super::stage::Stage;
use crate::Outcome;
use crate::figures::{heading, line, spread};

/// The media types of the artifact that the plain client makes.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.empty.v1+json";
const LAYER: &str = "application/wasm";

/// Milliseconds of each repetition.
#[derive(Default)]
struct Times {
    cold: Vec<f64>,
    warm: Vec<f64>,
    with_crate: Vec<f64>,
    layout: Vec<f64>,
    program: Vec<f64>,
    http: Vec<f64>,
    copy: Vec<f64>,
}

/// Measures and prints. Each push has a component of its own, because the registry has the bytes of the others.
pub fn measure(stage: &Stage, repetitions: usize) -> Outcome<()> {
    let component = fs::read(components::folder().join(format!("{PLUGIN}.wasm")))?;
    let crate_directory = components::root().join("plugins").join(PLUGIN).display().to_string();
    let mut times = Times::default();
    for repetition in 0..repetitions {
        let cache = stage.empty_cache()?;
        let marked = |what: &str| variants::marked(&component, &format!("{what}-{repetition}"));
        let push = |what: &str, is_compiled: bool, to: &str, more: &[&str]| -> Outcome<f64> {
            let file = stage.file("pushed.wasm", &marked(what))?.display().to_string();
            let cache = cache.path().display().to_string();
            if is_compiled {
                let mut inspect = stage.registry_command(&["inspect", &file, "--cache-dir", &cache]);
                timed(&mut inspect)?;
            }
            let arguments = [&["push", &file, to, "--cache-dir", &cache], more].concat();
            timed(&mut stage.registry_command(&arguments))
        };
        let reference = |what: &str| stage.registry.reference(&format!("bench/{what}:{repetition}"));
        times.cold.push(push("cold", false, &reference("cold"), &[])?);
        times.warm.push(push("warm", true, &reference("warm"), &[])?);
        let in_crate = push("crate", true, &reference("crate"), &["--crate", &crate_directory])?;
        times.with_crate.push(in_crate);
        let layout = format!("oci-layout:{}:1", cache.path().join("layout").display());
        times.layout.push(push("layout", true, &layout, &[])?);
        times.program.push(timed(&mut stage.command(&["--version"]))?);
        times.http.push(send(stage, &marked("http"))?);
        times.copy.push(copy(&marked("copy"), cache.path())?);
    }
    print(component.len(), &times);
    Ok(())
}

fn print(bytes: usize, times: &Times) {
    let Times {
        cold,
        warm,
        with_crate,
        layout,
        program,
        http,
        copy,
    } = times;
    heading(&format!("a push of {} KB to a registry on loopback, ms", bytes / 1000));
    for (what, times, digits) in [
        ("pilothouse push, code not compiled yet", cold, 0),
        ("pilothouse push, code in the cache", warm, 0),
        ("the same with README of its crate", with_crate, 0),
        ("the same to an OCI layout, without a crate", layout, 0),
        ("pilothouse --version", program, 1),
        ("a plain HTTP client: two blobs and the manifest", http, 1),
        ("a copy of the file", copy, 2),
    ] {
        line(what, &spread(times, digits), "");
    }
}

/// Runs a command to its end, which must be a success, and returns the milliseconds.
fn timed(command: &mut Command) -> Outcome<f64> {
    let begun = Instant::now();
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
    let took = milliseconds(begun);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?} ended with {}: {said}", output.status).into());
    }
    Ok(took)
}

/// A new client that makes an artifact of these bytes with as few requests as the specification allows for a registry that
/// has none of them: <https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pushing-blobs>.
fn send(stage: &Stage, component: &[u8]) -> Outcome<f64> {
    let base = format!("http://{}", stage.registry.address());
    let begun = Instant::now();
    let agent: Agent = Agent::config_builder().proxy(None).build().into();
    let mut described = Vec::new();
    for (media_type, bytes) in [(CONFIG, &b"{}"[..]), (LAYER, component)] {
        let digest = Digest::of(bytes);
        let opened = agent
            .post(format!("{base}/v2/bench/http/blobs/uploads/"))
            .send_empty()?;
        let location = opened.headers().get(LOCATION).ok_or("an upload has no Location")?;
        let location = location.to_str()?;
        let url = if location.starts_with('/') {
            format!("{base}{location}?digest={digest}")
        } else {
            format!("{location}?digest={digest}")
        };
        agent.put(url).content_type("application/octet-stream").send(bytes)?;
        described.push(json!({"mediaType": media_type, "digest": digest.to_string(), "size": bytes.len()}));
    }
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": described[0], "layers": [described[1]],
    });
    agent
        .put(format!("{base}/v2/bench/http/manifests/1"))
        .content_type(MANIFEST)
        .send(manifest.to_string())?;
    Ok(milliseconds(begun))
}

fn copy(component: &[u8], folder: &Path) -> Outcome<f64> {
    let (from, to) = (folder.join("from.wasm"), folder.join("to.wasm"));
    fs::write(&from, component)?;
    let begun = Instant::now();
    fs::copy(&from, &to)?;
    Ok(milliseconds(begun))
}

fn milliseconds(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1000.0
}
