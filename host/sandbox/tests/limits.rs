//! Guests that take more than they may: each ends with a failure that names the limit and its value.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::time::Duration;

use pilothouse_core::plugin::contract::Outcome;
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Blame, Failure, Limits, Retry};
use pilothouse_sandbox::CallResult;
use support::{CLOCK_NOW, GET, LOG, Recorder, module, request, sandbox};

fn call(more: &str, reconcile: &str, limits: &Limits, imports: Recorder) -> CallResult<Recorder> {
    let sandbox = sandbox();
    sandbox
        .guest(&module(more, reconcile))
        .reconcile(&request("{}"), limits, imports)
}

fn failure(more: &str, reconcile: &str) -> Failure {
    call(more, reconcile, &Limits::default(), Recorder::default())
        .result
        .unwrap_err()
}

#[track_caller]
fn is_limit(failure: &Failure, limit: &str, value: u64) {
    assert_eq!(
        (failure.blame, failure.reason),
        (Blame::Guest, Reason::GuestLimit),
        "{failure}"
    );
    assert!(
        failure.message.contains(&format!("limit {limit} is {value};")),
        "{failure}"
    );
}

#[test]
fn an_endless_loop_stops_soon_after_its_deadline() {
    let call = call(
        "",
        "(loop $on (br $on)) (i32.const 16)",
        &Limits::default(),
        Recorder::default(),
    );
    let failure = call.result.unwrap_err();
    is_limit(&failure, "callMilliseconds", 100);
    assert_eq!(
        failure.retry,
        Retry::Backoff,
        "how long a call takes depends on the machine too"
    );
    let time = call.usage.time;
    assert!(time >= Duration::from_millis(100), "stopped too early, after {time:?}");
    assert!(time < Duration::from_secs(1), "stopped too late, after {time:?}");
}

#[test]
fn a_start_function_that_never_ends_is_stopped_too() {
    is_limit(
        &failure("(start $forever) (func $forever (loop $on (br $on)))", "(i32.const 16)"),
        "callMilliseconds",
        100,
    );
}

#[test]
fn deep_recursion_is_stopped() {
    let recursion = "(func $deeper (param i32) (result i32)
        (i32.add (call $deeper (i32.add (local.get 0) (i32.const 1))) (local.get 0)))";
    is_limit(
        &failure(recursion, "(call $deeper (i32.const 0))"),
        "stackBytes",
        512 * 1024,
    );
}

#[test]
fn more_stack_allows_deeper_recursion() {
    // Counts down from 15,000 without a tail call: within 1 MiB, not within 64 KiB.
    let recursion = "(func $deeper (param i32) (result i32)
        (if (result i32) (local.get 0)
            (then (i32.add (call $deeper (i32.sub (local.get 0) (i32.const 1))) (i32.const 0)))
            (else (i32.const 16))))";
    let sandbox = sandbox();
    let plugin = sandbox.guest(&module(recursion, "(call $deeper (i32.const 15000))"));
    let with = |stack_bytes| {
        let limits = Limits {
            stack_bytes,
            ..Limits::default()
        };
        plugin.reconcile(&request("{}"), &limits, Recorder::default()).result
    };
    with(1024 * 1024).unwrap();
    is_limit(&with(64 * 1024).unwrap_err(), "stackBytes", 64 * 1024);
}

#[test]
fn memory_that_is_refused_is_named_when_the_guest_gives_up() {
    let bomb = "(loop $on (br_if $on (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable";
    let call = call("", bomb, &Limits::default(), Recorder::default());
    is_limit(&call.result.unwrap_err(), "memoryBytes", 32 * 1024 * 1024);
    assert!(
        call.usage.memory_bytes <= 32 * 1024 * 1024,
        "{}",
        call.usage.memory_bytes
    );
    assert!(
        call.usage.memory_bytes > 30 * 1024 * 1024,
        "{}",
        call.usage.memory_bytes
    );
}

#[test]
fn a_guest_that_bears_the_refusal_of_memory_may_go_on() {
    let call = call(
        "",
        "(drop (memory.grow (i32.const 60000))) (i32.const 16)",
        &Limits::default(),
        Recorder::default(),
    );
    call.result.unwrap();
    assert_eq!(call.usage.memory_bytes, 2 * 65_536);
}

#[test]
fn a_table_that_grows_too_large_is_named() {
    let table = "(table $table 1 funcref)";
    let bomb = "(loop $on (br_if $on (i32.ne (table.grow $table (ref.null func) (i32.const 500)) (i32.const -1)))) unreachable";
    is_limit(&failure(table, bomb), "tableElements", 10_000);
}

#[test]
fn reading_too_often_is_stopped() {
    let reads = "(loop $on (drop (call $now (i64.const 1000))) (br $on)) (i32.const 16)";
    let call = call(CLOCK_NOW, reads, &Limits::default(), Recorder::default());
    is_limit(&call.result.unwrap_err(), "reads", 10_000);
    assert_eq!(call.usage.reads, 10_000);
}

#[test]
fn reading_too_much_is_stopped() {
    let reads = "(loop $on
        (global.set $heap (i32.const 4096))
        (call $get (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 32))
        (br $on)) (i32.const 16)";
    let limits = Limits {
        read_bytes: 100_000,
        ..Limits::default()
    };
    let imports = Recorder {
        answer: Some("x".repeat(10_000)),
        ..Recorder::default()
    };
    let call = call(GET, reads, &limits, imports);
    is_limit(&call.result.unwrap_err(), "readBytes", 100_000);
    assert_eq!(call.imports.gets.len(), 11);
}

#[test]
fn a_flood_of_log_lines_is_cut_and_the_call_succeeds() {
    let flood = "(local $count i32)
        (loop $on
            (call $log (i32.const 2) (i32.const 8192) (i32.const 1000) (i32.const 0) (i32.const 0))
            (local.set $count (i32.add (local.get $count) (i32.const 1)))
            (br_if $on (i32.lt_u (local.get $count) (i32.const 1000))))
        (i32.const 16)";
    let limits = Limits {
        call_milliseconds: 10_000,
        ..Limits::default()
    };
    let call = call(LOG, flood, &limits, Recorder::default());
    call.result.unwrap();
    assert_eq!(call.imports.lines.len() as u64, limits.log_bytes / 1001);
    assert_eq!(call.usage.log_lines_dropped + call.imports.lines.len() as u64, 1000);
    assert!(call.usage.log_bytes <= limits.log_bytes);
}

#[test]
fn empty_log_lines_are_limited_too() {
    let flood = "(local $count i32)
        (loop $on
            (call $log (i32.const 2) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))
            (local.set $count (i32.add (local.get $count) (i32.const 1)))
            (br_if $on (i32.lt_u (local.get $count) (i32.const 2000))))
        (i32.const 16)";
    let limits = Limits {
        call_milliseconds: 10_000,
        log_bytes: 500,
        ..Limits::default()
    };
    let call = call(LOG, flood, &limits, Recorder::default());
    call.result.unwrap();
    assert_eq!(call.imports.lines.len(), 500);
}

#[test]
fn one_object_too_many_is_refused() {
    let answer = |count: u32| {
        format!(
            "(drop (memory.grow (i32.const 4))) (i32.store (i32.const 24) (i32.const 8192)) (i32.store (i32.const 28) (i32.const {count})) (i32.const 16)"
        )
    };
    is_limit(&failure("", &answer(10_001)), "outputObjects", 10_000);
    let most = call("", &answer(10_000), &Limits::default(), Recorder::default());
    assert_eq!(most.result.unwrap().desired.len(), 10_000);
}

#[test]
fn too_many_bytes_of_answer_are_refused() {
    let answer = "(drop (memory.grow (i32.const 200)))
        (i32.store8 (i32.const 32) (i32.const 1)) (i32.store (i32.const 36) (i32.const 8192))
        (i32.store (i32.const 40) (i32.const 8388609)) (i32.const 16)";
    is_limit(&failure("", answer), "outputBytes", 8 * 1024 * 1024);
}

/// A list of so many objects, all of them the same megabyte of the guest's memory.
fn aliased(count: u32) -> String {
    format!(
        "(local $at i32)
        (drop (memory.grow (i32.const 32)))
        (local.set $at (i32.const 8192))
        (loop $on
            (i32.store (local.get $at) (i32.const 65536))
            (i32.store offset=4 (local.get $at) (i32.const 1048576))
            (local.set $at (i32.add (local.get $at) (i32.const 20)))
            (br_if $on (i32.lt_u (local.get $at) (i32.const {}))))
        (i32.store (i32.const 24) (i32.const 8192)) (i32.store (i32.const 28) (i32.const {count})) (i32.const 16)",
        8192 + 20 * count
    )
}

#[test]
fn a_hundred_megabyte_answer_is_never_allocated() {
    is_limit(&failure("", &aliased(100)), "transferBytes", 16 * 1024 * 1024);
    is_limit(&failure("", &aliased(12)), "outputBytes", 8 * 1024 * 1024);
}

#[test]
fn an_answer_outside_of_memory_is_the_guests_fault() {
    let failure = failure("", "(i32.const -8)");
    assert_eq!((failure.blame, failure.reason), (Blame::Guest, Reason::GuestTrap));
}

#[test]
fn text_that_is_not_utf8_is_the_guests_fault() {
    let answer = "(i32.store (i32.const 512) (i32.const -1))
        (i32.store8 (i32.const 32) (i32.const 1)) (i32.store (i32.const 36) (i32.const 512))
        (i32.store (i32.const 40) (i32.const 4)) (i32.const 16)";
    let failure = failure("", answer);
    assert_eq!((failure.blame, failure.reason), (Blame::Guest, Reason::GuestTrap));
    assert!(failure.message.contains("utf-8"), "{failure}");
}

#[test]
fn too_many_conditions_are_refused() {
    let failure = failure(
        "",
        "(i32.store (i32.const 44) (i32.const 8192)) (i32.store (i32.const 48) (i32.const 65)) (i32.const 16)",
    );
    assert_eq!(failure.reason, Reason::InvalidAnswer);
    assert!(
        failure.message.contains("65 conditions; there can be at most 64"),
        "{failure}"
    );
}

#[test]
fn too_many_events_are_refused() {
    let failure = failure(
        "",
        "(i32.store (i32.const 52) (i32.const 8192)) (i32.store (i32.const 56) (i32.const 65)) (i32.const 16)",
    );
    assert!(
        failure.message.contains("65 events; there can be at most 64"),
        "{failure}"
    );
}

#[test]
fn a_reason_longer_than_kubernetes_takes_is_refused() {
    // One event whose reason has 129 bytes.
    let answer = "(i32.store (i32.const 516) (i32.const 1024)) (i32.store (i32.const 520) (i32.const 129))
        (i32.store (i32.const 52) (i32.const 512)) (i32.store (i32.const 56) (i32.const 1)) (i32.const 16)";
    let failure = failure("", answer);
    assert!(
        failure
            .message
            .contains("an event reason of 129 bytes; Kubernetes takes at most 128"),
        "{failure}"
    );
}

/// Calls a plugin that answers with these extensions and nothing else.
fn extended(extensions: &str, limits: &Limits) -> Result<Outcome, Failure> {
    let data = format!("(data (i32.const 65536) \"{}\")", extensions.replace('"', "\\22"));
    let answer = format!(
        "(i32.store8 (i32.const 80) (i32.const 1)) (i32.store (i32.const 84) (i32.const 65536))
         (i32.store (i32.const 88) (i32.const {})) (i32.const 16)",
        extensions.len()
    );
    call(&data, &answer, limits, Recorder::default()).result
}

#[test]
fn extensions_that_the_contract_does_not_have_are_refused() {
    for none in ["{}", " { } "] {
        assert!(extended(none, &Limits::default()).is_ok(), "{none:?}");
    }
    for (extensions, problem) in [
        (
            r#"{"later":{"a":1}}"#,
            "the plugin answers with the extension \"later\", which contract 0.1.0 does not have; update the host, or remove \
             the extension",
        ),
        (
            "{",
            "the plugin answers with extensions that are not a JSON object: EOF",
        ),
        (
            "[]",
            "the plugin answers with extensions that are not a JSON object: invalid type",
        ),
        ("", "the plugin answers with extensions that are not a JSON object: EOF"),
    ] {
        let failure = extended(extensions, &Limits::default()).unwrap_err();
        assert_eq!(failure.reason, Reason::InvalidAnswer);
        assert!(failure.message.starts_with(problem), "{failure}");
    }
}

#[test]
fn extensions_count_towards_the_bytes_of_an_answer() {
    let limits = Limits {
        output_bytes: 1024,
        ..Limits::default()
    };
    let of_bytes = |bytes: usize| format!("{{{}}}", " ".repeat(bytes - 2));
    assert!(extended(&of_bytes(1024), &limits).is_ok());
    is_limit(&extended(&of_bytes(1025), &limits).unwrap_err(), "outputBytes", 1024);
}

#[test]
fn a_trap_carries_the_last_error_that_the_guest_logged() {
    let panic = "(call $log (i32.const 4) (local.get $object) (local.get $object_length) (i32.const 0) (i32.const 0)) unreachable";
    let sandbox = sandbox();
    let plugin = sandbox.guest(&module(LOG, panic));
    let object = "panicked at src/lib.rs:12: no ports";
    let limits = Limits {
        log_bytes: 0,
        ..Limits::default()
    };
    for limits in [Limits::default(), limits] {
        let failure = plugin
            .reconcile(&request(object), &limits, Recorder::default())
            .result
            .unwrap_err();
        assert_eq!(
            (failure.blame, failure.reason, failure.retry),
            (Blame::Guest, Reason::GuestTrap, Retry::Change)
        );
        assert!(failure.message.contains(object), "{failure}");
    }
    let long = plugin.reconcile(&request(&"ä".repeat(10_000)), &Limits::default(), Recorder::default());
    assert!(long.result.unwrap_err().message.len() < 1200);
}

#[test]
fn a_silent_trap_is_told_as_such() {
    let failure = failure("", "unreachable");
    assert_eq!((failure.blame, failure.reason), (Blame::Guest, Reason::GuestTrap));
    assert!(
        failure.message.contains("unreachable") && failure.message.contains("logged no error"),
        "{failure}"
    );
}

#[test]
fn more_calls_at_once_than_slots_are_the_hosts_matter() {
    use pilothouse_core::Kind;
    use pilothouse_core::plugin::contract::{Imports, ListOptions, LogLevel};
    use pilothouse_sandbox::{Compiler, PluginComponent, Sandbox, SandboxOptions};

    /// Calls the plugin again while it is being called.
    struct Again(PluginComponent, Option<Failure>);
    impl Imports for Again {
        fn get(&mut self, _: &Kind, _: Option<&str>, _: &str) -> Result<Option<String>, Failure> {
            Ok(None)
        }
        fn list(&mut self, _: &Kind, _: &ListOptions, _: u64) -> Result<Vec<String>, Failure> {
            Ok(Vec::new())
        }
        fn now(&mut self, _: u64) -> u64 {
            self.1 = self
                .0
                .reconcile(&request("{}"), &Limits::default(), Recorder::default())
                .result
                .err();
            0
        }
        fn reached(&mut self, _: u64) -> bool {
            false
        }
        fn log(&mut self, _: LogLevel, _: &str, _: &[(String, String)]) {}
    }

    let directory = tempfile::tempdir().unwrap();
    let mut options = SandboxOptions::new(directory.path(), Compiler::InProcess);
    options.slots = 1;
    let sandbox = Sandbox::new(options).unwrap();
    let text = module(CLOCK_NOW, "(drop (call $now (i64.const 1000))) (i32.const 16)");
    let plugin = sandbox.load_bytes("x", &support::component(&text)).unwrap();
    let call = plugin.reconcile(&request("{}"), &Limits::default(), Again(plugin.clone(), None));
    call.result.unwrap();
    let failure = call.imports.1.unwrap();
    assert_eq!(
        (failure.blame, failure.retry),
        (Blame::Host, Retry::Backoff),
        "{failure}"
    );
}
