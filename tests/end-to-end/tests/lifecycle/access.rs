//! Plugins with accounts of their own: what the account may not see, the plugin is not shown, and what it may not do is not
//! begun. The condition `Granted` lists what is missing, and goes by itself.

mod simulated {
    use std::time::Duration;

    use pilothouse_cluster::write::identity::AccountTokens;
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::stage::{Stage, hostile, unhurried};
    use pilothouse_runtime::{HostOptions, Identity};
    use pilothouse_simulator::{Asked, Fault, Rule};
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::host::SteeredHost as _;
    use pilothouse_testkit::requests::{HOST_ACCOUNT, Request};
    use serde_json::{Value, json};

    use crate::artifacts::MemoryStore;
    use crate::fleet::{Fleet, condition};

    /// The user of the account of the plugin `it`.
    const USER: &str = "system:serviceaccount:pilothouse-system:pilothouse-plugin-it";

    /// Command in the condition's message.
    const COMMAND: &str = "pilothouse rights it=a.wasm --host-namespace pilothouse-system | kubectl apply --server-side --force-conflicts -f -";

    fn options() -> HostOptions {
        HostOptions {
            identity: Identity::ServiceAccounts {
                namespace: "pilothouse-system".to_owned(),
                tokens: None,
            },
            ..HostOptions::default()
        }
    }

    async fn fleet() -> Fleet {
        Fleet::start_with(Cluster::simulated(), options()).await
    }

    /// Revokes rights, as `verb resource`, of the account of `it`.
    fn revoke(fleet: &Fleet, rights: &'static [&str]) {
        fleet.stage.simulator().rights().deny(move |asked| {
            let right = format!("{} {}", asked.verb, asked.resource);
            asked.impersonated.as_deref() == Some(USER) && rights.contains(&&*right)
        });
    }

    async fn hostile_fleet() -> Fleet {
        let fleet = fleet().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet
    }

    async fn make(fleet: &Fleet, name: &str) {
        let object = hostile(name, &json!({"behaviour": "config-map"}));
        fleet.stage.create(&object).await;
    }

    fn is_review(asked: &Asked) -> bool {
        asked.resource == "subjectaccessreviews"
    }

    fn requests(stage: &Stage, mark: pilothouse_testkit::cluster::Mark) -> Vec<Request> {
        let mut requests = stage.cluster.requests_since(mark).unwrap();
        requests.retain(|request| request.account == HOST_ACCOUNT);
        requests
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_runs_once_its_account_is_granted_missing_rights() {
        let fleet = hostile_fleet().await;
        revoke(&fleet, &["list deployments", "delete configmaps"]);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        let granted = fleet.says("it", "Granted", "False", "NotGranted").await;
        let message = granted["message"].as_str().unwrap();
        let words = format!(
            "user {USER:?} may not delete configmaps in all namespaces; list deployments.apps in all namespaces; grant these \
             rights: {COMMAND}"
        );
        assert_eq!(message, words);
        let ready = fleet.says("it", "Ready", "False", "NotGranted").await;
        assert_eq!(ready["message"], granted["message"]);
        assert_eq!(fleet.stage.lines(&["WARN", &words]).len(), 1, "{}", fleet.log());
        make(&fleet, "one").await;
        for _ in 0..3 {
            fleet.stage.minute().await;
        }
        assert_eq!(fleet.stage.reconciled("Hostile", "one"), None, "the plugin was called");
        fleet.stage.simulator().rights().grant_all();
        fleet.stage.minute().await;
        fleet.says("it", "Granted", "True", "Granted").await;
        fleet.is_ready("it").await;
        fleet
            .until("it is reconciled", |stage| stage.is_reconciled("Hostile", "one"))
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_right_that_is_revoked_ends_within_five_minutes() {
        let fleet = hostile_fleet().await;
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        make(&fleet, "before").await;
        fleet
            .until("it is reconciled", |stage| stage.is_reconciled("Hostile", "before"))
            .await;
        // No request of the plugin is denied for it: the watches are the host's.
        revoke(&fleet, &["watch configmaps"]);
        tokio::time::sleep(Duration::from_mins(5)).await;
        let status = fleet.status("it");
        assert_eq!(condition(&status, "Granted")["reason"], "NotGranted", "{status:#}");
        let mark = fleet.stage.mark();
        make(&fleet, "after").await;
        fleet.stage.minute().await;
        assert_eq!(fleet.stage.reconciled("Hostile", "after"), None);
        let mut writes = fleet.stage.host_writes_since(mark);
        // The Plugin's status counts the new object.
        writes.retain(|write| write.resource != "plugins");
        assert_eq!(writes, []);
        assert!(
            fleet.stage.is_reconciled("Hostile", "before"),
            "what was made stays as it is"
        );
        fleet.stage.simulator().rights().grant_all();
        fleet
            .until("it goes on", |stage| stage.is_reconciled("Hostile", "after"))
            .await;
        fleet.is_ready("it").await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_denied_has_the_rights_reviewed_at_once() {
        let fleet = hostile_fleet().await;
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        revoke(&fleet, &["patch configmaps"]);
        make(&fleet, "one").await;
        tokio::time::sleep(Duration::from_secs(15)).await;
        let status = fleet.status("it");
        assert_eq!(condition(&status, "Granted")["reason"], "NotGranted", "{status:#}");
        fleet.stage.simulator().rights().grant_all();
        fleet
            .until("it is reconciled", |stage| stage.is_reconciled("Hostile", "one"))
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_plugin_only_has_its_rights_reviewed() {
        let fleet = hostile_fleet().await;
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        fleet.stage.minute().await;
        let mark = fleet.stage.mark();
        tokio::time::sleep(Duration::from_mins(4)).await;
        let requests = requests(&fleet.stage, mark);
        let others: Vec<_> = requests
            .iter()
            .filter(|request| request.resource != "subjectaccessreviews" && request.verb != "watch")
            .map(|request| &*request.resource)
            .collect();
        assert_eq!(
            others,
            ["selfsubjectaccessreviews"],
            "whether the host may act as the account"
        );
        // Hostiles: get, list, watch, and patch of the status; two kinds that it owns: get, list, watch, create, patch and
        // delete.
        let reviews = requests
            .iter()
            .filter(|request| request.resource == "subjectaccessreviews");
        assert_eq!(reviews.count(), 4 + 2 * 6);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn rights_without_a_review_stay_valid_for_five_minutes() {
        let fleet = hostile_fleet().await;
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        let broken = Fault::Status {
            code: 500,
            retry_after: None,
        };
        fleet.stage.simulator().faults().add(Rule::new(broken).when(is_review));
        tokio::time::sleep(Duration::from_mins(4)).await;
        fleet.is_ready("it").await;
        tokio::time::sleep(Duration::from_secs(75)).await;
        let granted = fleet.says("it", "Granted", "Unknown", "ReviewFailed").await;
        assert!(
            granted["message"]
                .as_str()
                .unwrap()
                .contains("so the plugin does not run"),
            "{granted}"
        );
        fleet.says("it", "Ready", "False", "NotGranted").await;
        make(&fleet, "one").await;
        fleet.stage.minute().await;
        assert_eq!(fleet.stage.reconciled("Hostile", "one"), None);
        fleet.stage.simulator().faults().clear();
        fleet
            .until("it goes on", |stage| stage.is_reconciled("Hostile", "one"))
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_may_not_review_rights_says_which_right_it_lacks() {
        let fleet = hostile_fleet().await;
        let rights = fleet.stage.simulator().rights();
        rights.deny(|asked| asked.impersonated.is_none() && is_review(asked));
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        let granted = fleet.says("it", "Granted", "Unknown", "ReviewFailed").await;
        let message = granted["message"].as_str().unwrap();
        let words = "grant it: create subjectaccessreviews.authorization.k8s.io in all namespaces";
        assert!(message.contains(words), "{message}");
        fleet.stage.simulator().rights().grant_all();
        fleet.is_ready("it").await;
        fleet.stage.stop().await;
    }

    fn touch(kind: &str) -> Value {
        json!({"kind": {"group": "", "version": "v1", "kind": kind}, "access": ["read"], "fields": [".data"]})
    }

    /// A Plugin of the reader that reads these, for the service accounts with the label `reader: it`.
    fn reader(touches: &[Value]) -> Value {
        json!({"source": {"file": "a.wasm"}, "configuration": {"objects": "reader=it", "touches": touches}})
    }

    /// An object of the reader that lists Secrets.
    fn lister(name: &str, namespace: Option<&str>) -> Value {
        let kind = json!({"group": "", "version": "v1", "kind": "Secret"});
        let reads = json!([{"list": {"kind": kind, "namespace": namespace}}]);
        let metadata = json!({"name": name, "namespace": "default", "labels": {"reader": "it"},
                              "annotations": {"reader.test.dev/reads": reads.to_string()}});
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    }

    fn plain(name: &str) -> Value {
        let metadata = json!({"name": name, "namespace": "default", "labels": {"reader": "it"}});
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_with_missing_rights_waits_beside_the_old_one() {
        let fleet = fleet().await;
        fleet.put("reader", "a.wasm", 0);
        revoke(&fleet, &["list secrets", "watch secrets"]);
        fleet.plugin("it", reader(&[])).await;
        fleet.is_ready("it").await;
        fleet.change("it", reader(&[touch("Secret")])).await;
        let granted = fleet.says("it", "Granted", "False", "NewVersionNotGranted").await;
        let message = granted["message"].as_str().unwrap();
        assert!(
            message.starts_with("the new version needs more than is granted")
                && message
                    .contains("may not list, watch secrets in all namespaces; grant these rights: pilothouse rights")
                && message.contains("--config FILE-WITH-ITS-CONFIGURATION"),
            "{message}"
        );
        fleet.says("it", "Ready", "True", "PreviousVersion").await;
        // The component is the same, so the generation alone tells the two apart.
        let generations =
            |status: &Value| [&status["observedGeneration"], &status["runningGeneration"]].map(Value::as_i64);
        assert_eq!(generations(&fleet.status("it")), [Some(2), Some(1)]);
        fleet.stage.create(&plain("old")).await;
        fleet
            .until("the old one goes on", |stage| stage.find("ConfigMap", "old").is_some())
            .await;
        fleet.stage.simulator().rights().grant_all();
        fleet.stage.create(&lister("new", None)).await;
        fleet.is_ready("it").await;
        fleet.says("it", "Granted", "True", "Granted").await;
        assert_eq!(generations(&fleet.status("it")), [Some(2), Some(2)]);
        fleet
            .until("the new one reads", |stage| {
                stage
                    .find("ConfigMap", "new")
                    .is_some_and(|map| map["data"]["seen"].as_str().is_some_and(|seen| seen.contains('[')))
            })
            .await;
        fleet.stage.stop().await;
    }

    /// The host is restarted while the version that is wanted lacks rights, and its reference names no other one.
    #[tokio::test(start_paused = true)]
    async fn a_restart_keeps_the_old_version_while_the_new_lacks_rights() {
        let store = MemoryStore::new();
        let one = store.push("gate", "1", 1);
        let mut host = RuntimeHost::new(options(), unhurried());
        host.fetch_from(store.clone());
        let mut fleet = Fleet::start_host_with(Cluster::simulated(), host).await;
        let pinned = |digest: &str| json!({"source": {"oci": {"reference": format!("example.com/it@{digest}")}}});
        fleet.plugin("it", pinned(&one)).await;
        fleet.is_ready("it").await;
        fleet.accept("it", "deletes=1").await;
        let metadata = json!({"name": "gate", "namespace": "default"});
        let gate = json!({"apiVersion": "gate.test.dev/v1", "kind": "Gate", "metadata": metadata, "spec": {"size": 3}});
        let two = store.push("hostile", "1", 2);
        revoke(&fleet, &["list deployments"]);
        fleet.change("it", pinned(&two)).await;
        fleet.says("it", "Granted", "False", "NewVersionNotGranted").await;
        assert_eq!(fleet.status("it")["artifact"]["digest"], one);

        fleet.stage.host.stop().await.unwrap();
        store.lose_cache();
        let ran = |stage: &Stage| stage.lines(&["WARN", "the version that ran before starts"]).len();
        fleet.start_host().await;
        fleet.until("the earlier version starts", |stage| ran(stage) == 1).await;
        fleet.stage.create(&gate).await;
        fleet
            .until("the earlier version runs, and the wanted one is reported", |stage| {
                let status = stage.find("Plugin", "it").unwrap_or_default()["status"].take();
                let reason = |kind: &str| condition(&status, kind)["reason"].clone();
                reason("Granted") == "NewVersionNotGranted"
                    && reason("Ready") == "PreviousVersion"
                    && stage.is_reconciled("Gate", "gate")
            })
            .await;
        assert_eq!(fleet.status("it")["artifact"]["digest"], one);
        fleet.stage.simulator().rights().grant_all();
        fleet
            .until("the wanted version runs", |stage| {
                stage.find("Plugin", "it").unwrap_or_default()["status"]["artifact"]["digest"] == two
            })
            .await;
        fleet.is_ready("it").await;

        // What is granted is started at once.
        fleet.stage.host.stop().await.unwrap();
        fleet.start_host().await;
        fleet.is_ready("it").await;
        assert_eq!(ran(&fleet.stage), 1, "{}", fleet.log());
        fleet.stage.stop().await;
    }

    fn secret(namespace: &str, name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}})
    }

    fn namespace(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    }

    fn names(stage: &Stage, name: &str) -> Value {
        stage.find("ConfigMap", name).unwrap_or_default()["data"]["names"].clone()
    }

    #[tokio::test(start_paused = true)]
    async fn a_confined_plugin_reads_only_its_plugins_namespaces() {
        let fleet = fleet().await;
        fleet.put("reader", "a.wasm", 0);
        for name in ["edge", "elsewhere"] {
            fleet.stage.create(&namespace(name)).await;
            fleet.stage.create(&secret(name, name)).await;
        }
        fleet.stage.create(&secret("default", "home")).await;
        let mut spec = reader(&[touch("Secret")]);
        spec["namespaces"] = json!(["default"]);
        fleet.plugin("it", spec).await;
        fleet.is_ready("it").await;
        for object in [lister("all", None), lister("edge", Some("edge"))] {
            fleet.stage.create(&object).await;
        }
        fleet
            .until("it sees its own", |stage| names(stage, "all") == "home")
            .await;
        let told = |stage: &Stage| {
            let failure = stage.find("Plugin", "it").unwrap_or_default()["status"]["lastFailure"].take();
            let message = failure["message"].as_str().unwrap_or_default().to_owned();
            let words = "it lists v1 Secret in edge, outside the namespaces that its Plugin names (default); add edge to \
                         spec.accessNamespaces of the Plugin";
            failure["blame"] == "guest" && message.contains(words)
        };
        fleet.until("the violation is reported", told).await;
        assert_eq!(names(&fleet.stage, "edge"), Value::Null);
        fleet.change("it", json!({"accessNamespaces": ["edge"]})).await;
        fleet
            .until("it sees both", |stage| names(stage, "all") == "home,edge")
            .await;
        fleet
            .until("it reads there", |stage| names(stage, "edge") == "edge")
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_confined_plugin_writes_only_in_its_plugins_namespaces() {
        let fleet = fleet().await;
        fleet.put("wisher", "a.wasm", 0);
        fleet.stage.create(&namespace("edge")).await;
        let spec = json!({
            "source": {"file": "a.wasm"}, "namespaces": ["default"],
            "configuration": {"owns": ["ConfigMap"], "steers": ["Wish"]},
        });
        fleet.plugin("it", spec).await;
        fleet.is_ready("it").await;
        let mark = fleet.stage.mark();
        let map = |namespace: &str, name: &str| {
            let metadata = json!({"name": name, "namespace": namespace});
            json!({"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}})
        };
        let wish = json!({
            "apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": "both", "namespace": "default"},
            "spec": {"owns": [map("default", "near"), map("edge", "far")]},
        });
        fleet.stage.create(&wish).await;
        let words = "v1 ConfigMap far is desired, but in namespace edge, outside the namespaces that its Plugin names (default); add edge to \
                     spec.accessNamespaces of the Plugin";
        let is_told = |stage: &Stage| {
            let told = stage.reconciled("Wish", "both").unwrap_or_default();
            let message = told["message"].as_str().unwrap_or_default().to_owned();
            told["status"] == "False" && told["reason"] == "Undeclared" && message.contains(words)
        };
        fleet.until("the violation is reported", is_told).await;
        let writes = fleet.stage.host_writes_since(mark);
        let written: Vec<String> = writes
            .iter()
            .filter(|write| write.resource == "configmaps")
            .map(ToString::to_string)
            .collect();
        assert_eq!(written, Vec::<String>::new(), "an answer counts as a whole");
        fleet.change("it", json!({"accessNamespaces": ["edge"]})).await;
        fleet
            .until("both are made", |stage| {
                stage.find("ConfigMap", "near").is_some() && stage.find("ConfigMap", "far").is_some()
            })
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_with_another_account_writes_with_its_rights() {
        const SHARED: &str = "system:serviceaccount:pilothouse-system:shared";
        let fleet = hostile_fleet().await;
        let rights = fleet.stage.simulator().rights();
        rights.deny(|asked| asked.impersonated.as_deref() == Some(USER));
        let spec = json!({"source": {"file": "a.wasm"}, "serviceAccountName": "shared"});
        fleet.plugin("it", spec).await;
        fleet.is_ready("it").await;
        let mark = fleet.stage.mark();
        make(&fleet, "one").await;
        fleet
            .until("it is reconciled", |stage| stage.is_reconciled("Hostile", "one"))
            .await;
        let requests = requests(&fleet.stage, mark);
        let of_the_plugin = requests
            .iter()
            .filter(|request| request.is_write() && !["events", "plugins"].contains(&&*request.resource));
        let writers: Vec<_> = of_the_plugin.map(|request| request.impersonated.as_deref()).collect();
        assert_eq!(writers, vec![Some(SHARED); writers.len()]);
        assert!(writers.len() >= 2, "a ConfigMap and a status are written: {requests:?}");

        let rights = fleet.stage.simulator().rights();
        rights.deny(|asked| asked.impersonated.as_deref() == Some(SHARED) && asked.resource == "configmaps");
        tokio::time::sleep(Duration::from_mins(5)).await;
        let granted = fleet.says("it", "Granted", "False", "NotGranted").await;
        let message = granted["message"].as_str().unwrap();
        let command = "pilothouse rights it=a.wasm --host-namespace pilothouse-system --service-account shared |";
        assert!(message.contains(SHARED) && message.contains(command), "{message}");
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn rights_in_namespaces_are_reviewed_there() {
        let fleet = fleet().await;
        fleet.put("reader", "a.wasm", 0);
        fleet.stage.create(&namespace("edge")).await;
        fleet.stage.simulator().rights().deny(|asked| {
            let is_everywhere = asked.namespace.is_none() || asked.namespace.as_deref() == Some("edge");
            asked.impersonated.as_deref() == Some(USER) && is_everywhere && asked.resource != "subjectaccessreviews"
        });
        let mut spec = reader(&[touch("Secret")]);
        spec["namespaces"] = json!(["default"]);
        fleet.plugin("it", spec).await;
        fleet.is_ready("it").await;
        fleet.change("it", json!({"accessNamespaces": ["edge"]})).await;
        let granted = fleet.says("it", "Granted", "False", "NewVersionNotGranted").await;
        let message = granted["message"].as_str().unwrap();
        assert!(
            message.contains("list, watch secrets in namespace edge")
                && message.contains("--namespaces default --access-namespaces edge")
                && !message.contains("in namespace default"),
            "{message}"
        );
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_without_roles_stops_the_plugin_only_there() {
        let fleet = hostile_fleet().await;
        for name in ["other", "third"] {
            fleet.stage.create(&namespace(name)).await;
        }
        // As where a namespace is being deleted: its roles are among the first to go.
        let in_other = |asked: &Asked| asked.namespace.as_deref() == Some("other");
        let is_read = |asked: &Asked| asked.resource == "configmaps" && asked.verb == "list";
        fleet
            .stage
            .simulator()
            .rights()
            .deny(move |asked| asked.impersonated.as_deref() == Some(USER) && in_other(asked) && is_read(asked));
        let spec = json!({"source": {"file": "a.wasm"}, "namespaces": ["default", "other"]});
        fleet.plugin("it", spec).await;
        fleet.is_ready("it").await;
        let granted = fleet.says("it", "Granted", "False", "NotGranted").await;
        let message = granted["message"].as_str().unwrap();
        assert!(
            message.contains("may not list configmaps in namespace other; grant")
                && message.contains("--namespaces default,other"),
            "{message}"
        );
        make(&fleet, "here").await;
        let mut there = hostile("there", &json!({"behaviour": "config-map"}));
        there["metadata"]["namespace"] = json!("other");
        fleet.stage.create(&there).await;
        fleet
            .until("it goes on here", |stage| stage.is_reconciled("Hostile", "here"))
            .await;
        let is_told = |stage: &Stage| {
            let told = stage.reconciled("Hostile", "there").unwrap_or_default();
            let message = told["message"].as_str().unwrap_or_default().to_owned();
            told["reason"] == "Forbidden"
                && message.contains("Hostile other/there is not reconciled, where the plugin's account lacks")
        };
        fleet.until("it is said there", is_told).await;
        assert_eq!(fleet.stage.find("ConfigMap", "there"), None);
        // Another version runs as far as this one did.
        fleet.put("hostile", "a.wasm", 1);
        fleet
            .until("the new version takes over", |stage| {
                !stage.lines(&["a new version has taken over"]).is_empty()
            })
            .await;
        fleet.is_ready("it").await;
        // A place where more is needed than is granted is another matter.
        fleet
            .stage
            .simulator()
            .rights()
            .deny(|asked| asked.impersonated.as_deref() == Some(USER) && asked.namespace.as_deref() == Some("third"));
        fleet
            .change("it", json!({"namespaces": ["default", "other", "third"]}))
            .await;
        fleet.says("it", "Granted", "False", "NewVersionNotGranted").await;
        fleet.stage.simulator().rights().grant_all();
        fleet
            .until("it goes on there", |stage| stage.is_reconciled("Hostile", "there"))
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_gets_a_new_token_when_the_account_is_recreated() {
        let cluster = Cluster::simulated();
        let options = HostOptions {
            identity: Identity::ServiceAccounts {
                namespace: "default".to_owned(),
                tokens: Some(AccountTokens::new(cluster.host_client().await.unwrap())),
            },
            ..HostOptions::default()
        };
        let fleet = Fleet::start_with(cluster, options).await;
        fleet.put("hostile", "a.wasm", 0);
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "pilothouse-plugin-it", "namespace": "default"},
        });
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        let reads = json!({"behaviour": "config-map"});
        fleet.stage.create(&hostile("one", &reads)).await;
        let words = "create it: kubectl create serviceaccount pilothouse-plugin-it --namespace default";
        fleet
            .until("the missing account is named", |stage| {
                let plugin = stage.find("Plugin", "it").unwrap_or_default();
                let told = plugin["status"]["lastFailure"]["message"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                told.contains(words)
            })
            .await;
        fleet.stage.create(&account).await;
        fleet
            .until("it goes on by itself", |stage| stage.is_reconciled("Hostile", "one"))
            .await;
        let accounts: kube::Api<k8s_openapi::api::core::v1::ServiceAccount> =
            kube::Api::namespaced(fleet.client().await, "default");
        let deleted = accounts
            .delete("pilothouse-plugin-it", &kube::api::DeleteParams::default())
            .await;
        assert!(deleted.is_ok());
        fleet.stage.create(&account).await;
        let mark = fleet.stage.mark();
        fleet.stage.create(&hostile("two", &reads)).await;
        fleet
            .until("another token is requested", |stage| {
                stage.is_reconciled("Hostile", "two")
            })
            .await;
        let requests = requests(&fleet.stage, mark);
        let tokens = requests.iter().filter(|request| request.subresource == "token");
        assert_eq!(tokens.count(), 1);
        let user = "system:serviceaccount:default:pilothouse-plugin-it";
        let writes = requests
            .iter()
            .filter(|request| request.is_write() && request.resource != "events");
        let strangers: Vec<_> = writes
            .filter(|request| request.impersonated.as_deref() != Some(user) && request.resource != "plugins")
            .collect();
        assert_eq!(strangers, Vec::<&Request>::new());
        fleet.stage.stop().await;
    }
}
