//! Credentials: how a registry gets them, and that nobody else does.

use pilothouse_artifact::{Credentials, Digest, ErrorKind, Target};
use serde_json::json;

use pilothouse_test_registry::exchange::reply;
use pilothouse_test_registry::{REPOSITORY, Registry, client, component, download, plugin};

fn user() -> Credentials {
    Credentials::Basic {
        username: "user".into(),
        password: "hunter2".into(),
    }
}

fn tag() -> Target {
    Target::Tag("1".into())
}

#[tokio::test]
async fn a_password_is_sent_only_on_request_and_must_be_right() {
    let registry = Registry::start().await;
    let manifest = plugin(&registry, "1", b"component");
    registry.store_with(&user()).resolve(&tag()).await.unwrap();
    assert!(
        registry.state.lock().unwrap().requests[0]
            .header("authorization")
            .is_none()
    );

    registry.change(|state| state.basic = Some(("user".into(), "hunter2".into())));
    let store = registry.store_with(&user());
    let before = registry.requests().len();
    assert_eq!(store.resolve(&tag()).await.unwrap().digest, manifest.digest);
    store.manifest(manifest.digest).await.unwrap();
    assert_eq!(registry.requests().len() - before, 3, "what was accepted is used again");

    let error = registry.store().resolve(&tag()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized);
    assert!(error.to_string().contains("wants credentials"), "{error}");
    registry.change(|state| state.basic = Some(("user".into(), "other".into())));
    let error = store.resolve(&tag()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized);
    let message = error.to_string();
    assert!(
        message.contains("does not accept the credentials") && !message.contains("hunter2"),
        "{message}"
    );
}

/// A registry that wants tokens, and a token service that is another server.
async fn with_tokens() -> (Registry, Registry, serde_json::Value) {
    let (registry, service) = (Registry::start().await, Registry::start().await);
    let challenge = format!(
        "Bearer realm=\"http://{}/token\",service=\"the registry\"",
        service.host()
    );
    registry.hook(move |request, _| {
        let accepted = request.header("authorization") == Some("Bearer good token");
        (!accepted).then(|| reply(401, &[("WWW-Authenticate", &challenge)], ""))
    });
    service.hook(|_, _| {
        Some(reply(
            200,
            &[],
            json!({"token": "good token", "expires_in": 60}).to_string(),
        ))
    });
    let plain = |registry: &Registry| json!({"host": registry.host(), "plainHttp": true});
    let config = json!({"registries": [plain(&registry), plain(&service)]});
    (registry, service, config)
}

#[tokio::test]
async fn tokens_are_fetched_per_scope_and_used_until_refused() {
    let (registry, service, config) = with_tokens().await;
    plugin(&registry, "1", b"component");
    let store = client(config.clone()).open(&registry.location(""), &user()).unwrap();
    store.resolve(&tag()).await.unwrap();
    assert_eq!(download(&store, &component(b"component")).await.unwrap(), b"component");
    let requests = service.state.lock().unwrap().requests.clone();
    assert_eq!(requests.len(), 1, "one token is enough");
    assert_eq!(
        requests[0].path,
        "/token?scope=repository%3Aacme%2Fplugin%3Apull&service=the+registry"
    );
    assert_eq!(requests[0].header("authorization"), Some("Basic dXNlcjpodW50ZXIy"));

    store
        .push_blob(
            &component(b"new"),
            &pilothouse_artifact::Content::Bytes("new".into()),
            &pilothouse_artifact::Silent,
        )
        .await
        .unwrap();
    assert!(
        service.requests()[1].contains("%3Apull%2Cpush"),
        "writing needs a token of its own"
    );

    // The identity token is sent in a form, the anonymous user sends nothing.
    let store = client(config.clone())
        .open(&registry.location(""), &Credentials::IdentityToken("long lived".into()))
        .unwrap();
    store.resolve(&tag()).await.unwrap();
    let last = service.state.lock().unwrap().requests.last().unwrap().clone();
    let form = String::from_utf8(last.body).unwrap();
    assert_eq!(last.method, "POST");
    assert!(
        form.contains("grant_type=refresh_token") && form.contains("refresh_token=long+lived"),
        "{form}"
    );
    let store = client(config.clone())
        .open(&registry.location(""), &Credentials::Anonymous)
        .unwrap();
    store.resolve(&tag()).await.unwrap();
    assert_eq!(
        service
            .state
            .lock()
            .unwrap()
            .requests
            .last()
            .unwrap()
            .header("authorization"),
        None
    );

    // A token for the registry itself needs no service.
    let asked = service.requests().len();
    let store = client(config)
        .open(&registry.location(""), &Credentials::Bearer("good token".into()))
        .unwrap();
    store.resolve(&tag()).await.unwrap();
    assert_eq!(service.requests().len(), asked);
}

#[tokio::test]
async fn a_token_service_cannot_harm() {
    let (registry, service, mut config) = with_tokens().await;
    let other = Registry::start().await;
    // It is the redirect that is refused, and not plain HTTP.
    let named = json!({"host": other.host(), "plainHttp": true});
    config["registries"].as_array_mut().unwrap().push(named);
    let elsewhere = format!("http://{}/", other.host());
    for (answer, kind) in [
        (reply(200, &[], vec![b' '; 100_000]), ErrorKind::TooLarge),
        (reply(200, &[], "{}"), ErrorKind::Protocol),
        (
            reply(200, &[], json!({"token": "a\r\nb: c"}).to_string()),
            ErrorKind::Protocol,
        ),
        (reply(200, &[], json!({"token": ""}).to_string()), ErrorKind::Protocol),
        (
            reply(200, &[], json!({"token": "wrong"}).to_string()),
            ErrorKind::Unauthorized,
        ),
        (reply(401, &[], ""), ErrorKind::Unauthorized),
        (reply(307, &[("Location", &elsewhere)], ""), ErrorKind::Protocol),
    ] {
        service.hook(move |_, _| Some(answer.clone()));
        let store = client(config.clone()).open(&registry.location(""), &user()).unwrap();
        let error = store.resolve(&tag()).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    assert!(
        other.requests().is_empty(),
        "a token service's redirect is not followed"
    );
    // A registry may not make the host ask just anybody, and never in plain text.
    for realm in [
        "http://169.254.169.254/latest",
        "file:///etc/passwd",
        "https://",
        "http://token.example/",
    ] {
        registry.hook(move |_, _| {
            Some(reply(
                401,
                &[("WWW-Authenticate", &format!("Bearer realm=\"{realm}\""))],
                "",
            ))
        });
        let error = registry.store_with(&user()).resolve(&tag()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert!(error.to_string().contains("token service"), "{error}");
    }
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect_to_another_host() {
    let (registry, other) = (Registry::start().await, Registry::start().await);
    other.put_blob(*b"component");
    let target = format!("http://{}/v2/a/blobs/{}", other.host(), Digest::of(b"component"));
    registry.hook(move |request, _| {
        Some(match request.header("authorization") {
            Some("Basic dXNlcjpodW50ZXIy") => reply(307, &[("Location", &target)], ""),
            _ => reply(401, &[("WWW-Authenticate", "Basic realm=\"x\"")], ""),
        })
    });
    let plain = |registry: &Registry| json!({"host": registry.host(), "plainHttp": true});
    let config = json!({"registries": [plain(&registry), plain(&other)]});
    let store = client(config).open(&registry.location(""), &user()).unwrap();
    assert_eq!(download(&store, &component(b"component")).await.unwrap(), b"component");
    let none = |registry: &Registry| {
        registry
            .state
            .lock()
            .unwrap()
            .requests
            .iter()
            .all(|it| it.header("authorization").is_none())
    };
    assert!(none(&other));
    // Not even if the other host asks for them.
    other.change(|state| state.basic = Some(("user".into(), "hunter2".into())));
    let error = download(&store, &component(b"component")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    assert!(none(&other));
    assert!(registry.count(&format!("GET /v2/{REPOSITORY}/blobs")) <= 3);
}

#[tokio::test]
async fn a_realm_may_be_a_path_and_one_of_two_tokens_empty() {
    for answer in [
        json!({"token": "good", "access_token": ""}),
        json!({"token": "", "access_token": "good"}),
        json!({"token": null, "access_token": "good\n"}),
    ] {
        let registry = Registry::start().await;
        plugin(&registry, "1", b"component");
        registry.hook(move |request, _| {
            if request.path.starts_with("/service/token?") {
                return Some(reply(200, &[], answer.to_string()));
            }
            let is_accepted = request.header("authorization") == Some("Bearer good");
            let challenge = ("WWW-Authenticate", "Bearer realm=\"/service/token\",service=\"harbor\"");
            (!is_accepted).then(|| reply(401, &[challenge], ""))
        });
        registry.store().resolve(&tag()).await.unwrap();
    }
}

#[tokio::test]
async fn a_plugin_does_not_lead_to_a_local_server_that_nobody_named() {
    let (registry, other) = (Registry::start().await, Registry::start().await);
    let manifest = plugin(&registry, "1", b"component");
    plugin(&other, "1", b"component");
    let named = client(registry.config()).for_plugins(&[]);
    let store = |location: &str| named.open(&location.parse().unwrap(), &Credentials::Anonymous).unwrap();
    let refused = async |location: &str| {
        let error = store(location).resolve(&tag()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAllowed, "{error}");
        error.to_string().replace(location, "LOCATION")
    };
    let mine = format!("{}/{REPOSITORY}", registry.host());
    assert_eq!(store(&mine).resolve(&tag()).await.unwrap().digest, manifest.digest);

    // An open port and a closed one are told apart by nothing.
    let (open, closed) = (other.address.port(), 1);
    let open_port = refused(&format!("127.0.0.1:{open}/{REPOSITORY}")).await;
    let closed_port = refused(&format!("127.0.0.1:{closed}/{REPOSITORY}")).await;
    let port = |port: u16| format!("127.0.0.1:{port}");
    assert_eq!(
        open_port.replace(&port(open), "HOST"),
        closed_port.replace(&port(closed), "HOST")
    );
    for host in [
        "localhost",
        "[::1]",
        "0.0.0.0",
        "169.254.169.254",
        "[::ffff:127.0.0.1]",
        "2130706433",
    ] {
        // Not each of these is a host that a reference may have.
        if let Ok(location) = format!("{host}:{open}/{REPOSITORY}").parse() {
            let error = named
                .open(&location, &Credentials::Anonymous)
                .unwrap()
                .resolve(&tag())
                .await;
            assert_eq!(error.unwrap_err().kind(), ErrorKind::NotAllowed, "{host}");
        }
    }
    assert_eq!(other.requests(), [""; 0]);

    // Neither does a registry that is named lead there.
    let elsewhere = format!("https://127.0.0.1:{open}/v2/{REPOSITORY}/manifests/1");
    registry.hook(move |_, _| Some(reply(307, &[("Location", &elsewhere)], "")));
    let error = store(&mine).resolve(&tag()).await.unwrap_err();
    assert!(error.to_string().contains("to a local address"), "{error}");
    let challenge = format!("Bearer realm=\"https://localhost:{open}/token\"");
    registry.hook(move |_, _| Some(reply(401, &[("WWW-Authenticate", &challenge)], "")));
    let error = store(&mine).resolve(&tag()).await.unwrap_err();
    assert!(error.to_string().contains("to a local address"), "{error}");
    assert_eq!(other.requests(), [""; 0]);
}
