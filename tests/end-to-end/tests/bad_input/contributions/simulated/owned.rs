//! Tests of contributions to objects that the plugin owns itself. The story is `tests/scenarios/sharer/owned.yaml`;
//! these tests add what it cannot see: requests, reconciles, and missing events.

use serde_json::json;

use super::{data, edit, entry, names, owner, share, stage, until_data, until_reconciled, until_told, writes};
use crate::stage::Stage;

#[tokio::test(start_paused = true)]
async fn contributing_to_an_owned_object_takes_one_write_for_each() {
    let stage = stage().await;
    let begun = stage.mark();
    let both = owner(&json!({"own": "1"}), &[entry("given", "1")]);
    stage.create(&both).await;
    until_reconciled(&stage, "Share", ["owner".to_owned()]).await;
    stage.host.settled().await.unwrap();
    assert_eq!(data(&stage), json!({"own": "1", "given": "1"}));
    let made = writes(&stage, begun);
    let managers: Vec<_> = made.iter().filter_map(|write| write.field_manager.as_deref()).collect();
    assert_eq!(managers, ["pilothouse/sharer", "pilothouse/sharer/contributed"]);
    assert!(made.iter().all(|write| matches!(write.code, 200 | 201)), "{made:?}");
    let told = stage.host_writes_since(begun);
    let told = told.iter().filter(|write| write.subresource == "status");
    assert_eq!(
        told.count(),
        1,
        "it looks at what it has made, and not at what was there before"
    );
    stage.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_contributed_does_not_wake_the_owner() {
    let stage = stage().await;
    stage.create(&owner(&json!({"own": "1"}), &[])).await;
    until_data(&stage, &json!({"own": "1"})).await;
    stage.host.settled().await.unwrap();
    let reconciled = |stage: &Stage| stage.lines(&["reconciled", "default/owner"]).len();
    let before = reconciled(&stage);
    for name in names(10) {
        stage.create(&share(&name, &[entry(&name, "1")])).await;
        until_reconciled(&stage, "Share", [name]).await;
    }
    stage.host.settled().await.unwrap();
    assert_eq!(data(&stage).as_object().unwrap().len(), 11);
    assert_eq!(reconciled(&stage), before);
    edit(
        &stage,
        "ConfigMap",
        "target",
        "somebody",
        &json!({"data": {"own": "2"}}),
    )
    .await;
    until_data_has(&stage, "own", "1").await;
    assert!(reconciled(&stage) > before, "but drift does");
    stage.stop().await;
}

async fn until_data_has(stage: &Stage, key: &str, value: &str) {
    let seen = stage.until(|stage| (data(stage)[key] == value).then_some(())).await;
    assert!(seen.is_some(), "{}", data(stage));
}

#[tokio::test(start_paused = true)]
async fn what_the_owner_says_otherwise_is_known_without_a_request() {
    let stage = stage().await;
    stage.create(&owner(&json!({"k": "owner"}), &[])).await;
    until_data(&stage, &json!({"k": "owner"})).await;
    let begun = stage.mark();
    stage.create(&share("one", &[entry("k", "one")])).await;
    stage.create(&share("two", &[entry("b", "two")])).await;
    let words = [
        "FieldConflict: .data.k of ConfigMap default/target is set by Share owner, which owns it,",
        "than Share default/one contributes",
    ];
    until_told(&stage, "Share", "one", &words).await;
    until_data(&stage, &json!({"k": "owner", "b": "two"})).await;
    stage.host.settled().await.unwrap();
    assert_eq!(writes(&stage, begun).len(), 1, "of the one that fits");
    stage.stop().await;
}
