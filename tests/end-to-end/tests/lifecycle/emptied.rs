//! Object members that a plugin empties: `{}` arrives, in objects and in a status, where an apply alone would leave null.

mod simulated {
    use std::time::Duration;

    use kube::Api;
    use kube::api::{DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_testkit::cluster::Mark;
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};

    use crate::fleet::Fleet;

    /// The schema of members that can become empty.
    fn members() -> Value {
        let labels = json!({"type": "object", "additionalProperties": {"type": "string"}});
        let mut maybe = labels.clone();
        maybe["nullable"] = json!(true);
        let parts = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "labels": labels}}});
        json!({"type": "object", "required": ["set"], "properties": {
            "labels": labels, "maybe": maybe, "parts": parts,
            "inner": {"type": "object", "properties": {"a": {"type": "string"}, "deep": labels}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        }})
    }

    fn full() -> Value {
        json!({
            "labels": {"a": "1"}, "maybe": {"a": "1"}, "parts": [{"name": "x", "labels": {"a": "1"}}],
            "inner": {"a": "1", "deep": {"a": "1"}}, "free": {"a": {"b": "c"}}, "set": ["a"],
        })
    }

    fn hollow() -> Value {
        json!({
            "labels": {}, "maybe": {}, "parts": [{"name": "x", "labels": {}}], "inner": {"deep": {}}, "free": {"a": {}},
            "set": ["a"],
        })
    }

    fn definition(group: &str, kind: &str, version: &str, properties: &Value) -> Value {
        let plural = if kind == "Wish" { "wishes" } else { "trinkets" };
        let schema = json!({"type": "object", "properties": properties});
        let version = json!({"name": version, "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema}});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {"group": group, "scope": "Namespaced", "versions": [version],
                "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()}},
        })
    }

    fn wish(spec: &Value) -> Value {
        let trinket = json!({"apiVersion": "trinkets.test.dev/v1alpha1", "kind": "Trinket",
            "metadata": {"name": "web", "namespace": "default"}, "spec": spec});
        json!({"apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": "it", "namespace": "default"},
            "spec": {"owns": [{"object": trinket}]}})
    }

    async fn patch(fleet: &Fleet, (group, version, kind): (&str, &str, &str), name: &str, body: Value) {
        let kind = GroupVersionKind::gvk(group, version, kind);
        let api: Api<DynamicObject> =
            Api::namespaced_with(fleet.client().await, "default", &ApiResource::from_gvk(&kind));
        api.patch(name, &PatchParams::default(), &Patch::Merge(body))
            .await
            .unwrap();
    }

    const WISH: (&str, &str, &str) = ("wishes.test.dev", "v1", "Wish");
    const TRINKET: (&str, &str, &str) = ("trinkets.test.dev", "v1alpha1", "Trinket");

    /// A plugin that has made a Trinket of this specification.
    async fn owning(spec: &Value) -> Fleet {
        let fleet = Fleet::start().await;
        let properties = json!({"spec": members()});
        fleet
            .stage
            .create(&definition("trinkets.test.dev", "Trinket", "v1alpha1", &properties))
            .await;
        fleet.put("wisher", "a.wasm", 0);
        let plugin = json!({"source": {"file": "a.wasm"}, "configuration": {"owns": ["Trinket"]}});
        fleet.plugin("it", plugin).await;
        fleet.is_ready("it").await;
        fleet.stage.create(&wish(spec)).await;
        fleet
            .until("it is reconciled", |stage| stage.is_reconciled("Wish", "it"))
            .await;
        fleet
    }

    async fn becomes(fleet: &Fleet, what: &str, spec: &Value) {
        fleet
            .until(what, |stage| {
                let is_so = |trinket: Value| trinket["spec"] == *spec;
                stage.is_reconciled("Wish", "it") && stage.find("Trinket", "web").is_some_and(is_so)
            })
            .await;
    }

    fn writes(fleet: &Fleet, mark: Mark, resource: &str) -> usize {
        let writes = fleet.stage.host_writes_since(mark);
        writes.iter().filter(|write| write.resource == resource).count()
    }

    /// Checks that nothing is written in a resync, nor by a host that has just started.
    async fn is_at_rest(fleet: &mut Fleet, resource: &str) {
        let mark = fleet.stage.mark();
        fleet.stage.host.resync().await.unwrap();
        fleet.stage.minute().await;
        fleet.stage.host.stop().await.unwrap();
        fleet.start_host().await;
        fleet.is_ready("it").await;
        tokio::time::sleep(Duration::from_hours(3)).await;
        assert_eq!(
            writes(fleet, mark, resource),
            0,
            "{:?}",
            fleet.stage.host_writes_since(mark)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn members_of_an_owned_object_become_empty_with_two_writes() {
        let mut fleet = owning(&full()).await;
        let mark = fleet.stage.mark();
        patch(&fleet, WISH, "it", json!({"spec": wish(&hollow())["spec"]})).await;
        becomes(&fleet, "it is hollow", &hollow()).await;
        assert_eq!(writes(&fleet, mark, "trinkets"), 2);
        is_at_rest(&mut fleet, "trinkets").await;
        patch(&fleet, WISH, "it", json!({"spec": wish(&full())["spec"]})).await;
        becomes(&fleet, "it is full again", &full()).await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_others_have_in_a_member_stays_when_it_is_emptied() {
        let fleet = owning(&full()).await;
        let theirs = json!({"labels": {"theirs": "2"}, "inner": {"deep": {"theirs": "2"}}});
        patch(&fleet, TRINKET, "web", json!({"spec": theirs})).await;
        patch(&fleet, WISH, "it", json!({"spec": wish(&hollow())["spec"]})).await;
        let mut left = hollow();
        left["labels"] = theirs["labels"].clone();
        left["inner"] = theirs["inner"].clone();
        becomes(&fleet, "theirs is left", &left).await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_is_required_becomes_empty() {
        let mut fleet = owning(&full()).await;
        let mut spec = full();
        spec["set"] = json!([]);
        patch(&fleet, WISH, "it", json!({"spec": wish(&spec)["spec"]})).await;
        becomes(&fleet, "it has an empty list", &spec).await;
        is_at_rest(&mut fleet, "trinkets").await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn members_of_a_status_become_empty() {
        let fleet = Fleet::start().await;
        let mut status = members();
        status["required"] = json!([]);
        status["properties"]["observedGeneration"] = json!({"type": "integer"});
        status["properties"]["conditions"] = json!({
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
            "items": {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}},
                "x-kubernetes-preserve-unknown-fields": true}});
        let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let crd = definition(
            "wishes.test.dev",
            "Wish",
            "v1",
            &json!({"spec": free, "status": status}),
        );
        fleet.put("wisher", "a.wasm", 0);
        let configuration =
            |status: &Value| json!({"steers": ["Wish"], "crds": [crd.to_string()], "status": status, "owns": []});
        let spec = json!({"source": {"file": "a.wasm"}, "configuration": configuration(&full())});
        fleet.plugin("it", spec).await;
        fleet.is_ready("it").await;
        fleet.stage.create(&wish(&full())).await;
        let mut fleet = fleet;
        for wanted in [full(), hollow()] {
            // A merge patch of the Plugin would merge the statuses.
            fleet.change("it", json!({"configuration": null})).await;
            fleet
                .change("it", json!({"configuration": configuration(&wanted)}))
                .await;
            fleet
                .until("the status is as desired", |stage| {
                    let status = stage.find("Wish", "it").unwrap_or_default()["status"].clone();
                    let members = wanted.as_object().unwrap();
                    stage.is_reconciled("Wish", "it") && members.iter().all(|(name, value)| status[name] == *value)
                })
                .await;
        }
        is_at_rest(&mut fleet, "wishes").await;
        fleet.stage.stop().await;
    }
}
