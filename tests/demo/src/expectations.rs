//! Owns what has to be true of the cluster once the host has done its work. Pure: an expectation looks at the scene and
//! says what is missing.

use serde_json::Value;

use crate::sample::Sample;
use crate::scene::{Kind, Scene, condition, number, uid};

/// Counts of the AppService's status that are the Deployment's.
const COUNTS: [&str; 4] = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];

/// The AppService's definition is served.
pub fn defined(scene: &Scene) -> Result<(), String> {
    let established = scene.of(Kind::Definition).any(|crd| {
        crd["spec"]["names"]["kind"] == Kind::AppService.name() && condition(crd, "Established") == Some("True")
    });
    if established {
        Ok(())
    } else {
        Err("no CRD of AppService is established".to_owned())
    }
}

/// The AppService has both children as it asked for them, they work, and its status says so.
pub fn fulfilled(scene: &Scene, sample: &Sample) -> Result<(), String> {
    let app = app_service(scene, sample)?;
    let deployment = the_only(scene, app, Kind::Deployment)?;
    let asked = number(&deployment["spec"]["replicas"]);
    expect("the Deployment's replicas", &asked, &sample.size)?;
    let image = deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str();
    expect("the Deployment's image", &image, &Some(sample.image.as_str()))?;
    expect(
        "the Deployment's ready replicas",
        &number(&deployment["status"]["readyReplicas"]),
        &sample.size,
    )?;
    service(scene, app, sample)?;
    for count in COUNTS {
        let (own, theirs) = (number(&app["status"][count]), number(&deployment["status"][count]));
        expect(&format!("the AppService's {count}"), &own, &theirs)?;
    }
    expect(
        "the AppService's condition Reconciled",
        &condition(app, "Reconciled"),
        &Some("True"),
    )
}

/// The AppService is fulfilled by another Deployment than that one.
pub fn fulfilled_again(scene: &Scene, sample: &Sample, deleted: &str) -> Result<(), String> {
    if scene.gone(deleted).is_none() {
        return Err("the deleted Deployment has not been seen to go".to_owned());
    }
    fulfilled(scene, sample)
}

/// The AppService of the sample.
pub fn app_service<'scene>(scene: &'scene Scene, sample: &Sample) -> Result<&'scene Value, String> {
    let app = scene.get(Kind::AppService, &sample.namespace, &sample.name);
    app.ok_or_else(|| format!("AppService {} is not there", sample.name))
}

/// The only child of its kind.
pub fn the_only<'scene>(scene: &'scene Scene, app: &Value, kind: Kind) -> Result<&'scene Value, String> {
    match scene.children(uid(app), kind)[..] {
        [only] => Ok(only),
        ref several => Err(format!(
            "the AppService owns {} {}s in place of one",
            several.len(),
            kind.name()
        )),
    }
}

fn service(scene: &Scene, app: &Value, sample: &Sample) -> Result<(), String> {
    if sample.ports.is_empty() {
        return expect(
            "the number of Services",
            &scene.children(uid(app), Kind::Service).len(),
            &0,
        );
    }
    let service = the_only(scene, app, Kind::Service)?;
    expect(
        "the Service's type",
        &service["spec"]["type"].as_str(),
        &Some("NodePort"),
    )?;
    let ports = service["spec"]["ports"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    expect("the number of the Service's ports", &ports.len(), &sample.ports.len())?;
    for (port, wanted) in ports.iter().zip(&sample.ports) {
        // What the sample leaves open, the server fills in.
        for (field, wanted) in wanted.as_object().into_iter().flatten() {
            expect(&format!("the Service's {field}"), &&port[field], &wanted)?;
        }
    }
    Ok(())
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, is: &T, wanted: &T) -> Result<(), String> {
    if is == wanted {
        Ok(())
    } else {
        Err(format!("{what}: {is:?} in place of {wanted:?}"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::sample::tests::sample;
    use crate::scene::{Change, News};

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
        assert_eq!(fulfilled(&good(), &sample()), Ok(()));
    }

    #[test]
    fn what_is_missing_is_said() {
        let lacks = |change: &dyn Fn(&mut Scene)| {
            let mut scene = good();
            change(&mut scene);
            fulfilled(&scene, &sample()).unwrap_err()
        };
        let nothing = fulfilled(&Scene::default(), &sample()).unwrap_err();
        assert_eq!(nothing, "AppService web is not there");
        let lost = lacks(&|scene| put(scene, Kind::Service, News::Deleted(json!({"metadata": metadata("s")}))));
        assert_eq!(lost, "the AppService owns 0 Services in place of one");
        let slow = lacks(&|scene| put(scene, Kind::Deployment, News::Applied(deployment("d", 1))));
        assert_eq!(slow, "the Deployment's ready replicas: 1 in place of 2");
        let mut other = sample();
        other.ports[0]["nodePort"] = json!(30003);
        let moved = fulfilled(&good(), &other).unwrap_err();
        assert!(moved.starts_with("the Service's nodePort: Number(30002)"), "{moved}");
        other.ports.clear();
        assert_eq!(
            fulfilled(&good(), &other).unwrap_err(),
            "the number of Services: 1 in place of 0"
        );
    }

    #[test]
    fn the_same_deployment_does_not_count_as_back() {
        let mut scene = good();
        assert!(fulfilled_again(&scene, &sample(), "d").is_err());
        put(&mut scene, Kind::Deployment, News::Deleted(deployment("d", 2)));
        assert!(fulfilled_again(&scene, &sample(), "d").is_err());
        put(&mut scene, Kind::Deployment, News::Applied(deployment("e", 2)));
        assert_eq!(fulfilled_again(&scene, &sample(), "d"), Ok(()));
    }

    #[test]
    fn a_definition_counts_once_it_is_established() {
        let mut scene = Scene::default();
        let mut crd = json!({"metadata": {"name": "a.b"}, "spec": {"names": {"kind": "AppService"}}});
        put(&mut scene, Kind::Definition, News::Applied(crd.clone()));
        assert!(defined(&scene).is_err());
        crd["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
        put(&mut scene, Kind::Definition, News::Applied(crd));
        assert_eq!(defined(&scene), Ok(()));
    }
}
