//! Components that import WASI: refused without a grant, and answered by the inert set with one.
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

mod support;

use std::fs;

use pilothouse_core::plugin::contract::{LogLevel, Outcome};
use pilothouse_core::plugin::wasi::Wasi;
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Blame, Failure, Limits};
use pilothouse_sandbox::{ComponentError, LoadError, PluginComponent, Usage};
use support::{Own, Recorder, component_of, module, request, sandbox, wit};

/// Imports of these tests from WASI 0.2.6.
const WASI: &str = "
world plugin-with-wasi {
    include plugin;
    import wasi:cli/environment@0.2.6;
    import wasi:cli/exit@0.2.6;
    import wasi:cli/stdin@0.2.6;
    import wasi:cli/stderr@0.2.6;
    import wasi:clocks/monotonic-clock@0.2.6;
    import wasi:clocks/wall-clock@0.2.6;
    import wasi:filesystem/preopens@0.2.6;
    import wasi:random/random@0.2.6;
    import wasi:sockets/instance-network@0.2.6;
}
package wasi:io@0.2.6 {
    interface error { resource error; }
    interface poll { resource pollable { block: func(); } }
    interface streams {
        use error.{error};
        variant stream-error { last-operation-failed(error), closed }
        resource input-stream { blocking-read: func(len: u64) -> result<list<u8>, stream-error>; }
        resource output-stream { blocking-write-and-flush: func(contents: list<u8>) -> result<_, stream-error>; }
    }
}
package wasi:cli@0.2.6 {
    interface environment { get-environment: func() -> list<tuple<string, string>>; }
    interface exit { exit: func(status: result); }
    interface stdin { use wasi:io/streams@0.2.6.{input-stream}; get-stdin: func() -> input-stream; }
    interface stderr { use wasi:io/streams@0.2.6.{output-stream}; get-stderr: func() -> output-stream; }
}
package wasi:clocks@0.2.6 {
    interface monotonic-clock {
        use wasi:io/poll@0.2.6.{pollable};
        now: func() -> u64;
        subscribe-duration: func(when: u64) -> pollable;
    }
    interface wall-clock { record datetime { seconds: u64, nanoseconds: u32 } now: func() -> datetime; }
}
package wasi:filesystem@0.2.6 {
    interface types { resource descriptor { sync: func(); } }
    interface preopens { use types.{descriptor}; get-directories: func() -> list<tuple<descriptor, string>>; }
}
package wasi:random@0.2.6 { interface random { get-random-u64: func() -> u64; } }
package wasi:sockets@0.2.6 {
    interface network { resource network; }
    interface instance-network { use network.{network}; instance-network: func() -> network; }
}
";

/// The imports, and `$say`, which writes a number to standard error as a line of sixteen letters.
const IMPORTS: &str = r#"
    (import "wasi:cli/environment@0.2.6" "get-environment" (func $environment (param i32)))
    (import "wasi:cli/exit@0.2.6" "exit" (func $exit (param i32)))
    (import "wasi:cli/stdin@0.2.6" "get-stdin" (func $stdin (result i32)))
    (import "wasi:cli/stderr@0.2.6" "get-stderr" (func $stderr (result i32)))
    (import "wasi:io/streams@0.2.6" "[method]input-stream.blocking-read" (func $read (param i32 i64 i32)))
    (import "wasi:io/streams@0.2.6" "[method]output-stream.blocking-write-and-flush"
        (func $write (param i32 i32 i32 i32)))
    (import "wasi:io/poll@0.2.6" "[method]pollable.block" (func $block (param i32)))
    (import "wasi:clocks/monotonic-clock@0.2.6" "now" (func $monotonic (result i64)))
    (import "wasi:clocks/monotonic-clock@0.2.6" "subscribe-duration" (func $subscribe (param i64) (result i32)))
    (import "wasi:clocks/wall-clock@0.2.6" "now" (func $wall (param i32)))
    (import "wasi:filesystem/preopens@0.2.6" "get-directories" (func $directories (param i32)))
    (import "wasi:random/random@0.2.6" "get-random-u64" (func $random (result i64)))
    (import "wasi:sockets/instance-network@0.2.6" "instance-network" (func $network (result i32)))
    (func $say (param $number i64)
        (local $at i32)
        (local.set $at (i32.const 3016))
        (i32.store8 (i32.const 3016) (i32.const 10))
        (loop $letters
            (local.set $at (i32.sub (local.get $at) (i32.const 1)))
            (i32.store8 (local.get $at)
                (i32.add (i32.const 97) (i32.wrap_i64 (i64.and (local.get $number) (i64.const 15)))))
            (local.set $number (i64.shr_u (local.get $number) (i64.const 4)))
            (br_if $letters (i32.gt_u (local.get $at) (i32.const 3000))))
        ;; One handle for all lines: the number of handles is limited.
        (if (i32.eqz (global.get $error)) (then (global.set $error (call $stderr))))
        (call $write (global.get $error) (i32.const 3000) (i32.const 17) (i32.const 3032)))
    (global $error (mut i32) (i32.const 0))
    (data (i32.const 3100) "one line\nand no end")"#;

/// Returns the text that `$say` writes for a number.
fn said(number: u64) -> String {
    format!("{number:016x}")
        .bytes()
        .map(|digit| {
            let value = char::from(digit).to_digit(16).unwrap();
            char::from(b'a' + u8::try_from(value).unwrap())
        })
        .collect()
}

fn component(reconcile: &str) -> Vec<u8> {
    let wit = fs::read_to_string(wit()).unwrap() + WASI;
    component_of(&module(IMPORTS, reconcile), &wit, "plugin-with-wasi")
}

fn granted(sandbox: &Own, reconcile: &str) -> PluginComponent {
    let sandbox = sandbox.granting(Wasi::Inert);
    sandbox.load_bytes("shop.wasm", &component(reconcile)).unwrap()
}

fn called(plugin: &PluginComponent, limits: &Limits) -> (Result<Outcome, Failure>, Vec<(LogLevel, String)>, Usage) {
    let call = plugin.reconcile(&request("{}"), limits, Recorder::default());
    (call.result, call.imports.lines, call.usage)
}

fn lines(plugin: &PluginComponent) -> Vec<String> {
    let (result, lines, _) = called(plugin, &Limits::default());
    result.unwrap();
    lines.into_iter().map(|(_, line)| line).collect()
}

fn refusal(loaded: Result<PluginComponent, LoadError>) -> String {
    let error = loaded.unwrap_err();
    let ungranted = matches!(
        &error,
        LoadError::Refused {
            problem: ComponentError::UngrantedWasi { .. },
            ..
        }
    );
    assert!(ungranted, "{error}");
    error.to_string()
}

#[test]
fn without_a_grant_the_imports_and_next_steps_are_named() {
    let message = refusal(sandbox().load_bytes("shop.wasm", &component("(i32.const 16)")));
    for words in [
        "wasi:cli/environment@0.2.6",
        "wasi:random/random@0.2.6",
        "the network",
        "the time",
        "build it without WASI",
        "--stub-wasi",
        "spec.wasi: Inert",
    ] {
        assert!(message.contains(words), "{words}: {message}");
    }
}

#[test]
fn code_that_was_compiled_under_a_grant_is_refused_without_one() {
    let sandbox = sandbox();
    let path = sandbox.directory.path().join("shop.wasm");
    fs::write(&path, component("(i32.const 16)")).unwrap();
    let plugin = sandbox.granting(Wasi::Inert).load(&path).unwrap();
    assert!(plugin.wasi_imports().contains(&"wasi:cli/exit@0.2.6".to_owned()));
    refusal(sandbox.load(&path));
    refusal(sandbox.load_known(&path, None).map(Option::unwrap));
    assert!(plugin.check_wasi(Wasi::None).is_err());
    assert!(sandbox.granting(Wasi::Inert).load_known(&path, None).unwrap().is_some());
}

#[test]
fn other_versions_of_wasi_are_refused_under_a_grant() {
    let bytes = wat::parse_str(r#"(component (import "wasi:cli/environment@0.3.0" (instance)))"#).unwrap();
    let error = sandbox()
        .granting(Wasi::Inert)
        .load_bytes("shop.wasm", &bytes)
        .unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("imports wasi:cli/environment@0.3.0") && message.contains("WASI 0.2"),
        "{message}"
    );
}

#[test]
fn standard_error_goes_to_the_log_line_by_line() {
    let sandbox = sandbox();
    let write = "(call $write (call $stderr) (i32.const 3100) (i32.const 19) (i32.const 3032)) (i32.const 16)";
    let (result, lines, usage) = called(&granted(&sandbox, write), &Limits::default());
    result.unwrap();
    let expected = ["one line", "and no end"].map(|line| (LogLevel::Warn, line.to_owned()));
    assert_eq!(lines, expected);
    assert!(usage.log_bytes > 17, "{usage:?}");
}

#[test]
fn what_is_written_counts_towards_the_limit_of_the_log() {
    let sandbox = sandbox();
    let write = "(loop $more (call $say (i64.const 7))
            (br_if $more (i64.lt_u (call $monotonic) (i64.const 1003000000))))
        (i32.const 16)";
    let limits = Limits {
        log_bytes: 1000,
        ..Limits::default()
    };
    let (result, lines, usage) = called(&granted(&sandbox, write), &limits);
    result.unwrap();
    assert!(lines.len() < 60 && usage.log_bytes <= 1000, "{} lines", lines.len());
    assert!(usage.log_lines_dropped > 1000, "{usage:?}");
}

#[test]
fn two_calls_see_the_same_time_and_the_same_random_numbers() {
    let sandbox = sandbox();
    let plugin = granted(
        &sandbox,
        "(call $say (call $random)) (call $say (call $random)) (call $say (call $monotonic))
         (call $wall (i32.const 3200)) (call $say (i64.load (i32.const 3200))) (i32.const 16)",
    );
    let first = lines(&plugin);
    assert_eq!(first.len(), 4);
    assert_ne!(first[0], first[1]);
    // The clock starts at 1 s, and each reading takes a microsecond; 2000-01-01T00:00:01Z.
    assert_eq!(first[2..], [said(1_000_001_000), said(946_684_801)]);
    assert_eq!(lines(&plugin), first);
}

#[test]
fn waiting_takes_no_time_and_moves_the_clock() {
    let sandbox = sandbox();
    let hour = 3_600_000_000_000_u64;
    let wait =
        format!("(call $block (call $subscribe (i64.const {hour}))) (call $say (call $monotonic)) (i32.const 16)");
    let plugin = granted(&sandbox, &wait);
    assert_eq!(lines(&plugin), [said(1_000_000_000 + hour + 2000)]);
}

#[test]
fn there_is_no_environment_no_directory_and_no_input() {
    let sandbox = sandbox();
    let plugin = granted(
        &sandbox,
        "(call $environment (i32.const 3200)) (call $say (i64.load32_u (i32.const 3204)))
         (call $directories (i32.const 3200)) (call $say (i64.load32_u (i32.const 3204)))
         (call $read (call $stdin) (i64.const 10) (i32.const 3200))
         (call $say (i64.load8_u (i32.const 3200))) (call $say (i64.load8_u (i32.const 3204)))
         (i32.const 16)",
    );
    // No variable, no directory; an error of the stream, which is closed.
    assert_eq!(lines(&plugin), [0, 0, 1, 1].map(said));
}

#[test]
fn a_plugin_that_exits_fails_with_its_status_and_what_it_wrote() {
    let sandbox = sandbox();
    let plugin = granted(
        &sandbox,
        "(call $say (i64.const 0)) (call $exit (i32.const 1)) (i32.const 16)",
    );
    let (result, lines, _) = called(&plugin, &Limits::default());
    let failure = result.unwrap_err();
    assert_eq!((failure.blame, failure.reason), (Blame::Guest, Reason::GuestTrap));
    assert!(
        failure.message.contains("ended itself with status 1"),
        "{}",
        failure.message
    );
    assert!(
        failure.message.contains("it wrote aaaaaaaaaaaaaaaa"),
        "{}",
        failure.message
    );
    assert_eq!(lines.len(), 1);
}

#[test]
fn a_function_missing_from_the_set_ends_the_call_by_name() {
    let sandbox = sandbox();
    let plugin = granted(&sandbox, "(drop (call $network)) (i32.const 16)");
    let failure = called(&plugin, &Limits::default()).0.unwrap_err();
    let words = "calls wasi:sockets/instance-network@0.2.6 instance-network, which the inert set of WASI does not have";
    assert!(failure.message.contains(words), "{}", failure.message);
}

/// Each would keep a moment in the host otherwise.
#[test]
fn what_is_waited_for_is_bounded() {
    let sandbox = sandbox();
    let plugin = granted(
        &sandbox,
        "(loop $more (drop (call $subscribe (i64.const 1))) (br $more)) (i32.const 16)",
    );
    let failure = called(&plugin, &Limits::default()).0.unwrap_err();
    assert_eq!(failure.reason, Reason::GuestTrap, "{}", failure.message);
}
