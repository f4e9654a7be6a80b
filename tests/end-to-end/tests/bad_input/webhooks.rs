//! Tests of bad requests to a running host's webhooks: broken reviews, and clients that do not speak TLS, send nothing
//! or trust another CA. Each gets an error, and the host serves others as before.

pub(crate) mod simulated {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};

    use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::DeleteParams;
    use pilothouse_core::admission::configuration::{WebhookContext, without_bundles};
    use pilothouse_core::admission::render::{WebhookInterfaces, rendered};
    use pilothouse_core::plugin::manifest;
    use pilothouse_end_to_end::host::webhooks;
    use pilothouse_end_to_end::log::Guests;
    use pilothouse_end_to_end::webhooks::{Asker, gate_review};
    use pilothouse_runtime::Maker;
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};

    use crate::certificates::simulated::{bundle, made_for, text_of};
    use crate::stage::{Stage, unhurried};

    const PATH: &str = "/validate/gate/gates";
    const JSON: &str = "application/json";

    /// A host with the plugin gate whose webhooks are in place, and a client that trusts them.
    async fn served() -> (Stage, SocketAddr, Asker) {
        let mut stage = Stage::empty(unhurried());
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "harbour"}});
        stage.create(&namespace).await;
        stage.host.serve_webhooks("harbour").unwrap();
        let specs = vec![stage.host.spec("gate").unwrap()];
        stage.start(specs).await;
        let address = stage.until(address).await.expect("webhooks are in place");
        let asker = Asker::new(address, &bundle(&stage));
        asker.is_served();
        (stage, address, asker)
    }

    /// Address in the webhook configurations.
    pub(crate) fn address(stage: &Stage) -> Option<SocketAddr> {
        let configuration = stage.all("ValidatingWebhookConfiguration").into_iter().next()?;
        let url = configuration["webhooks"][0]["clientConfig"]["url"].as_str()?.to_owned();
        let (address, _) = url.strip_prefix("https://")?.split_once('/')?;
        address.parse().ok()
    }

    fn changed(change: impl FnOnce(&mut Value)) -> Vec<u8> {
        let mut review = gate_review(&json!({"size": 1}));
        change(&mut review);
        review.to_string().into_bytes()
    }

    /// Bodies that are no reviews, and the words of their refusals.
    fn broken() -> Vec<(Vec<u8>, &'static str)> {
        let shape = "not an AdmissionReview";
        vec![
            (b"{".to_vec(), shape),
            (Vec::new(), shape),
            (vec![0xff, 0xfe], shape),
            (b"[[[[".repeat(10_000), shape),
            (
                changed(|it| it["apiVersion"] = json!("admission.k8s.io/v1beta1")),
                "list v1 in admissionReviewVersions",
            ),
            (changed(|it| it["kind"] = json!("Pod")), "is Pod of"),
            (changed(|it| it["request"] = Value::Null), "no request"),
            (changed(|it| it["request"]["object"] = Value::Null), "no request.object"),
            (changed(|it| it["request"]["object"] = json!(7)), "invalid type"),
            (
                changed(|it| it["request"]["operation"] = json!("CONNECT")),
                "\"CONNECT\" is not reviewed",
            ),
            (
                changed(|it| it["request"]["kind"]["kind"] = json!("Door")),
                "and judges gate.test.dev/v1 Gate alone",
            ),
        ]
    }

    /// Method, path and type of content, and with which code and words a review that comes so is refused.
    const MISDIRECTED: [(&str, &str, &str, u16, &str); 8] = [
        ("GET", PATH, JSON, 405, "only POST"),
        ("DELETE", PATH, JSON, 405, "only POST"),
        ("POST", PATH, "text/plain", 415, "only application/json"),
        ("POST", "/", JSON, 404, "/default, /validate and /convert are"),
        ("POST", "/validate/none/gates", JSON, 404, "no plugin none"),
        ("POST", "/default/gate/none", JSON, 404, "a controller none"),
        ("POST", "/convert/none", JSON, 404, "no plugin none that converts"),
        ("POST", "/convert/gate", JSON, 400, "ConversionReview"),
    ];

    #[tokio::test]
    async fn a_broken_question_is_told_what_is_wrong_with_it() {
        let (stage, _, asker) = served().await;
        for (body, words) in broken() {
            let (code, answer) = asker.ask("POST", PATH, JSON, &body).unwrap();
            assert!(code == 400 && answer.contains(words), "{words}: {code} {answer}");
            asker.is_served();
        }
        for (method, path, kind, expected, words) in MISDIRECTED {
            let (code, answer) = asker.ask(method, path, kind, &changed(|_| {})).unwrap();
            assert!(
                code == expected && answer.contains(words),
                "{method} {path} {kind}: {code} {answer}"
            );
            asker.is_served();
        }
        // Who has more to say than is listened to may meet a closed door before reading why.
        if let Ok((code, answer)) = asker.ask("POST", PATH, JSON, &vec![b' '; 9 * 1024 * 1024]) {
            assert!(
                code == 413 && answer.contains("more than 8388608 bytes"),
                "{code} {answer}"
            );
        }
        asker.is_served();
        stage.stop().await;
    }

    #[tokio::test]
    async fn log_lines_of_convert_count_against_the_limit() {
        const OBJECTS: u64 = 40;
        // The guest logs sixty lines of a kilobyte for each object.
        const LINES: u64 = OBJECTS * 60;
        let guests = Guests::listen();
        let (stage, _, asker) = served().await;
        let before = guests.lines_of("gate");
        let gate = |number| {
            let metadata = json!({"name": format!("gate-{number}"), "namespace": "default"});
            let spec = json!({"size": 1, "behaviour": "chatter"});
            json!({"apiVersion": "gate.test.dev/v1", "kind": "Gate", "metadata": metadata, "spec": spec})
        };
        let objects: Vec<Value> = (0..OBJECTS).map(gate).collect();
        let request = json!({"uid": "1", "desiredAPIVersion": "gate.test.dev/v2", "objects": objects});
        let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request});
        let (code, answer) = asker
            .ask("POST", "/convert/gate", JSON, review.to_string().as_bytes())
            .unwrap();
        assert!(code == 200 && answer.contains("\"Success\""), "{code} {answer}");
        let told = stage.until(|_| (guests.lines_of("gate").dropped > before.dropped).then_some(()));
        assert!(told.await.is_some(), "{:?}", guests.lines_of("gate"));
        let logged = guests.lines_of("gate").logged - before.logged;
        assert!((1..LINES / 2).contains(&logged), "{logged} of {LINES} lines");
        stage.stop().await;
    }

    #[tokio::test]
    async fn an_object_as_large_as_an_api_server_takes_is_judged() {
        let (stage, _, asker) = served().await;
        let padding = "x".repeat(3 * 1024 * 1024);
        let refused = asker.judge(&json!({"size": -1, "padding": padding}));
        let message = refused["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains("spec.size: Invalid value: -1"), "{message}");
        assert!(message.len() < 1000, "the answer is no larger for it");
        asker.is_served();
        stage.stop().await;
    }

    #[tokio::test]
    async fn a_client_that_does_not_agree_on_tls_disturbs_nobody() {
        let (stage, address, asker) = served().await;
        let mut plain = TcpStream::connect(address).unwrap();
        plain.write_all(b"POST /validate/gate/gates HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        plain.read_to_string(&mut answer).unwrap();
        assert!(
            answer.contains("400 Bad Request") && answer.contains("HTTPS only"),
            "{answer}"
        );
        asker.is_served();

        // They stay as long as they like, some in the middle of a handshake.
        let silent: Vec<TcpStream> = (0..50)
            .map(|number| {
                let mut stream = TcpStream::connect(address).unwrap();
                if number % 2 == 0 {
                    stream.write_all(&[22, 3, 1]).unwrap();
                }
                stream
            })
            .collect();
        asker.is_served();
        drop(silent);

        let mut garbled = TcpStream::connect(address).unwrap();
        garbled.write_all(&[22; 600]).unwrap();
        let mut answer = Vec::new();
        // An alert, or a closed connection.
        let _ = garbled.read_to_end(&mut answer);
        asker.is_served();

        let other = Asker::new(address, text_of(&made_for("127.0.0.1"), "ca.crt"));
        let refused = other.ask("POST", PATH, JSON, b"{}").unwrap_err().to_string();
        assert!(
            refused.contains("UnknownIssuer") || refused.contains("BadSignature"),
            "{refused}"
        );
        asker.is_served();
        stage.stop().await;
    }

    #[tokio::test]
    async fn missing_installer_objects_are_reported_then_get_their_ca() {
        let mut stage = Stage::empty(unhurried());
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "harbour"}});
        stage.create(&namespace).await;
        let mut options = webhooks("harbour", "webhooks").unwrap();
        options.maker = Maker::Installer;
        let common = WebhookContext {
            plugin: "gate",
            endpoint: &options.endpoint.clone(),
            bundle: "",
            own_namespace: "harbour",
            host: &options.secret.label(),
        };
        stage.host.serve(options);
        let specs = vec![stage.host.spec("gate").unwrap()];
        let described = specs[0].component.describe(None, &unhurried()).unwrap();
        let checked = manifest::parse(&described).unwrap();
        let exports = WebhookInterfaces {
            defaulter: true,
            validator: true,
            converter: false,
        };
        let documents = rendered(&common, exports, &checked).unwrap();
        stage.start(specs).await;
        let missed = |stage: &Stage| {
            let lines = stage.lines(&["Mutating pilothouse-gate, which an installer is to make, is not there"]);
            (!lines.is_empty()).then_some(())
        };
        stage
            .until(missed)
            .await
            .unwrap_or_else(|| panic!("{}", stage.host.log_tail()));
        assert!(stage.all("MutatingWebhookConfiguration").is_empty());

        let mut changed = documents[1].clone();
        changed["webhooks"][0]["timeoutSeconds"] = json!(29);
        stage.create(&documents[0]).await;
        stage.create(&changed).await;
        let differs = |stage: &Stage| {
            let lines = stage.lines(&[
                "Validating pilothouse-gate",
                "asks for something else than the host answers",
            ]);
            (!lines.is_empty()).then_some(())
        };
        stage
            .until(differs)
            .await
            .unwrap_or_else(|| panic!("{}", stage.host.log_tail()));
        let client = stage.cluster.client().await.unwrap();
        let api: Api<ValidatingWebhookConfiguration> = Api::all(client);
        api.delete("pilothouse-gate", &DeleteParams::default()).await.unwrap();
        stage.create(&documents[1]).await;

        let vouched = |stage: &Stage| {
            let configuration = stage.all("ValidatingWebhookConfiguration").into_iter().next()?;
            let is_vouched = configuration["webhooks"][0]["clientConfig"]["caBundle"].is_string();
            is_vouched.then_some(configuration)
        };
        let configuration = stage.until(vouched).await;
        let configuration = configuration.unwrap_or_else(|| panic!("{}", stage.host.log_tail()));
        assert_eq!(
            without_bundles(&configuration)["webhooks"],
            documents[1]["webhooks"],
            "nothing else is changed"
        );
        let asker = Asker::new(address(&stage).unwrap(), &bundle(&stage));
        asker.is_served();
        stage.stop().await;
    }

    fn gate(name: &str, spec: &Value) -> Value {
        let metadata = json!({"name": name, "namespace": "default"});
        json!({"apiVersion": "gate.test.dev/v1", "kind": "Gate", "metadata": metadata, "spec": spec})
    }

    #[tokio::test]
    async fn an_object_stored_without_review_is_validated_at_reconcile() {
        let (mut stage, _, _) = served().await;
        // Somebody has the API server not ask for a while: as where a policy is Ignore, or a selector leaves it out.
        let client = stage.cluster.client().await.unwrap();
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(client);
        validating
            .delete("pilothouse-gate", &DeleteParams::default())
            .await
            .unwrap();
        mutating
            .delete("pilothouse-gate", &DeleteParams::default())
            .await
            .unwrap();
        stage.create(&gate("bad", &json!({"size": -1}))).await;
        stage.create(&gate("bare", &json!({"size": 1}))).await;
        let refused = |stage: &Stage| stage.reconciled("Gate", "bad").filter(|it| it["status"] == "False");
        let refused = stage.until(refused).await;
        let refused = refused.unwrap_or_else(|| panic!("it is reconciled: {:?}", stage.find("ConfigMap", "bad")));
        assert!(
            refused["message"].as_str().unwrap().contains("must be 0 to 1000"),
            "{refused}"
        );
        assert!(stage.find("ConfigMap", "bad").is_none());
        // What was not defaulted is, for its reconcile.
        let bare = |stage: &Stage| stage.find("ConfigMap", "bare");
        assert_eq!(stage.until(bare).await.unwrap()["data"]["colour"], "\"blue\"");
        stage.host.resync().await.unwrap();
        stage.host.settled().await.unwrap();
        assert!(stage.find("ConfigMap", "bad").is_none());
        stage.stop().await;
    }

    #[tokio::test]
    async fn an_object_reviewed_at_admission_is_not_reviewed_twice() {
        let (mut stage, _, _) = served().await;
        let leave =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "leave", "namespace": "default"}});
        stage.create(&leave).await;
        stage.host.settled().await.unwrap();
        stage
            .create(&gate("asking", &json!({"size": 1, "behaviour": "ask-leave"})))
            .await;
        let reconciled = |stage: &Stage| stage.is_reconciled("Gate", "asking").then_some(());
        stage
            .until(reconciled)
            .await
            .unwrap_or_else(|| panic!("{}", stage.host.log_tail()));
        let client = stage.cluster.client().await.unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(client, "default");
        maps.delete("leave", &DeleteParams::default()).await.unwrap();
        stage.host.settled().await.unwrap();
        stage.host.resync().await.unwrap();
        stage.host.settled().await.unwrap();
        // What was said at admission does not count: this process and the next have to come to the same result.
        let refused = |stage: &Stage| stage.reconciled("Gate", "asking").filter(|it| it["status"] == "False");
        let by_the_first = stage.until(refused).await.expect("it is judged again");
        stage.host.stop().await.unwrap();
        let specs = vec![stage.host.spec("gate").unwrap()];
        let mark = stage.mark();
        stage.start(specs).await;
        stage.host.settled().await.unwrap();
        let writes = stage.host_writes_since(mark);
        assert!(writes.iter().all(|write| write.resource != "gates"), "{writes:?}");
        let refused = refused(&stage).expect("it is as it was");
        assert_eq!(refused, by_the_first);
        assert!(
            refused["message"]
                .as_str()
                .unwrap()
                .contains("there is no ConfigMap leave"),
            "{refused}"
        );
        stage.stop().await;
    }

    #[tokio::test]
    async fn abandoned_calls_keep_their_slots_until_they_end() {
        let (stage, address, asker) = served().await;
        let bundle = bundle(&stage);
        // As many as a plugin may have; each loops for ten seconds, and is given up after one.
        let looping: Vec<_> = (0..8)
            .map(|_| {
                let asker = Asker::new(address, &bundle);
                std::thread::spawn(move || {
                    let review = gate_review(&json!({"size": 1, "behaviour": "loop"})).to_string();
                    asker.ask("POST", &format!("{PATH}?timeout=1s"), JSON, review.as_bytes())
                })
            })
            .collect();
        for call in looping {
            let (code, answer) = call.join().unwrap().unwrap();
            assert!(
                code == 504 && answer.contains("was not answered within 1s"),
                "{code} {answer}"
            );
        }
        let review = gate_review(&json!({"size": 1})).to_string();
        let (code, answer) = asker
            .ask("POST", &format!("{PATH}?timeout=1s"), JSON, review.as_bytes())
            .unwrap();
        assert_eq!(code, 504, "their turns are still taken: {answer}");
        let (code, answer) = asker
            .ask("POST", &format!("{PATH}?timeout=30s"), JSON, review.as_bytes())
            .unwrap();
        assert_eq!(code, 200, "once they have ended it is served: {answer}");
        stage.stop().await;
    }

    #[tokio::test]
    async fn an_object_that_is_nested_too_deeply_is_refused() {
        let (stage, _, asker) = served().await;
        let deep = "[".repeat(5000) + &"]".repeat(5000);
        for spec in [json!({"size": 1}), json!({"size": -1})] {
            let review = gate_review(&spec).to_string();
            for addition in [format!("\"deep\":{deep},"), "\"huge\":1e999,".to_owned()] {
                let body = review.replace("\"size\"", &(addition + "\"size\""));
                for path in [PATH, "/default/gate/gates"] {
                    let (code, answer) = asker.ask("POST", path, JSON, body.as_bytes()).unwrap();
                    assert!(
                        (200..=500).contains(&code) && !answer.contains("panicked"),
                        "{code} {answer}"
                    );
                    assert!(!answer.contains("\"allowed\":true"), "{answer}");
                }
            }
        }
        asker.is_served();
        stage.stop().await;
    }
}
