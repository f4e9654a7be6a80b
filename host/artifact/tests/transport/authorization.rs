//! Credentials: how a registry gets them, and that nobody else does.

use pilothouse_artifact::{Credentials, Digest, ErrorKind, Target};
use serde_json::json;

use pilothouse_test_registry::{REPOSITORY, Registry, client, component, download, plugin, reply};

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
async fn a_password_is_shown_only_when_it_is_asked_for_and_only_the_right_one_helps() {
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
    let checked = client(registry.config());
    checked.check(&registry.host(), &user()).await.unwrap();
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
    for credentials in [user(), Credentials::Anonymous] {
        let error = checked.check(&registry.host(), &credentials).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized);
    }
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
async fn tokens_are_fetched_for_what_is_to_be_done_and_used_until_they_are_refused() {
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
        "no url",
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
