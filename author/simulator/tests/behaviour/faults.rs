//! Faults, the log, repetition from the seed, and the socket.

use std::time::Duration;

use pilothouse_simulator::{Fault, Rule, TransportError};
use serde_json::{Value, json};

use crate::client::{CONFIG_MAPS, Client, version};
use crate::controllers::{DEPLOYMENTS, deployment};

#[tokio::test(start_paused = true)]
async fn a_lost_response_belongs_to_a_write_that_took_place() {
    let client = Client::quiet();
    client
        .0
        .faults()
        .add(Rule::new(Fault::LoseResponse).verbs(&["create"]).times(1));
    let body = json!({"metadata": {"name": "a"}}).to_string();
    let lost = client.try_send("POST", CONFIG_MAPS, &body).await;
    assert_eq!(lost.err(), Some(TransportError::Closed));
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/a")).await.0, 200);
    let log = client.0.requests().all();
    assert_eq!((log[0].status, log[0].changed), (0, true));
}

#[tokio::test(start_paused = true)]
async fn refusals_carry_their_status_and_leave_nothing_behind() {
    let client = Client::quiet();
    client.0.faults().add(
        Rule::new(Fault::Status {
            code: 429,
            retry_after: Some(7),
        })
        .writes()
        .times(1),
    );
    let (status, headers, _) = client
        .try_send("POST", CONFIG_MAPS, "{}")
        .await
        .expect("the connection holds");
    assert_eq!(
        (status, &headers["retry-after"]),
        (429, &http::HeaderValue::from_static("7"))
    );
    client.0.faults().add(
        Rule::new(Fault::Status {
            code: 409,
            retry_after: None,
        })
        .resource("configmaps")
        .times(1),
    );
    let (status, failure) = client
        .send("POST", CONFIG_MAPS, json!({"metadata": {"name": "a"}}))
        .await;
    assert_eq!((status, &failure["reason"]), (409, &json!("Conflict")));
    assert_eq!(client.get(&format!("{CONFIG_MAPS}/a")).await.0, 404);
    client.0.faults().add(Rule::new(Fault::Refuse).times(1));
    assert!(client.try_send("GET", CONFIG_MAPS, "").await.is_err());
}

#[tokio::test(start_paused = true)]
async fn watches_are_cut_silenced_and_told_gone() {
    let client = Client::quiet();
    client.config_map("a", json!({})).await;
    client.config_map("b", json!({})).await;
    let path = format!("{CONFIG_MAPS}?watch=1&timeoutSeconds=30&allowWatchBookmarks=true");
    let rule = client.0.faults().add(Rule::new(Fault::CutWatch { after: 1 }));
    let mut watch = client.watch(&path).await;
    assert_eq!(watch.kinds(1).await, ["ADDED"]);
    assert!(watch.next().await.is_none());
    client.0.faults().remove(rule);
    let rule = client.0.faults().add(Rule::new(Fault::SilentWatch));
    let start = tokio::time::Instant::now();
    assert!(client.watch(&path).await.next().await.is_none());
    assert_eq!(start.elapsed().as_secs(), 30);
    client.0.faults().remove(rule);
    client.0.faults().add(Rule::new(Fault::GoneOnWatch));
    let event = client.watch(&path).await.next().await.expect("the refusal is an event");
    assert_eq!(event["object"]["reason"], "Expired");
}

#[tokio::test(start_paused = true)]
async fn a_lagging_server_lists_the_past_and_a_slow_one_is_slow() {
    let client = Client::quiet();
    client.config_map("a", json!({})).await;
    client.config_map("b", json!({})).await;
    client.0.faults().add(Rule::new(Fault::Stale { changes: 1 }).times(1));
    let (_, stale) = client.get(CONFIG_MAPS).await;
    assert_eq!(stale["items"].as_array().map(Vec::len), Some(1));
    let mut watch = client
        .watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", version(&stale)))
        .await;
    assert_eq!(
        watch.next().await.expect("the rest follows")["object"]["metadata"]["name"],
        "b"
    );
    client
        .0
        .faults()
        .add(Rule::new(Fault::Delay(Duration::from_secs(2))).times(1));
    let start = tokio::time::Instant::now();
    client.get(CONFIG_MAPS).await;
    assert_eq!(start.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_log_tells_who_wrote_what_since_a_mark() {
    let client = Client::quiet();
    client.get(CONFIG_MAPS).await;
    let mark = client.0.requests().mark();
    client.get(CONFIG_MAPS).await;
    client.config_map("a", json!({})).await;
    let path = format!("{CONFIG_MAPS}/a?fieldManager=me&dryRun=All");
    client.send("PATCH", &path, json!({"data": {"a": "b"}})).await;
    assert_eq!(client.0.requests().since(mark).len(), 3);
    let writes = client.0.requests().writes_since(mark);
    assert_eq!(writes.len(), 1);
    assert_eq!(
        (writes[0].verb.as_str(), writes[0].resource.as_str(), writes[0].status),
        ("create", "configmaps", 201)
    );
    assert_eq!(writes[0].user.as_deref(), Some("somebody"));
    assert_eq!(writes[0].user_agent, "tests/1");
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_and_requests_give_the_same_objects() {
    let run = async || {
        let client = Client::new();
        client.send("POST", DEPLOYMENTS, deployment("one", 2)).await;
        client
            .send("POST", CONFIG_MAPS, json!({"metadata": {"generateName": "x-"}}))
            .await;
        client.0.objects()
    };
    assert_eq!(run().await, run().await);
}

#[tokio::test]
async fn the_same_api_is_served_over_a_socket() {
    let client = Client::new();
    let serving = client
        .0
        .serve(([127, 0, 0, 1], 0).into())
        .await
        .expect("a port is free");
    assert!(serving.kubeconfig().contains(&serving.url()));
    let url = format!("{}{CONFIG_MAPS}", serving.url());
    let over_socket = tokio::task::spawn_blocking(move || {
        let body = json!({"metadata": {"name": "a"}}).to_string();
        let created = ureq::post(&url).header("content-type", "application/json").send(body);
        let status = created.map(|response| response.status().as_u16());
        let listed = ureq::get(&url)
            .call()
            .and_then(|mut response| response.body_mut().read_to_string());
        (status.ok(), listed.unwrap_or_default())
    });
    let (status, listed) = over_socket.await.expect("the client does not panic");
    assert_eq!(status, Some(201));
    let listed: Value = serde_json::from_str(&listed).expect("a list is JSON");
    assert_eq!(listed, client.get(CONFIG_MAPS).await.1);
}

#[tokio::test(start_paused = true)]
async fn a_list_comes_in_short_pages_and_is_gone_before_its_second() {
    let client = Client::quiet();
    for name in ["a", "b", "c"] {
        let body = json!({"metadata": {"name": name}}).to_string();
        client.try_send("POST", CONFIG_MAPS, &body).await.expect("it is made");
    }
    let faults = client.0.faults();
    faults.add(Rule::new(Fault::GoneInList).times(1));
    faults.add(Rule::new(Fault::ShortPages { objects: 2 }));
    let names = |page: &Value| {
        let items = page["items"].as_array().expect("it is a list").iter();
        items.map(|item| item["metadata"]["name"].clone()).collect::<Vec<_>>()
    };
    let (_, whole) = client.get(CONFIG_MAPS).await;
    assert_eq!(names(&whole), ["a", "b", "c"], "it has not asked for pages");
    let (_, page) = client.get(&format!("{CONFIG_MAPS}?limit=500")).await;
    assert_eq!(names(&page), ["a", "b"]);
    let next = page["metadata"]["continue"].as_str().expect("there is more");
    let rest = format!("{CONFIG_MAPS}?limit=500&continue={next}");
    let (status, failure) = client.get(&rest).await;
    assert_eq!((status, &failure["reason"]), (410, &json!("Expired")));
    assert_eq!(names(&client.get(&rest).await.1), ["c"]);
}
