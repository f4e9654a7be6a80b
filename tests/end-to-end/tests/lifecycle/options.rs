//! Options of desired objects where somebody else writes at the same moment: another primary, another host, a user.

mod simulated {
    use std::time::Duration;

    use kube::Api;
    use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::stage::{Stage, unhurried};
    use pilothouse_runtime::HostOptions;
    use pilothouse_simulator::{Fault, Rule};
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};

    const OBJECTS: usize = 30;

    fn config_map(name: &str, text: &str) -> Value {
        let metadata = json!({"name": name, "namespace": "default"});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": text, "other": "ours"}})
    }

    fn wish(name: &str, owns: &Value) -> Value {
        json!({
            "apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": name, "namespace": "default"},
            "spec": {"owns": [owns]},
        })
    }

    async fn api(stage: &Stage, group: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        Api::namespaced_with(stage.cluster.client().await.unwrap(), "default", &resource)
    }

    async fn patch(api: &Api<DynamicObject>, name: &str, patch: Value) {
        let by = PatchParams {
            field_manager: Some("somebody".to_owned()),
            ..PatchParams::default()
        };
        // Where the response is lost, the patch has taken effect all the same.
        drop(api.patch(name, &by, &Patch::Merge(patch)).await);
    }

    async fn until_reconciled(stage: &Stage, name: &str) {
        let well = stage.until(|stage| stage.is_reconciled("Wish", name).then_some(()));
        assert!(
            well.await.is_some(),
            "{:?}\n{}",
            stage.reconciled("Wish", name),
            stage.lines(&[]).join("\n")
        );
    }

    async fn second_host(stage: &Stage) -> RuntimeHost {
        let mut second = RuntimeHost::new(HostOptions::default(), unhurried());
        let specs = vec![second.spec("wisher").unwrap()];
        second.start_with(&stage.cluster, specs).await.unwrap();
        second.settled().await.unwrap();
        second
    }

    fn slow_down(stage: &Stage) {
        for (fault, one_in) in [
            (Fault::Delay(Duration::from_millis(700)), 0.4),
            (Fault::LoseResponse, 0.1),
        ] {
            let rule = Rule::new(fault).verbs(&["patch"]).resource("configmaps");
            stage.simulator().faults().add(rule.probability(one_in));
        }
    }

    /// Lets everything come to rest, and checks that nothing is written any more.
    async fn fall_silent(stage: &mut Stage) {
        stage.simulator().faults().clear();
        for _ in 0..12 {
            stage.minute().await;
        }
        let mark = stage.mark();
        stage.host.resync().await.unwrap();
        stage.minute().await;
        let mut writes = stage.host_writes_since(mark);
        // Events of many failures wait for their turn.
        writes.retain(|write| write.resource != "events");
        assert!(writes.is_empty(), "{writes:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_primaries_that_adopt_one_object_one_wins_and_the_other_reports_it() {
        let mut stage = Stage::with(&["wisher"], unhurried()).await;
        slow_down(&stage);
        for number in 0..OBJECTS {
            let name = format!("it-{number}");
            stage.create(&config_map(&name, "theirs")).await;
            for owner in ["one", "two"] {
                let owns = json!({"object": config_map(&name, owner), "adopt": true});
                stage.create(&wish(&format!("{owner}-{number}"), &owns)).await;
            }
        }
        for number in 0..OBJECTS {
            let told = |stage: &Stage, owner: &str| {
                let condition = stage.reconciled("Wish", &format!("{owner}-{number}"))?;
                Some(condition["reason"].as_str()?.to_owned())
            };
            let settled = |stage: &Stage| {
                let mut reasons = [told(stage, "one")?, told(stage, "two")?];
                reasons.sort();
                (reasons == ["ForeignObject", "Success"]).then_some(())
            };
            let settled = stage.until(settled).await;
            assert!(settled.is_some(), "{:?} {:?}", told(&stage, "one"), told(&stage, "two"));
        }
        fall_silent(&mut stage).await;
        for number in 0..OBJECTS {
            let object = stage.find("ConfigMap", &format!("it-{number}")).unwrap();
            let owners = object["metadata"]["ownerReferences"].as_array().unwrap();
            assert_eq!(owners.len(), 1, "{object}");
            let winner = owners[0]["name"].as_str().unwrap().split('-').next().unwrap();
            assert_eq!(object["data"]["text"], winner, "{object}");
        }
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_adoption_is_an_event_of_its_owner() {
        let stage = Stage::with(&["wisher"], unhurried()).await;
        stage.create(&config_map("settings", "theirs")).await;
        let owns = json!({"object": config_map("settings", "ours"), "adopt": true});
        stage.create(&wish("it", &owns)).await;
        let events = stage.until(|stage| Some(stage.events("it", "Adopted")).filter(|events| !events.is_empty()));
        let events = events.await.expect("an event");
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(events[0]["type"], "Normal");
        let note = events[0]["message"].as_str().unwrap();
        assert_eq!(
            note,
            "ConfigMap default/settings existed and belonged to nobody; it was taken over"
        );
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn two_hosts_that_overlap_adopt_and_yield_and_fall_silent() {
        let mut stage = Stage::with(&["wisher"], unhurried()).await;
        let mut second = second_host(&stage).await;
        slow_down(&stage);
        for number in 0..OBJECTS {
            let name = format!("it-{number}");
            stage.create(&config_map(&name, "theirs")).await;
            let owns = json!({"object": config_map(&name, "ours"), "adopt": true, "yields": [".data.text"]});
            stage.create(&wish(&name, &owns)).await;
        }
        for number in 0..OBJECTS {
            until_reconciled(&stage, &format!("it-{number}")).await;
        }
        fall_silent(&mut stage).await;
        for number in 0..OBJECTS {
            let object = stage.find("ConfigMap", &format!("it-{number}")).unwrap();
            assert_eq!(object["data"], json!({"text": "theirs", "other": "ours"}), "{object}");
        }
        assert!(second.stop().await.unwrap().is_empty());
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_yielded_field_is_never_taken_back() {
        let mut stage = Stage::with(&["wisher"], unhurried()).await;
        let mut second = second_host(&stage).await;
        let (wishes, config_maps) = (
            api(&stage, "wishes.test.dev", "Wish").await,
            api(&stage, "", "ConfigMap").await,
        );
        let owns = |name: &str, other: &str| {
            let mut object = config_map(name, "ours");
            object["data"]["other"] = json!(other);
            json!({"object": object, "yields": [".data.text"]})
        };
        for number in 0..OBJECTS {
            let name = format!("it-{number}");
            stage.create(&wish(&name, &owns(&name, "before"))).await;
            until_reconciled(&stage, &name).await;
        }
        slow_down(&stage);
        for number in 0..OBJECTS {
            // The hosts are about to apply another value of the other field.
            let name = format!("it-{number}");
            patch(&wishes, &name, json!({"spec": {"owns": [owns(&name, "after")]}})).await;
            patch(&config_maps, &name, json!({"data": {"text": "theirs"}})).await;
        }
        fall_silent(&mut stage).await;
        for number in 0..OBJECTS {
            let object = stage.find("ConfigMap", &format!("it-{number}")).unwrap();
            assert_eq!(object["data"], json!({"text": "theirs", "other": "after"}), "{object}");
        }
        assert!(second.stop().await.unwrap().is_empty());
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn two_hosts_that_overlap_make_an_object_once() {
        let mut stage = Stage::with(&["wisher"], unhurried()).await;
        let mut second = second_host(&stage).await;
        let (wishes, config_maps) = (
            api(&stage, "wishes.test.dev", "Wish").await,
            api(&stage, "", "ConfigMap").await,
        );
        slow_down(&stage);
        let owns = |name: &str, token: &str| json!({"object": config_map(name, "ours"), "once": token});
        for number in 0..OBJECTS {
            let name = format!("it-{number}");
            stage.create(&wish(&name, &owns(&name, "1"))).await;
        }
        for number in 0..OBJECTS {
            let name = format!("it-{number}");
            until_reconciled(&stage, &name).await;
            let note = |stage: &Stage| {
                let wish = stage.find("Wish", &name)?;
                wish["metadata"]["annotations"]["pilothouse.dev/once"]
                    .as_str()
                    .map(str::to_owned)
            };
            let note = stage.until(note).await.unwrap_or_default();
            assert!(
                note.contains(&format!(
                    "\"/ConfigMap/default/{name}\":{{\"current\":true,\"token\":\"1\"}}"
                )),
                "{note}"
            );
        }
        // A create of the other host that is under way would make it again.
        fall_silent(&mut stage).await;
        slow_down(&stage);
        for number in 0..OBJECTS {
            let (name, options) = (format!("it-{number}"), DeleteParams::default());
            drop(config_maps.delete(&name, &options).await.unwrap());
        }
        fall_silent(&mut stage).await;
        for number in 0..OBJECTS {
            let name = format!("it-{number}");
            assert!(stage.find("ConfigMap", &name).is_none(), "{name}");
            assert!(
                stage.is_reconciled("Wish", &name),
                "{:?}",
                stage.reconciled("Wish", &name)
            );
        }
        slow_down(&stage);
        for number in 0..OBJECTS {
            let name = format!("it-{number}");
            patch(&wishes, &name, json!({"spec": {"owns": [owns(&name, "2")]}})).await;
        }
        fall_silent(&mut stage).await;
        for number in 0..OBJECTS {
            let object = stage.find("ConfigMap", &format!("it-{number}")).unwrap();
            assert_eq!(
                object["metadata"]["annotations"]["pilothouse.dev/once"], "2",
                "{object}"
            );
        }
        assert!(second.stop().await.unwrap().is_empty());
        stage.stop().await;
    }
}
