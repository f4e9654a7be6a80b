//! A plugin with two kinds: each goes to its own controller, under one configuration.

use pilothouse_plugin::testing::{FakeCluster, describe};
use pilothouse_plugin::{
    Cluster, Controller, ControllerManifest, Failure, Kind, Manifest, Outcome, Plugin, Request, Resource,
};
use serde_json::{Value, json};

#[derive(Default, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Settings {
    image: Image,
    forget: Option<String>,
}

#[derive(serde::Deserialize)]
#[serde(try_from = "String")]
struct Image(String);

impl Default for Image {
    fn default() -> Self {
        Self("nginx".to_owned())
    }
}

impl TryFrom<String> for Image {
    type Error = &'static str;

    fn try_from(image: String) -> Result<Self, Self::Error> {
        if image.contains(' ') {
            Err("an image has no spaces")
        } else {
            Ok(Self(image))
        }
    }
}

#[derive(serde::Deserialize)]
struct Http {}

#[derive(serde::Deserialize)]
struct Tcp {}

impl Resource for Http {
    const KIND: Kind = Kind::new("example.com", "v1", "HttpProxy");
}

impl Resource for Tcp {
    const KIND: Kind = Kind::new("example.com", "v1", "TcpProxy");
}

struct Proxies;
struct HttpController;
struct TcpController;

impl Plugin for Proxies {
    type Config = Settings;
    type Controllers = (HttpController, TcpController);

    fn manifest(config: &Settings) -> Manifest {
        let manifest = Manifest::new("proxies", "0.1.0", "Two kinds.")
            .configuration_schema(json!({"type": "object"}))
            .controller(ControllerManifest::of::<Http>("http"));
        match config.forget.as_deref() {
            Some("tcp") => manifest,
            Some("tcp by configuration") => manifest.controller_if(false, ControllerManifest::of::<Tcp>("tcp")),
            Some("another") => manifest.controller(ControllerManifest::of::<Tcp>("tcp")).controller_if(
                false,
                ControllerManifest::new("udp", Kind::new("example.com", "v1", "UdpProxy")),
            ),
            Some(_) => manifest
                .controller(ControllerManifest::of::<Tcp>("tcp"))
                .controller(ControllerManifest::new(
                    "more",
                    Kind::new("example.com", "v2", "TcpProxy"),
                )),
            None => manifest.controller(ControllerManifest::of::<Tcp>("tcp")),
        }
    }

    fn check(config: &Settings) -> Result<(), String> {
        if config.image.0.is_empty() {
            Err("image: it is empty; name one".to_owned())
        } else {
            Ok(())
        }
    }
}

impl Controller for HttpController {
    type Config = Settings;
    type Object = Http;

    fn reconcile(request: Request<Http, Settings>, _: &Cluster) -> Result<Outcome, Failure> {
        Ok(Outcome::new().status(json!({"http": request.configuration.image.0, "attempt": request.attempt})))
    }
}

impl Controller for TcpController {
    type Config = Settings;
    type Object = Tcp;

    fn reconcile(request: Request<Tcp, Settings>, _: &Cluster) -> Result<Outcome, Failure> {
        Ok(Outcome::new().status(json!({"tcp": request.configuration.image.0})))
    }
}

pilothouse_plugin::export!(Proxies);

fn object(kind: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "p", "namespace": "n"}})
}

#[test]
fn each_kind_goes_to_its_controller_with_configuration() {
    let cluster = FakeCluster::new().configuration(json!({"image": "mine"}));
    let http = cluster.reconcile_after::<Proxies>(object("HttpProxy"), 3).unwrap();
    assert_eq!(http.status, Some(json!({"http": "mine", "attempt": 3})));
    let tcp = FakeCluster::new().reconcile::<Proxies>(object("TcpProxy")).unwrap();
    assert_eq!(tcp.status, Some(json!({"tcp": "nginx"})));
}

#[test]
fn a_configuration_is_refused_by_its_type_and_by_the_check() {
    assert!(describe::<Proxies>(Some(&json!({"image": "mine"}))).is_ok());
    assert_eq!(
        describe::<Proxies>(Some(&json!({"image": "a b"}))).unwrap_err(),
        "image: an image has no spaces"
    );
    assert_eq!(
        describe::<Proxies>(Some(&json!({"image": ""}))).unwrap_err(),
        "image: it is empty; name one"
    );
    assert_eq!(
        describe::<Proxies>(Some(&json!(["mine"]))).unwrap_err(),
        "it is a list; give an object with members"
    );
}

#[test]
fn a_manifest_without_the_controllers_kinds_is_refused() {
    let forgotten = describe::<Proxies>(Some(&json!({"forget": "tcp"}))).unwrap_err();
    assert!(
        forgotten.starts_with("example.com/v1 TcpProxy is among the plugin's Controllers and not"),
        "{forgotten}"
    );
    let too_many = describe::<Proxies>(Some(&json!({"forget": "none"}))).unwrap_err();
    assert!(
        too_many.starts_with("example.com/v2 TcpProxy is among the plugin's manifest's controllers"),
        "{too_many}"
    );
}

#[test]
fn a_switched_off_controller_may_be_absent_from_the_manifest() {
    let manifest = describe::<Proxies>(Some(&json!({"forget": "tcp by configuration"}))).unwrap();
    let controllers: Vec<_> = manifest["controllers"].as_array().unwrap().iter().collect();
    assert_eq!(controllers.len(), 1);
    assert_eq!(controllers[0]["kind"]["kind"], "HttpProxy");
    let unknown = describe::<Proxies>(Some(&json!({"forget": "another"}))).unwrap_err();
    assert!(
        unknown.starts_with("example.com/v1 UdpProxy is among the plugin's manifest's controllers and not"),
        "{unknown}"
    );
}

#[test]
#[should_panic(expected = "under this configuration the manifest has no controller for the kind of p")]
fn a_fake_cluster_does_not_call_a_switched_off_controller() {
    let configuration = json!({"forget": "tcp by configuration"});
    let _ = FakeCluster::new()
        .configuration(configuration)
        .reconcile::<Proxies>(object("TcpProxy"));
}
