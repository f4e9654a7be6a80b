//! Resources that no plugin can use are refused by the API server, for what the definition says and by the field's name.
//! The tables beside this file have them, a definition each; the words are the same on both clusters.

mod embedded;

use std::fs;
use std::path::Path;

use kube::Client;
use kube::api::PostParams;
use kube::core::{ApiResource, GroupVersionKind, Request};
use pilothouse_core::plugin::manifest::BroughtCrd;
use pilothouse_end_to_end::components::root;
use serde::Deserialize;
use serde_json::{Value, json};

/// The least that a definition has to refuse.
const ENOUGH: usize = 30;

/// The length of what `$LONG` stands for.
const LONG: usize = 1_000_000;

/// Placeholder of a number in many items.
const INDEX: &str = "$INDEX";

/// Count of the numbers for `$INDEX`: one more than the definitions accept in most lists.
const MANY: usize = 65;

/// One file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// The definition's file, from the workspace's root.
    definition: String,
    /// A resource that is accepted.
    good: Value,
    /// Changes that make it a bad one.
    bad: Vec<Bad>,
}

/// A bad resource.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bad {
    /// Merge patch of the good one (RFC 7386): null removes a member. `$NULL` means a null that stays, `$LONG` a
    /// megabyte of text. An item or a member's name with `$INDEX` means [`MANY`] of them, each with its number.
    with: Value,
    /// Part of the server's words, with the field's name.
    refused: String,
}

fn tables() -> Vec<(String, Table)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad_resources");
    let entries = fs::read_dir(folder).expect("the folder is there");
    let files = entries.map(|entry| entry.expect("it can be read").path());
    let tables = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    tables
        .map(|path| {
            let text = fs::read_to_string(&path).expect("it can be read");
            let table = serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (path.display().to_string(), table)
        })
        .collect()
}

/// Returns the result of a merge patch.
fn merged(value: Value, patch: &Value) -> Value {
    let Value::Object(members) = patch else {
        return spelled_out(patch);
    };
    let mut object = match value {
        Value::Object(object) => object,
        _ => serde_json::Map::new(),
    };
    for (name, patch) in members {
        let old = object.remove(name).unwrap_or_default();
        if name.contains(INDEX) {
            object.extend((0..MANY).map(|index| (name.replace(INDEX, &index.to_string()), spelled_out(patch))));
        } else if !patch.is_null() {
            object.insert(name.clone(), merged(old, patch));
        }
    }
    Value::Object(object)
}

fn spelled_out(value: &Value) -> Value {
    match value {
        Value::String(text) if text == "$NULL" => Value::Null,
        Value::String(text) if text == "$LONG" => Value::from("x".repeat(LONG)),
        Value::Array(items) => items.iter().flat_map(copies).map(|item| spelled_out(&item)).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), spelled_out(value)))
            .collect(),
        other => other.clone(),
    }
}

/// The items that an item of a list stands for.
fn copies(item: &Value) -> Vec<Value> {
    let text = item.to_string();
    if !text.contains(INDEX) {
        return vec![item.clone()];
    }
    let numbered = |index: usize| serde_json::from_str(&text.replace(INDEX, &index.to_string()));
    (0..MANY)
        .map(|index| numbered(index).expect("a number breaks no text"))
        .collect()
}

/// Creates an object in a dry run, with unknown fields as errors, as `kubectl` does.
async fn create(client: &Client, definition: &Value, object: &Value) -> Result<Value, String> {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).expect("it has one");
    let kind = GroupVersionKind::gvk(
        text("/spec/group"),
        text("/spec/versions/0/name"),
        text("/spec/names/kind"),
    );
    let resource = ApiResource::from_gvk_with_plural(&kind, text("/spec/names/plural"));
    let namespace = (text("/spec/scope") == "Namespaced").then_some("default");
    let parameters = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let url = <kube::core::DynamicObject as kube::Resource>::url_path(&resource, namespace);
    let body = object.to_string().into_bytes();
    let mut request = Request::new(url).create(&parameters, body).expect("it is a request");
    let strict = format!("{}&fieldValidation=Strict", request.uri());
    *request.uri_mut() = strict.parse().expect("it is an address still");
    client.request(request).await.map_err(|error| match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    })
}

async fn bad_resources_are_refused_by_the_fields_name(client: Client) {
    let tables = tables();
    assert!(!tables.is_empty(), "the tables are found");
    let mut faults = Vec::new();
    for (file, Table { definition, good, bad }) in tables {
        assert!(bad.len() >= ENOUGH, "{file} has {} bad resources only", bad.len());
        let text = fs::read_to_string(root().join(&definition)).expect("the definition is there");
        let definition: Value = serde_saphyr::from_str(&text).expect("it is YAML");
        install(&client, &definition).await;
        if let Err(refused) = create(&client, &definition, &good).await {
            faults.push(format!("{file}: the good one is refused: {refused}"));
        }
        for Bad { with, refused } in bad {
            match create(&client, &definition, &merged(good.clone(), &with)).await {
                Ok(_) => faults.push(format!("{file}: {with} is accepted")),
                Err(said) if said.contains(&refused) => {}
                Err(said) => {
                    let said: String = said.chars().take(400).collect();
                    faults.push(format!(
                        "{file}: {with} is refused with\n    {said}\n  and not with\n    {refused}"
                    ));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Installs a definition and waits until it is served.
async fn install(client: &Client, definition: &Value) {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).expect("it has one");
    let crd = BroughtCrd {
        name: text("/metadata/name").to_owned(),
        group: text("/spec/group").to_owned(),
        kind: text("/spec/names/kind").to_owned(),
        definition: definition.clone(),
    };
    pilothouse_cluster::resources::install::install_crd(
        client,
        &crd,
        pilothouse_cluster::resources::install::CrdPolicy::Leave,
        None,
    )
    .await
    .expect("the server takes the definition");
}

#[test]
fn a_merge_takes_away_and_puts_in() {
    let good = json!({"a": {"b": 1, "c": 2}, "d": [1]});
    let with = json!({"a": {"b": null, "e": "$NULL"}, "d": ["$LONG"]});
    let bad = merged(good, &with);
    assert_eq!(bad["a"], json!({"c": 2, "e": null}));
    assert_eq!(bad["d"][0].as_str().map(str::len), Some(LONG));
}

#[test]
fn an_item_with_an_index_stands_for_many() {
    let good = json!({"a": {"b": 1}, "d": [1]});
    let bad = merged(good, &json!({"a": {"x-$INDEX": "c"}, "d": [{"e": "f-$INDEX"}, 2]}));
    let members = bad["a"].as_object().expect("it is still an object");
    assert_eq!((members.len(), &members["x-64"]), (MANY + 1, &json!("c")));
    let items = bad["d"].as_array().expect("it is still a list");
    assert_eq!(
        (items.len(), &items[64], &items[65]),
        (MANY + 1, &json!({"e": "f-64"}), &json!(2))
    );
}

mod simulated {
    use pilothouse_testkit::cluster::Cluster;

    #[tokio::test]
    async fn bad_resources_are_refused_by_the_fields_name() {
        let client = Cluster::simulated().client().await.expect("it has a client");
        super::bad_resources_are_refused_by_the_fields_name(client).await;
    }

    #[tokio::test]
    async fn embedded_types_have_the_servers_schemas() {
        let client = Cluster::simulated().client().await.expect("it has a client");
        super::embedded::embedded_types_have_the_servers_schemas(client).await;
    }
}

mod real {
    use pilothouse_testkit::cluster::Cluster;

    #[tokio::test]
    async fn bad_resources_are_refused_by_the_fields_name() {
        let cluster = Cluster::real().await.expect("a control plane starts");
        let client = cluster.client().await.expect("it has a client");
        super::bad_resources_are_refused_by_the_fields_name(client).await;
    }

    #[tokio::test]
    async fn embedded_types_have_the_servers_schemas() {
        let cluster = Cluster::real().await.expect("a control plane starts");
        let client = cluster.client().await.expect("it has a client");
        super::embedded::embedded_types_have_the_servers_schemas(client).await;
    }
}
