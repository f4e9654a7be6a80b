//! Recordings that cannot be replayed, and the words for each.

mod isolated {
    use std::fs;

    use pilothouse_core::Limits;
    use pilothouse_core::recording::{FORMAT, Header, Line, Trailer};
    use serde_json::{Value, json};

    use super::super::program::{Folder, component, ended};

    fn header() -> Header {
        Header {
            format: FORMAT.to_owned(),
            contract: "0.1.0".to_owned(),
            plugin: "gate".to_owned(),
            version: "0.1.0".to_owned(),
            digest: format!("sha256:{}", "0".repeat(64)),
            component: component("gate"),
            begun: "2026-01-02T03:04:05Z".to_owned(),
            limits: Limits::default(),
            manifest: Value::Null,
        }
    }

    /// A recording with these lines of calls.
    fn recording(header: &Header, calls: &[Value]) -> String {
        let mut lines = vec![serde_json::to_string(&Line::Recording(Box::new(header.clone()))).unwrap()];
        lines.extend(calls.iter().map(ToString::to_string));
        let trailer = Trailer {
            calls: calls.len() as u64,
            ..Trailer::default()
        };
        lines.push(serde_json::to_string(&Line::End(trailer)).unwrap());
        lines.join("\n") + "\n"
    }

    fn get(namespace: &str, name: &str) -> Value {
        let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
        json!({"get": {"kind": kind, "namespace": namespace, "name": name, "answer": null}})
    }

    /// A review of a gate that asks for leave.
    fn call(reads: &Value, answer: &Value) -> Value {
        let kind = json!({"group": "gate.test.dev", "version": "v1", "kind": "Gate"});
        let object = json!({"apiVersion": "gate.test.dev/v1", "kind": "Gate",
            "metadata": {"name": "g", "namespace": "shop"}, "spec": {"size": 1, "behaviour": "ask-leave"}});
        json!({"call": {"number": 1, "controller": "gates", "kind": kind, "namespace": "shop", "name": "g", "time": 0,
            "input": {"validate": {"phase": "create", "object": object, "configuration": {}}},
            "reads": reads, "answer": answer, "usage": {}}})
    }

    /// The exit code, and what is said on standard error.
    fn refused(arguments: &[&str]) -> (i32, String) {
        let (code, _, said) = ended(arguments);
        (code, said)
    }

    /// Returns the error of a file.
    fn said(content: &str) -> String {
        let folder = Folder::new();
        let file = folder.file("calls.jsonl", content);
        let (code, said) = refused(&["replay", &file, "--component", &component("gate")]);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains(&file), "it names the file: {said}");
        said
    }

    #[test]
    fn an_unreadable_recording_is_refused_with_cause_and_next_step() {
        let good = recording(&header(), &[call(&json!([]), &json!({"valid": []}))]);
        let other = |change: fn(&mut Header)| {
            let mut header = header();
            change(&mut header);
            recording(&header, &[])
        };
        let without_end: Vec<&str> = good.lines().take(2).collect();
        let second = good.match_indices('\n').nth(1).unwrap().0;
        let cut = &good[..second - 40];
        let cut_header = &good[..100];
        let fewer = good.replace("\"calls\":1", "\"calls\":2");
        let cases = [
            ("", "is empty; record again"),
            ("\n\n", "is empty; record again"),
            (
                "apiVersion: v1\nkind: Secret\n",
                "is no recording: its first line is \"apiVersion: v1\"",
            ),
            ("{}\n", "is no recording"),
            (
                &other(|it| "pilothouse.dev/recording/v9".clone_into(&mut it.format)),
                "has the format \"pilothouse.dev/recording/v9\"",
            ),
            (
                &other(|it| "0.2.0".clone_into(&mut it.contract)),
                "is of version 0.2.0 of the contract pilothouse:plugin",
            ),
            (&without_end.join("\n"), "is not whole: its last line"),
            (cut, "is not whole: line 2 ends in the middle"),
            (cut_header, "is not whole: its first line ends in the middle"),
            (&fewer, "is not whole: it should have 2 calls and has 1"),
            (&good.replace("\"validate\"", "\"valuate\""), "line 2 of the recording"),
            (&format!("{good}{{\"end\": {{}}}}\n"), "it comes after the end"),
        ];
        for (content, expected) in cases {
            let said = said(content);
            assert!(said.contains(expected), "{expected}: {said}");
            assert!(
                said.contains("record again") || said.contains("pilothouse record"),
                "a next step: {said}"
            );
        }
        let (code, said) = refused(&["replay", "/nowhere/calls.jsonl"]);
        assert!(
            code == 1 && said.contains("cannot read the recording /nowhere/calls.jsonl"),
            "{said}"
        );
    }

    #[test]
    fn without_a_component_the_recorded_one_has_to_be_there() {
        let folder = Folder::new();
        let file = folder.file("other.jsonl", recording(&header(), &[]));
        let (code, said) = refused(&["replay", &file]);
        assert_eq!(code, 1);
        assert!(
            said.contains("is now sha256:") && said.contains("give it with --component"),
            "{said}"
        );
        let mut gone = header();
        gone.component = "/plugins/gate.wasm".to_owned();
        let file = folder.file("gone.jsonl", recording(&gone, &[]));
        let (code, said) = refused(&["replay", &file]);
        assert_eq!(code, 1);
        assert!(
            said.contains("there is no such file here; give the component with --component"),
            "{said}"
        );
        let (code, said) = refused(&["replay", &file, "--component", "/nowhere.wasm"]);
        assert!(code == 1 && said.contains("/nowhere.wasm"), "{said}");
        let text = folder.file("text.wasm", "no component");
        let (code, said) = refused(&["replay", &file, "--component", &text]);
        assert!(code == 1 && said.contains("text.wasm"), "{said}");
    }

    #[test]
    fn an_unrecorded_read_is_a_difference_and_answered_as_absent() {
        let folder = Folder::new();
        let gate = component("gate");
        let refusal = json!({"invalid": [{"kind": "Forbidden", "path": "spec.behaviour", "message": "there is no ConfigMap leave"}]});
        let replay = |name: &str, reads: &Value| {
            let file = folder.file(name, recording(&header(), &[call(reads, &refusal)]));
            let (code, printed, _) = ended(&["replay", &file, "--component", &gate]);
            (code, printed)
        };
        let (code, printed) = replay("recorded.jsonl", &json!([get("shop", "leave")]));
        assert_eq!((code, &*printed), (0, "1 calls replayed, 0 with differences\n"));
        // A list of the namespace says as well that there is none.
        let list = json!({"list": {"kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "namespace": "shop", "answer": []}});
        assert_eq!(replay("listed.jsonl", &json!([list])).0, 0);
        let (code, printed) = replay("unrecorded.jsonl", &json!([get("shop", "other")]));
        assert_eq!(code, 3, "{printed}");
        assert!(
            printed.contains("reads v1 ConfigMap shop/leave, which the recording does not have; it was answered as if it did not exist"),
            "{printed}"
        );
        // What it may not read ends the call, as it does in the host.
        let mut elsewhere = call(&json!([]), &refusal);
        elsewhere["call"]["namespace"] = json!("elsewhere");
        let file = folder.file("elsewhere.jsonl", recording(&header(), &[elsewhere]));
        let (code, printed, _) = ended(&["replay", &file, "--component", &gate]);
        assert!(code == 3 && printed.contains("Undeclared"), "{printed}");
    }

    #[test]
    fn a_component_without_the_controller_or_the_interface_differs() {
        let folder = Folder::new();
        let file = folder.file(
            "calls.jsonl",
            recording(
                &header(),
                &[call(&json!([get("shop", "leave")]), &json!({"valid": []}))],
            ),
        );
        let (code, printed, _) = ended(&["replay", &file, "--component", &component("app-service")]);
        assert!(
            code == 3 && printed.contains("has no controller for gate.test.dev/v1 Gate"),
            "{printed}"
        );
        assert!(fs::read_to_string(&file).is_ok());
    }
}
