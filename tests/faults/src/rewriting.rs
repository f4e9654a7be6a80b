//! Values of children that change though the fields stay the host's: a mutating webhook of others, an apply under the host's
//! field manager, and a sibling that makes the host's next apply invalid. None of them lasts.

use std::time::Duration;

use http::Method;
use pilothouse_simulator::{Fault as Injected, Rewrite, Rule};
use serde_json::{Value, json};

use crate::names::is_host;
use crate::schedule::{Part, change_value, owners_entry};
use crate::somebody::Somebody;
use crate::target::Target;

impl Somebody {
    /// A mutating webhook changes what hosts write of the target's kind in its namespace.
    pub(crate) async fn rewrite(&self, target: &Target, part: Part, lasts: Duration) {
        let (plural, namespace) = (target.plural.clone(), target.namespace.clone());
        let rule = Rule::new(Injected::Rewritten(Rewrite::new(move |object| part.change(object))));
        let rule = rule
            .resource(&plural)
            .when(move |asked| is_host(&asked.user_agent) && asked.namespace.as_deref() == Some(&*namespace));
        let rule = self.simulator.faults().add(rule);
        // The host has to write the object again. Without annotation and reference it would be anybody's.
        if let Some(child) = self.child(target) {
            let mut edited = (*child).clone();
            change_value(&mut edited);
            let _ = self.send(Method::PUT, &target.path(), None, &edited).await;
        }
        tokio::time::sleep(lasts).await;
        self.simulator.faults().remove(rule);
    }

    /// Another value is applied under the host's field manager.
    pub(crate) async fn impersonate(&self, target: &Target) {
        let Some(child) = self.child(target) else { return };
        let Some(entry) = owners_entry(&child) else { return };
        let manager = entry["manager"].as_str().unwrap_or_default();
        let mut body = json!({"apiVersion": child["apiVersion"], "kind": child["kind"], "data": child["data"]});
        if !body["data"].is_object() {
            return;
        }
        body["metadata"]["managedFields"] = json!([entry]);
        change_value(&mut body);
        body["metadata"] = json!({});
        for member in ["name", "namespace", "labels", "annotations", "ownerReferences"] {
            body["metadata"][member] = child["metadata"][member].clone();
        }
        let path = format!("{}?fieldManager={manager}&force=true", target.path());
        let apply = Some("application/apply-patch+yaml");
        let _ = self.send(Method::PATCH, &path, apply, &body).await;
    }

    /// A port, a probe's handler or a variable's source is changed, beside which the host's apply is invalid.
    pub(crate) async fn intrude(&self, target: &Target) {
        let Some(child) = self.child(target) else { return };
        let mut spec = child["spec"].clone();
        if let Some(port) = spec["ports"][0]["port"].as_u64() {
            spec["ports"][0]["port"] = json!(port + 1000);
            let _ = self.patch(target, &json!({"spec": {"ports": spec["ports"]}})).await;
            return;
        }
        let containers = &mut spec["template"]["spec"]["containers"];
        let Some(container) = containers.as_array_mut().and_then(|all| all.first_mut()) else {
            return;
        };
        for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
            let handler = container.get_mut(probe).and_then(Value::as_object_mut);
            if let Some(handler) = handler
                && handler.remove("httpGet").is_some()
            {
                handler.insert("tcpSocket".to_owned(), json!({"port": 1}));
            }
        }
        let variables = container.get_mut("env").and_then(Value::as_array_mut);
        for variable in variables.into_iter().flatten() {
            if variable["value"].is_string() {
                *variable =
                    json!({"name": variable["name"], "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}});
            }
        }
        let changed = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        let _ = self.patch(target, &changed).await;
    }

    async fn patch(&self, target: &Target, patch: &Value) -> Result<Value, kube::Error> {
        let merge = Some("application/merge-patch+json");
        self.send(Method::PATCH, &target.path(), merge, patch).await
    }
}
