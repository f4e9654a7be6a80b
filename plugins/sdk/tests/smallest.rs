//! The plugin of the README, word for word; `readme.rs` compares them.

use pilothouse_plugin::{k8s::core::v1::ConfigMap, *};

#[derive(serde::Deserialize, Resource)]
#[resource(group = "example.com", version = "v1", kind = "Greeting")]
struct Greeting {
    metadata: ObjectMeta,
    spec: GreetingSpec,
}

#[derive(serde::Deserialize, Fields)]
struct GreetingSpec {
    name: String,
}

struct Greeter;

impl Plugin for Greeter {
    type Config = NoConfig;
    type Controllers = Self;
    fn manifest(_: &NoConfig) -> Manifest {
        let controller = ControllerManifest::of::<Greeting>("greeter").owns::<ConfigMap>();
        Manifest::new("greeter", "0.1.0", "A ConfigMap with a greeting for each Greeting.").controller(controller)
    }
}

impl Controller for Greeter {
    type Config = NoConfig;
    type Object = Greeting;
    fn reconcile(request: Request<Greeting>, _: &Cluster) -> Result<Outcome, Failure> {
        let Greeting { metadata, spec } = request.object;
        let text = format!("Hello, {}!", spec.name);
        let config_map = ConfigMap::new(metadata.name)
            .namespace(metadata.namespace)
            .data([("text", &text)]);
        Ok(Outcome::new().owned(config_map).status(json!({"text": text})))
    }
}

pilothouse_plugin::export!(Greeter);

#[cfg(test)]
mod tests {
    use super::*;
    use pilothouse_plugin::testing::FakeCluster;

    fn greeting(spec: &serde_json::Value) -> serde_json::Value {
        json!({
            "apiVersion": "example.com/v1", "kind": "Greeting",
            "metadata": {"name": "morning", "namespace": "default"},
            "spec": spec,
        })
    }

    #[test]
    fn greets_by_name() {
        let answer = FakeCluster::new()
            .reconcile::<Greeter>(greeting(&json!({"name": "Ada"})))
            .unwrap();
        assert_eq!(answer.object("ConfigMap", "morning")["data"]["text"], "Hello, Ada!");
        assert_eq!(answer.status, Some(json!({"text": "Hello, Ada!"})));
    }

    #[test]
    fn greets_nobody_without_a_name() {
        let failure = FakeCluster::new()
            .reconcile::<Greeter>(greeting(&json!({})))
            .unwrap_err();
        let message = "Greeting default/morning cannot be read: spec: missing field `name`; correct the field";
        assert_eq!(failure, Failure::permanent(message));
    }
}
