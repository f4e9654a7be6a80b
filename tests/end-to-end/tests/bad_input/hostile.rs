//! Answers that the host or the API server refuses, calls that do not end or end badly: what the object says of it, that
//! it is tried no more often than makes sense, and that its neighbours do not notice.
//!
//! The tables have a line for each behaviour: how often it is tried in a minute in which nothing changes (`once`: only a
//! change can help; `reads`: once more, because a neighbour's child that it reads appears; `again`: with back-off;
//! `child`: once, and its ConfigMap is there nevertheless), and the reason and the message of the condition, with `…` for
//! anything between.

/// Desired objects that the host refuses.
const OBJECTS: &str = "
broken-json             | once  | InvalidAnswer: desired object 0 is not a JSON object: EOF…; fix the plugin
not-an-object           | once  | InvalidAnswer: desired object 0 is not a JSON object: …; fix the plugin
nameless                | once  | InvalidAnswer: desired object 0, a ConfigMap, has no metadata.name…; fix the plugin
kindless                | once  | InvalidAnswer: desired object 0 lacks apiVersion or kind; fix the plugin
undeclared-kind         | once  | Undeclared: …Secret victim…; declare it under touches with access owned
same-name-twice         | once  | InvalidAnswer: desired objects 0 and 1 are both ConfigMap default/victim; fix the plugin
other-namespace         | once  | Undeclared: …Deployment victim…in namespace elsewhere, outside the primary's own namespace default; \
    declare the kind with scope \"Any\"
undeclared-contribution | once  | Undeclared: …ConfigMap victim…; declare it under touches with access contributed
many-objects            | once  | GuestLimit: …limit outputObjects is 10000; fix the plugin, or raise its limit
";

/// Reads that are not declared, or make no sense.
const READS: &str = "
undeclared-read  | once  | Undeclared: …reads v1 Secret, which the manifest does not declare; declare it under touches
undeclared-field | once  | Undeclared: …ConfigMap by .immutable…; declare it under touches
broken-selector  | once  | Invalid: …a in (b…; write it like
many-reads       | once  | GuestLimit: …limit reads is 10000; fix the plugin, or raise its limit
many-finds       | reads | GuestLimit: the plugin reads too …; fix the plugin, or raise its limit
";

/// Objects that the API server refuses, with its messages.
const REFUSED: &str = "
wrong-type        | once  | Refused: cannot create ConfigMap default/victim: …failed to create typed patch object \
    (default/victim; /v1, Kind=ConfigMap): .data.text: expected string…; change the object, or fix the plugin if the value is its own
unknown-field     | once  | Refused: cannot create Deployment default/victim: …failed to create typed patch object \
    (default/victim; apps/v1, Kind=Deployment): .spec.nonsense: field not declared in schema; change the object, or fix the plugin…
invalid-value     | once  | Refused: cannot create Deployment default/victim: …spec.replicas: Invalid value: -1: must be \
    greater than or equal to 0…; change the object, or fix the plugin if the value is its own
invalid-name      | once  | Refused: cannot create ConfigMap default/Not_A_Name!: …a lowercase RFC 1123 subdomain…; change
status-wrong-type | child | Refused: cannot report the status of Hostile default/victim: …status.text…; change the object, or fix the plugin…
";

/// Calls that end badly, or would not end.
const CALLS: &str = "
trap              | once  | GuestTrap: …unreachable…; fix the plugin
panic             | once  | GuestTrap: …; fix the plugin…panicked at…elsewhere
recursion         | once  | GuestTrap: …; fix the plugin
loop              | again | GuestLimit: the plugin took too long: limit callMilliseconds is 100; fix the plugin, or raise
memory-bomb       | once  | GuestLimit: …limit memoryBytes is 33554432; fix the plugin, or raise its limit
huge-output       | once  | GuestLimit: …limit memoryBytes is 33554432; fix the plugin, or raise its limit
transient-failure | again | Failure: elsewhere
permanent-failure | once  | Failure: elsewhere
be-nice           | once  | Failure: the Hostile cannot be read: unknown variant `be-nice`, expected…
";

/// Messages beside the objects.
const WORDS: &str = "
status-not-an-object | once  | InvalidAnswer: the status is not a JSON object: …; fix the plugin
status-broken        | once  | InvalidAnswer: the status is not a JSON object: EOF…; fix the plugin
bad-condition-name   | once  | InvalidAnswer: …condition of type \"not a name!\"…; fix the plugin
same-condition-twice | once  | InvalidAnswer: the answer has condition Behaved twice; fix the plugin
host-condition       | once  | InvalidAnswer: the answer has the condition Reconciled, which is the host's own; fix the plugin
empty-event-reason   | once  | InvalidAnswer: an event has the reason \"\"…; fix the plugin
many-events          | once  | InvalidAnswer: …1000 events; there can be at most 64
requeue-at-once      | once  | InvalidAnswer: requeue-after is 0 ms; it must be between 1 and…; fix the plugin
requeue-never        | once  | InvalidAnswer: requeue-after is 18446744073709551615 ms…; fix the plugin
broken-extensions    | once  | InvalidAnswer: the plugin answers with extensions that are not a JSON object: expected…; fix the plugin
";

/// A line of a table.
#[derive(Clone, Copy, Debug)]
struct Case {
    behaviour: &'static str,
    tries: &'static str,
    says: &'static str,
}

fn cases(tables: &[&'static str]) -> Vec<Case> {
    let lines = tables
        .iter()
        .flat_map(|table| table.lines())
        .filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let columns: Vec<_> = line.splitn(3, '|').map(str::trim).collect();
            let [behaviour, tries, says] = columns[..] else {
                panic!("a case has three columns: {line}")
            };
            Case { behaviour, tries, says }
        })
        .collect()
}

/// Returns `true` if a message has these words in this order, from its beginning, with any text in place of `…`.
fn says(message: &str, words: &str) -> bool {
    let mut rest = message;
    words
        .split('…')
        .enumerate()
        .all(|(position, words)| match rest.find(words) {
            Some(0) => {
                rest = &rest[words.len()..];
                true
            }
            Some(at) if position > 0 => {
                rest = &rest[at + words.len()..];
                true
            }
            _ => false,
        })
}

#[test]
fn words_are_looked_for_in_their_order() {
    assert!(says("a b c", "a…c") && says("a b c", "…b") && says("a b c", "a b"));
    assert!(!says("a b c", "c…a") && !says("a b c", "b") && !says("a b c", "a…d"));
}

mod simulated {
    use pilothouse_core::Limits;
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_runtime::HostOptions;
    use pilothouse_runtime::clock::WallClock;
    use pilothouse_testkit::host::SteeredHost as _;
    use pilothouse_testkit::kstatus::{self, Status};
    use serde_json::{Value, json};

    use super::{CALLS, Case, OBJECTS, READS, REFUSED, WORDS, cases, says};
    use crate::stage::{Stage, app_service, hostile, unhurried};

    /// The same text for all: a message, a namespace, a name, as the behaviour wants.
    fn misbehaving(name: &str, behaviour: &str) -> Value {
        hostile(name, &json!({"behaviour": behaviour, "text": "elsewhere"}))
    }

    fn behaving(name: &str) -> Value {
        hostile(name, &json!({"behaviour": "config-map", "text": "as it should be"}))
    }

    /// Returns the deviations from the case, on a cluster and a host of its own.
    async fn problems(case: &Case) -> Vec<String> {
        let Case {
            behaviour,
            tries,
            says: words,
        } = *case;
        let limits = if behaviour == "loop" {
            Limits::default()
        } else {
            unhurried()
        };
        let stage = Stage::with(&["hostile", "app-service"], limits).await;
        // A definition that the host has just installed may be shown late; what it refused before is sent again then.
        stage.minute().await;
        stage.create(&misbehaving("victim", behaviour)).await;
        stage.create(&behaving("neighbour")).await;
        stage.create(&app_service("web")).await;
        let mut problems = Vec::new();
        let mut check = |holds: bool, problem: String| {
            if !holds {
                problems.push(format!("{behaviour}: {problem}"));
            }
        };

        check(
            stage.neighbours_are_well().await,
            format!("its neighbours are not well:\n{}", stage.lines(&[]).join("\n")),
        );
        let told = |stage: &Stage| {
            let condition = stage.reconciled("Hostile", "victim")?;
            let events = stage.events("victim", "ReconcileFailed");
            (!events.is_empty()).then_some((condition, events))
        };
        let Some((condition, _)) = stage.until(told).await else {
            let condition = stage.reconciled("Hostile", "victim");
            check(
                false,
                format!("no condition and event come; the condition is {condition:?}"),
            );
            return problems;
        };
        let message = condition["message"].as_str().unwrap_or_default();
        check(condition["status"] == "False", format!("the condition is {condition}"));
        let told = format!("{}: {message}", condition["reason"].as_str().unwrap_or_default());
        check(says(&told, words), format!("the condition says: {told}"));
        // What time can help with is tried again; all else is stalled.
        let victim = stage.find("Hostile", "victim").unwrap_or_default();
        let expected = if tries == "again" {
            Status::InProgress
        } else {
            Status::Failed
        };
        let computed = kstatus::compute(&victim).map(|it| it.status);
        check(
            computed == Ok(expected),
            format!("kstatus is {computed:?}, not {expected}"),
        );

        stage.host.settled().await.unwrap();
        let mark = stage.mark();
        stage.minute().await;
        let writes = stage.host_writes_since(mark);
        check(
            writes.is_empty(),
            format!("a minute later there are writes: {writes:?}"),
        );
        let tried = stage.lines(&["reconcile failed", "victim"]).len();
        // Half a second, doubled each time: about eight tries fit into a minute.
        let expected = match tries {
            "again" => 5..=9,
            "reads" => 1..=2,
            _ => 1..=1,
        };
        check(
            expected.contains(&tried),
            format!("it was tried {tried} times, not {expected:?}"),
        );
        let events = stage.events("victim", "ReconcileFailed");
        check(
            events.len() == 1 && events[0]["type"] == "Warning",
            format!("the events are {events:?}"),
        );
        let note = events[0]["message"].as_str().unwrap_or_default();
        check(
            message.lines().collect::<Vec<_>>().join(" ") == note || note.ends_with('…'),
            format!("the event says something else: {note}"),
        );
        let made = ["ConfigMap", "Deployment", "Secret"]
            .iter()
            .any(|kind| stage.find(kind, "victim").is_some());
        check(made == (tries == "child"), format!("that its child is there is {made}"));

        stage.create(&behaving("late")).await;
        let late = stage
            .until(|stage| stage.is_reconciled("Hostile", "late").then_some(()))
            .await;
        check(late.is_some(), "the host does not go on".to_owned());
        stage.stop().await;
        problems
    }

    async fn hold(table: &'static str) {
        let mut all = Vec::new();
        for case in cases(&[table]) {
            all.extend(problems(&case).await);
        }
        assert!(all.is_empty(), "{}", all.join("\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn desired_objects_that_cannot_be_are_refused_by_their_place() {
        hold(OBJECTS).await;
    }

    #[tokio::test(start_paused = true)]
    async fn reads_outside_the_manifest_end_the_call() {
        hold(READS).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_reported_in_the_servers_words_and_not_retried() {
        hold(REFUSED).await;
    }

    #[tokio::test(start_paused = true)]
    async fn failed_calls_are_reported_with_the_limit_or_the_trap() {
        hold(CALLS).await;
    }

    #[tokio::test(start_paused = true)]
    async fn invalid_status_conditions_events_and_times_are_refused() {
        hold(WORDS).await;
    }

    /// The status says since when an object fails: the next failure is another event, in another host, too.
    #[tokio::test(start_paused = true)]
    async fn a_failure_that_was_fixed_and_comes_back_is_a_new_event() {
        let mut stage = Stage::empty(unhurried());
        let options = HostOptions {
            clock: WallClock::starting_at(1_800_000_000_000),
            ..HostOptions::default()
        };
        stage.host = RuntimeHost::new(options.clone(), unhurried());
        let specs = vec![stage.host.spec("hostile").unwrap()];
        stage.start(specs).await;
        stage.host.settled().await.unwrap();
        stage.create(&misbehaving("victim", "trap")).await;
        let events = |stage: &Stage| stage.events("victim", "ReconcileFailed").len();
        for expected in 1..=3 {
            let told = stage.until(|stage| (events(stage) == expected).then_some(())).await;
            assert!(told.is_some(), "{} events, not {expected}", events(&stage));
            stage.minute().await;
            stage.minute().await;
            assert_eq!(events(&stage), expected, "it fails all the time, in the same way");
            if expected == 2 {
                // Another process looks at an object that goes on failing.
                stage.host.stop().await.unwrap();
                stage.host = RuntimeHost::new(options.clone(), unhurried());
                let specs = vec![stage.host.spec("hostile").unwrap()];
                stage.start(specs).await;
                stage.minute().await;
                assert_eq!(events(&stage), expected);
            }
            stage
                .patch_hostile("victim", &json!({"spec": {"behaviour": "config-map"}}))
                .await;
            let fixed = stage
                .until(|stage| stage.is_reconciled("Hostile", "victim").then_some(()))
                .await;
            assert!(fixed.is_some());
            stage.minute().await;
            stage
                .patch_hostile("victim", &json!({"spec": {"behaviour": "trap"}}))
                .await;
        }
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn hostile_plugins_together_do_not_block_the_others() {
        let stage = Stage::with(&["hostile", "app-service"], Limits::default()).await;
        let cases = cases(&[OBJECTS, READS, REFUSED, CALLS, WORDS]);
        for Case { behaviour, .. } in &cases {
            stage.create(&misbehaving(behaviour, behaviour)).await;
        }
        stage.create(&behaving("neighbour")).await;
        stage.create(&app_service("web")).await;
        assert!(stage.neighbours_are_well().await, "{}", stage.lines(&[]).join("\n"));
        let silent = |stage: &Stage| {
            let told = |name: &str| {
                stage
                    .reconciled("Hostile", name)
                    .is_some_and(|it| it["status"] == "False")
            };
            cases
                .iter()
                .map(|case| case.behaviour)
                .filter(|name| !told(name))
                .collect::<Vec<_>>()
        };
        let all_told = stage.until(|stage| silent(stage).is_empty().then_some(())).await;
        assert!(all_told.is_some(), "these say nothing: {:?}", silent(&stage));
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_can_be_cut_short_is_no_failure() {
        for (behaviour, count) in [("memory-growth", 0), ("log-flood", 2000), ("huge-event-message", 0)] {
            let stage = Stage::with(&["hostile"], unhurried()).await;
            stage
                .create(&hostile("victim", &json!({"behaviour": behaviour, "count": count})))
                .await;
            let well = stage
                .until(|stage| stage.is_reconciled("Hostile", "victim").then_some(()))
                .await;
            assert!(
                well.is_some(),
                "{behaviour}: {:?}",
                stage.reconciled("Hostile", "victim")
            );
            assert!(stage.events("victim", "ReconcileFailed").is_empty(), "{behaviour}");
            if behaviour == "huge-event-message" {
                let told = stage.until(|stage| stage.events("victim", "Huge").pop()).await.unwrap();
                assert_eq!(
                    told["message"].as_str().unwrap().len(),
                    1024,
                    "events.k8s.io/v1 allows no more"
                );
            }
            stage.stop().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_transient_failure_is_over_when_a_later_try_succeeds() {
        let stage = Stage::with(&["hostile"], unhurried()).await;
        stage.create(&misbehaving("victim", "fail-at-first")).await;
        let well = stage
            .until(|stage| stage.is_reconciled("Hostile", "victim").then_some(()))
            .await;
        assert!(well.is_some(), "{:?}", stage.reconciled("Hostile", "victim"));
        assert_eq!(stage.events("victim", "ReconcileFailed").len(), 1);
        assert_eq!(stage.lines(&["reconcile failed", "victim"]).len(), 2);
        assert!(stage.find("ConfigMap", "victim").is_some());
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_the_object_ends_a_permanent_failure() {
        let stage = Stage::with(&["hostile"], unhurried()).await;
        stage.create(&misbehaving("victim", "permanent-failure")).await;
        let failed = |stage: &Stage| {
            stage
                .reconciled("Hostile", "victim")
                .filter(|it| it["status"] == "False")
        };
        assert!(stage.until(failed).await.is_some());
        stage
            .patch_hostile("victim", &json!({"spec": {"behaviour": "config-map"}}))
            .await;
        let well = stage
            .until(|stage| stage.is_reconciled("Hostile", "victim").then_some(()))
            .await;
        assert!(well.is_some(), "{:?}", stage.reconciled("Hostile", "victim"));
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_prunes_nothing() {
        let stage = Stage::with(&["hostile"], unhurried()).await;
        stage.create(&behaving("victim")).await;
        let well = stage
            .until(|stage| stage.is_reconciled("Hostile", "victim").then_some(()))
            .await;
        assert!(well.is_some());
        let cases = cases(&[OBJECTS, READS, REFUSED, CALLS, WORDS]);
        for Case { behaviour, .. } in cases.iter().filter(|case| case.tries != "child") {
            stage
                .patch_hostile(
                    "victim",
                    &json!({"spec": {"behaviour": behaviour, "text": "elsewhere"}}),
                )
                .await;
            let failed = |stage: &Stage| {
                let generation = stage.find("Hostile", "victim")?["metadata"]["generation"].clone();
                let condition = stage.reconciled("Hostile", "victim")?;
                (condition["status"] == "False" && condition["observedGeneration"] == generation).then_some(())
            };
            assert!(stage.until(failed).await.is_some(), "{behaviour}");
            let child = stage
                .find("ConfigMap", "victim")
                .unwrap_or_else(|| panic!("{behaviour} pruned the child"));
            assert_eq!(child["data"]["text"], "as it should be", "{behaviour}");
        }
        stage.stop().await;
    }
}
