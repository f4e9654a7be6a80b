//! Certificates that are not as a host left them: what it finds in its Secret may have run out, be somebody else's or no
//! certificate at all, and another host may write it at the same moment.

pub(crate) mod simulated {
    use std::collections::{BTreeMap, BTreeSet};
    use std::net::SocketAddr;
    use std::time::{Duration, SystemTime};

    use k8s_openapi::ByteString;
    use k8s_openapi::api::core::v1::Secret;
    use kube::Api;
    use kube::api::{DeleteParams, PostParams};
    use pilothouse_end_to_end::host::{RuntimeHost, webhooks};
    use pilothouse_end_to_end::webhooks::{Asker, certificates, shown};
    use pilothouse_runtime::clock::WallClock;
    use pilothouse_runtime::{HostOptions, Lifetimes};
    use pilothouse_testkit::host::SteeredHost as _;
    use pilothouse_webhook::certificates::Certificates;
    use serde_json::{Value, json};

    use crate::stage::{Stage, unhurried};
    use crate::webhooks::simulated::address;

    const HARBOUR: &str = "harbour";
    const DAY: Duration = Duration::from_hours(24);

    type Texts = BTreeMap<&'static str, Vec<u8>>;

    fn texts(certificates: &Certificates) -> Texts {
        let Certificates {
            bundle,
            authority_key,
            certificate,
            key,
        } = certificates;
        let texts = [
            ("ca.crt", bundle),
            ("ca.key", authority_key),
            ("tls.crt", certificate),
            ("tls.key", key),
        ];
        texts.map(|(key, text)| (key, text.clone().into_bytes())).into()
    }

    /// Content of a Secret with certificates for a name.
    pub(crate) fn made_for(name: &str) -> Texts {
        let made = Certificates::make(&[name.to_owned()], SystemTime::now(), &Lifetimes::default());
        texts(&made.unwrap())
    }

    pub(crate) fn text_of<'a>(texts: &'a Texts, key: &str) -> &'a str {
        std::str::from_utf8(&texts[key]).unwrap()
    }

    /// The text of a key in the Secret of a host that has started.
    fn kept(stage: &Stage, key: &str) -> Option<String> {
        let secret: Secret = serde_json::from_value(stage.find("Secret", "webhooks")?).unwrap();
        String::from_utf8(secret.data?.remove(key)?.0).ok()
    }

    /// The authorities that vouch for a host that has started.
    pub(crate) fn bundle(stage: &Stage) -> String {
        kept(stage, "ca.crt").unwrap()
    }

    async fn harbour() -> Stage {
        let stage = Stage::empty(unhurried());
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HARBOUR}});
        stage.create(&namespace).await;
        stage
    }

    /// The label of the host's own Secret.
    const OWN: Option<&str> = Some("harbour.webhooks");

    /// Stores this where the host keeps its certificates.
    async fn keep(stage: &Stage, found: &Texts, kind: &str, label: Option<&str>) -> Secret {
        let labels = label.map(|label| [("pilothouse.dev/webhooks".to_owned(), label.to_owned())].into());
        let secret = Secret {
            metadata: kube::core::ObjectMeta {
                name: Some("webhooks".to_owned()),
                annotations: Some([("note".to_owned(), "somebody's".to_owned())].into()),
                labels,
                ..Default::default()
            },
            type_: Some(kind.to_owned()),
            data: Some(
                found
                    .iter()
                    .map(|(key, text)| ((*key).to_owned(), ByteString(text.clone())))
                    .collect(),
            ),
            ..Secret::default()
        };
        let client = stage.cluster.client().await.unwrap();
        let secrets: Api<Secret> = Api::namespaced(client, HARBOUR);
        secrets.create(&PostParams::default(), &secret).await.unwrap()
    }

    /// A host that finds this in its Secret; what it shows is taken by who trusts what it tells API servers.
    async fn recovers_from(what: &str, found: Texts, kind: &str, label: Option<&str>) {
        let mut stage = harbour().await;
        keep(&stage, &found, kind, label).await;
        stage.host.serve_webhooks(HARBOUR).unwrap();
        let specs = vec![stage.host.spec("gate").unwrap()];
        stage.start(specs).await;
        let address = stage.until(address).await;
        let address = address.unwrap_or_else(|| panic!("{what}: {}", stage.host.log_tail()));
        let made = kept(&stage, "tls.crt").unwrap();
        assert_ne!(Some(made.as_bytes()), found.get("tls.crt").map(Vec::as_slice), "{what}");
        let metadata = &stage.find("Secret", "webhooks").unwrap()["metadata"];
        assert_eq!(
            metadata["labels"]["pilothouse.dev/webhooks"], "harbour.webhooks",
            "{what}"
        );
        assert_eq!(
            metadata["annotations"]["note"], "somebody's",
            "{what}: the rest of it stays"
        );
        Asker::new(address, &bundle(&stage)).is_served();
        stage.stop().await;
    }

    #[tokio::test]
    async fn what_a_host_finds_and_cannot_show_is_made_anew() {
        const TLS: &str = "kubernetes.io/tls";
        let long_ago = SystemTime::now() - 500 * DAY;
        let expired = Certificates::make(&["127.0.0.1".to_owned()], long_ago, &Lifetimes::default()).unwrap();
        recovers_from("all of it has run out", texts(&expired), TLS, None).await;
        let late = SystemTime::now() - 100 * DAY;
        let expired = Certificates::make(&["127.0.0.1".to_owned()], late, &Lifetimes::default()).unwrap();
        recovers_from("the certificate has run out", texts(&expired), TLS, None).await;
        recovers_from("it is for another name", made_for("elsewhere.example"), TLS, None).await;
        let garbled = ["ca.crt", "ca.key", "tls.crt", "tls.key"].map(|key| (key, b"nonsense".to_vec()));
        recovers_from("it is no certificate", garbled.into(), TLS, OWN).await;
        let binary = ["ca.crt", "ca.key", "tls.crt", "tls.key"].map(|key| (key, vec![0xff, 0]));
        recovers_from("it is no text", binary.into(), TLS, OWN).await;
        let mut strange = made_for("127.0.0.1");
        strange.extend([("tls.crt", made_for("127.0.0.1")["tls.crt"].clone())]);
        recovers_from("another authority has signed it", strange, TLS, None).await;
        let mut strange = made_for("127.0.0.1");
        strange.remove("ca.key");
        recovers_from("the authority's key is lost", strange, TLS, OWN).await;
        recovers_from("it is empty", Texts::new(), "Opaque", None).await;
    }

    #[tokio::test]
    async fn a_secret_of_somebody_else_is_left_alone_and_named() {
        let mut stage = harbour().await;
        let mut foreign = made_for("shop.example");
        foreign.retain(|key, _| key.starts_with("tls."));
        let before = keep(&stage, &foreign, "kubernetes.io/tls", None).await;
        stage.host.serve_webhooks(HARBOUR).unwrap();
        let specs = vec![stage.host.spec("gate").unwrap()];
        stage.start(specs).await;
        let said = stage
            .until(|stage| stage.lines(&["the webhooks are not ready"]).pop())
            .await
            .unwrap_or_else(|| panic!("{}", stage.host.log_tail()));
        for words in [
            "the Secret harbour/webhooks is not the webhooks' own",
            "it holds tls.crt, tls.key without the label",
            "--webhook-secret",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        let secret: Secret = serde_json::from_value(stage.find("Secret", "webhooks").unwrap()).unwrap();
        assert_eq!(secret.metadata.resource_version, before.metadata.resource_version);
        // Its gates are judged before they are reconciled, and the host goes on.
        let gate = json!({
            "apiVersion": "gate.test.dev/v1", "kind": "Gate",
            "metadata": {"name": "bad", "namespace": "default"}, "spec": {"size": -1},
        });
        stage.host.settled().await.unwrap();
        stage.create(&gate).await;
        let refused = |stage: &Stage| stage.reconciled("Gate", "bad").filter(|it| it["status"] == "False");
        let refused = stage.until(refused).await.unwrap();
        assert!(
            refused["message"].as_str().unwrap().contains("must be 0 to 1000"),
            "{refused}"
        );

        // Once it is gone, the host makes its own.
        let secrets: Api<Secret> = Api::namespaced(stage.cluster.client().await.unwrap(), HARBOUR);
        secrets.delete("webhooks", &DeleteParams::default()).await.unwrap();
        let address = stage.until(address).await.expect("webhooks are in place");
        Asker::new(address, &bundle(&stage)).is_served();
        stage.stop().await;
    }

    /// The configuration's bundle, by which API servers judge what they are shown.
    fn trusted(stage: &Stage) -> Option<String> {
        use base64::Engine as _;
        let configuration = stage.all("ValidatingWebhookConfiguration").into_iter().next()?;
        let bundle = configuration["webhooks"][0]["clientConfig"]["caBundle"]
            .as_str()?
            .to_owned();
        let pem = base64::engine::general_purpose::STANDARD.decode(bundle).ok()?;
        String::from_utf8(pem).ok()
    }

    /// Two processes of one host, as in a Deployment of two replicas: the same Secret, each with an address of its own.
    async fn second_of(stage: &Stage, options: &HostOptions) -> (RuntimeHost, SocketAddr) {
        let mut options = options.clone();
        let listen = webhooks(HARBOUR, "webhooks").unwrap().listen;
        options.webhooks.as_mut().unwrap().listen = listen;
        let mut host = RuntimeHost::new(options, unhurried());
        let specs = vec![host.spec("gate").unwrap()];
        host.start_with(&stage.cluster, specs).await.unwrap();
        (host, listen)
    }

    #[tokio::test(start_paused = true)]
    async fn hosts_that_share_a_secret_agree_on_one_authority() {
        const MINUTE: Duration = Duration::from_mins(1);
        let mut stage = harbour().await;
        let start = SystemTime::now();
        let since = start.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let mut served = webhooks(HARBOUR, "webhooks").unwrap();
        served.lifetimes = Lifetimes {
            authority: 30 * MINUTE,
            certificate: 12 * MINUTE,
        };
        let first = served.listen;
        let options = HostOptions {
            clock: WallClock::starting_at(u64::try_from(since.as_millis()).unwrap()),
            webhooks: Some(served),
            ..HostOptions::default()
        };
        stage.host = RuntimeHost::new(options.clone(), unhurried());
        let specs = vec![stage.host.spec("gate").unwrap()];
        let began = tokio::time::Instant::now();
        stage.start(specs).await;
        // Neither has made anything yet.
        assert!(stage.find("Secret", "webhooks").is_none());
        let (mut other, second) = second_of(&stage, &options).await;
        stage.until(trusted).await.expect("webhooks are in place");
        tokio::time::sleep(Duration::from_secs(5)).await;

        let (mut shown_so_far, mut keys, mut together) = (BTreeSet::new(), BTreeSet::new(), 0);
        while began.elapsed() < 45 * MINUTE {
            let (bundle, now) = (trusted(&stage).unwrap(), start + began.elapsed());
            let both = [first, second].map(|address| {
                shown(address, &bundle, now).unwrap_or_else(|error| panic!("{error} after {:?}", began.elapsed()))
            });
            together += usize::from(both[0] == both[1]);
            shown_so_far.extend(both.map(|certificate| certificate.to_vec()));
            keys.insert(kept(&stage, "ca.key").unwrap());
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        assert!(together > 250, "they show the same but for moments: {together}");
        // One authority at first, and a second one after two thirds of its life; certificates every eight minutes.
        assert_eq!(
            keys.len(),
            3 - usize::from(began.elapsed() < 41 * MINUTE),
            "each is made once"
        );
        assert!((5..=8).contains(&shown_so_far.len()), "{}", shown_so_far.len());
        assert!(certificates(&bundle(&stage)).len() <= 2);
        other.stop().await.unwrap();
        stage.stop().await;
    }

    /// A host with a Secret of its own, and where it listens.
    async fn another(stage: &Stage, options: HostOptions, lifetimes: Lifetimes) -> (RuntimeHost, SocketAddr) {
        let mut webhooks = webhooks(HARBOUR, "others").unwrap();
        webhooks.lifetimes = lifetimes;
        let listen = webhooks.listen;
        let options = HostOptions {
            webhooks: Some(webhooks),
            ..options
        };
        let mut other = RuntimeHost::new(options, unhurried());
        let specs = vec![other.spec("gate").unwrap()];
        other.start_with(&stage.cluster, specs).await.unwrap();
        (other, listen)
    }

    #[tokio::test(start_paused = true)]
    async fn another_hosts_webhooks_are_kept_and_reported_until_gone() {
        let mut stage = harbour().await;
        stage.host.serve_webhooks(HARBOUR).unwrap();
        let specs = vec![stage.host.spec("gate").unwrap()];
        stage.start(specs).await;
        let first = stage.until(address).await.expect("webhooks are in place");
        let (mut other, second) = another(&stage, HostOptions::default(), Lifetimes::default()).await;
        let told = stage.until(|_| {
            let log = other.log_tail();
            let words = ["webhookconfigurations/pilothouse-gate", "the Secret harbour.webhooks"];
            words.iter().all(|words| log.contains(words)).then_some(())
        });
        assert!(told.await.is_some(), "{}", other.log_tail());

        // Both look at what they have made once an hour.
        let mark = stage.mark();
        tokio::time::sleep(Duration::from_hours(3)).await;
        let mut writes = stage.host_writes_since(mark);
        writes.retain(|write| write.group == "admissionregistration.k8s.io" || write.group == "apiextensions.k8s.io");
        assert_eq!(writes, []);
        assert_eq!(address(&stage), Some(first));

        stage.host.stop().await.unwrap();
        let client = stage.cluster.client().await.unwrap();
        let secrets: Api<Secret> = Api::namespaced(client, HARBOUR);
        secrets.delete("webhooks", &DeleteParams::default()).await.unwrap();
        let taken = stage.until(|stage| (address(stage) == Some(second)).then_some(()));
        assert!(taken.await.is_some(), "{}", other.log_tail());
        other.stop().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_crd_without_conversion_is_free_whatever_its_label() {
        let mut stage = harbour().await;
        stage.host.serve_webhooks(HARBOUR).unwrap();
        let specs = vec![stage.host.spec("gate").unwrap()];
        stage.start(specs).await;
        stage.until(address).await.expect("webhooks are in place");
        let converts = |stage: &Stage| {
            let crd = stage.find("CustomResourceDefinition", "gates.gate.test.dev")?;
            let conversion = &crd["spec"]["conversion"];
            let url = conversion["webhook"]["clientConfig"]["url"].as_str().map(str::to_owned);
            Some((url, crd["metadata"]["labels"]["pilothouse.dev/webhooks"].clone()))
        };
        let made = stage.until(|stage| converts(stage).filter(|(url, _)| url.is_some()));
        assert_eq!(made.await.unwrap().1, "harbour.webhooks");
        stage.host.stop().await.unwrap();

        // As an administrator cleans up; the Secret is still there.
        let client = stage.cluster.client().await.unwrap();
        let patch = |path: &str, body: Value| {
            let request = http::Request::patch(path).header("content-type", "application/merge-patch+json");
            client.request_text(request.body(body.to_string().into_bytes()).unwrap())
        };
        let none = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
        let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gates.gate.test.dev";
        patch(crd, none).await.unwrap();
        for kind in ["mutating", "validating"] {
            let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/pilothouse-gate");
            let request = http::Request::delete(path).body(Vec::new()).unwrap();
            client.request_text(request).await.unwrap();
        }

        let (mut other, second) = another(&stage, HostOptions::default(), Lifetimes::default()).await;
        let there = format!("https://{second}/");
        let taken = stage.until(|stage| {
            let (url, host) = converts(stage)?;
            (url?.starts_with(&there) && host == "harbour.others").then_some(())
        });
        assert!(taken.await.is_some(), "{}", other.log_tail());
        other.stop().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_ca_is_renewed_in_time_though_another_host_has_a_plugin() {
        const MINUTE: Duration = Duration::from_mins(1);
        let mut stage = harbour().await;
        stage.host.serve_webhooks(HARBOUR).unwrap();
        let specs = vec![stage.host.spec("gate").unwrap()];
        stage.start(specs).await;
        stage.until(address).await.expect("webhooks are in place");
        let start = SystemTime::now();
        let since = start.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let options = HostOptions {
            clock: WallClock::starting_at(u64::try_from(since.as_millis()).unwrap()),
            ..HostOptions::default()
        };
        let lifetimes = Lifetimes {
            authority: 30 * MINUTE,
            certificate: 12 * MINUTE,
        };
        let began = tokio::time::Instant::now();
        let (mut other, second) = another(&stage, options, lifetimes).await;
        // A new authority is made after two thirds of its life.
        tokio::time::sleep(25 * MINUTE).await;
        let secret: Secret = serde_json::from_value(stage.find("Secret", "others").unwrap()).unwrap();
        let bundle = String::from_utf8(secret.data.unwrap()["ca.crt"].0.clone()).unwrap();
        assert_eq!(certificates(&bundle).len(), 2, "the old one has not run out yet");
        let newest = bundle.split_inclusive("-----END CERTIFICATE-----").next().unwrap();
        shown(second, newest, start + began.elapsed()).unwrap_or_else(|error| panic!("{error}\n{}", other.log_tail()));
        other.stop().await.unwrap();
        stage.stop().await;
    }
}
