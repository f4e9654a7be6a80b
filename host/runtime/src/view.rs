//! View of a guest during a call: the cache through its grants, and the time. Every read is recorded.
//!
//! Candidates of a list are taken from the cache in one moment, under the lock; they are read, filtered and shown
//! without it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash};
use std::sync::Arc;

use pilothouse_cluster::cache::store::Store;
use pilothouse_core::plugin::contract::{Imports, ListOptions, LogLevel};
use pilothouse_core::plugin::grants::Grant;
use pilothouse_core::reads::dependencies::read::Read;
use pilothouse_core::reads::query::CheckedQuery;
use pilothouse_core::recording::{RecordedAnswer, RecordedInput};
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Failure, Kind, Name, Retry};
use pilothouse_sandbox::Usage;

use crate::context::HostContext;
use crate::lanes::lane::{Lane, read_reach};
use crate::process::clock;
use crate::state::tables::reads::{MOST_FOUND, ReadFingerprint, show_found};
use crate::telemetry::recording::CallRecorder;
use crate::telemetry::traces::Trace;

/// The finest granularity of `clock.now`, in milliseconds.
const FINEST_GRANULARITY: u64 = 1000;

/// The cache and the clock as one call sees them, with its recorded reads.
pub struct View {
    host: Arc<HostContext>,
    lane: Arc<Lane>,
    primary: Name,
    now: u64,
    /// Recorded reads, with fingerprints of the answers.
    pub reads: BTreeMap<Read, ReadFingerprint>,
    /// Moment (milliseconds since the epoch) at which an answer about time would change.
    pub wake_at: Option<u64>,
    trace: Trace,
    /// Objects listed for this call alone, because the cache lacks them.
    live: Store,
    /// Recorder of the calls, if they are recorded.
    recorder: Option<Box<CallRecorder>>,
}

impl View {
    /// Makes the view of one call. Time stands still during it.
    pub fn new(host: Arc<HostContext>, lane: Arc<Lane>, primary: Name) -> Self {
        let now = host.clock.now();
        let recorder = host.recordings.recorder(&lane, &primary, now);
        Self {
            host,
            lane,
            primary,
            now,
            reads: BTreeMap::new(),
            wake_at: None,
            trace: Trace::default(),
            live: Store::default(),
            recorder,
        }
    }

    /// Adds the guest's log lines to a trace.
    #[must_use]
    pub fn traced(self, trace: Trace) -> Self {
        Self { trace, ..self }
    }

    /// Reads the kinds of this store from it, and not from the cache.
    #[must_use]
    pub fn with_live(self, live: Store) -> Self {
        Self { live, ..self }
    }

    /// Records a call that has ended, if calls are recorded.
    pub fn record(
        &mut self,
        input: impl FnOnce() -> RecordedInput,
        answer: impl FnOnce() -> RecordedAnswer,
        usage: &Usage,
    ) {
        if let Some(recorder) = &mut self.recorder {
            recorder.ended(input(), answer(), usage);
        }
    }

    /// Records a read. The first answer counts: if a later one differs, the object runs again.
    fn record_read(&mut self, read: Read, changes: u64, most_bytes: u64, hash: impl FnOnce(&mut DefaultHasher)) {
        let answered = ReadFingerprint::new(changes, most_bytes, hash);
        self.reads.entry(read).or_insert(answered);
    }

    fn wake_at(&mut self, moment: u64) {
        self.wake_at = Some(self.wake_at.map_or(moment, |earlier| earlier.min(moment)));
    }

    /// Rejects reads of objects that the plugin's account may not list and watch. A list over all namespaces is denied
    /// if one of them is: a shorter answer would look as if objects were deleted.
    fn check_access(&self, kind: &Kind, namespace: Option<&str>) -> Result<(), Failure> {
        let access = &self.lane.access;
        if !access.knows(kind) {
            let problem = format!("{kind} is read, and the plugin's rights to it are being reviewed");
            return Err(Failure::cluster(Reason::NotSynced, problem));
        }
        let denied = access.denied();
        let namespaced = self.lane.served(kind).is_none_or(|served| served.facts.namespaced);
        let where_denied = match namespace {
            Some(namespace) => denied.get(namespace),
            None => denied.first().filter(|_| namespaced),
        };
        match where_denied {
            Some(namespace) => Err(not_granted(&format!("{kind} is read in namespace {namespace}"))),
            None if access.is_granted() => Ok(()),
            None => Err(not_granted(&format!("{kind} is read"))),
        }
    }

    /// Returns the kind, if the cache can answer for it: all that was declared is listed, or it is optional and not
    /// served.
    fn known(&self, kind: &Kind, namespace: Option<&str>, grant: &Grant) -> Result<Arc<Kind>, Failure> {
        if grant.touch.optional && self.host.kinds.is_missing(kind) {
            return Ok(Arc::new(kind.clone()));
        }
        self.check_access(kind, namespace)?;
        let reach = read_reach(grant, &self.primary);
        match self.lane.served(kind) {
            Some(served) if self.live.is_synced(kind) => Ok(served.kind),
            Some(served) if self.host.state.has_listed(kind, &grant.projection, &reach) => Ok(served.kind),
            _ => Err(Failure::cluster(
                Reason::NotSynced,
                format!("{kind} is read, but the cache has not listed it yet"),
            )),
        }
    }
}

/// The failure of a call or read for which the plugin's account lacks rights. Once they are granted, all primaries are
/// reconciled.
pub fn not_granted(what: &str) -> Failure {
    let problem = format!(
        "{what}, where the plugin's account lacks rights; the condition Granted of the Plugin lists them, with the command \
         that grants them"
    );
    Failure::cluster(Reason::Forbidden, problem).retry(Retry::Change)
}

impl View {
    fn answer_get(&mut self, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Option<String>, Failure> {
        let grant = self.lane.grants.check_get(&self.primary, kind, namespace, name)?;
        let kind = self.known(kind, namespace, grant)?;
        let name = Name::new(namespace, name);
        let (object, changes) = if self.live.is_synced(&kind) {
            (self.live.get(&kind, &name).cloned(), self.live.changes(&kind))
        } else {
            self.host.state.get_with_changes(&kind, &name)
        };
        let text = object.and_then(|object| self.lane.show_read(&kind, &object));
        self.record_read(Read::Get(kind, name), changes, u64::MAX, |hasher| text.hash(hasher));
        Ok(text)
    }

    fn answer_list(&mut self, kind: &Kind, options: &ListOptions, most_bytes: u64) -> Result<Vec<String>, Failure> {
        let (grant, query) = self.lane.grants.check_list(&self.primary, kind, options)?;
        let kind = self.known(kind, options.namespace.as_deref(), grant)?;
        let candidates = if self.live.is_synced(&kind) {
            self.live.candidates(&kind, &query)
        } else {
            self.host.state.candidates(&kind, &query)
        };
        let (mut texts, mut last) = (Vec::new(), None);
        show_found(&self.lane, &kind, &query, &candidates, most_bytes, |object, text| {
            texts.push(text);
            last = Some(object.name.clone());
        });
        if texts.len() > MOST_FOUND {
            let problem = format!(
                "the plugin was stopped: its list of {kind} has more than {MOST_FOUND} objects; narrow it with a selector, or give it a limit"
            );
            return Err(Failure::guest(Reason::GuestLimit, problem));
        }
        let is_full = query.limit.is_some_and(|limit| texts.len() == limit as usize);
        let query = CheckedQuery {
            until: last.filter(|_| is_full),
            ..query
        };
        let read = Read::List(kind, Arc::new(query));
        self.record_read(read, candidates.changes, most_bytes, |hasher| {
            for text in &texts {
                text.hash(hasher);
            }
        });
        Ok(texts)
    }
}

impl Imports for View {
    fn get(&mut self, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Option<String>, Failure> {
        let answer = self.answer_get(kind, namespace, name);
        if let Some(recorder) = &mut self.recorder {
            recorder.get(kind, namespace, name, &answer);
        }
        answer
    }

    fn list(&mut self, kind: &Kind, options: &ListOptions, most_bytes: u64) -> Result<Vec<String>, Failure> {
        let answer = self.answer_list(kind, options, most_bytes);
        if let Some(recorder) = &mut self.recorder {
            recorder.list(kind, options, &answer);
        }
        answer
    }

    fn now(&mut self, granularity: u64) -> u64 {
        let granularity = granularity.max(FINEST_GRANULARITY);
        let now = self.now - self.now % granularity;
        self.wake_at(now.saturating_add(granularity));
        if let Some(recorder) = &mut self.recorder {
            recorder.now(granularity, now);
        }
        now
    }

    fn reached(&mut self, moment: u64) -> bool {
        if self.now < moment {
            self.wake_at(clock::next_look(self.now, moment));
        }
        let answer = self.now >= moment;
        if let Some(recorder) = &mut self.recorder {
            recorder.reached(moment, answer);
        }
        answer
    }

    fn log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        if let Some(recorder) = &mut self.recorder {
            recorder.log(level, message, fields);
        }
        self.trace.line(level, message, fields);
        let (log_limiter, plugin) = (&self.lane.health.log_limiter, &self.lane.plugin);
        log_limiter.log(plugin, Some(&self.primary), level, message, fields);
    }
}

#[cfg(test)]
mod tests {
    use pilothouse_cluster::cache::codec::ObjectCodec;
    use pilothouse_cluster::cache::store::{IndexValues, WatchSource};
    use pilothouse_core::kubernetes::path::Projection;
    use pilothouse_core::reads::reach::Reach;
    use serde_json::{Value, json};

    use super::*;
    use crate::lanes::primary::PrimaryRef;
    use crate::test_support::*;

    struct Scene {
        host: TestHost,
        lane: Arc<Lane>,
        children: WatchSource,
    }

    fn object(name: &str, version: u32, data: &str) -> Value {
        text(name, version, &json!({"data": data, "status": "unseen"}))
    }

    async fn scene_of(touch: &Value) -> (TestHost, Arc<Lane>) {
        let host = TestHost::new().await;
        let mut controller = controller(&["read"]);
        for (name, value) in touch.as_object().into_iter().flatten() {
            controller["touches"][0][name] = value.clone();
        }
        let lane = host.put(host.lane("plugin", controller));
        (host, lane)
    }

    /// A lane that reads the data of children, of which there are `c` and `d`.
    async fn scene() -> Scene {
        let (host, lane) = scene_of(&Value::Null).await;
        let children = host.list(&child_kind(), &[object("c", 1, "one"), object("d", 1, "two")]);
        Scene { host, lane, children }
    }

    fn view(host: &TestHost, lane: &Arc<Lane>) -> View {
        View::new(host.context.clone(), lane.clone(), name("p"))
    }

    fn limited(limit: Option<u32>) -> ListOptions {
        ListOptions {
            namespace: Some("a".to_owned()),
            limit,
            ..ListOptions::default()
        }
    }

    fn data(text: &str) -> Value {
        serde_json::from_str::<Value>(text).unwrap()["data"].clone()
    }

    /// Number of recorded reads that would be answered differently now.
    fn outdated(scene: &Scene, view: View) -> usize {
        let rechecks = scene
            .host
            .context
            .state
            .depend(&PrimaryRef::new(scene.lane.id, name("p")), view.reads);
        rechecks
            .iter()
            .filter(|recheck| recheck.is_outdated(&scene.lane))
            .count()
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_is_shown_as_declared_and_its_read_is_recorded() {
        let scene = scene().await;
        let mut view = view(&scene.host, &scene.lane);
        let text = view.get(&child_kind(), Some("a"), "c").unwrap().unwrap();
        assert_eq!(data(&text), "one");
        assert!(!text.contains("unseen"), "{text}");
        assert_eq!(view.get(&child_kind(), Some("a"), "absent").unwrap(), None);
        let read = |object: &str| Read::Get(Arc::new(child_kind()), name(object));
        assert_eq!(
            view.reads.keys().cloned().collect::<Vec<_>>(),
            [read("absent"), read("c")]
        );
        assert_eq!(outdated(&scene, view), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_answers_to_one_read_the_first_is_recorded() {
        let scene = scene().await;
        let mut view = view(&scene.host, &scene.lane);
        let get = |view: &mut View| data(&view.get(&child_kind(), Some("a"), "c").unwrap().unwrap());
        let list = |view: &mut View| view.list(&child_kind(), &limited(None), u64::MAX).unwrap().len();
        assert_eq!((get(&mut view), list(&mut view)), (json!("one"), 2));
        scene.host.see(&scene.children, &object("c", 2, "changed"));
        scene.host.see(&scene.children, &object("e", 3, "three"));
        assert_eq!((get(&mut view), list(&mut view)), (json!("changed"), 3));
        assert_eq!(outdated(&scene, view), 2, "so the primary runs again");
    }

    #[tokio::test(start_paused = true)]
    async fn an_invisible_change_does_not_outdate_a_read() {
        let scene = scene().await;
        let mut view = view(&scene.host, &scene.lane);
        view.get(&child_kind(), Some("a"), "c").unwrap();
        view.list(&child_kind(), &limited(None), u64::MAX).unwrap();
        let mut reported = object("c", 2, "one");
        reported["status"] = json!("another");
        scene.host.see(&scene.children, &reported);
        let primary_ref = PrimaryRef::new(scene.lane.id, name("p"));
        let rechecks = scene.host.context.state.depend(&primary_ref, view.reads);
        assert_eq!(rechecks.len(), 2, "the kind has changed since");
        assert!(rechecks.iter().all(|recheck| !recheck.is_outdated(&scene.lane)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_was_not_declared_is_refused_and_not_recorded() {
        let scene = scene().await;
        let mut view = view(&scene.host, &scene.lane);
        let refused = [
            view.get(&child_kind(), Some("elsewhere"), "c").unwrap_err(),
            view.get(&primary_kind(), Some("a"), "p").unwrap_err(),
            view.list(&child_kind(), &ListOptions::default(), u64::MAX).unwrap_err(),
        ];
        assert!(
            refused.iter().all(|failure| failure.reason == Reason::Undeclared),
            "{refused:?}"
        );
        assert!(view.reads.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_listed_yet_is_no_answer() {
        let (host, lane) = scene_of(&Value::Null).await;
        let refused = |host: &TestHost| {
            let mut view = view(host, &lane);
            let get = view.get(&child_kind(), Some("a"), "c").map(|_| ());
            let list = view.list(&child_kind(), &limited(None), u64::MAX).map(|_| ());
            assert!(view.reads.is_empty());
            [get, list].map(|answer| answer.unwrap_err().reason)
        };
        assert_eq!(
            refused(&host),
            [Reason::NotSynced; 2],
            "it is not known whether the kind is served"
        );
        host.serve(&child_kind());
        assert_eq!(refused(&host), [Reason::NotSynced; 2], "it is served, and not listed");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_listed_for_a_call_is_seen_in_place_of_the_cache() {
        let scene = scene().await;
        let codec = Arc::new(ObjectCodec::new(Arc::new(child_kind()), Projection::whole()));
        let mut live = Store::default();
        let source = live.open(codec.clone(), Reach::all(), true).remove(0);
        live.begin_list(&source);
        live.upsert(&source, read(&codec, &object("e", 1, "live")), &IndexValues::default());
        live.end_list(&source);
        let mut view = view(&scene.host, &scene.lane).with_live(live);
        let get = |view: &mut View, name: &str| view.get(&child_kind(), Some("a"), name).unwrap();
        assert_eq!(get(&mut view, "c"), None, "the cache has it");
        assert_eq!(data(&get(&mut view, "e").unwrap()), "live");
        assert_eq!(view.list(&child_kind(), &limited(None), u64::MAX).unwrap().len(), 1);
        let elsewhere = view.get(&child_kind(), Some("b"), "e").unwrap_err();
        assert_eq!(elsewhere.reason, Reason::Undeclared);
    }

    #[tokio::test(start_paused = true)]
    async fn an_optional_kind_that_is_not_served_has_no_objects() {
        let (host, lane) = scene_of(&json!({"optional": true})).await;
        let mut view = view(&host, &lane);
        let early = view.get(&child_kind(), Some("a"), "c").unwrap_err();
        assert_eq!(early.reason, Reason::NotSynced, "nobody has looked yet");
        host.context.kind_is_missing(&Arc::new(child_kind()));
        assert_eq!(view.get(&child_kind(), Some("a"), "c").unwrap(), None);
        assert!(view.list(&child_kind(), &limited(None), u64::MAX).unwrap().is_empty());
        assert_eq!(view.reads.len(), 2, "its objects may come");
    }

    #[tokio::test(start_paused = true)]
    async fn a_limited_list_depends_on_nothing_after_its_last_object() {
        let scene = scene().await;
        let mut view = view(&scene.host, &scene.lane);
        let mut listed = |limit| {
            let texts = view.list(&child_kind(), &limited(Some(limit)), u64::MAX).unwrap();
            let read = view.reads.keys().find_map(|read| match read {
                Read::List(_, query) if query.limit == Some(limit) => Some(query.until.clone()),
                _ => None,
            });
            (texts.iter().map(|text| data(text)).collect::<Vec<_>>(), read.unwrap())
        };
        assert_eq!(listed(1), (vec![json!("one")], Some(name("c"))));
        assert_eq!(
            listed(3),
            (vec![json!("one"), json!("two")], None),
            "one more would be shown"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_ends_with_the_object_that_has_too_many_bytes() {
        let scene = scene().await;
        let mut view = view(&scene.host, &scene.lane);
        let mut listed = |most_bytes| view.list(&child_kind(), &limited(None), most_bytes).unwrap().len();
        assert_eq!([listed(1), listed(u64::MAX)], [1, 2]);
    }

    #[tokio::test(start_paused = true)]
    async fn time_is_rounded_down_and_the_earliest_change_requeues() {
        let scene = scene().await;
        let mut view = view(&scene.host, &scene.lane);
        let start = scene.host.context.clock.now();
        let hour = 3_600_000;
        assert_eq!(view.now(hour), start - start % hour);
        assert_eq!(view.wake_at, Some(start - start % hour + hour));
        assert!(view.reached(start) && view.reached(start - 1));
        assert_eq!(
            view.wake_at,
            Some(start - start % hour + hour),
            "what is past does not change"
        );
        assert!(!view.reached(start + 60_000));
        assert_eq!(view.wake_at, Some(start + 60_000));
        assert!(!view.reached(start + 120_000));
        assert_eq!(view.wake_at, Some(start + 60_000));
        assert_eq!(view.now(1), start - start % FINEST_GRANULARITY);
        assert_eq!(
            view.wake_at,
            Some(start - start % FINEST_GRANULARITY + FINEST_GRANULARITY)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn time_stands_still_during_a_call() {
        let scene = scene().await;
        let mut view = view(&scene.host, &scene.lane);
        let before = view.now(1);
        tokio::time::advance(std::time::Duration::from_secs(10)).await;
        assert_eq!(view.now(1), before);
        assert!(!view.reached(scene.host.context.clock.now()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_guest_that_polls_the_clock_is_requeued_after_a_second() {
        let scene = scene().await;
        let mut view = view(&scene.host, &scene.lane);
        let now = scene.host.context.clock.now();
        assert!(!view.reached(now + 1));
        assert_eq!(view.wake_at, Some(now + 1000));
    }
}
