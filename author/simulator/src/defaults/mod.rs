//! Defaults of built-in kinds, as far as operators meet them.

mod misc;
mod pod;
mod service;
mod workload;

use serde_json::{Map, Value};

pub(crate) use workload::TEMPLATE_GENERATION;

use crate::custom::definition;

/// Fills in the defaults of a built-in kind.
pub(crate) fn apply(group: &str, kind: &str, object: &mut Value) {
    match (group, kind) {
        ("", "Pod") => pod::pod(object),
        ("", "PodTemplate") => pod::template(&mut object["template"]),
        ("", "ReplicationController") => workload::replication_controller(object),
        ("", "Service") => service::service(object),
        ("", "Endpoints") => service::endpoints(object),
        ("discovery.k8s.io", "EndpointSlice") => service::endpoint_slice(object),
        ("apps", "Deployment") => workload::deployment(object),
        ("apps", "ReplicaSet") => workload::replica_set(object),
        ("apps", "StatefulSet") => workload::stateful_set(object),
        ("apps", "DaemonSet") => workload::daemon_set(object),
        ("batch", "Job") => workload::job(&mut object["spec"]),
        ("batch", "CronJob") => workload::cron_job(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition::default(object),
        _ => misc::other(group, kind, object),
    }
}

/// Sets a member that is absent. Nothing happens where there is no object to hold it.
fn set(object: &mut Value, name: &str, value: impl Into<Value>) {
    if let Some(members) = object.as_object_mut() {
        set_member(members, name, value);
    }
}

fn set_member(members: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    members.entry(name).or_insert_with(|| value.into());
}

/// The items of a list that may be absent.
fn items<'a>(object: &'a mut Value, name: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}

/// A member that is an object, if it is there.
fn member<'a>(object: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    object.get_mut(name).filter(|value| value.is_object())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn deployments_get_strategy_and_containers_get_policies() {
        let mut object = json!({"spec": {"template": {"spec": {"containers": [
            {"name": "a", "image": "nginx:1.27", "ports": [{"containerPort": 80}]}, {"name": "b", "image": "nginx"},
        ]}}}});
        apply("apps", "Deployment", &mut object);
        let spec = &object["spec"];
        assert_eq!(spec["replicas"], 1);
        assert_eq!(
            spec["strategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
        );
        let containers = &spec["template"]["spec"]["containers"];
        assert_eq!(containers[0]["imagePullPolicy"], "IfNotPresent");
        assert_eq!(containers[0]["ports"][0]["protocol"], "TCP");
        assert_eq!(containers[1]["imagePullPolicy"], "Always");
    }

    #[test]
    fn a_service_port_is_its_own_target_by_default() {
        let mut object = json!({"spec": {"ports": [{"port": 80, "targetPort": 0}]}});
        apply("", "Service", &mut object);
        assert_eq!(
            object["spec"]["ports"][0],
            json!({"port": 80, "protocol": "TCP", "targetPort": 80})
        );
        assert_eq!(object["spec"]["type"], "ClusterIP");
    }
}
