//! Faults of registries and pull secrets: a row for each.

use pilothouse_artifact::{Descriptor, Digest, media_type};
use pilothouse_test_registry::exchange::{Manner, Reply, reply};
use pilothouse_test_registry::{REPOSITORY, Registry};
use serde_json::{Value, json};

use super::component;

/// A fault, and the condition that it causes.
pub struct Row {
    pub name: &'static str,
    /// Breaks a registry that has a good plugin under the tag 1.
    spoil: fn(&Registry),
    /// The condition, which is False, and its reason.
    pub condition: (&'static str, &'static str),
    /// Cause and next step.
    pub says: &'static [&'static str],
}

/// Returns a component that no host may run.
pub fn bad_component() -> Vec<u8> {
    component("hostile", 99, 1)
}

/// Answers every request with `answer`.
fn always(registry: &Registry, answer: Reply) {
    registry.hook(move |_, _| Some(answer.clone()));
}

/// Answers requests for blobs with `answer`.
fn blobs(registry: &Registry, answer: Reply) {
    registry.hook(move |request, _| request.path.contains("/blobs/").then(|| answer.clone()));
}

/// Answers requests for manifests by their digest with `answer`: after the tag was resolved.
fn by_digest(registry: &Registry, answer: Reply) {
    registry.hook(move |request, _| request.path.contains("/manifests/sha256:").then(|| answer.clone()));
}

/// Puts a manifest with these layers and this config type under the tag.
fn manifest(registry: &Registry, config: &str, layers: &[Value]) {
    let config = Descriptor::of(config, b"{}");
    let manifest = json!({"schemaVersion": 2, "mediaType": media_type::MANIFEST, "config": config, "layers": layers});
    registry.put("1", media_type::MANIFEST, manifest.to_string());
}

const WASM: &str = "application/wasm";
const WASM_CONFIG: &str = "application/vnd.wasm.config.v0+json";

fn layer(media_type: &str, size: u64) -> Value {
    serde_json::to_value(Descriptor::new(media_type, Digest::of(media_type.as_bytes()), size)).unwrap()
}

pub const ROWS: &[Row] = &[
    Row {
        name: "401",
        spoil: |registry| registry.change(|state| state.basic = Some(("ada".into(), "right".into()))),
        condition: ("Fetched", "Unauthorized"),
        says: &["wants credentials (401)", "give the Plugin a pullSecret"],
    },
    Row {
        name: "403",
        spoil: |registry| always(registry, reply(403, &[], "")),
        condition: ("Fetched", "Forbidden"),
        says: &["does not permit it (403)", "use other credentials"],
    },
    Row {
        name: "404",
        spoil: |registry| always(registry, reply(404, &[], "")),
        condition: ("Fetched", "NotFound"),
        says: &["has no such thing (404)", "check repository, tag and digest"],
    },
    Row {
        name: "429 with Retry-After",
        spoil: |registry| always(registry, reply(429, &[("Retry-After", "1")], "")),
        condition: ("Fetched", "TooManyRequests"),
        says: &["takes no more requests for now (429)", "use credentials or a mirror"],
    },
    Row {
        name: "503",
        spoil: |registry| always(registry, reply(503, &[], "")),
        condition: ("Fetched", "RegistryFailed"),
        says: &["failed (503", "retrying may help"],
    },
    Row {
        name: "a status that no registry has",
        spoil: |registry| always(registry, reply(418, &[], "")),
        condition: ("Fetched", "RegistryFailed"),
        says: &["answered 418", "check that the reference names a registry"],
    },
    Row {
        name: "a redirect to plain HTTP",
        spoil: |registry| always(registry, reply(307, &[("Location", "http://other.example/")], "")),
        condition: ("Fetched", "RegistryFailed"),
        says: &["redirects where it must not", "plainHttp: true"],
    },
    Row {
        name: "an image",
        spoil: |registry| {
            let layer = layer("application/vnd.oci.image.layer.v1.tar+gzip", 10);
            manifest(registry, "application/vnd.oci.image.config.v1+json", &[layer]);
        },
        condition: ("Fetched", "NotAPlugin"),
        says: &["is not a plugin", "pilothouse push FILE.wasm"],
    },
    Row {
        name: "an image index",
        spoil: |registry| {
            let index = json!({"schemaVersion": 2, "mediaType": media_type::INDEX, "manifests": []});
            registry.put("1", media_type::INDEX, index.to_string());
        },
        condition: ("Fetched", "NotAPlugin"),
        says: &["is not a plugin", "index", "pilothouse push FILE.wasm"],
    },
    Row {
        name: "a manifest that is no JSON",
        spoil: |registry| drop(registry.put("1", media_type::MANIFEST, "<html>")),
        condition: ("Fetched", "NotAPlugin"),
        says: &["its manifest cannot be read", "pilothouse push FILE.wasm"],
    },
    Row {
        name: "two components",
        spoil: |registry| manifest(registry, WASM_CONFIG, &[layer(WASM, 10), layer(WASM, 10)]),
        condition: ("Fetched", "NotAPlugin"),
        says: &["it has 2 components and must have one", "pilothouse push FILE.wasm"],
    },
    Row {
        name: "a component that is declared too large",
        spoil: |registry| manifest(registry, WASM_CONFIG, &[layer(WASM, 1 << 40)]),
        condition: ("Fetched", "TooLarge"),
        says: &["1099511627776 bytes", "are accepted", "smaller component"],
    },
    Row {
        name: "a truncated component",
        spoil: |registry| blobs(registry, reply(200, &[], &bad_component()[..100])),
        condition: ("Fetched", "DigestMismatch"),
        says: &["ended after 100 of", "push it again"],
    },
    Row {
        name: "a connection that is cut",
        spoil: |registry| blobs(registry, reply(200, &[], bad_component()).manner(Manner::CutAfter(100))),
        condition: ("Fetched", "Unreachable"),
        says: &["the connection to", "broke", "retrying may help"],
    },
    Row {
        name: "a component that is longer than declared",
        spoil: |registry| blobs(registry, reply(200, &[], [bad_component(), vec![0]].concat())),
        condition: ("Fetched", "TooLarge"),
        says: &[
            "larger than the",
            "that the manifest declares",
            "do not use this source",
        ],
    },
    Row {
        name: "a component without end",
        spoil: |registry| blobs(registry, reply(200, &[], vec![0; 1 << 16]).manner(Manner::Endless)),
        condition: ("Fetched", "TooLarge"),
        says: &[
            "larger than the",
            "that the manifest declares",
            "do not use this source",
        ],
    },
    Row {
        name: "another component",
        spoil: |registry| blobs(registry, reply(200, &[], component("hostile", 98, 1))),
        condition: ("Fetched", "DigestMismatch"),
        says: &["answered with other bytes", "do not use this source"],
    },
    Row {
        name: "a component that grows when it is decompressed",
        spoil: |registry| blobs(registry, reply(200, &[("Content-Encoding", "gzip")], bad_component())),
        condition: ("Fetched", "RegistryFailed"),
        says: &["Content-Encoding \"gzip\"", "turn the compression off"],
    },
    Row {
        name: "a component that is an archive",
        spoil: |registry| {
            drop(pilothouse_test_registry::plugin(
                registry,
                "1",
                b"\x1f\x8b\x08\0 an archive",
            ));
        },
        condition: ("Compiled", "Refused"),
        says: &["this is not WebAssembly", "a component, a .wasm file"],
    },
    Row {
        name: "a tag that moves to other bytes after it was resolved",
        spoil: |registry| by_digest(registry, reply(200, &[], "{}")),
        condition: ("Fetched", "DigestMismatch"),
        says: &["answered with other bytes", "do not use this registry"],
    },
    Row {
        name: "a tag whose artifact is gone after it was resolved",
        spoil: |registry| by_digest(registry, reply(404, &[], "")),
        condition: ("Fetched", "NotFound"),
        says: &["has no such thing (404)", "check repository, tag and digest"],
    },
    Row {
        name: "a registry that hangs",
        spoil: |registry| always(registry, reply(200, &[], "").manner(Manner::Hang)),
        condition: ("Fetched", "Timeout"),
        says: &["did not complete its answer within 1s", "check the network"],
    },
    Row {
        name: "a registry that hangs before the component",
        spoil: |registry| blobs(registry, reply(200, &[], "").manner(Manner::Hang)),
        condition: ("Fetched", "Timeout"),
        says: &[
            "cannot download",
            "did not complete its answer within 1s",
            "check the network",
        ],
    },
    Row {
        name: "a manifest of one byte per second",
        spoil: |registry| by_digest(registry, reply(200, &[], vec![b' '; 100]).manner(DRIP)),
        condition: ("Fetched", "Timeout"),
        says: &["did not complete its answer within 1s", "check the network"],
    },
    Row {
        name: "a component of one byte per second",
        spoil: |registry| blobs(registry, reply(200, &[], bad_component()).manner(DRIP)),
        condition: ("Fetched", "Timeout"),
        says: &["sends less than", "check the network, or use a mirror"],
    },
];

const DRIP: Manner = Manner::Drip(std::time::Duration::from_secs(1));

impl Row {
    /// Returns a registry with the fault.
    pub async fn registry(&self) -> Registry {
        let (registry, _) = super::registry_of(&bad_component()).await;
        (self.spoil)(&registry);
        registry
    }
}

mod simulated {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use pilothouse_artifact::TrustSource;
    use pilothouse_end_to_end::fleet::Fleet;
    use pilothouse_end_to_end::stage::hostile;

    use super::super::{NAMESPACE, fetcher, host_with, plain, reference, registry_of, runs, tagged};
    use super::*;

    /// A public key without a known private key.
    const KEY: &str = "-----BEGIN PUBLIC KEY-----\n\
        MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAESPQfDEN/xBRWggsy/PIDdGLSVrVI\n\
        JexaY/X2pIG+F4kMmjtVMmZ76VVSgWsyI+SOi8LzZyW4G4uZDk6nVRtzUg==\n\
        -----END PUBLIC KEY-----\n";

    /// Rows with an unresolvable tag, a wrong manifest, and a component that is missing, unsigned, or does not compile.
    const STEPS: &[&str] = &[
        "503",
        "two components",
        "another component",
        "no signature",
        "a component that is an archive",
    ];

    /// A row as a Plugin's spec.
    struct Case {
        name: &'static str,
        spec: Value,
        reference: String,
        condition: (&'static str, &'static str),
        says: Vec<&'static str>,
    }

    impl Case {
        fn new(
            name: &'static str,
            reference: String,
            condition: (&'static str, &'static str),
            says: &[&'static str],
        ) -> Self {
            Self {
                name,
                spec: tagged(&reference),
                reference,
                condition,
                says: says.to_vec(),
            }
        }

        fn with_secret(mut self, name: &str) -> Self {
            self.spec["source"]["oci"]["pullSecret"] = json!(name);
            self
        }
    }

    /// Registries by the needs of a test.
    struct Registries {
        cases: Vec<Case>,
        all: Vec<Registry>,
        /// Requires credentials, and its artifacts need a signature.
        signed: usize,
        /// Not allowed by any rule.
        forbidden: Registry,
        secrets: Vec<Value>,
    }

    impl Registries {
        async fn start() -> Self {
            let (mut cases, mut all) = (Vec::new(), Vec::new());
            for row in ROWS {
                let registry = row.registry().await;
                cases.push(Case::new(row.name, reference(&registry), row.condition, row.says));
                all.push(registry);
            }
            let unknown = format!("registry.invalid/{REPOSITORY}:1");
            let says = ["registry.invalid is not known", "check the name and the DNS"];
            cases.push(Case::new("no such host", unknown, ("Fetched", "UnknownHost"), &says));

            let foreign = Registry::start_tls().await;
            let says = ["not signed by a known authority", "certificateAuthorities"];
            let condition = ("Fetched", "UnknownCertificate");
            cases.push(Case::new("a CA of its own", reference(&foreign), condition, &says));

            let (signed, _) = registry_of(&bad_component()).await;
            let says = ["has no signature", "cosign sign"];
            let condition = ("Verified", "SignatureMissing");
            cases.push(Case::new("no signature", reference(&signed), condition, &says));
            all.push(signed);
            let signed = all.len() - 1;

            let (forbidden, _) = registry_of(&bad_component()).await;
            let says = ["is not an allowed repository"];
            let condition = ("Verified", "NotAllowed");
            cases.push(Case::new("no rule", reference(&forbidden), condition, &says));

            let (private, _) = registry_of(&bad_component()).await;
            private.change(|state| state.basic = Some(("ada".into(), "right".into())));
            let auth = STANDARD.encode("ada:wrong");
            let secrets = vec![
                secret("wrong", &json!({"auths": {private.host(): {"auth": auth}}}).to_string()),
                secret("garbled", r#"{"auths": "none"}"#),
            ];
            let says = [
                "does not accept the credentials (401)",
                "check user name and password, or the pullSecret",
            ];
            let condition = ("Fetched", "Unauthorized");
            let wrong = Case::new("a wrong password", reference(&private), condition, &says);
            cases.push(wrong.with_secret("wrong"));
            let says = [".dockerconfigjson"];
            let condition = ("Fetched", "InvalidCredentials");
            let garbled = Case::new(
                "a pull secret that cannot be read",
                reference(&private),
                condition,
                &says,
            );
            cases.push(garbled.with_secret("garbled"));
            all.push(private);
            Self {
                cases,
                all,
                signed,
                forbidden,
                secrets,
            }
        }

        /// Returns the trust file: everything is accepted unsigned, except for two registries.
        fn trust(&self, good: &[&Registry]) -> Value {
            let rule = |registry: &Registry| json!({"match": format!("{}/**", registry.host()), "unsigned": true});
            let mut rules: Vec<Value> = self.all.iter().chain(good.iter().copied()).map(rule).collect();
            rules[self.signed] =
                json!({"match": format!("{}/**", self.all[self.signed].host()), "keys": [{"name": "k", "pem": KEY}]});
            let is_forbidden = format!("{}/", self.forbidden.host());
            for case in &self.cases {
                let (host, _) = case.reference.split_once('/').unwrap();
                let pattern = format!("{host}/**");
                let is_new = !rules.iter().any(|rule| rule["match"] == pattern.as_str());
                if is_new && !case.reference.starts_with(&is_forbidden) {
                    rules.push(json!({"match": pattern, "unsigned": true}));
                }
            }
            json!({"default": "refuse", "repositories": rules})
        }
    }

    fn secret(name: &str, content: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE},
            "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": content}})
    }

    /// Waits until a Plugin has a condition, and checks its message.
    async fn is_told(fleet: &Fleet, plugin: &str, case: &Case) {
        let Case {
            name,
            reference,
            condition,
            says,
            ..
        } = case;
        let (kind, reason) = *condition;
        let told = fleet.stage.until(|stage| {
            let plugin = stage.find("Plugin", plugin)?;
            let conditions = plugin["status"]["conditions"].as_array()?;
            let mut conditions = conditions.iter().filter(|condition| condition["type"] == kind);
            let found = conditions.next()?;
            let is_new = found["observedGeneration"] == plugin["metadata"]["generation"];
            (is_new && found["status"] == "False" && found["reason"] == reason).then(|| found.clone())
        });
        let told = told.await;
        let status = fleet.status(plugin);
        let told = told.unwrap_or_else(|| panic!("{name}: {plugin} is not {kind}=False/{reason}: {status:#}"));
        let message = told["message"].as_str().unwrap();
        for words in says.iter().copied().chain([reference.as_str()]) {
            assert!(message.contains(words), "{name}: {words:?} is not in: {message}");
        }
    }

    #[tokio::test]
    async fn a_faulty_registry_is_a_condition_and_running_plugins_go_on() {
        let (good, first) = registry_of(&component("hostile", 1, 1)).await;
        let (other, second) = registry_of(&component("bundle", 1, 1)).await;
        let registries = Registries::start().await;
        let folder = tempfile::tempdir().unwrap();
        let (cache, trust) = (folder.path().join("artifacts"), folder.path().join("trust.yaml"));
        std::fs::write(&trust, registries.trust(&[&good, &other]).to_string()).unwrap();
        let known = plain(registries.all.iter().chain([&good, &other, &registries.forbidden]));
        let fleet = host_with(fetcher(known, TrustSource::open(&trust).unwrap(), &cache, 1 << 30)).await;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        fleet.stage.create(&namespace).await;
        for secret in &registries.secrets {
            fleet.stage.create(secret).await;
        }
        fleet.plugin("it", tagged(&reference(&good))).await;
        fleet.plugin("other", tagged(&reference(&other))).await;
        runs(&fleet, "it", &first).await;
        runs(&fleet, "other", &second).await;
        let running = fleet.status("it")["digest"].clone();

        // All at once, each as a plugin that has never run.
        for (number, case) in registries.cases.iter().enumerate() {
            fleet.plugin(&format!("new-{number}"), case.spec.clone()).await;
        }
        for (number, case) in registries.cases.iter().enumerate() {
            let (plugin, Case { name, condition, .. }) = (format!("new-{number}"), case);
            is_told(&fleet, &plugin, case).await;
            fleet.says(&plugin, "Ready", "False", condition.1).await;
            let status = fleet.status(&plugin);
            assert!(
                status["digest"].is_null() && status["artifact"].is_null(),
                "{name}: {status}"
            );
        }
        assert_eq!(fleet.condition("it", "Ready")["reason"], "Running");

        // Then as a new version of a running plugin, one for each of the steps.
        for name in STEPS {
            let case = registries.cases.iter().find(|case| case.name == *name);
            let case = case.unwrap_or_else(|| panic!("there is no row {name}"));
            fleet.change("it", case.spec.clone()).await;
            is_told(&fleet, "it", case).await;
            let ready = fleet.says("it", "Ready", "True", "PreviousVersion").await;
            let words = ready["message"].as_str().unwrap();
            assert!(words.contains("the version before goes on"), "{name}: {words}");
            let object = case.reference.replace(|it: char| !it.is_ascii_alphanumeric(), "-");
            let spec = json!({"behaviour": "config-map"});
            fleet.stage.create(&hostile(&object, &spec)).await;
            fleet
                .until(&format!("{name}: {object} is reconciled"), |stage| {
                    stage.is_reconciled("Hostile", &object) && stage.find("ConfigMap", &object).is_some()
                })
                .await;
            let status = fleet.status("it");
            assert_eq!(status["digest"], running, "{name}");
            assert_eq!(status["artifact"]["digest"], first.digest.to_string(), "{name}");
            assert_eq!(fleet.condition("other", "Ready")["reason"], "Running", "{name}");
        }

        let asked = |registry: &Registry, path: &str| registry.requests().iter().any(|it| it.contains(path));
        let signed = &registries.all[registries.signed];
        assert!(
            asked(signed, "/manifests/") && !asked(signed, "/blobs/"),
            "{:?}",
            signed.requests()
        );
        assert_eq!(registries.forbidden.requests(), [""; 0]);
        let kept = cache.join("blobs/sha256").join(Digest::of(&bad_component()).hex());
        assert!(!kept.exists(), "nothing that failed on its way is kept");

        // Both get a good artifact.
        fleet.change("it", tagged(&reference(&good))).await;
        runs(&fleet, "it", &first).await;
        fleet.stage.stop().await;
    }

    #[tokio::test]
    async fn a_tag_that_moves_while_it_is_pulled_brings_what_was_resolved() {
        let (registry, first) = registry_of(&component("hostile", 1, 1)).await;
        registry.hook(move |request, state| {
            // The tag was resolved, and names an artifact that no host runs before the manifest is read.
            if request.path.contains("/manifests/sha256:") {
                let name = (REPOSITORY.to_owned(), "1".to_owned());
                let index = (media_type::INDEX.to_owned(), b"{}".to_vec());
                state.manifests.insert(name, index);
            }
            None
        });
        let folder = tempfile::tempdir().unwrap();
        let trust = TrustSource::accept_unsigned();
        let fleet = host_with(fetcher(plain([&registry]), trust, folder.path(), 1 << 30)).await;
        fleet.plugin("it", tagged(&reference(&registry))).await;
        runs(&fleet, "it", &first).await;
        fleet.stage.stop().await;
    }
}
