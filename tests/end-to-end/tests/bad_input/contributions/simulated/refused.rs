//! Claims that are refused: they stand in nobody else's way.

use std::time::Duration;

use pilothouse_testkit::host::SteeredHost as _;
use serde_json::json;

use super::{
    config_map, data, delete, edit, entry, names, port, ports, service, share, stage, until_data, until_reconciled,
    until_told, writes,
};
use crate::stage::Stage;

#[tokio::test(start_paused = true)]
async fn one_bad_claim_among_a_hundred_blocks_no_other() {
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
    until_told(&stage, "Share", "older", &["is held by Share", "younger"]).await;
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
async fn a_field_that_cannot_be_removed_blocks_no_other_claim() {
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
    let said = stage.until(|stage| stage.lines(&["cannot be removed"]).pop()).await;
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
async fn who_asks_for_what_is_refused_keeps_what_it_has() {
    let stage = stage().await;
    stage.create(&service(&json!([{"name": "mine", "port": 22}]))).await;
    stage.create(&share("it", &[port(80, "good")])).await;
    until_reconciled(&stage, "Share", ["it".to_owned()]).await;
    let bad = json!({"spec": {"contributes": [port(80, "Not_A_Name!")]}});
    edit(&stage, "Share", "it", "someone", &bad).await;
    until_told(&stage, "Share", "it", &["Refused: ", "Not_A_Name!"]).await;
    // Another write leaves it alone, too.
    stage.create(&share("other", &[port(81, "other")])).await;
    until_reconciled(&stage, "Share", ["other".to_owned()]).await;
    stage.minute().await;
    let name = |stage: &Stage| {
        let service = stage.find("Service", "target").unwrap();
        let ports = service["spec"]["ports"].as_array().unwrap().iter();
        let mut ours = ports.filter(|port| port["port"] == 80);
        ours.next().map(|port| port["name"].clone())
    };
    assert_eq!(name(&stage), Some(json!("good")), "a failure takes nothing away");
    let right = json!({"spec": {"contributes": [port(80, "better")]}});
    edit(&stage, "Share", "it", "someone", &right).await;
    let renamed = stage
        .until(|stage| (name(stage) == Some(json!("better"))).then_some(()))
        .await;
    assert!(renamed.is_some(), "{:?}", name(&stage));
    stage.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_target_is_left_alone_and_its_successor_served() {
    let stage = stage().await;
    stage.create(&config_map(&json!({"mine": "1"}))).await;
    let held = json!({"metadata": {"finalizers": ["test.dev/held"]}});
    edit(&stage, "ConfigMap", "target", "someone", &held).await;
    delete(&stage, "ConfigMap", "target").await;
    stage.host.settled().await.unwrap();
    let begun = stage.mark();
    stage.create(&share("it", &[entry("a", "1")])).await;
    let words = ["ConfigMap default/target is being deleted; what is contributed to it waits for its successor"];
    until_told(&stage, "Share", "it", &words).await;
    stage.minute().await;
    assert_eq!(writes(&stage, begun), []);
    let free = json!({"metadata": {"finalizers": null}});
    edit(&stage, "ConfigMap", "target", "someone", &free).await;
    until_told(&stage, "Share", "it", &["TargetNotFound: "]).await;
    stage.create(&config_map(&json!({}))).await;
    until_data(&stage, &json!({"a": "1"})).await;
    until_reconciled(&stage, "Share", ["it".to_owned()]).await;
    stage.stop().await;
}
