//! Calls of the interfaces that a component may export as needed: what the guest is given, what it answers, and that the
//! same limits hold as for reconcile.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::fs;

use pilothouse_core::plugin::contract::{FieldError, FieldErrorKind, Finalization, Outcome, Phase, Review, UserInfo};
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Blame, Failure, Kind, Limits, Retry};
use pilothouse_sandbox::PluginComponent;
use support::{CLOCK_NOW, GET, Own, Recorder, component_of, module, request, sandbox, wit, with_functions};

/// A plugin that exports everything; each function has the body that is given for it, else it traps.
fn plugin(sandbox: &Own, imports: &str, bodies: &[(&str, &str)]) -> PluginComponent {
    let body = |function: &str| {
        bodies
            .iter()
            .find(|(name, _)| *name == function)
            .map_or("unreachable", |(_, body)| body)
    };
    let functions = format!(
        r#"(func (export "pilothouse:plugin/finalizer@0.1.0#finalize")
             (param $object i32) (param $object_length i32) (param $configuration i32) (param $configuration_length i32)
             (param $attempt i32) (param $extensions i32) (param $extensions_length i32) (result i32) {})
           (func (export "pilothouse:plugin/defaulter@0.1.0#apply-defaults") (param $review i32) (result i32) {})
           (func (export "pilothouse:plugin/validator@0.1.0#validate") (param $review i32) (result i32) {})
           (func (export "pilothouse:plugin/converter@0.1.0#convert")
             (param $object i32) (param $object_length i32) (param $version i32) (param $version_length i32)
             (result i32) {})"#,
        body("finalize"),
        body("apply-defaults"),
        body("validate"),
        body("convert"),
    );
    let text = with_functions(&module(imports, "unreachable"), &functions);
    let wit = fs::read_to_string(wit()).unwrap();
    sandbox
        .load_bytes("guest.wat", &component_of(&text, &wit, "plugin-with-everything"))
        .unwrap()
}

fn review() -> Review {
    Review {
        phase: Phase::Update,
        kind: Kind::new("x.dev", "v1", "Thing"),
        object: Some(r#"{"new":1}"#.to_owned()),
        old_object: Some(r#"{"old":1}"#.to_owned()),
        configuration: r#"{"config":1}"#.to_owned(),
        user_info: Some(UserInfo {
            username: "ann".to_owned(),
            groups: vec!["crew".to_owned(), "mates".to_owned()],
        }),
        dry_run: true,
    }
}

/// The answer at 16 is a list of so many texts or errors at 3072.
fn list(case: u32, count: usize) -> String {
    format!(
        "(i32.store8 (i32.const 16) (i32.const {case})) (i32.store (i32.const 20) (i32.const 3072))
         (i32.store (i32.const 24) (i32.const {count})) (i32.const 16)"
    )
}

#[test]
fn a_guest_that_has_nothing_more_to_do_releases_the_object() {
    let sandbox = sandbox();
    let plugin = plugin(&sandbox, "", &[("finalize", "(i32.const 16)")]);
    let call = plugin.finalize(&request("{}"), &Limits::default(), Recorder::default());
    assert_eq!(call.result.unwrap(), Finalization::Done);
}

#[test]
fn a_guest_that_is_not_done_says_what_should_still_exist() {
    let sandbox = sandbox();
    let pending = "
        (i32.store8 (i32.const 24) (i32.const 1))
        (i32.store8 (i32.const 40) (i32.const 1))
        (i32.store (i32.const 44) (local.get $object))
        (i32.store (i32.const 48) (local.get $object_length))
        (i32.const 16)";
    let plugin = plugin(&sandbox, "", &[("finalize", pending)]);
    let call = plugin.finalize(&request("[7]"), &Limits::default(), Recorder::default());
    let expected = Outcome {
        status: Some("[7]".to_owned()),
        ..Outcome::default()
    };
    assert_eq!(call.result.unwrap(), Finalization::Pending(expected));
}

#[test]
fn a_failure_to_finalize_has_the_guests_words_and_blame() {
    let sandbox = sandbox();
    let refused = "
        (i32.store8 (i32.const 16) (i32.const 1)) (i32.store8 (i32.const 24) (i32.const 1))
        (i32.store (i32.const 28) (local.get $object)) (i32.store (i32.const 32) (local.get $object_length))
        (i32.const 16)";
    let plugin = plugin(&sandbox, "", &[("finalize", refused)]);
    let call = plugin.finalize(&request("not yet"), &Limits::default(), Recorder::default());
    assert_eq!(call.result.unwrap_err(), Failure::user(Reason::Failure, "not yet"));
}

#[test]
fn what_should_still_exist_is_held_to_the_limits_on_answers() {
    let sandbox = sandbox();
    let pending = "
        (i32.store8 (i32.const 24) (i32.const 1))
        (i32.store8 (i32.const 40) (i32.const 1)) (i32.store (i32.const 44) (i32.const 2048))
        (i32.store (i32.const 48) (i32.const 2000))
        (i32.const 16)";
    let plugin = plugin(&sandbox, "", &[("finalize", pending)]);
    let limits = Limits {
        output_bytes: 1024,
        ..Limits::default()
    };
    let call = plugin.finalize(&request("{}"), &limits, Recorder::default());
    assert!(call.result.unwrap_err().message.contains("limit outputBytes is 1024"));
}

#[test]
fn a_guest_is_given_the_review_as_it_is() {
    let sandbox = sandbox();
    // Warns with the texts of the review, and with phase, dry-run, the number of groups and whether there is a user as digits.
    let texts = [64, 52, 32, 44, 4, 12, 20];
    let copies: Vec<String> = texts
        .iter()
        .enumerate()
        .map(|(index, offset)| {
            let at = 3072 + 8 * index;
            format!("(i64.store (i32.const {at}) (i64.load (i32.add (local.get $review) (i32.const {offset}))))")
        })
        .collect();
    let second_group =
        "(i64.store (i32.const 3128) (i64.load (i32.add (i32.load offset=72 (local.get $review)) (i32.const 8))))";
    let digits = "
        (i32.store8 (i32.const 3200) (i32.add (i32.const 48) (i32.load8_u (local.get $review))))
        (i32.store8 (i32.const 3201) (i32.add (i32.const 48) (i32.load8_u offset=80 (local.get $review))))
        (i32.store8 (i32.const 3202) (i32.add (i32.const 48) (i32.load offset=76 (local.get $review))))
        (i32.store8 (i32.const 3203) (i32.add (i32.const 48) (i32.load8_u offset=60 (local.get $review))))
        (i32.store (i32.const 3136) (i32.const 3200)) (i32.store (i32.const 3140) (i32.const 4))";
    let validate = format!("{} {second_group} {digits} {}", copies.concat(), list(0, 9));
    let plugin = plugin(&sandbox, "", &[("validate", &validate)]);
    let call = plugin.validate(&review(), &Limits::default(), Recorder::default());
    assert_eq!(
        call.result.unwrap().unwrap(),
        [
            "ann",
            r#"{"config":1}"#,
            r#"{"new":1}"#,
            r#"{"old":1}"#,
            "x.dev",
            "v1",
            "Thing",
            "mates",
            "1121"
        ]
    );
}

#[test]
fn a_review_before_a_reconcile_says_so_and_has_no_user() {
    let sandbox = sandbox();
    let digits = "
        (i32.store8 (i32.const 3200) (i32.add (i32.const 48) (i32.load8_u (local.get $review))))
        (i32.store8 (i32.const 3201) (i32.add (i32.const 48) (i32.load8_u offset=60 (local.get $review))))
        (i32.store (i32.const 3072) (i32.const 3200)) (i32.store (i32.const 3076) (i32.const 2))";
    let validate = format!("{digits} {}", list(0, 1));
    let plugin = plugin(&sandbox, "", &[("validate", &validate)]);
    let review = Review {
        phase: Phase::Reconcile,
        user_info: None,
        ..review()
    };
    let call = plugin.validate(&review, &Limits::default(), Recorder::default());
    assert_eq!(call.result.unwrap().unwrap(), ["30"]);
}

#[test]
fn the_object_with_defaults_is_given_back() {
    let sandbox = sandbox();
    let echo = "(i64.store (i32.const 20) (i64.load offset=32 (local.get $review))) (i32.const 16)";
    let plugin = plugin(&sandbox, "", &[("apply-defaults", echo)]);
    let call = plugin.apply_defaults(&review(), &Limits::default(), Recorder::default());
    assert_eq!(call.result.unwrap().unwrap(), r#"{"new":1}"#);
}

#[test]
fn too_many_defaults_are_refused_by_the_limits_name() {
    let sandbox = sandbox();
    let much = "(i32.store (i32.const 20) (i32.const 2048)) (i32.store (i32.const 24) (i32.const 2000)) (i32.const 16)";
    let plugin = plugin(&sandbox, "", &[("apply-defaults", much), ("convert", much)]);
    let limits = Limits {
        output_bytes: 1024,
        ..Limits::default()
    };
    let call = plugin.apply_defaults(&review(), &limits, Recorder::default());
    assert!(call.result.unwrap_err().message.contains("limit outputBytes is 1024"));
    let call = plugin.convert("{}", "x.dev/v2", &limits);
    assert!(call.result.unwrap_err().message.contains("limit outputBytes is 1024"));
}

/// Answers of a validator that refuses with so many errors, each of the kind `duplicate`, the path `{}` and the message `{`.
fn refusing(count: usize) -> Result<Result<Vec<String>, Vec<FieldError>>, Failure> {
    let errors: Vec<String> = (0..count)
        .map(|index| {
            let at = 3072 + 20 * index;
            format!(
                "(i32.store8 (i32.const {at}) (i32.const 1))
                 (i32.store (i32.const {}) (i32.const 2064)) (i32.store (i32.const {}) (i32.const 2))
                 (i32.store (i32.const {}) (i32.const 2064)) (i32.store (i32.const {}) (i32.const 1))",
                at + 4,
                at + 8,
                at + 12,
                at + 16
            )
        })
        .collect();
    let body = format!("{} {}", errors.concat(), list(1, count));
    let sandbox = sandbox();
    let plugin = plugin(&sandbox, "", &[("validate", &body), ("apply-defaults", &body)]);
    let validated = plugin.validate(&review(), &Limits::default(), Recorder::default());
    let defaulted = plugin.apply_defaults(&review(), &Limits::default(), Recorder::default());
    // Defaulters refuse in the same words.
    assert_eq!(
        validated.result.clone().map(Result::err),
        defaulted.result.map(Result::err)
    );
    validated.result
}

#[test]
fn each_error_of_a_refusal_has_its_field() {
    let error = FieldError {
        kind: FieldErrorKind::Duplicate,
        path: "{}".to_owned(),
        message: "{".to_owned(),
    };
    assert_eq!(refusing(2).unwrap().unwrap_err(), [error.clone(), error]);
}

#[test]
fn a_refusal_without_a_word_is_the_guests_fault() {
    let failure = refusing(0).unwrap_err();
    assert_eq!((failure.blame, failure.reason), (Blame::Guest, Reason::InvalidAnswer));
}

#[test]
fn of_very_many_errors_the_rest_is_counted() {
    let errors = refusing(70).unwrap().unwrap_err();
    assert_eq!(errors.len(), 65);
    assert_eq!(errors[64].message, "and 6 more errors");
}

#[test]
fn reads_at_admission_are_answered_and_recorded() {
    let sandbox = sandbox();
    let body = format!(
        "(call $get (i32.const 0) (i32.const 0) (i32.const 2064) (i32.const 2) (i32.const 2064) (i32.const 1)
            (i32.const 1) (i32.const 2064) (i32.const 2) (i32.const 2064) (i32.const 2) (i32.const 512))
         (i64.store (i32.const 3072) (i64.load (i32.const 516))) {}",
        list(0, 1)
    );
    let plugin = plugin(&sandbox, GET, &[("validate", &body)]);
    let imports = Recorder {
        answer: Some("[1]".to_owned()),
        ..Recorder::default()
    };
    let call = plugin.validate(&review(), &Limits::default(), imports);
    assert_eq!(call.result.unwrap().unwrap(), ["[1]"]);
    assert_eq!(call.imports.gets, ["{} { {}/{}"]);
    assert_eq!((call.usage.reads, call.usage.read_bytes), (1, 3));
}

#[test]
fn an_unanswerable_read_ends_the_call_with_its_reason() {
    let sandbox = sandbox();
    let body = "
        (call $get (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 512))
        (i32.const 16)";
    let plugin = plugin(&sandbox, GET, &[("validate", body), ("finalize", body)]);
    let failure = Failure::cluster(Reason::NotSynced, "not yet").retry(Retry::Change);
    let imports = || Recorder {
        failure: Some(failure.clone()),
        ..Recorder::default()
    };
    let call = plugin.validate(&review(), &Limits::default(), imports());
    assert_eq!(call.result.unwrap_err(), failure);
    let call = plugin.finalize(&request("{}"), &Limits::default(), imports());
    assert_eq!(call.result.unwrap_err(), failure);
}

#[test]
fn the_time_limit_and_trap_blame_hold_for_every_interface() {
    let sandbox = sandbox();
    let limits = Limits {
        call_milliseconds: 20,
        ..Limits::default()
    };
    let failures = |body: &str| {
        let bodies = ["finalize", "apply-defaults", "validate", "convert"].map(|name| (name, body));
        let plugin = plugin(&sandbox, "", &bodies);
        [
            plugin
                .finalize(&request("{}"), &limits, Recorder::default())
                .result
                .unwrap_err(),
            plugin
                .apply_defaults(&review(), &limits, Recorder::default())
                .result
                .unwrap_err(),
            plugin
                .validate(&review(), &limits, Recorder::default())
                .result
                .unwrap_err(),
            plugin.convert("{}", "x.dev/v2", &limits).result.unwrap_err(),
        ]
    };
    for failure in failures("(loop $on (br $on)) (i32.const 16)") {
        assert_eq!((failure.blame, failure.reason), (Blame::Guest, Reason::GuestLimit));
        assert!(failure.message.contains("limit callMilliseconds is 20"), "{failure}");
    }
    for failure in failures("unreachable") {
        assert_eq!((failure.blame, failure.reason), (Blame::Guest, Reason::GuestTrap));
    }
}

#[test]
fn an_object_is_converted_or_the_guest_says_why_not() {
    let sandbox = sandbox();
    let version = |case: u32| {
        format!(
            "(i32.store8 (i32.const 16) (i32.const {case})) (i32.store (i32.const 20) (local.get $version))
             (i32.store (i32.const 24) (local.get $version_length)) (i32.const 16)"
        )
    };
    for case in [0, 1] {
        let plugin = plugin(&sandbox, "", &[("convert", &version(case))]);
        let converted = plugin.convert("{}", "x.dev/v2", &Limits::default()).result.unwrap();
        let expected = "x.dev/v2".to_owned();
        assert_eq!(converted, if case == 0 { Ok(expected) } else { Err(expected) });
    }
}

#[test]
fn a_conversion_may_ask_nothing() {
    let sandbox = sandbox();
    let body = "(drop (call $now (i64.const 1))) (i32.const 16)";
    let plugin = plugin(&sandbox, CLOCK_NOW, &[("convert", body)]);
    let failure = plugin.convert("{}", "x.dev/v2", &Limits::default()).result.unwrap_err();
    assert_eq!((failure.blame, failure.reason), (Blame::Guest, Reason::InvalidAnswer));
}

#[test]
fn an_interface_that_is_not_exported_is_named() {
    let sandbox = sandbox();
    let plugin = sandbox.guest(&module("", "(i32.const 16)"));
    let limits = Limits::default();
    let failures = [
        (
            "finalizer",
            plugin
                .finalize(&request("{}"), &limits, Recorder::default())
                .result
                .unwrap_err(),
        ),
        (
            "defaulter",
            plugin
                .apply_defaults(&review(), &limits, Recorder::default())
                .result
                .unwrap_err(),
        ),
        (
            "validator",
            plugin
                .validate(&review(), &limits, Recorder::default())
                .result
                .unwrap_err(),
        ),
        (
            "converter",
            plugin.convert("{}", "x.dev/v2", &limits).result.unwrap_err(),
        ),
    ];
    for (interface, failure) in failures {
        assert_eq!(failure.blame, Blame::Host);
        assert!(failure.message.contains(interface), "{failure}");
    }
}
