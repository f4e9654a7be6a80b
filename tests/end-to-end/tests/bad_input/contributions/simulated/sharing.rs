//! Tests of one object with many contributors: the fields that each gets, and in how few writes.

use std::time::Duration;

use pilothouse_runtime::StaticPlugin;
use serde_json::{Value, json};

use super::{
    config_map, data, delete, edit, entry, names, of_kind, port, ports, service, share, stage, until_data,
    until_reconciled, until_told, writes,
};
use crate::stage::{Stage, unhurried};

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
async fn a_missing_target_is_not_created_but_served_once_it_exists() {
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
async fn the_older_claim_holds_the_field_and_the_younger_succeeds_it() {
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
    let second = StaticPlugin {
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
        &[".data.k of ConfigMap default/target is held by \"pilothouse/sharer/contributed\""],
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
