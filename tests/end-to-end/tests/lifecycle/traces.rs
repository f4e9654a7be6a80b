//! The traces of reconciles, as a collector gets them: it decodes what comes.

mod simulated {
    use std::net::Ipv4Addr;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use kube::api::{DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use kube::{Api, Client};
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::program::{Folder, Process, component};
    use pilothouse_end_to_end::stage::{Stage, create, hostile, unhurried};
    use pilothouse_runtime::{HostOptions, TraceOptions};
    use pilothouse_simulator::{Options, Simulator};
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::host::SteeredHost as _;
    use pilothouse_traces::{ExportOptions, Exporter};
    use rustix::process::Signal;
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// A message of protobuf: its fields in their order. Numbers are kept as they are, bytes too.
    #[derive(Clone, Debug, PartialEq)]
    enum Field {
        Number(u64),
        Bytes(Vec<u8>),
    }

    #[derive(Clone, Debug, Default, PartialEq)]
    struct Message(Vec<(u64, Field)>);

    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }

    impl Message {
        fn decode(mut bytes: &[u8]) -> Self {
            let mut fields = Vec::new();
            while !bytes.is_empty() {
                let key = varint(&mut bytes);
                let field = match key & 7 {
                    0 => Field::Number(varint(&mut bytes)),
                    1 => {
                        let (number, rest) = bytes.split_at(8);
                        bytes = rest;
                        Field::Number(u64::from_le_bytes(number.try_into().unwrap()))
                    }
                    2 => {
                        let length = usize::try_from(varint(&mut bytes)).unwrap();
                        let (content, rest) = bytes.split_at(length);
                        bytes = rest;
                        Field::Bytes(content.to_vec())
                    }
                    other => panic!("the wire type {other} is not used"),
                };
                fields.push((key >> 3, field));
            }
            Self(fields)
        }

        fn all(&self, number: u64) -> Vec<Vec<u8>> {
            let fields = self.0.iter().filter(|(it, _)| *it == number);
            let bytes = fields.filter_map(|(_, field)| match field {
                Field::Bytes(bytes) => Some(bytes.clone()),
                Field::Number(_) => None,
            });
            bytes.collect()
        }

        fn messages(&self, number: u64) -> Vec<Self> {
            self.all(number).iter().map(|bytes| Self::decode(bytes)).collect()
        }

        fn text(&self, number: u64) -> String {
            self.all(number)
                .pop()
                .map(|bytes| String::from_utf8(bytes).unwrap())
                .unwrap_or_default()
        }

        fn number(&self, number: u64) -> u64 {
            let field = self.0.iter().find(|(it, _)| *it == number);
            match field {
                Some((_, Field::Number(value))) => *value,
                _ => 0,
            }
        }

        /// The text of an attribute, where the attributes are in a field.
        fn attribute(&self, number: u64, name: &str) -> Option<String> {
            let attributes = self.messages(number);
            let found = attributes.iter().find(|it| it.text(1) == name)?;
            Some(found.messages(2).pop()?.text(1))
        }
    }

    /// Serves requests for ever, and collects the spans of each.
    async fn collect(listener: TcpListener, spans: Arc<Mutex<Vec<Message>>>) {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let spans = spans.clone();
            tokio::spawn(async move {
                let mut bytes = Vec::new();
                loop {
                    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
                    let head = end.map(|end| String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase());
                    let length = head.as_ref().and_then(|head| {
                        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
                        length.parse::<usize>().ok()
                    });
                    if let (Some(end), Some(length)) = (end, length)
                        && bytes.len() >= end + 4 + length
                    {
                        let request = Message::decode(&bytes[end + 4..end + 4 + length]);
                        bytes.drain(..end + 4 + length);
                        for of_resource in request.messages(1) {
                            let resource = &of_resource.messages(1)[0];
                            assert_eq!(resource.attribute(1, "service.name").as_deref(), Some("pilothouse"));
                            for of_scope in of_resource.messages(2) {
                                spans.lock().unwrap().extend(of_scope.messages(2));
                            }
                        }
                        stream
                            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                            .await
                            .unwrap();
                        continue;
                    }
                    let mut part = [0; 16 * 1024];
                    match stream.read(&mut part).await {
                        Ok(read) if read > 0 => bytes.extend(&part[..read]),
                        _ => return,
                    }
                }
            });
        }
    }

    /// A host on a simulated cluster all of whose reconciles are traced, and the spans that a collector has got.
    async fn traced() -> (Stage, Arc<Mutex<Vec<Message>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = ExportOptions {
            endpoint: format!("http://{}/v1/traces", listener.local_addr().unwrap())
                .parse()
                .unwrap(),
            instance: "test".to_owned(),
            version: "1",
        };
        let spans = Arc::<Mutex<Vec<Message>>>::default();
        tokio::spawn(collect(listener, spans.clone()));
        let (exporter, sink) = Exporter::new(options).unwrap();
        tokio::spawn(exporter.run(std::future::pending()));
        let options = HostOptions {
            traces: Some(TraceOptions { sink, ratio: 1.0 }),
            ..HostOptions::default()
        };
        let mut stage = Stage {
            cluster: Cluster::simulated(),
            host: RuntimeHost::new(options, unhurried()),
        };
        let spec = stage.host.spec("hostile").unwrap();
        stage.start(vec![spec]).await;
        stage.host.settled().await.unwrap();
        (stage, spans)
    }

    /// The spans of the reconciles of a Hostile, in the order in which they came.
    fn roots(spans: &Mutex<Vec<Message>>, name: &str) -> Vec<Message> {
        let spans = spans.lock().unwrap();
        let of_it = spans.iter().filter(|span| {
            span.text(5) == "reconcile" && span.attribute(9, "pilothouse.object.name").as_deref() == Some(name)
        });
        of_it.cloned().collect()
    }

    /// Returns those of them with a trigger.
    fn triggered(spans: &Mutex<Vec<Message>>, name: &str, trigger: &str) -> Vec<Message> {
        let mut roots = roots(spans, name);
        roots.retain(|span| span.attribute(9, "pilothouse.trigger").as_deref() == Some(trigger));
        roots
    }

    /// Waits until something is traced.
    async fn until_traced(holds: impl Fn() -> bool) {
        let seen = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_mins(1), seen).await;
        in_time.expect("it is traced");
    }

    /// A change of a child leads to two runs: the one that it triggers, and before that the one that wrote the child.
    #[tokio::test]
    async fn a_run_after_a_child_edit_links_to_the_run_that_wrote_it() {
        let (mut stage, spans) = traced().await;
        stage
            .create(&hostile("owner", &json!({"behaviour": "config-map", "text": "ours"})))
            .await;
        stage
            .create(&hostile("other", &json!({"behaviour": "config-map", "text": "ours"})))
            .await;
        until_traced(|| !roots(&spans, "owner").is_empty() && !roots(&spans, "other").is_empty()).await;
        stage.host.settled().await.unwrap();
        let before = roots(&spans, "owner");
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        let config_maps: Api<DynamicObject> =
            Api::namespaced_with(stage.cluster.client().await.unwrap(), "default", &kind);
        let edit = Patch::Merge(json!({"data": {"text": "theirs"}}));
        let _ = config_maps
            .patch("owner", &PatchParams::default(), &edit)
            .await
            .unwrap();
        let runs = || triggered(&spans, "owner", "ChildChanged");
        until_traced(|| !runs().is_empty()).await;

        let run = runs().remove(0);
        let trigger = run.attribute(9, "pilothouse.trigger.object").unwrap();
        assert!(
            trigger.contains("ConfigMap") && trigger.contains("default/owner"),
            "{trigger}"
        );
        let links = run.messages(13);
        assert_eq!(links.len(), 1, "{links:?}");
        assert_eq!(
            links[0].attribute(4, "pilothouse.link").as_deref(),
            Some("wrote_trigger")
        );
        let is_to = |run: &Message| run.all(1) == links[0].all(1) && run.all(2) == links[0].all(2);
        assert!(before.iter().any(is_to), "{links:?} {before:?}");
        assert!(!roots(&spans, "other").iter().any(is_to) && !is_to(&run));
        // Nothing led to the first run but its object.
        assert_eq!(triggered(&spans, "owner", "ObjectChanged")[0].messages(13), []);
        stage.host.stop().await.unwrap();
    }

    #[tokio::test]
    async fn a_reconcile_is_a_span_with_stages_log_lines_and_trigger() {
        let (mut stage, spans) = traced().await;
        stage
            .create(&hostile("talks", &json!({"behaviour": "log-flood", "count": 3})))
            .await;
        stage.create(&hostile("trapped", &json!({"behaviour": "trap"}))).await;
        stage
            .create(&hostile("failed", &json!({"behaviour": "fail-at-first"})))
            .await;
        let roots = |name: &str| roots(&spans, name);
        let retries = || triggered(&spans, "failed", "Retry");
        until_traced(|| !roots("talks").is_empty() && !roots("trapped").is_empty() && !retries().is_empty()).await;

        let talks = roots("talks").remove(0);
        let (trace, id) = (talks.all(1), talks.all(2));
        assert_eq!((trace[0].len(), id[0].len()), (16, 8));
        assert!(talks.all(4).is_empty(), "it is a root");
        assert_eq!(talks.attribute(9, "pilothouse.plugin").as_deref(), Some("hostile"));
        assert_eq!(talks.attribute(9, "k8s.namespace.name").as_deref(), Some("default"));
        assert_eq!(
            talks.attribute(9, "pilothouse.trigger").as_deref(),
            Some("ObjectChanged")
        );
        let stages: Vec<Message> = {
            let spans = spans.lock().unwrap();
            spans.iter().filter(|span| span.all(4) == id).cloned().collect()
        };
        let names: Vec<String> = stages.iter().map(|span| span.text(5)).collect();
        for name in ["gather", "invoke", "validate", "diff", "apply", "report"] {
            assert!(names.contains(&name.to_owned()), "{name} in {names:?}");
        }
        for stage in &stages {
            assert_eq!(stage.all(1), trace);
            assert!(
                stage.number(7) >= talks.number(7) && stage.number(8) <= talks.number(8),
                "{stage:?}"
            );
            assert!(stage.number(7) <= stage.number(8));
        }
        let invoke = stages.iter().find(|span| span.text(5) == "invoke").unwrap();
        let events = invoke.messages(11);
        assert!(!events.is_empty(), "the guest's lines are events");
        assert!(
            events
                .iter()
                .all(|event| event.text(2) == "log" && event.attribute(3, "message").is_some())
        );
        assert!(talks.messages(15).is_empty());

        let trapped = roots("trapped").remove(0);
        let status = trapped.messages(15).remove(0);
        assert_eq!(status.number(3), 2, "STATUS_CODE_ERROR");
        assert!(!status.text(2).is_empty());
        assert_eq!(
            trapped.attribute(9, "pilothouse.failure.reason").as_deref(),
            Some("GuestTrap")
        );

        // A retry is linked to a run of the same object.
        let link = retries().remove(0).messages(13).remove(0);
        assert_eq!(link.attribute(4, "pilothouse.link").as_deref(), Some("previous_run"));
        let runs = roots("failed");
        assert!(
            runs.iter()
                .any(|run| run.all(1) == link.all(1) && run.all(2) == link.all(2)),
            "{link:?}"
        );
        stage.host.stop().await.unwrap();
    }

    /// Spans wait for five seconds for others to share a request with.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_host_that_stops_sends_the_spans_that_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let collector = format!("http://{}", listener.local_addr().unwrap());
        let spans = Arc::<Mutex<Vec<Message>>>::default();
        tokio::spawn(collect(listener, spans.clone()));
        let (folder, simulator) = (Folder::new(), Simulator::new(Options::default()));
        let serving = simulator.serve((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        let kubeconfig = folder.kubeconfig(&format!("http://{}", serving.address()), "there");
        let arguments = ["run", "--kubeconfig", &kubeconfig, "--install-crds"];
        let plugin = component("hostile");
        let traced = ["--plugin", &plugin, "--otlp-endpoint", &collector];
        let mut process = Process::start(&[&arguments[..], &traced].concat());
        process.says(&["plugin ready"]).await;
        let talks = hostile(
            "last",
            &json!({"behaviour": "log-each-level", "text": "the guest was called"}),
        );
        create(Client::new(simulator.service(), "default"), &talks).await;
        process.says(&["the guest was called"]).await;
        process.signal(Signal::TERM);
        assert_eq!(process.ended().await.code(), Some(0), "{}", process.log());
        assert_eq!(roots(&spans, "last").len(), 1, "{}", process.log());
    }
}
