//! Values of the wrong type, and values that contradict each other: helm names the value before it touches a cluster.

use pilothouse_chart::folder;
use pilothouse_external::helm::Helm;
use serde_json::{Value, json};

fn refusal(values: &Value) -> String {
    let rendered = Helm::new(&folder(), "pilothouse", "pilothouse-system").template(values);
    let Err(failed) = rendered else {
        panic!("helm takes {values}");
    };
    failed.printed.errors
}

#[test]
fn the_image_has_to_be_named_and_the_error_says_how_to_get_one() {
    let rendered = Helm::new(&folder(), "pilothouse", "pilothouse-system")
        .without_image()
        .template(&json!({}));
    let Err(failed) = rendered else {
        panic!("helm renders a chart without an image");
    };
    for words in ["image.repository is empty", "cargo xtask image", "set image.repository"] {
        assert!(
            failed.printed.errors.contains(words),
            "{words}: {}",
            failed.printed.errors
        );
    }
}

#[test]
fn a_value_of_a_wrong_type_is_refused_by_its_name() {
    for (values, words) in [
        (json!({"replicas": "two"}), &["replicas", "integer"][..]),
        (json!({"replicas": 10}), &["replicas", "9"]),
        (json!({"replica": 1}), &["replica"]),
        (
            json!({"webhooks": {"enabled": "yes"}}),
            &["webhooks/enabled", "boolean"],
        ),
        (json!({"webhooks": {"plugins": ["A_B"]}}), &["webhooks/plugins"]),
        (json!({"host": {"identity": "root"}}), &["host/identity"]),
        (json!({"host": {"workers": 0}}), &["host/workers"]),
        (
            json!({"host": {"extraEnv": {"HTTPS_PROXY": "http://proxy"}}}),
            &["host/extraEnv", "array"],
        ),
        (
            json!({"host": {"extraEnv": [{"value": "http://proxy"}]}}),
            &["host/extraEnv/0", "name"],
        ),
        (
            json!({"host": {"extraEnv": [{"name": "A=B"}]}}),
            &["host/extraEnv/0/name"],
        ),
        (json!({"metrics": {"port": 80}}), &["metrics/port"]),
        (json!({"crds": {"installedBy": "both"}}), &["crds/installedBy"]),
        (json!({"image": {"digest": "sha256:abc"}}), &["image/digest"]),
        (
            json!({"resources": {"limits": {"memory": "lots"}}}),
            &["resources/limits/memory"],
        ),
        (
            json!({"resources": {"requests": {"cpu": -1}}}),
            &["resources/requests/cpu"],
        ),
        (json!({"rbac": {"namespaces": "shop"}}), &["rbac/namespaces", "array"]),
        (
            json!({"artifacts": {"trust": "trust.yaml"}}),
            &["artifacts/trust", "object"],
        ),
        (
            json!({"leaderElection": {"leaseDuration": 1.5}}),
            &["leaderElection/leaseDuration"],
        ),
        (json!({"plugins": {"static": [{}]}}), &["plugins/static/0", "name"]),
        (
            json!({"plugins": {"static": [{"name": "a", "file": "/etc/a.wasm"}]}}),
            &["plugins/static/0/file"],
        ),
        (
            json!({"plugins": {"static": [{"name": "a", "artifact": "ghcr.io/a:1"}]}}),
            &["plugins/static/0/artifact"],
        ),
        (
            json!({"policies": {"reservedMetadata": {"resources": ["deployments"]}}}),
            &["policies/reservedMetadata/resources/0", "object"],
        ),
    ] {
        let said = refusal(&values).replace('.', "/");
        for words in words {
            assert!(said.contains(words), "{values}: {words}: {said}");
        }
    }
}

#[test]
fn contradicting_values_are_refused_with_the_next_step() {
    for (values, words) in [
        (
            json!({"leaderElection": {"enabled": false}}),
            "both replicas would write; enable leader election, or set replicas to 1",
        ),
        (
            json!({"replicas": 1, "leaderElection": {"enabled": false, "shards": 4}}),
            "shards have Leases, too; enable leader election",
        ),
        (
            json!({"webhooks": {"enabled": true}}),
            "list the Plugins that have webhooks",
        ),
        (
            json!({"webhooks": {"enabled": true, "plugins": ["gate"]}}),
            "kubectl get endpointslices --namespace default",
        ),
        (
            json!({"metrics": {"port": 8443}}),
            "metrics.port and api.port are both 8443: a pod can listen on a port once; give one of them another port",
        ),
        (
            json!({"api": {"port": 9443}, "webhooks": {"enabled": true, "plugins": ["gate"]}}),
            "api.port and webhooks.port are both 9443",
        ),
        (
            json!({"api": {"enabled": false}, "metrics": {"port": 9443}, "webhooks": {"enabled": true, "plugins": ["gate"]}}),
            "metrics.port and webhooks.port are both 9443",
        ),
        (
            json!({"priorityClass": {"create": true}}),
            "name the PriorityClass to create",
        ),
    ] {
        let said = refusal(&values);
        assert!(said.contains(words), "{values}: {said}");
    }
}

/// What the schema cannot say, or what it says with a pattern: the host or the API server would refuse it after the rollout began.
#[test]
fn values_that_the_host_would_refuse_are_refused_by_the_chart() {
    let volume = |name: &str, path: &str| json!({"extraVolumes": [{"name": name, "emptyDir": {}}], "extraVolumeMounts": [{"name": name, "mountPath": path}]});
    let rule = |rule: Value| {
        let mut rule = rule;
        rule["match"] = json!("ghcr.io/acme/*");
        json!({"artifacts": {"trust": {"repositories": [rule]}}})
    };
    let fixed = |more: Value| {
        let mut plugin = json!({"name": "shop", "artifact": "oci://registry.example.com/shop:1"});
        merge(&mut plugin, &more);
        json!({"host": {"identity": "none"}, "plugins": {"static": [plugin]}})
    };
    let registry = |more: Value| json!({"artifacts": {"registries": {"registries": [more]}}});
    for (values, words) in [
        (
            json!({"leaderElection": {"leaseDuration": 10}}),
            "leaseDuration is 10 and renewDeadline is 10",
        ),
        (
            json!({"leaderElection": {"retryPeriod": 6}}),
            "at most half of renewDeadline",
        ),
        (json!({"plugins": {"selector": "team in a"}}), "plugins/selector"),
        (
            json!({"plugins": {"selector": "team=="}, "policies": {"plugin": true}}),
            "plugin",
        ),
        (json!({"plugins": {"selector": "team = a b"}}), "plugins/selector"),
        (json!({"plugins": {"selector": "a=b,,c"}}), "plugins/selector"),
        (
            json!({"plugins": {"volume": {"name": "plugins", "emptyDir": {}}}}),
            "plugins/volume",
        ),
        (
            json!({"artifacts": {"trust": {"defaults": "refuse"}}}),
            "artifacts/trust",
        ),
        (json!({"artifacts": {"trust": {"default": "deny"}}}), "artifacts/trust"),
        (rule(json!({"key": []})), "artifacts/trust/repositories/0"),
        (rule(json!({})), "ghcr/io/acme/* accepts nothing"),
        (
            rule(json!({"unsigned": true, "keys": [{"pem": "a"}]})),
            "remove one of them",
        ),
        (rule(json!({"keys": [{"name": "a"}]})), "needs either file or pem"),
        (rule(json!({"keys": [{"file": "acme.pub"}]})), "names the file acme/pub"),
        (
            rule(json!({"keyless": [{"issuer": "https://a", "subject": "b@c"}]})),
            "without a trustedRoot",
        ),
        (
            json!({"artifacts": {"trust": {"repositories": [{"match": "ghcr.io/acme/app:1", "unsigned": true}]}}}),
            "artifacts/trust/repositories/0/match",
        ),
        (
            registry(json!({"host": "https://ghcr.io"})),
            "artifacts/registries/registries/0/host",
        ),
        (
            registry(json!({"host": "ghcr.io", "insecure": true})),
            "artifacts/registries/registries/0",
        ),
        (
            registry(json!({"host": "ghcr.io", "certificateAuthorities": ["ca.pem"]})),
            "names the file ca/pem",
        ),
        (
            json!({"artifacts": {"registries": {"registries": [{"host": "a.example"}, {"host": "a.example"}]}}}),
            "lists the host a/example twice",
        ),
        (
            json!({"artifacts": {"files": {"keys/acme.pub": ""}}}),
            "keys/acme/pub",
        ),
        (
            json!({"artifacts": {"files": {"trust.yaml": ""}}}),
            "give it another name",
        ),
        (
            fixed(json!({"limits": {"callMilliseconds": 1}})),
            "plugins/static/0/limits/callMilliseconds",
        ),
        (fixed(json!({"limits": {"memory": 1}})), "plugins/static/0/limits"),
        (
            fixed(json!({"rules": [{"apiGroup": "", "resources": ["a"], "verbs": ["get"]}]})),
            "plugins/static/0/rules/0",
        ),
        (
            json!({"host": {"extraArguments": ["--workers=3"]}}),
            "--workers, which the chart gives",
        ),
        (
            json!({"host": {"extraArguments": ["--leader-election"]}}),
            "--leader-election, which",
        ),
        (
            json!({"host": {"extraEnv": [{"name": "A"}, {"name": "A"}]}}),
            "the variable A, which another entry",
        ),
        (
            json!({"host": {"extraEnv": [{"name": "HOSTNAME", "value": "a"}]}}),
            "the chart sets already",
        ),
        (
            json!({"host": {"log": "info", "extraEnv": [{"name": "PILOTHOUSE_LOG", "value": "a"}]}}),
            "host/log sets already",
        ),
        (
            json!({"host": {"extraEnv": [{"name": "A", "value": "a", "valueFrom": {"fieldRef": {"fieldPath": "b"}}}]}}),
            "a value and valueFrom",
        ),
        (
            json!({"webhooks": {"convertedCrds": ["gates"]}}),
            "webhooks/convertedCrds/0",
        ),
        (json!({"webhooks": {"plugins": ["a", "a"]}}), "webhooks/plugins"),
        (json!({"rbac": {"namespaces": ["shop", "shop"]}}), "rbac/namespaces"),
        (
            json!({"rbac": {"namespaces": (0..33).map(|number| format!("n{number}")).collect::<Vec<_>>()}}),
            "rbac/namespaces",
        ),
        (json!({"image": {"pullSecrets": ["a", "a"]}}), "image/pullSecrets"),
        (
            json!({"image": {"repository": "https://registry.example.com/host"}}),
            "image/repository",
        ),
        (
            json!({"image": {"repository": "registry.example.com/host:1"}}),
            "image/repository",
        ),
        (json!({"fullnameOverride": "1st"}), "fullnameOverride"),
        (
            json!({"podLabels": {"app.kubernetes.io/name": "a"}}),
            "podLabels has the label",
        ),
        (json!({"commonLabels": {"a b": "c"}}), "commonLabels"),
        (json!({"commonLabels": {"team": "a b"}}), "commonLabels/team"),
        (
            json!({"podAnnotations": {"checksum/plugins": "a"}}),
            "podAnnotations has the annotation",
        ),
        (volume("cache", "/a"), "the volume cache, which the chart has already"),
        (
            volume("more", "/cache/"),
            "mountPath /cache, which the chart has already",
        ),
        (volume("more", "a"), "no absolute path"),
        (
            json!({"extraVolumeMounts": [{"name": "a", "mountPath": "/a"}]}),
            "extraVolumes has none of this name",
        ),
        (
            json!({"cache": {"existingClaim": "a", "volume": {"emptyDir": {}}}}),
            "there is one cache; remove one",
        ),
        (json!({"dnsPolicy": "Cluster"}), "dnsPolicy"),
        (json!({"topologySpread": ["zone", "zone"]}), "topologySpread"),
    ] {
        let said = refusal(&values).replace('.', "/");
        assert!(said.contains(words), "{values}: {words}: {said}");
    }
    let named = Helm::new(&folder(), "1st", "pilothouse-system");
    let refused = named
        .template(&json!({"nameOverride": "first"}))
        .unwrap_err()
        .printed
        .errors;
    assert!(refused.contains("set fullnameOverride"), "{refused}");
}

#[test]
fn values_that_look_odd_and_hold_are_rendered() {
    for values in [
        json!({"plugins": {"selector": " team in (a, b),!legacy , example.com/tier notin(c),x=,y==2,here"}}),
        json!({"plugins": {"selector": "  "}}),
        json!({"artifacts": {"files": {"ca.pem": "a", "..b": ""},
            "trust": {"default": "refuse", "repositories": [
                {"match": "oci-layout:/var/lib/plugins/**", "unsigned": true},
                {"match": "registry.internal:5000/**", "keys": [{"pem": "-----BEGIN"}, {"file": "/etc/keys/a.pub"}]}]},
            "registries": {"registries": [{"host": "[::1]:5000", "plainHttp": true, "certificateAuthorities": ["ca.pem"]}]}}}),
        json!({"host": {"extraArguments": ["--context", "a b", "--traces-endpoint=http://collector:4318", "-v"]}}),
        json!({"image": {"repository": "localhost:5001/team/host"}}),
        json!({"leaderElection": {"leaseDuration": 3, "renewDeadline": 2, "retryPeriod": 1}}),
    ] {
        let rendered = Helm::new(&folder(), "pilothouse", "pilothouse-system").template(&values);
        let _ = rendered.unwrap_or_else(|failed| panic!("{values}: {failed}"));
    }
}

#[test]
fn a_port_that_nothing_listens_on_may_be_that_of_something_else() {
    for values in [
        json!({"metrics": {"port": 8443}, "api": {"enabled": false}}),
        json!({"api": {"port": 9443}}),
    ] {
        let rendered = Helm::new(&folder(), "pilothouse", "pilothouse-system").template(&values);
        let _ = rendered.unwrap_or_else(|failed| panic!("{values}: {failed}"));
    }
}

/// Values with one static plugin, and these in place of others.
fn fixed(plugin: &Value, others: &Value) -> Value {
    let mut values = json!({"plugins": {"static": [plugin]}, "host": {"identity": "none"}});
    merge(&mut values, others);
    values
}

fn merge(values: &mut Value, others: &Value) {
    match (values, others) {
        (Value::Object(values), Value::Object(others)) => {
            for (name, other) in others {
                merge(values.entry(name.clone()).or_insert(Value::Null), other);
            }
        }
        (values, others) => *values = others.clone(),
    }
}

#[test]
fn static_plugins_that_cannot_run_are_refused_with_next_step() {
    let plugin = json!({"name": "shop", "artifact": "oci://registry.example.com/shop:1"});
    let with = |more: Value| {
        let mut plugin = plugin.clone();
        merge(&mut plugin, &more);
        plugin
    };
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    for (values, words) in [
        (
            fixed(&json!({"name": "shop"}), &json!({})),
            "the plugin shop needs either a file or an artifact",
        ),
        (
            fixed(&with(json!({"file": "shop.wasm"})), &json!({})),
            "the plugin shop needs either a file or an artifact",
        ),
        (
            fixed(&json!({"name": "shop", "file": "shop.wasm"}), &json!({})),
            "give the volume that has the file, or an artifact",
        ),
        (
            fixed(&plugin, &json!({"plugins": {"static": [plugin, plugin]}})),
            "two plugins of the name shop; give one another name",
        ),
        (
            fixed(&plugin, &json!({"plugins": {"selector": "team=a"}})),
            "there is nothing to select; remove one",
        ),
        (
            fixed(&plugin, &json!({"artifacts": {"pullSecrets": ["registry"]}})),
            "give the credentials for static plugins as plugins.pullSecret",
        ),
        (
            fixed(
                &with(json!({"rules": rules})),
                &json!({"host": {"identity": "impersonate"}}),
            ),
            "apply what `pilothouse rights --host-account pilothouse --identity impersonate` prints",
        ),
        (
            fixed(&with(json!({"rules": rules})), &json!({"rbac": {"create": false}})),
            "set rbac.create to true, or leave the rules out and grant them yourself",
        ),
        (
            json!({"plugins": {"pullSecret": "registry"}}),
            "list these as artifacts.pullSecrets",
        ),
        (
            json!({"policies": {"reservedMetadata": {"enabled": true}}}),
            "list the resources that the plugins own",
        ),
    ] {
        let said = refusal(&values);
        assert!(said.contains(words), "{values}: {said}");
    }
}

#[test]
fn cluster_scope_features_are_refused_without_a_cluster_role() {
    let plugin = json!({"name": "shop", "artifact": "oci://registry.example.com/shop:1"});
    let roles = json!({"rbac": {"clusterRole": false, "namespaces": ["shop"]}, "api": {"enabled": false}});
    let complete = fixed(&plugin, &roles);
    let rendered = Helm::new(&folder(), "pilothouse", "pilothouse-system").template(&complete);
    assert!(rendered.is_ok(), "{complete}");
    for (others, words) in [
        (json!({"plugins": {"static": []}}), "list the plugins in plugins.static"),
        (json!({"rbac": {"namespaces": []}}), "list the namespaces"),
        (
            json!({"host": {"identity": "impersonate"}}),
            "set host.identity to none",
        ),
        (json!({"api": {"enabled": true}}), "set api.enabled to false"),
        (
            json!({"webhooks": {"enabled": true, "plugins": ["shop"]}}),
            "set webhooks.enabled to false",
        ),
        (
            json!({"crds": {"installedBy": "host"}}),
            "have the CRDs of the plugins installed",
        ),
        (
            json!({"priorityClass": {"create": true, "name": "a"}}),
            "name an existing one",
        ),
        (
            json!({"policies": {"reservedMetadata": {"enabled": true, "resources": [{"apiGroups": [""], "resources": ["services"]}]}}}),
            "have somebody apply deploy/policy.yaml",
        ),
    ] {
        let mut values = complete.clone();
        merge(&mut values, &others);
        let said = refusal(&values);
        assert!(said.contains(words), "{values}: {said}");
    }
}

#[test]
fn a_parent_chart_may_share_values_of_its_own() {
    let rendered = Helm::new(&folder(), "pilothouse", "pilothouse-system").template(&json!({"global": {"a": 1}}));
    assert!(rendered.unwrap().contains("kind: Deployment"));
}
