//! Tests of reads: only declared objects are visible, an object is requeued if it would see another result, and kinds
//! appear and disappear.

use std::time::Duration;

use pilothouse_end_to_end::log::Guests;
use serde_json::{Value, json};

use crate::stage::{BEGINNING, Stage};

fn secrets(more: &Value) -> Value {
    let mut touch = json!({"kind": secret_kind(), "access": ["read"]});
    for (name, value) in more.as_object().unwrap() {
        touch[name] = value.clone();
    }
    touch
}

fn secret_kind() -> Value {
    json!({"group": "", "version": "v1", "kind": "Secret"})
}

fn thing_kind() -> Value {
    json!({"group": "test.dev", "version": "v1", "kind": "Thing"})
}

fn secret(namespace: &str, name: &str, labels: &Value, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace, "labels": labels}, "stringData": data})
}

fn get(name: &str) -> Value {
    json!([{"get": {"kind": secret_kind(), "namespace": "default", "name": name}}])
}

fn list(options: &Value) -> Value {
    let mut list = json!({"kind": secret_kind()});
    for (name, value) in options.as_object().unwrap() {
        list[name] = value.clone();
    }
    json!([{"list": list}])
}

fn names(found: &Value) -> Vec<&str> {
    let objects = found[0].as_array().unwrap();
    objects
        .iter()
        .map(|object| object["metadata"]["name"].as_str().unwrap())
        .collect()
}

fn things(scope: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.test.dev"},
        "spec": {"group": "test.dev", "scope": scope, "names": {"kind": "Thing", "plural": "things"},
                 "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]},
    })
}

fn thing(namespace: Option<&str>, name: &str) -> Value {
    let mut thing = json!({"apiVersion": "test.dev/v1", "kind": "Thing", "metadata": {"name": name}});
    if let Some(namespace) = namespace {
        thing["metadata"]["namespace"] = json!(namespace);
    }
    thing
}

#[tokio::test(start_paused = true)]
async fn a_plugin_sees_and_is_woken_by_what_it_declared_only() {
    let stage = Stage::with(&[
        ("narrow", json!([secrets(&json!({"fields": [".data.a"]}))])),
        ("wide", json!([secrets(&json!({"fields": [".data"]}))])),
        ("blind", json!([secrets(&json!({}))])),
    ])
    .await;
    let object = secret("default", "shared", &json!({}), &json!({"a": "1", "b": "1"}));
    stage.create(&object).await;
    for reader in ["narrow", "wide", "blind"] {
        stage.object(reader, reader, &get("shared")).await;
    }
    let narrow = stage.sees("narrow", |seen| seen[0]["data"]["a"] == "MQ==").await;
    assert_eq!(narrow[0]["data"], json!({"a": "MQ=="}));
    assert_eq!(narrow[0]["type"], Value::Null);
    stage.sees("wide", |seen| seen[0]["data"]["b"] == "MQ==").await;
    let blind = stage
        .sees("blind", |seen| seen[0]["metadata"]["name"] == "shared")
        .await;
    assert_eq!(blind[0]["data"], Value::Null);
    assert!(blind[0]["metadata"].get("managedFields").is_none());

    stage.patch(&object, &json!({"stringData": {"b": "2"}})).await;
    stage.sees("wide", |seen| seen[0]["data"]["b"] == "Mg==").await;
    stage.patch(&object, &json!({"stringData": {"a": "2"}})).await;
    stage.sees("narrow", |seen| seen[0]["data"]["a"] == "Mg==").await;
    stage.sees("wide", |seen| seen[0]["data"]["a"] == "Mg==").await;
    stage.calm().await;
    let runs = ["narrow", "wide", "blind"].map(|name| stage.runs(name));
    assert_eq!(runs, [2, 3, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_read_of_something_absent_wakes_when_it_comes_and_goes() {
    let stage = Stage::with(&[("r", json!([secrets(&json!({"fields": [".data"]}))]))]).await;
    stage.object("r", "waits", &get("late")).await;
    stage.object("r", "other", &get("later")).await;
    stage.sees("waits", |seen| *seen == json!([null])).await;
    stage.sees("other", |seen| *seen == json!([null])).await;
    let late = secret("default", "late", &json!({}), &json!({"a": "1"}));
    stage.create(&late).await;
    stage.sees("waits", |seen| seen[0]["data"]["a"] == "MQ==").await;
    stage.delete(&late).await;
    stage.sees("waits", |seen| *seen == json!([null])).await;
    stage.calm().await;
    assert_eq!([stage.runs("waits"), stage.runs("other")], [3, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_change_within_a_query_wakes_who_asked_it_only() {
    let stage = Stage::with(&[("r", json!([secrets(&json!({"fields": [".data"]}))]))]).await;
    let one = secret("default", "one", &json!({"tier": "red"}), &json!({"key": "x"}));
    stage.create(&one).await;
    for (name, conditions) in [
        ("red", json!({"labels": "tier=red"})),
        ("blue", json!({"labels": "tier=blue"})),
        ("by-x", json!({"fields": [[".data.key", "eA=="]]})),
        ("by-y", json!({"fields": [[".data.key", "eQ=="]]})),
        ("elsewhere", json!({"namespace": "kube-system"})),
    ] {
        stage.object("r", name, &list(&conditions)).await;
    }
    stage.sees("red", |seen| names(seen) == ["one"]).await;
    stage.sees("by-x", |seen| names(seen) == ["one"]).await;
    for name in ["blue", "by-y", "elsewhere"] {
        stage.sees(name, |seen| names(seen).is_empty()).await;
    }
    stage.calm().await;
    let all = ["red", "blue", "by-x", "by-y", "elsewhere"];
    let runs = |stage: &Stage| all.map(|name| stage.runs(name));
    assert_eq!(runs(&stage), [1, 1, 1, 1, 1]);

    // It goes from one selection into another; the one by field sees another label.
    stage
        .patch(&one, &json!({"metadata": {"labels": {"tier": "blue"}}}))
        .await;
    stage.sees("blue", |seen| names(seen) == ["one"]).await;
    stage.sees("red", |seen| names(seen).is_empty()).await;
    stage.calm().await;
    assert_eq!(runs(&stage), [2, 2, 2, 1, 1]);

    stage.patch(&one, &json!({"stringData": {"key": "y"}})).await;
    stage.sees("by-y", |seen| names(seen) == ["one"]).await;
    stage.sees("by-x", |seen| names(seen).is_empty()).await;
    stage.calm().await;
    assert_eq!(runs(&stage), [2, 3, 3, 2, 1]);

    // Who has asked for it by what it does not have any more is not woken by it any more.
    stage
        .create(&secret(
            "default",
            "two",
            &json!({"tier": "green"}),
            &json!({"key": "x"}),
        ))
        .await;
    stage.sees("by-x", |seen| names(seen) == ["two"]).await;
    stage.calm().await;
    assert_eq!(runs(&stage), [2, 3, 4, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn earlier_reads_do_not_wake_after_they_are_replaced() {
    let stage = Stage::with(&[("r", json!([secrets(&json!({"fields": [".data"]}))]))]).await;
    let before = secret("default", "before", &json!({}), &json!({"a": "1"}));
    stage.create(&before).await;
    stage.object("r", "turns", &get("before")).await;
    stage
        .sees("turns", |seen| seen[0]["metadata"]["name"] == "before")
        .await;
    let itself =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "turns", "namespace": "default"}});
    let other = get("after").to_string();
    stage
        .patch(
            &itself,
            &json!({"metadata": {"annotations": {"reader.test.dev/reads": other}}}),
        )
        .await;
    stage.sees("turns", |seen| *seen == json!([null])).await;
    stage.patch(&before, &json!({"stringData": {"a": "2"}})).await;
    stage.calm().await;
    assert_eq!(stage.runs("turns"), 2);
}

#[tokio::test(start_paused = true)]
async fn what_changes_during_a_call_after_it_was_read_is_not_missed() {
    let guests = Guests::listen();
    let stage = Stage::with(&[("r", json!([secrets(&json!({"fields": [".data"]}))]))]).await;
    let changes = secret("default", "changes", &json!({}), &json!({"a": "1"}));
    stage.create(&changes).await;
    let mut reads = get("changes");
    reads[0]["get"]["until"] = json!("Mg==");
    stage.object("r", "dwells", &reads).await;
    guests.say(&["it reads again", "object=default/dwells"]).await;
    // The first call answers by what it saw before this, and ends when it sees this.
    stage.patch(&changes, &json!({"stringData": {"a": "2"}})).await;
    stage.sees("dwells", |seen| seen[0]["data"]["a"] == "Mg==").await;
    stage.calm().await;
    assert_eq!(stage.runs("dwells"), 2);
}

#[tokio::test(start_paused = true)]
async fn watches_cover_all_declarations_and_each_plugin_sees_its_own() {
    let red = |namespaces: Value| secrets(&json!({"labelSelector": "tier=red", "namespaces": namespaces}));
    let stage = Stage::with(&[
        ("one", json!([red(json!(["default"]))])),
        ("both", json!([red(json!(["default", "kube-public"]))])),
    ])
    .await;
    stage
        .create(&secret("default", "red", &json!({"tier": "red"}), &json!({})))
        .await;
    let blue = secret("default", "turns", &json!({"tier": "blue"}), &json!({}));
    stage.create(&blue).await;
    stage
        .create(&secret("kube-public", "red", &json!({"tier": "red"}), &json!({})))
        .await;
    stage
        .object("one", "one", &list(&json!({"namespace": "default"})))
        .await;
    stage
        .object("both", "both", &list(&json!({"namespace": "kube-public"})))
        .await;
    stage.sees("one", |seen| names(seen) == ["red"]).await;
    stage.sees("both", |seen| names(seen) == ["red"]).await;
    let mut listed = stage.listed("secrets");
    listed.sort();
    listed.dedup();
    assert_eq!(listed, ["default", "kube-public"]);

    stage
        .patch(&blue, &json!({"metadata": {"labels": {"tier": "red"}}}))
        .await;
    stage.sees("one", |seen| names(seen) == ["red", "turns"]).await;
    stage
        .patch(&blue, &json!({"metadata": {"labels": {"tier": "blue"}}}))
        .await;
    stage.sees("one", |seen| names(seen) == ["red"]).await;
    stage.calm().await;
    assert_eq!([stage.runs("one"), stage.runs("both")], [3, 1]);
}

#[tokio::test(start_paused = true)]
async fn an_object_outside_the_watched_labels_is_read_before_a_create() {
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let own = json!([{"kind": kind, "access": ["owned"], "labelSelector": "reader=r"}]);
    let stage = Stage::with(&[("r", own)]).await;
    let theirs =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "taken", "namespace": "default"}});
    stage.create(&theirs).await;
    stage.object("r", "free", &json!([])).await;
    stage.sees("free", |seen| *seen == json!([])).await;
    stage.object("r", "taken", &json!([])).await;
    let told = stage
        .until(|stage| {
            stage
                .lines(&["reconcile failed", "default/taken", "belongs to somebody else"])
                .pop()
        })
        .await;
    assert!(told.is_some(), "{:?}", stage.lines(&["default/taken"]));
    // A create was tried, which the server refuses where an object exists.
    let writes = stage.writes("configmaps");
    assert!(writes.starts_with(&["free".to_owned()]), "{writes:?}");
    assert!(writes[1..].iter().all(|name| name == "taken"), "{writes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_neighbours_wider_watch_is_not_visible() {
    let stage = Stage::with(&[
        ("red", json!([secrets(&json!({"labelSelector": "tier=red"}))])),
        ("all", json!([secrets(&json!({}))])),
    ])
    .await;
    let turns = secret("default", "turns", &json!({"tier": "blue"}), &json!({}));
    stage.create(&turns).await;
    stage.object("red", "gets", &get("turns")).await;
    stage.object("red", "finds", &list(&json!({}))).await;
    stage.object("all", "all", &get("turns")).await;
    stage.sees("all", |seen| seen[0]["metadata"]["name"] == "turns").await;
    stage.sees("gets", |seen| *seen == json!([null])).await;
    stage.sees("finds", |seen| names(seen).is_empty()).await;
    let tier = |tier: &str| json!({"metadata": {"labels": {"tier": tier}}});
    stage.patch(&turns, &tier("red")).await;
    stage.sees("gets", |seen| seen[0]["metadata"]["name"] == "turns").await;
    stage.sees("finds", |seen| names(seen) == ["turns"]).await;
    stage.patch(&turns, &tier("green")).await;
    stage.sees("gets", |seen| *seen == json!([null])).await;
    stage.sees("finds", |seen| names(seen).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_requested_moment_and_a_requeue_time_wake() {
    const MINUTE: Duration = Duration::from_mins(1);
    let stage = Stage::with(&[("r", json!([]))]).await;
    stage
        .object("r", "asks", &json!([{"reached": BEGINNING + 600_000}]))
        .await;
    stage.object("r", "repeats", &json!([])).await;
    stage.sees("asks", |seen| *seen == json!([false])).await;
    stage.calm().await;
    assert_eq!([stage.runs("asks"), stage.runs("repeats")], [1, 1]);
    tokio::time::sleep(8 * MINUTE).await;
    stage.sees("asks", |seen| *seen == json!([true])).await;
    stage.calm().await;
    assert_eq!(stage.runs("asks"), 2, "a moment comes once");

    let repeats =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "repeats", "namespace": "default"}});
    let again = json!({"metadata": {"annotations": {"reader.test.dev/again": "60000"}}});
    stage.patch(&repeats, &again).await;
    tokio::time::sleep(3 * MINUTE + MINUTE / 2).await;
    assert_eq!(stage.runs("repeats"), 1 + 4, "at once, and after each minute");
}

#[tokio::test(start_paused = true)]
async fn a_moment_is_noticed_though_the_clock_jumps() {
    const HOUR: i64 = 3_600_000;
    let stage = Stage::with(&[("r", json!([]))]).await;
    let moment = BEGINNING + 7_200_000;
    stage.object("r", "asks", &json!([{"reached": moment}])).await;
    stage.sees("asks", |seen| *seen == json!([false])).await;
    let mark = stage.mark();
    for (set, runs) in [(HOUR, 2), (-HOUR, 3)] {
        stage.clock.set_forward(set);
        let asked = stage.until(|stage| (stage.runs("asks") == runs).then_some(())).await;
        assert!(asked.is_some(), "{set}: {} runs", stage.runs("asks"));
        assert_eq!(stage.seen("asks"), Some(json!([false])));
    }
    assert_eq!(stage.asked_since(mark), Vec::<String>::new());
    stage.clock.set_forward(2 * HOUR);
    let jumped = tokio::time::Instant::now();
    stage.sees("asks", |seen| *seen == json!([true])).await;
    assert!(jumped.elapsed() < Duration::from_secs(10), "{:?}", jumped.elapsed());
    stage.calm().await;
    assert_eq!(stage.runs("asks"), 4, "a clock that goes on wakes nobody");
}

#[tokio::test(start_paused = true)]
async fn a_resync_reconciles_every_object_without_a_request() {
    let stage = Stage::with(&[("r", json!([]))]).await;
    stage.object("r", "rests", &json!([])).await;
    stage.sees("rests", |seen| *seen == json!([])).await;
    stage.calm().await;
    let mark = stage.mark();
    tokio::time::sleep(Duration::from_mins(50)).await;
    assert_eq!(stage.runs("rests"), 1);
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(stage.runs("rests"), 2);
    let asked = stage.asked_since(mark);
    // Webhook configurations that nobody serves are looked for each hour.
    let lists = asked.iter().filter(|verb| *verb == "list").count();
    assert!(
        lists <= 2 && asked.iter().all(|verb| verb == "watch" || verb == "list"),
        "{asked:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_kind_recreated_with_another_scope_is_watched_again() {
    let touch = json!([{"kind": thing_kind(), "access": ["read"]}]);
    let stage = Stage::with(&[("r", touch), ("other", json!([secrets(&json!({}))]))]).await;
    stage.object("other", "busy", &get("some")).await;
    stage.sees("busy", |seen| *seen == json!([null])).await;
    assert!(
        stage
            .lines(&[
                "plugin ready: all kinds of the controller are served and listed",
                "\"r/reader\""
            ])
            .is_empty(),
        "a kind that is not served delays its plugin alone"
    );

    stage.create(&things("Namespaced")).await;
    stage.create(&thing(Some("default"), "first")).await;
    let all = json!([{"list": {"kind": thing_kind()}}]);
    stage.object("r", "follows", &all).await;
    stage.sees("follows", |seen| names(seen) == ["first"]).await;

    stage.delete(&things("Namespaced")).await;
    let closed = stage
        .until(|stage| stage.lines(&["the controller stops", "\"r/reader\""]).pop())
        .await;
    assert!(closed.is_some_and(|line| line.contains("test.dev/v1 Thing")));
    // What is asked of it meanwhile waits: without the kind it could only fail.
    let follows =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "follows", "namespace": "default"}});
    let again = json!({"metadata": {"annotations": {"asked": "again"}}});
    stage.patch(&follows, &again).await;
    stage.calm().await;
    let mut failed = stage.lines(&["reconcile failed"]);
    failed.retain(|line| !line.contains("reason=NotSynced"));
    assert!(failed.is_empty(), "{failed:?}");
    stage.create(&things("Cluster")).await;
    stage.create(&thing(None, "second")).await;
    let seen = stage.sees("follows", |seen| names(seen) == ["second"]).await;
    assert_eq!(seen[0][0]["metadata"]["namespace"], Value::Null);
    stage
        .patch(&thing(None, "second"), &json!({"metadata": {"labels": {"a": "b"}}}))
        .await;
    stage
        .sees("follows", |seen| seen[0][0]["metadata"]["labels"]["a"] == "b")
        .await;
    assert_eq!(stage.runs("busy"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_optional_kind_wakes_when_it_comes_and_when_it_goes() {
    let touch = json!([{"kind": thing_kind(), "access": ["read"], "optional": true}]);
    let stage = Stage::with(&[("r", touch)]).await;
    stage
        .object("r", "patient", &json!([{"list": {"kind": thing_kind()}}]))
        .await;
    stage.sees("patient", |seen| names(seen).is_empty()).await;
    stage.create(&things("Namespaced")).await;
    stage.create(&thing(Some("default"), "x")).await;
    stage.sees("patient", |seen| names(seen) == ["x"]).await;
    stage.delete(&things("Namespaced")).await;
    stage.sees("patient", |seen| names(seen).is_empty()).await;
    assert!(stage.lines(&["the controller stops"]).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_limited_list_wakes_only_for_what_was_shown() {
    let stage = Stage::with(&[("first", json!([secrets(&json!({"fields": [".data"]}))]))]).await;
    let numbered = |name: &str, value: &str| secret("default", name, &json!({"kept": "yes"}), &json!({"a": value}));
    for name in ["b", "d", "e"] {
        stage.create(&numbered(name, "1")).await;
    }
    let wanted = json!({"namespace": "default", "labels": "kept=yes", "limit": 2});
    stage.object("first", "first", &list(&wanted)).await;
    stage.sees("first", |seen| names(seen) == ["b", "d"]).await;
    stage.calm().await;
    let runs = stage.runs("first");
    stage
        .patch(&numbered("e", "1"), &json!({"stringData": {"a": "2"}}))
        .await;
    stage.create(&numbered("f", "1")).await;
    stage.delete(&numbered("f", "1")).await;
    stage.calm().await;
    assert_eq!(stage.runs("first"), runs, "what lies beyond is nobody's matter");
    stage.create(&numbered("c", "1")).await;
    stage.sees("first", |seen| names(seen) == ["b", "c"]).await;
    stage.delete(&numbered("b", "1")).await;
    stage.sees("first", |seen| names(seen) == ["c", "d"]).await;
    stage.delete(&numbered("c", "1")).await;
    stage.sees("first", |seen| names(seen) == ["d", "e"]).await;
    stage.delete(&numbered("d", "1")).await;
    stage.sees("first", |seen| names(seen) == ["e"]).await;
    stage.create(&numbered("z", "1")).await;
    stage.sees("first", |seen| names(seen) == ["e", "z"]).await;
}

fn deep(name: &str, key: &str) -> String {
    const LEVELS: usize = 300;
    let nested = format!("{}1{}", r#"{"a":"#.repeat(LEVELS), "}".repeat(LEVELS));
    format!(
        r#"{{"apiVersion":"test.dev/v1","kind":"Thing","metadata":{{"name":"{name}"}},"spec":{{"key":"{key}","deep":{nested}}}}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn an_object_that_nests_too_deep_is_left_out_and_named() {
    const THINGS: &str = "/apis/test.dev/v1/namespaces/default/things";
    let whole = json!([{"kind": thing_kind(), "access": ["read"], "fields": [".spec"]}]);
    let key = json!([{"kind": thing_kind(), "access": ["read"], "fields": [".spec.key"]}]);
    let stage = Stage::with(&[("whole", whole), ("key", key)]).await;
    stage.create(&things("Namespaced")).await;
    let flat = |name: &str| {
        let mut thing = thing(Some("default"), name);
        thing["spec"] = json!({"key": "x"});
        thing
    };
    stage.create(&flat("flat")).await;
    let by_key = json!([{"list": {"kind": thing_kind(), "fields": [[".spec.key", "x"]]}}]);
    let limited = json!([{"list": {"kind": thing_kind(), "limit": 1}}]);
    let by_name = json!([{"get": {"kind": thing_kind(), "namespace": "default", "name": "deep"}}]);
    stage.object("whole", "finds", &by_key).await;
    stage.object("whole", "gets", &by_name).await;
    stage.object("whole", "first", &limited).await;
    stage.object("key", "sees", &by_key).await;
    stage.sees("finds", |seen| names(seen) == ["flat"]).await;
    stage.sees("sees", |seen| names(seen) == ["flat"]).await;
    // Twice if `key` came first, because `whole` needs more of each object.
    let listed = stage.listed("things").len();

    stage.post(THINGS, deep("deep", "x")).await;
    let both = |seen: &Value| names(seen) == ["deep", "flat"];
    stage.sees("sees", both).await;
    assert!(
        stage
            .until(|stage| (stage.told_of("TooDeep") == ["deep"]).then_some(()))
            .await
            .is_some()
    );
    let said = stage.lines(&[
        "WARN",
        "an object is hidden from the plugin",
        "test.dev/v1 Thing",
        "default/deep",
        "plugin whole",
    ]);
    assert_eq!(said.len(), 1, "{:?}", stage.lines(&["WARN"]));
    assert!(
        stage.lines(&["hidden from the plugin", "plugin key"]).is_empty(),
        "it can read what it looks at"
    );
    assert_eq!(stage.seen("gets"), Some(json!([null])));
    assert_eq!(names(&stage.seen("finds").unwrap()), ["flat"]);
    assert_eq!(
        names(&stage.seen("first").unwrap()),
        ["flat"],
        "it takes nobody's place"
    );

    // What comes after it comes, it may become shallow, and its kind is not listed again.
    stage.create(&flat("later")).await;
    stage.sees("finds", |seen| names(seen) == ["flat", "later"]).await;
    stage
        .patch(&thing(Some("default"), "deep"), &json!({"spec": {"deep": null}}))
        .await;
    stage
        .sees("finds", |seen| names(seen) == ["deep", "flat", "later"])
        .await;
    stage.sees("gets", |seen| seen[0]["spec"] == json!({"key": "x"})).await;
    stage.calm().await;
    assert_eq!(stage.listed("things").len(), listed);
    assert_eq!(stage.stuck(), 0);
    assert!(stage.lines(&["panicked"]).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_query_over_the_read_limit_is_stopped_and_reported() {
    let stage = Stage::with(&[("r", json!([secrets(&json!({"fields": [".data"]}))]))]).await;
    let large = "x".repeat(720_000);
    for index in 0..20 {
        let name = format!("large-{index:02}");
        stage
            .create(&secret("default", &name, &json!({}), &json!({"key": large})))
            .await;
    }
    stage
        .object("r", "greedy", &list(&json!({"namespace": "default"})))
        .await;
    let told = stage
        .until(|stage| stage.lines(&["reconcile failed", "default/greedy", "readBytes"]).pop())
        .await;
    assert!(told.is_some(), "{:?}", stage.lines(&["greedy"]));
    stage
        .object("r", "modest", &list(&json!({"namespace": "default", "limit": 1})))
        .await;
    stage.sees("modest", |seen| names(seen).len() == 1).await;
}
