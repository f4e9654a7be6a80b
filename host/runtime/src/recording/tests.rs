//! Who is recorded, for how long, and how much is kept.

use pilothouse_core::recording::{RecordedOutcome, RecordedRequest};

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
async fn only_the_calls_that_were_asked_for_are_recorded_until_there_are_enough() {
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
async fn what_finds_no_room_is_counted_and_a_call_is_kept_whole_or_not_at_all() {
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
async fn a_recording_that_nobody_asks_for_is_forgotten_and_there_are_four_at_most() {
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
