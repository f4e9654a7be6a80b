//! Unique values that services are allocated.

use std::collections::BTreeSet;

use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::client::Client;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: usize, address: Option<&Value>) -> Value {
    let mut service = json!({"metadata": {"name": format!("s-{name}")}, "spec": {"ports": [{"port": 80}]}});
    if let Some(address) = address {
        service["spec"]["clusterIP"] = address.clone();
    }
    service
}

#[tokio::test]
async fn hundreds_of_services_have_addresses_of_their_own() {
    let client = Client::quiet();
    let mut given = BTreeSet::new();
    for name in 0..300 {
        let (status, object) = client.send("POST", SERVICES, service(name, None)).await;
        assert_eq!(status, 201, "{object}");
        given.insert(object["spec"]["clusterIP"].to_string());
    }
    assert_eq!(given.len(), 300);
}

#[tokio::test]
async fn an_address_belongs_to_one_service_until_that_is_deleted() {
    let client = Client::quiet();
    let (_, first) = client.send("POST", SERVICES, service(1, None)).await;
    let address = Some(&first["spec"]["clusterIP"]);
    let (status, refusal) = client.send("POST", SERVICES, service(2, address)).await;
    assert_eq!(status, 422, "{refusal}");
    client.send("DELETE", &format!("{SERVICES}/s-1"), Value::Null).await;
    let (status, second) = client.send("POST", SERVICES, service(2, address)).await;
    assert_eq!(status, 201, "{second}");
    assert_eq!(second["spec"]["clusterIP"], first["spec"]["clusterIP"]);
}

/// kubectl asks for it when a kind is not served, and says something else than that where there is none.
#[tokio::test]
async fn the_second_version_of_openapi_is_an_empty_document() {
    let client = Client::quiet();
    let answer = client.try_send("GET", "/openapi/v2?timeout=32s", "").await;
    let (code, headers, body) = answer.expect("it is answered");
    let media = headers[http::header::CONTENT_TYPE].to_str().unwrap();
    assert_eq!(
        (code, media),
        (200, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
    );
    assert!(body.collect().await.expect("it ends").to_bytes().is_empty());
}
