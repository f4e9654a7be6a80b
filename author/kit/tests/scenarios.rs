//! Tests that scenarios fail when they must and hold when they may, with a small host whose faults are known.

mod mirror;

use std::path::Path;

use mirror::{Fault, Mirror};
use pilothouse_testkit::{
    cluster::Cluster,
    scenario::{Scenario, run},
};

const STORY: &str = include_str!("stories/mirror.yaml");
const WORKLOADS: &str = include_str!("stories/workloads.yaml");
const CLAIMS: &str = include_str!("stories/claims.yaml");
const NEVER: &str = include_str!("stories/never.yaml");

/// Runs a story, and returns its failure; none when it holds.
async fn tell(cluster: &Cluster, story: &str, fault: Fault) -> Option<String> {
    let scenario = Scenario::parse(Path::new("mirror.yaml"), story).expect("a scenario");
    let result = run(&scenario, cluster, &mut Mirror::new(fault)).await;
    result.err().map(|error| error.to_string())
}

async fn assert_fails(cluster: &Cluster, story: &str, fault: Fault, words: &[&str]) {
    let said = tell(cluster, story, fault).await.expect("the story does not hold");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in:\n{said}");
    }
}

/// Makes a test of each function for each cluster.
macro_rules! on_both_clusters {
    ($($name:ident,)*) => {
        mod simulated {
            use super::*;

            $(#[tokio::test]
            async fn $name() {
                super::$name(&Cluster::simulated()).await;
            })*
        }

        mod real {
            use super::*;

            $(#[tokio::test]
            async fn $name() {
                if let Some(cluster) = Cluster::real_if_possible().await {
                    super::$name(&cluster.expect("the control plane starts")).await;
                }
            })*
        }
    };
}

on_both_clusters! {
    a_scenario_that_holds_runs_to_its_end,
    a_wait_that_times_out_shows_the_diff_and_the_hosts_log,
    a_host_that_writes_on_every_look_is_found_out,
    a_host_that_ends_by_itself_is_noticed_at_once,
    a_host_that_leaves_something_behind_fails_the_scenario,
    an_expected_refusal_must_come_with_the_expected_words,
    a_mistyped_field_in_a_manifest_is_an_error,
    an_expectation_must_hold_for_its_whole_time,
    a_foreign_finalizer_that_is_left_is_named,
    workloads_become_available_fail_and_complete,
    a_stateful_set_has_claims_that_go_with_it,
    nothing_becomes_ready_where_the_scenario_says_so,
}

fn story(steps: &str) -> String {
    let begin = "about: a test\nplugins: []\nsteps:\n  - apply:\n      objects:\n        - \
                 {apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {mirror: \"yes\"}}, data: {x: \"1\"}}\n";
    format!("{begin}{steps}")
}

async fn a_scenario_that_holds_runs_to_its_end(cluster: &Cluster) {
    assert_eq!(tell(cluster, STORY, Fault::None).await, None);
}

async fn a_wait_that_times_out_shows_the_diff_and_the_hosts_log(cluster: &Cluster) {
    let steps = "  - name: the copy is wrong
    wait:
      until: [{object: {apiVersion: v1, kind: ConfigMap, name: a-copy}, matches: {data: {x: \"2\"}}}]
      within: 2s
";
    let words = [
        "mirror.yaml:7: step 2 (the copy is wrong)",
        "after 2 s this does not hold:",
        ".data.x: expected \"2\", found \"1\"",
        "-  x: \"1\"",
        "+  x: \"2\"",
        "The host's last lines:\ncopied a",
    ];
    assert_fails(cluster, &story(steps), Fault::None, &words).await;
}

async fn a_host_that_writes_on_every_look_is_found_out(cluster: &Cluster) {
    let steps = "  - {wait: {until: [{object: {apiVersion: v1, kind: ConfigMap, name: a-copy}}]}}\n";
    for after in ["resync", "restart"] {
        let steps = format!("{steps}  - expectWrites: {{after: {after}}}\n");
        let after = format!("after a {after}, found 1:");
        assert_fails(
            cluster,
            &story(&steps),
            Fault::WritesAlways,
            &[&after, "patch configmaps", "by pilothouse/mirror"],
        )
        .await;
    }
}

async fn a_host_that_ends_by_itself_is_noticed_at_once(cluster: &Cluster) {
    let steps = "  - wait: {until: [{object: {apiVersion: v1, kind: ConfigMap, name: never}}], within: 10m}\n";
    assert_fails(
        cluster,
        &story(steps),
        Fault::Ends,
        &["the host ended by itself", "step 2"],
    )
    .await;
}

async fn a_host_that_leaves_something_behind_fails_the_scenario(cluster: &Cluster) {
    assert_fails(
        cluster,
        &story(""),
        Fault::LeavesTasks,
        &["did not end in order: a task was left"],
    )
    .await;
}

async fn an_expected_refusal_must_come_with_the_expected_words(cluster: &Cluster) {
    let refused = |words: &str| {
        story(&format!(
            "  - apply:\n      objects: [{{apiVersion: v1, kind: ConfigMap, metadata: {{name: A_B}}}}]\n      refused: {words}\n"
        ))
    };
    assert_eq!(tell(cluster, &refused("RFC 1123"), Fault::None).await, None);
    assert_fails(
        cluster,
        &refused("something else"),
        Fault::None,
        &["expected a refusal with \"something else\"", "RFC 1123"],
    )
    .await;
    let accepted = "  - {apply: {objects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}], refused: no}}\n";
    assert_fails(
        cluster,
        &story(&accepted.replace("no}", "\"no\"}")),
        Fault::None,
        &["the server accepted it"],
    )
    .await;
}

async fn a_mistyped_field_in_a_manifest_is_an_error(cluster: &Cluster) {
    let steps = "  - {apply: {objects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: b}, dta: {x: y}}]}}\n";
    assert_fails(cluster, &story(steps), Fault::None, &["apply ConfigMap b:", "dta"]).await;
}

async fn an_expectation_must_hold_for_its_whole_time(cluster: &Cluster) {
    let steps = "  - {wait: {until: [{object: {apiVersion: v1, kind: ConfigMap, name: a-copy}}]}}
  - {delete: {object: {apiVersion: v1, kind: ConfigMap, name: a-copy}}}
  - {expect: {that: [{object: {apiVersion: v1, kind: ConfigMap, name: a-copy}, absent: true}], during: 10s}}
";
    assert_fails(
        cluster,
        &story(steps),
        Fault::None,
        &["step 4", "this does not hold", "expected it to be absent"],
    )
    .await;
}

async fn a_foreign_finalizer_that_is_left_is_named(cluster: &Cluster) {
    let held = "about: a test\nplugins: []\nsteps:\n  - apply:\n      objects:\n        - \
                {apiVersion: v1, kind: ConfigMap, metadata: {name: a, finalizers: [else.dev/hold]}}\n";
    let words = ["  ConfigMap a: else.dev/hold\n", "in a last step", "finalizers: null"];
    assert_fails(cluster, held, Fault::None, &words).await;
    let released = "  - patch: {object: {apiVersion: v1, kind: ConfigMap, name: a}, type: merge, body: {metadata: {finalizers: null}}}\n";
    assert_eq!(tell(cluster, &format!("{held}{released}"), Fault::None).await, None);
}

async fn workloads_become_available_fail_and_complete(cluster: &Cluster) {
    assert_eq!(tell(cluster, WORKLOADS, Fault::None).await, None);
}

async fn a_stateful_set_has_claims_that_go_with_it(cluster: &Cluster) {
    assert_eq!(tell(cluster, CLAIMS, Fault::None).await, None);
}

async fn nothing_becomes_ready_where_the_scenario_says_so(cluster: &Cluster) {
    assert_eq!(tell(cluster, NEVER, Fault::None).await, None);
}

#[test]
fn every_scenario_of_the_repository_can_be_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios");
    let plugins = std::fs::read_dir(&folder).expect("the scenarios are there");
    for plugin in plugins {
        let scenarios = Scenario::read_folder(&plugin.expect("a folder").path());
        assert!(!scenarios.expect("its scenarios can be read").is_empty());
    }
}
