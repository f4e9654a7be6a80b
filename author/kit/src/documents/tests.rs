//! Tests of reading objects.

use super::*;

fn parsed(text: &str) -> Result<Vec<Document>, DocumentsError> {
    parse(text.as_bytes(), Path::new("f.yaml"))
}

fn error(text: &str) -> String {
    parsed(text).unwrap_err().to_string()
}

fn config_map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n")
}

#[test]
fn several_documents_keep_their_places_without_empty_ones() {
    let text = format!(
        "# first\n---\n{}---\n# nothing\n--- # also nothing\n---\n\n{}...\n",
        config_map("a"),
        config_map("b")
    );
    let documents = parsed(&text).unwrap();
    let places: Vec<_> = documents.iter().map(|it| (it.place.document, it.place.line)).collect();
    assert_eq!(places, [(1, 3), (4, 12)]);
    assert_eq!(documents[1].name, Name::new(None, "b"));
}

#[test]
fn a_document_may_begin_beside_its_marker_and_have_a_directive() {
    let text = "%YAML 1.2\n--- {apiVersion: v1, kind: Secret, metadata: {name: a}}\r\n---\tnull\n";
    let documents = parsed(text).unwrap();
    assert_eq!(documents.len(), 1);
    assert_eq!((documents[0].place.line, documents[0].place.column), (2, 5));
}

#[test]
fn what_looks_like_a_marker_within_a_line_or_a_word_is_none() {
    let text = format!("{}data:\n  text: |\n    ---\n    a\n  other: a---b\n", config_map("a"));
    let documents = parsed(&text).unwrap();
    assert_eq!(documents[0].object["data"]["text"], "---\na\n");
}

#[test]
fn json_is_read_as_well() {
    let text = "{\n\t\"apiVersion\": \"apps/v1\", \"kind\": \"Deployment\",\n\t\"metadata\": {\"name\": \"web\", \"namespace\": \"shop\"}\n}";
    let documents = parsed(text).unwrap();
    assert_eq!(documents[0].kind, Kind::new("apps", "v1", "Deployment"));
    assert_eq!(documents[0].name, Name::new(Some("shop"), "web"));
}

#[test]
fn lists_are_unrolled_and_their_items_have_places() {
    let text = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Secret\n  metadata: {name: a}\n- kind: Secret\n  metadata: {name: b}\n";
    assert_eq!(
        error(text),
        "f.yaml, document 1, item 2, line 7, column 3: apiVersion is missing; an object has apiVersion, kind and metadata.name"
    );
    let documents = parsed(&text.replace("- kind", "- apiVersion: v1\n  kind")).unwrap();
    assert_eq!(documents.len(), 2);
    assert_eq!((documents[1].place.item, documents[1].place.line), (Some(2), 7));
    assert!(error("apiVersion: v1\nkind: List\nitems: []\n").contains("f.yaml is empty"));
}

#[test]
fn nothing_is_an_error_that_says_so() {
    for text in ["", "\n\n", "# only a comment\n", "---\n---\n", "\u{feff}", "null\n"] {
        assert!(error(text).starts_with("f.yaml is empty: it has no object"), "{text:?}");
    }
    let error = parse(b"", Path::new("-")).unwrap_err().to_string();
    assert!(error.starts_with("standard input is empty"), "{error}");
}

#[test]
fn an_incomplete_object_is_refused_with_the_missing_part() {
    for (text, problem) in [
        ("a: b", "apiVersion is missing"),
        ("apiVersion: v1", "kind is missing"),
        ("apiVersion: 1\nkind: A", "apiVersion is a number, but must be a string"),
        ("apiVersion: v1\nkind: ''", "kind is empty"),
        ("apiVersion: v1\nkind: A", "metadata.name is missing"),
        (
            "apiVersion: v1\nkind: A\nmetadata: {generateName: a-}",
            "metadata.name is missing",
        ),
        (
            "apiVersion: v1\nkind: A\nmetadata: a",
            "metadata is a string, but must be an object",
        ),
        (
            "apiVersion: v1\nkind: A\nmetadata: {name: a, namespace: 1}",
            "metadata.namespace is a number",
        ),
        ("- apiVersion: v1", "a list where an object should be"),
        ("words", "a string where an object should be"),
    ] {
        let text = format!("---\n{}---\n{text}\n", config_map("a"));
        let error = error(&text);
        assert!(error.starts_with("f.yaml, document 2, line 7, column 1: "), "{error}");
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn a_syntax_error_shows_line_and_column_and_no_content() {
    let text = format!(
        "{}---\napiVersion: v1\nkind: Secret\ndata: {{key: aHVzaA==\n",
        config_map("a")
    );
    let error = error(&text);
    assert!(error.starts_with("f.yaml, document 2, line "), "{error}");
    assert!(!error.contains("aHVzaA"), "{error}");
    let twice = self::error("a: 1\na: 2\n");
    assert!(twice.starts_with("f.yaml, document 1, line 2, column 1: "), "{twice}");
}

#[test]
fn an_object_that_is_there_twice_is_refused_with_both_places() {
    let text = format!("{}---\n{}", config_map("a"), config_map("a"));
    assert_eq!(
        error(&text),
        "f.yaml, document 2, line 6, column 1: ConfigMap a is there already: f.yaml, document 1, line 1, column 1; remove one of the two"
    );
}

#[test]
fn what_is_no_text_is_shown_by_its_line() {
    let error = parse(b"a: b\nc: \xff\n", Path::new("f.yaml")).unwrap_err().to_string();
    assert_eq!(error, "f.yaml, line 2: not UTF-8 text; write YAML or JSON");
}

#[test]
fn folders_are_read_in_order_and_say_what_they_lack() {
    let folder = tempfile::tempdir().unwrap();
    assert!(
        read(&[folder.path()])
            .unwrap_err()
            .to_string()
            .contains("has no file that ends in .yaml")
    );
    std::fs::write(folder.path().join("b.yaml"), config_map("b")).unwrap();
    std::fs::write(
        folder.path().join("a.json"),
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}"#,
    )
    .unwrap();
    std::fs::write(folder.path().join("README.md"), "words").unwrap();
    let names: Vec<String> = read(&[folder.path()])
        .unwrap()
        .iter()
        .map(|it| it.name.to_string())
        .collect();
    assert_eq!(names, ["a", "b"]);
    let twice = read(&[folder.path().to_owned(), folder.path().join("a.json")])
        .unwrap_err()
        .to_string();
    assert!(twice.contains("ConfigMap a is there already"), "{twice}");
    let missing = read(&[folder.path().join("c.yaml")]).unwrap_err().to_string();
    assert!(
        missing.starts_with("cannot read ") && missing.contains("c.yaml"),
        "{missing}"
    );
    assert!(matches!(
        read(&["-", "-"]),
        Err(DocumentsError::Twice | DocumentsError::Empty(_))
    ));
}

#[test]
fn an_input_without_end_is_refused() {
    let endless = std::io::repeat(b'#');
    let error = bytes(endless, Path::new("-")).unwrap_err().to_string();
    assert_eq!(error, "standard input is larger than 33554432 bytes; split it");
    let many: Vec<String> = (0..=MAX_OBJECTS)
        .map(|n| format!("---\n{}", config_map(&format!("a{n}"))))
        .collect();
    assert!(matches!(parsed(&many.concat()), Err(DocumentsError::TooMany)));
}

#[test]
fn a_bomb_of_aliases_is_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = level - 1;
        let items = vec![format!("*a{before}"); 9].join(", ");
        text.extend([format!("a{level}: &a{level} [{items}]\n")]);
    }
    assert!(error(&text).starts_with("f.yaml, document 1, line "));
}

#[test]
fn a_boolean_in_place_of_a_text_is_to_be_quoted() {
    for problem in [
        "Invalid value: \"boolean\": spec.image in body must be of type string: \"boolean\"",
        "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string",
        "failed to create typed patch object: .data.a: expected string, got &value.valueUnstructured{Value:false}",
        "failed to create typed patch object: .spec.image: expected string, got &value.valueUnstructured{Value:true}",
    ] {
        assert!(quoting_hint(problem).contains("quote the value"), "{problem}");
    }
    for problem in [
        "spec.size in body must be of type integer: \"boolean\"",
        "json: cannot unmarshal bool into Go struct field DeploymentSpec.spec.replicas of type int32",
        "spec.image in body must be of type string: \"integer\"",
        ".spec.image: expected string, got &value.valueUnstructured{Value:3}",
    ] {
        assert_eq!(quoting_hint(problem), "", "{problem}");
    }
}
