//! The rights of small manifests, as the rules that grant them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::objects::{Acting, Grantee, objects};
use super::resources::{Resources, kinds};
use super::*;
use crate::kubernetes::served::KindFacts;
use crate::plugin::manifest;

const CRD: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: webs.x.dev}
spec:
  group: x.dev
  scope: SCOPE
  names: {kind: Web, plural: webs}
  versions: [{name: v1, subresources: {status: {}}}]
";

fn checked(scope: &str, finalizer: Option<&str>, touches: &Value) -> CheckedManifest {
    let manifest = json!({
        "name": "web", "version": "0.1.0",
        "controllers": [{
            "name": "web", "kind": {"group": "x.dev", "version": "v1", "kind": "Web"},
            "finalizer": finalizer, "touches": touches,
        }],
        "crds": [CRD.replace("SCOPE", scope)],
    });
    manifest::parse(&manifest.to_string()).unwrap()
}

fn kind(group: &str, kind: &str) -> Value {
    json!({"group": group, "version": "v1", "kind": kind})
}

fn confined(namespaces: &[&str], access: &[&str]) -> Confinement {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    Confinement::new(&owned(namespaces), &owned(access)).unwrap()
}

fn rights(checked: &CheckedManifest, confinement: &Confinement) -> Rights {
    derived(checked, confinement, &Resources::of(checked)).unwrap()
}

fn derived(checked: &CheckedManifest, confinement: &Confinement, resources: &Resources) -> Result<Rights, RightsError> {
    let needs = ControllerNeeds::of(checked, AdmissionExports::default());
    Rights::of(&needs, confinement, resources)
}

fn unknown(checked: &CheckedManifest, resources: &Resources) -> Vec<Kind> {
    resources.unknown(kinds(checked))
}

/// A line for each rule: `PLACE: VERBS RESOURCE.GROUP [NAMES]`.
fn lines(rules: &Rules) -> Vec<String> {
    let of_place = |(place, rules): (&Place, &BTreeMap<Resource, BTreeSet<Verb>>)| {
        let place = match place {
            Place::Cluster => "*",
            Place::Namespace(namespace) => namespace,
        };
        let line = |(resource, verbs): (&Resource, &BTreeSet<Verb>)| {
            let Resource { group, resource, names } = resource;
            let verbs: Vec<_> = verbs.iter().map(|verb| verb.as_str()).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let line = format!("{place}: {} {resource}.{group} {}", verbs.join(","), names.join(","));
            line.trim_end_matches([' ', '.']).to_owned()
        };
        rules.iter().map(line).collect::<Vec<_>>()
    };
    rules.places().flat_map(of_place).collect()
}

#[test]
fn each_access_has_the_verbs_of_its_requests() {
    let checked = checked(
        "Namespaced",
        None,
        &json!([
            {"kind": kind("apps", "Deployment"), "access": ["owned", "read"]},
            {"kind": kind("", "Secret"), "access": ["read"]},
            {"kind": kind("", "Service"), "access": ["contributed"]},
        ]),
    );
    let rights = rights(&checked, &Confinement::default());
    assert_eq!(
        lines(&rights.account),
        [
            "*: list,watch secrets",
            "*: get,list,watch,patch services",
            "*: get,list,watch,create,patch,delete deployments.apps",
            "*: get,list,watch webs.x.dev",
            "*: patch webs/status.x.dev",
        ]
    );
    assert!(rights.watches.beyond(&rights.account).is_empty());
    assert_eq!(rights.remarks, []);
}

#[test]
fn a_finalizer_is_a_patch_of_the_primary() {
    let checked = checked("Namespaced", Some("x.dev/f"), &json!([]));
    let rights = rights(&checked, &Confinement::default());
    assert_eq!(
        lines(&rights.account),
        ["*: get,list,watch,patch webs.x.dev", "*: patch webs/status.x.dev"]
    );
}

#[test]
fn a_note_of_what_was_made_once_is_a_patch_of_the_primary() {
    let mut checked = checked("Namespaced", None, &json!([]));
    checked.manifest.controllers[0].options = vec!["once".to_owned()];
    let rights = rights(&checked, &Confinement::default());
    assert_eq!(
        lines(&rights.account),
        ["*: get,list,watch,patch webs.x.dev", "*: patch webs/status.x.dev"]
    );
}

#[test]
fn status_is_written_only_where_the_plugin_brings_the_crd() {
    let checked = checked("Namespaced", None, &json!([]));
    let mut needs = ControllerNeeds::of(&checked, AdmissionExports::default());
    for controller in &mut needs {
        controller.brings_crd = false;
    }
    let rights = Rights::of(&needs, &Confinement::default(), &Resources::of(&checked)).unwrap();
    assert_eq!(lines(&rights.account), ["*: get,list,watch webs.x.dev"]);
}

#[test]
fn a_confined_plugin_has_its_rights_in_its_namespaces_only() {
    let checked = checked(
        "Namespaced",
        None,
        &json!([
            {"kind": kind("", "ConfigMap"), "access": ["owned"]},
            {"kind": kind("", "Pod"), "access": ["read"], "scope": "Any"},
            {"kind": kind("", "Node"), "access": ["read"], "scope": "Any", "names": ["n"]},
            {"kind": kind("", "Service"), "access": ["contributed"], "scope": "Any", "namespaces": ["far", "seen"],
             "names": ["front"]},
        ]),
    );
    let rights = rights(&checked, &confined(&["a"], &["seen"]));
    assert_eq!(
        lines(&rights.account),
        [
            "*: list,watch nodes. n",
            "a: get,list,watch,create,patch,delete configmaps",
            "a: list,watch pods",
            "a: get,list,watch webs.x.dev",
            "a: patch webs/status.x.dev",
            "seen: list,watch pods",
            "seen: get,list,watch,patch services. front",
        ]
    );
    let [Remark::Outside { namespaces, .. }] = &rights.remarks[..] else {
        panic!("{:?}", rights.remarks)
    };
    assert_eq!(*namespaces, ["far"]);
    // The host's watches are shared, so they know no Plugin's namespaces.
    assert_eq!(
        lines(&rights.watches.beyond(&rights.account)),
        [
            "*: list,watch configmaps",
            "*: list,watch pods",
            "*: list,watch webs.x.dev",
            "far: list,watch services. front",
        ]
    );
}

#[test]
fn a_cluster_scoped_primary_is_outside_of_every_namespace() {
    let touches = json!([{"kind": kind("", "ConfigMap"), "access": ["owned"], "scope": "Any"}]);
    let checked = checked("Cluster", Some("x.dev/f"), &touches);
    let confined = rights(&checked, &confined(&["a"], &[]));
    assert_eq!(
        lines(&confined.account),
        ["*: list,watch webs.x.dev", "a: list,watch configmaps"]
    );
    assert!(matches!(&confined.remarks[..], [Remark::SelectsNothing { .. }]));
    let free = rights(&checked, &Confinement::default());
    assert!(lines(&free.account).contains(&"*: get,list,watch,patch webs.x.dev".to_owned()));
}

#[test]
fn cluster_scoped_kind_with_namespace_scope_is_never_written() {
    let checked = checked(
        "Namespaced",
        None,
        &json!([{"kind": kind("", "Node"), "access": ["contributed"]}]),
    );
    let rights = rights(&checked, &Confinement::default());
    assert!(lines(&rights.account).contains(&"*: list,watch nodes".to_owned()));
}

#[test]
fn an_optional_primary_kind_that_is_not_served_takes_no_right() {
    let manifest = json!({
        "name": "shim", "version": "0.1.0",
        "controllers": [
            {"name": "route", "kind": kind("gate.dev", "Route"), "optional": true, "touches": [
                {"kind": kind("gate.dev", "Class"), "access": ["read"]},
                {"kind": kind("", "Secret"), "access": ["read"]},
            ]},
            {"name": "map", "kind": kind("", "ConfigMap")},
        ],
    });
    let checked = manifest::parse(&manifest.to_string()).unwrap();
    let mut resources = Resources::of(&checked);
    let missing = ["Route", "Class"].map(|name| Kind::new("gate.dev", "v1", name));
    assert_eq!(unknown(&checked, &resources), missing);
    for kind in &missing {
        resources.learn(kind.clone(), None);
    }
    let rights = derived(&checked, &Confinement::default(), &resources).unwrap();
    assert_eq!(rights.remarks, missing.map(Remark::NotServed));
    let account = lines(&rights.account).join("\n");
    assert!(
        account.contains("configmaps") && account.contains("secrets") && !account.contains("gate.dev"),
        "{account}"
    );
}

#[test]
fn unknown_kind_is_reported_and_optional_kind_may_be_missing() {
    let touch =
        |is_optional: bool| json!([{"kind": kind("other.dev", "Thing"), "access": ["owned"], "optional": is_optional}]);
    for is_optional in [true, false] {
        let checked = checked("Namespaced", None, &touch(is_optional));
        let thing = Kind::new("other.dev", "v1", "Thing");
        let mut resources = Resources::of(&checked);
        assert_eq!(unknown(&checked, &resources), std::slice::from_ref(&thing));
        let error = derived(&checked, &Confinement::default(), &resources).unwrap_err();
        assert_eq!(
            error.to_string(),
            "only a cluster knows the resources of other.dev/v1 Thing"
        );
        resources.learn(thing.clone(), None);
        assert_eq!(unknown(&checked, &resources).is_empty(), is_optional);
        if is_optional {
            let rights = derived(&checked, &Confinement::default(), &resources).unwrap();
            assert_eq!(rights.remarks, [Remark::NotServed(thing.clone())]);
        }
        let served = ServedKind {
            short_names: Vec::new(),
            kind: thing.clone().into(),
            plural: "thingies".to_owned(),
            facts: KindFacts {
                namespaced: true,
                has_status: false,
            },
        };
        resources.learn(thing, Some(served));
        let rights = derived(&checked, &Confinement::default(), &resources).unwrap();
        assert_eq!(
            lines(&rights.account)[0],
            "*: get,list,watch,create,patch,delete thingies.other.dev"
        );
    }
}

#[test]
fn namespaces_that_cannot_be_are_refused() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    for bad in ["A", "a_b", "", "-a", &"a".repeat(64)] {
        let error = Confinement::new(&names(&["a"]), &names(&[bad])).unwrap_err();
        assert_eq!(error, RightsError::Namespace(bad.to_owned()));
    }
    assert_eq!(Confinement::new(&[], &names(&["a"])), Err(RightsError::NothingConfined));
    let many: Vec<String> = (0..=MAX_NAMESPACES).map(|number| number.to_string()).collect();
    assert_eq!(
        Confinement::new(&many, &[]),
        Err(RightsError::TooMany(MAX_NAMESPACES + 1))
    );
}

#[test]
fn host_confined_to_namespaces_watches_nothing_elsewhere() {
    let touches = json!([
        {"kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "access": ["read"], "scope": "Any", "namespaces": ["edge"]},
        {"kind": {"group": "", "version": "v1", "kind": "Secret"}, "access": ["read"], "scope": "Any"},
    ]);
    let checked = checked("Namespaced", None, &touches);
    let seen = ["a", "b"].map(str::to_owned).into_iter().collect();
    let everywhere = confined(&["a"], &[]);
    let watched = |confinement: &Confinement| lines(&rights(&checked, confinement).watches);
    assert!(
        watched(&everywhere).iter().any(|line| line.starts_with("*: ")),
        "{:?}",
        watched(&everywhere)
    );
    let within = everywhere.within(&seen).unwrap();
    let lines = watched(&within);
    assert!(
        !lines.is_empty() && lines.iter().all(|line| line.starts_with("a: ")),
        "{lines:?}"
    );
    assert!(lines.iter().all(|line| !line.contains("configmaps")), "{lines:?}");
    let narrowed = confined(&["a", "c"], &["b", "d"]).within(&seen).unwrap();
    assert_eq!(narrowed.reached(), seen, "neither c nor d is seen");
    let all = Confinement::default().within(&seen).unwrap();
    assert_eq!(all.namespaces(), &seen);
    assert_eq!(
        confined(&["c"], &["a"]).within(&seen),
        None,
        "it would have no primaries"
    );
}

#[test]
fn roles_are_bound_to_plugin_account_and_named_host_account() {
    let checked = checked("Namespaced", None, &json!([]));
    let rights = rights(&checked, &confined(&["a"], &[]));
    let grantee = |host_account| Grantee {
        plugin: "web",
        namespace: "system",
        account: None,
        host_account,
        acting: Acting::Host,
    };
    let titles = |objects: &[Value]| -> Vec<String> {
        let title = |object: &Value| {
            let metadata = &object["metadata"];
            let part = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            format!(
                "{} {}/{}",
                part(&object["kind"]),
                part(&metadata["namespace"]),
                part(&metadata["name"])
            )
        };
        objects.iter().map(title).collect()
    };
    let alone = objects(grantee(None), &rights);
    assert_eq!(
        alone[0]["automountServiceAccountToken"], false,
        "no pod gets the token: {}",
        alone[0]
    );
    let name = "pilothouse-plugin-web";
    assert_eq!(
        titles(&alone),
        [
            format!("ServiceAccount system/{name}"),
            format!("Role a/{name}"),
            format!("RoleBinding a/{name}"),
        ]
    );
    assert_eq!(
        alone[2]["subjects"],
        json!([{"kind": "ServiceAccount", "name": name, "namespace": "system"}])
    );
    let both = objects(grantee(Some("pilothouse")), &rights);
    assert_eq!(
        titles(&both)[1..],
        [
            format!("Role a/{name}"),
            format!("ClusterRole -/{name}-watch"),
            format!("ClusterRole -/{name}:view"),
            format!("ClusterRole -/{name}:edit"),
            format!("RoleBinding a/{name}"),
            format!("ClusterRoleBinding -/{name}-watch"),
        ]
    );
    assert_eq!(both[5]["subjects"][1]["name"], "pilothouse");
    assert_eq!(both[6]["subjects"].as_array().map(Vec::len), Some(1));
    assert_eq!(both[6]["roleRef"]["name"], format!("{name}-watch"));
    let everywhere = derived(&checked, &Confinement::default(), &Resources::of(&checked)).unwrap();
    let titles = titles(&objects(grantee(Some("pilothouse")), &everywhere));
    assert!(!titles.iter().any(|title| title.ends_with("-watch")), "{titles:?}");
}

#[test]
fn explanation_lists_rights_and_cautions() {
    let checked = checked(
        "Namespaced",
        None,
        &json!([
            {"kind": kind("apps", "Deployment"), "access": ["owned"]},
            {"kind": kind("", "Secret"), "access": ["read"]},
            {"kind": kind("rbac.authorization.k8s.io", "Role"), "access": ["contributed"]},
        ]),
    );
    let rights = rights(&checked, &confined(&["a"], &[]));
    assert_eq!(
        words::explained(&rights.account),
        "in namespace a:
  read                          secrets
  read, create, change, delete  deployments.apps
  read, change                  roles.rbac.authorization.k8s.io
  read                          webs.x.dev
  change                        webs.x.dev/status
"
    );
    assert_eq!(
        words::cautions(&rights.account),
        [
            "by deployments it can run Pods in namespace a, with each Secret and ServiceAccount that is there",
            "it can read the content of every Secret in namespace a",
            "by roles it can change what others may do in namespace a",
        ]
    );
}

#[test]
fn no_plugin_can_have_a_rule_mean_more_than_it_says() {
    let named = |group: &str, plural: &str, namespace: &str, name: &str| {
        let crd = CRD
            .replace("SCOPE", "Namespaced")
            .replace("plural: webs", &format!("plural: {plural:?}"));
        let manifest = json!({
            "name": "web", "version": "0.1.0", "crds": [crd],
            "controllers": [{
                "name": "web", "kind": {"group": "x.dev", "version": "v1", "kind": "Web"},
                "touches": [
                    {"kind": kind("", "ConfigMap"), "access": ["owned"], "scope": "Any", "namespaces": [namespace],
                     "names": [name]},
                    {"kind": kind(group, "Thing"), "access": ["read"], "optional": true},
                ],
            }],
        });
        let checked = manifest::parse(&manifest.to_string()).unwrap();
        let mut resources = Resources::of(&checked);
        let thing = Kind::new(group, "v1", "Thing");
        let served = ServedKind {
            short_names: Vec::new(),
            kind: thing.clone().into(),
            plural: "things".to_owned(),
            facts: KindFacts {
                namespaced: true,
                has_status: false,
            },
        };
        resources.learn(thing, Some(served));
        derived(&checked, &Confinement::default(), &resources)
    };
    let manifest = |group: &str, plural: &str, namespace: &str| named(group, plural, namespace, "system:a.b");
    assert!(manifest("x.dev", "webs", "a").is_ok());
    for name in ["", "..", "a/b", "a%2fb", "a b", "a\u{1b}[2K", &"a".repeat(254)] {
        let error = named("x.dev", "webs", "a", name).unwrap_err();
        assert!(matches!(error, RightsError::Name(..)), "{name:?}: {error}");
    }
    for (group, plural, namespace) in [("*", "webs", "a"), ("x.dev", "*", "a"), ("x.dev", "webs/status", "a")] {
        let error = manifest(group, plural, namespace).unwrap_err();
        assert!(matches!(error, RightsError::Unnameable(..)), "{error}");
    }
    let error = manifest("x.dev", "webs", "../kube-system").unwrap_err();
    assert_eq!(error, RightsError::Namespace("../kube-system".to_owned()));
}

#[test]
fn no_plugin_says_how_kubernetes_calls_its_own_kinds() {
    let crd = CRD.replace("SCOPE", "Namespaced");
    let disguised = crd
        .replace("x.dev", "apps")
        .replace("kind: Web", "kind: Deployment")
        .replace("webs", "replicasets");
    let manifest = json!({
        "name": "web", "version": "0.1.0", "crds": [crd, disguised],
        "controllers": [{
            "name": "web", "kind": {"group": "x.dev", "version": "v1", "kind": "Web"},
            "touches": [{"kind": kind("apps", "Deployment"), "access": ["read"]}],
        }],
    });
    let checked = manifest::parse(&manifest.to_string()).unwrap();
    let rights = rights(&checked, &Confinement::default());
    assert_eq!(lines(&rights.account)[0], "*: list,watch deployments.apps");
}

#[test]
fn admission_exports_get_their_verbs_on_primaries_only() {
    let checked = checked(
        "Namespaced",
        None,
        &json!([{"kind": kind("", "Secret"), "access": ["read"]}]),
    );
    let exports = AdmissionExports {
        defaulter: true,
        validator: true,
    };
    let asked = |confinement: &Confinement| {
        let needs = ControllerNeeds::of(&checked, exports);
        let rights = Rights::of(&needs, confinement, &Resources::of(&checked)).unwrap();
        let mut lines = lines(&rights.account);
        lines.retain(|line| line.contains("pilothouse-"));
        lines
    };
    assert_eq!(
        asked(&Confinement::default()),
        ["*: get,list,watch,pilothouse-default,pilothouse-validate webs.x.dev"]
    );
    assert_eq!(
        asked(&confined(&["a"], &["b"])),
        ["a: get,list,watch,pilothouse-default,pilothouse-validate webs.x.dev"]
    );
}

#[test]
fn host_acting_as_plugin_account_has_only_watch_rights() {
    let checked = checked(
        "Namespaced",
        None,
        &json!([{"kind": kind("", "Secret"), "access": ["read"]}]),
    );
    let rights = rights(&checked, &confined(&["a"], &[]));
    let of = |account, acting| {
        let grantee = Grantee {
            plugin: "web",
            namespace: "system",
            account,
            host_account: Some("host"),
            acting,
        };
        objects(grantee, &rights)
    };
    let found = |objects: &[Value], kind: &str, name: &str| {
        let mut found = objects
            .iter()
            .filter(|it| it["kind"] == kind && it["metadata"]["name"] == name);
        found.next().unwrap().clone()
    };
    let objects = of(None, Acting::Impersonation);
    let own = found(&objects, "RoleBinding", "pilothouse-plugin-web");
    assert_eq!(own["subjects"].as_array().unwrap().len(), 1);
    assert_eq!(own["subjects"][0]["name"], "pilothouse-plugin-web");
    let watches = found(&objects, "ClusterRole", "pilothouse-plugin-web-watch");
    assert_eq!(watches["rules"][0]["resources"], json!(["secrets"]));
    assert_eq!(watches["rules"][0]["verbs"], json!(["list", "watch"]));
    let act = found(&objects, "Role", "pilothouse-plugin-web-act");
    assert_eq!(act["metadata"]["namespace"], "system");
    assert_eq!(
        act["rules"],
        json!([{
            "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["pilothouse-plugin-web"],
            "verbs": ["impersonate"],
        }])
    );
    let objects = of(Some("shared"), Acting::Token);
    assert!(
        objects.iter().all(|object| object["kind"] != "ServiceAccount"),
        "somebody else makes it"
    );
    let own = found(&objects, "RoleBinding", "pilothouse-plugin-web");
    assert_eq!(own["subjects"][0]["name"], "shared");
    let act = found(&objects, "Role", "pilothouse-plugin-web-act");
    assert_eq!(
        act["rules"],
        json!([{
            "apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": ["shared"], "verbs": ["create"],
        }])
    );
}

#[test]
fn kinds_of_a_plugin_are_aggregated_into_the_roles_of_people() {
    let checked = checked(
        "Namespaced",
        None,
        &json!([{"kind": kind("", "Secret"), "access": ["read"]}]),
    );
    let grants = |confinement: &Confinement, needs: &[ControllerNeeds<'_>]| {
        let rights = Rights::of(needs, confinement, &Resources::of(&checked)).unwrap();
        let grantee = Grantee {
            plugin: "web",
            namespace: "system",
            account: None,
            host_account: None,
            acting: Acting::Host,
        };
        let objects = objects(grantee, &rights).into_iter();
        let aggregated = objects.filter(|object| object["metadata"]["name"].as_str().unwrap().contains(':'));
        aggregated.collect::<Vec<_>>()
    };
    let needs = ControllerNeeds::of(&checked, AdmissionExports::default());
    let roles = grants(&Confinement::default(), &needs);
    let labels = |role: &Value| -> Vec<String> {
        let labels = role["metadata"]["labels"].as_object().unwrap().keys();
        labels
            .filter_map(|label| label.split_once("/aggregate-to-"))
            .map(|(_, role)| role.to_owned())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    };
    assert_eq!(labels(&roles[0]), ["admin", "edit", "view"]);
    assert_eq!(
        roles[0]["rules"],
        json!([{"apiGroups": ["x.dev"], "resources": ["webs", "webs/status"], "verbs": ["get", "list", "watch"]}])
    );
    assert_eq!(labels(&roles[1]), ["admin", "edit"]);
    assert_eq!(
        roles[1]["rules"],
        json!([{"apiGroups": ["x.dev"], "resources": ["webs"],
            "verbs": ["create", "delete", "deletecollection", "patch", "update"]}])
    );
    assert_eq!(
        grants(&confined(&["a"], &[]), &needs).len(),
        0,
        "all of its rights are Roles"
    );
    let mut others = needs;
    others[0].brings_crd = false;
    assert_eq!(
        grants(&Confinement::default(), &others).len(),
        0,
        "its kinds are somebody else's"
    );
}
