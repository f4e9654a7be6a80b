//! Tests of the shared state: the primaries that a change requeues, the opening and closing of lanes, and the wait of a
//! primary until the cache shows its writes.

use std::sync::Arc;

use pilothouse_cluster::cache::store::WatchSource;
use pilothouse_core::kubernetes::selector::Selector;
use pilothouse_core::reads::dependencies::read::Read;
use pilothouse_core::reads::query::CheckedQuery;
use pilothouse_core::{Key, Kind};
use serde_json::{Value, json};

use crate::lanes::lane::Lane;
use crate::state::tables::echo::AwaitedEcho;
use crate::state::tables::orphans::Witness;
use crate::state::tables::reads::ReadFingerprint;
use crate::test_support::*;

/// A host with an open lane that owns and reads children, a primary `p` and a child `c` of it.
pub(super) struct Scene {
    pub host: TestHost,
    pub lane: Arc<Lane>,
    pub primaries: WatchSource,
    pub children: WatchSource,
}

fn p(version: u32, size: u32) -> Value {
    text("p", version, &json!({"spec": {"size": size}}))
}

pub(super) fn c(version: u32) -> Value {
    child("c", version, "plugin", "p", &json!({"f:data": {"f:x": {}}}))
}

async fn scene_with(change: impl FnOnce(&mut Lane)) -> Scene {
    let host = TestHost::new().await;
    let mut lane = host.lane("plugin", controller(&["owned", "read"]));
    change(&mut lane);
    let lane = host.put(lane);
    let primaries = host.list(&primary_kind(), &[p(1, 1)]);
    let children = host.list(&child_kind(), &[c(1)]);
    assert!(host.context.state.is_open(lane.id));
    host.run_all();
    Scene {
        host,
        lane,
        primaries,
        children,
    }
}

pub(super) async fn scene() -> Scene {
    scene_with(|_| {}).await
}

#[tokio::test(start_paused = true)]
async fn a_primary_is_queued_when_a_visible_field_changes() {
    let Scene { host, primaries, .. } = scene().await;
    host.see(&primaries, &p(2, 2));
    assert_eq!(host.run_all(), ["0/p"]);
    let labelled = text("p", 3, &json!({"spec": {"size": 2}, "unseen": 1}));
    host.see(&primaries, &labelled);
    assert_eq!(host.run_all(), [""; 0], "no controller has declared that field");
}

#[tokio::test(start_paused = true)]
async fn a_primary_of_another_namespace_is_not_queued() {
    let Scene { host, primaries, .. } = scene_with(|lane| lane.namespaces = vec!["b".to_owned()]).await;
    host.see(&primaries, &p(2, 2));
    assert_eq!(host.run_all(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_owner_is_queued_when_somebody_takes_a_field_of_a_child() {
    let Scene { host, children, .. } = scene().await;
    host.see(&children, &child("c", 2, "plugin", "p", &json!({"f:data": {}})));
    assert_eq!(host.run_all(), ["0/p"]);
}

#[tokio::test(start_paused = true)]
async fn the_owner_is_not_queued_when_others_write_their_own_fields() {
    let Scene { host, children, .. } = scene().await;
    let mut other = c(2);
    other["status"] = json!({"ready": true});
    host.see(&children, &other);
    assert_eq!(host.run_all(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_echo_of_a_write_queues_nobody_and_ends_the_wait_for_it() {
    let Scene {
        host, lane, children, ..
    } = scene().await;
    let state = &host.context.state;
    let (key, primary_ref) = (Key::new(Arc::new(child_kind()), name("c")), primary(&lane, "p"));
    state.begin_write(key.clone(), &primary_ref);
    state.end_write(key, Some(AwaitedEcho::Version("2".into())), &primary_ref);
    state.push_all(&lane);
    assert!(state.take_job().is_none(), "the cache has not shown the write");
    host.see(
        &children,
        &child("c", 2, "plugin", "p", &json!({"f:data": {"f:y": {}}})),
    );
    assert_eq!(host.run_all(), ["0/p"], "it was queued before, and once");
    assert!(state.pending_waits().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_event_is_an_echo_only_in_the_version_of_the_response() {
    let Scene {
        host, lane, children, ..
    } = scene().await;
    let state = &host.context.state;
    let (key, primary_ref) = (Key::new(Arc::new(child_kind()), name("c")), primary(&lane, "p"));
    let see = |version, fields: &Value| {
        let shown = child("c", version, "plugin", "p", &json!({ "f:data": fields }));
        host.see(&children, &shown);
        host.run_all()
    };
    state.begin_write(key.clone(), &primary_ref);
    state.end_write(key.clone(), Some(AwaitedEcho::Version("2".into())), &primary_ref);
    assert_eq!(see(2, &json!({"f:y": {}})), [""; 0]);
    state.begin_write(key.clone(), &primary_ref);
    state.end_write(key, Some(AwaitedEcho::Version("3".into())), &primary_ref);
    assert_eq!(see(4, &json!({"f:z": {}})), ["0/p"], "somebody else wrote after us");
}

#[tokio::test(start_paused = true)]
async fn an_event_that_comes_before_the_answer_of_a_write_is_its_echo() {
    let Scene {
        host, lane, children, ..
    } = scene().await;
    let state = &host.context.state;
    let (key, primary_ref) = (Key::new(Arc::new(child_kind()), name("c")), primary(&lane, "p"));
    state.begin_write(key.clone(), &primary_ref);
    host.see(&children, &child("c", 2, "plugin", "p", &json!({"f:data": {}})));
    state.end_write(key, Some(AwaitedEcho::Version("2".into())), &primary_ref);
    assert_eq!(host.run_all(), [""; 0]);
    assert!(state.pending_waits().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_reader_is_queued_when_what_it_has_read_changes() {
    let Scene {
        host, lane, children, ..
    } = scene().await;
    let read = |name_: &str| Read::Get(Arc::new(child_kind()), name(name_));
    let reads = [(read("r"), ReadFingerprint::new(0, u64::MAX, |_| {}))];
    host.context.state.depend(&primary(&lane, "p"), reads.into());
    let r = |version, data: &str, status: &str| text("r", version, &json!({"data": data, "status": status}));
    host.see(&children, &r(1, "a", "x"));
    assert_eq!(host.run_all(), ["0/p"], "it has come");
    host.see(&children, &r(2, "a", "y"));
    assert_eq!(host.run_all(), [""; 0], "the lane does not see the status");
    host.see(&children, &r(3, "b", "y"));
    assert_eq!(host.run_all(), ["0/p"]);
    host.see(&children, &text("other", 1, &json!({"data": "a"})));
    assert_eq!(host.run_all(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_read_is_checked_again_if_its_kind_has_changed_since() {
    let Scene {
        host, lane, children, ..
    } = scene().await;
    let state = &host.context.state;
    let (_, changes) = state.get_with_changes(&child_kind(), &name("r"));
    let read = Read::Get(Arc::new(child_kind()), name("r"));
    let reads = || [(read.clone(), ReadFingerprint::new(changes, u64::MAX, |_| {}))];
    assert!(state.depend(&primary(&lane, "p"), reads().into()).is_empty());
    host.see(&children, &text("r", 1, &json!({})));
    assert_eq!(state.depend(&primary(&lane, "p"), reads().into()).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn children_of_a_deleted_primary_are_collected() {
    let Scene {
        host, lane, primaries, ..
    } = scene().await;
    host.context.state.deleted(&primaries, &name("p"));
    let orphans = host.context.state.orphans_of(&primary(&lane, "p"));
    assert_eq!(orphans, [("uid-p".into(), Witness::Seen)].into());
    assert_eq!(host.run_all(), ["0/p"]);
}

#[tokio::test(start_paused = true)]
async fn a_lane_opens_when_all_of_its_kinds_are_listed() {
    let host = TestHost::new().await;
    let lane = host.put(host.lane("plugin", controller(&["owned"])));
    host.list(&primary_kind(), &[p(1, 1)]);
    assert!(!host.context.state.is_open(lane.id));
    assert_eq!(
        host.context.missing(std::slice::from_ref(&lane)),
        child_kind().to_string()
    );
    host.list(&child_kind(), &[]);
    assert!(host.context.state.is_open(lane.id) && host.context.missing(&[lane]).is_empty());
    assert_eq!(host.run_all(), ["0/p"]);
}

#[tokio::test(start_paused = true)]
async fn a_lane_is_closed_while_a_kind_is_not_served() {
    let Scene {
        host, lane, primaries, ..
    } = scene().await;
    host.context.kind_is_missing(&Arc::new(child_kind()));
    assert!(!host.context.state.is_open(lane.id));
    host.see(&primaries, &p(2, 2));
    assert_eq!(host.run_all(), [""; 0]);
    host.list(&child_kind(), &[]);
    assert_eq!(host.run_all(), ["0/p"], "everything is reconciled again");
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_can_do_without_a_kind_opens_where_it_is_missing() {
    let host = TestHost::new().await;
    let mut controller = controller(&["read"]);
    controller["touches"][0]["optional"] = json!(true);
    let lane = host.put(host.lane("plugin", controller));
    host.list(&primary_kind(), &[p(1, 1)]);
    assert!(
        !host.context.state.is_open(lane.id),
        "it is not known whether the kind is served"
    );
    host.context.kind_is_missing(&Arc::new(child_kind()));
    assert!(host.context.state.is_open(lane.id));
}

#[tokio::test(start_paused = true)]
async fn an_optional_primary_kind_is_awaited_without_being_missed() {
    let host = TestHost::new().await;
    let mut controller = controller(&["owned"]);
    controller["optional"] = json!(true);
    let lane = host.put(host.lane("plugin", controller));
    host.list(&child_kind(), &[c(1)]);
    let primary_kind = primary_kind();
    let missing = || host.context.missing(std::slice::from_ref(&lane));
    assert_eq!(
        missing(),
        primary_kind.to_string(),
        "it is not known whether the kind is served"
    );
    let is_open = || host.context.state.is_open(lane.id);
    host.context.kind_is_missing(&Arc::new(primary_kind.clone()));
    assert_eq!(
        (missing(), is_open(), lane.lacks_primary()),
        (String::new(), false, true)
    );
    assert!(host.context.state.is_idle());

    host.list(&primary_kind, &[p(1, 1)]);
    assert!(is_open());
    assert_eq!(host.run_all(), ["0/p"]);
    host.context.kind_is_missing(&Arc::new(primary_kind));
    assert_eq!((missing(), is_open()), (String::new(), false));
    assert_eq!(host.run_all(), [""; 0], "its children are not collected");
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_leaves_does_not_open_again() {
    let Scene {
        host, lane, children, ..
    } = scene().await;
    host.context.state.close_lane(lane.id);
    host.relist(&children, &[c(1)]);
    assert!(!host.context.state.is_open(lane.id));
    host.context.remove_lane(lane.id);
    assert_eq!(host.context.state.lanes().iter().count(), 0);
    assert!(host.context.state.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_replaces_another_reconciles_everything() {
    let Scene { host, lane, .. } = scene().await;
    let mut next = host.lane("plugin", controller(&["owned", "read"]));
    next.id = lane.id;
    let next = host.put(next);
    assert_eq!(host.run_all(), ["0/p"]);
    let current = host.context.state.lanes();
    assert!(current.get(lane.id).is_some_and(|it| Arc::ptr_eq(it, &next)));
}

#[tokio::test(start_paused = true)]
async fn a_replacing_lane_reconciles_the_primaries_of_both() {
    let host = TestHost::new().await;
    let filtered = |annotation: &str| {
        let mut lane = host.lane("plugin", controller(&[]));
        lane.filter.annotation = Some(annotation.to_owned());
        lane
    };
    let old = host.put(filtered("old"));
    let annotated =
        |name: &str, annotation: &str| text(name, 1, &json!({"metadata": {"annotations": {annotation: ""}}}));
    host.list(
        &primary_kind(),
        &[annotated("p", "old"), annotated("q", "new"), text("r", 1, &json!({}))],
    );
    assert_eq!(host.run_all(), ["0/p"]);
    let mut new = filtered("new");
    new.id = old.id;
    host.put(new);
    assert_eq!(host.run_all(), ["0/p", "0/q"]);
}

#[tokio::test(start_paused = true)]
async fn the_count_of_primaries_follows_the_filter() {
    let host = TestHost::new().await;
    let mut lane = host.lane("plugin", controller(&[]));
    lane.filter.annotation = Some("on".to_owned());
    let lane = host.put(lane);
    let annotated = |version| text("p", version, &json!({"metadata": {"annotations": {"on": ""}}}));
    let primaries = host.list(&primary_kind(), &[annotated(1), text("q", 1, &json!({}))]);
    assert_eq!(host.context.state.count(&lane).0, 1);
    host.see(&primaries, &text("p", 2, &json!({})));
    assert_eq!(host.context.state.count(&lane).0, 0);
    host.see(&primaries, &annotated(3));
    assert_eq!(host.context.state.count(&lane).0, 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_plugin_is_queued_when_that_goes() {
    let Scene { host, lane, .. } = scene().await;
    let state = &host.context.state;
    state.wait_for_plugin("pilothouse/other", &primary(&lane, "p"));
    state.competing_plugin_left("third");
    assert_eq!(host.run_all(), [""; 0]);
    state.competing_plugin_left("other");
    assert_eq!(host.run_all(), ["0/p"]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_watch_that_ends_is_over() {
    let Scene { host, lane, .. } = scene().await;
    let state = &host.context.state;
    let (key, primary_ref) = (Key::new(Arc::new(child_kind()), name("c")), primary(&lane, "p"));
    state.begin_write(key.clone(), &primary_ref);
    state.end_write(key, Some(AwaitedEcho::Version("9".into())), &primary_ref);
    assert_eq!(state.pending_waits().len(), 1);
    state.forget_kind(&child_kind());
    assert!(state.pending_waits().is_empty());
}

/// Has an index for queries by the label `app` made.
fn make_index(host: &TestHost) {
    host.context.state.candidates(&child_kind(), &by_label("none"));
}

fn by_label(value: &str) -> CheckedQuery {
    CheckedQuery {
        labels: Selector::parse(&format!("app={value}")).unwrap(),
        ..CheckedQuery::default()
    }
}

/// Children that a query for a label finds with the index.
fn labelled(host: &TestHost, value: &str) -> Vec<String> {
    let query = by_label(value);
    assert!(host.context.state.tables.read().store.is_indexed(&child_kind(), &query));
    let candidates = host.context.state.candidates(&child_kind(), &query);
    let listed = candidates.len();
    let names: Vec<_> = candidates
        .found(&query)
        .map(|object| object.name.name.to_string())
        .collect();
    assert_eq!(
        names.len(),
        listed,
        "the index lists what the query finds, and nothing else"
    );
    names
}

/// A debug build panics where an object is decoded under the lock.
#[tokio::test(start_paused = true)]
async fn an_index_follows_the_watch_without_decoding_under_the_lock() {
    let Scene { host, children, .. } = scene().await;
    let r = |name: &str, version, app: &str| text(name, version, &json!({"metadata": {"labels": {"app": app}}}));
    host.see(&children, &r("r", 1, "web"));
    make_index(&host);
    assert_eq!(labelled(&host, "web"), ["r"]);
    host.see(&children, &r("s", 2, "web"));
    host.see(&children, &r("r", 3, "db"));
    assert_eq!(
        (labelled(&host, "web"), labelled(&host, "db")),
        (vec!["s".to_owned()], vec!["r".to_owned()])
    );
    host.context.state.deleted(&children, &name("s"));
    host.relist(&children, &[c(1), r("t", 4, "web")]);
    assert_eq!(
        (labelled(&host, "web"), labelled(&host, "db")),
        (vec!["t".to_owned()], vec![])
    );
}

#[tokio::test(start_paused = true)]
async fn a_look_past_the_cache_mends_object_index_and_facts() {
    let host = TestHost::new().await;
    let mut lane = host.lane("plugin", controller(&["read"]));
    lane.filter.annotation = Some("on".to_owned());
    let lane = host.put(lane);
    host.list(&primary_kind(), &[p(1, 1)]);
    host.list(&child_kind(), &[c(1)]);
    make_index(&host);
    let state = &host.context.state;
    assert_eq!((labelled(&host, "web"), state.count(&lane).0), (vec![], 0));
    let look = |kind: &Kind, live: &Value| {
        let key = Key::new(Arc::new(kind.clone()), name(live["metadata"]["name"].as_str().unwrap()));
        let before = state.get(kind, &key.name);
        state.correct(&key, before.as_deref(), Some(&object(kind, live)));
    };
    look(
        &child_kind(),
        &text("c", 2, &json!({"metadata": {"labels": {"app": "web"}}})),
    );
    look(
        &primary_kind(),
        &text("p", 2, &json!({"metadata": {"annotations": {"on": ""}}})),
    );
    assert_eq!(
        (labelled(&host, "web"), state.count(&lane).0),
        (vec!["c".to_owned()], 1)
    );
    let key = Key::new(Arc::new(child_kind()), name("c"));
    let older = object(&child_kind(), &c(1));
    state.correct(&key, Some(&older), None);
    assert_eq!(labelled(&host, "web"), ["c"], "what came since the look began is newer");
    state.correct(&key, state.get(&child_kind(), &name("c")).as_deref(), None);
    assert_eq!(labelled(&host, "web"), [""; 0]);
}
