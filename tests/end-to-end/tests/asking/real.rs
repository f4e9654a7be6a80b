//! A host that is asked through a real API server, which says who asks and what they may see.

use std::cell::RefCell;
use std::net::SocketAddr;

use pilothouse_end_to_end::program::{Process, component, ended};
use pilothouse_testkit::controlplane::{ControlPlane, Options};
use pilothouse_testkit::requests::TEST_ACCOUNT;
use serde_json::{Value, json};

use crate::support::{Bench, own_address, until};

fn app_service(namespace: &str, port: u16) -> Value {
    json!({
        "apiVersion": "kosmos.io/v1", "kind": "AppService", "metadata": {"name": "web", "namespace": namespace},
        "spec": {"size": 1, "image": "nginx:1", "ports": [{"port": 80, "targetPort": 80, "nodePort": port}]},
    })
}

fn rule(group: &str, resource: &str, verb: &str) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]})
}

/// Runs a command with a kubeconfig: returns its exit code, its output, and its standard error.
async fn ask(kubeconfig: &str, arguments: &[&str]) -> (i32, String, String) {
    run(kubeconfig, &[arguments, &["-o", "json"]].concat()).await
}

async fn run(kubeconfig: &str, arguments: &[&str]) -> (i32, String, String) {
    let arguments: Vec<String> = [arguments, &["--kubeconfig", kubeconfig]]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect();
    let run = move || ended(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::task::spawn_blocking(run).await.unwrap()
}

/// Checks that the API server keeps who may only read an object from pausing it, and lets an administrator.
async fn steer_by_rights(user: &str, admin: &str, host: &Process) {
    let object = ["appservices/web", "-n", "blue"];
    for command in ["pause", "reconcile"] {
        let (code, _, said) = run(user, &[&[command], &object[..]].concat()).await;
        for words in [
            "cannot annotate AppService blue/web: appservices.kosmos.io \"web\" is forbidden: User",
            "; ask for the right to patch appservices.kosmos.io in namespace blue",
        ] {
            assert!(code == 1 && said.contains(words), "{said}");
        }
    }
    let (code, _, said) = run(user, &["pause", "appservice/web", "-n", "red"]).await;
    assert!(
        code == 1 && said.contains("the right to get appservices.kosmos.io in namespace red"),
        "{said}"
    );
    for (command, is_paused) in [("pause", true), ("resume", false)] {
        let (code, _, said) = run(admin, &[&[command], &object[..]].concat()).await;
        assert_eq!(code, 0, "{said}");
        until(
            "the host has seen the annotation",
            async || {
                let (_, printed, _) = ask(admin, &["why", "appservice/web", "-n", "blue"]).await;
                let document: Value = serde_json::from_str(&printed).unwrap_or_default();
                let last = &document["controllers"][0]["runs"][0]["result"];
                document["paused"] == is_paused && (*last == "Paused") == is_paused
            },
            || host.log(),
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "one control plane serves the whole story")]
async fn users_are_answered_through_the_api_server_by_their_rights() {
    let control_plane = ControlPlane::start(Options::default()).await.unwrap();
    let bench = Bench::new(&control_plane).await;
    for namespace in ["pilothouse-system", "blue", "red"] {
        bench.namespace(namespace).await;
    }
    let at = own_address();
    bench.serve_in_pod("pilothouse-system", "pilothouse", &[at]).await;
    let admin = control_plane
        .kubeconfig_file(TEST_ACCOUNT)
        .unwrap()
        .display()
        .to_string();
    let (listens, plugin) = (at.to_string(), component("app-service"));
    let host = Process::start(&[
        "run",
        "--kubeconfig",
        &admin,
        "--install-crds",
        "--plugin",
        &plugin,
        "--api-address",
        &listens,
    ]);

    // Nobody is answered without a token, whatever their address, and over plain HTTP nobody at all.
    let last = RefCell::new(String::new());
    until(
        "an administrator is answered, by a token for the host's account",
        async || {
            // The account needs rights of its own, or it sees nothing.
            let (code, _, said) = ask(&admin, &["status"]).await;
            last.replace(said);
            let words = "system:serviceaccount:pilothouse-system:pilothouse may not list plugins";
            code == 1 && last.borrow().contains(words)
        },
        || format!("{}\n{}", last.borrow(), host.log()),
    )
    .await;
    let everything = json!([rule("pilothouse.dev", "plugins", "list"), rule("*", "*", "get"),]);
    let _ = bench.account("pilothouse-system", "pilothouse", &everything).await;
    let apps = bench.api(&app_service("blue", 30_111));
    until(
        "the kind is served",
        async || apps.get_opt("web").await.is_ok(),
        || host.log(),
    )
    .await;
    bench
        .apply(&[app_service("blue", 30_111), app_service("red", 30_112)])
        .await;
    until(
        "the objects are reconciled, and the review of before is forgotten",
        async || {
            let (code, printed, _) = ask(&admin, &["status"]).await;
            let document: Value = serde_json::from_str(&printed).unwrap_or_default();
            code == 0 && document["plugins"][0]["controllers"][0]["objects"] == 2
        },
        || host.log(),
    )
    .await;
    let (code, printed, said) = ask(&admin, &["why", "appservice/web", "-n", "blue"]).await;
    assert_eq!(code, 0, "{said}");
    let document: Value = serde_json::from_str(&printed).unwrap();
    assert!(
        document["controllers"][0]["children"]
            .as_array()
            .is_some_and(|it| !it.is_empty()),
        "{document}"
    );
    let (code, _, said) = ask(&admin, &["status", "--account", "blue/nobody"]).await;
    assert!(
        code == 1 && said.contains("cannot have a token made for the ServiceAccount blue/nobody"),
        "{said}"
    );

    // A user of one namespace, with a token of their own, and the right to use the proxy.
    let user = bench
        .account("blue", "ann", &json!([rule("", "services/proxy", "get")]))
        .await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "ann", "namespace": "blue"},
        "rules": [rule("kosmos.io", "appservices", "get")],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "ann", "namespace": "blue"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "ann"},
        "subjects": [{"kind": "ServiceAccount", "name": "ann", "namespace": "blue"}],
    });
    bench.apply(&[role, binding]).await;
    let own = |printed: &str| serde_json::from_str::<Value>(printed).unwrap();
    until(
        "the user may see the own object",
        async || ask(&user, &["why", "appservice/web", "-n", "blue"]).await.0 == 0,
        || host.log(),
    )
    .await;
    steer_by_rights(&user, &admin, &host).await;
    let (_, printed, _) = ask(&user, &["why", "appservice/web", "-n", "blue"]).await;
    let view = &own(&printed)["controllers"][0];
    assert_eq!(
        view["children"],
        json!([]),
        "nothing is said of kinds that the user may not see: {view}"
    );
    assert!(view["childrenNotListed"].as_u64() >= Some(1), "{view}");
    assert!(!view["runs"].as_array().unwrap().is_empty(), "{view}");
    let refusals = [
        (
            &["why", "appservice/web", "-n", "red"][..],
            "may not get appservices.kosmos.io named web in namespace red",
        ),
        (
            &["why", "appservice/nobody", "-n", "red"],
            "may not get appservices.kosmos.io named nobody in namespace red",
        ),
        (&["status"], "may not list plugins.pilothouse.dev"),
        (&["top"], "may not list plugins.pilothouse.dev"),
    ];
    for (arguments, words) in refusals {
        let (code, printed, said) = ask(&user, arguments).await;
        assert_eq!((code, &*printed), (1, ""), "{arguments:?}");
        assert!(
            said.contains("system:serviceaccount:blue:ann") && said.contains(words),
            "{arguments:?}: {said}"
        );
    }

    // Who may not use the proxy is told so; and past the proxy nobody is answered without a token that the server knows.
    let stranger = bench.account("red", "eve", &json!([])).await;
    let (code, _, said) = ask(&stranger, &["status"]).await;
    assert!(
        code == 1 && said.contains("ask for the right to get services/proxy"),
        "{said}"
    );
    let agent = ureq::Agent::config_builder()
        .tls_config(ureq::tls::TlsConfig::builder().disable_verification(true).build())
        .http_status_as_error(false)
        .build()
        .new_agent();
    let url = format!("https://{at}/api/v1/status");
    let answers = tokio::task::spawn_blocking(move || {
        let with = |token: Option<&str>| {
            let mut request = agent.get(&url);
            if let Some(token) = token {
                request = request.header("Authorization", format!("Bearer {token}"));
            }
            request.call().unwrap().status().as_u16()
        };
        [with(None), with(Some("forged"))]
    });
    assert_eq!(answers.await.unwrap(), [401, 401]);
    let plain = pilothouse_end_to_end::scrape::get(at, "/api/v1/status");
    assert!(plain.is_err(), "no token travels over plain HTTP: {plain:?}");
}

/// Returns `true` if three replicas hold the eight shards, and none of the twelve objects waits.
fn adds_up(document: &Value) -> bool {
    let replicas = document["replicas"].as_array().into_iter().flatten();
    let held: Vec<u64> = replicas.filter_map(|it| it["shardsHeld"].as_u64()).collect();
    let controller = &document["plugins"][0]["controllers"][0];
    held.len() == 3
        && held.iter().sum::<u64>() == 8
        && held.iter().all(|held| *held >= 2)
        && (&controller["objects"], &controller["queued"]) == (&json!(12), &json!(0))
        && document["silentReplicas"] == json!([])
        && document["host"]["isLeading"] == true
}

#[tokio::test(flavor = "multi_thread")]
async fn sharded_replicas_answer_together_and_name_a_silent_one() {
    let control_plane = ControlPlane::start(Options::default()).await.unwrap();
    let bench = Bench::new(&control_plane).await;
    bench.namespace("pilothouse-system").await;
    let tenants: Vec<String> = (0..12).map(|number| format!("tenant-{number:02}")).collect();
    for namespace in &tenants {
        bench.namespace(namespace).await;
    }
    let replicas: Vec<SocketAddr> = (0..3).map(|_| own_address()).collect();
    bench.serve_in_pod("pilothouse-system", "harbour", &replicas).await;
    // The host's account has the name of its Service, and that of another host sees nothing. To list objects is enough to see
    // them: the account of a host that acts as its plugins' accounts has that right alone.
    let _ = bench.account("pilothouse-system", "pilothouse", &json!([])).await;
    let everything = json!([rule("pilothouse.dev", "plugins", "list"), rule("*", "*", "list")]);
    let _ = bench.account("pilothouse-system", "harbour", &everything).await;
    let (admin, plugin) = (bench.admin.clone(), component("app-service"));
    let start = |at: &SocketAddr| {
        let listens = at.to_string();
        let mut arguments = vec!["run", "--kubeconfig", &admin, "--install-crds", "--plugin", &plugin];
        arguments.extend(["--api-address", &listens, "--namespace", "pilothouse-system"]);
        arguments.extend(["--leader-election", "--shards", "8"]);
        Process::start(&arguments)
    };
    let mut hosts: Vec<Process> = replicas.iter().map(start).collect();
    let last = RefCell::new(String::new());
    let ask = async |arguments: &[&str]| {
        let service = ["--service", "pilothouse-system/harbour"];
        ask(&admin, &[arguments, &service].concat()).await
    };
    let status = async |is_so: fn(&Value) -> bool| {
        let (_, printed, said) = ask(&["status"]).await;
        let document: Value = serde_json::from_str(&printed).unwrap_or_default();
        last.replace(format!("{document}\n{said}"));
        is_so(&document)
    };
    let logs = |hosts: &[Process]| hosts.iter().map(Process::log).collect::<String>();
    let objects: Vec<Value> = (0..)
        .zip(&tenants)
        .map(|(number, tenant)| app_service(tenant, 30_200 + number))
        .collect();
    until(
        "the kind is served",
        async || status(|it| it["plugins"][0]["ready"] == true).await,
        || format!("{}\n{}", last.borrow(), logs(&hosts)),
    )
    .await;
    bench.apply(&objects).await;
    until(
        "three replicas tell of twelve objects",
        async || status(adds_up).await,
        || format!("{}\n{}", last.borrow(), logs(&hosts)),
    )
    .await;
    let used = async || {
        let (_, printed, said) = ask(&["top"]).await;
        let document: Value = serde_json::from_str(&printed).unwrap_or_default();
        last.replace(format!("{document}\n{said}"));
        let plugin = &document["plugins"][0];
        said.is_empty() && plugin["objects"] == 12 && plugin["reconciles"].as_u64() >= Some(12)
    };
    let why = async || {
        let (code, printed, said) = ask(&["why", "appservice/web", "-n", "tenant-00"]).await;
        let document: Value = serde_json::from_str(&printed).unwrap_or_default();
        last.replace(format!("{document}\n{said}"));
        let children = document["controllers"][0]["children"].as_array();
        code == 0 && children.is_some_and(|children| !children.is_empty())
    };
    let seen = || format!("{}\n{}", last.borrow(), logs(&hosts));
    // While a shard moves, nobody knows its objects.
    until("what all have used is added up", used, seen).await;
    until("the holder of its shard says what was made for it", why, seen).await;

    // One is killed: until its Lease ends, it is known to live.
    drop(hosts.pop());
    let (code, printed, said) = ask(&["status"]).await;
    let document: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!(
        (code, document["replicas"].as_array().map(Vec::len)),
        (0, Some(2)),
        "{document}\n{said}"
    );
    assert_eq!(
        document["silentReplicas"].as_array().map(Vec::len),
        Some(1),
        "{document}"
    );
    let is_taken_over = |document: &Value| {
        document["silentReplicas"] == json!([]) && document["plugins"][0]["controllers"][0]["objects"] == 12
    };
    until(
        "the others have taken over",
        async || status(is_taken_over).await,
        || format!("{}\n{}", last.borrow(), logs(&hosts)),
    )
    .await;
}
