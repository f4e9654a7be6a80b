//! Tests the cost of Services without the annotation for service-ingress: their entry in the cache, and nothing else.
//! Counted are the reconciles, in the host's own log, and the requests that are neither discovery nor the lists and
//! watches of the start.

mod simulated {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
    use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};
    use tracing_subscriber::EnvFilter;

    /// Services without the annotation.
    const UNANNOTATED: usize = 2_000;

    /// Interval between two polls of the log.
    const LOOK_INTERVAL: Duration = Duration::from_millis(10);

    /// Counts the reconciles of which a host's log tells: a line each.
    #[derive(Clone, Default)]
    struct Reconciles(Arc<AtomicUsize>);

    impl Reconciles {
        /// Count since the last call.
        fn take(&self) -> usize {
            self.0.swap(0, Ordering::Relaxed)
        }
    }

    impl io::Write for Reconciles {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let text = String::from_utf8_lossy(line);
            if text.contains(": reconciled lane=") || text.contains(": reconcile failed lane=") {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn service(name: &str, annotations: &Value) -> DynamicObject {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "annotations": annotations},
            // There are not as many addresses.
            "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
        });
        serde_json::from_value(service).expect("it is an object")
    }

    /// The host's requests since a mark, but watches, which begin anew by themselves.
    fn requests(cluster: &Cluster, mark: pilothouse_testkit::cluster::Mark) -> Vec<String> {
        let requests = cluster.requests_since(mark).expect("the mark is of this cluster");
        let asked = requests
            .into_iter()
            .filter(|request| request.is_by_host() && request.verb != "watch");
        asked.map(|request| request.to_string()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn services_without_the_annotation_cost_nothing() {
        let cluster = Cluster::simulated();
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Service"));
        let client = cluster.client().await.expect("it has a client");
        let services: Api<DynamicObject> = Api::namespaced_with(client, "default", &kind);
        let create = async |name: &str, annotations: &Value| {
            let made = services
                .create(&PostParams::default(), &service(name, annotations))
                .await;
            made.expect("it can be made")
        };
        for number in 0..UNANNOTATED {
            create(&format!("plain-{number}"), &json!({"other/annotation": ""})).await;
        }
        create("web", &json!({"ingress/http": ""})).await;

        let mut host = RuntimeHost::default();
        let reconciles = Reconciles::default();
        let (log, filter) = (reconciles.clone(), EnvFilter::new("pilothouse_runtime=debug"));
        let lines = tracing_subscriber::fmt().with_ansi(false).with_env_filter(filter);
        let _counting = tracing::subscriber::set_default(lines.with_writer(move || log.clone()).finish());

        let mark = cluster.mark().expect("it has a log");
        host.start(&cluster, &["service-ingress".into()])
            .await
            .expect("it starts");
        host.settled().await.expect("it settles");
        assert_eq!(reconciles.take(), 1, "the annotated Service is reconciled, once");
        let writes: Vec<_> = requests(&cluster, mark)
            .into_iter()
            .filter(|request| request.starts_with("patch") || request.starts_with("create"))
            .collect();
        assert_eq!(writes.len(), 1, "its Ingress is made: {writes:?}");

        let before = cluster.mark().expect("it has a log");
        create("plain-more", &json!({})).await;
        let change =
            json!({"metadata": {"labels": {"changed": "yes"}, "annotations": {"other/annotation": "changed"}}});
        let parameters = PatchParams::default();
        for number in 0..100 {
            let name = format!("plain-{number}");
            let changed = services.patch(&name, &parameters, &Patch::Merge(&change)).await;
            changed.expect("it can be changed");
        }
        let deleted = services.delete("plain-1", &DeleteParams::default()).await;
        deleted.expect("it can be deleted");
        // What happens to a Service after all that is seen after all that.
        create("last", &json!({"ingress/http": ""})).await;
        while requests(&cluster, before).is_empty() {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        host.settled().await.expect("it settles");
        assert_eq!(reconciles.take(), 1, "what others do to their Services is no news");
        assert_eq!(requests(&cluster, before).len(), 1, "{:?}", requests(&cluster, before));

        let mark = cluster.mark().expect("it has a log");
        host.resync().await.expect("it runs");
        host.settled().await.expect("it settles");
        assert_eq!(reconciles.take(), 2, "a resync is about the annotated Services alone");
        assert_eq!(requests(&cluster, mark), Vec::<String>::new());
        host.stop().await.expect("it stops");
    }
}
