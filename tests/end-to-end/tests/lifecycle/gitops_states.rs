//! Health of Plugins and objects in every state, as GitOps tools see it. An object that no host has seen has the generation
//! -1 by the default of its CRD, and nothing takes it for healthy.

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use pilothouse_end_to_end::stage::{Stage, app_service};
use pilothouse_testkit::host::SteeredHost as _;
use pilothouse_testkit::kstatus::{self, Status};
use serde_json::{Value, json};

use crate::fleet::Fleet;

const PAUSED: &str = "pilothouse.dev/paused";

/// A host that has stopped, and a plugin of AppServices that it has run.
async fn stopped() -> Fleet {
    let mut fleet = Fleet::start().await;
    fleet.put("app-service", "it.wasm", 0);
    fleet.plugin("it", json!({"source": {"file": "it.wasm"}})).await;
    fleet.is_ready("it").await;
    fleet.stage.host.stop().await.unwrap();
    fleet
}

async fn app_services(stage: &Stage) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kosmos.io", "v1", "AppService"));
    Api::namespaced_with(stage.cluster.client().await.unwrap(), "default", &resource)
}

async fn edit(stage: &Stage, name: &str, patch: &Value) {
    let services = app_services(stage).await;
    let patched = services
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    patched.unwrap();
}

fn paused(name: &str) -> Value {
    let mut object = app_service(name);
    object["metadata"]["annotations"] = json!({PAUSED: "true"});
    object
}

/// Ports of which one name is taken twice.
fn taken() -> Value {
    json!([
        {"name": "dns", "port": 53, "targetPort": "dns"},
        {"name": "dns-udp", "port": 53, "targetPort": "dns", "protocol": "UDP"},
    ])
}

fn health(stage: &Stage, kind: &str, name: &str) -> Option<Status> {
    let object = stage.find(kind, name)?;
    Some(kstatus::compute(&object).unwrap().status)
}

async fn is(fleet: &Fleet, kind: &str, name: &str, status: Status) {
    let what = format!("{kind} {name} is {status}");
    fleet
        .until(&what, |stage| health(stage, kind, name) == Some(status))
        .await;
}

mod simulated {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_unseen_object_is_in_progress_and_a_restart_writes_nothing() {
        let mut fleet = stopped().await;
        fleet.stage.create(&app_service("web")).await;
        fleet.plugin("none", json!({"source": {"file": "none.wasm"}})).await;
        let unseen = fleet.stage.find("AppService", "web").unwrap();
        assert_eq!(unseen["status"], json!({"observedGeneration": -1}));
        assert_eq!(fleet.status("none")["observedGeneration"], -1);
        for (kind, name) in [("AppService", "web"), ("Plugin", "none")] {
            assert_eq!(health(&fleet.stage, kind, name), Some(Status::InProgress), "{kind}");
        }
        fleet.start_host().await;
        is(&fleet, "AppService", "web", Status::Current).await;
        is(&fleet, "Plugin", "none", Status::Failed).await;
        fleet.stage.host.settled().await.unwrap();
        let of_status = |stage: &Stage, mark| {
            let mut writes = stage.host_writes_since(mark);
            writes.retain(|write| write.subresource == "status");
            writes
        };
        fleet.stage.host.stop().await.unwrap();
        // A change of nothing, which stores what a read had filled in.
        edit(&fleet.stage, "web", &json!({})).await;
        let mark = fleet.stage.mark();
        fleet.start_host().await;
        for _ in 0..10 {
            fleet.stage.minute().await;
        }
        let mut writes = of_status(&fleet.stage, mark);
        writes.retain(|write| write.resource == "appservices");
        assert_eq!(writes, []);
        fleet.stage.stop().await;
    }

    /// Its condition cannot be about the generation -1, which the schema of conditions refuses.
    #[tokio::test(start_paused = true)]
    async fn an_object_that_is_created_paused_waits_until_it_is_resumed() {
        let fleet = Fleet::start().await;
        fleet.put("reverse-proxy", "it.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "it.wasm"}})).await;
        fleet.is_ready("it").await;
        let mut proxy = json!({
            "apiVersion": "nginx.lin2ur.cn/v1", "kind": "ReverseProxy",
            "metadata": {"name": "web", "namespace": "default", "annotations": {PAUSED: "true"}},
            "spec": {"proxyPass": "http://a"},
        });
        fleet.stage.create(&proxy).await;
        let says = |stage: &Stage| {
            stage
                .reconciled("ReverseProxy", "web")
                .is_some_and(|it| it["reason"] == "Paused")
        };
        fleet.until("it is paused", says).await;
        let found = fleet.stage.find("ReverseProxy", "web").unwrap();
        assert_eq!(found["status"]["observedGeneration"], -1, "{found}");
        assert_eq!(health(&fleet.stage, "ReverseProxy", "web"), Some(Status::InProgress));
        let mark = fleet.stage.mark();
        fleet.stage.minute().await;
        let mut writes = fleet.stage.host_writes_since(mark);
        writes.retain(|write| write.resource == "reverseproxies");
        assert_eq!(writes, []);
        proxy["metadata"]["annotations"] = json!({PAUSED: null});
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("nginx.lin2ur.cn", "v1", "ReverseProxy"));
        let proxies: Api<DynamicObject> = Api::namespaced_with(fleet.client().await, "default", &resource);
        let resumed = json!({"metadata": proxy["metadata"]});
        let sent = proxies
            .patch("web", &PatchParams::default(), &Patch::Merge(&resumed))
            .await;
        sent.unwrap();
        is(&fleet, "ReverseProxy", "web", Status::Current).await;
        fleet.stage.stop().await;
    }
}

mod external {
    mod gitops {
        use std::io::Write as _;
        use std::process::{Command, Stdio};

        use pilothouse_end_to_end::components::{folder, program, root};
        use pilothouse_external::programs::Program;
        use pilothouse_simulator::{Fault, Rule};

        use super::super::*;

        /// The health check that `pilothouse manifests --argocd` prints for a kind.
        fn health_check(kind: &str) -> String {
            let component = folder().join("app-service.wasm");
            let printed = Command::new(program())
                .arg("manifests")
                .arg(component)
                .arg("--argocd")
                .output()
                .unwrap();
            assert!(printed.status.success(), "{printed:?}");
            let map: Value = serde_saphyr::from_slice(&printed.stdout).unwrap();
            let check = &map["data"][format!("resource.customizations.health.{kind}")];
            check.as_str().unwrap().to_owned()
        }

        /// Objects in a state, with what the tools have to make of them.
        #[derive(Default)]
        struct States(Vec<State>);

        struct State {
            title: &'static str,
            object: Value,
            kstatus: &'static str,
            argocd: &'static str,
        }

        impl States {
            /// Remembers an object as it is now.
            fn add(&mut self, fleet: &Fleet, title: &'static str, of: (&str, &str), expected: [&'static str; 2]) {
                let object = fleet.stage.find(of.0, of.1).unwrap();
                let [kstatus, argocd] = expected;
                self.0.push(State {
                    title,
                    object,
                    kstatus,
                    argocd,
                });
            }

            /// Remembers the last object with another reason of the condition that decides: a state of the same form, which is
            /// hard to hold in a test.
            fn same_with(&mut self, title: &'static str, reason: &str, [kstatus, argocd]: [&'static str; 2]) {
                let mut object = self.0.last().unwrap().object.clone();
                for condition in object["status"]["conditions"].as_array_mut().unwrap() {
                    if condition["reason"] == "CrdMissing" || condition["reason"] == "Suspended" {
                        condition["reason"] = json!(reason);
                    }
                }
                self.0.push(State {
                    title,
                    object,
                    kstatus,
                    argocd,
                });
            }

            /// Asks the tools about all.
            fn check(&self) {
                let checks = ["pilothouse.dev_Plugin", "kosmos.io_AppService"].map(health_check);
                let questions = self.0.iter().map(|state| {
                    let check = &checks[usize::from(state.object["kind"] != "Plugin")];
                    format!("{}\n", json!({"object": state.object, "lua": check}))
                });
                let mut tools = Command::new(Program::GitOps.path())
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap();
                let input: String = questions.collect();
                tools.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
                let output = tools.wait_with_output().unwrap();
                let answers = String::from_utf8(output.stdout).unwrap();
                let answers: Vec<Value> = answers
                    .lines()
                    .map(|line| serde_json::from_str(line).unwrap())
                    .collect();
                assert_eq!(answers.len(), self.0.len());
                for (state, answer) in self.0.iter().zip(&answers) {
                    let State {
                        title,
                        object,
                        kstatus,
                        argocd,
                    } = state;
                    println!("{title}: {answer}");
                    assert_eq!(answer["error"], Value::Null, "{title}");
                    let found = [&answer["kstatus"]["status"], &answer["argocd"]["status"]];
                    assert_eq!(found, [kstatus, argocd], "{title}: {answer}\n{object:#}");
                    let ported = kstatus::compute(object).unwrap();
                    let ported = json!({"status": ported.status.to_string(), "message": ported.message});
                    assert_eq!(answer["kstatus"], ported, "{title}: the port of kstatus");
                    let message = answer["argocd"]["message"].as_str().unwrap_or_default();
                    assert!(!message.is_empty() || *argocd == "Healthy", "{title}: {answer}");
                }
            }
        }

        const IN_PROGRESS: [&str; 2] = ["InProgress", "Progressing"];
        const FAILED: [&str; 2] = ["Failed", "Degraded"];
        const CURRENT: [&str; 2] = ["Current", "Healthy"];

        #[tokio::test(start_paused = true)]
        async fn no_tool_takes_a_plugin_for_healthy_before_it_runs_as_wanted() {
            let mut states = States::default();
            let mut fleet = Fleet::start().await;
            let it = ("Plugin", "it");
            fleet.stage.host.stop().await.unwrap();
            fleet.put("app-service", "it.wasm", 0);
            fleet.put("hostile", "other.wasm", 0);
            fleet.plugin("it", json!({"source": {"file": "it.wasm"}})).await;
            states.add(&fleet, "unseen", it, IN_PROGRESS);

            fleet.stage.host.install_no_crds();
            fleet.start_host().await;
            fleet.says("it", "Reconciling", "True", "CrdMissing").await;
            states.add(&fleet, "waits for its CRD", it, IN_PROGRESS);
            let crd = root().join("plugins/app-service/crds/appservices.kosmos.io.yaml");
            let crd: Value = serde_saphyr::from_str(&std::fs::read_to_string(crd).unwrap()).unwrap();
            let definitions: Api<DynamicObject> = Api::all_with(
                fleet.client().await,
                &ApiResource::from_gvk(&GroupVersionKind::gvk(
                    "apiextensions.k8s.io",
                    "v1",
                    "CustomResourceDefinition",
                )),
            );
            let by = PatchParams::apply("admin");
            let applied = definitions
                .patch("appservices.kosmos.io", &by, &Patch::Apply(&crd))
                .await;
            applied.unwrap();
            fleet.is_ready("it").await;
            states.add(&fleet, "runs", it, CURRENT);

            fleet.change("it", json!({"source": {"file": "other.wasm"}})).await;
            fleet.says("it", "Reconciling", "True", "CrdMissing").await;
            states.add(&fleet, "the next version waits", it, IN_PROGRESS);
            states.same_with("the next version is tried", "Progressing", IN_PROGRESS);
            fleet.change("it", json!({"source": {"file": "none.wasm"}})).await;
            fleet.says("it", "Stalled", "True", "FetchFailed").await;
            assert_eq!(fleet.condition("it", "Ready")["status"], "True", "the one before runs");
            states.add(&fleet, "the next version is refused", it, FAILED);
            fleet
                .change("it", json!({"source": {"file": "it.wasm"}, "mode": "Suspended"}))
                .await;
            fleet.says("it", "Ready", "False", "Suspended").await;
            states.add(&fleet, "is suspended", it, ["InProgress", "Suspended"]);
            states.same_with("is stopped for its crashes", "CrashLoop", ["InProgress", "Degraded"]);
            fleet.change("it", json!({"mode": "Active"})).await;
            fleet.is_ready("it").await;
            states.add(&fleet, "is resumed", it, CURRENT);
            states.check();
            fleet.stage.stop().await;
        }

        #[tokio::test(start_paused = true)]
        async fn no_tool_takes_an_object_for_healthy_before_it_is_reconciled() {
            let mut states = States::default();
            let mut fleet = stopped().await;
            let web = ("AppService", "web");
            fleet.stage.create(&app_service("web")).await;
            states.add(&fleet, "unseen", web, IN_PROGRESS);
            fleet.start_host().await;
            is(&fleet, web.0, web.1, Status::Current).await;
            states.add(&fleet, "reconciled", web, CURRENT);

            let ports = app_service("web")["spec"]["ports"].clone();
            edit(&fleet.stage, "web", &json!({"spec": {"ports": taken()}})).await;
            is(&fleet, web.0, web.1, Status::Failed).await;
            states.add(&fleet, "refused", web, FAILED);
            edit(&fleet.stage, "web", &json!({"spec": {"ports": ports}})).await;
            is(&fleet, web.0, web.1, Status::Current).await;
            let unavailable = Rule::new(Fault::Status {
                code: 503,
                retry_after: None,
            });
            fleet
                .stage
                .simulator()
                .faults()
                .add(unavailable.writes().resource("deployments"));
            fleet.stage.create(&app_service("retried")).await;
            let retried = ("AppService", "retried");
            let is_retried = |stage: &Stage| {
                stage
                    .reconciled(retried.0, retried.1)
                    .is_some_and(|it| it["status"] == "False")
            };
            fleet.until("it is retried", is_retried).await;
            states.add(&fleet, "retried", retried, IN_PROGRESS);
            fleet.stage.simulator().faults().clear();

            let is_paused = |name: &'static str| {
                move |stage: &Stage| {
                    stage
                        .reconciled("AppService", name)
                        .is_some_and(|it| it["reason"] == "Paused")
                }
            };
            edit(
                &fleet.stage,
                "web",
                &json!({"metadata": {"annotations": {PAUSED: "true"}}}),
            )
            .await;
            fleet.until("it is paused", is_paused("web")).await;
            states.add(&fleet, "paused", web, ["Current", "Suspended"]);
            edit(&fleet.stage, "web", &json!({"spec": {"size": 5}})).await;
            states.add(&fleet, "edited while it is paused", web, ["InProgress", "Suspended"]);
            fleet.stage.create(&paused("new")).await;
            fleet.until("it is paused", is_paused("new")).await;
            states.add(
                &fleet,
                "created paused",
                ("AppService", "new"),
                ["InProgress", "Suspended"],
            );

            edit(
                &fleet.stage,
                "new",
                &json!({"metadata": {"finalizers": ["example.com/hold"]}}),
            )
            .await;
            let services = app_services(&fleet.stage).await;
            let deleted = services.delete("new", &DeleteParams::default()).await;
            deleted.unwrap();
            let object = fleet.stage.find("AppService", "new").unwrap();
            // Argo CD asks no health check about an object that is being deleted.
            assert_eq!(kstatus::compute(&object).unwrap().status, Status::Terminating);
            states.check();
            fleet.stage.stop().await;
        }
    }
}
