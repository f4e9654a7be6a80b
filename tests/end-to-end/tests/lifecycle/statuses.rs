//! A definition that does not take all of the status that the host writes: what it takes is written, the rest is told, once,
//! in the log, in an event and in the Plugin's status, and beforehand.

mod simulated {
    use kube::Api;
    use kube::api::{DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_end_to_end::stage::Stage;
    use pilothouse_simulator::{Asked, Fault, Rule};
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use crate::fleet::Fleet;

    /// A definition of Wishes with this schema of the status, and with the subresource or without.
    fn definition(status: &Value, has_subresource: bool) -> Value {
        let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let mut properties = json!({"spec": spec});
        if !status.is_null() {
            properties["status"] = status.clone();
        }
        let mut version = json!({
            "name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        });
        if has_subresource {
            version["subresources"] = json!({"status": {}});
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "wishes.wishes.test.dev"},
            "spec": {
                "group": "wishes.test.dev", "scope": "Namespaced",
                "names": {"kind": "Wish", "listKind": "WishList", "plural": "wishes", "singular": "wish"},
                "versions": [version],
            },
        })
    }

    fn conditions(fields: &[&str], required: &[&str]) -> Value {
        let fields: serde_json::Map<_, _> = fields
            .iter()
            .map(|name| ((*name).to_owned(), json!({"type": "string"})))
            .collect();
        json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
            "items": {"type": "object", "required": required, "properties": fields},
        })
    }

    const FIELDS: &[&str] = &["type", "status", "reason", "message", "lastTransitionTime"];

    /// A Wish that can be granted, and one that cannot.
    fn wish(name: &str, kind: &str) -> Value {
        let object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}});
        json!({
            "apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": name, "namespace": "default"},
            "spec": {"owns": [{"object": object}]},
        })
    }

    async fn with(definition: &Value, status: &Value) -> Fleet {
        let fleet = Fleet::start().await;
        given(&fleet, definition, status).await;
        fleet
    }

    async fn given(fleet: &Fleet, definition: &Value, status: &Value) {
        fleet.put("wisher", "a.wasm", 0);
        let configuration = json!({"steers": ["Wish"], "crds": [definition.to_string()], "status": status});
        let spec = json!({"source": {"file": "a.wasm"}, "configuration": configuration});
        fleet.plugin("it", spec).await;
        fleet.is_ready("it").await;
    }

    fn warns(stage: &Stage, words: &str) -> bool {
        let plugin = stage.find("Plugin", "it").unwrap_or_default();
        let warnings = plugin["status"]["warnings"].as_array().cloned().unwrap_or_default();
        warnings
            .iter()
            .any(|it| it.as_str().is_some_and(|warning| warning.contains(words)))
    }

    fn events(stage: &Stage) -> Vec<Value> {
        ["well", "ill"]
            .iter()
            .flat_map(|name| stage.events(name, "StatusIncomplete"))
            .collect()
    }

    /// Checks that the omission is reported once, and that the failing reconcile also emits an event. Then nothing is
    /// written, not even after a restart.
    async fn is_told_once(fleet: &mut Fleet, words: &str) {
        for (name, kind) in [("well", "ConfigMap"), ("ill", "Service")] {
            fleet.stage.create(&wish(name, kind)).await;
        }
        fleet
            .until("the failure is told by an event", |stage| {
                !stage.events("ill", "ReconcileFailed").is_empty()
            })
            .await;
        fleet
            .until("it is told what is left out", |stage| {
                warns(stage, words) && events(stage).len() == 1
            })
            .await;
        assert!(events(&fleet.stage)[0]["message"].as_str().unwrap().contains(words));
        let said = fleet
            .stage
            .lines(&["WARN", "the status is not written as a whole", words]);
        assert_eq!(said.len(), 1, "{}", fleet.log());
        fleet.stage.minute().await;
        let mark = fleet.stage.mark();
        fleet.stage.host.resync().await.unwrap();
        fleet.stage.minute().await;
        fleet.stage.host.stop().await.unwrap();
        fleet.start_host().await;
        fleet.is_ready("it").await;
        fleet.stage.minute().await;
        let mut writes = fleet.stage.host_writes_since(mark);
        // What cannot be granted is asked for once by each process.
        writes.retain(|write| write.resource != "plugins" && write.resource != "services");
        assert_eq!(writes, []);
        assert_eq!(events(&fleet.stage).len(), 1);
    }

    fn status(fleet: &Fleet, name: &str) -> Value {
        fleet.stage.find("Wish", name).unwrap()["status"].clone()
    }

    #[tokio::test(start_paused = true)]
    async fn without_observed_generation_conditions_are_written_anyway() {
        let schema = json!({"type": "object", "properties": {
            "conditions": conditions(FIELDS, &["type", "status"]), "text": {"type": "string"}}});
        // What the plugin gives there is dropped, so it is no reason to refuse the status.
        let given = json!({"text": "so", "observedGeneration": 77});
        let mut fleet = with(&definition(&schema, true), &given).await;
        let words = "does not take .status.conditions[].observedGeneration, .status.observedGeneration";
        fleet.until("it is told beforehand", |stage| warns(stage, words)).await;
        is_told_once(&mut fleet, words).await;
        assert!(fleet.stage.is_reconciled("Wish", "well"));
        assert_eq!(status(&fleet, "well")["text"], "so");
        let ill = fleet.stage.reconciled("Wish", "ill").unwrap();
        assert_eq!(ill["status"], "False", "{ill}");
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_crd_that_drops_the_status_is_reported_and_not_written_to() {
        let mut fleet = with(&definition(&json!({"type": "object"}), true), &json!({"text": "so"})).await;
        fleet
            .until("it is told beforehand", |stage| {
                warns(stage, "does not take .status.conditions, .status.observedGeneration")
            })
            .await;
        is_told_once(
            &mut fleet,
            "does not take .status.conditions, .status.observedGeneration",
        )
        .await;
        let told = status(&fleet, "well");
        assert!(told.is_null() || told == json!({}), "{told}");
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_definition_without_the_subresource_is_told() {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let mut fleet = with(&definition(&schema, false), &json!({})).await;
        is_told_once(&mut fleet, "the CRD of Wish has no subresource status").await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn incomplete_conditions_are_left_out_and_the_rest_is_written() {
        let schema = json!({"type": "object", "properties": {
            "observedGeneration": {"type": "integer"}, "text": {"type": "string"},
            "conditions": conditions(FIELDS, &["type", "status", "lastUpdateTime"])}});
        let given = json!({"text": "so", "observedGeneration": 77});
        let mut fleet = with(&definition(&schema, true), &given).await;
        is_told_once(&mut fleet, ".status.conditions[]").await;
        assert_eq!(
            status(&fleet, "well")["observedGeneration"],
            1,
            "it is the object's own"
        );
        assert_eq!(status(&fleet, "well")["text"], "so");
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_crd_narrower_than_the_plugins_own_is_noticed() {
        let whole = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let fleet = with(&definition(&whole, true), &json!({"text": "so"})).await;
        assert!(!warns(&fleet.stage, "does not take"));
        let less = json!({"type": "object", "properties": {"observedGeneration": {"type": "integer"}}});
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let definitions: Api<DynamicObject> = Api::all_with(fleet.client().await, &ApiResource::from_gvk(&kind));
        let patch = Patch::Merge(json!({"spec": definition(&less, true)["spec"]}));
        definitions
            .patch("wishes.wishes.test.dev", &PatchParams::default(), &patch)
            .await
            .unwrap();
        fleet.stage.create(&wish("well", "ConfigMap")).await;
        fleet
            .until("it is told what is left out", |stage| {
                warns(
                    stage,
                    "does not take .status.conditions, .status.text as the host writes it",
                )
            })
            .await;
        fleet
            .until("the rest is written", |stage| {
                stage.find("Wish", "well").unwrap()["status"] == json!({"observedGeneration": 1})
            })
            .await;
        assert!(fleet.stage.events("well", "ReconcileFailed").is_empty());
        fleet.stage.minute().await;
        let mark = fleet.stage.mark();
        fleet.stage.minute().await;
        let mut writes = fleet.stage.host_writes_since(mark);
        writes.retain(|write| write.resource == "wishes");
        assert_eq!(writes, []);
        fleet.stage.stop().await;
    }

    /// The API server serves a new kind for a while before it describes it in OpenAPI.
    async fn without_openapi(definition: &Value, status: &Value, seconds: u64) -> Fleet {
        let fleet = Fleet::start().await;
        let begun = Instant::now();
        let missing = Fault::Status {
            code: 404,
            retry_after: None,
        };
        let is_early = move |asked: &Asked| asked.resource == "openapi" && begun.elapsed().as_secs() < seconds;
        fleet.stage.simulator().faults().add(Rule::new(missing).when(is_early));
        given(&fleet, definition, status).await;
        fleet
    }

    #[tokio::test(start_paused = true)]
    async fn a_crd_that_is_not_described_yet_gets_what_it_takes_of_the_status_at_once() {
        let schema = json!({"type": "object", "properties": {
            "conditions": conditions(FIELDS, &["type", "status"]), "text": {"type": "string"}}});
        let given = json!({"text": "so", "new": 1});
        let mut fleet = without_openapi(&definition(&schema, true), &given, 30).await;
        for (name, kind) in [("well", "ConfigMap"), ("ill", "Service")] {
            fleet.stage.create(&wish(name, kind)).await;
        }
        let created = Instant::now();
        fleet
            .until("the failing object says so", |stage| {
                let reconciled = stage.reconciled("Wish", "ill").unwrap_or_default();
                reconciled["status"] == "False" && reconciled["message"].as_str().unwrap().contains("Service")
            })
            .await;
        fleet
            .until("the other is reconciled", |stage| stage.is_reconciled("Wish", "well"))
            .await;
        assert!(created.elapsed().as_secs() < 5, "{:?}", created.elapsed());
        assert_eq!(status(&fleet, "well")["text"], "so");
        let words = "does not take .status.conditions[].observedGeneration, .status.new, .status.observedGeneration as the host";
        fleet
            .until("it is told what is left out", |stage| {
                warns(stage, words) && events(stage).len() == 1
            })
            .await;
        let told = fleet.stage.events("ill", "ReconcileFailed");
        assert!(
            told.iter()
                .all(|event| !event["message"].as_str().unwrap().contains("not declared")),
            "{told:?}"
        );
        fleet.stage.minute().await;
        let mark = fleet.stage.mark();
        fleet.stage.minute().await;
        fleet.stage.host.resync().await.unwrap();
        fleet.stage.minute().await;
        let mut writes = fleet.stage.host_writes_since(mark);
        writes.retain(|write| write.resource == "wishes");
        assert_eq!(writes, [], "the schema, once it is there, says the same");
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_refused_before_its_schema_is_there_is_sent_again() {
        // The host leaves out conditions that lack what is required, which only the schema says.
        let schema = json!({"type": "object", "properties": {
            "observedGeneration": {"type": "integer"}, "text": {"type": "string"},
            "conditions": conditions(FIELDS, &["type", "status", "lastUpdateTime"])}});
        let fleet = without_openapi(&definition(&schema, true), &json!({"text": "so"}), 20).await;
        fleet.stage.create(&wish("well", "ConfigMap")).await;
        fleet
            .until("the rest of the status is written", |stage| {
                stage.find("Wish", "well").unwrap()["status"]["text"] == "so"
            })
            .await;
        fleet
            .until("it is told what is left out", |stage| {
                warns(stage, ".status.conditions[]")
            })
            .await;
        let blamed = fleet.stage.lines(&["reconcile failed", "blame=guest"]);
        assert!(blamed.is_empty(), "{blamed:?}");
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_wrong_status_is_told_before_its_schema_is_there() {
        let crd = definition(&schema(&json!("map"), &json!({})), true);
        let fleet = without_openapi(&crd, &json!({"text": 1}), 1000).await;
        fleet.stage.create(&wish("well", "ConfigMap")).await;
        let created = Instant::now();
        fleet
            .until("it is the plugin's failure", |stage| {
                let reconciled = stage.reconciled("Wish", "well").unwrap_or_default();
                reconciled["reason"] == "Refused" && reconciled["message"].as_str().unwrap().contains(".text")
            })
            .await;
        assert!(created.elapsed().as_secs() < 5, "{:?}", created.elapsed());
        fleet.stage.stop().await;
    }

    /// The schema of a list of conditions that takes all that the host writes.
    fn whole_conditions(list_type: &Value) -> Value {
        let mut list = conditions(FIELDS, &["type", "status"]);
        list["items"]["properties"]["observedGeneration"] = json!({"type": "integer"});
        list["x-kubernetes-list-type"] = list_type.clone();
        if list_type != "map" {
            list.as_object_mut().unwrap().remove("x-kubernetes-list-map-keys");
        }
        list
    }

    fn schema(list_type: &Value, more: &Value) -> Value {
        let mut properties = json!({
            "observedGeneration": {"type": "integer"}, "text": {"type": "string"}, "conditions": whole_conditions(list_type)});
        properties
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!({"type": "object", "properties": properties})
    }

    #[tokio::test(start_paused = true)]
    async fn undeclared_status_fields_are_left_out_at_any_depth() {
        let part = json!({"type": "object", "properties": {"name": {"type": "string"}}});
        let more = json!({"list": {"type": "array", "items": part}, "deep": part});
        let given = json!({
            "text": "so", "new": 1, "list": [{"name": "a", "new": 1, "null": null}], "deep": {"name": "b", "new": {"a": 1}}});
        let mut fleet = with(&definition(&schema(&json!("map"), &more), true), &given).await;
        let words = "does not take .status.deep.new, .status.list[].new, .status.new as the host writes it";
        is_told_once(&mut fleet, words).await;
        let told = status(&fleet, "well");
        assert_eq!(
            (&told["text"], &told["list"], &told["deep"]),
            (&json!("so"), &json!([{"name": "a"}]), &json!({"name": "b"}))
        );
        assert!(fleet.stage.is_reconciled("Wish", "well"));
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_declared_field_of_another_type_stays_the_plugins_failure() {
        let fleet = with(
            &definition(&schema(&json!("map"), &json!({})), true),
            &json!({"text": 1, "new": 1}),
        )
        .await;
        fleet.stage.create(&wish("well", "ConfigMap")).await;
        fleet
            .until("it is the plugin's failure", |stage| {
                let reconciled = stage.reconciled("Wish", "well").unwrap_or_default();
                reconciled["reason"] == "Refused" && reconciled["message"].as_str().unwrap().contains(".text")
            })
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_with_defaults_is_not_rewritten_after_a_restart() {
        let part = json!({"type": "object", "properties": {
            "name": {"type": "string"}, "mode": {"type": "string", "default": "x"}}});
        let more = json!({"list": {"type": "array", "items": part}, "big": {"type": "number"}});
        let given = json!({"list": [{"name": "a"}], "big": u64::MAX});
        let mut fleet = with(&definition(&schema(&json!("map"), &more), true), &given).await;
        fleet.stage.create(&wish("well", "ConfigMap")).await;
        fleet
            .until("it is reconciled", |stage| stage.is_reconciled("Wish", "well"))
            .await;
        assert_eq!(status(&fleet, "well")["list"], json!([{"name": "a", "mode": "x"}]));
        fleet.stage.minute().await;
        let mark = fleet.stage.mark();
        fleet.stage.host.stop().await.unwrap();
        fleet.start_host().await;
        fleet.is_ready("it").await;
        fleet.stage.minute().await;
        let mut writes = fleet.stage.host_writes_since(mark);
        writes.retain(|write| write.resource == "wishes");
        assert_eq!(writes, []);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn conditions_of_others_stay_in_a_plain_list() {
        let given = json!({"text": "a", "conditions": [{"type": "Own", "status": "True"}]});
        let crd = definition(&schema(&Value::Null, &json!({})), true);
        let mut fleet = with(&crd, &given).await;
        fleet
            .until("the list type is advised", |stage| {
                warns(stage, "x-kubernetes-list-type: map")
            })
            .await;
        fleet.stage.create(&wish("well", "ConfigMap")).await;
        fleet
            .until("it is reconciled", |stage| stage.is_reconciled("Wish", "well"))
            .await;
        let kind = GroupVersionKind::gvk("wishes.test.dev", "v1", "Wish");
        let wishes: Api<DynamicObject> =
            Api::namespaced_with(fleet.client().await, "default", &ApiResource::from_gvk(&kind));
        let theirs = json!({"type": "Theirs", "status": "True", "reason": "So"});
        let mut list = status(&fleet, "well")["conditions"].clone();
        list.as_array_mut().unwrap().push(theirs.clone());
        let patch = Patch::Merge(json!({"status": {"conditions": list}}));
        wishes
            .patch_status("well", &PatchParams::default(), &patch)
            .await
            .unwrap();
        let configuration = json!({"status": {"text": "b", "conditions": [{"type": "New", "status": "True"}]}});
        fleet.change("it", json!({"configuration": configuration})).await;
        fleet
            .until("the plugin's own are exchanged and the others stay", |stage| {
                let status = stage.find("Wish", "well").unwrap()["status"].clone();
                let items = status["conditions"].as_array().cloned().unwrap_or_default();
                let types: Vec<_> = items.iter().filter_map(|it| it["type"].as_str()).collect();
                status["text"] == "b" && types == ["New", "Reconciled", "Theirs"] && items.contains(&theirs)
            })
            .await;
        let mark = fleet.stage.mark();
        fleet.stage.host.resync().await.unwrap();
        fleet.stage.minute().await;
        fleet.stage.host.stop().await.unwrap();
        fleet.start_host().await;
        fleet.is_ready("it").await;
        fleet.stage.minute().await;
        let mut writes = fleet.stage.host_writes_since(mark);
        writes.retain(|write| write.resource == "wishes");
        assert_eq!(writes, []);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_status_is_not_rewritten_while_its_watch_is_silent() {
        let fleet = Fleet::start().await;
        fleet.put("wisher", "a.wasm", 0);
        fleet
            .plugin(
                "it",
                json!({"source": {"file": "a.wasm"}, "configuration": {"owns": ["ConfigMap"]}}),
            )
            .await;
        fleet.is_ready("it").await;
        let silent = Rule::new(Fault::SilentWatch).verbs(&["watch"]).resource("plugins");
        fleet.stage.simulator().faults().add(silent);
        fleet.stage.simulator().cut_watches("pilothouse.dev", "plugins");
        fleet.stage.minute().await;
        assert!(fleet.stage.simulator().faults().injected() > 0);
        let mark = fleet.stage.mark();
        // What the status says changes, and the host does not see what it has written.
        fleet.stage.create(&wish("one", "ConfigMap")).await;
        fleet.stage.minute().await;
        fleet.stage.minute().await;
        let writes = fleet.stage.host_writes_since(mark);
        let statuses = writes.iter().filter(|write| write.resource == "plugins").count();
        assert!((1..=3).contains(&statuses), "{statuses} writes");
        fleet.stage.simulator().faults().clear();
        fleet.stage.stop().await;
    }
}
