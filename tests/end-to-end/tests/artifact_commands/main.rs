//! The commands for OCI artifacts, on OCI layouts and archives: what is pushed, copied, verified and pulled, and what a
//! person at the terminal sees when it cannot be. `registry` does the same with real registries, a host and an API server.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

mod registry;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pilothouse_artifact::{Attachment, Client, Credentials, Descriptor, Limits, Location, RegistriesConfig};
use pilothouse_end_to_end::components::{program, root};
use pilothouse_end_to_end::program::{Folder, component};
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};

/// A folder in which commands run, and which is their home: nothing of the user's configuration is seen.
struct Desk(Folder);

/// Outcome of a command.
struct Ended {
    code: i32,
    printed: String,
    said: String,
}

impl Desk {
    fn new() -> Self {
        Self(Folder::new())
    }

    fn path(&self, name: &str) -> String {
        self.0.path(name)
    }

    /// A program that sees nothing of the user's configuration. Cargo and rustup keep what they have in the true home.
    fn program(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.path("")).stdin(Stdio::null());
        for name in ["KUBECONFIG", "PILOTHOUSE_LOG", "SOURCE_DATE_EPOCH"] {
            command.env_remove(name);
        }
        let cache = root().canonicalize().unwrap().join("target").join("test-code");
        command
            .env("XDG_CACHE_HOME", cache)
            .env("XDG_CONFIG_HOME", self.path(""));
        command.env("DOCKER_CONFIG", self.path("docker"));
        command
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(&program());
        command.args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        ended(&mut self.command(arguments))
    }

    /// Runs a command that must succeed, and returns its output.
    fn prints(&self, arguments: &[&str]) -> String {
        let Ended { code, printed, said } = self.run(arguments);
        assert_eq!(code, 0, "{arguments:?}: {said}");
        printed
    }

    /// Runs a command that must fail with an exit code and these words.
    fn refuses(&self, arguments: &[&str], expected: i32, words: &[&str]) {
        let Ended { code, printed, said } = self.run(arguments);
        assert_eq!((code, &*printed), (expected, ""), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
        for word in words {
            assert!(said.contains(word), "{arguments:?} does not say {word:?}: {said}");
        }
    }

    /// Pushes a component into the layout `plugins` as 0.1.0: the reference.
    fn push(&self) -> String {
        let printed = self.prints(&["push", &component("app-service"), "oci-layout:plugins:0.1.0"]);
        printed.trim_end().to_owned()
    }
}

fn ended(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    Ended {
        code: output.status.code().unwrap(),
        printed: String::from_utf8(output.stdout).unwrap(),
        said: String::from_utf8(output.stderr).unwrap(),
    }
}

fn digest_of(reference: &str) -> &str {
    reference.split_once('@').unwrap().1
}

/// Signs an artifact of a layout as cosign 3 does, and writes the public key to a file.
fn sign(layout: &Path, digest: &str, public_key: &str) {
    let key = KeyPair::generate().unwrap();
    fs::write(public_key, key.public_key_pem()).unwrap();
    let hexadecimal = digest.strip_prefix("sha256:").unwrap();
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"digest": {"sha256": hexadecimal}, "annotations": {}}],
        "predicateType": "https://sigstore.dev/cosign/sign/v1",
        "predicate": {},
    })
    .to_string();
    let kind = "application/vnd.in-toto+json";
    let signed = format!("DSSEv1 {} {kind} {} {statement}", kind.len(), statement.len());
    let signature = key.sign(signed.as_bytes()).unwrap();
    let bundle = json!({
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {"publicKey": {"hint": ""}},
        "dsseEnvelope": {
            "payload": STANDARD.encode(&statement),
            "payloadType": kind,
            "signatures": [{"sig": STANDARD.encode(signature)}],
        },
    });
    let attachment = Attachment {
        artifact_type: "application/vnd.dev.sigstore.bundle.v0.3+json".to_owned(),
        media_type: "application/vnd.dev.sigstore.bundle.v0.3+json".to_owned(),
        content: bundle.to_string().into(),
        annotations: [(
            "dev.sigstore.bundle.predicateType".to_owned(),
            "https://sigstore.dev/cosign/sign/v1".to_owned(),
        )]
        .into(),
    };
    let client = Client::new(RegistriesConfig::default(), Limits::default());
    let location = Location::directory(layout);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = client.open(&location, &Credentials::Anonymous).unwrap();
        let digest = digest.parse().unwrap();
        let size = store.manifest(digest).await.unwrap().len() as u64;
        let subject = Descriptor::new("application/vnd.oci.image.manifest.v1+json", digest, size);
        store.attach(&subject, &attachment).await.unwrap();
    });
}

mod isolated {
    use super::*;

    #[test]
    fn a_pushed_component_is_pulled_with_same_bytes_and_digest() {
        let desk = Desk::new();
        let file = component("app-service");
        let pushed = desk.run(&["push", &file, "oci-layout:plugins:0.1.0"]);
        assert_eq!(pushed.code, 0, "{}", pushed.said);
        let reference = pushed.printed.trim_end();
        assert!(reference.starts_with("oci-layout:plugins@sha256:"), "{reference}");
        for words in [
            "the component is that of the Cargo package app-service in ",
            "attached: 1 CRD, README\n",
            "pilothouse copy oci-layout:plugins@sha256:",
        ] {
            assert!(pushed.said.contains(words), "{words}: {}", pushed.said);
        }
        assert!(
            !pushed.said.contains('\u{1b}') && !pushed.said.contains('\r'),
            "no bars in a pipe: {}",
            pushed.said
        );

        let quiet = desk.run(&["push", &file, "oci-layout:others", "--quiet"]);
        assert_eq!((quiet.code, &*quiet.said), (0, ""));
        assert_eq!(digest_of(quiet.printed.trim_end()), digest_of(reference));
        let mut dated = desk.command(&["push", &file, "oci-layout:dated"]);
        let dated = ended(dated.env("SOURCE_DATE_EPOCH", "1700000000"));
        assert_eq!(dated.code, 0, "{}", dated.said);
        assert_ne!(digest_of(dated.printed.trim_end()), digest_of(reference));
        let created = desk.prints(&["push", &file, "oci-layout:created", "--created", "2023-11-14T22:13:20Z"]);
        assert_eq!(digest_of(&created), digest_of(&dated.printed));

        for from in ["oci-layout:plugins:0.1.0", reference] {
            let printed = desk.prints(&["pull", from, "-o", "pulled.wasm"]);
            assert_eq!(printed.trim_end(), reference);
            assert_eq!(fs::read(desk.path("pulled.wasm")).unwrap(), fs::read(&file).unwrap());
        }
        desk.prints(&["pull", reference]);
        assert_eq!(
            fs::read(desk.path("app-service.wasm")).unwrap(),
            fs::read(&file).unwrap()
        );
        desk.refuses(
            &["pull", reference],
            1,
            &["app-service.wasm exists already", "--output"],
        );
        let left: Vec<_> = fs::read_dir(desk.path(""))
            .unwrap()
            .map(|it| it.unwrap().file_name())
            .collect();
        assert!(
            !left.iter().any(|it| it.to_string_lossy().starts_with(".pilothouse")),
            "{left:?}"
        );
    }

    #[test]
    fn inspect_shows_what_an_artifact_says_beside_its_component() {
        let desk = Desk::new();
        let annotation = "org.opencontainers.image.vendor=Acme\u{1b}[31m";
        let to = "oci-layout:plugins:0.1.0";
        let (file, sbom) = (component("app-service"), "app-service.cdx.json");
        let arguments = ["push", &file, to, "--annotation", annotation, "--sbom", sbom];
        for (text, words) in [
            (None, ["cannot read the SBOM", "No such file"]),
            (Some("SPDXVersion: SPDX-2.3"), [sbom, "as JSON"]),
            (Some("{}"), [sbom, "neither CycloneDX"]),
        ] {
            if let Some(text) = text {
                desk.0.file(sbom, text);
            }
            desk.refuses(&arguments, 1, &words);
        }
        assert!(
            !Path::new(&desk.path("plugins")).exists(),
            "nothing is pushed with a wrong SBOM"
        );
        let serde = json!({"name": "serde", "licenses": [{"expression": "MIT OR Apache-2.0"}]});
        let document = json!({"bomFormat": "CycloneDX", "specVersion": "1.5", "components": [serde]});
        desk.0.file(sbom, document.to_string());
        let reference = desk.prints(&arguments);
        let reference = reference.trim_end();
        sign(
            Path::new(&desk.path("plugins")),
            digest_of(reference),
            &desk.path("key.pem"),
        );

        let document: Value = serde_json::from_str(&desk.prints(&["inspect", to, "-o", "json"])).unwrap();
        let of_file = desk.prints(&["inspect", &file, "-o", "json"]);
        let of_file: Value = serde_json::from_str(&of_file).unwrap();
        assert_eq!(document["digest"], of_file["digest"]);
        assert_eq!(of_file["artifact"], Value::Null);
        let artifact = &document["artifact"];
        assert_eq!(artifact["reference"], reference);
        assert_eq!(artifact["signatures"], 1);
        let annotations = &artifact["annotations"];
        for (name, value) in [
            ("title", "app-service"),
            ("version", "0.1.0"),
            ("created", "1970-01-01T00:00:00Z"),
            ("licenses", "Apache-2.0"),
            ("vendor", "Acme\u{1b}[31m"),
        ] {
            assert_eq!(annotations[format!("org.opencontainers.image.{name}")], value);
        }
        let types = artifact["attachments"].as_array().unwrap().iter();
        let types: Vec<_> = types.map(|it| it["artifactType"].as_str().unwrap()).collect();
        assert_eq!(
            types,
            [
                "application/vnd.cyclonedx+json",
                "application/vnd.dev.sigstore.bundle.v0.3+json",
                "application/vnd.pilothouse.crds.v1+yaml",
                "application/vnd.pilothouse.readme.v1+markdown",
            ]
        );
        assert_eq!(
            artifact["sbom"],
            json!({"components": 1, "licenses": {"MIT OR Apache-2.0": 1}})
        );

        let text = desk.prints(&["inspect", to]);
        for words in [
            "app-service 0.1.0: ",
            "signatures   1 found, not verified",
            "vendor       Acme\\u{1b}[31m",
            "SBOM         1 components (MIT OR Apache-2.0 1)",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(
            !text.contains('\u{1b}'),
            "an annotation does not reach the terminal as it is"
        );
    }

    #[test]
    fn a_copy_has_everything_that_belongs_to_the_artifact() {
        let desk = Desk::new();
        let reference = desk.push();
        let digest = digest_of(&reference);
        sign(Path::new(&desk.path("plugins")), digest, &desk.path("key.pem"));
        let copied = desk.run(&["copy", "oci-layout:plugins:0.1.0", "oci-archive:plugins.tar"]);
        assert_eq!(copied.code, 0, "{}", copied.said);
        assert_eq!(copied.printed.trim_end(), format!("oci-archive:plugins.tar@{digest}"));
        assert!(
            copied
                .said
                .contains("copied 4 manifests (3 of signatures and other attachments)"),
            "{}",
            copied.said
        );
        desk.prints(&["copy", "oci-archive:plugins.tar:0.1.0", "oci-layout:back:stable"]);
        desk.prints(&["copy", &format!("oci-layout:back@{digest}"), "oci-layout:back:0.1.0"]);
        assert_eq!(desk.prints(&["tags", "oci-layout:back"]), "0.1.0\nstable\n");
        assert_eq!(desk.prints(&["tags", "oci-layout:back", "--range", "^0.1"]), "0.1.0\n");
        let tags: Value = serde_json::from_str(&desk.prints(&["tags", "oci-layout:back", "-o", "json"])).unwrap();
        let expected = json!([{"tag": "0.1.0", "version": "0.1.0"}, {"tag": "stable"}]);
        assert_eq!(tags, json!({"repository": "oci-layout:back", "tags": expected}));
        for from in ["oci-archive:plugins.tar:0.1.0", "oci-layout:back:stable"] {
            desk.prints(&["pull", from, "-o", "pulled.wasm"]);
            assert_eq!(
                fs::read(desk.path("pulled.wasm")).unwrap(),
                fs::read(component("app-service")).unwrap()
            );
            let verified = desk.prints(&["verify", from, "--key", "key.pem"]);
            assert!(verified.contains("signed by key"), "{verified}");
        }
        let document: Value =
            serde_json::from_str(&desk.prints(&["inspect", "oci-layout:back:stable", "-o", "json"])).unwrap();
        assert_eq!(document["artifact"]["attachments"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn verify_accepts_only_a_signature_by_one_of_the_keys() {
        let desk = Desk::new();
        let reference = desk.push();
        let layout = desk.path("plugins");
        desk.refuses(&["verify", &reference, "--key", "missing.pem"], 1, &["missing.pem"]);
        sign(Path::new(&layout), digest_of(&reference), &desk.path("other.pem"));
        let other = desk.run(&["verify", &reference, "--key", "other.pem", "-q"]);
        assert_eq!(other.code, 0, "{}", other.said);
        assert!(
            other
                .printed
                .starts_with(&format!("{reference}\nverified  signed by other\n")),
            "{}",
            other.printed
        );

        // A second artifact, without a signature.
        let unsigned = desk.prints(&["push", &component("service-ingress"), "oci-layout:plugins:unsigned"]);
        let unsigned = unsigned.trim_end();
        desk.refuses(
            &["verify", unsigned, "--key", "other.pem"],
            1,
            &[digest_of(unsigned), "has no signature", "cosign sign"],
        );
        // A key that has signed something else.
        sign(Path::new(&layout), digest_of(unsigned), &desk.path("key.pem"));
        desk.refuses(
            &["verify", &reference, "--key", "key.pem"],
            1,
            &["no accepted signature", "key"],
        );
        let both = ["verify", &reference, "--key", "key.pem", "--key", "other.pem"];
        assert!(desk.prints(&both).contains("signed by other"));

        let policy = json!({"default": "refuse", "repositories": [
            {"match": "ghcr.io/acme/*", "keys": [{"name": "release", "file": "other.pem"}]},
            {"match": format!("oci-layout:{}", Path::new(&layout).canonicalize().unwrap().display()), "unsigned": true},
        ]});
        desk.0.file("trust.yaml", policy.to_string());
        let accepted = desk.prints(&["verify", &reference, "--policy", "trust.yaml"]);
        assert!(accepted.contains("accepted  unverified"), "{accepted}");
        let copy = [
            "verify",
            &reference,
            "--policy",
            "trust.yaml",
            "--as",
            "ghcr.io/acme/app-service",
        ];
        assert!(desk.prints(&copy).contains("verified  signed by release"));
        let elsewhere = [
            "verify",
            &reference,
            "--policy",
            "trust.yaml",
            "--as",
            "quay.io/acme/app-service",
        ];
        desk.refuses(
            &elsewhere,
            1,
            &["quay.io/acme/app-service is not an allowed repository"],
        );
    }

    #[test]
    fn what_is_no_plugin_is_not_pushed() {
        let desk = Desk::new();
        desk.0.file("notes.wasm", "remember the milk");
        desk.0.file("module.wasm", wat::parse_str("(module)").unwrap());
        let to = "oci-layout:plugins:0.1.0";
        desk.refuses(
            &["push", "notes.wasm", to],
            1,
            &["notes.wasm", "this is not WebAssembly"],
        );
        desk.refuses(
            &["push", "module.wasm", to],
            1,
            &["this is a core module, not a component"],
        );
        desk.refuses(
            &["push", "missing.wasm", to],
            1,
            &["cannot read the component missing.wasm"],
        );
        let file = component("app-service");
        let pinned = format!("ghcr.io/acme/a@sha256:{}", "0".repeat(64));
        for (arguments, code, words) in [
            (vec![&*pinned], 1, "leave it off"),
            (vec![to, "--crate", "nowhere"], 1, "nowhere is no Cargo package"),
            (
                vec![to, "--readme", "nowhere.md"],
                1,
                "cannot read the README nowhere.md",
            ),
            (vec![to, "--annotation", "x"], 2, "write KEY=VALUE"),
            (vec![to, "--created", "yesterday"], 2, "--created"),
            (vec!["app-service"], 2, "no registry host"),
            (vec!["https://ghcr.io/acme/a"], 2, "scheme"),
        ] {
            desk.refuses(&[&["push", &file], &*arguments].concat(), code, &[words]);
        }
        let mut dated = desk.command(&["push", &file, to]);
        let dated = ended(dated.env("SOURCE_DATE_EPOCH", "yesterday"));
        assert!(
            dated.code == 1 && dated.said.contains("SOURCE_DATE_EPOCH is not a number"),
            "{}",
            dated.said
        );
        assert!(!Path::new(&desk.path("plugins")).exists(), "nothing was written");
    }

    #[test]
    fn a_file_that_was_moved_has_no_crate_unless_one_is_named() {
        let desk = Desk::new();
        fs::copy(component("app-service"), desk.path("moved.wasm")).unwrap();
        let pushed = desk.run(&["push", "moved.wasm", "oci-layout:plugins:0.2.0"]);
        assert_eq!(pushed.code, 0, "{}", pushed.said);
        for words in [
            "no Cargo package is known",
            "attached: 1 CRD\n",
            "warning: the tag says 0.2.0, and the plugin's manifest 0.1.0",
        ] {
            assert!(pushed.said.contains(words), "{words}: {}", pushed.said);
        }
        let package = root().join("plugins").join("app-service");
        let to = "oci-layout:plugins:0.1.0";
        let named = desk.prints(&["push", "moved.wasm", to, "--crate", package.to_str().unwrap()]);
        let found = desk.prints(&["push", &component("app-service"), "oci-layout:plugins"]);
        assert_eq!(named, found);
        let workspace = root();
        let workspace = workspace.to_str().unwrap();
        desk.refuses(
            &["push", "moved.wasm", to, "--crate", workspace],
            1,
            &["is a workspace without a package"],
        );
    }
}

mod documentation {
    use super::*;

    /// A section of a document.
    pub fn section(document: &str, section: &str) -> String {
        let text = fs::read_to_string(root().join(document)).unwrap();
        let (_, text) = text.split_once(&format!("\n## {section}\n")).unwrap();
        text.split("\n## ").next().unwrap().to_owned()
    }

    /// The commands in the consoles of a section.
    pub fn commands(document: &str, name: &str) -> Vec<String> {
        let text = section(document, name);
        let lines = text.lines().filter_map(|line| line.strip_prefix("$ "));
        lines.map(str::to_owned).collect()
    }

    mod isolated {
        use super::*;

        #[test]
        fn the_commands_for_a_cluster_without_a_network_run() {
            let desk = Desk::new();
            fs::copy(component("app-service"), desk.path("app-service.wasm")).unwrap();
            let policy = json!({"repositories": [{"match": "ghcr.io/acme/*", "keys": [{"file": "cosign.pub"}]}]});
            desk.0.file("trust.yaml", policy.to_string());
            let commands = commands("docs/artifacts.md", "Without a network");
            assert_eq!(commands.len(), 9, "{commands:?}");
            let directory = program().parent().unwrap().display().to_string();
            let path = format!("{directory}:{}", std::env::var("PATH").unwrap());
            for line in &commands {
                let mut shell = desk.program(Path::new("sh"));
                shell.arg("-c").arg(line).env("PATH", &path);
                let Ended { code, printed, said } = ended(&mut shell);
                assert_eq!(code, 0, "{line}: {said}");
                if line.contains(" push ") {
                    sign(
                        Path::new(&desk.path("plugins")),
                        digest_of(printed.trim_end()),
                        &desk.path("cosign.pub"),
                    );
                }
            }
            let pulled = fs::read(desk.path("pulled.wasm")).unwrap();
            assert_eq!(pulled, fs::read(component("app-service")).unwrap());
        }
    }
}

/// Tests that need no plugin.
mod command_line {
    use super::*;

    #[test]
    fn places_and_references_that_are_not_there_are_named() {
        let desk = Desk::new();
        let zeros = format!("sha256:{}", "0".repeat(64));
        for (arguments, code, words) in [
            (vec!["pull", "oci-layout:nowhere:1"], 1, vec!["nowhere"]),
            (vec!["pull", "oci-archive:nowhere.tar:1"], 1, vec!["nowhere.tar"]),
            (
                vec!["pull", "ghcr.io/acme/a"],
                1,
                vec!["names no version", "pilothouse tags ghcr.io/acme/a"],
            ),
            (
                vec!["pull", "a"],
                2,
                vec!["no registry host", "ghcr.io/acme/plugin:1.0.0"],
            ),
            (vec!["pull", "ghcr.io/a@sha256:1"], 2, vec!["digest"]),
            (
                vec!["copy", "oci-layout:nowhere:1", "oci-layout:there"],
                1,
                vec!["nowhere"],
            ),
            (vec!["copy", "oci-layout:a:1", "oci-layout:"], 2, vec!["it has no path"]),
            (vec!["tags", "oci-layout:nowhere"], 1, vec!["nowhere"]),
            (vec!["tags", "ghcr.io/a:1"], 1, vec!["leave tag and digest off"]),
            (vec!["tags", "ghcr.io/a", "--range", "newest"], 2, vec!["--range"]),
            (vec!["verify", "ghcr.io/a:1"], 2, vec!["--key", "--policy"]),
            (
                vec!["verify", "oci-layout:nowhere:1", "--policy", "trust.yaml"],
                1,
                vec!["trust.yaml"],
            ),
            (
                vec!["inspect", "registry.invalid/acme/a:1"],
                1,
                vec!["cannot resolve registry.invalid/acme/a:1"],
            ),
            (vec!["inspect", "oci-layout:nowhere:1"], 1, vec!["nowhere"]),
            (
                vec!["tags", "ghcr.io/a", "--registries", "nowhere.yaml"],
                1,
                vec!["nowhere.yaml"],
            ),
        ] {
            desk.refuses(&arguments, code, &words);
        }
        let pinned = format!("oci-layout:nowhere@{zeros}");
        desk.refuses(&["pull", &pinned], 1, &["nowhere"]);
        assert!(!Path::new(&desk.path("there")).exists() && !Path::new(&desk.path("docker")).exists());
    }

    #[test]
    fn the_default_file_of_registries_is_read_and_named() {
        let desk = Desk::new();
        fs::create_dir(desk.path("pilothouse")).unwrap();
        desk.0.file(
            "pilothouse/registries.yaml",
            "registries: [{host: a.example, insecure: true}]",
        );
        let words = ["pilothouse/registries.yaml", "insecure"];
        desk.refuses(&["tags", "a.example/a"], 1, &words);
        desk.0.file("good.yaml", "registries: []");
        desk.refuses(
            &["tags", "oci-layout:nowhere", "--registries", "good.yaml"],
            1,
            &["nowhere"],
        );
    }
}
