//! Tests of contributed fields whose primary is deleted, fails or stops contributing, and of all of them over a
//! restart.

use pilothouse_testkit::host::SteeredHost as _;
use serde_json::json;

use super::{
    config_map, delete, edit, entry, names, port, ports, service, share, stage, until_data, until_reconciled,
    until_told, writes,
};

#[tokio::test(start_paused = true)]
async fn claims_of_primaries_deleted_while_down_go_after_all_answered() {
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
async fn primaries_that_leave_the_filter_or_are_deleted_lose_claims() {
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
async fn a_start_without_changes_only_lists_and_reads_types() {
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
