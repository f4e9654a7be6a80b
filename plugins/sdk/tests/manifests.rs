//! A manifest that is built here is what the host parses, member by member.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use pilothouse_core::plugin::manifest;
use pilothouse_core::plugin::manifest::{Access, Controller, TouchScope};
use pilothouse_plugin::{Admission, ControllerManifest, FailurePolicy, Kind, Manifest, Touch};
use serde_json::{Value, json};

const VOLUME: Kind = Kind::new("example.com", "v1", "Volume");
const CRD: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: volumes.example.com}
spec: {group: example.com, names: {kind: Volume}}
";

fn manifest(controller: ControllerManifest) -> Manifest {
    Manifest::new("volumes", "0.1.0", "A claim for each volume.").controller(controller)
}

/// The manifest's only controller, as the host parses it.
fn parsed(controller: ControllerManifest) -> Controller {
    let json = serde_json::to_string(&manifest(controller)).unwrap();
    let mut controllers = manifest::parse(&json).unwrap().manifest.controllers;
    assert_eq!(controllers.len(), 1);
    controllers.remove(0)
}

#[test]
fn the_host_parses_every_member_of_a_manifest() {
    let manifest = manifest(
        ControllerManifest::new("volume", VOLUME)
            .fields([".spec"])
            .optional()
            .with_annotation("example.com/volume")
            .with_any_annotation(["a", "b"])
            .with_labels("tier=gold")
            .finalizer("example.com/volume")
            .failure_reason("Broken")
            .touches(
                Touch::new(Kind::new("", "v1", "Secret"))
                    .owned()
                    .contributed()
                    .read([".data.key"])
                    .with_labels("a=b")
                    .in_namespaces(["vault"])
                    .named(["keys"])
                    .optional(),
            ),
    );
    let manifest = manifest.crd(CRD).configuration_schema(json!({"type": "object"}));
    let checked = manifest::parse(&serde_json::to_string(&manifest).unwrap()).unwrap();
    let parsed = checked.manifest;
    assert_eq!((parsed.name.as_str(), parsed.version.as_str()), ("volumes", "0.1.0"));
    assert_eq!(parsed.description, "A claim for each volume.");
    assert_eq!(parsed.configuration_schema, Some(json!({"type": "object"})));
    assert_eq!(checked.crds[0].name, "volumes.example.com");

    let controller = &parsed.controllers[0];
    assert_eq!(controller.name, "volume");
    assert_eq!(controller.kind.to_string(), VOLUME.to_string());
    assert_eq!(controller.fields[0].to_string(), ".spec");
    assert!(controller.optional);
    assert_eq!(controller.filter.annotation.as_deref(), Some("example.com/volume"));
    assert_eq!(controller.filter.annotations, ["a", "b"]);
    let labels = controller.filter.label_selector.as_ref().unwrap();
    assert_eq!(labels.to_string(), "tier=gold");
    assert_eq!(controller.finalizer.as_deref(), Some("example.com/volume"));
    assert_eq!(controller.failure_reason.as_deref(), Some("Broken"));

    let touch = &controller.touches[0];
    assert_eq!(touch.access, [Access::Read, Access::Owned, Access::Contributed].into());
    assert_eq!(touch.fields[0].to_string(), ".data.key");
    assert_eq!(touch.label_selector.as_ref().unwrap().to_string(), "a=b");
    assert_eq!(touch.scope, TouchScope::Any);
    assert_eq!(
        (&touch.namespaces[..], &touch.names[..]),
        (&["vault".to_owned()][..], &["keys".to_owned()][..])
    );
    assert!(touch.optional);
}

#[test]
fn the_host_parses_every_member_of_admission() {
    let admission = Admission::new()
        .failure_policy(FailurePolicy::Ignore)
        .timeout_seconds(2)
        .object_selector("tier=gold")
        .namespace_selector("team")
        .match_condition("is-large", "object.spec.size > 100")
        .match_condition("is-named", "has(object.spec.name)");
    let parsed = parsed(ControllerManifest::new("volume", VOLUME).admission(admission));
    let admission = parsed.admission.unwrap();
    assert_eq!(admission.failure_policy, manifest::FailurePolicy::Ignore);
    assert_eq!(admission.timeout_seconds, 2);
    let text =
        |selector: &Option<pilothouse_core::kubernetes::selector::Selector>| selector.as_ref().unwrap().to_string();
    assert_eq!(text(&admission.object_selector), "tier=gold");
    assert_eq!(text(&admission.namespace_selector), "team");
    let conditions = admission.match_conditions.iter();
    let conditions: Vec<_> = conditions
        .map(|it| (it.name.as_str(), it.expression.as_str()))
        .collect();
    assert_eq!(
        conditions,
        [
            ("is-large", "object.spec.size > 100"),
            ("is-named", "has(object.spec.name)")
        ]
    );
}

#[test]
fn what_admission_does_not_say_is_the_hosts_default() {
    let controller = || ControllerManifest::new("volume", VOLUME);
    let defaults = Some(manifest::Admission::default());
    assert_eq!(parsed(controller()).admission, None);
    assert_eq!(parsed(controller().admission(Admission::new())).admission, defaults);
    let fails = Admission::new().failure_policy(FailurePolicy::Fail);
    assert_eq!(parsed(controller().admission(fails)).admission, defaults);
}

#[test]
fn the_host_refuses_a_timeout_that_kubernetes_does_not_have() {
    let admission = Admission::new().timeout_seconds(31);
    let manifest = manifest(ControllerManifest::new("volume", VOLUME).admission(admission));
    let refusal = manifest::parse(&serde_json::to_string(&manifest).unwrap()).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "manifest member controllers[0].admission.timeoutSeconds: must be 1 to 30"
    );
}

#[test]
fn the_host_does_not_see_a_controller_that_is_switched_off() {
    let claim = ControllerManifest::new("claim", Kind::new("example.com", "v1", "Claim"));
    let manifest = manifest(ControllerManifest::new("volume", VOLUME));
    let without = serde_json::to_value(manifest.clone().controller_if(false, claim.clone())).unwrap();
    assert_eq!(without, serde_json::to_value(&manifest).unwrap());
    let with: Value = serde_json::to_value(manifest.clone().controller_if(true, claim.clone())).unwrap();
    assert_eq!(with, serde_json::to_value(manifest.controller(claim)).unwrap());
}
