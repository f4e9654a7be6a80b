//! A backup that is restored brings objects with new uids: primaries and what was made for them, in any order. What names an
//! owner names the uid of the old one then.

use serde_json::{Value, json};

/// The ConfigMaps of a restored owner: in its namespace, in another one, to be kept, and no longer asked for.
const NEAR: [&str; 3] = ["near-0", "near-1", "near-2"];
const FAR: &str = "far";
const KEPT: &str = "kept";

fn config_map(namespace: &str, name: &str) -> Value {
    let metadata = json!({"name": name, "namespace": namespace});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": "as it should be"}})
}

fn wish(home: &str, elsewhere: &str) -> Value {
    let near = NEAR.map(|name| json!({"object": config_map(home, name)}));
    let more = [
        json!({"object": config_map(elsewhere, FAR)}),
        json!({"object": config_map(home, KEPT), "keep": true}),
    ];
    json!({
        "apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": "it", "namespace": home},
        "spec": {"owns": near.into_iter().chain(more).collect::<Vec<_>>()},
    })
}

/// Returns the backup of an object: without server-set fields and the status. Labels, annotations and owner references
/// stay.
fn restored(object: &Value) -> Value {
    let mut object = object.clone();
    for member in [
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "managedFields",
    ] {
        object["metadata"].as_object_mut().unwrap().remove(member);
    }
    object.as_object_mut().unwrap().remove("status");
    object
}

/// The uid of the owner that an object names, by whatever it names it.
fn owner_of(object: &Value) -> &Value {
    let metadata = &object["metadata"];
    match &metadata["ownerReferences"] {
        Value::Array(references) => {
            assert_eq!(references.len(), 1, "one owner: {object}");
            &references[0]["uid"]
        }
        _ => &metadata["labels"]["pilothouse.dev/owner"],
    }
}

mod simulated {
    use kube::Api;
    use kube::api::{DeleteParams, DynamicObject, PostParams, PropagationPolicy};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::stage::{Stage, unhurried};
    use pilothouse_runtime::HostOptions;
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::host::SteeredHost as _;

    use super::*;

    /// State of the host, and order of the restored objects.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Course {
        /// The host starts when all is restored.
        Afterwards,
        /// The host runs, and the owner is restored first.
        OwnerFirst,
        /// The host runs, and the children are restored first.
        OwnerLast,
    }

    async fn start(stage: &mut Stage) {
        let specs = vec![stage.host.spec("wisher").unwrap()];
        stage.start(specs).await;
        stage.host.settled().await.unwrap();
    }

    async fn until_reconciled(stage: &Stage) {
        let well = stage.until(|stage| stage.is_reconciled("Wish", "it").then_some(()));
        let well = well.await;
        assert!(
            well.is_some(),
            "{:?}\n{}",
            stage.reconciled("Wish", "it"),
            stage.host.log_tail()
        );
    }

    fn all(stage: &Stage) -> Vec<Value> {
        let mut maps = stage.all("ConfigMap");
        maps.retain(|map| map["data"]["text"].is_string());
        maps
    }

    async fn delete(stage: &Stage, object: &Value) {
        let kind = match object["kind"].as_str().unwrap() {
            "Wish" => GroupVersionKind::gvk("wishes.test.dev", "v1", "Wish"),
            kind => GroupVersionKind::gvk("", "v1", kind),
        };
        let [namespace, name] = ["namespace", "name"].map(|member| object["metadata"][member].as_str().unwrap());
        let client = stage.cluster.client().await.unwrap();
        let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, &ApiResource::from_gvk(&kind));
        let orphan = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Orphan),
            ..DeleteParams::default()
        };
        let _ = api.delete(name, &orphan).await.unwrap();
    }

    /// Creates a ConfigMap, and returns the stored one; none if there is one of its name.
    async fn create_if_absent(stage: &Stage, map: &Value) -> Option<Value> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        let client = stage.cluster.client().await.unwrap();
        let namespace = map["metadata"]["namespace"].as_str().unwrap();
        let maps: Api<DynamicObject> = Api::namespaced_with(client, namespace, &kind);
        let map = serde_json::from_value(map.clone()).unwrap();
        match maps.create(&PostParams::default(), &map).await {
            Ok(made) => Some(serde_json::to_value(made).unwrap()),
            Err(kube::Error::Api(status)) if status.code == 409 => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Restores all objects; returns them, and the objects after everything has settled.
    async fn play(course: Course) -> (Stage, Vec<Value>) {
        let mut stage = Stage {
            cluster: Cluster::simulated(),
            host: RuntimeHost::new(HostOptions::default(), unhurried()),
        };
        start(&mut stage).await;
        let elsewhere = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}});
        stage.create(&elsewhere).await;
        stage.create(&wish("default", "elsewhere")).await;
        until_reconciled(&stage).await;
        stage.host.settled().await.unwrap();
        let (owner, children) = (stage.find("Wish", "it").unwrap(), all(&stage));
        assert_eq!(children.len(), NEAR.len() + 2);
        stage.host.stop().await.unwrap();
        delete(&stage, &owner).await;
        for child in &children {
            delete(&stage, child).await;
        }
        if course != Course::Afterwards {
            start(&mut stage).await;
        }
        let (owner, children) = (restored(&owner), children.iter().map(restored).collect::<Vec<_>>());
        if course != Course::OwnerLast {
            stage.create(&owner).await;
        }
        let mut made = Vec::new();
        for child in &children {
            // Where the host runs, it may have made the child already.
            made.extend(create_if_absent(&stage, child).await);
        }
        if course == Course::OwnerLast {
            stage.minute().await;
            stage.create(&owner).await;
        }
        if course == Course::Afterwards {
            start(&mut stage).await;
        }
        until_reconciled(&stage).await;
        stage.minute().await;
        (stage, made)
    }

    async fn is_as_before(mut stage: Stage, what: &str) {
        let uid = stage.find("Wish", "it").unwrap()["metadata"]["uid"].clone();
        let check = |stage: &Stage| {
            let maps = all(stage);
            let mut names: Vec<_> = maps
                .iter()
                .map(|map| map["metadata"]["name"].as_str().unwrap())
                .collect();
            names.sort_unstable();
            assert_eq!(names, [FAR, KEPT, NEAR[0], NEAR[1], NEAR[2]], "{what}");
            for map in &maps {
                assert_eq!(owner_of(map), &uid, "{what}: {map}");
                assert_eq!(map["data"]["text"], "as it should be", "{what}");
            }
        };
        check(&stage);
        let mark = stage.mark();
        stage.host.resync().await.unwrap();
        stage.minute().await;
        let writes = stage.host_writes_since(mark);
        assert!(writes.is_empty(), "{what}: {writes:?}");
        check(&stage);
        stage.host.stop().await.unwrap();
    }

    /// A child with an owner reference is the garbage collector's to take, because its owner is no more, and is then made
    /// again. What has a label stays, and is given the restored owner.
    #[tokio::test(start_paused = true)]
    async fn restored_children_are_recreated_or_given_their_new_owner() {
        for course in [Course::Afterwards, Course::OwnerFirst, Course::OwnerLast] {
            let (stage, made) = play(course).await;
            for before in &made {
                let name = before["metadata"]["name"].as_str().unwrap();
                let now = stage.find("ConfigMap", name).unwrap();
                let stays = now["metadata"]["uid"] == before["metadata"]["uid"];
                assert_eq!(
                    stays,
                    [KEPT, FAR].contains(&name),
                    "{course:?} {name}: {}",
                    stage.host.log_tail()
                );
            }
            if course != Course::OwnerFirst {
                assert_eq!(made.len(), NEAR.len() + 2, "{course:?}");
            }
            is_as_before(stage, &format!("{course:?}")).await;
        }
    }
}

mod real {
    use std::time::{Duration, Instant};

    use kube::Api;
    use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PropagationPolicy};
    use kube::core::GroupVersionKind;
    use pilothouse_end_to_end::components;
    use pilothouse_end_to_end::stage::create;
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::controlplane::Options;
    use pilothouse_testkit::host::{ProcessHost, SteeredHost as _};
    use pilothouse_testkit::requests::Request;

    use super::*;

    const WITHIN: Duration = Duration::from_mins(3);

    /// Time in which the host writes nothing, and the garbage collector has looked at every object again.
    const QUIET: Duration = Duration::from_secs(15);

    const HOME: &str = "restored";
    const ELSEWHERE: &str = "restored-elsewhere";

    /// The garbage collector deletes what names an owner that is no more, while the host repairs it or makes it again.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_restored_backup_converges_beside_the_garbage_collector() {
        let cluster = Cluster::real_with(Options::default()).await.unwrap();
        let mut host = ProcessHost::new(components::program(), components::folder());
        host.start(&cluster, &["wisher".into()]).await.unwrap();
        let client = cluster.client().await.unwrap();
        let kind = |group: &str, kind: &str| ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let wishes: Api<DynamicObject> = Api::namespaced_with(client.clone(), HOME, &kind("wishes.test.dev", "Wish"));
        let maps = |namespace: &str| -> Api<DynamicObject> {
            Api::namespaced_with(client.clone(), namespace, &kind("", "ConfigMap"))
        };
        let place = |name: &str| maps(if name == FAR { ELSEWHERE } else { HOME });
        let names = [NEAR[0], NEAR[1], NEAR[2], FAR, KEPT];
        for namespace in [HOME, ELSEWHERE] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            create(client.clone(), &namespace).await;
        }
        // Whether all that is wished for has the owner that lives.
        let is_well = async || {
            let Ok(Some(owner)) = wishes.get_opt("it").await else {
                return false;
            };
            let uid = json!(owner.metadata.uid);
            for name in names {
                let found = place(name).get_opt(name).await.unwrap();
                let found = found.filter(|found| found.metadata.deletion_timestamp.is_none());
                let Some(found) = found.map(|found| serde_json::to_value(found).unwrap()) else {
                    return false;
                };
                if *owner_of(&found) != uid || found["data"]["text"] != "as it should be" {
                    return false;
                }
            }
            true
        };
        let until_well = async |what: &str, host: &mut ProcessHost| {
            let begun = Instant::now();
            while !is_well().await {
                assert_eq!(host.failure(), None, "{what}");
                assert!(begun.elapsed() < WITHIN, "in vain: {what}\n{}", host.log_tail());
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let begun = Instant::now();
        while wishes.list(&ListParams::default()).await.is_err() {
            assert!(begun.elapsed() < WITHIN, "the kind is not served:\n{}", host.log_tail());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        create(client.clone(), &wish(HOME, ELSEWHERE)).await;
        until_well("all is made", &mut host).await;

        for runs in [false, true] {
            if !runs {
                assert_eq!(host.stop().await.unwrap(), Vec::<String>::new());
            }
            let owner = serde_json::to_value(wishes.get("it").await.unwrap()).unwrap();
            let mut children = Vec::new();
            for name in names {
                children.push(serde_json::to_value(place(name).get(name).await.unwrap()).unwrap());
            }
            // The owner is lost first, so that the host makes nothing again.
            let orphan = DeleteParams {
                propagation_policy: Some(PropagationPolicy::Orphan),
                ..DeleteParams::default()
            };
            let _ = wishes.delete("it", &orphan).await.unwrap();
            let begun = Instant::now();
            while wishes.get_opt("it").await.unwrap().is_some() {
                assert!(begun.elapsed() < WITHIN, "the owner goes");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            for name in names {
                // The host collects what is elsewhere, if it runs.
                let _ = place(name).delete(name, &DeleteParams::default()).await;
            }
            // As a restore in the order of names does: ConfigMaps before Wishes.
            for child in &children {
                create(client.clone(), &restored(child)).await;
            }
            create(client.clone(), &restored(&owner)).await;
            if !runs {
                host.start(&cluster, &["wisher".into()]).await.unwrap();
            }
            until_well("all is as it was", &mut host).await;
            // The collector may still take what the host has not reached: until nothing is written for a while.
            let begun = Instant::now();
            loop {
                let mark = cluster.mark().unwrap();
                tokio::time::sleep(QUIET).await;
                let requests = cluster.requests_since(mark).unwrap().into_iter();
                let is_by_host = |request: &Request| request.is_by_host() && request.is_write();
                let writes: Vec<_> = requests.filter(is_by_host).map(|it| it.to_string()).collect();
                if writes.is_empty() && is_well().await {
                    break;
                }
                assert!(begun.elapsed() < WITHIN, "{writes:?}\n{}", host.log_tail());
            }
        }
        assert_eq!(host.stop().await.unwrap(), Vec::<String>::new());
    }
}
