//! Rewrites managedFields so that the fields of an earlier operator become ours.
//!
//! An apply takes over only the fields that it names. All others that the earlier operator wrote would stay for ever.
//! So its entries are first merged into our Apply entry; the next apply then removes the fields that are not desired.
//! client-go does the same for client-side apply (`util/csaupgrade`).

use serde_json::{Map, Value, json};

/// Field managers of people, their tools, and Kubernetes itself.
const SHARED: [&str; 12] = [
    "Go-http-client",
    "Mozilla",
    "before-first-apply",
    "curl",
    "k9s",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "node-fetch",
    "oc",
];

/// A warning about former managers that are not used by an operator alone: fields that people write under such a name
/// are taken over too, and removed if the plugin does not desire them.
pub fn shared_managers(former: &[&str]) -> Option<String> {
    let is_shared = |name: &&&str| SHARED.contains(*name) || name.starts_with("kubectl-") || name.starts_with("oc-");
    let shared: Vec<&str> = former.iter().filter(is_shared).copied().collect();
    (!shared.is_empty()).then(|| {
        format!(
            "spec.formerManagers names {}, as which anybody may write: fields that people set by hand are taken over too, and \
             removed if the plugin does not desire them; name the earlier operator's own field manager, or remove the entry once \
             its objects are taken over",
            shared.join(", ")
        )
    })
}

/// The managedFields of an object with the entries of former managers merged into our Apply entry; none if there is
/// nothing to take over. Entries of subresources and of other versions of the kind stay as they are.
pub fn take_over(managed: &[Value], former: &[String], ours: &str, api_version: &str) -> Option<Vec<Value>> {
    let is_main = |entry: &Value| {
        entry["subresource"].as_str().unwrap_or_default().is_empty() && entry["apiVersion"] == api_version
    };
    let is_former = |entry: &Value| {
        let manager = entry["manager"].as_str().unwrap_or_default();
        is_main(entry) && former.iter().any(|name| name == manager)
    };
    let is_ours = |entry: &Value| is_main(entry) && entry["manager"] == ours && entry["operation"] == "Apply";
    if !managed.iter().any(is_former) {
        return None;
    }
    let mut fields = Map::new();
    let mut kept = Vec::with_capacity(managed.len());
    for entry in managed {
        if !is_former(entry) && !is_ours(entry) {
            kept.push(entry.clone());
            continue;
        }
        if let Some(more) = entry["fieldsV1"].as_object() {
            merge(&mut fields, more);
        }
    }
    kept.push(json!({
        "manager": ours,
        "operation": "Apply",
        "apiVersion": api_version,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }));
    Some(kept)
}

/// The managedFields of an object with the fields of all others below a field path of the main resource (`spec`,
/// `source`) moved to our Apply entry; none if no other manager has a field there.
pub fn take_over_below(managed: &[Value], path: &[&str], ours: &str, api_version: &str) -> Option<Vec<Value>> {
    let is_main = |entry: &Value| {
        entry["subresource"].as_str().unwrap_or_default().is_empty() && entry["apiVersion"] == api_version
    };
    let is_ours = |entry: &Value| is_main(entry) && entry["manager"] == ours && entry["operation"] == "Apply";
    let (last, parents) = path.split_last()?;
    let mut taken = Map::new();
    let mut moved = managed.to_vec();
    for entry in moved.iter_mut().filter(|entry| is_main(entry) && !is_ours(entry)) {
        let mut fields = Some(&mut entry["fieldsV1"]);
        for parent in parents {
            fields = fields.and_then(|fields| fields.get_mut(format!("f:{parent}")));
        }
        let found = fields
            .and_then(Value::as_object_mut)
            .and_then(|fields| fields.remove(&format!("f:{last}")));
        if let Some(Value::Object(found)) = found {
            merge(&mut taken, &found);
        }
    }
    if taken.is_empty() {
        return None;
    }
    let below = path
        .iter()
        .rev()
        .fold(Value::Object(taken), |below, name| json!({format!("f:{name}"): below}));
    let mut fields = below.as_object().cloned().unwrap_or_default();
    if let Some(own) = moved.iter().position(is_ours) {
        let own = moved.remove(own);
        merge(&mut fields, own["fieldsV1"].as_object().unwrap_or(&Map::new()));
    }
    moved.push(json!({
        "manager": ours, "operation": "Apply", "apiVersion": api_version, "fieldsType": "FieldsV1", "fieldsV1": fields,
    }));
    Some(moved)
}

/// The managedFields of an object without our entries of the main resource; none if there are none. The fields keep
/// their values, and stay with their other managers, if any.
pub fn give_up(managed: &[Value], ours: &str) -> Option<Vec<Value>> {
    let is_ours =
        |entry: &&Value| entry["manager"] == ours && entry["subresource"].as_str().unwrap_or_default().is_empty();
    let kept: Vec<_> = managed.iter().filter(|entry| !is_ours(entry)).cloned().collect();
    (kept.len() < managed.len()).then_some(kept)
}

/// The union of two field sets, as the server writes them.
fn merge(fields: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (name, below) in more {
        match (fields.get_mut(name), below) {
            (Some(Value::Object(fields)), Value::Object(more)) => merge(fields, more),
            _ => {
                fields.insert(name.clone(), below.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, subresource: &str, fields: &Value) -> Value {
        let mut entry = json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1",
            "fieldsType": "FieldsV1", "fieldsV1": fields, "time": "2026-01-02T03:04:05Z"});
        if !subresource.is_empty() {
            entry["subresource"] = json!(subresource);
        }
        entry
    }

    #[test]
    fn fields_below_a_path_become_ours_and_others_stay() {
        let source = |fields: Value| json!({"f:spec": {"f:source": fields, "f:mode": {}}});
        let managed = [
            entry(
                "ours",
                "Apply",
                "",
                &json!({"f:metadata": {}, "f:spec": {"f:source": {"f:file": {}}}}),
            ),
            entry(
                "kubectl-patch",
                "Update",
                "",
                &source(json!({"f:oci": {"f:range": {}}})),
            ),
            entry("kubectl-patch", "Update", "status", &source(json!({"f:file": {}}))),
            entry("other", "Apply", "", &json!({"f:spec": {"f:mode": {}}})),
        ];
        let take = |managed: &[Value]| take_over_below(managed, &["spec", "source"], "ours", "apps/v1");
        let taken = take(&managed).unwrap();
        let of = |name: &str| {
            taken
                .iter()
                .find(|it| it["manager"] == name && it["subresource"].is_null())
                .unwrap()
        };
        assert_eq!(
            of("ours")["fieldsV1"],
            json!({"f:metadata": {}, "f:spec": {"f:source": {"f:file": {}, "f:oci": {"f:range": {}}}}})
        );
        assert_eq!(of("kubectl-patch")["fieldsV1"], json!({"f:spec": {"f:mode": {}}}));
        assert!(taken.contains(&managed[2]) && taken.contains(&managed[3]));
        assert_eq!(take(&taken), None, "nobody else has any");
    }

    #[test]
    fn giving_up_keeps_entries_of_others_and_of_subresources() {
        let managed = [
            entry("ours", "Apply", "", &json!({"f:spec": {}})),
            entry("ours", "Update", "", &json!({"f:metadata": {}})),
            entry("ours", "Apply", "status", &json!({"f:status": {}})),
            entry("other", "Apply", "", &json!({"f:spec": {}})),
        ];
        assert_eq!(give_up(&managed, "ours"), Some(managed[2..].to_vec()));
        assert_eq!(give_up(&managed[2..], "ours"), None);
    }

    #[test]
    fn a_manager_of_everybody_is_warned_of() {
        let shared = [
            "kubectl-create",
            "kubectl-client-side-apply",
            "kubectl-edit",
            "kubectl",
            "before-first-apply",
        ];
        for name in shared
            .iter()
            .chain(&["kubectl-patch", "kubectl-scale", "kube-controller-manager", "oc"])
        {
            let warning = shared_managers(&["nginx-operator", name]).unwrap();
            assert!(warning.contains(&format!("names {name}, as")), "{warning}");
        }
        assert_eq!(
            shared_managers(&["nginx-operator", "manager", "kubectlx", "helm"]),
            None
        );
        assert_eq!(shared_managers(&[]), None);
    }

    #[test]
    fn the_fields_of_former_managers_become_ours_and_nobody_elses() {
        let managed = [
            entry(
                "old",
                "Update",
                "",
                &json!({"f:spec": {"f:replicas": {}, "f:paused": {}}}),
            ),
            entry("old", "Update", "status", &json!({"f:status": {}})),
            entry("older", "Apply", "", &json!({"f:metadata": {"f:labels": {"f:a": {}}}})),
            entry(
                "kubectl",
                "Update",
                "",
                &json!({"f:metadata": {"f:labels": {"f:b": {}}}}),
            ),
            entry(
                "pilothouse/p",
                "Apply",
                "",
                &json!({"f:spec": {"f:replicas": {}, "f:template": {}}}),
            ),
        ];
        let former = ["old".to_owned(), "older".to_owned()];
        let taken = take_over(&managed, &former, "pilothouse/p", "apps/v1").unwrap();
        assert_eq!(taken[..2], [managed[1].clone(), managed[3].clone()]);
        assert_eq!(
            taken[2],
            json!({"manager": "pilothouse/p", "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {"f:replicas": {}, "f:paused": {}, "f:template": {}},
                             "f:metadata": {"f:labels": {"f:a": {}}}}})
        );
        assert_eq!(
            take_over(&taken, &former, "pilothouse/p", "apps/v1"),
            None,
            "once is enough"
        );
    }

    #[test]
    fn entries_of_another_version_are_left_alone() {
        let managed = [entry("old", "Update", "", &json!({"f:spec": {}}))];
        assert_eq!(
            take_over(&managed, &["old".to_owned()], "pilothouse/p", "apps/v2"),
            None
        );
    }
}
