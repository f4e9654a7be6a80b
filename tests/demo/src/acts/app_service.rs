//! Act of app-service: an AppService gets a Deployment and a Service, and the Deployment is restored after it was
//! deleted.

use serde_json::Value;

use crate::act::{Act, Place, Step, expect, no_seeds, nothing_contributed};
use crate::kind::{Kind, condition, number};
use crate::sample::Sample;
use crate::scene::{Scene, uid};

/// Counts of the AppService's status that are the Deployment's.
const COUNTS: [&str; 4] = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];

/// The act.
pub fn act() -> Act {
    Act {
        plugin: "app-service",
        sample: "app-service.yaml",
        about: "an AppService stands for a Deployment and a NodePort Service",
        kind: Kind::AppService,
        seeds: no_seeds,
        steps,
        contributed: nothing_contributed,
    }
}

fn steps(sample: &Sample) -> Vec<Step> {
    vec![
        Step::Apply,
        Step::Until {
            what: "the AppService to be fulfilled",
            holds: fulfilled,
        },
        Step::Delete {
            text: format!("delete Deployment {} by hand", sample.name),
            object: Place::like(sample, Kind::Deployment),
        },
        Step::Until {
            what: "the Deployment to be back",
            holds: fulfilled_again,
        },
    ]
}

/// The AppService has both children as it asked for them, they work, and its status says so.
fn fulfilled(scene: &Scene, sample: &Sample) -> Result<(), String> {
    let app = scene.get(Kind::AppService, sample.namespace(), &sample.name);
    let app = app.ok_or_else(|| format!("AppService {} is not there", sample.name))?;
    let wanted = &sample.body["spec"];
    let deployment = the_only(scene, app, Kind::Deployment)?;
    let size = number(&wanted["size"]);
    expect(
        "the Deployment's replicas",
        &number(&deployment["spec"]["replicas"]),
        &size,
    )?;
    let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
    expect("the Deployment's image", &image, &&wanted["image"])?;
    let ready = number(&deployment["status"]["readyReplicas"]);
    expect("the Deployment's ready replicas", &ready, &size)?;
    service(scene, app, wanted)?;
    for count in COUNTS {
        let (own, theirs) = (number(&app["status"][count]), number(&deployment["status"][count]));
        expect(&format!("the AppService's {count}"), &own, &theirs)?;
    }
    let reconciled = condition(app, "Reconciled");
    expect("the AppService's condition Reconciled", &reconciled, &Some("True"))
}

/// The AppService is fulfilled by another Deployment than the first.
fn fulfilled_again(scene: &Scene, sample: &Sample) -> Result<(), String> {
    if !scene.has_gone(Kind::Deployment, sample.namespace(), &sample.name) {
        return Err("the deleted Deployment has not been seen to go".to_owned());
    }
    fulfilled(scene, sample)
}

/// The only child of its kind.
fn the_only<'scene>(scene: &'scene Scene, app: &Value, kind: Kind) -> Result<&'scene Value, String> {
    match scene.children(uid(app), kind)[..] {
        [only] => Ok(only),
        ref several => Err(format!(
            "the AppService owns {} {}s in place of one",
            several.len(),
            kind.name()
        )),
    }
}

fn service(scene: &Scene, app: &Value, wanted: &Value) -> Result<(), String> {
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let wanted = items(&wanted["ports"]);
    if wanted.is_empty() {
        let services = scene.children(uid(app), Kind::Service);
        return expect("the number of Services", &services.len(), &0);
    }
    let service = the_only(scene, app, Kind::Service)?;
    let kind = service["spec"]["type"].as_str();
    expect("the Service's type", &kind, &Some("NodePort"))?;
    let ports = items(&service["spec"]["ports"]);
    expect("the number of the Service's ports", &ports.len(), &wanted.len())?;
    for (port, wanted) in ports.iter().zip(&wanted) {
        // What the sample leaves open, the server fills in.
        for (field, wanted) in wanted.as_object().into_iter().flatten() {
            expect(&format!("the Service's {field}"), &&port[field], &wanted)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::scene::{Change, News};

    /// Two replicas and these ports.
    fn sample(ports: &str) -> Sample {
        let text = format!(
            "{{apiVersion: kosmos.io/v1, kind: AppService, metadata: {{name: web}}, \
             spec: {{size: 2, image: 'nginx:1', ports: {ports}}}}}"
        );
        Sample::parse(Path::new("web.yaml"), Kind::AppService, &text).unwrap()
    }

    const PORTS: &str = "[{port: 80, nodePort: 30002}]";

    fn put(scene: &mut Scene, kind: Kind, news: News) {
        scene.take(Change {
            at: Duration::ZERO,
            kind,
            news,
        });
    }

    fn metadata(uid: &str) -> Value {
        json!({"name": "web", "namespace": "default", "uid": uid, "ownerReferences": [{"uid": "app", "controller": true}]})
    }

    fn deployment(uid: &str, ready: u64) -> Value {
        let counts = json!({"replicas": 2, "updatedReplicas": 2, "readyReplicas": ready, "availableReplicas": ready});
        let template = json!({"spec": {"containers": [{"image": "nginx:1"}]}});
        json!({"metadata": metadata(uid), "spec": {"replicas": 2, "template": template}, "status": counts})
    }

    /// Everything is as it should be.
    fn good() -> Scene {
        let mut scene = Scene::default();
        let mut app = json!({"metadata": {"name": "web", "namespace": "default", "uid": "app"}});
        app["status"] = deployment("d", 2)["status"].clone();
        app["status"]["conditions"] = json!([{"type": "Reconciled", "status": "True"}]);
        put(&mut scene, Kind::AppService, News::Applied(app));
        put(&mut scene, Kind::Deployment, News::Applied(deployment("d", 2)));
        let ports = json!([{"port": 80, "nodePort": 30002, "protocol": "TCP", "targetPort": 80}]);
        let service = json!({"metadata": metadata("s"), "spec": {"type": "NodePort", "ports": ports}});
        put(&mut scene, Kind::Service, News::Applied(service));
        scene
    }

    #[test]
    fn it_is_fulfilled_when_all_is_as_it_should_be() {
        assert_eq!(fulfilled(&good(), &sample(PORTS)), Ok(()));
    }

    #[test]
    fn what_is_missing_is_said() {
        let lacks = |change: &dyn Fn(&mut Scene)| {
            let mut scene = good();
            change(&mut scene);
            fulfilled(&scene, &sample(PORTS)).unwrap_err()
        };
        let nothing = fulfilled(&Scene::default(), &sample(PORTS)).unwrap_err();
        assert_eq!(nothing, "AppService web is not there");
        let lost = lacks(&|scene| put(scene, Kind::Service, News::Deleted(json!({"metadata": metadata("s")}))));
        assert_eq!(lost, "the AppService owns 0 Services in place of one");
        let slow = lacks(&|scene| put(scene, Kind::Deployment, News::Applied(deployment("d", 1))));
        assert_eq!(slow, "the Deployment's ready replicas: 1 in place of 2");
        let moved = fulfilled(&good(), &sample("[{port: 80, nodePort: 30003}]")).unwrap_err();
        assert!(moved.starts_with("the Service's nodePort: Number(30002)"), "{moved}");
        assert_eq!(
            fulfilled(&good(), &sample("[]")).unwrap_err(),
            "the number of Services: 1 in place of 0"
        );
    }

    #[test]
    fn the_same_deployment_does_not_count_as_back() {
        let mut scene = good();
        let sample = sample(PORTS);
        assert!(fulfilled_again(&scene, &sample).is_err());
        put(&mut scene, Kind::Deployment, News::Deleted(deployment("d", 2)));
        assert!(fulfilled_again(&scene, &sample).is_err());
        put(&mut scene, Kind::Deployment, News::Applied(deployment("e", 2)));
        assert_eq!(fulfilled_again(&scene, &sample), Ok(()));
    }
}
