//! Act of reverse-proxy: a ReverseProxy gets an nginx, whose configuration is restored after it was deleted. A spec
//! that nginx would refuse is refused, and can be corrected.

use serde_json::{Value, json};

use crate::act::{Act, Place, Step, expect, no_seeds, nothing_contributed};
use crate::kind::{Kind, condition};
use crate::sample::Sample;
use crate::scene::{Scene, uid};

/// The act.
pub fn act() -> Act {
    Act {
        plugin: "reverse-proxy",
        sample: "reverse-proxy.yaml",
        about: "a ReverseProxy stands for an nginx: a ConfigMap, a Deployment and a Service",
        kind: Kind::ReverseProxy,
        seeds: no_seeds,
        steps,
        contributed: nothing_contributed,
    }
}

fn steps(sample: &Sample) -> Vec<Step> {
    let pass_on_to = |url: &Value| Step::Patch {
        text: format!(
            "let ReverseProxy {} pass on to {}",
            sample.name,
            url.as_str().unwrap_or_default()
        ),
        object: Place::like(sample, Kind::ReverseProxy),
        subresource: None,
        body: json!({"spec": {"proxyPass": url}}),
    };
    vec![
        Step::Apply,
        Step::Until {
            what: "the nginx to be there",
            holds: fulfilled,
        },
        Step::Delete {
            text: "delete its ConfigMap by hand".to_owned(),
            object: Place {
                name: format!("ngx-proxy-{}", sample.name),
                ..Place::like(sample, Kind::ConfigMap)
            },
        },
        Step::Until {
            what: "the ConfigMap to be back",
            holds: fulfilled_again,
        },
        pass_on_to(&json!("https://$noexists")),
        Step::Until {
            what: "an unknown variable to be refused",
            holds: |scene, sample| reconciled(scene, sample, "False"),
        },
        pass_on_to(&sample.body["spec"]["proxyPass"]),
        Step::Until {
            what: "all to be well again",
            holds: fulfilled,
        },
    ]
}

/// The ReverseProxy has its three children, and says so.
fn fulfilled(scene: &Scene, sample: &Sample) -> Result<(), String> {
    reconciled(scene, sample, "True")?;
    for kind in [Kind::ConfigMap, Kind::Deployment, Kind::Service] {
        let count = scene.children(uid(proxy(scene, sample)?), kind).len();
        expect(&format!("the number of {}s", kind.name()), &count, &1)?;
    }
    Ok(())
}

/// The ReverseProxy is fulfilled by another ConfigMap than the first.
fn fulfilled_again(scene: &Scene, sample: &Sample) -> Result<(), String> {
    let name = format!("ngx-proxy-{}", sample.name);
    expect(
        "whether the first ConfigMap has gone",
        &scene.has_gone(Kind::ConfigMap, sample.namespace(), &name),
        &true,
    )?;
    fulfilled(scene, sample)
}

fn reconciled(scene: &Scene, sample: &Sample, status: &str) -> Result<(), String> {
    let reconciled = condition(proxy(scene, sample)?, "Reconciled");
    expect("the condition Reconciled", &reconciled, &Some(status))
}

fn proxy<'scene>(scene: &'scene Scene, sample: &Sample) -> Result<&'scene Value, String> {
    let proxy = scene.get(Kind::ReverseProxy, sample.namespace(), &sample.name);
    proxy.ok_or_else(|| format!("ReverseProxy {} is not there", sample.name))
}
