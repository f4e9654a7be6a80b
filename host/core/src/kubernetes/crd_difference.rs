//! Compares a CustomResourceDefinition in the cluster with a wanted one, to decide whether applying it would change
//! anything. Additional members in the cluster, and members that API servers add or leave out themselves, are no
//! difference.

use serde_json::Value;

/// Members of a definition that are not compared. The host that serves the converter registers it.
const NOT_COMPARED: &[&str] = &["conversion"];

/// The first difference, as a path and a description; none if the definition in the cluster contains the wanted one.
pub fn difference(live: &Value, wanted: &Value) -> Option<String> {
    let (live, wanted) = (&live["spec"], wanted["spec"].as_object()?);
    let mut members = wanted.iter().filter(|(name, _)| !NOT_COMPARED.contains(&name.as_str()));
    members.find_map(|(name, wanted)| member(live, name, wanted, &format!("spec.{name}")))
}

fn member(live: &Value, name: &str, wanted: &Value, path: &str) -> Option<String> {
    match live.get(name) {
        None if name != "default" && is_left_out(wanted) => None,
        None if name == "properties" && wanted.as_object().is_some_and(serde_json::Map::is_empty) => None,
        None => Some(format!("{path} is missing")),
        Some(live) => value(live, wanted, path),
    }
}

fn value(live: &Value, wanted: &Value, path: &str) -> Option<String> {
    match (live, wanted) {
        (Value::Object(_), Value::Object(members)) => members
            .iter()
            .find_map(|(name, wanted)| member(live, name, wanted, &format!("{path}.{name}"))),
        (Value::Array(live), Value::Array(wanted)) => items(live, wanted, path),
        // A schema's numbers are floating-point ones to an API server: it stores 0.0 as 0.
        (Value::Number(live), Value::Number(wanted)) if live.as_f64() == wanted.as_f64() => None,
        (live, wanted) if live == wanted => None,
        (Value::Object(_) | Value::Array(_), _) | (_, Value::Object(_) | Value::Array(_)) => {
            Some(format!("{path} is of another type"))
        }
        (live, wanted) => Some(format!("{path} is {live} and not {wanted}")),
    }
}

/// Compares lists: those of named objects by name, sets of texts in any order, others item by item.
fn items(live: &[Value], wanted: &[Value], path: &str) -> Option<String> {
    let name_of = |item: &Value| item["name"].as_str().map(str::to_owned);
    let names: Option<Vec<String>> = wanted.iter().map(name_of).collect();
    if let Some(names) = names.filter(|names| !names.is_empty()) {
        let mut pairs = names.iter().zip(wanted);
        return pairs.find_map(|(name, wanted)| {
            let found = live.iter().find(|item| item["name"] == **name);
            let path = format!("{path}[{name}]");
            found.map_or_else(
                || Some(format!("{path} is missing")),
                |found| value(found, wanted, &path),
            )
        });
    }
    if live.len() != wanted.len() {
        return Some(format!("{path} has {} items and not {}", live.len(), wanted.len()));
    }
    if wanted.iter().all(Value::is_string) {
        let missing = wanted.iter().find(|wanted| !live.contains(wanted));
        return missing.map(|missing| format!("{path} does not have {missing}"));
    }
    let mut pairs = live.iter().zip(wanted).enumerate();
    pairs.find_map(|(index, (live, wanted))| value(live, wanted, &format!("{path}[{index}]")))
}

/// Reports whether API servers omit a member with this value from the stored object. They do not omit `default`.
fn is_left_out(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(true) | Value::Object(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn crd(schema: &Value) -> Value {
        json!({"metadata": {"name": "apps.x.dev"}, "spec": {
            "group": "x.dev", "scope": "Namespaced", "names": {"kind": "App", "plural": "apps", "shortNames": ["a", "b"]},
            "preserveUnknownFields": false,
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                          "subresources": {"status": {}},
                          "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".s", "priority": 0}]}],
        }})
    }

    fn schema(size: &Value) -> Value {
        json!({"type": "object", "required": ["size", "name"], "properties": {
            "size": size, "name": {"type": "string", "nullable": false}, "bare": {"type": "object", "properties": {}},
        }})
    }

    #[test]
    fn what_the_api_server_adds_and_leaves_out_is_no_difference() {
        let wanted = crd(&schema(&json!({"type": "integer", "minimum": 0.0})));
        let mut live = crd(&schema(
            &json!({"type": "integer", "minimum": 0, "description": "more"}),
        ));
        live["metadata"]["annotations"] = json!({"x": "y"});
        live["status"] = json!({"storedVersions": ["v1"]});
        live["spec"]["conversion"] = json!({"strategy": "Webhook"});
        let spec = live["spec"].as_object_mut().unwrap();
        spec.remove("preserveUnknownFields");
        spec["names"]["listKind"] = json!("AppList");
        spec["names"]["shortNames"] = json!(["b", "a"]);
        let version = &mut spec["versions"][0];
        version["additionalPrinterColumns"][0]
            .as_object_mut()
            .unwrap()
            .remove("priority");
        let schema = &mut version["schema"]["openAPIV3Schema"];
        schema["required"] = json!(["name", "size"]);
        schema["properties"]["name"].as_object_mut().unwrap().remove("nullable");
        schema["properties"]["bare"] = json!({"type": "object"});
        schema["properties"]["more"] = json!({"type": "string"});
        let mut other = spec["versions"][0].clone();
        other["name"] = json!("v0");
        spec["versions"] = json!([other, spec["versions"][0]]);
        assert_eq!(difference(&live, &wanted), None);
        let mut converted = wanted.clone();
        converted["spec"]["conversion"] = json!({"strategy": "None"});
        assert_eq!(difference(&live, &converted), None);
    }

    #[test]
    fn what_applying_the_definition_would_change_is_named() {
        let wanted = crd(&schema(&json!({"type": "integer", "minimum": 0.0, "default": false})));
        let path = "spec.versions[v1].schema.openAPIV3Schema";
        let edited = |edit: fn(&mut Value)| {
            let mut live = wanted.clone();
            edit(&mut live["spec"]);
            difference(&live, &wanted)
        };
        assert_eq!(edited(|_| {}), None);
        let said = edited(|spec| {
            spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["size"] =
                json!({"type": "integer", "minimum": 0});
        });
        assert_eq!(said, Some(format!("{path}.properties.size.default is missing")));
        let said =
            edited(|spec| spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["size"]["minimum"] = json!(1));
        assert_eq!(said, Some(format!("{path}.properties.size.minimum is 1 and not 0.0")));
        let said =
            edited(|spec| spec["versions"][0]["schema"]["openAPIV3Schema"]["required"] = json!(["size", "other"]));
        assert_eq!(said, Some(format!("{path}.required does not have \"name\"")));
        let said = edited(|spec| spec["versions"][0]["schema"]["openAPIV3Schema"]["required"] = json!(["size"]));
        assert_eq!(said, Some(format!("{path}.required has 1 items and not 2")));
        let said = edited(|spec| spec["versions"][0]["storage"] = json!(false));
        assert_eq!(said.as_deref(), Some("spec.versions[v1].storage is false and not true"));
        let said = edited(|spec| spec["versions"][0]["name"] = json!("v2"));
        assert_eq!(said.as_deref(), Some("spec.versions[v1] is missing"));
        let said = edited(|spec| drop(spec["versions"][0]["subresources"].take()));
        assert_eq!(
            said.as_deref(),
            Some("spec.versions[v1].subresources is of another type")
        );
        assert!(edited(|spec| drop(spec["versions"][0]["schema"]["openAPIV3Schema"].take())).is_some());
    }
}
