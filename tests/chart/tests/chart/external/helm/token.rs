//! Tokens of ServiceAccounts last an hour or less: a host reads the file again into which the kubelet writes the next one,
//! and says what to do where its only token is valid no more.

use std::fs;

use serde_json::json;

use super::bench::{Bench, app_service, until};

/// Log texts when a token is no longer valid.
const REFUSED: [&str; 2] = [
    "the API server does not accept the host's credentials (401 Unauthorized); renew the token or the certificate of this user",
    "user=\"pod\"",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_token_is_reread_and_an_expired_one_reported() {
    let bench = Bench::new().await;
    bench
        .helm()
        .install(&json!({"host": {"logFormat": "text"}, "replicas": 1}))
        .unwrap();
    bench.install_plugin("app-service").await;
    let first = bench.token("first").await;
    let file = bench.folder.file("token", &first);
    let kubeconfig = bench.kubeconfig("file.yaml", &json!({"tokenFile": file}));
    let running = bench.start(&kubeconfig).await;
    bench.apply(&app_service("before")).await;
    bench.is_reconciled(&app_service("before"), &running).await;

    // Another one takes its place, as the kubelet does it.
    let second = bench.token("second").await;
    fs::write(bench.folder.path("next"), &second).unwrap();
    fs::rename(bench.folder.path("next"), &file).unwrap();
    bench.ends("first", &first).await;
    bench.apply(&app_service("after")).await;
    bench.is_reconciled(&app_service("after"), &running).await;

    // It ends, and no other one comes.
    let said = running.process.lines(&REFUSED).len();
    bench.ends("second", &second).await;
    bench.apply(&app_service("late")).await;
    let is_said = async || running.process.lines(&REFUSED).len() > said;
    until("the log says what to renew", is_said, || running.process.log()).await;

    // It comes after all, and nothing has to be started again.
    fs::write(&file, bench.token("third").await).unwrap();
    bench.is_reconciled(&app_service("late"), &running).await;
    running.stop().await;
}
