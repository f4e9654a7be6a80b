//! Recording the calls of a plugin on a running host, and replaying them.

use std::fs;
use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use pilothouse_core::recording::{Line, RecordedAnswer, RecordedCall, RecordedInput};
use pilothouse_end_to_end::program::{Folder, component, ended};
use pilothouse_end_to_end::stage::create;
use pilothouse_end_to_end::variants::reworded;
use serde_json::{Value, json};

use super::{AskedHost, api};

/// A Secret's values, none of which may be found anywhere.
const SECRETS: [&str; 4] = [
    "correct-horse-battery",
    "p\"ss/w+rd=ä",
    "line one of it\nline two of it\n",
    "q#!",
];

impl AskedHost {
    /// Records until the command ends, with something that is done meanwhile, again and again.
    async fn record(&self, arguments: &[&str], change: impl AsyncFn(usize)) -> (i32, String) {
        let (host, key) = (format!("http://{}", self.address), self.folder.path("api.key"));
        let mut all: Vec<String> = vec!["record".to_owned()];
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        all.extend(["--host".to_owned(), host, "--api-key-file".to_owned(), key]);
        let recording = tokio::task::spawn_blocking(move || {
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            ended(&all)
        });
        for turn in 0.. {
            if recording.is_finished() {
                break;
            }
            change(turn).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let (code, _, said) = recording.await.unwrap();
        (code, said)
    }
}

fn calls(file: &str) -> Vec<RecordedCall> {
    let text = fs::read_to_string(file).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let call = |line| match line {
        Line::Call(call) => Some(*call),
        Line::Recording(_) | Line::End(_) => None,
    };
    lines.filter_map(call).collect()
}

/// The host with a reader of Secrets, a Secret, and an object that has it read.
async fn reading_host() -> AskedHost {
    let folder = Folder::new();
    let secrets =
        json!({"kind": {"group": "", "version": "v1", "kind": "Secret"}, "access": ["read"], "fields": [".data"]});
    let config = json!({"objects": "reader=it", "touches": [secrets]});
    let config = format!("reader={}", folder.file("reader.json", config.to_string()));
    let more = ["--allow-recording", "--config", &config];
    let mut host = AskedHost::start_with(&["reader"], folder, &more).await;
    host.until("the plugin is ready", &["status"], |document| {
        document["plugins"][0]["ready"] == true
    })
    .await;
    let data: serde_json::Map<String, Value> = (0..)
        .zip(SECRETS)
        .map(|(index, value)| (format!("key{index}"), json!(base64(value))))
        .collect();
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}, "data": data});
    create(host.client(), &secret).await;
    let reads = json!([{"get": {"kind": {"group": "", "version": "v1", "kind": "Secret"}, "namespace": "default", "name": "s"}},
        {"reached": 1}]);
    let metadata = json!({"name": "one", "namespace": "default", "labels": {"reader": "it"},
        "annotations": {"reader.test.dev/reads": reads.to_string()}});
    create(
        host.client(),
        &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
    )
    .await;
    host
}

fn base64(text: &str) -> String {
    let mut encoded = String::new();
    for part in text.as_bytes().chunks(3) {
        let bits = part.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - part.len()));
        for index in 0..4 {
            let sextet = (bits >> (18 - 6 * index)) & 63;
            let letter = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[sextet as usize];
            encoded.push(if index <= part.len() { char::from(letter) } else { '=' });
        }
    }
    encoded
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recording_replays_without_a_difference_and_has_no_secret() {
    let host = reading_host().await;
    let file = host.folder.path("one.recording.jsonl");
    let accounts = api(host.client(), "", "v1", "ServiceAccount");
    let touch = async |turn: usize| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"turn": turn.to_string()}}}));
        accounts.patch("one", &PatchParams::default(), &patch).await.unwrap();
    };
    let arguments = [
        "serviceaccount/one",
        "-n",
        "default",
        "--count",
        "2",
        "--for",
        "30s",
        "-o",
        &file,
    ];
    let (code, said) = host.record(&arguments, touch).await;
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("recorded 2 calls") && said.contains("the values of Secrets are masked"),
        "{said}"
    );
    let text = fs::read_to_string(&file).unwrap();
    for secret in SECRETS {
        let escaped = json!(json!(secret).to_string()).to_string();
        for form in [
            secret.to_owned(),
            base64(secret),
            escaped.trim_matches(['"', '\\']).to_owned(),
        ] {
            assert!(!text.contains(&form), "{form} is in {text}");
        }
    }
    assert!(text.contains("bWFza2VkO") && !text.contains("line two"), "{text}");
    let recorded = calls(&file);
    assert_eq!(recorded.len(), 2);
    assert!(
        recorded
            .iter()
            .all(|call| call.reads.len() == 2 && call.log[0].message == "it reads"),
        "{recorded:?}"
    );

    // The host has read the component from where it still is.
    let (code, printed, said) = ended(&["replay", &file]);
    assert_eq!((code, &*said), (0, ""), "{printed}");
    assert_eq!(printed, "2 calls replayed, 0 with differences\n");
    let (code, printed, said) = ended(&["replay", &file, "--component", &component("reader"), "-o", "json"]);
    assert_eq!(code, 0, "{said}");
    let document: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        (&document["different"], &document["component"]["same"]),
        (&json!(0), &json!(true))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_call_is_recorded_and_another_version_differs() {
    let folder = Folder::new();
    let config = format!("gate={}", folder.file("gate.json", r#"{"finalizer": true}"#));
    let mut host = AskedHost::start_with(&["gate"], folder, &["--allow-recording", "--config", &config]).await;
    host.until("the plugin is ready", &["status"], |document| {
        document["plugins"][0]["ready"] == true
    })
    .await;
    let file = host.folder.path("gate.recording.jsonl");
    let gates = api(host.client(), "gate.test.dev", "v1", "Gate");
    let live_and_die = async |turn: usize| {
        let name = format!("g{turn}");
        let gate = json!({"apiVersion": "gate.test.dev/v1", "kind": "Gate",
            "metadata": {"name": name, "namespace": "default"}, "spec": {"size": 300}});
        create(host.client(), &gate).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        gates.delete(&name, &DeleteParams::default()).await.unwrap();
    };
    let (code, said) = host
        .record(
            &["--plugin", "gate", "--count", "12", "--for", "30s", "-o", &file],
            live_and_die,
        )
        .await;
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains("masked"), "there is nothing to mask: {said}");
    let recorded = calls(&file);
    let made = |function: &str| recorded.iter().filter(|call| call.input.function() == function).count();
    for function in ["apply-defaults", "validate", "reconcile", "finalize"] {
        assert!(made(function) > 0, "{function}: {recorded:?}");
    }
    // An object that goes is finalized with its defaults, and never validated.
    let finalized = recorded.iter().filter_map(|call| match &call.input {
        RecordedInput::Finalize(request) => Some((request.object.value(), &call.answer)),
        _ => None,
    });
    for (object, answer) in finalized {
        assert_eq!(object["spec"]["colour"], "blue");
        assert_eq!(answer, &RecordedAnswer::Done);
    }

    let gate = component("gate");
    let (code, printed, said) = ended(&["replay", &file, "--component", &gate]);
    assert_eq!((code, &*said), (0, ""), "{printed}");
    let other = host.folder.file(
        "other.wasm",
        reworded(&fs::read(&gate).unwrap(), "is much for", "is many for"),
    );
    let (code, printed, said) = ended(&["replay", &file, "--component", &other]);
    assert_eq!(code, 3, "{printed} {said}");
    let different = match made("validate") {
        1 => "1 call differs from the recording\n".to_owned(),
        calls => format!("{calls} calls differ from the recording\n"),
    };
    assert_eq!(said, different);
    assert!(printed.contains("validate of Gate default/g"), "{printed}");
    assert!(
        printed.contains("-- more than 100 is much for a gate\n")
            && printed.contains("+- more than 100 is many for a gate\n"),
        "{printed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_records_only_what_it_was_told_to_and_what_there_is() {
    let mut silent = AskedHost::start(&["app-service"]).await;
    silent.until("it answers", &["status"], |_| true).await;
    let (code, said) = silent.record(&["--plugin", "app-service"], async |_| {}).await;
    assert!(
        code == 1 && said.contains("start it with `pilothouse run --allow-recording`"),
        "{said}"
    );

    let mut host = AskedHost::start_with(&["app-service"], Folder::new(), &["--allow-recording"]).await;
    host.until("the plugin is ready", &["status"], |document| {
        document["plugins"][0]["ready"] == true
    })
    .await;
    let (code, said) = host.record(&["--plugin", "nobody"], async |_| {}).await;
    assert!(
        code == 1 && said.contains("no plugin nobody runs at this host"),
        "{said}"
    );
    let (code, said) = host.record(&["pod/web"], async |_| {}).await;
    assert!(
        code == 1 && said.contains("no plugin of this host reconciles"),
        "{said}"
    );
    let file = host.folder.path("none.jsonl");
    let arguments = ["--plugin", "app-service", "--for", "1s", "-o", &file];
    let (code, said) = host.record(&arguments, async |_| {}).await;
    assert!(code == 1 && said.contains("no call was made within 1 s"), "{said}");
    let (code, _, said) = ended(&["record"]);
    assert!(code == 2 && said.contains("KIND/NAME"), "{said}");
    let (code, _, said) = ended(&["record", "--plugin", "a", "--for", "2d"]);
    assert!(code == 2 && said.contains("not like 30s"), "{said}");
}
