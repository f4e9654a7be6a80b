//! Expansion of the derives, and their error messages.

use proc_macro2::TokenStream;
use syn::{DeriveInput, parse_str};

use crate::{fields, resource};

const KIND: &str = r#"#[resource(group = "example.com", version = "v1", kind = "Greeting")]"#;

fn input(code: &str) -> DeriveInput {
    parse_str(code).unwrap()
}

fn text(code: syn::Result<TokenStream>) -> String {
    code.unwrap().to_string().replace(' ', "")
}

fn refusal_of_fields(code: &str) -> String {
    fields::expand(&input(code)).unwrap_err().to_string()
}

fn refusal_of_resource(code: &str) -> String {
    resource::expand(&input(code)).unwrap_err().to_string()
}

#[test]
fn paths_follow_the_attributes_of_serde() {
    let code = text(fields::expand(&input(
        r#"
        #[serde(rename_all = "camelCase", default)]
        struct Spec {
            target_port: u16,
            #[serde(rename(deserialize = "a.b/c", serialize = "x"), alias = "old", default = "f")]
            other: String,
            #[serde(skip)]
            skipped: Unknown,
            #[serde(flatten)]
            inner: Inner,
            #[resource(whole)]
            #[serde(with = "module")]
            whole: Unknown,
            r#type: String,
        }
        "#,
    )));
    for expected in [
        r#"child::<u16>(path,".targetPort",fields)"#,
        r#"child::<String>(path,"[\"a.b/c\"]",fields)"#,
        r#"child::<String>(path,".old",fields)"#,
        "<Inneras::pilothouse_plugin::Fields>::fields_at(path,fields)",
        r#"whole(&[path,".whole"].concat(),fields)"#,
        r#"child::<String>(path,".type",fields)"#,
    ] {
        assert!(code.contains(expected), "{expected} is not in {code}");
    }
    assert!(!code.contains("skipped") && !code.contains("\".inner\""), "{code}");
}

#[test]
fn newtypes_and_converted_types_are_read_as_what_they_hold() {
    for code in [
        "struct Port(u16);",
        "#[serde(transparent)] struct Port { number: u16 }",
        r#"#[serde(try_from = "u16")] enum Port { Http(u16), Other }"#,
    ] {
        let code = text(fields::expand(&input(code)));
        assert!(
            code.contains("<u16as::pilothouse_plugin::Fields>::fields_at(path,fields)"),
            "{code}"
        );
    }
}

#[test]
fn an_enum_of_words_is_a_whole() {
    let code = text(fields::expand(&input("enum Protocol { Tcp, Udp }")));
    assert!(code.contains("whole(path,fields)"), "{code}");
}

#[test]
fn a_resource_lists_nothing_that_every_object_has() {
    let code = text(resource::expand(&input(&format!(
        r#"{KIND} #[serde(rename_all = "camelCase")] struct Greeting {{ api_version: String, kind: String, metadata: ObjectMeta, spec: Spec }}"#
    ))));
    assert!(code.contains(r#"Kind::new("example.com","v1","Greeting")"#), "{code}");
    assert!(code.contains(r#"child::<Spec>(path,".spec",fields)"#), "{code}");
    assert!(!code.contains("ObjectMeta") && !code.contains("apiVersion"), "{code}");
}

#[test]
fn a_spec_of_kube_gives_the_kind_of_its_root() {
    let code = text(resource::expand(&input(
        r#"#[kube(group = "example.com", version = "v1", kind = "Greeting", namespaced, printcolumn(name = "a", type_ = "b"))]
           struct GreetingSpec { name: String }"#,
    )));
    assert!(code.contains("impl::pilothouse_plugin::ResourceforGreeting{"), "{code}");
    assert!(code.contains(r#"child::<GreetingSpec>(path,".spec",fields)"#), "{code}");
}

#[test]
fn unsupported_types_are_refused_with_field_reason_and_advice() {
    for (code, message) in [
        (
            "struct Spec { #[serde(with = \"base64\")] key: Bytes }",
            "key: a function reads this member (#[serde(with)]), so the fields that it reads are not known; annotate it with \
             #[resource(whole)], which declares the whole member",
        ),
        (
            "struct Spec { #[serde(flatten)] rest: BTreeMap<String, Value> }",
            "rest: a flattened map reads whatever else the object has, which is no list of fields; name the members that are \
             read",
        ),
        (
            "struct Spec { #[serde(flatten)] #[resource(whole)] inner: Inner }",
            "inner: a flattened member has no path of its own; remove #[resource(whole)]",
        ),
        (
            "struct Spec<T> { value: T }",
            "Spec: the fields of the parameter T are not known here; write out the type",
        ),
        (
            "struct Spec<const N: usize> { value: [u8; N] }",
            "Spec: the fields of the parameter N are not known here; write out the type",
        ),
        (
            "struct Pair(u8, u8);",
            "Pair: the parts of a tuple have no names, so their fields cannot be declared; use a struct with named fields, or \
             remove the derive and annotate members of this type with #[resource(whole)]",
        ),
        (
            "enum Source { Inline(String), Empty }",
            "Source: which fields are read depends on the variant, and Inline has data; remove the derive and annotate \
             members of this type with #[resource(whole)]",
        ),
        (
            "union Word { a: u8, b: i8 }",
            "Word: a union cannot be read from JSON; use a struct",
        ),
        (
            "struct Spec { #[serde(rename = \"a\\\"]b\")] key: u8 }",
            "a path cannot name the member \"a\\\"]b\"",
        ),
        (
            "struct Spec { #[resource(all)] key: u8 }",
            "key: #[resource] has no all here; a member can be annotated with #[resource(whole)] only",
        ),
        (
            "#[resource(whole)] struct Spec { key: u8 }",
            "Spec: #[resource] on a type is for the derive `Resource`; with `Fields`, annotate single members with \
             #[resource(whole)]",
        ),
        (
            "#[serde(transparent)] struct Pair { one: u8, other: u8 }",
            "Pair: a transparent struct has one field",
        ),
        (
            "struct Key(#[serde(with = \"base64\")] Bytes);",
            "0: a function reads this member (#[serde(with)]), so the fields that it reads are not known; annotate it with \
             #[resource(whole)], which declares the whole member",
        ),
        (
            "#[serde(rename_all = \"camel\")] struct Spec { key: u8 }",
            "serde has no case \"camel\"",
        ),
        ("struct Nothing;", "Nothing reads no field; remove the derive"),
    ] {
        assert_eq!(refusal_of_fields(code), message);
    }
}

#[test]
fn maps_whose_keys_are_no_strings_are_refused_by_their_field() {
    let says = "the keys of a JSON object are strings, and this type cannot be read from one; use String, a number, or an enum \
                of words";
    for type_ in [
        "BTreeMap<(String, u8), String>",
        "std::collections::HashMap<Vec<u8>, String>",
        "Option<BTreeMap<Option<String>, u8>>",
    ] {
        let code = format!("struct Spec {{ named: {type_} }}");
        assert_eq!(refusal_of_fields(&code), format!("named: {says}"));
    }
    let code = "struct Ports(BTreeMap<[u8; 4], u16>);";
    assert_eq!(refusal_of_fields(code), format!("0: {says}"));
    for type_ in [
        "BTreeMap<u16, String>",
        "HashMap<Name, u8>",
        "Map<String, Value>",
        "Value",
    ] {
        let code = text(fields::expand(&input(&format!("struct Spec {{ named: {type_} }}"))));
        assert!(code.contains(r#"".named",fields"#), "{code}");
    }
}

#[test]
fn a_newtype_that_is_declared_as_a_whole_is_one() {
    let code = text(fields::expand(&input("struct Key(#[resource(whole)] Unknown);")));
    assert!(
        code.contains("whole(path,fields)") && !code.contains("Unknown"),
        "{code}"
    );
}

#[test]
fn a_resource_is_a_struct_of_a_kind() {
    assert_eq!(
        refusal_of_resource(&format!("{KIND} enum Greeting {{ Hello(String) }}")),
        "Greeting: a resource is a struct with named fields, such as metadata and spec"
    );
    assert_eq!(
        refusal_of_resource("struct Greeting { spec: Spec }"),
        format!("Greeting is of no kind; name it: {KIND}")
    );
    assert_eq!(
        refusal_of_resource(r#"#[resource(group = "a", version = "v1")] struct Greeting { spec: Spec }"#),
        format!("kind is missing; name the kind: {KIND}")
    );
    assert_eq!(
        refusal_of_resource(r#"#[resource(plural = "a")] struct Greeting { spec: Spec }"#),
        "#[resource] has no plural on a type; plural belongs into #[crd(plural ...)]"
    );
    assert_eq!(
        refusal_of_resource(r#"#[resource(name = "a")] struct Greeting { spec: Spec }"#),
        format!("#[resource] has no name on a type; a resource has group, version and kind: {KIND}")
    );
    assert_eq!(
        refusal_of_resource(r#"#[resource(group = "a", group = "b")] struct Greeting { spec: Spec }"#),
        "it is given twice; remove one"
    );
    assert_eq!(
        refusal_of_resource(r#"#[resource(group = "", version = "", kind = "A")] struct Greeting { spec: Spec }"#),
        format!("version is empty; name the kind: {KIND}")
    );
    assert_eq!(
        refusal_of_resource(
            r#"#[kube(group = "a", version = "v1", kind = "Greeting")] #[crd(plural = "greets")] struct GreetingSpec { a: u8 }"#
        ),
        "GreetingSpec: kube's derive makes the definition; remove #[crd]"
    );
}

#[test]
fn a_definition_has_what_its_attribute_says() {
    let code = text(resource::expand(&input(&format!(
        r#"/// A Greeting.
           {KIND}
           #[crd(
               shortname = "gr",
               scope = "Cluster",
               status = a::Status,
               printcolumn(name = "Name", type_ = "string", json_path = ".spec.name", priority = 1),
               scale(spec_replicas_path = ".spec.size", status_replicas_path = ".status.size"),
               validation(rule = "true", message = "never"),
               selectable = ".spec.name",
           )]
           struct Greeting {{ metadata: ObjectMeta, spec: Spec, data: Option<u8>, #[serde(default)] more: u8, status: u8 }}"#
    ))));
    for expected in [
        r#"Definition::new(kind,"greetings","greeting","Cluster","AGreeting.")"#,
        r#".member::<Spec>("spec",true)"#,
        r#".member::<Option<u8>>("data",false)"#,
        r#".member::<u8>("more",false)"#,
        ".status::<a::Status>()",
        r#".name("shortNames","gr")"#,
        r#".column(&[("name","Name"),("type","string"),("jsonPath",".spec.name"),],::std::option::Option::Some(1))"#,
        r#".scale(&[("specReplicasPath",".spec.size"),("statusReplicasPath",".status.size"),])"#,
        r#".validation(&[("rule","true"),("message","never"),])"#,
        r#".selectable(".spec.name")"#,
    ] {
        assert!(code.contains(expected), "{expected} is not in {code}");
    }
    assert!(!code.contains(r#"("status",true)"#), "{code}");
}

#[test]
fn an_unknown_attribute_of_a_definition_is_refused_by_name() {
    for (attribute, message) in [
        (
            r#"#[crd(shortnames = "a")]"#,
            "#[crd] has no shortnames; it has plural, singular, shortname, category, scope, status, scale, printcolumn, validation, selectable, filtered",
        ),
        (
            r#"#[crd(scope = "namespaced")]"#,
            "\"namespaced\" is no scope; a scope is \"Namespaced\" or \"Cluster\"",
        ),
        (
            r#"#[crd(validation(cel = "a"))]"#,
            "validation has no cel; it has rule, message, message_expression, field_path, reason",
        ),
        (
            r#"#[crd(printcolumn(name = "Size", type_ = "integer"))]"#,
            "printcolumn lacks json_path, which the API server demands",
        ),
        (
            r#"#[crd(scale(status_replicas_path = ".status.size"))]"#,
            "scale lacks spec_replicas_path, which the API server demands",
        ),
        (
            r#"#[crd(validation(message = "no"))]"#,
            "validation lacks rule, which the API server demands",
        ),
    ] {
        assert_eq!(
            refusal_of_resource(&format!("{KIND} {attribute} struct Greeting {{ spec: Spec }}")),
            message
        );
    }
}
