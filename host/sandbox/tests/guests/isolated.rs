//! Real plugins, as `cargo xtask plugins` builds them: app-service, which behaves, and hostile, which does not.

use std::time::Duration;

use crate::support::{Own, Recorder, request, sandbox};
use pilothouse_core::plugin::contract::Outcome;
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Blame, Failure, Limits};
use pilothouse_sandbox::{CallResult, PluginComponent};
use serde_json::{Value, json};

fn hostile(sandbox: &Own) -> PluginComponent {
    sandbox.built("hostile")
}

/// Patient where the machine may be slow and the test is of something else.
fn patient() -> Limits {
    Limits {
        call_milliseconds: 10_000,
        ..Limits::default()
    }
}

fn behave(plugin: &PluginComponent, spec: &Value, limits: &Limits) -> CallResult<Recorder> {
    let object = json!({
        "apiVersion": "hostile.test.dev/v1",
        "kind": "Hostile",
        "metadata": {"name": "it", "namespace": "here", "uid": "1"},
        "spec": spec,
    });
    plugin.reconcile(&request(&object.to_string()), limits, Recorder::default())
}

fn failure(spec: &Value) -> Failure {
    behave(&hostile(&sandbox()), spec, &patient()).result.unwrap_err()
}

#[track_caller]
fn is_limit(spec: &Value, limit: &str) {
    let failure = failure(spec);
    assert_eq!(
        (failure.blame, failure.reason),
        (Blame::Guest, Reason::GuestLimit),
        "{failure}"
    );
    assert!(failure.message.contains(&format!("limit {limit} is ")), "{failure}");
}

#[test]
fn a_hostile_plugin_can_behave() {
    let call = behave(
        &hostile(&sandbox()),
        &json!({"behaviour": "config-map", "text": "hello"}),
        &Limits::default(),
    );
    let outcome = call.result.unwrap();
    assert_eq!(outcome.desired.len(), 1);
    assert!(outcome.desired[0].object.contains("hello"));
}

#[test]
fn an_endless_loop_stops_soon_after_its_deadline() {
    let call = behave(&hostile(&sandbox()), &json!({"behaviour": "loop"}), &Limits::default());
    assert!(
        call.result
            .unwrap_err()
            .message
            .contains("limit callMilliseconds is 100;")
    );
    assert!(
        call.usage.time >= Duration::from_millis(100) && call.usage.time < Duration::from_secs(1),
        "{:?}",
        call.usage
    );
}

#[test]
fn recursion_without_end_is_a_limit() {
    // Which stack ends first, the guest's own in its memory or the native one, depends on the frame. Where it is the
    // guest's own, it is an ordinary trap.
    let failure = failure(&json!({"behaviour": "recursion"}));
    assert_eq!(failure.blame, Blame::Guest);
    assert!(
        failure.reason == Reason::GuestLimit || failure.reason == Reason::GuestTrap,
        "{failure}"
    );
}

#[test]
fn a_memory_bomb_is_a_limit() {
    is_limit(&json!({"behaviour": "memory-bomb"}), "memoryBytes");
}

#[test]
fn memory_that_is_grown_but_not_needed_is_no_failure() {
    let call = behave(&hostile(&sandbox()), &json!({"behaviour": "memory-growth"}), &patient());
    call.result.unwrap();
    assert!(
        call.usage.memory_bytes <= Limits::default().memory_bytes,
        "{:?}",
        call.usage
    );
}

#[test]
fn a_million_reads_are_a_limit() {
    is_limit(&json!({"behaviour": "many-reads"}), "reads");
    is_limit(&json!({"behaviour": "many-finds"}), "reads");
}

#[test]
fn a_hundred_megabytes_are_a_limit() {
    is_limit(&json!({"behaviour": "huge-output"}), "memoryBytes");
    let limits = Limits {
        memory_bytes: 64 * 1024 * 1024,
        ..patient()
    };
    let spec = json!({"behaviour": "huge-output", "count": 9_000_000});
    let failure = behave(&hostile(&sandbox()), &spec, &limits).result.unwrap_err();
    assert!(failure.message.contains("limit outputBytes is 8388608;"), "{failure}");
}

#[test]
fn ten_thousand_and_one_objects_are_a_limit() {
    is_limit(&json!({"behaviour": "many-objects"}), "outputObjects");
}

#[test]
fn a_log_flood_is_cut() {
    let call = behave(
        &hostile(&sandbox()),
        &json!({"behaviour": "log-flood", "count": 10_000}),
        &patient(),
    );
    call.result.unwrap();
    assert!(call.usage.log_bytes <= patient().log_bytes);
    assert_eq!(call.imports.lines.len() as u64 + call.usage.log_lines_dropped, 10_000);
}

#[test]
fn a_panic_is_told_with_its_message() {
    let failure = failure(&json!({"behaviour": "panic", "text": "the ports are upside down"}));
    assert_eq!((failure.blame, failure.reason), (Blame::Guest, Reason::GuestTrap));
    assert!(failure.message.contains("the ports are upside down"), "{failure}");
}

#[test]
fn a_trap_is_told_as_such() {
    let failure = failure(&json!({"behaviour": "trap"}));
    assert_eq!((failure.blame, failure.reason), (Blame::Guest, Reason::GuestTrap));
    assert!(failure.message.contains("unreachable"), "{failure}");
}

#[test]
fn a_describe_that_never_ends_or_traps_is_the_guests_fault() {
    let sandbox = sandbox();
    let plugin = hostile(&sandbox);
    for (describe, blame, reason) in [
        ("loop", Blame::Guest, Reason::GuestLimit),
        ("trap", Blame::Guest, Reason::GuestTrap),
        ("refuse", Blame::User, Reason::Failure),
    ] {
        let config = json!({"describe": describe}).to_string();
        let failure = plugin.describe(Some(&config), &Limits::default()).unwrap_err();
        assert_eq!((failure.blame, failure.reason), (blame, reason), "{failure}");
    }
    assert!(
        plugin.describe(None, &patient()).is_ok(),
        "the plugin is as good as before"
    );
}

#[test]
fn one_that_misbehaves_disturbs_no_other_call() {
    let sandbox = sandbox();
    let plugin = hostile(&sandbox);
    let good = json!({"behaviour": "config-map"});
    std::thread::scope(|scope| {
        let bad = scope.spawn(|| {
            for behaviour in ["loop", "memory-bomb", "recursion", "panic", "many-reads", "huge-output"] {
                assert!(
                    behave(&plugin, &json!({"behaviour": behaviour}), &Limits::default())
                        .result
                        .is_err()
                );
            }
        });
        while !bad.is_finished() {
            behave(&plugin, &good, &patient()).result.unwrap();
        }
    });
}

fn app_service(plugin: &PluginComponent) -> Outcome {
    let object = json!({
        "apiVersion": "kosmos.io/v1",
        "kind": "AppService",
        "metadata": {"name": "shop", "namespace": "here", "uid": "1", "generation": 1},
        "spec": {"size": 2, "image": "nginx:1.7.9", "ports": [{"port": 80, "targetPort": 80, "nodePort": 30002}]},
    });
    plugin
        .reconcile(&request(&object.to_string()), &Limits::default(), Recorder::default())
        .result
        .unwrap()
}

#[test]
fn app_service_describes_itself_and_answers() {
    let sandbox = sandbox();
    let plugin = sandbox.built("app-service");
    let manifest: Value = serde_json::from_str(&plugin.describe(None, &Limits::default()).unwrap()).unwrap();
    assert_eq!(manifest["name"], "app-service");
    let outcome = app_service(&plugin);
    let kinds: Vec<Value> = outcome
        .desired
        .iter()
        .map(|desired| serde_json::from_str::<Value>(&desired.object).unwrap()["kind"].clone())
        .collect();
    assert_eq!(kinds, ["Deployment", "Service"]);
}

#[test]
fn the_same_request_gets_the_same_answer() {
    let sandbox = sandbox();
    let plugin = sandbox.built("app-service");
    let first = app_service(&plugin);
    for _ in 0..50 {
        assert_eq!(app_service(&plugin), first);
    }
    plugin.sleep();
    assert_eq!(app_service(&plugin), first);
}

#[test]
fn app_service_wakes_in_less_than_5_ms() {
    let sandbox = sandbox();
    let plugin = sandbox.built("app-service");
    let woken = (0..20).filter_map(|_| {
        plugin.sleep();
        behave(&plugin, &json!({}), &Limits::default()).usage.wake
    });
    let best = woken.min().unwrap();
    assert!(best.as_millis() < 5, "the fastest of 20 took {best:?}");
}

#[test]
fn app_service_imports_nothing_but_the_contract() {
    // Loading says so: whatever else it imported would be refused.
    let sandbox = sandbox();
    assert_eq!(sandbox.built("app-service").contract_version(), "0.1.0");
}
