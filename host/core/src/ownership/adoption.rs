//! Decides whether an object that belongs to nobody may be adopted: no other manager applies a field that is to be set.

use serde_json::{Map, Value};

use crate::answer::desired::DesiredObject;
use crate::diff::yielding;
use crate::kubernetes::fields::FieldSet;
use crate::ownership::without_content;

/// The judgement of an object that belongs to nobody.
#[derive(Clone, Debug, PartialEq)]
pub enum Adoption {
    /// The object may be adopted by applying this body: of one that is never changed, only what says whose it is.
    Apply(Map<String, Value>),
    /// This field manager applies these fields, too.
    HeldBy(String, Vec<String>),
}

/// Judges an object by its managedFields; `own` is our field manager.
pub fn judge(desired: &DesiredObject, body: &Map<String, Value>, managed: &[Value], own: &str) -> Adoption {
    let body = if desired.lifecycle.create_only {
        without_content(body)
    } else {
        let others = yielding::others(managed, own);
        yielding::without(body, &yielding::yielded(&desired.yields, body, None, &others))
    };
    for entry in managed {
        let manager = entry["manager"].as_str().unwrap_or_default();
        if entry["operation"] != "Apply" || manager == own {
            continue;
        }
        let held: FieldSet = serde_json::from_value(entry["fieldsV1"].clone()).unwrap_or_default();
        let shared = held.shared(&body);
        if !shared.is_empty() {
            return Adoption::HeldBy(manager.to_owned(), shared);
        }
    }
    Adoption::Apply(body)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubernetes::key::{Kind, Name};
    use crate::plugin::contract::Lifecycle;
    use crate::rights::built_in;

    fn judged(create_only: bool, operation: &str, manager: &str) -> Adoption {
        let body = json!({"metadata": {"name": "c", "labels": {"a": "b"}}, "data": {"k": "v"}});
        let body = body.as_object().unwrap().clone();
        let desired = DesiredObject {
            served: built_in::served(&Kind::new("", "v1", "ConfigMap")).expect("it is in the table"),
            name: Name::new(Some("a"), "c"),
            body: body.clone(),
            lifecycle: Lifecycle {
                adopt: true,
                create_only,
                ..Lifecycle::default()
            },
            yields: Vec::new(),
            after: Vec::new(),
            once: None,
        };
        let entry = json!({"manager": manager, "operation": operation, "fieldsV1": {"f:data": {"f:k": {}, "f:z": {}}}});
        judge(&desired, &body, &[entry], "pilothouse/p")
    }

    #[test]
    fn an_object_whose_fields_another_manager_applies_is_not_adopted() {
        let held = Adoption::HeldBy("argocd".into(), vec![".data.k".into()]);
        assert_eq!(judged(false, "Apply", "argocd"), held);
        assert!(matches!(judged(false, "Update", "kubectl-create"), Adoption::Apply(_)));
        assert!(matches!(judged(false, "Apply", "pilothouse/p"), Adoption::Apply(_)));
    }

    #[test]
    fn of_an_object_that_is_never_changed_only_the_owner_is_written() {
        let Adoption::Apply(body) = judged(true, "Apply", "argocd") else {
            panic!("it has no field of the other manager")
        };
        assert_eq!(Value::Object(body), json!({"metadata": {"name": "c"}}));
    }
}
