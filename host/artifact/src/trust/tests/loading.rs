//! Tests of loading a trust file, and of selecting its rules.

use super::*;

fn load(value: &Value) -> Result<TrustPolicy, TrustPolicyError> {
    TrustPolicy::load(value, Path::new("/nonexistent"))
}

#[track_caller]
fn assert_invalid(rule: &Value, part: &str) {
    let good = json!({ "match": "good.example.com/**", "unsigned": true });
    let text = load(&json!({ "repositories": [good, rule] })).unwrap_err().to_string();
    assert!(
        text.contains("repositories[1]") && text.contains(part) && !text.contains('\n'),
        "{text}"
    );
}

#[test]
fn without_a_trust_file_everything_runs_and_is_reported() {
    let policy = TrustPolicy::accept_unsigned();
    assert!(!policy.rule_for(REPOSITORY).unwrap().needs_signature());
    let verify = |signatures: &[_]| policy.verify(REPOSITORY, MANIFEST, signatures).unwrap();
    assert_eq!(verify(&[]).outcome, Outcome::Unsigned);
    let unverified = verify(&[bundle(data!("first.bundle.json")), bundle("")]);
    assert_eq!(unverified.outcome, Outcome::Unverified { signatures: 2 });
    assert!(unverified.rule.contains("no trust file"), "{}", unverified.rule);
    // What is no name is refused nevertheless: nobody can say which rule it would have.
    assert_eq!(
        policy.rule_for("a/../b").unwrap_err().kind(),
        TrustErrorKind::NotAllowed
    );
}

#[test]
fn what_no_rule_matches_is_refused_unless_the_default_accepts() {
    let rules = json!([{ "match": "registry.example.com/**", "unsigned": true }]);
    for file in [
        json!({ "repositories": rules }),
        json!({ "default": "refuse", "repositories": rules }),
        json!({}),
    ] {
        let policy = load(&file).unwrap();
        let error = policy.rule_for("other.example.com/a").unwrap_err();
        assert_eq!(error.kind(), TrustErrorKind::NotAllowed);
        let text = error.to_string();
        assert!(
            text.contains("other.example.com/a") && text.contains("add a rule to the trust file"),
            "{text}"
        );
        let error = policy.verify("other.example.com/a", MANIFEST, &[bundle(data!("first.bundle.json"))]);
        assert_eq!(error.unwrap_err().kind(), TrustErrorKind::NotAllowed);
    }
    let policy = load(&json!({ "default": "accept", "repositories": rules })).unwrap();
    let verification = policy.verify("other.example.com/a", MANIFEST, &[]).unwrap();
    assert_eq!(verification.outcome, Outcome::Unsigned);
    assert!(verification.rule.contains("default"), "{}", verification.rule);
}

#[test]
fn the_most_specific_rule_decides_alone() {
    let key = json!([{ "pem": data!("first.pub"), "name": "first" }]);
    let rules = json!([
        { "match": "registry.example.com/**", "unsigned": true },
        { "match": "registry.example.com/plugins/*", "keys": key },
        { "match": "registry.example.com/plugins/free", "unsigned": true },
        { "match": "registry.example.com/*/tied", "keys": key },
        { "match": "registry.example.com/x-*/t*", "keys": key },
        { "match": "registry.example.com/*-x/t*", "unsigned": true },
    ]);
    let policy = load(&json!({ "default": "accept", "repositories": rules })).unwrap();
    for (repository, needs_signature) in [
        ("registry.example.com/a", false),
        ("registry.example.com/plugins/a", true),
        ("REGISTRY.example.com:443/Plugins/a", true),
        ("registry.example.com/plugins/free", false),
        ("registry.example.com/plugins/a/b", false),
        // Equally specific: the first one in the file.
        ("registry.example.com/x-x/t", true),
    ] {
        let rule = policy.rule_for(repository).unwrap();
        assert_eq!(rule.needs_signature(), needs_signature, "{repository}: {rule:?}");
        let is_accepted = policy.verify(repository, MANIFEST, &[]).is_ok();
        assert_eq!(is_accepted, !needs_signature, "{repository}");
    }
}

#[test]
fn a_trust_file_with_other_fields_is_refused() {
    for file in [
        json!(null),
        json!([]),
        json!({ "defaults": "accept" }),
        json!({ "default": "maybe" }),
        json!({ "repositories": {} }),
    ] {
        let text = load(&file).unwrap_err().to_string();
        assert!(
            text.contains("the trust file is not valid") && text.contains("docs/trust.schema.json"),
            "{text}"
        );
    }
    assert_invalid(
        &json!({ "match": "a.example.com/**", "key": [] }),
        "unknown field `key`",
    );
    assert_invalid(&json!({ "unsigned": true }), "missing field `match`");
    assert_invalid(&json!(["a.example.com/**", [], [], true]), "not a mapping");
    let misspelt = json!({ "match": "a.example.com/**", "keys": [{ "path": "x" }] });
    assert_invalid(&misspelt, "unknown field `path`");
}

#[test]
fn rules_that_mean_nothing_are_refused() {
    let pem = data!("first.pub");
    assert_invalid(&json!({ "match": "a.example.com/**" }), "accepts nothing");
    assert_invalid(&json!({ "match": "a.example.com", "unsigned": true }), "append /**");
    assert_invalid(&json!({ "match": "plugins/*", "unsigned": true }), "docker.io/");
    assert_invalid(
        &json!({ "match": "a.example.com/*", "unsigned": true, "keys": [{ "pem": pem }] }),
        "meaningless",
    );
    assert_invalid(
        &json!({ "match": "GOOD.example.com:443/**", "keys": [{ "pem": pem }] }),
        "repositories[0] has the same pattern",
    );
    assert_invalid(
        &json!({ "match": "a.example.com/*", "keys": [{}] }),
        "either file or pem",
    );
    assert_invalid(
        &json!({ "match": "a.example.com/*", "keys": [{ "pem": pem, "file": "x" }] }),
        "either file or pem",
    );
    assert_invalid(
        &json!({ "match": "a.example.com/*", "keys": [{ "pem": pem, "name": "" }] }),
        "the key's name",
    );
    assert_invalid(
        &json!({ "match": "a.example.com/*", "keys": [{ "pem": pem }, { "pem": pem }] }),
        "two keys have the name",
    );
    let required = json!({ "match": "a.example.com/*", "keys": [{ "pem": pem }], "transparencyLog": "required" });
    assert_invalid(&required, "needs a trustedRoot");
    let unused = json!({ "match": "a.example.com/*", "keys": [{ "pem": pem }], "trustedRoot": "root.json" });
    assert_invalid(&unused, "trustedRoot is not used");
    let identity = |issuer: &str, subject: &str| json!({ "match": "a.example.com/*", "keyless": [{ "issuer": issuer, "subject": subject }] });
    assert_invalid(&identity(ISSUER, SUBJECT), "needs a trustedRoot");
    assert_invalid(&identity(ISSUER, "*"), "everybody with an account");
    assert_invalid(&identity(ISSUER, "*@*.*"), "everybody with an account");
    assert_invalid(&identity("https://*", SUBJECT), "has to be written in full");
}

#[test]
fn keys_that_cannot_be_used_are_refused_when_the_file_is_loaded() {
    let rule = |pem: &str| json!({ "match": "a.example.com/*", "keys": [{ "pem": pem }] });
    assert_invalid(&rule("no key"), "not a PEM text with a PUBLIC KEY");
    assert_invalid(&rule(data!("ed25519.pub")), "Ed25519ph, which is not supported");
    assert_invalid(
        &rule(&format!("{}{}", data!("first.pub"), data!("second.pub"))),
        "several keys",
    );
    assert_invalid(
        &rule("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"),
        "not supported",
    );
    let private =
        "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nc2VjcmV0\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n";
    assert_invalid(&rule(private), "a private key; give the public key");
    let text = load(&json!({ "repositories": [rule(private)] }))
        .unwrap_err()
        .to_string();
    assert!(!text.contains("c2VjcmV0"), "{text}");
    assert_invalid(
        &rule("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        "a certificate",
    );
}

#[test]
fn files_are_read_when_the_trust_file_is_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    std::fs::create_dir(path.join("keys")).unwrap();
    std::fs::write(path.join("keys/release-2026.pub"), data!("first.pub")).unwrap();
    std::fs::write(path.join("long.pub"), " ".repeat(65 << 10)).unwrap();
    std::fs::write(path.join("binary.pub"), [0xff, 0xfe]).unwrap();
    std::fs::write(path.join("bad.json"), "{}").unwrap();
    let rule = |file: &str| {
        let rule = json!({ "match": "registry.example.com/**", "keys": [{ "file": file }] });
        TrustPolicy::load(&json!({ "repositories": [rule] }), path)
    };
    let policy = rule("keys/release-2026.pub").unwrap();
    std::fs::remove_file(path.join("keys/release-2026.pub")).unwrap();
    assert_eq!(
        accepted(&policy, &[bundle(data!("first.bundle.json"))]).0,
        "release-2026"
    );
    for (file, part) in [
        ("keys/release-2026.pub", "cannot be opened"),
        ("keys", "is not a file"),
        ("long.pub", "has more than 65536 bytes"),
        ("binary.pub", "is not text"),
        ("bad.json", "not a PEM text"),
    ] {
        let text = rule(file).unwrap_err().to_string();
        let named = path.join(file).display().to_string();
        assert!(
            text.contains("repositories[0]") && text.contains(&named) && text.contains(part),
            "{text}"
        );
    }
    let root = |root: &str| {
        let keyless = json!([{ "issuer": ISSUER, "subject": SUBJECT, "trustedRoot": root }]);
        let rules = json!([{ "match": "registry.example.com/**", "keyless": keyless }]);
        TrustPolicy::load(&json!({ "repositories": rules }), path).map(|_| ())
    };
    let instance = Instance::new();
    let mut json = instance.trusted_root();
    std::fs::write(path.join("root.json"), json.to_string()).unwrap();
    root("root.json").unwrap();
    json["tlogs"] = json!([]);
    std::fs::write(path.join("root.json"), json.to_string()).unwrap();
    assert!(
        root("root.json")
            .unwrap_err()
            .to_string()
            .contains("neither a transparency log nor a timestamp authority")
    );
    json["certificateAuthorities"] = json!([]);
    std::fs::write(path.join("root.json"), json.to_string()).unwrap();
    assert!(
        root("root.json")
            .unwrap_err()
            .to_string()
            .contains("without a certificate authority")
    );
    assert!(
        root("bad.json")
            .unwrap_err()
            .to_string()
            .contains("cosign trusted-root create")
    );
    let required = json!([{
        "match": "registry.example.com/**", "keys": [{ "pem": data!("first.pub") }],
        "transparencyLog": "required", "trustedRoot": "root.json",
    }]);
    let error = TrustPolicy::load(&json!({ "repositories": required }), path).unwrap_err();
    assert!(error.to_string().contains("without a transparency log"), "{error}");
}

#[test]
fn the_schema_describes_each_field() {
    let schema = TrustPolicy::json_schema();
    let rule = &schema["$defs"]["RepositoryRule"]["properties"];
    let key = &schema["$defs"]["KeySource"]["properties"];
    let identity = &schema["$defs"]["KeylessIdentity"]["properties"];
    for (properties, expected) in [
        (&schema["properties"], &["default", "repositories"][..]),
        (
            rule,
            &["keyless", "keys", "match", "transparencyLog", "trustedRoot", "unsigned"],
        ),
        (key, &["file", "name", "pem"]),
        (identity, &["issuer", "subject", "trustedRoot"]),
    ] {
        let properties = properties.as_object().unwrap();
        let mut names: Vec<_> = properties.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, expected);
        assert!(
            properties.values().all(|property| property["description"].is_string()),
            "{properties:?}"
        );
    }
}

/// `cargo xtask generate` runs this with `UPDATE` set.
#[test]
fn generated_trust_schema_is_what_the_types_give() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/trust.schema.json");
    let generated = format!("{:#}\n", TrustPolicy::json_schema());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, generated).expect("the schema can be written");
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == generated,
        "docs/trust.schema.json is stale: run `cargo xtask generate`"
    );
}
