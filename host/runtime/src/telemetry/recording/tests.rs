//! Tests of recordings: the recorded calls, their duration, and the limits.

use pilothouse_core::recording::{RecordedOutcome, RecordedRequest};
use pilothouse_sandbox::PluginComponent;

use super::*;
use crate::test_support::*;

fn question(object: Option<&str>) -> RecordingQuestion {
    RecordingQuestion {
        plugin: "plugin".to_owned(),
        object: object.map(|object| (primary_kind(), name(object))),
        within: Duration::from_mins(1),
        count: 3,
    }
}

async fn lane() -> (TestHost, Arc<Lane>) {
    let host = TestHost::new().await;
    let lane = host.put(host.lane("plugin", controller(&["read"])));
    (host, lane)
}

fn begin(recordings: &Recordings, id: &str, lane: &Arc<Lane>, object: Option<&str>) -> RecordingProgress {
    let begun = "2026-01-02T03:04:05Z".to_owned();
    recordings.begin(id, question(object), lane.clone(), begun).unwrap()
}

/// A call about an object, with a read of so many bytes; whether it was wanted.
fn call(recordings: &Recordings, lane: &Arc<Lane>, object: &str, bytes: usize) -> bool {
    let Some(mut recorder) = recordings.recorder(lane, &name(object), 7) else {
        return false;
    };
    let found = json_text(bytes);
    recorder.get(&child_kind(), Some("a"), "c", &Ok(Some(found)));
    let input = RecordedInput::Reconcile(RecordedRequest {
        object: Tree::read("{}"),
        configuration: Tree::read("{}"),
        attempt: 0,
    });
    let usage = Usage::default();
    recorder.ended(input, RecordedAnswer::Outcome(RecordedOutcome::default()), &usage);
    true
}

fn json_text(bytes: usize) -> String {
    serde_json::json!({"data": "x".repeat(bytes)}).to_string()
}

#[tokio::test(start_paused = true)]
async fn only_requested_calls_are_recorded_up_to_the_count() {
    let (_host, lane) = lane().await;
    let recordings = Recordings::new(true);
    assert!(!call(&recordings, &lane, "p", 1), "nobody has asked");
    begin(&recordings, "1", &lane, Some("p"));
    assert!(call(&recordings, &lane, "p", 1));
    assert!(!call(&recordings, &lane, "q", 1), "another object");
    assert!(call(&recordings, &lane, "p", 1) && call(&recordings, &lane, "p", 1));
    assert!(!call(&recordings, &lane, "p", 1), "three are enough");
    let progress = begin(&recordings, "1", &lane, Some("p"));
    assert!(progress.is_over && progress.calls == 3, "{progress:?}");
    assert!(matches!(
        recordings.finish("1", &question(Some("q"))),
        Err(RecordingError::Taken)
    ));
    let (lines, _) = recordings.finish("1", &question(Some("p"))).unwrap();
    let lines: Vec<Line> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(matches!(&lines[0], Line::Recording(header) if header.plugin == "plugin" && header.format == FORMAT));
    let numbers = lines.iter().filter_map(|line| match line {
        Line::Call(call) => Some(call.number),
        _ => None,
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 2, 3]);
    assert!(matches!(lines.last(), Some(Line::End(end)) if end.calls == 3 && end.dropped == 0));
    assert!(matches!(
        recordings.finish("1", &question(Some("p"))),
        Err(RecordingError::Unknown)
    ));
    assert!(!call(&recordings, &lane, "p", 1), "it is over");
}

#[tokio::test(start_paused = true)]
async fn a_call_is_recorded_whole_or_counted_as_dropped() {
    let (_host, lane) = lane().await;
    let recordings = Recordings::new(true);
    begin(&recordings, "1", &lane, None);
    assert!(call(&recordings, &lane, "p", MOST_CALL_BYTES) && call(&recordings, &lane, "p", 1));
    let progress = begin(&recordings, "1", &lane, None);
    assert_eq!((progress.calls, progress.dropped), (1, 1));
    assert!(progress.bytes < 1000, "{progress:?}");
    let (lines, _) = recordings.finish("1", &question(None)).unwrap();
    assert_eq!(lines.len(), 3);
    assert!(lines[2].contains(r#""dropped":1"#), "{}", lines[2]);
}

#[tokio::test(start_paused = true)]
async fn at_most_four_recordings_and_an_abandoned_one_is_dropped() {
    let (_host, lane) = lane().await;
    let recordings = Recordings::new(true);
    for id in ["1", "2", "3", "4"] {
        begin(&recordings, id, &lane, None);
    }
    let another = |recordings: &Recordings| recordings.begin("5", question(None), lane.clone(), String::new());
    assert!(matches!(another(&recordings), Err(RecordingError::TooMany)));
    tokio::time::advance(ABANDONED_AFTER).await;
    assert!(!call(&recordings, &lane, "p", 1), "all of them are forgotten");
    assert!(another(&recordings).is_ok());
    tokio::time::advance(Duration::from_secs(20)).await;
    assert!(another(&recordings).is_ok_and(|progress| !progress.is_over));
    tokio::time::advance(Duration::from_secs(20)).await;
    assert!(call(&recordings, &lane, "p", 1), "somebody has asked in the meantime");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_was_not_told_to_records_nothing() {
    let (_host, lane) = lane().await;
    let recordings = Recordings::default();
    let refused = recordings.begin("1", question(None), lane.clone(), String::new());
    assert!(matches!(refused, Err(RecordingError::NotAllowed)));
    assert!(matches!(
        recordings.finish("1", &question(None)),
        Err(RecordingError::NotAllowed)
    ));
    assert!(!call(&recordings, &lane, "p", 1));
}

/// Begins a recording of as many calls as there is room for.
fn begin_all(recordings: &Recordings, lane: &Arc<Lane>) -> RecordingQuestion {
    let all = RecordingQuestion {
        count: MOST_CALLS,
        ..question(None)
    };
    let begun = recordings.begin("1", all.clone(), lane.clone(), String::new());
    assert!(begun.is_ok());
    all
}

#[tokio::test(start_paused = true)]
async fn a_recording_is_bounded_and_smaller_calls_still_fit() {
    let (_host, lane) = lane().await;
    let recordings = Recordings::new(true);
    let all = begin_all(&recordings, &lane);
    let large = MOST_CALL_BYTES - 10_000;
    for _ in 0..6 {
        assert!(call(&recordings, &lane, "p", large));
    }
    assert!(call(&recordings, &lane, "p", 1));
    let progress = recordings.begin("1", all, lane.clone(), String::new()).unwrap();
    assert_eq!((progress.calls, progress.dropped), (5, 2), "{progress:?}");
    assert!(progress.bytes <= MOST_BYTES as u64, "{progress:?}");
}

#[tokio::test(start_paused = true)]
async fn each_thing_that_a_call_notes_counts_for_its_bytes() {
    let (_host, lane) = lane().await;
    let recordings = Recordings::new(true);
    let all = begin_all(&recordings, &lane);
    let text = "x".repeat(MOST_CALL_BYTES);
    let list = ListOptions::default();
    let notes: [&dyn Fn(&mut CallRecorder); 5] = [
        &|recorder| recorder.get(&child_kind(), None, "c", &Ok(Some(text.clone()))),
        &|recorder| recorder.list(&child_kind(), &list, &Ok(vec![text.clone()])),
        &|recorder| recorder.log(LogLevel::Info, &text, &[]),
        &|recorder| recorder.log(LogLevel::Info, "", &[("a".to_owned(), text.clone())]),
        // Small ones in great number.
        &|recorder| (0..MOST_CALL_BYTES / 100).for_each(|_| recorder.now(1, 1)),
    ];
    for (number, note) in (1..).zip(notes) {
        let mut recorder = recordings.recorder(&lane, &name("p"), 7).unwrap();
        note(&mut recorder);
        recorder.reached(1, true);
        end(*recorder, "{}");
        let progress = recordings.begin("1", all.clone(), lane.clone(), String::new()).unwrap();
        assert_eq!((progress.calls, progress.dropped), (0, number));
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_recorded_after_the_time_is_over() {
    let (_host, lane) = lane().await;
    let recordings = Recordings::new(true);
    begin(&recordings, "1", &lane, None);
    for _ in 0..2 {
        tokio::time::advance(Duration::from_secs(29)).await;
        assert!(!begin(&recordings, "1", &lane, None).is_over);
    }
    assert!(call(&recordings, &lane, "p", 1));
    tokio::time::advance(Duration::from_secs(3)).await;
    assert!(!call(&recordings, &lane, "p", 1), "a minute is over");
    let progress = begin(&recordings, "1", &lane, None);
    assert!(progress.is_over && progress.calls == 1, "{progress:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_of_another_version_or_of_another_plugin_is_left_out() {
    let (host, lane) = lane().await;
    let recordings = Recordings::new(true);
    begin(&recordings, "1", &lane, None);
    let mut other = host.lane("plugin", controller(&["read"]));
    other.component = PluginComponent::without_code("another version");
    assert_ne!(other.component.digest(), lane.component.digest());
    assert!(call(&recordings, &Arc::new(other), "p", 1));
    let stranger = Arc::new(host.lane("stranger", controller(&["read"])));
    assert!(
        !call(&recordings, &stranger, "p", 1),
        "nobody has asked for that plugin"
    );
    let (lines, progress) = recordings.finish("1", &question(None)).unwrap();
    assert_eq!(progress.calls, 0);
    assert!(lines[1].contains(r#""ofOtherVersions":1"#), "{}", lines[1]);
}

/// Ends a call of `reconcile` that got an empty object and this configuration, and answered with nothing.
fn end(mut recorder: CallRecorder, configuration: &str) {
    let input = RecordedInput::Reconcile(RecordedRequest {
        object: Tree::read("{}"),
        configuration: Tree::read(configuration),
        attempt: 0,
    });
    let outcome = RecordedAnswer::Outcome(RecordedOutcome::default());
    recorder.ended(input, outcome, &Usage::default());
}

#[tokio::test(start_paused = true)]
async fn a_value_that_one_call_knows_is_masked_in_all_lines() {
    let (_host, lane) = lane().await;
    let recordings = Recordings::new(true);
    begin(&recordings, "1", &lane, None);
    let secret = Kind::new("", "v1", "Secret");
    let read = serde_json::json!({"data": {"password": "b3Blbi1zZXNhbWU="}}).to_string();
    for is_read in [false, true] {
        let mut recorder = recordings.recorder(&lane, &name("p"), 7).unwrap();
        recorder.log(LogLevel::Info, "it is open-sesame or configured-token", &[]);
        if is_read {
            recorder.get(&secret, None, "s", &Ok(Some(read.clone())));
        }
        end(*recorder, r#"{"token": "configured-token"}"#);
    }
    let session = recordings.sessions.lock().get("1").unwrap().clone();
    let manifest = serde_json::json!({"version": "open-sesame", "description": "configured-token"});
    let schema = serde_json::json!({"properties": {"token": {"type": "string", "writeOnly": true}}});
    let lines = session.masked([1; KEY_BYTES], &manifest, &schema).unwrap();
    assert_eq!(lines.len(), 4);
    let text = lines.join("\n");
    for value in ["sesame", "configured-token", "b3Blbi1zZXNhbWU"] {
        assert!(!text.contains(value), "{value}: {text}");
    }
    assert!(lines[3].contains(r#""masked":true"#), "{}", lines[3]);
}

#[tokio::test(start_paused = true)]
async fn calls_that_end_together_are_no_more_than_were_asked_for() {
    let (_host, lane) = lane().await;
    let recordings = Recordings::new(true);
    begin(&recordings, "1", &lane, None);
    let recorders: Vec<_> = (0..5)
        .filter_map(|_| recordings.recorder(&lane, &name("p"), 7))
        .collect();
    assert_eq!(recorders.len(), 5, "none of them has ended yet");
    for recorder in recorders {
        end(*recorder, "{}");
    }
    assert_eq!(begin(&recordings, "1", &lane, None).calls, 3);
}
