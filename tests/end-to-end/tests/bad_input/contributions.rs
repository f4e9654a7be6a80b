//! Many primaries want fields of one object of somebody else's: what each gets, what it is told, and how many writes it
//! takes. The primaries are Shares, which contribute what they say as it is.

mod simulated {
    use std::time::Duration;

    use kube::Api;
    use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_runtime::PluginSpec;
    use pilothouse_simulator::{Fault, Rule, RuleId};
    use pilothouse_testkit::cluster::Mark;
    use pilothouse_testkit::host::SteeredHost as _;
    use pilothouse_testkit::requests::Request;
    use serde_json::{Value, json};

    use crate::stage::{Stage, unhurried};

    async fn stage() -> Stage {
        Stage::with(&["sharer"], unhurried()).await
    }

    fn of_kind(kind: &str, name: &str, contributes: &[Value]) -> Value {
        json!({
            "apiVersion": "sharing.test.dev/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"},
            "spec": {"contributes": contributes},
        })
    }

    fn share(name: &str, contributes: &[Value]) -> Value {
        of_kind("Share", name, contributes)
    }

    fn entry(key: &str, value: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "target"}, "data": {key: value}})
    }

    fn config_map(data: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "target", "namespace": "default"},
            "data": data,
        })
    }

    fn service(ports: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "target", "namespace": "default"},
            "spec": {"ports": ports},
        })
    }

    fn port(port: u64, name: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "target"},
            "spec": {"ports": [{"name": name, "port": port}]},
        })
    }

    async fn api(stage: &Stage, kind: &str) -> Api<DynamicObject> {
        let (group, version) = match kind {
            "Share" | "Loan" => ("sharing.test.dev", "v1"),
            _ => ("", "v1"),
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(stage.cluster.client().await.unwrap(), "default", &resource)
    }

    /// Changes an object of the namespace `default` as somebody with this name does.
    async fn edit(stage: &Stage, kind: &str, name: &str, manager: &str, patch: &Value) {
        let params = PatchParams {
            field_manager: Some(manager.to_owned()),
            ..PatchParams::default()
        };
        let patched = api(stage, kind).await.patch(name, &params, &Patch::Merge(patch)).await;
        patched.unwrap();
    }

    async fn delete(stage: &Stage, kind: &str, name: &str) {
        api(stage, kind)
            .await
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    /// The data of the ConfigMap that all contribute to.
    fn data(stage: &Stage) -> Value {
        stage
            .find("ConfigMap", "target")
            .map_or(Value::Null, |target| target["data"].clone())
    }

    fn ports(stage: &Stage) -> Vec<u64> {
        let service = stage.find("Service", "target").unwrap();
        let ports = service["spec"]["ports"].as_array().unwrap().iter();
        let mut ports: Vec<_> = ports.map(|port| port["port"].as_u64().unwrap()).collect();
        ports.sort_unstable();
        ports
    }

    async fn until_data(stage: &Stage, wanted: &Value) {
        let seen = stage.until(|stage| (data(stage) == *wanted).then_some(())).await;
        assert!(
            seen.is_some(),
            "{} and not {wanted}\n{}",
            data(stage),
            stage.lines(&[]).join("\n")
        );
    }

    fn problem(stage: &Stage, kind: &str, name: &str) -> Option<String> {
        let condition = stage.reconciled(kind, name)?;
        (condition["status"] == "False").then(|| condition["message"].as_str().unwrap_or_default().to_owned())
    }

    /// Waits until a primary's condition says all these words.
    async fn until_told(stage: &Stage, kind: &str, name: &str, words: &[&str]) {
        let told = |stage: &Stage| {
            let message = problem(stage, kind, name)?;
            words.iter().all(|word| message.contains(word)).then_some(())
        };
        let seen = stage.until(told).await;
        assert!(seen.is_some(), "{:?} and not {words:?}", stage.reconciled(kind, name));
    }

    async fn until_reconciled(stage: &Stage, kind: &str, names: impl IntoIterator<Item = String>) {
        for name in names {
            let seen = stage
                .until(|stage| stage.is_reconciled(kind, &name).then_some(()))
                .await;
            assert!(seen.is_some(), "{kind} {name}: {:?}", stage.reconciled(kind, &name));
        }
    }

    fn names(count: usize) -> impl Iterator<Item = String> {
        (0..count).map(|number| format!("share-{number}"))
    }

    /// The host's writes of the objects that are contributed to.
    fn writes(stage: &Stage, mark: Mark) -> Vec<Request> {
        let mut writes = stage.host_writes_since(mark);
        writes.retain(|request| request.name == "target");
        writes
    }

    #[tokio::test(start_paused = true)]
    async fn two_hundred_primaries_at_once_are_few_writes() {
        let stage = stage().await;
        stage.create(&config_map(&json!({"mine": "by hand"}))).await;
        stage.create(&service(&json!([{"name": "mine", "port": 22}]))).await;
        let begun = stage.mark();
        for (number, name) in (1000_u64..).zip(names(200)) {
            let contributes = [
                entry(&number.to_string(), &name),
                port(number, &format!("tcp-{number}")),
            ];
            stage.create(&share(&name, &contributes)).await;
        }
        until_reconciled(&stage, "Share", names(200)).await;
        assert_eq!(data(&stage).as_object().unwrap().len(), 201);
        assert_eq!(ports(&stage).len(), 201);
        let made = writes(&stage, begun);
        assert!(made.len() <= 40, "{} writes for 200 objects", made.len());
        assert!(made.iter().all(|write| write.code == 200), "{made:?}");

        let begun = stage.mark();
        for name in names(200) {
            delete(&stage, "Share", &name).await;
        }
        until_data(&stage, &json!({"mine": "by hand"})).await;
        stage.host.settled().await.unwrap();
        assert_eq!(ports(&stage), [22]);
        let taken = writes(&stage, begun);
        assert!(taken.len() <= 40, "{} writes for 200 objects", taken.len());
        println!(
            "200 primaries: {} writes to two objects, {} to take them away",
            made.len(),
            taken.len()
        );
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn one_bad_claim_among_a_hundred_keeps_nobody_else_from_what_it_wants() {
        let mut stage = stage().await;
        stage.create(&service(&json!([{"name": "mine", "port": 22}]))).await;
        stage.host.stop().await.unwrap();
        for (number, name) in (1000_u64..).zip(names(101)) {
            let called = if number == 1050 {
                "Not_A_Name!".to_owned()
            } else {
                format!("tcp-{number}")
            };
            stage.create(&share(&name, &[port(number, &called)])).await;
        }
        let begun = stage.mark();
        let spec = stage.host.spec("sharer").unwrap();
        stage.start(vec![spec]).await;
        until_reconciled(&stage, "Share", names(101).filter(|name| name != "share-50")).await;
        until_told(
            &stage,
            "Share",
            "share-50",
            &["Refused: cannot contribute to Service default/target", "Not_A_Name!"],
        )
        .await;
        assert_eq!(ports(&stage).len(), 101);
        let tries = writes(&stage, begun);
        assert!(tries.len() <= 30, "{} tries", tries.len());
        println!("one bad claim among 101: {} writes", tries.len());

        let calm = stage.mark();
        stage.minute().await;
        assert_eq!(stage.host_writes_since(calm), [], "a refused claim waits for a change");
        let right = json!({"spec": {"contributes": [port(1050, "tcp-1050")]}});
        edit(&stage, "Share", "share-50", "someone", &right).await;
        until_reconciled(&stage, "Share", names(101)).await;
        assert_eq!(ports(&stage).len(), 102);
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_that_is_missing_is_not_made_and_is_contributed_to_whenever_it_is_there() {
        let stage = stage().await;
        stage.create(&share("one", &[entry("a", "1")])).await;
        until_told(
            &stage,
            "Share",
            "one",
            &["TargetNotFound: ConfigMap default/target does not exist", "create it"],
        )
        .await;
        assert_eq!(stage.find("ConfigMap", "target"), None);
        stage.create(&config_map(&json!({"mine": "1"}))).await;
        until_data(&stage, &json!({"mine": "1", "a": "1"})).await;
        until_reconciled(&stage, "Share", ["one".to_owned()]).await;
        for _ in 0..2 {
            delete(&stage, "ConfigMap", "target").await;
            until_told(&stage, "Share", "one", &["does not exist"]).await;
            stage.create(&config_map(&json!({"mine": "2"}))).await;
            until_data(&stage, &json!({"mine": "2", "a": "1"})).await;
            until_reconciled(&stage, "Share", ["one".to_owned()]).await;
        }
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_older_of_two_holds_the_field_and_the_other_takes_over_when_it_goes() {
        let stage = stage().await;
        stage.create(&config_map(&json!({}))).await;
        stage
            .create(&share("a-first", &[entry("k", "first"), port(1, "p")]))
            .await;
        until_data(&stage, &json!({"k": "first"})).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        stage.create(&share("b-second", &[entry("k", "second")])).await;
        until_told(
            &stage,
            "Share",
            "b-second",
            &[".data.k of ConfigMap default/target is held by Share default/a-first"],
        )
        .await;
        until_data(&stage, &json!({"k": "first"})).await;
        let begun = stage.mark();
        delete(&stage, "Share", "a-first").await;
        until_data(&stage, &json!({"k": "second"})).await;
        until_reconciled(&stage, "Share", ["b-second".to_owned()]).await;
        assert_eq!(writes(&stage, begun).len(), 1, "it is handed over in one write");
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_entry_that_somebody_edited_is_theirs_until_they_let_go() {
        let stage = stage().await;
        stage.create(&config_map(&json!({}))).await;
        for (name, key) in [("one", "a"), ("two", "b")] {
            stage.create(&share(name, &[entry(key, "ours")])).await;
        }
        until_data(&stage, &json!({"a": "ours", "b": "ours"})).await;
        edit(
            &stage,
            "ConfigMap",
            "target",
            "somebody",
            &json!({"data": {"a": "theirs"}}),
        )
        .await;
        until_told(
            &stage,
            "Share",
            "one",
            &["FieldConflict: .data.a of ConfigMap default/target is held by \"somebody\""],
        )
        .await;
        until_data(&stage, &json!({"a": "theirs", "b": "ours"})).await;
        assert!(stage.is_reconciled("Share", "two"));
        let calm = stage.mark();
        stage.minute().await;
        stage.host.handle().unwrap().resync();
        stage.host.settled().await.unwrap();
        assert_eq!(stage.host_writes_since(calm), [], "nobody fights");
        edit(&stage, "ConfigMap", "target", "somebody", &json!({"data": {"a": null}})).await;
        until_data(&stage, &json!({"a": "ours", "b": "ours"})).await;
        until_reconciled(&stage, "Share", ["one".to_owned()]).await;
        edit(
            &stage,
            "ConfigMap",
            "target",
            "somebody",
            &json!({"data": {"b": null, "c": "new"}}),
        )
        .await;
        until_data(&stage, &json!({"a": "ours", "b": "ours", "c": "new"})).await;
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn two_plugins_that_want_one_field_do_not_fight() {
        let mut stage = Stage::empty(unhurried());
        let first = stage.host.spec("sharer").unwrap();
        let second = PluginSpec {
            name: Some("lender".to_owned()),
            ..stage.configured("sharer", json!({"kind": "Loan"}))
        };
        stage.start(vec![first, second]).await;
        stage.host.settled().await.unwrap();
        stage.create(&config_map(&json!({}))).await;
        stage.create(&share("one", &[entry("k", "share")])).await;
        until_data(&stage, &json!({"k": "share"})).await;
        stage.create(&of_kind("Loan", "two", &[entry("k", "loan")])).await;
        until_told(
            &stage,
            "Loan",
            "two",
            &[".data.k of ConfigMap default/target is held by \"pilothouse/sharer\""],
        )
        .await;
        let calm = stage.mark();
        stage.minute().await;
        assert_eq!(stage.host_writes_since(calm), []);
        assert!(stage.is_reconciled("Share", "one"));
        delete(&stage, "Share", "one").await;
        until_data(&stage, &json!({"k": "loan"})).await;
        until_reconciled(&stage, "Loan", ["two".to_owned()]).await;
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_primary_had_that_went_while_the_host_was_down_goes_after_all_have_answered() {
        let mut stage = stage().await;
        stage.create(&config_map(&json!({"mine": "1"}))).await;
        stage.create(&service(&json!([{"name": "mine", "port": 22}]))).await;
        for (name, key) in [("goes", "a"), ("stays", "b"), ("fails", "c")] {
            stage.create(&share(name, &[entry(key, name)])).await;
        }
        stage.create(&share("alone", &[port(80, "alone")])).await;
        until_data(&stage, &json!({"mine": "1", "a": "goes", "b": "stays", "c": "fails"})).await;
        until_reconciled(&stage, "Share", ["alone".to_owned()]).await;
        stage.host.stop().await.unwrap();
        delete(&stage, "Share", "goes").await;
        delete(&stage, "Share", "alone").await;
        edit(
            &stage,
            "Share",
            "fails",
            "someone",
            &json!({"spec": {"fails": "just now"}}),
        )
        .await;
        let begun = stage.mark();
        let spec = stage.host.spec("sharer").unwrap();
        stage.start(vec![spec]).await;
        until_told(&stage, "Share", "fails", &["just now"]).await;
        stage.create(&share("new", &[entry("d", "new")])).await;
        until_data(
            &stage,
            &json!({"mine": "1", "a": "goes", "b": "stays", "c": "fails", "d": "new"}),
        )
        .await;
        assert_eq!(ports(&stage), [22, 80], "nothing goes before everybody has answered");
        let waited_for = stage.host.handle().unwrap().waited_for("sharer");
        assert_eq!(waited_for, [("sharer".to_owned(), "default/fails".to_owned())]);

        edit(&stage, "Share", "fails", "someone", &json!({"spec": {"fails": null}})).await;
        until_data(&stage, &json!({"mine": "1", "b": "stays", "c": "fails", "d": "new"})).await;
        let gone = stage.until(|stage| (ports(stage) == [22]).then_some(())).await;
        assert!(gone.is_some(), "also where nobody is left who contributes");
        assert_eq!(
            writes(&stage, begun).len(),
            3,
            "one for what is new, and one for each object that something left"
        );
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_primary_that_fails_keeps_what_it_has() {
        let stage = stage().await;
        stage.create(&config_map(&json!({}))).await;
        stage.create(&share("one", &[entry("a", "1")])).await;
        stage.create(&share("two", &[entry("b", "1")])).await;
        until_data(&stage, &json!({"a": "1", "b": "1"})).await;
        let failing = json!({"spec": {"fails": "no luck", "contributes": []}});
        edit(&stage, "Share", "one", "someone", &failing).await;
        until_told(&stage, "Share", "one", &["no luck"]).await;
        edit(
            &stage,
            "Share",
            "two",
            "someone",
            &json!({"spec": {"contributes": [entry("c", "1")]}}),
        )
        .await;
        until_data(&stage, &json!({"a": "1", "c": "1"})).await;
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_the_filter_or_is_being_deleted_has_nothing_any_more() {
        let mut stage = stage().await;
        stage.create(&config_map(&json!({}))).await;
        for (name, key) in [("off", "a"), ("held", "b"), ("later", "c"), ("stays", "d")] {
            stage.create(&share(name, &[entry(key, "1")])).await;
        }
        until_data(&stage, &json!({"a": "1", "b": "1", "c": "1", "d": "1"})).await;
        edit(
            &stage,
            "Share",
            "held",
            "someone",
            &json!({"metadata": {"finalizers": ["test.dev/held"]}}),
        )
        .await;
        edit(
            &stage,
            "Share",
            "off",
            "someone",
            &json!({"metadata": {"labels": {"off": "yes"}}}),
        )
        .await;
        until_data(&stage, &json!({"b": "1", "c": "1", "d": "1"})).await;
        delete(&stage, "Share", "held").await;
        until_data(&stage, &json!({"c": "1", "d": "1"})).await;
        stage.host.settled().await.unwrap();
        stage.host.stop().await.unwrap();
        edit(
            &stage,
            "Share",
            "later",
            "someone",
            &json!({"metadata": {"labels": {"off": "yes"}}}),
        )
        .await;
        let spec = stage.host.spec("sharer").unwrap();
        stage.start(vec![spec]).await;
        until_data(&stage, &json!({"d": "1"})).await;
        edit(
            &stage,
            "Share",
            "held",
            "someone",
            &json!({"metadata": {"finalizers": null}}),
        )
        .await;
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_of_an_atomic_list_is_refused_and_takes_nothing_away() {
        let stage = stage().await;
        stage.create(&config_map(&json!({}))).await;
        stage.create(&service(&json!([{"name": "mine", "port": 22}]))).await;
        stage.create(&share("one", &[entry("a", "1")])).await;
        until_data(&stage, &json!({"a": "1"})).await;
        let atomic = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "target"}, "spec": {"externalIPs": ["1.2.3.4"]},
        });
        let patch = json!({"spec": {"contributes": [atomic]}});
        edit(&stage, "Share", "one", "someone", &patch).await;
        let words = [
            "InvalidAnswer: cannot contribute to Service default/target: .spec.externalIPs is a list that is only held as a whole",
        ];
        until_told(&stage, "Share", "one", &words).await;
        assert_eq!(data(&stage), json!({"a": "1"}), "a failure takes nothing away");
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn lists_of_custom_kinds_have_their_keys_from_the_server() {
        let stage = stage().await;
        stage.create(&share("house", &[])).await;
        edit(
            &stage,
            "Share",
            "house",
            "owner",
            &json!({"spec": {"rooms": [{"number": 1, "floor": "top", "guest": "o"}]}}),
        )
        .await;
        let room = |room: Value| {
            json!({
                "apiVersion": "sharing.test.dev/v1", "kind": "Share", "metadata": {"name": "house"},
                "spec": {"rooms": [room]},
            })
        };
        stage
            .create(&share("one", &[room(json!({"number": 1, "guest": "a"}))]))
            .await;
        stage
            .create(&share(
                "two",
                &[room(json!({"number": 2, "floor": "top", "guest": "b"}))],
            ))
            .await;
        until_reconciled(&stage, "Share", ["one".to_owned(), "two".to_owned()]).await;
        let guests = |stage: &Stage| {
            let house = stage.find("Share", "house").unwrap();
            let rooms = house["spec"]["rooms"].as_array().unwrap().clone();
            let mut guests: Vec<_> = rooms
                .iter()
                .map(|room| room["guest"].as_str().unwrap_or("-").to_owned())
                .collect();
            guests.sort_unstable();
            guests.concat()
        };
        assert_eq!(guests(&stage), "abo");
        delete(&stage, "Share", "one").await;
        assert!(
            stage
                .until(|stage| (guests(stage) == "bo").then_some(()))
                .await
                .is_some()
        );
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_stands_in_nobodys_way() {
        let stage = stage().await;
        stage.create(&service(&json!([{"name": "mine", "port": 22}]))).await;
        stage.create(&share("goes", &[port(1, "one")])).await;
        until_reconciled(&stage, "Share", ["goes".to_owned()]).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        // Older than its rival, but of no use: its name is none.
        stage.create(&share("older", &[port(80, "Not_A_Name!")])).await;
        until_told(&stage, "Share", "older", &["Refused: "]).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        stage.create(&share("younger", &[port(80, "good")])).await;
        until_reconciled(&stage, "Share", ["younger".to_owned()]).await;
        // What goes together with what is refused goes nevertheless.
        let bad = json!({"spec": {"contributes": [port(80, "Also_No_Name!")]}});
        edit(&stage, "Share", "older", "someone", &bad).await;
        delete(&stage, "Share", "goes").await;
        let gone = stage.until(|stage| (ports(stage) == [22, 80]).then_some(())).await;
        assert!(gone.is_some(), "{:?}", ports(&stage));
        until_told(&stage, "Share", "older", &["Also_No_Name!"]).await;
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_refused_loses_the_field_to_the_next_in_the_same_look() {
        let mut stage = stage().await;
        stage.create(&service(&json!([{"name": "mine", "port": 22}]))).await;
        stage.host.stop().await.unwrap();
        stage.create(&share("older", &[port(80, "Not_A_Name!")])).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        stage.create(&share("younger", &[port(80, "good")])).await;
        let begun = stage.mark();
        let spec = stage.host.spec("sharer").unwrap();
        stage.start(vec![spec]).await;
        until_reconciled(&stage, "Share", ["younger".to_owned()]).await;
        until_told(&stage, "Share", "older", &["Not_A_Name!"]).await;
        assert_eq!(
            writes(&stage, begun).len(),
            2,
            "one that is refused, and one that is not"
        );
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_taken_away_does_not_keep_others_from_what_they_want() {
        let stage = stage().await;
        stage.create(&service(&json!([{"name": "mine", "port": 22}]))).await;
        for (name, number) in [("goes", 80), ("stays", 81)] {
            stage.create(&share(name, &[port(number, name)])).await;
        }
        until_reconciled(&stage, "Share", ["goes".to_owned(), "stays".to_owned()]).await;
        // A Service of this type must have one port at least, and from now on these are the only ones.
        edit(
            &stage,
            "Service",
            "target",
            "somebody",
            &json!({"spec": {"ports": [
            {"name": "goes", "port": 80, "protocol": "TCP"}, {"name": "stays", "port": 81, "protocol": "TCP"}]}}),
        )
        .await;
        delete(&stage, "Share", "stays").await;
        let one = stage.until(|stage| (ports(stage) == [80]).then_some(())).await;
        assert!(one.is_some(), "{:?}", ports(&stage));
        delete(&stage, "Share", "goes").await;
        let said = stage.until(|stage| stage.lines(&["cannot be taken away"]).pop()).await;
        assert!(said.is_some());
        let calm = stage.mark();
        stage.minute().await;
        assert_eq!(stage.host_writes_since(calm), [], "it waits for a change");
        stage.create(&share("new", &[port(82, "new")])).await;
        until_reconciled(&stage, "Share", ["new".to_owned()]).await;
        let swapped = stage.until(|stage| (ports(stage) == [82]).then_some(())).await;
        assert!(
            swapped.is_some(),
            "now that there is another, the first one goes: {:?}",
            ports(&stage)
        );
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_goes_wrong_with_a_write_it_is_made_and_nothing_more() {
        let faults: [(&str, Fault, u32); 6] = [
            ("a lost response", Fault::LoseResponse, 1),
            ("no connection", Fault::Refuse, 5),
            ("a conflict", status(409), 3),
            ("too many requests", status(429), 4),
            ("an error of the server", status(500), 10),
            ("unavailable", status(503), 3),
        ];
        for (what, fault, times) in faults {
            let stage = stage().await;
            stage.create(&config_map(&json!({"mine": "1"}))).await;
            stage.create(&share("first", &[entry("a", "1")])).await;
            until_data(&stage, &json!({"mine": "1", "a": "1"})).await;
            let rule = Rule::new(fault).writes().resource("configmaps").times(times);
            stage
                .simulator()
                .faults()
                .add(rule.when(|asked| asked.name.as_deref() == Some("target")));
            stage.create(&share("second", &[entry("b", "1")])).await;
            until_data(&stage, &json!({"mine": "1", "a": "1", "b": "1"})).await;
            until_reconciled(&stage, "Share", ["first".to_owned(), "second".to_owned()]).await;
            stage.host.settled().await.unwrap();
            let calm = stage.mark();
            stage.minute().await;
            assert_eq!(stage.host_writes_since(calm), [], "{what}: it has come to rest");
            stage.stop().await;
        }
    }

    fn status(code: u16) -> Fault {
        Fault::Status {
            code,
            retry_after: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_that_others_write_to_all_the_time_gets_what_is_contributed() {
        let stage = stage().await;
        stage.create(&config_map(&json!({}))).await;
        for round in 0..20 {
            let name = format!("share-{round}");
            stage.create(&share(&name, &[entry(&name, "1")])).await;
            for write in 0..5 {
                let data = json!({"data": {"busy": format!("{round}-{write}")}});
                edit(&stage, "ConfigMap", "target", "somebody", &data).await;
                tokio::task::yield_now().await;
            }
        }
        until_reconciled(&stage, "Share", names(20)).await;
        assert_eq!(data(&stage).as_object().unwrap().len(), 21);
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_an_entry_away_again_and_again_is_not_answered_at_once_for_ever() {
        let stage = stage().await;
        stage.create(&config_map(&json!({}))).await;
        stage.create(&share("one", &[entry("a", "1")])).await;
        until_data(&stage, &json!({"a": "1"})).await;
        let begun = stage.mark();
        let end = tokio::time::Instant::now() + Duration::from_mins(5);
        while tokio::time::Instant::now() < end {
            if data(&stage)["a"] == "1" {
                edit(&stage, "ConfigMap", "target", "somebody", &json!({"data": {"a": null}})).await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let fought = writes(&stage, begun).len();
        assert!(fought < 40, "{fought} writes in five minutes");
        until_data(&stage, &json!({"a": "1"})).await;
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_that_finds_everything_as_it_was_asks_for_lists_and_types_and_nothing_else() {
        let mut stage = stage().await;
        stage.create(&config_map(&json!({"mine": "1"}))).await;
        stage.create(&service(&json!([{"name": "mine", "port": 22}]))).await;
        for (number, name) in (1000_u64..).zip(names(20)) {
            let itself = json!({
                "apiVersion": "sharing.test.dev/v1", "kind": "Share",
                "metadata": {"name": name, "labels": {"given": "yes"}},
            });
            let contributes = [entry(&name, "1"), port(number, &format!("tcp-{number}")), itself];
            stage.create(&share(&name, &contributes)).await;
        }
        until_reconciled(&stage, "Share", names(20)).await;
        stage.host.settled().await.unwrap();
        stage.host.stop().await.unwrap();
        let begun = stage.mark();
        let spec = stage.host.spec("sharer").unwrap();
        stage.start(vec![spec]).await;
        stage.host.settled().await.unwrap();
        assert_eq!(stage.host_writes_since(begun), []);
        let requests = stage.cluster.requests_since(begun).unwrap();
        let gets = requests
            .iter()
            .filter(|request| request.verb == "get" && request.name == "target");
        assert_eq!(gets.count(), 0);
        let resync = stage.mark();
        stage.host.handle().unwrap().resync();
        stage.host.settled().await.unwrap();
        let asked = stage.cluster.requests_since(resync).unwrap();
        assert_eq!(asked, [], "a resync asks nothing");
        stage.stop().await;
    }

    /// The host hears nothing of ConfigMaps any more until [`hear`].
    async fn deafen(stage: &Stage) -> RuleId {
        let mark = stage.mark();
        let silent = Rule::new(Fault::SilentWatch).resource("configmaps").verbs(&["watch"]);
        let rule = stage.simulator().faults().add(silent);
        stage.simulator().cut_watches("", "configmaps");
        until_watched_anew(stage, mark).await;
        rule
    }

    /// A silent watch ends by the host's own patience, which is minutes.
    async fn hear(stage: &Stage, rule: RuleId) {
        let mark = stage.mark();
        stage.simulator().faults().remove(rule);
        until_watched_anew(stage, mark).await;
    }

    async fn until_watched_anew(stage: &Stage, mark: Mark) {
        let is_watch = |request: &Request| request.verb == "watch" && request.resource == "configmaps";
        let anew = async {
            while !stage.cluster.requests_since(mark).unwrap().iter().any(is_watch) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(15), anew).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_target_that_went_unseen_is_not_made_anew() {
        let stage = stage().await;
        stage.create(&config_map(&json!({"mine": "1"}))).await;
        stage.create(&share("first", &[entry("a", "1")])).await;
        until_data(&stage, &json!({"mine": "1", "a": "1"})).await;
        stage.host.settled().await.unwrap();
        let rule = deafen(&stage).await;
        delete(&stage, "ConfigMap", "target").await;
        stage.create(&share("second", &[entry("b", "1")])).await;
        until_told(&stage, "Share", "second", &["does not exist"]).await;
        assert_eq!(stage.find("ConfigMap", "target"), None);
        stage.create(&config_map(&json!({"mine": "2"}))).await;
        hear(&stage, rule).await;
        until_data(&stage, &json!({"mine": "2", "a": "1", "b": "1"})).await;
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_runs_again_before_the_cache_shows_what_was_written_for_it() {
        let stage = stage().await;
        stage.create(&config_map(&json!({}))).await;
        stage.create(&share("other", &[])).await;
        stage.host.settled().await.unwrap();
        let rule = deafen(&stage).await;
        stage.create(&share("one", &[entry("a", "1")])).await;
        until_data(&stage, &json!({"a": "1"})).await;
        until_reconciled(&stage, "Share", ["one".to_owned()]).await;
        let unseen = |stage: &Stage| stage.host.handle().unwrap().depths()[0].1.unseen;
        assert!(stage.until(|stage| (unseen(stage) == 1).then_some(())).await.is_some());
        edit(
            &stage,
            "Share",
            "one",
            "someone",
            &json!({"spec": {"contributes": [entry("b", "1")]}}),
        )
        .await;
        edit(
            &stage,
            "Share",
            "other",
            "someone",
            &json!({"spec": {"contributes": [entry("c", "1")]}}),
        )
        .await;
        until_data(&stage, &json!({"a": "1", "c": "1"})).await;
        assert_eq!(
            unseen(&stage),
            2,
            "one waits for what was written for it, and so does the other by now"
        );
        hear(&stage, rule).await;
        until_data(&stage, &json!({"b": "1", "c": "1"})).await;
        stage.host.settled().await.unwrap();
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_plugin_owns_is_not_contributed_to() {
        let stage = stage().await;
        let owner = json!({
            "apiVersion": "sharing.test.dev/v1", "kind": "Share", "metadata": {"name": "owner", "namespace": "default"},
            "spec": {"owns": [entry("own", "1")]},
        });
        stage.create(&owner).await;
        until_data(&stage, &json!({"own": "1"})).await;
        stage.create(&share("one", &[entry("a", "1")])).await;
        until_told(
            &stage,
            "Share",
            "one",
            &["ConfigMap default/target is owned by the plugin that contributes to it"],
        )
        .await;
        assert_eq!(data(&stage), json!({"own": "1"}));
        stage.stop().await;
    }
}
