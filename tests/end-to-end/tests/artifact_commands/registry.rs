//! A plugin's way through a real registry: pushed, signed by cosign, run by the host's program on a real API server, moved,
//! forged, and run on while the registry is gone.

mod external {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::time::{Duration, Instant};

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::Event;
    use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use kube::{Api, Client};
    use pilothouse_end_to_end::components::program;
    use pilothouse_end_to_end::program::{Process, component};
    use pilothouse_end_to_end::stage::create;
    use pilothouse_external::cosign::{Cosign, Format, Key};
    use pilothouse_external::oras::{Artifact, Layer, Oras};
    use pilothouse_external::programs::Program;
    use pilothouse_external::registry::Registry;
    use pilothouse_external::wkg::Wkg;
    use pilothouse_testkit::cluster::Cluster;
    use rustix::process::Signal;
    use serde_json::{Value, json};

    use crate::{Desk, Ended, documentation, ended as ended_of};

    const WITHIN: Duration = Duration::from_mins(2);

    /// A registry, the commands' configuration for it, and a cosign.
    struct Shop {
        desk: Desk,
        registry: Registry,
        cosign: Cosign,
    }

    impl Shop {
        /// A shop with a folder `plugins`, the host's plugin directory.
        fn open(registry: Registry) -> Self {
            let desk = Desk::new();
            let host = json!({
                "host": registry.address(),
                "plainHttp": registry.ca_file().is_none(),
                "certificateAuthorities": registry.ca_file().into_iter().collect::<Vec<_>>(),
            });
            let registries = json!({"registries": [host]});
            fs::create_dir_all(desk.path("pilothouse")).unwrap();
            fs::create_dir_all(desk.path("docker")).unwrap();
            fs::create_dir_all(desk.path("plugin-dir")).unwrap();
            desk.0.file("pilothouse/registries.yaml", registries.to_string());
            desk.0.file("docker/config.json", registry.docker_config().to_string());
            Self {
                desk,
                registry,
                cosign: Cosign::new(),
            }
        }

        /// A version of a plugin, as a file: another mark makes another one.
        fn version(&self, plugin: &str, mark: u8) -> String {
            let mut bytes = fs::read(component(plugin)).unwrap();
            bytes.extend([0, 3, 1, b'm', mark]);
            self.desk.0.file(&format!("{plugin}-{mark}.wasm"), bytes)
        }

        /// Pushes a version under a tag: the reference with the digest.
        fn push(&self, plugin: &str, mark: u8, tag: &str) -> String {
            let to = self.registry.reference(&format!("plugins/{plugin}:{tag}"));
            let crate_directory = pilothouse_end_to_end::components::root().join("plugins").join(plugin);
            let crate_directory = crate_directory.display().to_string();
            let file = self.version(plugin, mark);
            let printed = self.desk.prints(&["push", &file, &to, "--crate", &crate_directory]);
            printed.trim_end().to_owned()
        }

        fn sign(&self, reference: &str, key: &Key, format: Format) {
            // cosign takes the repository without the registry.
            let artifact = reference.split_once('/').unwrap().1;
            self.cosign.sign(&self.registry, artifact, key, format, &[]).unwrap();
        }

        fn trust(&self, keys: &[&Key]) -> String {
            let keys: Vec<_> = keys.iter().map(|key| json!({"file": key.public_file()})).collect();
            let layouts = format!("oci-layout:{}/**", self.desk.path("plugin-dir"));
            let patterns = [self.registry.reference("plugins/*"), layouts];
            let rule = |pattern: &String| json!({"match": pattern, "keys": keys});
            let rules: Vec<_> = patterns.iter().map(rule).collect();
            let policy = json!({"default": "refuse", "repositories": rules});
            self.desk.0.file("trust.yaml", policy.to_string())
        }
    }

    /// A cluster on which the host's program runs.
    struct Ship {
        client: Client,
        kubeconfig: PathBuf,
        _cluster: Cluster,
    }

    impl Ship {
        async fn launch() -> Self {
            let cluster = Cluster::real().await.unwrap();
            Self {
                client: cluster.client().await.unwrap(),
                kubeconfig: cluster.host_kubeconfig().unwrap(),
                _cluster: cluster,
            }
        }

        fn host(&self, shop: &Shop, trust: &str) -> Process {
            let kubeconfig = self.kubeconfig.display().to_string();
            let (directory, registries) = (
                shop.desk.path("plugin-dir"),
                shop.desk.path("pilothouse/registries.yaml"),
            );
            Process::start(&[
                "run",
                "--install-crds",
                "--identity=none",
                "--plugin-dir",
                &directory,
                "--registries",
                &registries,
                "--trust",
                trust,
                "--namespace",
                "default",
                "--kubeconfig",
                &kubeconfig,
            ])
        }

        fn plugins(&self) -> Api<DynamicObject> {
            let kind = GroupVersionKind::gvk("pilothouse.dev", "v1alpha1", "Plugin");
            Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind))
        }

        async fn plugin(&self, name: &str) -> Value {
            let plugin = self.plugins().get_opt(name).await.ok().flatten();
            plugin
                .map(|plugin| serde_json::to_value(plugin).unwrap())
                .unwrap_or_default()
        }

        async fn until(&self, process: &Process, what: &str, mut holds: impl AsyncFnMut() -> bool) {
            let begun = Instant::now();
            while !holds().await {
                let plugin = self.plugin("app-service").await;
                let log = process.log();
                assert!(begun.elapsed() < WITHIN, "in vain: {what}\n{plugin:#}\n{log}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }

        /// Waits until a condition of the plugin is so, and has these words.
        async fn says(&self, process: &Process, kind: &str, status: &str, reason: &str, words: &[&str]) {
            let what = format!("{kind} is {status}/{reason} with {words:?}");
            self.until(process, &what, async || {
                let plugin = self.plugin("app-service").await;
                let conditions = plugin["status"]["conditions"].as_array().cloned().unwrap_or_default();
                conditions.iter().any(|condition| {
                    let message = condition["message"].as_str().unwrap_or_default();
                    condition["type"] == kind
                        && condition["status"] == status
                        && condition["reason"] == reason
                        && words.iter().all(|words| message.contains(words))
                })
            })
            .await;
        }

        async fn runs(&self, process: &Process, digest: &str) {
            self.until(process, &format!("{digest} runs"), async || {
                self.plugin("app-service").await["status"]["artifact"]["digest"] == digest
            })
            .await;
        }

        /// Deletes the plugin's Deployment and waits for its successor: some host reconciles.
        async fn reconciles(&self, process: &Process) {
            let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), "default");
            let uid = async || {
                let found = deployments.get_opt("example-appservice").await.ok().flatten();
                found.and_then(|deployment| deployment.metadata.uid)
            };
            self.until(process, "the Deployment comes", async || uid().await.is_some())
                .await;
            let before = uid().await;
            let _ = deployments
                .delete("example-appservice", &DeleteParams::background())
                .await;
            self.until(process, "the Deployment comes again", async || {
                let now = uid().await;
                now.is_some() && now != before
            })
            .await;
        }
    }

    fn digest(reference: &str) -> &str {
        reference.split_once('@').unwrap().1
    }

    async fn ended(mut process: Process) {
        process.signal(Signal::TERM);
        process.ended().await;
    }

    #[tokio::test]
    async fn a_signed_plugin_moves_and_survives_its_registry() {
        let mut shop = Shop::open(Registry::docker().unwrap());
        let (key, other) = (
            shop.cosign.generate_key("release").unwrap(),
            shop.cosign.generate_key("other").unwrap(),
        );
        let first = shop.push("app-service", 1, "stable");
        shop.sign(&first, &key, Format::Bundle);
        let trust = shop.trust(&[&key]);
        let verified = shop.desk.run(&["verify", &first, "--policy", &trust]);
        assert_eq!(verified.code, 0, "{}", verified.said);

        let ship = Ship::launch().await;
        let docker = STANDARD.encode(shop.registry.docker_config().to_string());
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": "registry", "namespace": "default"}, "data": {".dockerconfigjson": docker}});
        create(ship.client.clone(), &secret).await;
        let process = ship.host(&shop, &trust);
        ship.until(&process, "the CRD of Plugin comes", async || {
            ship.plugins().list(&ListParams::default()).await.is_ok()
        })
        .await;
        let reference = shop.registry.reference("plugins/app-service:stable");
        let plugin = json!({"apiVersion": "pilothouse.dev/v1alpha1", "kind": "Plugin", "metadata": {"name": "app-service"},
            "spec": {"limits": {"callMilliseconds": 10_000}, "source": {"oci": {
                "reference": reference, "updatePolicy": "Tag", "interval": "10s", "pullSecret": "registry"}}}});
        create(ship.client.clone(), &plugin).await;
        ship.says(&process, "Verified", "True", "Verified", &["release", digest(&first)])
            .await;
        ship.says(&process, "Ready", "True", "Running", &[]).await;
        ship.runs(&process, digest(&first)).await;
        let sample =
            fs::read_to_string(pilothouse_end_to_end::components::root().join("deploy/samples/app-service.yaml"));
        let mut sample: Value = serde_saphyr::from_str(&sample.unwrap()).unwrap();
        sample["metadata"]["namespace"] = json!("default");
        create(ship.client.clone(), &sample).await;
        ship.reconciles(&process).await;

        // The tag moves to what nobody has signed, then to what somebody else has signed: the old version goes on.
        let forged = shop.push("app-service", 2, "stable");
        ship.says(&process, "Verified", "False", "SignatureMissing", &[digest(&forged)])
            .await;
        shop.sign(&forged, &other, Format::Bundle);
        ship.says(&process, "Verified", "False", "UnknownSigner", &[digest(&forged)])
            .await;
        ship.says(&process, "Ready", "True", "PreviousVersion", &[]).await;
        ship.runs(&process, digest(&first)).await;
        ship.reconciles(&process).await;

        // It moves to what is signed, in cosign's older format.
        let second = shop.push("app-service", 3, "stable");
        shop.sign(&second, &key, Format::Tag);
        ship.runs(&process, digest(&second)).await;
        ship.says(&process, "Ready", "True", "Running", &[]).await;
        let events: Api<Event> = Api::all(ship.client.clone());
        ship.until(&process, "the move is an event", async || {
            let events = events.list(&ListParams::default()).await.unwrap().items.into_iter();
            let mut notes = events.filter_map(|event| event.message);
            notes.any(|note| note.contains(digest(&second)) && note.contains(digest(&first)))
        })
        .await;

        // For a cluster without a network, with the signature.
        let layout = format!("oci-layout:{}/app:stable", shop.desk.path("plugin-dir"));
        shop.desk.run(&["copy", &second, &layout]);

        // The registry is gone: the host restarts and runs.
        ended(process).await;
        shop.registry.stop().unwrap();
        let process = ship.host(&shop, &trust);
        ship.says(&process, "Fetched", "False", "Unreachable", &[&reference])
            .await;
        ship.says(&process, "Ready", "True", "Running", &[]).await;
        ship.runs(&process, digest(&second)).await;
        ship.reconciles(&process).await;

        // The same from the layout.
        let change = json!({"spec": {"source": {"oci": {"reference": "oci-layout:app:stable", "pullSecret": null}}}});
        let patch = Patch::Merge(change);
        ship.plugins()
            .patch("app-service", &PatchParams::default(), &patch)
            .await
            .unwrap();
        ship.says(
            &process,
            "Fetched",
            "True",
            "Fetched",
            &["oci-layout:app:stable", digest(&second)],
        )
        .await;
        ship.says(&process, "Verified", "True", "Verified", &["release"]).await;
        ship.says(&process, "Ready", "True", "Running", &[]).await;
        ship.reconciles(&process).await;

        // The key is revoked: what runs goes on until the next start.
        shop.trust(&[&other]);
        ship.says(&process, "Verified", "False", "UnknownSigner", &[]).await;
        ship.says(&process, "Ready", "True", "PreviousVersion", &[]).await;
        ship.reconciles(&process).await;
        ended(process).await;
        let process = ship.host(&shop, &trust);
        ship.says(&process, "Ready", "False", "UnknownSigner", &[]).await;
        ended(process).await;
    }

    /// Both registries, which differ in TLS, authentication and the referrers API.
    fn registries() -> [Registry; 2] {
        [Registry::docker().unwrap(), Registry::with_referrers().unwrap()]
    }

    #[test]
    fn pushed_copied_and_signed_artifacts_are_in_both_registries() {
        for registry in registries() {
            let shop = Shop::open(registry);
            let key = shop.cosign.generate_key("release").unwrap();
            for (mark, format) in [(1, Format::Bundle), (2, Format::Tag)] {
                let reference = shop.push("app-service", mark, "0.1.0");
                assert_eq!(
                    shop.push("app-service", mark, "0.1.0"),
                    reference,
                    "the digest does not change"
                );
                let key_file = key.public_file().display().to_string();
                shop.desk
                    .refuses(&["verify", &reference, "--key", &key_file], 1, &["signature"]);
                shop.sign(&reference, &key, format);
                for artifact in [
                    reference.clone(),
                    format!(
                        "oci-layout:{}@{}",
                        shop.desk.path(&format!("copy-{mark}")),
                        digest(&reference)
                    ),
                    shop.registry.reference(&format!("copies/app@{}", digest(&reference))),
                ] {
                    if artifact != reference {
                        let Ended { code, said, .. } =
                            shop.desk
                                .run(&["copy", &reference, artifact.split('@').next().unwrap()]);
                        assert_eq!(code, 0, "{artifact}: {said}");
                    }
                    let verified = shop.desk.run(&["verify", &artifact, "--key", &key_file]);
                    assert_eq!(verified.code, 0, "{artifact}: {}", verified.said);
                }
                let pulled = shop.desk.path("pulled.wasm");
                shop.desk.prints(&["pull", &reference, "-o", &pulled]);
                assert_eq!(
                    fs::read(&pulled).unwrap(),
                    fs::read(shop.version("app-service", mark)).unwrap()
                );
                fs::remove_file(&pulled).unwrap();
            }
            let tags = shop
                .desk
                .prints(&["tags", &shop.registry.reference("plugins/app-service")]);
            assert!(tags.lines().any(|tag| tag == "0.1.0"), "{tags}");
        }
    }

    #[test]
    fn oras_pulls_what_is_pushed_and_its_artifacts_are_pulled() {
        for registry in registries() {
            let shop = Shop::open(registry);
            let oras = Oras::new();
            let reference = shop.push("app-service", 1, "0.1.0");
            let name = reference.split_once('/').unwrap().1;
            let bytes = fs::read(shop.version("app-service", 1)).unwrap();
            let pulled = oras.pull(&shop.registry, name).unwrap();
            assert!(
                pulled.iter().any(|(_, content)| *content == bytes),
                "the component is among the files"
            );
            let layers = [Layer {
                name: "plugin.wasm",
                media_type: "application/wasm",
                bytes: &bytes,
            }];
            let artifact = Artifact {
                layers: &layers,
                ..Artifact::default()
            };
            oras.push(&shop.registry, "oras/app-service:1", &artifact).unwrap();
            let pushed = shop.registry.reference("oras/app-service:1");
            let inspected = shop.desk.prints(&["inspect", &format!("oci://{pushed}")]);
            assert!(inspected.contains("kosmos.io AppService"), "{inspected}");
            let file = shop.desk.path("of-oras.wasm");
            shop.desk.prints(&["pull", &pushed, "-o", &file]);
            assert_eq!(fs::read(&file).unwrap(), bytes);
        }
    }

    mod wkg {
        use super::*;

        #[test]
        fn wkg_pulls_what_is_pushed_and_its_artifacts_are_inspected() {
            let shop = Shop::open(Registry::with_referrers().unwrap());
            let wkg = Wkg::new();
            let reference = shop.push("app-service", 1, "0.1.0");
            let bytes = fs::read(shop.version("app-service", 1)).unwrap();
            let pulled = wkg.pull(&shop.registry, "plugins/app-service:0.1.0").unwrap();
            assert_eq!(pulled, bytes);
            let file = shop.version("app-service", 1);
            wkg.push(
                &shop.registry,
                "wkg/app-service:0.1.0",
                &fs::read(Path::new(&file)).unwrap(),
                &[],
            )
            .unwrap();
            let inspected = shop.desk.prints(&[
                "inspect",
                &format!("oci://{}", shop.registry.reference("wkg/app-service:0.1.0")),
            ]);
            assert!(inspected.contains("app-service"), "{reference}: {inspected}");
        }
    }

    #[test]
    fn the_page_on_publishing_publishes_signs_and_verifies_a_plugin() {
        let shop = Shop::open(Registry::with_referrers().unwrap());
        let section = documentation::section("docs/publishing.md", "Publish a plugin");
        let trust = section.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
        let here = |text: &str| text.replace("registry.example", &shop.registry.address());
        shop.desk.0.file("trust.yaml", here(trust));
        fs::create_dir_all(shop.desk.path("target/plugins")).unwrap();
        fs::copy(
            component("app-service"),
            shop.desk.path("target/plugins/app-service.wasm"),
        )
        .unwrap();
        let commands = documentation::commands("docs/publishing.md", "Publish a plugin");
        // What is built is there, and the host has a test of its own.
        let is_run = |line: &&String| !line.starts_with("pilothouse build ") && !line.starts_with("pilothouse run ");
        let script: Vec<_> = commands.iter().filter(is_run).map(|line| here(line)).collect();
        assert_eq!(script.len(), 6, "{commands:#?}");
        let folders = [program(), Program::Cosign.path()].map(|file| file.parent().unwrap().display().to_string());
        let path = format!("{}:{}", folders.join(":"), std::env::var("PATH").unwrap());
        let mut shell = shop.desk.program(Path::new("sh"));
        shell
            .arg("-euxc")
            .arg(script.join("\n"))
            .env("PATH", path)
            .env("COSIGN_PASSWORD", "");
        let Ended { code, printed, said } = ended_of(&mut shell);
        assert_eq!(code, 0, "{printed}\n{said}");
        assert!(
            printed.contains("kosmos.io AppService"),
            "inspect says what it touches: {printed}"
        );
    }

    #[test]
    fn a_host_runs_a_plugin_by_reference_and_names_failed_pulls() {
        let shop = Shop::open(Registry::docker().unwrap());
        let reference = format!("oci://{}", shop.push("app-service", 1, "0.1.0"));
        let absent = format!("oci://{}", shop.registry.reference("plugins/absent:1"));
        let run = |reference: &str| {
            shop.desk
                .run(&["run", "--plugin", reference, "--kubeconfig", "none.yaml"])
        };
        // The plugin is there, and so the host goes on to the cluster, which is not.
        let Ended { said, .. } = run(&reference);
        assert!(
            said.contains("fetched the plugin") && said.contains("none.yaml"),
            "{said}"
        );
        let Ended { said, .. } = run(&absent);
        assert!(
            said.contains("the plugin cannot be fetched") && said.contains("plugins/absent"),
            "{said}"
        );
    }

    #[test]
    fn wrong_credentials_and_an_unknown_authority_are_named() {
        let shop = Shop::open(Registry::docker().unwrap());
        let reference = shop.push("app-service", 1, "0.1.0");
        shop.desk.0.file("docker/config.json", "{}");
        shop.desk
            .refuses(&["pull", &reference], 1, &[&reference, "credentials", "docker login"]);
        shop.desk.0.file("pilothouse/registries.yaml", "registries: []");
        shop.desk
            .refuses(&["pull", &reference], 1, &["certificate", "certificateAuthorities"]);
        let Ended { code, said, .. } = shop.desk.run(&["pull", &reference, "--registries", "none.yaml"]);
        assert!(code == 1 && said.contains("none.yaml"), "{said}");
    }
}
