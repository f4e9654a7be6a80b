//! Acts as other users of the cluster during a run: they delete a child, put another object in its place, mark it, or
//! forge objects in a namespace of their own. They undo it after a while, and complain if it was not respected.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use kube::Client;
use pilothouse_core::ownership::{OWNER_ANNOTATION, OWNER_LABEL};
use pilothouse_simulator::{Fault as Injected, Rule, Simulator};
use pilothouse_testkit::requests::TEST_ACCOUNT;
use pilothouse_testkit::scenario::matching::mismatches;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::names::{TENANT, place};
use crate::schedule::Fault;
use crate::target::Target;
use crate::tenant::Tenant;

/// The field manager of other people, and the prefix of all that they put on objects.
const SOMEBODY: &str = "somebody";
const MARK: &str = "somebody.test.dev/mark";

/// Maximum attempts to change an object that others change at the same time.
const TRIES: u32 = 20;

/// Silent watches of the kind whose object is recreated: as many as hosts may have.
const SILENT: u32 = 3;

/// Change by another user of an object that a host has just written.
#[derive(Clone, Debug, PartialEq)]
pub struct Errand {
    pub target: Target,
    pub fault: Fault,
}

/// Errands of other users, planned and done.
pub struct Errands {
    somebody: Arc<Somebody>,
    tasks: Mutex<JoinSet<()>>,
}

pub(crate) struct Somebody {
    client: Client,
    pub(crate) simulator: Simulator,
    /// Objects that only hosts have written in the run without faults, by [`place`].
    children: BTreeSet<String>,
    /// Set if no object may be deleted: the scenario relies on its identity, or nothing would recreate it.
    keeps_identities: bool,
    tenant: Tenant,
    /// Tells one who marks from the other.
    marks: AtomicUsize,
    complaints: Mutex<Vec<String>>,
    deleted: Mutex<BTreeMap<String, usize>>,
}

impl Errands {
    pub fn new(
        client: Client,
        simulator: Simulator,
        children: BTreeSet<String>,
        keeps_identities: bool,
        tenant: Tenant,
    ) -> Self {
        let somebody = Somebody {
            client,
            simulator,
            children,
            keeps_identities,
            tenant,
            marks: AtomicUsize::new(0),
            complaints: Mutex::default(),
            deleted: Mutex::default(),
        };
        Self {
            somebody: Arc::new(somebody),
            tasks: Mutex::default(),
        }
    }

    /// Returns `true` if a request writes an object that other users may change, because its scenario does not.
    pub fn suits(&self, target: &Target) -> bool {
        let place = place(&target.plural, &target.namespace, &target.name);
        target.method == Method::PATCH
            && target.subresource.is_empty()
            && target.plural != "namespaces"
            && !target.namespace.is_empty()
            && self.somebody.children.contains(&place)
    }

    /// Begins it; it goes on by itself.
    pub fn run(&self, errand: Errand) {
        let somebody = self.somebody.clone();
        let mut tasks = self.tasks.lock().expect("no panic while it is held");
        tasks.spawn(async move { somebody.run(errand).await });
    }

    /// Waits until everything is undone.
    pub async fn end(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().expect("no panic while it is held"));
        tasks.join_all().await;
    }

    /// Returns the errands that the hosts did not respect.
    pub fn complaints(&self) -> Vec<String> {
        let mut complaints = self
            .somebody
            .complaints
            .lock()
            .expect("no panic while it is held")
            .clone();
        complaints.extend(self.somebody.tenant.complaints());
        complaints
    }

    /// Objects that the tenant has made, and edits of them.
    pub fn acts(&self) -> usize {
        self.somebody.tenant.acts()
    }

    /// Counts of each object's deletions by other users, by [`place`].
    pub fn deleted(&self) -> BTreeMap<String, usize> {
        self.somebody.deleted.lock().expect("no panic while it is held").clone()
    }
}

impl Somebody {
    async fn run(&self, Errand { target, fault }: Errand) {
        match fault {
            Fault::Deleted | Fault::Recreated { .. } if self.keeps_identities => {}
            Fault::Deleted if self.child(&target).is_some() => {
                self.delete(&target).await;
            }
            Fault::Recreated { seconds } => self.recreate(&target, Duration::from_secs(seconds)).await,
            Fault::Marked { seconds } => self.mark(&target, Duration::from_secs(seconds)).await,
            Fault::Forged { seconds } => self.forge(&target, Duration::from_secs(seconds)).await,
            Fault::Rewritten { part, seconds } => self.rewrite(&target, part, Duration::from_secs(seconds)).await,
            Fault::Impersonated => self.impersonate(&target).await,
            Fault::Intruded => self.intrude(&target).await,
            fault => self.tenant.run(&fault).await,
        }
    }

    async fn recreate(&self, target: &Target, lasts: Duration) {
        let Some(child) = self.child(target) else { return };
        let silent = Rule::new(Injected::SilentWatch).resource(&target.plural).times(SILENT);
        let silent = silent.when(|asked| asked.user_agent != TEST_ACCOUNT);
        self.simulator.faults().add(silent);
        self.simulator.cut_watches(&target.group, &target.plural);
        if !self.delete(target).await {
            return;
        }
        let mut theirs = (*child).clone();
        theirs["metadata"] = json!({
            "name": target.name, "namespace": target.namespace, "labels": {MARK: "ours"},
        });
        if let Some(object) = theirs.as_object_mut() {
            object.remove("status");
        }
        strip_allocated(&mut theirs);
        let Ok(made) = self.send(Method::POST, &target.collection(), None, &theirs).await else {
            // A host was faster; then it was only deleted.
            return;
        };
        tokio::time::sleep(lasts).await;
        let place = place(&target.plural, &target.namespace, &target.name);
        match self.live(target) {
            // The scenario deletes the namespace, and everything in it.
            None if !self.has_namespace(target) => {}
            None => self.complain(format!("{place}, which somebody had made, was deleted")),
            Some(live) if live["metadata"]["uid"] != made["metadata"]["uid"] => {
                self.complain(format!("{place}, which somebody had made, was replaced"));
            }
            Some(live) => {
                let mut expected = made.clone();
                expected["metadata"] = json!({"labels": {MARK: "ours"}});
                if let Some(object) = expected.as_object_mut() {
                    object.remove("status");
                }
                for lost in mismatches(&expected, &live) {
                    self.complain(format!(
                        "{place}, which somebody had made, was changed: {}: {}",
                        lost.path, lost.problem
                    ));
                }
                self.delete(target).await;
            }
        }
    }

    async fn mark(&self, target: &Target, lasts: Duration) {
        let mark = format!("somebody.test.dev/mark-{}", self.marks.fetch_add(1, Ordering::SeqCst));
        let merge = Some("application/merge-patch+json");
        let path = target.path();
        // Others change the list of finalizers, too, which goes as a whole.
        let mut tries = 0;
        let child = loop {
            let Some(child) = self.child(target) else { return };
            let before = &child["metadata"];
            let mut held = before["finalizers"].as_array().cloned().unwrap_or_default();
            held.push(json!(mark));
            let metadata = json!({
                "uid": before["uid"], "resourceVersion": before["resourceVersion"],
                "annotations": {&mark: "kept"}, "labels": {&mark: "kept"}, "finalizers": held,
            });
            let marked = self
                .send(Method::PATCH, &path, merge, &json!({"metadata": metadata}))
                .await;
            tries += 1;
            match marked {
                Ok(_) => break child,
                Err(_) if tries < TRIES => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(_) => return,
            }
        };
        tokio::time::sleep(lasts).await;
        let place = place(&target.plural, &target.namespace, &target.name);
        let live = self
            .live(target)
            .filter(|live| live["metadata"]["uid"] == child["metadata"]["uid"]);
        let Some(live) = live else {
            return self.complain(format!("{place} is gone although somebody's finalizer was on it"));
        };
        let metadata = &live["metadata"];
        let has_finalizer = metadata["finalizers"]
            .as_array()
            .is_some_and(|all| all.contains(&json!(mark)));
        for (what, has_it) in [
            ("annotation", metadata["annotations"][&mark] == "kept"),
            ("label", metadata["labels"][&mark] == "kept"),
            ("finalizer", has_finalizer),
        ] {
            if !has_it {
                self.complain(format!("{place} has lost the {what} that somebody had put on it"));
            }
        }
        for _ in 0..TRIES {
            let Some(live) = self.live(target) else { return };
            let metadata = &live["metadata"];
            let left = metadata["finalizers"].as_array().into_iter().flatten();
            let left: Vec<_> = left.filter(|it| **it != *mark).collect();
            let none = json!({
                "resourceVersion": metadata["resourceVersion"],
                "annotations": {&mark: null}, "labels": {&mark: null}, "finalizers": left,
            });
            let freed = self.send(Method::PATCH, &path, merge, &json!({"metadata": none})).await;
            if freed.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.complain(format!("the mark on {place} could not be taken off"));
    }

    /// Objects in the tenant's namespace that say that they are another tenant's.
    async fn forge(&self, target: &Target, lasts: Duration) {
        let Some(child) = self.child(target) else { return };
        let metadata = &child["metadata"];
        let owner = &metadata["ownerReferences"][0];
        let label = metadata["labels"][OWNER_LABEL].as_str();
        let Some(uid) = owner["uid"].as_str().or(label) else {
            return;
        };
        let entries = metadata["managedFields"].as_array();
        let mut managers = entries.into_iter().flatten().filter_map(|it| it["manager"].as_str());
        let Some(manager) = managers.find(|it| it.starts_with("pilothouse/")) else {
            return;
        };
        let group = owner["apiVersion"]
            .as_str()
            .and_then(|it| it.split_once('/'))
            .map_or("", |it| it.0);
        let kind = owner["kind"].as_str().unwrap_or("Wish");
        let real = format!(
            "{group}/{kind}/{}/{}",
            target.namespace,
            owner["name"].as_str().unwrap_or("none")
        );
        let absent = format!("{group}/{kind}/{TENANT}/no-such-owner");
        let mut names = Vec::new();
        for (name, owner_name) in [("forged-absent", &absent), ("forged-real", &real)] {
            let mut forged = (*child).clone();
            forged["metadata"] = json!({
                "name": name, "namespace": TENANT,
                "labels": {OWNER_LABEL: uid},
                "annotations": {OWNER_ANNOTATION: owner_name, "pilothouse.dev/desired": metadata["annotations"]["pilothouse.dev/desired"]},
            });
            names.push(self.forged(target, name, manager, forged).await);
        }
        let mut forged = (*child).clone();
        forged["metadata"] = json!({"name": "forged-owned", "namespace": TENANT});
        if !owner.is_null() {
            forged["metadata"]["ownerReferences"] = json!([owner]);
        }
        names.push(self.forged(target, "forged-owned", manager, forged).await);
        tokio::time::sleep(lasts).await;
        for path in names {
            let _ = self.send(Method::DELETE, &path, None, &json!({})).await;
        }
    }

    async fn forged(&self, target: &Target, name: &str, manager: &str, mut body: Value) -> String {
        if let Some(object) = body.as_object_mut() {
            object.remove("status");
        }
        strip_allocated(&mut body);
        let path = format!("{}/namespaces/{TENANT}/{}/{name}", target.prefix, target.plural);
        let apply = Some("application/apply-patch+yaml");
        let query = format!("{path}?fieldManager={manager}&force=true");
        let _ = self.send(Method::PATCH, &query, apply, &body).await;
        path
    }

    async fn delete(&self, target: &Target) -> bool {
        let place = place(&target.plural, &target.namespace, &target.name);
        *self
            .deleted
            .lock()
            .expect("no panic while it is held")
            .entry(place)
            .or_default() += 1;
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
        self.send(Method::DELETE, &target.path(), None, &options).await.is_ok()
    }

    /// Returns the object, unless another user has created it.
    pub(crate) fn child(&self, target: &Target) -> Option<Arc<Value>> {
        self.live(target)
            .filter(|live| live["metadata"]["labels"][MARK].is_null())
    }

    fn live(&self, target: &Target) -> Option<Arc<Value>> {
        let Target {
            group,
            plural,
            namespace,
            name,
            ..
        } = target;
        self.simulator.object(group, plural, namespace, name)
    }

    /// Returns `true` if its namespace exists and is not being deleted.
    fn has_namespace(&self, target: &Target) -> bool {
        let namespace = self.simulator.object("", "namespaces", "", &target.namespace);
        namespace.is_some_and(|it| it["metadata"]["deletionTimestamp"].is_null())
    }

    fn complain(&self, complaint: String) {
        let mut complaints = self.complaints.lock().expect("no panic while it is held");
        complaints.push(complaint);
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        media: Option<&str>,
        body: &Value,
    ) -> Result<Value, kube::Error> {
        let join = if path.contains('?') { '&' } else { '?' };
        let uri = if path.contains("fieldManager=") {
            path.to_owned()
        } else {
            format!("{path}{join}fieldManager={SOMEBODY}")
        };
        let request = http::Request::builder()
            .method(method)
            .uri(uri)
            .header(http::header::CONTENT_TYPE, media.unwrap_or("application/json"));
        let request = request
            .body(body.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }
}

impl Target {
    fn collection(&self) -> String {
        format!("{}/namespaces/{}/{}", self.prefix, self.namespace, self.plural)
    }

    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }
}

/// Removes values that a server has allocated for one object and would refuse for another.
fn strip_allocated(object: &mut Value) {
    if let Some(spec) = object["spec"].as_object_mut() {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
        for port in spec
            .get_mut("ports")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if let Some(port) = port.as_object_mut() {
                port.remove("nodePort");
            }
        }
    }
}
