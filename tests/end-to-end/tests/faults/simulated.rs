//! Faults that the story is run under.

use std::time::Duration;

use pilothouse_simulator::{Fault, Rule};
use tokio::sync::OnceCell;

use crate::course::{play, play_killed};
use crate::outcome::Outcome;

/// The story without faults.
async fn quiet() -> &'static Outcome {
    static QUIET: OnceCell<Outcome> = OnceCell::const_new();
    QUIET
        .get_or_init(async || {
            let outcome = play(Vec::new()).await;
            outcome.is_as(&outcome, "without faults");
            outcome
        })
        .await
}

async fn hold(faults: Vec<(&str, Vec<Rule>)>) {
    let quiet = quiet().await;
    for (fault, rules) in faults {
        play(rules).await.is_as(quiet, fault);
    }
}

fn half(fault: Fault) -> Rule {
    Rule::new(fault).probability(0.5)
}

fn status(code: u16, retry_after: Option<u32>) -> Fault {
    Fault::Status { code, retry_after }
}

/// Between two writes the cluster is the same, and what a dead process knew is lost in any case: there are no more
/// moments than these.
#[tokio::test(start_paused = true)]
async fn a_host_killed_before_any_write_resumes_unchanged() {
    let quiet = quiet().await;
    let mut write = 0;
    while let Some(outcome) = play_killed(write).await {
        outcome.is_as(quiet, &format!("killed before write {write}"));
        write += 1;
    }
    assert!(write > 20, "{write} writes only");
}

#[tokio::test(start_paused = true)]
async fn writes_whose_answers_are_lost_are_not_made_twice() {
    hold(vec![
        ("each second answer to a write is lost", vec![half(Fault::LoseResponse)]),
        ("each second request is not made", vec![half(Fault::Refuse)]),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn every_write_gets_through_to_a_busy_or_overtaken_server() {
    hold(vec![
        ("429 with Retry-After", vec![half(status(429, Some(7)))]),
        ("500", vec![half(status(500, None))]),
        ("503 to most", vec![Rule::new(status(503, None)).probability(0.7)]),
        ("conflicts", vec![half(status(409, None)).writes()]),
        (
            "each takes two seconds",
            vec![Rule::new(Fault::Delay(Duration::from_secs(2)))],
        ),
    ])
    .await;
}

#[tokio::test(start_paused = true)]
async fn broken_lagging_and_silent_watches_miss_nothing() {
    hold(vec![
        ("watches expire", vec![half(Fault::GoneOnWatch)]),
        ("watches are cut", vec![half(Fault::CutWatch { after: 1 })]),
        ("watches are silent", vec![half(Fault::SilentWatch)]),
        (
            "an older state is shown",
            vec![
                half(Fault::Stale { changes: 3 }).times(10),
                half(Fault::CutWatch { after: 2 }),
            ],
        ),
    ])
    .await;
}

/// With one object in a page, each list of two is told so half the time, and begins anew. Who took what is not listed yet for
/// gone would make it once more, and be told that it is there.
#[tokio::test(start_paused = true)]
async fn lists_that_expire_between_pages_miss_nothing_without_a_write() {
    let outcome = play(vec![
        half(Fault::GoneInList),
        Rule::new(Fault::ShortPages { objects: 1 }),
        half(Fault::GoneOnWatch),
    ])
    .await;
    let quiet = quiet().await;
    outcome.is_as(quiet, "lists expire");
    assert_eq!(outcome.writes, quiet.writes, "{}", outcome.log);
}

#[tokio::test(start_paused = true)]
async fn whatever_comes_together_changes_nothing_either() {
    let some = |fault| Rule::new(fault).probability(0.1);
    let all = || {
        vec![
            some(Fault::LoseResponse),
            some(Fault::Refuse),
            some(status(429, Some(3))),
            some(status(503, None)),
            some(status(409, None)).writes(),
            some(Fault::GoneOnWatch),
            some(Fault::GoneInList),
            some(Fault::ShortPages { objects: 1 }),
            some(Fault::CutWatch { after: 1 }),
            some(Fault::Delay(Duration::from_secs(1))),
        ]
    };
    hold(vec![("all of it", all())]).await;
}
