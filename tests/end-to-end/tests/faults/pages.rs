//! Lists that expire between their pages, at a moment when much has happened that no watch has told.

mod simulated {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{DeleteParams, DynamicObject};
    use kube::core::{ApiResource, GroupVersionKind};
    use kube::{Api, Client};
    use pilothouse_end_to_end::stage::{Stage, hostile, unhurried};
    use pilothouse_simulator::{Fault, Rule};
    use pilothouse_testkit::requests::TEST_ACCOUNT;
    use serde_json::json;

    /// So many objects that a list has nine pages.
    const MANY: usize = 60;
    const PAGE: usize = 7;

    const KINDS: [(&str, &str); 2] = [("hostile.test.dev", "hostiles"), ("", "configmaps")];

    /// Has the host list everything again, in pages. The fourth page of each list that goes on is gone, and so is the second of
    /// the list that begins anew.
    fn expire(stage: &Stage) {
        let faults = stage.simulator().faults();
        for (_, plural) in KINDS {
            let gone = Rule::new(Fault::GoneInList).resource(plural).skip(3).times(2);
            faults.add(gone.when(|asked| asked.user_agent != TEST_ACCOUNT));
        }
        faults.add(Rule::new(Fault::ShortPages { objects: PAGE }));
    }

    #[tokio::test(start_paused = true)]
    async fn lists_that_expire_between_pages_tell_only_what_was_missed() {
        let stage = Stage::with(&["hostile"], unhurried()).await;
        let many: Vec<_> = (0..MANY).map(|index| format!("o{index:02}")).collect();
        let says = |text: &str| json!({"behaviour": "config-map", "text": text});
        for name in &many {
            stage.create(&hostile(name, &says("one"))).await;
        }
        let all = stage.until(|stage| {
            many.iter()
                .all(|name| stage.is_reconciled("Hostile", name))
                .then_some(())
        });
        assert!(all.await.is_some());
        stage.host.settled().await.unwrap();
        let client: Client = stage.cluster.client().await.unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("hostile.test.dev", "v1", "Hostile"));
        let hostiles: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
        let config_maps: Api<ConfigMap> = Api::namespaced(client, "default");

        let faults = stage.simulator().faults();
        let unwatched = faults.add(Rule::new(Fault::Refuse).verbs(&["watch"]));
        for (group, plural) in KINDS {
            stage.simulator().cut_watches(group, plural);
        }
        let mark = stage.mark();
        stage.patch_hostile("o05", &json!({"spec": says("two")})).await;
        stage.create(&hostile("new", &says("one"))).await;
        config_maps.delete("o55", &DeleteParams::default()).await.unwrap();
        hostiles.delete("o30", &DeleteParams::default()).await.unwrap();
        stage.simulator().compact();
        expire(&stage);
        faults.remove(unwatched);

        let caught_up = stage.until(|stage| {
            let text = |name: &str| Some(stage.find("ConfigMap", name)?["data"]["text"].clone());
            let is_done = text("o05") == Some(json!("two")) && text("new").is_some() && text("o55").is_some();
            (is_done && stage.is_reconciled("Hostile", "new")).then_some(())
        });
        assert!(caught_up.await.is_some(), "{}", stage.lines(&[]).join("\n"));
        stage.minute().await;
        let mut writes = BTreeMap::new();
        for write in stage.host_writes_since(mark) {
            if write.subresource.is_empty() && write.resource != "events" {
                let write = format!("{} {}/{}: {}", write.verb, write.resource, write.name, write.code);
                *writes.entry(write).or_insert(0) += 1;
            }
        }
        let expected = ["new: 201", "o05: 200", "o55: 201"].map(|it| (format!("patch configmaps/{it}"), 1));
        assert_eq!(writes, BTreeMap::from(expected), "{}", stage.lines(&[]).join("\n"));
        assert!(stage.find("ConfigMap", "o30").is_none());
        let expired = stage.simulator().requests().all();
        let expired = expired
            .iter()
            .filter(|request| request.status == 410 && request.verb == "list");
        assert_eq!(expired.count(), 2 * KINDS.len(), "each list has expired twice");
        stage.stop().await;
    }
}
