//! Tokens of ServiceAccounts last an hour or less: a host reads the file again into which the kubelet writes the next one,
//! and says what to do where its only token is valid no more.

use std::fs;

use serde_json::json;

use super::bench::{Bench, app_service, secret, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_exchanged_in_its_file_is_read_again_and_one_that_has_expired_is_reported() {
    let bench = Bench::new().await;
    bench.helm().install(&json!({"host": {"logFormat": "text"}, "replicas": 1})).unwrap();
    bench.install_plugin("app-service").await;
    let file = bench.folder.file("token", bench.token("first").await);
    let kubeconfig = bench.kubeconfig("file.yaml", &json!({"tokenFile": file}));
    let running = bench.start(&kubeconfig).await;
    bench.apply(&app_service("before")).await;
    bench.is_reconciled(&app_service("before"), &running).await;

    // As the kubelet does it: the new token is there before the old one ends.
    let second = bench.token("second").await;
    fs::write(bench.folder.path("next"), second).unwrap();
    fs::rename(bench.folder.path("next"), &file).unwrap();
    bench.delete(&secret("first")).await;
    bench.apply(&app_service("after")).await;
    bench.is_reconciled(&app_service("after"), &running).await;

    // The token ends, and no other one comes.
    bench.delete(&secret("second")).await;
    bench.apply(&app_service("late")).await;
    let words = [
        "the API server does not accept the host's credentials (401 Unauthorized); renew the token or the certificate of this \
         user",
        "user=\"pod\"",
    ];
    let is_said = async || !running.process.lines(&words).is_empty();
    until("the log says what to renew", is_said, || running.process.log()).await;

    // It comes after all, and nothing has to be started again.
    fs::write(&file, bench.token("third").await).unwrap();
    bench.is_reconciled(&app_service("late"), &running).await;
    running.stop().await;
}
