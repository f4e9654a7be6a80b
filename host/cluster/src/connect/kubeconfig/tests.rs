//! Kubeconfigs in the forms that kubectl reads, each against the rule of client-go.

use super::*;

/// A certificate authority, PEM.
fn authority() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    rcgen::CertificateParams::new(vec!["ca.example".to_owned()])
        .unwrap()
        .self_signed(&key)
        .unwrap()
        .pem()
}

fn base64(text: &str) -> String {
    json!(ByteString(text.as_bytes().to_vec())).as_str().unwrap().to_owned()
}

/// A kubeconfig with one cluster and one user, over which members are laid.
#[expect(
    clippy::needless_pass_by_value,
    reason = "rows of tests read better without references"
)]
fn with(cluster: Value, user: Value) -> Value {
    let mut kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "dev",
        "clusters": [{"name": "c", "cluster": {"server": "https://k.example:6443"}}],
        "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "me"}}],
        "users": [{"name": "me", "user": user}],
    });
    for (name, member) in cluster.as_object().unwrap() {
        kubeconfig["clusters"][0]["cluster"][name] = member.clone();
    }
    kubeconfig
}

fn parsed(text: &str) -> Result<Kubeconfig, String> {
    Kubeconfig::parse(text.as_bytes(), Path::new("/etc/kube/config"))
}

fn connection_of(kubeconfig: &Value) -> Result<Connection, String> {
    parsed(&kubeconfig.to_string())?.connection(None, &|_| None)
}

async fn token_of(user: Value) -> Result<Option<String>, String> {
    let Some(tokens) = connection_of(&with(json!({}), user))?.tokens else {
        return Ok(None);
    };
    let header = tokens.header().await.map_err(|error| error.to_string())?;
    Ok(header.map(|it| it.to_str().unwrap().to_owned()))
}

fn user_problem(user: Value) -> String {
    connection_of(&with(json!({}), user)).err().expect("it is refused")
}

fn cluster_problem(cluster: Value) -> String {
    connection_of(&with(cluster, json!({}))).err().expect("it is refused")
}

#[test]
fn missing_or_incomplete_context_is_refused_with_known_ones() {
    let kubeconfig = json!({
        "clusters": [{"name": "here", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
        "contexts": [
            {"name": "dev", "context": {"cluster": "here", "user": "me"}},
            {"name": "prod", "context": {"cluster": "there", "user": "me"}},
            {"name": "odd", "context": {"cluster": "here", "user": "you"}},
            {"name": "open", "context": {"cluster": "here"}},
            {"name": "none"}, {"name": "empty", "context": {}},
        ],
        "current-context": "dev",
    });
    let read = parsed(&kubeconfig.to_string()).unwrap();
    let user = |context| read.connection(context, &|_| None).map(|it| it.user);
    assert_eq!(user(None).unwrap(), "me");
    assert_eq!(user(Some("open")).unwrap(), "anonymous");
    let all = "it has dev, prod, odd, open, none, empty";
    assert_eq!(
        user(Some("nope")).unwrap_err(),
        format!("it has no context \"nope\"; {all}")
    );
    assert_eq!(
        user(Some("prod")).unwrap_err(),
        "its context \"prod\" names cluster \"there\"; it has here"
    );
    assert_eq!(
        user(Some("odd")).unwrap_err(),
        "its context \"odd\" names user \"you\"; it has me"
    );
    for context in ["none", "empty"] {
        let problem = user(Some(context)).unwrap_err();
        assert_eq!(
            problem,
            format!("its context {context:?} names cluster \"\"; it has here")
        );
    }
    for text in [
        "",
        "{}",
        "---\n",
        "contexts:\nusers:\nclusters:\n",
        "current-context: ''",
    ] {
        let empty = parsed(text).unwrap();
        assert!(empty.is_empty(), "{text:?}");
        assert_eq!(
            empty.choose(None).err().unwrap(),
            "it has no current-context; it has none"
        );
    }
}

#[test]
fn the_text_may_have_each_form_that_editors_write() {
    let json = with(json!({}), json!({"token": "t"}));
    let pretty = serde_json::to_string_pretty(&json).unwrap();
    let yaml = serde_saphyr::to_string(&json).unwrap();
    let wide = |text: &str, mark: [u8; 2], bytes: fn(u16) -> [u8; 2]| {
        let units = text.encode_utf16().flat_map(bytes);
        mark.into_iter().chain(units).collect::<Vec<u8>>()
    };
    for (form, bytes) in [
        ("JSON", json.to_string().into_bytes()),
        ("JSON with tabs", pretty.replace("  ", "\t").into_bytes()),
        ("YAML", yaml.clone().into_bytes()),
        ("YAML with CRLF", yaml.replace('\n', "\r\n").into_bytes()),
        ("YAML after ---", format!("---\n{yaml}").into_bytes()),
        ("UTF-8 with a mark", format!("\u{feff}{yaml}").into_bytes()),
        ("JSON with a mark", format!("\u{feff}{json}").into_bytes()),
        ("UTF-16 LE", wide(&yaml, [0xff, 0xfe], u16::to_le_bytes)),
        ("UTF-16 BE", wide(&yaml, [0xfe, 0xff], u16::to_be_bytes)),
    ] {
        let read = Kubeconfig::parse(&bytes, Path::new("config"));
        let connection = read.and_then(|read| read.connection(None, &|_| None));
        assert_eq!(connection.map(|it| it.user), Ok("me".to_owned()), "{form}");
    }
    for wrong in [
        &b"\xff\xfe{"[..],
        b"\xfe\xff{",
        b"\xff",
        b"[1]",
        b"text",
        b"{users: {}}",
        b"{users: 1}",
        b"{",
    ] {
        assert!(Kubeconfig::parse(wrong, Path::new("config")).is_err(), "{wrong:?}");
    }
}

#[test]
fn entries_have_one_name_and_the_first_file_wins() {
    let mut twice = with(json!({}), json!({"token": "t"}));
    let user = twice["users"][0].clone();
    twice["users"].as_array_mut().unwrap().push(user);
    assert!(connection_of(&twice).err().unwrap().contains("the user \"me\" twice"));

    let mut merged = parsed("current-context: ''\nusers: [{name: me, user: {username: a}}]").unwrap();
    merged.merge(parsed(&with(json!({}), json!({"token": "t"})).to_string()).unwrap());
    let connection = merged.connection(None, &|_| None).unwrap();
    assert_eq!(connection.config.auth_info.username.as_deref(), Some("a"));
    assert!(connection.tokens.is_none());
}

#[test]
fn a_server_has_the_form_of_a_url() {
    let url = |server: &str| {
        let connection = connection_of(&with(json!({"server": server}), json!({})));
        connection.map(|it| it.config.cluster_url.to_string())
    };
    assert_eq!(url("https://k.example/").unwrap(), "https://k.example/");
    assert_eq!(url("HTTPS://k.example").unwrap(), "https://k.example/");
    assert_eq!(
        url("https://r.example/k8s/clusters/c-1").unwrap(),
        "https://r.example/k8s/clusters/c-1"
    );
    assert_eq!(url("localhost:8080").unwrap(), "http://localhost:8080/");
    assert!(url("").unwrap_err().contains("has no server"));
    for wrong in ["ftp://k.example", "https://", "https://a b", "unix:///x"] {
        assert!(url(wrong).unwrap_err().contains("write https://HOST:PORT"), "{wrong}");
    }
}

#[test]
fn authorities_are_read_wherever_they_are() {
    let (one, two) = (authority(), authority());
    let data = base64(&format!(
        "# a comment\n{one}\n-----BEGIN X-----\nAAAA\n-----END X-----\n{two}"
    ));
    let wrapped: String = data
        .as_bytes()
        .chunks(64)
        .map(|line| String::from_utf8_lossy(line) + "\n")
        .collect();
    for data in [
        &data,
        &wrapped,
        &wrapped.replace('\n', "\r\n"),
        &wrapped.replace('\n', " "),
    ] {
        let connection = connection_of(&with(json!({"certificate-authority-data": data}), json!({}))).unwrap();
        assert_eq!(connection.config.root_cert.unwrap().len(), 2);
    }
    let folder = std::env::temp_dir().join(format!("kubeconfig-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("ca.crt"), &one).unwrap();
    let relative = with(
        json!({"certificate-authority": "ca.crt", "certificate-authority-data": ""}),
        json!({}),
    );
    let read = Kubeconfig::parse(relative.to_string().as_bytes(), &folder.join("config")).unwrap();
    assert_eq!(
        read.connection(None, &|_| None)
            .unwrap()
            .config
            .root_cert
            .unwrap()
            .len(),
        1
    );
    std::fs::remove_dir_all(&folder).unwrap();

    let insecure = connection_of(&with(
        json!({"insecure-skip-tls-verify": true, "tls-server-name": "n"}),
        json!({}),
    ));
    let config = insecure.unwrap().config;
    assert!(config.accept_invalid_certs && config.tls_server_name.as_deref() == Some("n"));
    for (cluster, problem) in [
        (
            json!({"insecure-skip-tls-verify": true, "certificate-authority-data": data}),
            "remove one of the two",
        ),
        (
            json!({"certificate-authority-data": base64("no PEM")}),
            "without a certificate",
        ),
        (json!({"certificate-authority-data": "%"}), "is no base64"),
        (
            json!({"certificate-authority": "/none/ca.crt"}),
            "/none/ca.crt, which cannot be read",
        ),
        (
            json!({"insecure-skip-tls-verify": "true"}),
            "cannot be read: invalid type",
        ),
    ] {
        let found = cluster_problem(cluster);
        assert!(
            found.contains(problem) && found.contains("its cluster \"c\""),
            "{found}"
        );
    }
}

#[test]
fn a_proxy_is_the_clusters_or_the_environments() {
    let proxy = |cluster: Value, environment: &[(&str, &str)]| {
        let variable = |name: &str| {
            let found = environment.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let read = parsed(&with(cluster, json!({})).to_string()).unwrap();
        read.connection(None, &variable)
            .unwrap()
            .config
            .proxy_url
            .map(|url| url.to_string())
    };
    let environment = [("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", "k.example")];
    assert_eq!(proxy(json!({}), &environment[..1]).as_deref(), Some("http://p:1/"));
    assert_eq!(proxy(json!({}), &environment), None);
    // NO_PROXY is for the environment's proxy.
    assert_eq!(
        proxy(json!({"proxy-url": "socks5://q:2"}), &environment).as_deref(),
        Some("socks5://q:2/")
    );
    assert_eq!(proxy(json!({"proxy-url": ""}), &environment), None);
    let problem = cluster_problem(json!({"proxy-url": "q:2"}));
    assert!(
        problem.contains("proxy-url") && problem.contains("socks5://"),
        "{problem}"
    );
}

#[tokio::test]
async fn tokens_are_trimmed_and_a_file_goes_before_a_token() {
    let folder = std::env::temp_dir().join(format!("tokens-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (full, empty, none) = (folder.join("full"), folder.join("empty"), folder.join("none"));
    std::fs::write(&full, "of the file\r\n").unwrap();
    std::fs::write(&empty, "\n").unwrap();
    let bearer = |token: &str| Ok(Some(format!("Bearer {token}")));
    assert_eq!(token_of(json!({"token": "t\n"})).await, bearer("t"));
    assert_eq!(token_of(json!({"token": ""})).await, Ok(None));
    assert_eq!(token_of(json!({"token": null})).await, Ok(None));
    assert_eq!(token_of(json!({"tokenFile": full})).await, bearer("of the file"));
    assert_eq!(
        token_of(json!({"token": "t", "tokenFile": full})).await,
        bearer("of the file")
    );
    assert_eq!(token_of(json!({"token": "t", "tokenFile": none})).await, bearer("t"));
    assert_eq!(token_of(json!({"token": "t", "tokenFile": empty})).await, bearer("t"));
    assert_eq!(
        token_of(json!({"auth-provider": {"name": "oidc", "config": {"id-token": "i\n"}}})).await,
        bearer("i")
    );
    for (user, problem) in [
        (json!({"token": "a\nb"}), "no header may have"),
        (json!({"token": 5}), "its user \"me\" cannot be read: invalid type"),
        (json!({"tokenFile": none}), "none cannot be read"),
        (json!({"tokenFile": empty}), "it is empty"),
        (json!({"token": "t", "username": "u"}), "both a token and a user name"),
        (json!({"auth-provider": {"name": "gcp"}}), "gke-gcloud-auth-plugin"),
        (
            json!({"auth-provider": {"name": "oidc", "config": null}}),
            "without an id-token",
        ),
        (
            json!({"auth-provider": {"name": "oidc"}, "exec": {}}),
            "both exec and auth-provider",
        ),
        (json!({"as-groups": ["g"]}), "without as"),
        (json!({"client-certificate-data": "YQ=="}), "without client-key"),
    ] {
        let found = user_problem(user);
        assert!(found.contains(problem) && found.contains("its user \"me\""), "{found}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
    // Nothing is shown in plain text.
    let plain = connection_of(&with(json!({"server": "http://k.example"}), json!({"token": "t"})));
    assert!(plain.unwrap().tokens.is_none());
}

#[tokio::test]
async fn certificates_passwords_and_impersonation_go_beside() {
    let wrapped =
        json!({"client-certificate-data": "YQ\n==", "client-key-data": "Yg \n==", "as": "you", "as-groups": ["g"]});
    let auth = connection_of(&with(json!({}), wrapped)).unwrap().config.auth_info;
    assert_eq!(auth.client_certificate_data.as_deref(), Some("YQ=="));
    assert_eq!(auth.impersonate.as_deref(), Some("you"));
    let beside = json!({"client-certificate-data": "", "client-key": "k", "token": "t"});
    let connection = connection_of(&with(json!({}), beside)).unwrap();
    let auth = &connection.config.auth_info;
    assert!(auth.client_certificate_data.is_none() && auth.client_key.is_none() && connection.tokens.is_some());
    let auth = connection_of(&with(json!({}), json!({"username": "u"})))
        .unwrap()
        .config
        .auth_info;
    assert!(auth.username.as_deref() == Some("u") && auth.password.is_some());
}

#[tokio::test]
async fn a_helper_is_asked_as_client_go_asks() {
    let version = "client.authentication.k8s.io/v1";
    let exec = |script: &str| {
        json!({"exec": {
            "apiVersion": version, "interactiveMode": "Never", "command": "sh", "args": ["-c", script],
            "env": [{"name": "TOKEN", "value": "made"}], "provideClusterInfo": true,
        }})
    };
    let credential = |status: &str| {
        format!("printf '%s' '{{\"kind\": \"ExecCredential\", \"apiVersion\": \"{version}\", \"status\": {status}}}'")
    };
    let told = "case $KUBERNETES_EXEC_INFO in *k.example*) ;; *) exit 1;; esac; ";
    let script = format!("{told}{}", credential("{\"token\": \"'$TOKEN'\\n\"}"));
    assert_eq!(token_of(exec(&script)).await, Ok(Some("Bearer made".into())));
    // A certificate or a token of one's own goes before.
    let mut both = exec("exit 1");
    both["token"] = json!("t");
    assert_eq!(token_of(both).await, Ok(Some("Bearer t".into())));

    let changed = |member: &str, value: Value| {
        let mut user = exec("exit 1");
        user["exec"][member] = value;
        user
    };
    let mut hinted = changed("command", json!("no-such-helper"));
    hinted["exec"]["installHint"] = json!("brew install\n  helper\n");
    for (user, problem) in [
        (
            hinted,
            "no-such-helper of user \"me\" is not installed: brew install helper",
        ),
        (changed("command", json!("no-such-helper")), "not in PATH"),
        (changed("command", json!("./bin/helper")), "/etc/kube/./bin/helper"),
        (changed("command", json!("")), "without a command"),
        (
            changed("apiVersion", json!("client.authentication.k8s.io/v1alpha1")),
            "v1alpha1",
        ),
        (changed("interactiveMode", json!("")), "without an interactiveMode"),
        (changed("env", json!([{"value": "v"}])), "without a name"),
        (exec("exit 3"), "exit status: 3"),
        (exec("echo hello"), "did not print an ExecCredential"),
        (exec(&credential("{}")), "neither a token nor a certificate"),
        (
            exec(&credential("{\"clientKeyData\": \"k\"}")),
            "without a key, or a key without",
        ),
        (exec(&credential("{\"token\": \"secret\\n-\"}")), "no header may have"),
        (
            exec(&credential("{\"token\": \"secret\"}").replace("/v1", "/v1beta1")),
            "another version",
        ),
    ] {
        let found = user_problem(user);
        assert!(
            found.contains(problem) && !found.contains("secret"),
            "{problem}: {found}"
        );
    }
}
