//! The plugin of the README, word for word; `readme.rs` compares them.

use pilothouse_plugin::*;
use serde_json::json;

/// A greeting, and whom it is for.
#[derive(serde::Deserialize)]
struct Greeting {
    metadata: ObjectMeta,
    spec: GreetingSpec,
}

#[derive(serde::Deserialize)]
struct GreetingSpec {
    name: String,
}

impl Resource for Greeting {
    const KIND: Kind = Kind::new("example.com", "v1", "Greeting");
}

const CONFIG_MAP: Kind = Kind::new("", "v1", "ConfigMap");

struct Greeter;

impl Plugin for Greeter {
    type Config = NoConfig;
    type Controllers = Self;

    fn manifest(_: &NoConfig) -> Manifest {
        let controller = ControllerManifest::of::<Greeting>("greeter")
            .fields([".spec"])
            .touches(Touch::new(CONFIG_MAP).owned());
        Manifest::new("greeter", "0.1.0", "A ConfigMap with a greeting for each Greeting.").controller(controller)
    }
}

impl Controller for Greeter {
    type Config = NoConfig;
    type Object = Greeting;

    fn reconcile(request: Request<Greeting>, _: &Cluster) -> Result<Outcome, Failure> {
        let Greeting { metadata, spec } = request.object;
        if spec.name.is_empty() {
            return Err(Failure::permanent(format!(
                "Greeting {}: spec.name is empty; say who is greeted",
                metadata.name
            )));
        }
        let text = format!("Hello, {}!", spec.name);
        Ok(Outcome::new()
            .owned(json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": metadata.name, "namespace": metadata.namespace},
                "data": {"text": text},
            }))
            .status(json!({"text": text})))
    }
}

pilothouse_plugin::export!(Greeter);

#[cfg(test)]
mod tests {
    use super::*;
    use pilothouse_plugin::testing::FakeCluster;

    fn greeting(name: &str) -> serde_json::Value {
        json!({
            "apiVersion": "example.com/v1", "kind": "Greeting",
            "metadata": {"name": "morning", "namespace": "default"},
            "spec": {"name": name},
        })
    }

    #[test]
    fn greets_by_name() {
        let answer = FakeCluster::new().reconcile::<Greeter>(greeting("Ada")).unwrap();
        assert_eq!(answer.object("ConfigMap", "morning")["data"]["text"], "Hello, Ada!");
        assert_eq!(answer.status, Some(json!({"text": "Hello, Ada!"})));
    }

    #[test]
    fn greets_nobody_without_a_name() {
        let failure = FakeCluster::new().reconcile::<Greeter>(greeting("")).unwrap_err();
        assert_eq!(
            failure,
            Failure::permanent("Greeting morning: spec.name is empty; say who is greeted")
        );
    }
}
