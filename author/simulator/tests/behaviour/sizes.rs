//! Objects that are too large.

use serde_json::{Value, json};

use crate::client::Client;

const MEBIBYTE: usize = 1024 * 1024;

async fn refusal(client: &Client, kind: &str, path: &str, object: &Value) -> (u64, String) {
    let mut object = object.clone();
    object["apiVersion"] = json!(if kind == "Deployment" { "apps/v1" } else { "v1" });
    object["kind"] = json!(kind);
    let (status, answer) = client.send("POST", path, object).await;
    (status.into(), answer["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn too_large_objects_are_refused_as_a_real_server_does() {
    let client = Client::quiet();
    let text = |bytes: usize| "x".repeat(bytes);
    let of = |data: Value| json!({"metadata": {"name": "big"}, "data": data});
    let maps = "/api/v1/namespaces/default/configmaps";
    let (code, said) = refusal(&client, "ConfigMap", maps, &of(json!({"a": text(MEBIBYTE)}))).await;
    assert_eq!((code, &*said), (201, ""));
    let two = of(json!({"a": text(MEBIBYTE), "b": "x"}));
    let (code, said) = refusal(&client, "ConfigMap", maps, &two).await;
    assert_eq!(code, 422);
    assert!(
        said.ends_with("is invalid: []: Too long: may not be more than 1048576 bytes"),
        "{said}"
    );
    let (code, said) = refusal(&client, "ConfigMap", maps, &of(json!({"a": text(4 * MEBIBYTE)}))).await;
    assert_eq!((code, &*said), (413, "Request entity too large: limit is 3145728"));
    let mut deployment = json!({"metadata": {"name": "big"}});
    for (bytes, words) in [
        (2 * MEBIBYTE - 4096, "etcdserver: request is too large"),
        (2 * MEBIBYTE, "trying to send message larger than max"),
    ] {
        let container = json!({"name": "a", "image": "a", "args": [text(bytes)]});
        deployment["spec"] = json!({"selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}});
        let path = "/apis/apps/v1/namespaces/default/deployments";
        let (code, said) = refusal(&client, "Deployment", path, &deployment).await;
        assert!(code == 500 && said.contains(words), "{code} {said}");
    }
}
