//! Watches, streaming lists and pages.

use serde_json::{Value, json};

use crate::client::{CONFIG_MAPS, Client, version};

#[tokio::test(start_paused = true)]
async fn a_watch_gets_a_bookmark_each_minute_and_ends_in_time() {
    let client = Client::quiet();
    let first = client.config_map("a", json!({})).await;
    let path = format!(
        "{CONFIG_MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=150&resourceVersion={}",
        version(&first)
    );
    let mut watch = client.watch(&path).await;
    let start = tokio::time::Instant::now();
    let bookmark = watch.next().await.expect("a bookmark comes");
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["kind"], "ConfigMap");
    assert_eq!(version(&bookmark["object"]), version(&first));
    assert_eq!(start.elapsed().as_secs(), 60);
    client.config_map("b", json!({})).await;
    assert_eq!(watch.kinds(3).await, ["ADDED", "BOOKMARK", "BOOKMARK"]);
    assert!(watch.next().await.is_none());
    assert_eq!(start.elapsed().as_secs(), 150);
}

#[tokio::test(start_paused = true)]
async fn a_watch_resumes_until_its_version_is_compacted() {
    let client = Client::quiet();
    let first = client.config_map("a", json!({})).await;
    client
        .send("PATCH", &format!("{CONFIG_MAPS}/a"), json!({"data": {"x": "y"}}))
        .await;
    client.send("DELETE", &format!("{CONFIG_MAPS}/a"), Value::Null).await;
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", version(&first));
    assert_eq!(client.watch(&path).await.kinds(2).await, ["MODIFIED", "DELETED"]);
    client.0.compact();
    let mut watch = client.watch(&path).await;
    let event = watch.next().await.expect("the refusal is an event");
    assert_eq!(
        (&event["type"], &event["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_with_a_label_selector_says_deleted_of_what_leaves_it() {
    let client = Client::quiet();
    let mut watch = client
        .watch(&format!("{CONFIG_MAPS}?watch=1&labelSelector=app%3Dweb"))
        .await;
    client.config_map("a", json!({"labels": {"app": "web"}})).await;
    client
        .send(
            "PATCH",
            &format!("{CONFIG_MAPS}/a"),
            json!({"metadata": {"labels": {"app": "other"}}}),
        )
        .await;
    client
        .send(
            "PATCH",
            &format!("{CONFIG_MAPS}/a"),
            json!({"metadata": {"labels": {"app": "web"}}}),
        )
        .await;
    assert_eq!(watch.kinds(3).await, ["ADDED", "DELETED", "ADDED"]);
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_ends_with_an_annotated_bookmark() {
    let client = Client::quiet();
    client.config_map("a", json!({})).await;
    let path = format!(
        "{CONFIG_MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let mut watch = client.watch(&path).await;
    assert_eq!(watch.kinds(1).await, ["ADDED"]);
    let bookmark = watch.next().await.expect("the bookmark follows");
    assert_eq!(
        bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    client.config_map("b", json!({})).await;
    assert_eq!(watch.kinds(1).await, ["ADDED"]);
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_moment_whatever_is_written_between_them() {
    let client = Client::quiet();
    for name in ["a", "b", "c"] {
        client.config_map(name, json!({})).await;
    }
    let (_, first) = client.get(&format!("{CONFIG_MAPS}?limit=2")).await;
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    client.send("DELETE", &format!("{CONFIG_MAPS}/c"), Value::Null).await;
    client.config_map("d", json!({})).await;
    let token = first["metadata"]["continue"].as_str().expect("there is more");
    let (_, second) = client.get(&format!("{CONFIG_MAPS}?limit=2&continue={token}")).await;
    let names: Vec<&Value> = second["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|item| &item["metadata"]["name"])
        .collect();
    assert_eq!(names, ["c"]);
    assert_eq!(version(&second), version(&first));
    client.0.compact();
    let (status, failure) = client.get(&format!("{CONFIG_MAPS}?limit=2&continue={token}")).await;
    assert_eq!((status, &failure["reason"]), (410, &json!("Expired")));
}
