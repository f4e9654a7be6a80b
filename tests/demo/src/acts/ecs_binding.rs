//! Act of ecs-binding: a binding is created, and becomes true when its Node gets the address.

use serde_json::{Value, json};

use crate::act::{Act, Place, Step, expect};
use crate::kind::{Kind, reason};
use crate::sample::Sample;
use crate::scene::Scene;

/// The label that every binding gets.
const LABEL: &str = "hopegi.com/cluster";
/// The Node of the sample.
const NODE: &str = "node-1";

/// The act.
pub fn act() -> Act {
    Act {
        plugin: "ecs-binding",
        sample: "ecs-binding.yaml",
        about: "an EcsBinding says which cloud host is which Node, and whether that is true",
        kind: Kind::EcsBinding,
        seeds: || vec![(Kind::Node, json!({"metadata": {"name": NODE}}))],
        steps,
        contributed: |scene, sample| {
            let label = label(scene, sample).unwrap_or("missing").to_owned();
            vec![[format!("label {LABEL} of itself"), label]]
        },
    }
}

fn steps(sample: &Sample) -> Vec<Step> {
    let address = &sample.body["spec"]["innerip"];
    vec![
        Step::Apply,
        Step::Until {
            what: "the binding to be labelled, and found to be false",
            holds: |scene, sample| is(scene, sample, "AddressMismatch"),
        },
        Step::Patch {
            text: format!("give Node {NODE} the address"),
            object: Place {
                kind: Kind::Node,
                namespace: None,
                name: NODE.to_owned(),
            },
            subresource: Some("status"),
            body: json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}}),
        },
        Step::Until {
            what: "the binding to be true",
            holds: |scene, sample| is(scene, sample, "AddressFound"),
        },
    ]
}

fn is(scene: &Scene, sample: &Sample, wanted: &str) -> Result<(), String> {
    let binding = scene.get(Kind::EcsBinding, sample.namespace(), &sample.name);
    let why = binding.and_then(|binding| reason(binding, "Bound"));
    expect("the reason of the condition Bound", &why, &Some(wanted))?;
    expect("the label", &label(scene, sample), &Some("k8s-cluster"))
}

fn label<'scene>(scene: &'scene Scene, sample: &Sample) -> Option<&'scene str> {
    let binding: &Value = scene.get(Kind::EcsBinding, sample.namespace(), &sample.name)?;
    binding["metadata"]["labels"][LABEL].as_str()
}
