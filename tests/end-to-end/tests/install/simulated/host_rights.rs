//! Tests that rights granted to a host for a plugin stay when the plugin is upgraded or installed again, and are
//! reported.

use serde_json::Value;

use super::Installed;

fn titles(granted: &[Value]) -> Vec<String> {
    let title = |it: &Value| {
        let (kind, metadata) = (it["kind"].as_str().unwrap(), &it["object"]["metadata"]);
        let place = metadata["namespace"].as_str().map(|namespace| format!("{namespace}/"));
        format!(
            "{kind} {}{}",
            place.unwrap_or_default(),
            metadata["name"].as_str().unwrap()
        )
    };
    granted.iter().map(title).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_keeps_its_rights_over_upgrade_and_reinstallation() {
    let (own, watch, act) = (
        "pilothouse-plugin-shop",
        "pilothouse-plugin-shop-watch",
        "pilothouse-plugin-shop-act",
    );
    let acting = [
        format!("ServiceAccount other/{own}"),
        format!("ClusterRole {own}"),
        format!("ClusterRole {watch}"),
        format!("ClusterRole {own}:edit"),
        format!("ClusterRole {own}:view"),
        format!("ClusterRoleBinding {own}"),
        format!("ClusterRoleBinding {watch}"),
        format!("Role other/{act}"),
        format!("RoleBinding other/{act}"),
    ];
    let narrow = [
        format!("ServiceAccount other/{own}"),
        format!("Role default/{own}"),
        format!("RoleBinding default/{own}"),
    ];
    let acting_narrow = [
        format!("ServiceAccount other/{own}"),
        format!("Role default/{own}"),
        format!("Role default/{watch}"),
        format!("Role other/{act}"),
        format!("RoleBinding default/{own}"),
        format!("RoleBinding default/{watch}"),
        format!("RoleBinding other/{act}"),
    ];
    let confined = ["--namespaces", "default"];
    let cases: [(&[&str], &[&str], &[String]); 4] = [
        (&["--identity", "impersonate"], &[], &acting),
        (&["--identity", "token"], &[], &acting),
        (&["--host-in-namespaces", "--identity", "none"], &confined, &narrow),
        (
            &["--host-in-namespaces", "--identity", "impersonate"],
            &confined,
            &acting_narrow,
        ),
    ];
    for (options, confined, expected) in cases {
        let host = ["--host-namespace", "other", "--host-account", "runner"];
        let installed = Installed::with(&[&host, options, confined].concat()).await;
        let granted = installed.granted().await;
        assert_eq!(titles(&granted), expected, "{options:?}");
        // An installation says of the Plugin what it is to be; the host stays as the Plugin records it.
        for (verb, arguments) in [
            ("upgrade", ["--no-objects", "--yes"].as_slice()),
            ("install", &[&["--yes"], confined].concat()),
        ] {
            let (code, printed, said) = installed.run(verb, arguments).await;
            assert_eq!(code, 0, "{said}");
            assert!(
                printed.contains("The host's ServiceAccount other/runner may "),
                "{printed}"
            );
            assert!(!printed.contains("deletes"), "{verb} {options:?}: {printed}");
            assert_eq!(installed.granted().await, granted, "{verb} {options:?}: {printed}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_be_deleted_is_said_before_it_is() {
    let options = [
        "--host-namespace",
        "other",
        "--host-account",
        "runner",
        "--identity",
        "impersonate",
    ];
    let installed = Installed::with(&options).await;
    let granted = installed.granted().await;
    let arguments = ["--no-objects", "--no-host-account", "--dry-run"];
    let (code, printed, said) = installed.run("upgrade", &arguments).await;
    assert_eq!(code, 3, "{said}");
    let words = "This deletes what an earlier installation granted
  ClusterRoleBinding pilothouse-plugin-shop-watch
  RoleBinding other/pilothouse-plugin-shop-act
  ClusterRole pilothouse-plugin-shop-watch
  Role other/pilothouse-plugin-shop-act

";
    assert!(printed.ends_with(words), "{printed}");
    assert_eq!(installed.granted().await, granted, "a dry run changes nothing");
    // Who answers nothing has said nothing.
    let (code, printed, said) = installed.run("upgrade", &arguments[..2]).await;
    assert!(code == 1 && said.contains("there is no terminal to ask on"), "{said}");
    assert!(printed.ends_with(words), "{printed}");
    assert_eq!(installed.granted().await, granted);
    let (code, printed, said) = installed.run("upgrade", &[&arguments[..2], &["--yes"]].concat()).await;
    assert_eq!(code, 0, "{said}");
    assert!(
        printed.contains("Role other/pilothouse-plugin-shop-act deleted"),
        "{printed}"
    );
    let left = installed.granted().await;
    assert_eq!(
        titles(&left),
        titles(&granted)
            .into_iter()
            .filter(|title| ["-shop", ":view", ":edit"].iter().any(|end| title.ends_with(end)))
            .collect::<Vec<_>>()
    );

    // What nobody can know has to be said.
    let (code, _, said) = installed
        .run("upgrade", &["--no-objects", "--yes", "--identity", "token"])
        .await;
    assert!(
        code == 1 && said.contains("--identity is about the rights of the host's ServiceAccount"),
        "{said}"
    );
    let more = [
        "--no-objects",
        "--yes",
        "--host-account",
        "runner",
        "--host-in-namespaces",
    ];
    let (code, _, said) = installed.run("upgrade", &more).await;
    assert!(
        code == 1 && said.contains("name them with --namespaces, or say --host-in-namespaces=false"),
        "{said}"
    );
}

/// Guards against users with rights in one namespace, who can label objects of their own there.
#[tokio::test(flavor = "multi_thread")]
async fn objects_that_others_have_labelled_divert_no_rights() {
    let bare = Installed::bare().await;
    let labels = serde_json::json!({"app.kubernetes.io/managed-by": "pilothouse", "pilothouse.dev/plugin": "shop"});
    let namespace = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "evil"}});
    let account = serde_json::json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "pilothouse-plugin-shop", "namespace": "evil", "labels": labels},
    });
    bare.create(&namespace).await;
    bare.create(&account).await;
    let host = ["--host-account", "runner", "--yes"];
    let (code, printed, said) = bare.run("install", &host).await;
    assert_eq!(code, 1, "{printed}");
    for words in [
        "Plugin shop has no annotation pilothouse.dev/installed-for",
        "ServiceAccount evil/pilothouse-plugin-shop",
        "say for which host the plugin is installed",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(
        titles(&bare.granted().await),
        ["ServiceAccount evil/pilothouse-plugin-shop"]
    );

    // Once the Plugin says for which host it is installed, such objects are only told of.
    let named = [&["--host-namespace", "other"][..], &host].concat();
    let (code, _, said) = bare.run("install", &named).await;
    assert_eq!(code, 0, "{said}");
    bare.create(&account).await;
    let (code, printed, said) = bare.run("upgrade", &["--no-objects", "--yes"]).await;
    assert_eq!(code, 0, "{said}");
    let words = "The host's ServiceAccount other/runner may ";
    assert!(printed.contains(words), "{printed}");
    for binding in bare
        .granted()
        .await
        .iter()
        .filter(|it| !it["object"]["subjects"].is_null())
    {
        let subjects = binding["object"]["subjects"].as_array().unwrap();
        assert!(subjects.iter().all(|it| it["namespace"] == "other"), "{binding}");
    }
}
