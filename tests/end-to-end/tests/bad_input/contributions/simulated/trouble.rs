//! Writes that fail, rivals that write all the time, and watches that lag.

use std::time::Duration;

use pilothouse_simulator::{Fault, Rule, RuleId};
use pilothouse_testkit::cluster::Mark;
use pilothouse_testkit::requests::Request;
use serde_json::json;

use super::{
    config_map, data, delete, edit, entry, names, owner, problem, share, stage, until_data, until_reconciled,
    until_told, writes,
};
use crate::stage::Stage;

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
async fn a_target_changed_during_a_write_is_read_again_first() {
    let stage = stage().await;
    stage.create(&config_map(&json!({}))).await;
    stage.host.settled().await.unwrap();
    let slow = Rule::new(Fault::Delay(Duration::from_secs(5)));
    let slow = slow.verbs(&["patch"]).resource("configmaps").times(1);
    stage.simulator().faults().add(slow);
    let mark = stage.mark();
    stage.create(&share("it", &[entry("a", "1")])).await;
    let begun = |stage: &Stage| (stage.simulator().faults().injected() > 0).then_some(());
    assert!(stage.until(begun).await.is_some());
    let theirs = json!({"data": {"theirs": "1"}});
    edit(&stage, "ConfigMap", "target", "someone", &theirs).await;
    until_data(&stage, &json!({"a": "1", "theirs": "1"})).await;
    let codes: Vec<_> = writes(&stage, mark).iter().map(|write| write.code).collect();
    assert_eq!(codes, [409, 200], "what was united is held against the object as it is");
    stage.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_target_that_others_write_constantly_gets_contributions() {
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
async fn who_waits_for_a_slow_write_keeps_no_worker_from_the_others() {
    let stage = stage().await;
    stage.create(&config_map(&json!({}))).await;
    stage.host.settled().await.unwrap();
    let slow = Rule::new(Fault::Delay(Duration::from_secs(20))).verbs(&["patch"]);
    let slow = slow.resource("configmaps").times(1);
    stage.simulator().faults().add(slow);
    for name in names(40) {
        stage.create(&share(&name, &[entry(&name, "1")])).await;
    }
    let begun = |stage: &Stage| (stage.simulator().faults().injected() > 0).then_some(());
    assert!(stage.until(begun).await.is_some());
    let mut other = share("other", &[]);
    other["spec"]["owns"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}}]);
    stage.create(&other).await;
    until_reconciled(&stage, "Share", ["other".to_owned()]).await;
    assert!(data(&stage).is_null(), "the write is still on its way");
    until_reconciled(&stage, "Share", names(40)).await;
    stage.stop().await;
}

#[tokio::test(start_paused = true)]
async fn repeated_removal_of_our_entry_is_answered_more_slowly() {
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
async fn no_primary_runs_again_before_the_cache_shows_its_write() {
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
async fn a_new_object_of_the_plugin_gets_contributions_once_cached() {
    let stage = stage().await;
    let rule = deafen(&stage).await;
    let begun = stage.mark();
    stage.create(&owner(&json!({"own": "1"}), &[entry("given", "1")])).await;
    until_data(&stage, &json!({"own": "1"})).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(
        problem(&stage, "Share", "owner"),
        None,
        "what is there is not told to be missing"
    );
    hear(&stage, rule).await;
    until_data(&stage, &json!({"own": "1", "given": "1"})).await;
    until_reconciled(&stage, "Share", ["owner".to_owned()]).await;
    assert_eq!(writes(&stage, begun).len(), 2);
    stage.stop().await;
}
