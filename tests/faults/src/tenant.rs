//! Hostile tenant with rights in one namespace only: its primaries nest and trap, and its webhook requests a huge wait.
//! `copies` makes the primaries.
//!
//! A neighbour with a namespace of its own shows whether others notice.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use kube::Client;
use pilothouse_core::status::failure::LONGEST_REQUESTED_WAIT;
use pilothouse_core::status::reason::Reason;
use pilothouse_core::text::depth::is_too_deep;
use pilothouse_simulator::{Fault as Injected, Rule, Simulator};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::copies::{Answer, Original, edited, failing, is_reconciled, nested, said};
use crate::names::{NEIGHBOUR, TENANT, is_host, place};
use crate::schedule::Fault;

/// The field manager of tenant and neighbour.
const MANAGER: &str = "tenant";

/// Maximum attempts to create an object, a second apart: its kind may not be served yet.
const TRIES: u32 = 60;

/// The pause between two edits of one who keeps an object hot.
const HOT: Duration = Duration::from_millis(250);

/// Time limit of a wait, whatever faults the hosts have.
const PATIENCE: Duration = Duration::from_hours(2);

/// Time limit for a neighbour who has been served before, where the tenant is the hosts' only fault.
const NEIGHBOUR_WITHIN: Duration = Duration::from_secs(3);

/// The same for the tenant's own object once nothing denies it any more and it was edited.
const EDITED_WITHIN: Duration = Duration::from_secs(30);

/// The same where nobody edits it: the longest wait that a host grants, and back-off.
const UNEDITED_WITHIN: Duration = LONGEST_REQUESTED_WAIT.saturating_add(Duration::from_mins(1));

/// The wait that the tenant's webhook asks for, in seconds.
const HUGE: u32 = 1 << 31;

/// The tenant and its neighbour.
pub struct Tenant {
    client: Client,
    simulator: Simulator,
    originals: Vec<Original>,
    /// Set if no other fault delays the hosts.
    is_alone: bool,
    errands: AtomicUsize,
    /// Count of the primaries that deny at the moment.
    denying: AtomicUsize,
    /// Objects made and edits.
    acts: AtomicUsize,
    complaints: Mutex<Vec<String>>,
}

/// An object of the tenant or the neighbour.
struct Made<'a> {
    original: &'a Original,
    namespace: &'static str,
    name: String,
    /// The object in its valid form.
    object: Value,
}

impl Tenant {
    pub fn new(client: Client, simulator: Simulator, originals: Vec<Original>, is_alone: bool) -> Self {
        Self {
            client,
            simulator,
            originals,
            is_alone,
            errands: AtomicUsize::new(0),
            denying: AtomicUsize::new(0),
            acts: AtomicUsize::new(0),
            complaints: Mutex::default(),
        }
    }

    /// Does what a fault says; returns once it is undone.
    pub async fn run(&self, fault: &Fault) {
        let number = self.errands.fetch_add(1, Ordering::SeqCst);
        match *fault {
            Fault::Nested { levels, seconds } => self.nest(number, levels, Duration::from_secs(seconds)).await,
            Fault::Trapping {
                objects,
                edits,
                seconds,
            } => self.trap(number, objects, edits, Duration::from_secs(seconds)).await,
            Fault::RetryAfter { code, edited, seconds } => {
                self.deny(number, code, edited, Duration::from_secs(seconds)).await;
            }
            _ => {}
        }
    }

    /// Returns the errors.
    pub fn complaints(&self) -> Vec<String> {
        self.complaints.lock().expect("no panic while it is held").clone()
    }

    /// Objects that were made, and edits of them, each of which costs the hosts some writes.
    pub fn acts(&self) -> usize {
        self.acts.load(Ordering::SeqCst)
    }

    /// Objects that nest deeper than anybody reads, of each kind that lets that through.
    async fn nest(&self, number: usize, levels: usize, lasts: Duration) {
        let first = self.neighbour(number, "first").await;
        let mut hidden = Vec::new();
        for (index, original) in self.originals.iter().enumerate() {
            let name = format!("nested-{number}-{index}");
            let Some(made) = Made::copy_of(original, TENANT, name, number) else {
                continue;
            };
            if self.make(&made, &nested(&made.object, levels)).await {
                hidden.push(made);
            }
        }
        hidden.retain(|made| self.live(made).is_some());
        let (deep, shallow): (Vec<_>, Vec<_>) = hidden.into_iter().partition(|made| {
            let live = self.live(made).map(|live| live.to_string());
            live.is_some_and(|text| is_too_deep(&text).unwrap_or(true))
        });
        for made in shallow {
            self.remove(&made).await;
        }
        tracing::info!(objects = deep.len(), levels, "the tenant has nested");
        self.probe(number, first.as_ref()).await;
        sleep(lasts).await;
        for made in deep {
            if made.original.answer == Answer::Condition && !self.until(|| self.is_named(&made)).await {
                self.complain(format!("nobody says of {} that it nests too deep", made.place()));
            }
            self.repair(&made).await;
            self.remove(&made).await;
        }
        self.done_with(first).await;
    }

    /// Objects that make the plugin trap or fail, and that are edited again and again.
    async fn trap(&self, number: usize, objects: usize, edits: usize, lasts: Duration) {
        let first = self.neighbour(number, "first").await;
        let mut hot = Vec::new();
        let primaries: Vec<_> = self.originals.iter().filter(|it| it.is_primary()).collect();
        for index in 0..objects {
            let Some(original) = primaries.get((number + index) % primaries.len().max(1)) else {
                continue;
            };
            let name = format!("hot-{number}-{index}");
            let Some(made) = Made::copy_of(original, TENANT, name, number * objects + index) else {
                continue;
            };
            if self.make(&made, &failing(&made.object, index)).await {
                hot.push(made);
            }
        }
        tracing::info!(objects = hot.len(), edits, "the tenant traps");
        for turn in 1..=edits {
            sleep(HOT).await;
            for (index, made) in hot.iter().enumerate() {
                self.edit(made, &failing(&made.object, index + turn)).await;
            }
        }
        self.probe(number, first.as_ref()).await;
        sleep(lasts).await;
        for made in hot {
            self.repair(&made).await;
            self.remove(&made).await;
        }
        self.done_with(first).await;
    }

    /// An object whose writes a webhook of the tenant's namespace denies, with a wait that is longer than a life.
    async fn deny(&self, number: usize, code: u16, edits: bool, lasts: Duration) {
        let Some(made) = self.sound(number, TENANT, format!("denied-{number}"), number) else {
            return;
        };
        let denied = Injected::Denied {
            code,
            retry_after: HUGE,
        };
        let denied = Rule::new(denied)
            .writes()
            .when(|asked| is_host(&asked.user_agent) && asked.namespace.as_deref() == Some(TENANT));
        let rule = self.simulator.faults().add(denied);
        self.denying.fetch_add(1, Ordering::SeqCst);
        let is_made = self.make(&made, &made.object).await;
        sleep(lasts).await;
        self.simulator.faults().remove(rule);
        self.denying.fetch_sub(1, Ordering::SeqCst);
        if !is_made {
            return;
        }
        self.until(|| self.denying.load(Ordering::SeqCst) == 0).await;
        tracing::info!(object = made.place(), "the tenant denies no more");
        let lifted = Instant::now();
        let edit = edited(&made.object, number + 1).filter(|_| edits);
        let within = if edit.is_some() { EDITED_WITHIN } else { UNEDITED_WITHIN };
        if let Some(edit) = edit {
            self.edit(&made, &edit).await;
        }
        if !self.until(|| self.is_done(&made)).await {
            self.complain(format!(
                "{} was never reconciled after it had been denied",
                made.place()
            ));
        } else if self.is_alone && lifted.elapsed() > within {
            self.complain(format!(
                "{} was reconciled {} s after nothing denied it any more",
                made.place(),
                lifted.elapsed().as_secs()
            ));
        }
        self.remove(&made).await;
    }

    /// A copy of one of the primaries that are as they should be, which is not made yet; see [`Original::copy`].
    fn sound(&self, turn: usize, namespace: &'static str, name: String, number: usize) -> Option<Made<'_>> {
        let sound: Vec<_> = self.originals.iter().filter(|it| it.is_sound()).collect();
        let original = sound.get(turn % sound.len().max(1))?;
        Made::copy_of(original, namespace, name, number)
    }

    /// A sound object of the neighbour, once it is reconciled.
    async fn neighbour(&self, number: usize, which: &str) -> Option<Made<'_>> {
        // Apart from the numbers that the tenant's own have.
        let apart = 100 + 2 * number + usize::from(which == "first");
        let made = self.sound(number, NEIGHBOUR, format!("{which}-{number}"), apart)?;
        if !self.make(&made, &made.object).await {
            return None;
        }
        if !self.until(|| self.is_done(&made)).await {
            self.complain(format!("{} was never reconciled", made.place()));
        }
        Some(made)
    }

    /// Checks that another object of the neighbour is served at once, while one of them is as it should be.
    async fn probe(&self, number: usize, first: Option<&Made<'_>>) {
        if first.is_none() {
            return;
        }
        let begun = Instant::now();
        let Some(second) = self.neighbour(number, "second").await else {
            return;
        };
        let took = begun.elapsed();
        tracing::info!(object = second.place(), ?took, "a neighbour was served");
        if self.is_alone && took > NEIGHBOUR_WITHIN {
            self.complain(format!("{} waited for {} s", second.place(), took.as_secs()));
        }
        self.remove(&second).await;
    }

    async fn done_with(&self, first: Option<Made<'_>>) {
        if let Some(made) = first {
            if !self.until(|| self.is_done(&made)).await {
                self.complain(format!("{} is not as it was", made.place()));
            }
            self.remove(&made).await;
        }
    }

    /// Returns `true` if its status, or its child, shows that it is reconciled.
    fn is_done(&self, made: &Made<'_>) -> bool {
        let Some(live) = self.live(made) else { return false };
        match made.original.answer {
            Answer::Never => false,
            Answer::Condition => is_reconciled(&live),
            Answer::Child => self.children(&live["metadata"]["uid"]) > 0,
        }
    }

    fn is_named(&self, made: &Made<'_>) -> bool {
        let Some(live) = self.live(made) else { return true };
        said(&live).is_some_and(|it| it["message"].to_string().contains("nests deeper"))
            || self.has_event(&live["metadata"]["uid"])
    }

    fn has_event(&self, uid: &Value) -> bool {
        let is_of = |it: &Value| {
            it["kind"] == "Event" && it["reason"] == Reason::TooDeep.as_str() && it["regarding"]["uid"] == *uid
        };
        self.simulator.objects().iter().any(is_of)
    }

    fn children(&self, owner: &Value) -> usize {
        let is_child = |object: &&Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.into_iter().flatten().any(|it| it["uid"] == *owner)
        };
        self.simulator.objects().iter().filter(is_child).count()
    }

    async fn make(&self, made: &Made<'_>, object: &Value) -> bool {
        self.acts.fetch_add(1, Ordering::SeqCst);
        for _ in 0..TRIES {
            let path = made.original.collection(made.namespace);
            let posted = self.send(Method::POST, &path, "application/json", object).await;
            match posted {
                Ok(()) => return true,
                // Its definition refuses it.
                Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => return false,
                Err(error) => tracing::debug!(%error, object = made.place(), "the tenant's object is not taken"),
            }
            sleep(Duration::from_secs(1)).await;
        }
        false
    }

    async fn edit(&self, made: &Made<'_>, object: &Value) -> bool {
        self.acts.fetch_add(1, Ordering::SeqCst);
        let replace = |path: &str, value: &Value| json!({"op": "replace", "path": path, "value": value});
        let mut patch = Vec::new();
        if !object["spec"].is_null() {
            patch.push(replace("/spec", &object["spec"]));
        }
        if !object["metadata"]["annotations"].is_null() {
            patch.push(replace("/metadata/annotations", &object["metadata"]["annotations"]));
        }
        if patch.is_empty() {
            return true;
        }
        let path = made.path();
        self.send(Method::PATCH, &path, "application/json-patch+json", &json!(patch))
            .await
            .is_ok()
    }

    /// Makes it what it should be: one that traps would trap for ever while its plugin is to let it go.
    async fn repair(&self, made: &Made<'_>) {
        for _ in 0..TRIES {
            if self.live(made).is_none() || self.edit(made, &made.object).await {
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Deletes it, and waits until it and what it owned is gone.
    async fn remove(&self, made: &Made<'_>) {
        let Some(live) = self.live(made) else { return };
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
        let _ = self
            .send(Method::DELETE, &made.path(), "application/json", &options)
            .await;
        let uid = &live["metadata"]["uid"];
        if !self
            .until(|| self.live(made).is_none() && self.children(uid) == 0)
            .await
        {
            self.complain(format!("{} does not go", made.place()));
        }
    }

    async fn until(&self, is_so: impl Fn() -> bool) -> bool {
        let begun = Instant::now();
        while !is_so() {
            if begun.elapsed() > PATIENCE {
                return false;
            }
            sleep((begun.elapsed() / 10).clamp(Duration::from_millis(100), Duration::from_secs(10))).await;
        }
        true
    }

    fn live(&self, made: &Made<'_>) -> Option<Arc<Value>> {
        let Original { group, plural, .. } = made.original;
        self.simulator.object(group, plural, made.namespace, &made.name)
    }

    fn complain(&self, complaint: String) {
        let mut complaints = self.complaints.lock().expect("no panic while it is held");
        complaints.push(complaint);
    }

    /// The answer is not read: it may nest as deep as what was sent.
    async fn send(&self, method: Method, path: &str, media: &str, body: &Value) -> Result<(), kube::Error> {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{path}?fieldManager={MANAGER}"))
            .header(http::header::CONTENT_TYPE, media)
            .body(body.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        self.client.request_text(request).await.map(drop)
    }
}

impl<'a> Made<'a> {
    fn copy_of(original: &'a Original, namespace: &'static str, name: String, number: usize) -> Option<Self> {
        let object = original.copy(namespace, &name, number)?;
        Some(Self {
            original,
            namespace,
            name,
            object,
        })
    }

    fn path(&self) -> String {
        format!("{}/{}", self.original.collection(self.namespace), self.name)
    }

    fn place(&self) -> String {
        place(&self.original.plural, self.namespace, &self.name)
    }
}
