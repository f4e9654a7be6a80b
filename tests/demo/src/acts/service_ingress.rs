//! Act of service-ingress: a Service is annotated and gets an Ingress, loses both, and is annotated again.

use serde_json::{Value, json};

use crate::act::{Act, Place, Step, expect, no_seeds, nothing_contributed};
use crate::kind::Kind;
use crate::sample::Sample;
use crate::scene::{Scene, uid};

/// The act.
pub fn act() -> Act {
    Act {
        plugin: "service-ingress",
        sample: "service-ingress.yaml",
        about: "a Service with the annotation ingress/http gets an Ingress",
        kind: Kind::Service,
        seeds: no_seeds,
        steps,
        contributed: nothing_contributed,
    }
}

fn steps(sample: &Sample) -> Vec<Step> {
    let annotate = |text: &str, value: Value| Step::Patch {
        text: format!("{text} Service {}", sample.name),
        object: Place::like(sample, Kind::Service),
        subresource: None,
        body: json!({"metadata": {"annotations": {"ingress/http": value}}}),
    };
    vec![
        Step::Apply,
        Step::Until {
            what: "the Ingress to be there",
            holds: exposed,
        },
        annotate("take the annotation from", Value::Null),
        Step::Until {
            what: "the Ingress to go",
            holds: |scene, sample| expect("the number of Ingresses", &ingresses(scene, sample)?.len(), &0),
        },
        annotate("annotate again", json!("")),
        Step::Until {
            what: "the Ingress to be back",
            holds: exposed,
        },
    ]
}

/// The Service has its Ingress, which leads to it.
fn exposed(scene: &Scene, sample: &Sample) -> Result<(), String> {
    let ingresses = ingresses(scene, sample)?;
    expect("the number of Ingresses", &ingresses.len(), &1)?;
    let backend = &ingresses[0]["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"];
    expect("the Ingress's Service", &backend.as_str(), &Some(sample.name.as_str()))
}

fn ingresses<'scene>(scene: &'scene Scene, sample: &Sample) -> Result<Vec<&'scene Value>, String> {
    let service = scene.get(Kind::Service, sample.namespace(), &sample.name);
    let service = service.ok_or_else(|| format!("Service {} is not there", sample.name))?;
    Ok(scene.children(uid(service), Kind::Ingress))
}
