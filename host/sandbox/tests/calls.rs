//! Calls of small guests written by hand: what they are given, what they answer, and that each call is alone.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use pilothouse_core::plugin::contract::{
    Condition, ConditionStatus, Desired, Event, EventType, Lifecycle, LogLevel, Outcome, Ownership,
};
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Blame, Failure, Limits, Retry};
use pilothouse_sandbox::{CallResult, PluginComponent};
use support::{CLOCK_NOW, GET, LOG, Recorder, module, request, sandbox};

fn call(plugin: &PluginComponent) -> CallResult<Recorder> {
    plugin.reconcile(&request("{}"), &Limits::default(), Recorder::default())
}

/// The answer is its input: the status is the object, and the time to come back is the attempt.
const ECHO: &str = "
    (i32.store8 (i32.const 32) (i32.const 1))
    (i32.store (i32.const 36) (local.get $object))
    (i32.store (i32.const 40) (local.get $object_length))
    (i32.store8 (i32.const 64) (i32.const 1))
    (i64.store (i32.const 72) (i64.extend_i32_u (local.get $attempt)))
    (i32.const 16)";

#[test]
fn a_guest_describes_itself() {
    let sandbox = sandbox();
    let plugin = sandbox.guest(&module("", "(i32.const 16)"));
    assert_eq!(plugin.describe(None, &Limits::default()).unwrap(), "{}");
}

#[test]
fn a_refused_configuration_is_the_users_matter() {
    let sandbox = sandbox();
    let text = module("", "(i32.const 16)").replace(r#""\00\00\00\00\10"#, r#""\01\00\00\00\10"#);
    let failure = sandbox
        .guest(&text)
        .describe(Some("{}"), &Limits::default())
        .unwrap_err();
    assert_eq!((failure.blame, failure.reason), (Blame::User, Reason::Failure));
    assert!(failure.message.ends_with("refuses its configuration: {}"), "{failure}");
}

#[test]
fn a_read_during_describe_is_the_guests_fault() {
    let sandbox = sandbox();
    let text = module(CLOCK_NOW, "(i32.const 16)").replace(
        "(i32.const 2048))",
        "(drop (call $now (i64.const 1))) (i32.const 2048))",
    );
    let failure = sandbox.guest(&text).describe(None, &Limits::default()).unwrap_err();
    assert_eq!((failure.blame, failure.reason), (Blame::Guest, Reason::InvalidAnswer));
    assert!(failure.message.contains("calls clock.now in describe"), "{failure}");
}

#[test]
fn the_log_works_during_describe() {
    let sandbox = sandbox();
    let text = module(LOG, "(i32.const 16)").replace(
        "(i32.const 2048))",
        "(call $log (i32.const 4) (i32.const 2064) (i32.const 2) (i32.const 0) (i32.const 0)) (i32.const 2048))",
    );
    assert_eq!(sandbox.guest(&text).describe(None, &Limits::default()).unwrap(), "{}");
}

#[test]
fn an_empty_answer_is_an_outcome_without_anything() {
    let sandbox = sandbox();
    let plugin = sandbox.guest(&module("", "(i32.const 16)"));
    assert_eq!(call(&plugin).result.unwrap(), Outcome::default());
}

#[test]
fn a_guest_is_given_the_request_as_it_is() {
    let sandbox = sandbox();
    let plugin = sandbox.guest(&module("", ECHO));
    let mut request = request(r#"{"metadata":{"name":"größe"}}"#);
    request.attempt = 7;
    let outcome = plugin
        .reconcile(&request, &Limits::default(), Recorder::default())
        .result
        .unwrap();
    assert_eq!(outcome.status.as_deref(), Some(request.object.as_str()));
    assert_eq!(outcome.requeue_after, Some(7));
}

#[test]
fn every_part_of_an_answer_arrives() {
    let sandbox = sandbox();
    // At 3072: one desired object, one condition, one event. At 3200: their texts.
    let data = r#"
        (data (i32.const 3072) "\80\0c\00\00\07\00\00\00\01\05\00\00\93\0c\00\00\02\00\00\00")
        (data (i32.const 3096) "\87\0c\00\00\05\00\00\00\01\00\00\00\8c\0c\00\00\03\00\00\00\8f\0c\00\00\04\00\00\00")
        (data (i32.const 3136) "\01\00\00\00\8c\0c\00\00\03\00\00\00\8f\0c\00\00\04\00\00\00")
        (data (i32.const 3200) "{\"a\":1}ReadyWhytext{}")"#;
    let reconcile = format!(
        "(i32.store (i32.const 24) (i32.const 3072)) (i32.store (i32.const 28) (i32.const 1))
         (i32.store (i32.const 44) (i32.const 3096)) (i32.store (i32.const 48) (i32.const 1))
         (i32.store (i32.const 52) (i32.const 3136)) (i32.store (i32.const 56) (i32.const 1))
         {ECHO}"
    );
    let plugin = sandbox
        .guest(&module("", &reconcile).replace("(data (i32.const 2064)", &format!("{data} (data (i32.const 2064)")));
    let (why, text) = ("Why".to_owned(), "text".to_owned());
    let expected = Outcome {
        desired: vec![Desired {
            object: r#"{"a":1}"#.to_owned(),
            ownership: Ownership::Contributed,
            lifecycle: Lifecycle {
                create_only: true,
                keep: false,
                recreate: true,
                ..Lifecycle::default()
            },
            options: "{}".to_owned(),
        }],
        status: Some("{}".to_owned()),
        conditions: vec![Condition {
            type_: "Ready".to_owned(),
            status: ConditionStatus::False,
            reason: why.clone(),
            message: text.clone(),
        }],
        events: vec![Event {
            type_: EventType::Warning,
            reason: why,
            message: text,
        }],
        requeue_after: Some(0),
    };
    assert_eq!(call(&plugin).result.unwrap(), expected);
}

#[test]
fn what_a_guest_says_of_its_failure_decides_when_to_try_again() {
    let sandbox = sandbox();
    for (case, blame, retry) in [(0, Blame::Cluster, Retry::Backoff), (1, Blame::User, Retry::Change)] {
        let plugin = sandbox.guest(&module(
            "",
            &format!(
                "(i32.store8 (i32.const 16) (i32.const 1)) (i32.store8 (i32.const 24) (i32.const {case}))
                 (i32.store (i32.const 28) (i32.const 2064)) (i32.store (i32.const 32) (i32.const 2))
                 (i32.const 16)"
            ),
        ));
        let failure = call(&plugin).result.unwrap_err();
        assert_eq!(
            failure,
            Failure {
                blame,
                retry,
                at_least: std::time::Duration::ZERO,
                reason: Reason::Failure,
                message: "{}".to_owned()
            }
        );
    }
}

#[test]
fn each_call_has_an_instance_of_its_own() {
    let sandbox = sandbox();
    // Counts in memory, and answers with the count.
    let plugin = sandbox.guest(&module(
        "",
        "(i32.store (i32.const 512) (i32.add (i32.load (i32.const 512)) (i32.const 1)))
         (i32.store8 (i32.const 64) (i32.const 1))
         (i64.store (i32.const 72) (i64.load (i32.const 512)))
         (i32.const 16)",
    ));
    for _ in 0..300 {
        assert_eq!(call(&plugin).result.unwrap().requeue_after, Some(1));
    }
}

#[test]
fn reads_are_answered_and_recorded() {
    let sandbox = sandbox();
    // Gets ConfigMap {}/{} and answers with it as the status.
    let reconcile = "
        (call $get (i32.const 0) (i32.const 0) (i32.const 2064) (i32.const 2) (i32.const 2064) (i32.const 1)
            (i32.const 1) (i32.const 2064) (i32.const 2) (i32.const 2064) (i32.const 2) (i32.const 32))
        (i32.const 16)";
    let plugin = sandbox.guest(&module(GET, reconcile));
    let imports = Recorder {
        answer: Some("[1]".to_owned()),
        ..Recorder::default()
    };
    let call = plugin.reconcile(&request("{}"), &Limits::default(), imports);
    assert_eq!(call.result.unwrap().status.as_deref(), Some("[1]"));
    assert_eq!(call.imports.gets, ["{} { {}/{}"]);
    assert_eq!((call.usage.reads, call.usage.read_bytes), (1, 3));
    let absent = plugin.reconcile(&request("{}"), &Limits::default(), Recorder::default());
    assert_eq!(absent.result.unwrap().status, None);
}

#[test]
fn a_failure_of_an_import_ends_the_call_unchanged() {
    let sandbox = sandbox();
    let reconcile = "
        (call $get (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 32))
        (loop $on (br $on))
        (i32.const 16)";
    let plugin = sandbox.guest(&module(GET, reconcile));
    let failure = Failure::cluster(Reason::NotSynced, "not yet").retry(Retry::Change);
    let imports = Recorder {
        failure: Some(failure.clone()),
        ..Recorder::default()
    };
    let call = plugin.reconcile(&request("{}"), &Limits::default(), imports);
    assert_eq!(call.result.unwrap_err(), failure);
    assert_eq!(call.imports.gets.len(), 1);
}

#[test]
fn time_is_no_finer_than_a_second() {
    let sandbox = sandbox();
    let plugin = sandbox.guest(&module(
        CLOCK_NOW,
        "(i32.store8 (i32.const 64) (i32.const 1)) (i64.store (i32.const 72) (call $now (i64.const 1))) (i32.const 16)",
    ));
    // The recorder's clock shows the granularity that it is asked for.
    assert_eq!(call(&plugin).result.unwrap().requeue_after, Some(1000));
}

#[test]
fn log_lines_reach_the_imports_with_their_level() {
    let sandbox = sandbox();
    let lines: Vec<_> = (0..5)
        .map(|level| {
            format!("(call $log (i32.const {level}) (i32.const 2064) (i32.const 2) (i32.const 0) (i32.const 0))")
        })
        .collect();
    let call = call(&sandbox.guest(&module(LOG, &format!("{} (i32.const 16)", lines.concat()))));
    let levels: Vec<_> = call.imports.lines.iter().map(|(level, _)| *level).collect();
    assert_eq!(
        levels,
        [
            LogLevel::Trace,
            LogLevel::Debug,
            LogLevel::Info,
            LogLevel::Warn,
            LogLevel::Error
        ]
    );
    assert_eq!(call.usage.log_lines_dropped, 0);
}

#[test]
fn calls_run_on_many_threads_at_once() {
    let sandbox = sandbox();
    let plugin = sandbox.guest(&module("", ECHO));
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let plugin = plugin.clone();
            scope.spawn(move || {
                for number in 0..200 {
                    let object = format!("[{thread},{number}]");
                    let outcome = plugin
                        .reconcile(&request(&object), &Limits::default(), Recorder::default())
                        .result;
                    assert_eq!(outcome.unwrap().status, Some(object));
                }
            });
        }
    });
}

#[test]
fn not_a_number_has_the_same_bits_on_every_machine() {
    let sandbox = sandbox();
    // The sign of 0/0 differs between processors unless it is made canonical.
    let plugin = sandbox.guest(&module(
        "",
        "(i32.store8 (i32.const 64) (i32.const 1))
         (f64.store (i32.const 72) (f64.div (f64.const 0) (f64.convert_i32_u (local.get $attempt))))
         (i32.const 16)",
    ));
    assert_eq!(call(&plugin).result.unwrap().requeue_after, Some(0x7ff8_0000_0000_0000));
}

#[test]
fn a_limit_that_cannot_be_held_to_is_refused_by_name() {
    let sandbox = sandbox();
    let plugin = sandbox.guest(&module("", "(i32.const 16)"));
    let limits = Limits {
        memory_bytes: 1,
        ..Limits::default()
    };
    let failure = plugin
        .reconcile(&request("{}"), &limits, Recorder::default())
        .result
        .unwrap_err();
    assert!(failure.message.starts_with("limit memoryBytes is 1"), "{failure}");
}

#[test]
fn a_sleeping_plugin_is_unmapped_and_wakes_with_the_next_call() {
    let sandbox = sandbox();
    let plugin = sandbox.guest(&module("", ECHO));
    assert!(call(&plugin).usage.wake.is_none());
    assert!(is_mapped(&sandbox), "the code is mapped from the cache");
    plugin.sleep();
    assert!(!plugin.is_awake());
    assert!(!is_mapped(&sandbox), "the code is unmapped");
    let woken = call(&plugin);
    assert_eq!(woken.result.unwrap().status.as_deref(), Some("{}"));
    assert!(woken.usage.wake.is_some() && plugin.is_awake());
    assert!(call(&plugin).usage.wake.is_none());
}

#[test]
fn waking_takes_less_than_5_ms() {
    let sandbox = sandbox();
    let plugin = sandbox.guest(&module("", ECHO));
    let best = (0..20).filter_map(|_| {
        plugin.sleep();
        call(&plugin).usage.wake
    });
    let best = best.min().unwrap();
    assert!(best.as_millis() < 5, "the fastest of 20 took {best:?}");
}

#[test]
fn a_call_under_way_is_not_disturbed_by_sleep() {
    let sandbox = sandbox();
    let plugin = sandbox.guest(&module("", ECHO));
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            for _ in 0..200 {
                plugin.sleep();
            }
        });
        while !sleeper.is_finished() {
            assert!(call(&plugin).result.is_ok());
        }
    });
}

/// Returns `true` if code from the sandbox's cache is mapped into this process.
fn is_mapped(sandbox: &support::Own) -> bool {
    let directory = sandbox.directory.path().canonicalize().unwrap();
    std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .contains(directory.to_str().unwrap())
}
