//! Tests of the places where values of Secrets may occur, and that none of them is left.

use serde_json::json;

use super::*;
use crate::recording::{RecordedAnswer, RecordedInput, RecordedRequest};

const KEY: [u8; KEY_BYTES] = [7; KEY_BYTES];

fn call(object: &Value, kind: &Kind, reads: &Value, answer: &Value) -> RecordedCall {
    let object = Tree::read(&object.to_string());
    let input = RecordedInput::Reconcile(RecordedRequest {
        object,
        configuration: Tree::read("{}"),
        attempt: 0,
    });
    RecordedCall {
        number: 1,
        controller: "c".to_owned(),
        kind: kind.clone(),
        namespace: Some("shop".to_owned()),
        name: "web".to_owned(),
        time: 0,
        input,
        reads: serde_json::from_value(reads.clone()).unwrap(),
        log: Vec::new(),
        answer: serde_json::from_value(answer.clone()).unwrap(),
        usage: crate::recording::RecordedUsage::default(),
    }
}

fn thing() -> Kind {
    Kind::new("x.dev", "v1", "Thing")
}

fn secret(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "shop"}, "data": data})
}

fn get(secret: &Value) -> Value {
    let kind = json!({"group": "", "version": "v1", "kind": "Secret"});
    json!([{"get": {"kind": kind, "namespace": "shop", "name": "s", "answer": secret}}])
}

fn masked(mut call: RecordedCall) -> String {
    let mut masker = Masker::new(KEY);
    masker.learn(&mut call);
    masker.finish().unwrap().mask(&mut call);
    serde_json::to_string(&call).unwrap()
}

/// A call that reads a Secret with one value, and answers with a ConfigMap with this member.
fn answered(value: &[u8], member: &Value) -> String {
    let secret = secret(&json!({"password": STANDARD.encode(value)}));
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": member}});
    let answer = json!({"outcome": {"desired": [{"how": ["owned"], "object": object}]}});
    masked(call(&json!({}), &thing(), &get(&secret), &answer))
}

#[test]
fn a_value_is_masked_where_it_is_written_in_another_way() {
    // With and without padding in base64.
    for value in ["s3cr\"t/päss+wört", "s3cr\"t/päss+wört!"] {
        for written in [
            value.to_owned(),
            format!("postgres://u:{value}@db"),
            STANDARD.encode(value),
            STANDARD_NO_PAD.encode(value),
            URL_SAFE.encode(value),
            URL_SAFE_NO_PAD.encode(value),
            hexadecimal(value.as_bytes()),
            hexadecimal(value.as_bytes()).to_uppercase(),
            percent_encoded(value),
            json!({"inner": value}).to_string(),
        ] {
            let text = answered(value.as_bytes(), &json!(written));
            assert!(!text.contains("s3cr") && !text.contains("wört"), "{written}: {text}");
            assert!(!text.contains(&written), "{written}: {text}");
            assert!(text.contains(&STANDARD.encode(token(&KEY, value.as_bytes()))), "{text}");
        }
    }
}

#[test]
fn what_was_applied_last_is_masked_though_it_is_no_json() {
    let kind = Kind::new("", "v1", "Secret");
    let mut secret = secret(&json!({"a": STANDARD.encode("present")}));
    secret["metadata"]["annotations"] = json!({"tool.dev/last-applied-configuration": "stringData: {a: open-sesame}"});
    let text = masked(call(&secret, &kind, &json!([]), &json!("done")));
    assert!(!text.contains("sesame"), "{text}");
}

#[test]
fn part_of_a_value_is_masked_if_it_is_a_line_or_text_in_json() {
    let text = answered(b"hunter22\n", &json!("hunter22"));
    assert!(!text.contains("hunter22"), "{text}");
    let pem = "-----BEGIN KEY-----\nMIIEvQIBADANBg\n-----END KEY-----\n";
    let text = answered(pem.as_bytes(), &json!("key: |\n  MIIEvQIBADANBg\n"));
    assert!(!text.contains("MIIE"), "{text}");
    let auth = STANDARD.encode("robot:open-sesame");
    let docker = json!({"auths": {"registry": {"auth": auth}}}).to_string();
    let text = answered(docker.as_bytes(), &json!("login with open-sesame"));
    assert!(!text.contains("open-sesame") && !text.contains(&auth), "{text}");
    let text = answered(&[0xff, 0xfe, 0xfd, 0xfc], &json!("//79/A=="));
    assert!(!text.contains("//79"), "{text}");
}

#[test]
fn short_values_are_masked_as_whole_texts_and_not_in_names() {
    let text = answered(b"web", &json!("web"));
    assert!(text.contains(r#""a":"masked:"#), "{text}");
    assert!(text.contains(r#""name":"web""#), "{text}");
    let text = answered(b"web", &json!("a website"));
    assert!(text.contains("a website"), "{text}");
    let text = answered(b"ConfigMap", &json!("x"));
    assert!(
        !text.contains("ConfigMap"),
        "of eight bytes it is masked in names, too: {text}"
    );
    let text = answered(b"5432", &json!(5432));
    assert!(!text.contains("5432"), "{text}");
    assert!(
        serde_json::from_str::<Value>(&text).unwrap()["answer"]["outcome"]["desired"][0]["object"]["data"]["a"]
            .is_u64()
    );
}

#[test]
fn a_secret_is_masked_whether_it_is_given_read_or_desired() {
    let applied = json!({"kubectl.kubernetes.io/last-applied-configuration":
        secret(&json!({"old": STANDARD.encode("earlier-value")})).to_string()});
    let mut given = secret(&json!({"a": STANDARD.encode("given-value")}));
    given["metadata"]["annotations"] = applied;
    let kind = Kind::new("", "v1", "Secret");
    let desired = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "made"},
        "stringData": {"token": "made-value"}, "type": "Opaque"});
    let list = json!({"list": {"kind": {"group": "", "version": "v1", "kind": "Secret"},
        "answer": [secret(&json!({"b": STANDARD.encode("listed-value")}))]}});
    let nested = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"},
        "items": [secret(&json!({"c": STANDARD.encode("nested-value")}))]});
    let answer = json!({"outcome": {
        "desired": [{"how": ["owned"], "object": desired}, {"how": ["owned"], "object": nested}],
        "status": {"said": "given-value, listed-value"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": "earlier-value made-value"}],
        "events": [{"type": "Normal", "reason": "R", "message": "nested-value"}]}});
    let mut call = call(&given, &kind, &json!([list]), &answer);
    call.log = vec![crate::recording::RecordedLog {
        level: "info".to_owned(),
        message: "listed-value".to_owned(),
        fields: vec![("a".to_owned(), "made-value".to_owned())],
    }];
    let text = masked(call);
    for value in ["given", "listed", "made", "nested", "earlier"] {
        let value = format!("{value}-value");
        assert!(!text.contains(&value), "{value}: {text}");
        assert!(!text.contains(&STANDARD.encode(&value)), "{value}: {text}");
    }
    let masked: Value = serde_json::from_str(&text).unwrap();
    let data = masked["input"]["reconcile"]["object"]["data"]["a"].as_str().unwrap();
    let shown = String::from_utf8(STANDARD.decode(data).unwrap()).unwrap();
    assert!(
        shown.starts_with(MASK) && shown.len() == MASK.len() + MASK_DIGITS,
        "{shown}"
    );
    assert_eq!(
        masked["answer"]["outcome"]["status"]["said"]
            .as_str()
            .unwrap()
            .split(", ")
            .next(),
        Some(shown.as_str())
    );
}

#[test]
fn a_secret_in_a_text_is_a_secret() {
    let inner = json!([secret(&json!({"short": STANDARD.encode("q#!")}))]).to_string();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"seen": inner}});
    let answer = json!({"outcome": {"desired": [{"how": ["owned"], "object": object}]}});
    let text = masked(call(&json!({}), &thing(), &json!([]), &answer));
    assert!(!text.contains(&STANDARD.encode("q#!")), "{text}");
    let masked: Value = serde_json::from_str(&text).unwrap();
    let seen = masked["answer"]["outcome"]["desired"][0]["object"]["data"]["seen"]
        .as_str()
        .unwrap();
    assert!(
        seen.starts_with(r#"[{"apiVersion":"v1","data":{"short":"bWFza2Vk"#),
        "{seen}"
    );
}

#[test]
fn a_failure_that_quotes_a_value_is_masked() {
    let secret = secret(&json!({"password": STANDARD.encode("open-sesame")}));
    let failure = json!({"failed": {"blame": "guest", "reason": "Failure", "retry": "change",
        "message": "cannot log in with open-sesame"}});
    let text = masked(call(&json!({}), &thing(), &get(&secret), &failure));
    assert!(!text.contains("sesame"), "{text}");
    assert!(matches!(
        serde_json::from_str::<RecordedCall>(&text).unwrap().answer,
        RecordedAnswer::Failed(_)
    ));
}

#[test]
fn members_that_the_schema_calls_secret_are_masked() {
    let schema = json!({"properties": {
        "token": {"$ref": "#/$defs/Token"},
        "users": {"type": "array", "items": {"properties": {"password": {"type": "string", "format": "password"}}}},
        "url": {"type": "string"}},
        "$defs": {"Token": {"anyOf": [{"type": "string", "writeOnly": true}, {"type": "null"}]}}});
    let configuration = json!({"token": "configured-token", "users": [{"password": "configured-password"}],
        "url": "https://u:configured-password@x"});
    let mut call = call(&json!({}), &thing(), &json!([]), &json!("done"));
    if let RecordedInput::Reconcile(request) = &mut call.input {
        request.configuration = Tree::read(&configuration.to_string());
    }
    let mut masker = Masker::new(KEY);
    masker.learn_configuration(&schema, call.input.configuration());
    masker.finish().unwrap().mask(&mut call);
    let text = serde_json::to_string(&call).unwrap();
    assert!(!text.contains("configured-"), "{text}");
    assert!(text.contains("https://u:masked:"), "{text}");
}

#[test]
fn equal_values_stay_equal_and_another_key_masks_them_otherwise() {
    assert_eq!(token(&KEY, b"a"), token(&KEY, b"a"));
    assert_ne!(token(&KEY, b"a"), token(&KEY, b"b"));
    assert_ne!(token(&KEY, b"a"), token(&[8; KEY_BYTES], b"a"));
    // RFC 4231, test case 1, with the key filled up to 32 bytes, as HMAC does anyway.
    let mut key = [0; KEY_BYTES];
    key[..20].copy_from_slice(&[0x0b; 20]);
    assert_eq!(
        hexadecimal(&hmac(&key, b"Hi There")),
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
    );
}

#[test]
fn a_value_is_masked_in_every_text_of_every_kind_of_call() {
    const VALUE: &str = "open-sesame-123";
    let said = format!("it is {VALUE}!");
    let object = json!({"apiVersion": "x.dev/v1", "kind": "Thing", "metadata": {"name": VALUE, "labels": {(VALUE): VALUE}},
        "spec": [{"deep": said}]});
    let request = json!({"object": object, "configuration": {"a": said}, "attempt": 0});
    let review = json!({"phase": "update", "object": object, "oldObject": object, "configuration": {"a": said},
        "user": {"username": said, "groups": [said]}, "dryRun": false});
    let failure = json!({"blame": "guest", "reason": "Failure", "retry": "change", "message": said});
    let outcome = json!({"desired": [{"how": ["owned"], "object": object, "options": {"a": said}}],
        "status": {"a": said},
        "conditions": [{"type": VALUE, "status": "True", "reason": VALUE, "message": said}],
        "events": [{"type": "Normal", "reason": VALUE, "message": said}]});
    let inputs = [
        json!({"reconcile": request}),
        json!({"finalize": request}),
        json!({"applyDefaults": review}),
        json!({"validate": review}),
    ];
    let answers = [
        json!({"outcome": outcome}),
        json!("done"),
        json!({"defaulted": object}),
        json!({"valid": [said]}),
        json!({"invalid": [{"kind": "Invalid", "path": VALUE, "message": said}]}),
        json!({"failed": failure}),
    ];
    let other = json!({"group": "x.dev", "version": "v1", "kind": "Other"});
    let reads = json!([
        {"get": {"kind": {"group": "", "version": "v1", "kind": "Secret"}, "namespace": VALUE, "name": VALUE,
            "answer": secret(&json!({"password": STANDARD.encode(VALUE)}))}},
        {"get": {"kind": other, "namespace": VALUE, "name": VALUE, "answer": object, "failure": failure}},
        {"list": {"kind": other, "namespace": VALUE, "labelSelector": format!("a={VALUE}"), "fieldSelector": [["a", VALUE]],
            "answer": [object], "failure": failure}}]);
    for input in &inputs {
        for answer in &answers {
            let call = json!({"number": 1, "controller": "c", "kind": thing(), "namespace": VALUE, "name": VALUE, "time": 0,
                "input": input, "reads": reads, "log": [{"level": "info", "message": said, "fields": [[VALUE, said]]}],
                "answer": answer, "usage": {}});
            let written = call.to_string();
            assert!(written.matches(VALUE).count() > 20, "{written}");
            let text = masked(serde_json::from_value(call).unwrap());
            assert!(
                !text.contains("sesame") && !text.contains(&STANDARD.encode(VALUE)),
                "{text}"
            );
        }
    }
}

#[test]
fn a_value_of_seven_bytes_is_masked_in_texts_and_left_in_names() {
    let text = answered(b"sesame7", &json!("it is sesame7!"));
    assert!(!text.contains("sesame7"), "{text}");
    let secret = secret(&json!({"a": STANDARD.encode("sesame7")}));
    let mut call = call(&json!({}), &thing(), &get(&secret), &json!("done"));
    call.name = "sesame7".to_owned();
    call.namespace = Some("sesame-8".to_owned());
    let text = masked(call);
    assert!(
        text.contains(r#""name":"sesame7""#),
        "a name of few bytes is a word: {text}"
    );
}

#[test]
fn secret_is_recognised_by_the_kind_that_was_read() {
    let bare = json!({"data": {"password": STANDARD.encode("q#!")}});
    let text = masked(call(&json!({}), &thing(), &get(&bare), &json!("done")));
    assert!(!text.contains(&STANDARD.encode("q#!")), "{text}");
    let kind = Kind::new("", "v1", "Secret");
    let text = masked(call(&bare, &kind, &json!([]), &json!({"defaulted": bare})));
    assert!(!text.contains(&STANDARD.encode("q#!")), "{text}");
}
