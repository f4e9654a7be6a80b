//! Tests of commands that run a plugin by itself.

use pilothouse_core::Limits;
use pilothouse_core::recording::{FORMAT, Header, Line, Trailer};
use serde_json::{Value, json};

use super::*;

fn documents(yaml: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).expect("it is YAML");
    documents.into_iter().filter(|document| !document.is_null()).collect()
}

/// The component hostile with another text for objects that give none. As JSON it is longer, as it is nothing moves.
fn reworded(files: &Files) -> String {
    let (words, others) = (b"as it was told to", b"as it was told\"\"\"");
    let mut component = std::fs::read(component("hostile")).expect("it can be read");
    let at = component
        .windows(words.len())
        .position(|window| window == words)
        .expect("the component has these words");
    component[at..at + words.len()].copy_from_slice(others);
    let path = files.0.path().join("reworded.wasm");
    std::fs::write(&path, component).expect("the folder is ours");
    path.display().to_string()
}

/// An object of hostile that gives no text.
const WORDLESS: &str =
    "apiVersion: hostile.test.dev/v1\nkind: Hostile\nmetadata: {name: h}\nspec: {behaviour: config-map}\n";

fn hostile(behaviour: &str) -> String {
    format!(
        "apiVersion: hostile.test.dev/v1\nkind: Hostile\nmetadata: {{name: h}}\nspec: {{behaviour: {behaviour}, text: words}}\n"
    )
}

mod rendering {
    use super::*;

    #[test]
    fn output_is_yaml_of_desired_objects_with_the_rest_in_comments() {
        let files = Files::new();
        let app = files.file("app.yaml", APP);
        let deployment =
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: shop}\nspec: {replicas: 1}\n";
        let cluster = files.file("cluster.yaml", deployment);
        let text = printed(&[
            "render",
            &component("app-service"),
            "-f",
            &app,
            "--cluster",
            &cluster,
            "-n",
            "shop",
        ]);
        let found = documents(&text);
        assert_eq!(found.len(), 1, "{text}");
        assert_eq!(found[0]["metadata"]["namespace"], "shop");
        assert_eq!(found[0]["spec"]["replicas"], 2);
        assert!(text.starts_with("---\n# Deployment shop/web: owned\n"), "{text}");
        for words in [
            "# AppService shop/web\n",
            "# reads:\n#   get Deployment shop/web\n",
            "# usage: ",
        ] {
            assert!(text.contains(words), "{words} in {text}");
        }
    }

    #[test]
    fn a_clock_reading_is_shown_with_the_next_requeue_time() {
        let files = Files::new();
        let configuration = files.file("config.yaml", "{objects: reads=things, touches: []}");
        let moment = 1_767_227_700_000_u64;
        let object = format!(
            "{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: a, namespace: shop, labels: {{reads: things}}, annotations: \
             {{reader.test.dev/reads: '[{{\"reached\": {moment}}}]'}}}}}}"
        );
        let reader = component("reader");
        let render = |now: &str| {
            let arguments = ["render", &reader, "--config", &configuration, "-f", "-", "--now", now];
            let ended = pilothouse(&arguments, &object);
            assert_eq!(ended.code, 0, "{}", ended.said);
            ended.printed
        };
        let text = render("2026-01-01T00:00:00Z");
        assert!(
            text.contains("# reads:\n#   the clock; looks again at 2026-01-01T00:35:00Z\n"),
            "{text}"
        );
        let text = render("2026-01-01T00:35:00Z");
        assert!(!text.contains("the clock"), "{text}");
    }

    #[test]
    fn standard_input_is_read_and_json_has_everything() {
        let ended = pilothouse(&["render", &component("app-service"), "-f", "-", "-o", "json"], APP);
        assert_eq!(ended.code, 0, "{}", ended.said);
        let whole: Value = serde_json::from_str(&ended.printed).unwrap();
        let object = &whole["objects"][0];
        assert_eq!(
            (&object["kind"], &object["namespace"], &object["name"]),
            (&json!("AppService"), &json!("default"), &json!("web"))
        );
        assert_eq!(object["failure"], Value::Null);
        assert_eq!(object["desired"][0]["ownership"], "Owned");
        assert_eq!(object["desired"][0]["object"]["kind"], "Deployment");
        assert_eq!(object["reads"][0], "get Deployment default/web");
        assert!(object["usage"]["memoryBytes"].as_u64().unwrap() > 0);
    }

    #[test]
    fn the_servers_defaults_and_refusals_come_before_the_plugin() {
        let files = Files::new();
        let ended = pilothouse(
            &["render", &component("hostile"), "-f", "-"],
            "apiVersion: hostile.test.dev/v1\nkind: Hostile\nmetadata: {name: h}\nspec: {behaviour: nothing, count: -1}\n",
        );
        assert_eq!(ended.code, 1);
        assert!(
            ended.said.starts_with(
                "error: standard input, document 1, line 1, column 1: the API server would refuse Hostile default/h"
            ) && ended.said.contains("spec.count"),
            "{}",
            ended.said
        );
        // Of a Service everything is filled in that a server fills in.
        let service = files.file("s.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: s, annotations: {ingress/http: ''}}\nspec: {ports: [{port: 80}]}\n");
        let text = printed(&["render", &component("service-ingress"), "-f", &service]);
        assert_eq!(documents(&text)[0]["kind"], "Ingress");
    }

    #[test]
    fn the_time_is_fixed_unless_it_is_given() {
        let files = Files::new();
        let object = files.file("h.yaml", &hostile("differs-by-clock"));
        let at = |more: &[&str]| {
            let plugin = component("hostile");
            let text = printed(&[&["render", &plugin, "-f", &object], more].concat());
            documents(&text)[0]["data"]["text"].clone()
        };
        assert_eq!(at(&[]), "1767225600000");
        assert_eq!(at(&["--now", "1970-01-01T00:00:05Z"]), "5000");
    }

    #[test]
    fn an_object_that_the_filter_does_not_select_is_not_asked_about() {
        let files = Files::new();
        let service = |annotations: &str| {
            files.file(
                "s.yaml",
                &format!("apiVersion: v1\nkind: Service\nmetadata: {{name: s, annotations: {{{annotations}}}}}\nspec: {{ports: [{{port: 80}}]}}\n"),
            )
        };
        let plugin = component("service-ingress");
        let other = service("ingress/https: ''");
        let text = printed(&["render", &plugin, "-f", &other]);
        assert!(documents(&text).is_empty(), "{text}");
        let words = "# not reconciled: the plugin reconciles only objects with the annotation ingress/http\n";
        assert!(text.ends_with(words), "{text}");
        let whole: Value = serde_json::from_str(&printed(&["render", &plugin, "-f", &other, "-o", "json"])).unwrap();
        assert_eq!(whole["objects"][0]["reconciledOnlyWith"], "the annotation ingress/http");
        let selected = service("ingress/http: ''");
        let whole: Value = serde_json::from_str(&printed(&["render", &plugin, "-f", &selected, "-o", "json"])).unwrap();
        assert_eq!(whole["objects"][0]["reconciledOnlyWith"], Value::Null);
        assert_eq!(whole["objects"][0]["desired"][0]["object"]["kind"], "Ingress");
    }

    #[test]
    fn the_limits_are_those_of_the_plugin_that_is_given() {
        let files = Files::new();
        let app = files.file("app.yaml", APP);
        let plugin = |limits: &str| {
            let spec = format!(
                "apiVersion: pilothouse.dev/v1alpha1\nkind: Plugin\nmetadata: {{name: a}}\nspec: {{limits: {limits}}}\n"
            );
            files.file("plugin.yaml", &spec)
        };
        let render = |config: &str| {
            pilothouse(
                &["render", &component("app-service"), "-f", &app, "--config", config],
                "",
            )
        };
        let ended = render(&plugin("{reads: 0}"));
        assert_eq!(ended.code, 3, "{}", ended.said);
        assert!(
            ended.printed.contains("# failure: GuestLimit, the guest's fault: "),
            "{}",
            ended.printed
        );
        assert_eq!(render(&plugin("{reads: 1, callMilliseconds: 10000}")).code, 0);
        let ended = render(&plugin("{callMilliseconds: 1}"));
        assert!(
            ended.code == 1 && ended.said.contains("limit callMilliseconds is 1; it must be between"),
            "{}",
            ended.said
        );
    }

    #[test]
    fn a_failure_is_shown_with_the_log_and_ends_with_3() {
        let ended = pilothouse(
            &["render", &component("hostile"), "-f", "-", "-o", "text"],
            &hostile("panic"),
        );
        assert_eq!(ended.code, 3, "{}", ended.said);
        assert!(
            ended.printed.contains("failure: GuestTrap") && ended.printed.contains("words"),
            "{}",
            ended.printed
        );
        assert_eq!(ended.said, "the plugin fails for 1 of 1 objects: Hostile default/h\n");
    }

    #[test]
    fn deleted_objects_are_finalized() {
        let proxy = root()
            .join("deploy/samples/tcp-reverse-proxy.yaml")
            .display()
            .to_string();
        let text = printed(&[
            "render",
            &component("reverse-proxy"),
            "-f",
            &proxy,
            "--finalize",
            "-o",
            "text",
        ]);
        assert!(text.contains("finalizer: done"), "{text}");
        let files = Files::new();
        let app = files.file("app.yaml", APP);
        let ended = pilothouse(&["render", &component("app-service"), "-f", &app, "--finalize"], "");
        assert!(
            ended.code == 3 && ended.printed.contains("has no finalizer"),
            "{}{}",
            ended.said,
            ended.printed
        );
    }
}

mod comparing {
    use super::*;

    #[test]
    fn expected_objects_are_compared_one_by_one() {
        let files = Files::new();
        let (app, plugin) = (files.file("app.yaml", APP), component("app-service"));
        let expected = files.file("expected.yaml", &printed(&["render", &plugin, "-f", &app]));
        assert_eq!(printed(&["render", &plugin, "-f", &app, "--diff", &expected]), "");
        let larger = files.file("larger.yaml", &APP.replace("size: 2", "size: 3"));
        let ended = pilothouse(&["render", &plugin, "-f", &larger, "--diff", &expected], "");
        assert_eq!((ended.code, ended.said.as_str()), (3, "1 difference\n"));
        let shown = "-   replicas: 2\n+   replicas: 3\n";
        assert!(
            ended.printed.starts_with("Deployment.apps default/web:\n") && ended.printed.contains(shown),
            "{}",
            ended.printed
        );
        let other = files.file("other.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n");
        let ended = pilothouse(&["render", &plugin, "-f", &app, "--diff", &other], "");
        assert_eq!(
            ended.printed,
            "- ConfigMap default/a: expected, and not desired\n+ Deployment.apps default/web: desired, and not expected\n"
        );
    }

    #[test]
    fn another_component_is_compared_on_the_same_objects() {
        let files = Files::new();
        let (app, plugin) = (files.file("app.yaml", APP), component("app-service"));
        assert_eq!(printed(&["render", &plugin, "-f", &app, "--diff", &plugin]), "");
        let said = refused(&["render", &plugin, "-f", &app, "--diff", &component("hostile")]);
        assert!(
            said.contains("the plugin does not reconcile kosmos.io/v1 AppService"),
            "{said}"
        );
        let broken = files.file("broken.wasm", "text");
        let said = refused(&["render", &plugin, "-f", &app, "--diff", &broken]);
        assert!(said.contains("broken.wasm is no component"), "{said}");
    }

    #[test]
    fn standard_input_is_read_once_however_much_is_compared() {
        let files = Files::new();
        let (app, plugin) = (files.file("app.yaml", APP), component("app-service"));
        let expected = files.file("expected.yaml", &printed(&["render", &plugin, "-f", &app]));
        for other in [&expected, &plugin] {
            let ended = pilothouse(&["render", &plugin, "-f", "-", "--diff", other], APP);
            assert_eq!((ended.code, ended.printed.as_str()), (0, ""), "{}", ended.said);
            let deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n";
            let ended = pilothouse(
                &["render", &plugin, "-f", &app, "--cluster", "-", "--diff", other],
                deployment,
            );
            assert_eq!((ended.code, ended.printed.as_str()), (0, ""), "{}", ended.said);
        }
        let said = refused(&["render", &plugin, "-f", "-", "--diff", "-"]);
        assert!(said.contains("standard input (-) is named twice"), "{said}");
    }

    #[test]
    fn contributions_of_several_objects_are_compared_piecewise() {
        let stream = |name: &str, port: u16| {
            format!(
                "---\napiVersion: nginx-stream.jeffthecoder.xyz/v1beta1\nkind: StreamIngress\nmetadata: {{name: {name}}}\n\
                 spec: {{listen: {port}, upstream: {{service: db, port: {port}}}}}\n"
            )
        };
        let files = Files::new();
        let plugin = component("stream-ingress");
        let service = "apiVersion: v1\nkind: Service\nmetadata: {name: db}\n\
                       spec: {ports: [{name: a, port: 5432}, {name: b, port: 5433}, {name: c, port: 5434}]}\n\
                       ---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: tcp-services, namespace: ingress-nginx}\n\
                       ---\napiVersion: v1\nkind: Service\nmetadata: {name: ingress-nginx-controller, namespace: ingress-nginx}\n";
        let cluster = files.file("cluster.yaml", service);
        let render = |object: &str, more: &[&str]| {
            let fixed = ["render", &plugin, "-f", object, "--cluster", &cluster];
            pilothouse(&[&fixed[..], more].concat(), "")
        };
        let both = files.file("both.yaml", &(stream("a", 5432) + &stream("b", 5433)));
        let text = render(&both, &[]).printed;
        assert_eq!(text.matches("kind: ConfigMap").count(), 2, "{text}");
        assert!(text.contains("contributed"), "{text}");
        let expected = files.file("expected.yaml", &text);
        let ended = render(&both, &["--diff", &expected]);
        assert_eq!((ended.code, ended.printed.as_str()), (0, ""), "{}", ended.said);
        let changed = files.file("changed.yaml", &(stream("a", 5434) + &stream("b", 5433)));
        let ended = render(&changed, &["--diff", &expected]);
        assert_eq!(ended.code, 3, "{}{}", ended.printed, ended.said);
        assert!(
            ended.printed.contains("5432") && ended.printed.contains("5434"),
            "{}",
            ended.printed
        );
        assert!(
            !ended.printed.contains("not desired") && !ended.printed.contains("5433"),
            "{}",
            ended.printed
        );
        let one = files.file("one.yaml", &stream("b", 5433));
        let ended = render(&one, &["--diff", &expected]);
        let lines: Vec<&str> = ended.printed.lines().collect();
        assert!(
            !lines.is_empty() && lines.iter().all(|line| line.ends_with("expected, and not desired")),
            "{}",
            ended.printed
        );
        let nothing = files.file("nothing.yaml", "# nothing is expected\n");
        let ended = render(&one, &["--diff", &nothing]);
        assert!(
            ended.code == 3 && ended.printed.contains("desired, and not expected"),
            "{}{}",
            ended.printed,
            ended.said
        );
    }

    #[test]
    fn what_another_component_answers_otherwise_is_shown() {
        let files = Files::new();
        let (object, other) = (files.file("h.yaml", WORDLESS), reworded(&files));
        let ended = pilothouse(&["render", &component("hostile"), "-f", &object, "--diff", &other], "");
        assert_eq!(
            (ended.code, ended.said.as_str()),
            (3, "2 differences\n"),
            "{}",
            ended.printed
        );
        let (config_map, of_the_object) = ended.printed.split_once("Hostile default/h:\n").unwrap();
        assert!(config_map.starts_with("ConfigMap default/h:\n"), "{}", ended.printed);
        for shown in [config_map, of_the_object] {
            let changed = "-   text: as it was told\"\"\"\n+   text: as it was told to\n";
            assert!(shown.contains(changed), "{}", ended.printed);
        }
    }

    #[test]
    fn conditions_and_events_are_printed() {
        let files = Files::new();
        let object = files.file("h.yaml", &WORDLESS.replace("config-map", "many-events, count: 1"));
        let text = printed(&["render", &component("hostile"), "-f", &object]);
        for words in [
            "# status:\n#   text: as it was told to\n",
            "# conditions:\n#   Behaved=True ToldTo: this is what the resource asks for\n",
            "# events:\n#   Normal Many: event 0\n",
        ] {
            assert!(text.contains(words), "{words} in {text}");
        }
    }

    #[test]
    fn the_configuration_is_that_of_the_file() {
        let files = Files::new();
        let plugin = component("reverse-proxy");
        let proxy = files.file(
            "proxy.yaml",
            "apiVersion: nginx.lin2ur.cn/v1\nkind: ReverseProxy\nmetadata: {name: web}\nspec: {proxyPass: 'https://a.example'}\n",
        );
        let config = files.file("config.yaml", "defaultImage: mine:1\n");
        let text = printed(&["render", &plugin, "-f", &proxy, "--config", &config]);
        assert!(text.contains("image: mine:1\n"), "{text}");
        let text = printed(&["render", &plugin, "-f", &proxy]);
        assert!(!text.contains("mine:1"), "{text}");
    }
}

mod bad_input {
    use super::*;

    #[test]
    fn what_cannot_be_rendered_is_named_with_the_next_step() {
        let files = Files::new();
        let plugin = component("app-service");
        let (app, empty) = (files.file("app.yaml", APP), files.file("empty.yaml", "# nothing\n"));
        let secret = files.file("secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n");
        let older = files.file("older.yaml", &APP.replace("kosmos.io/v1", "kosmos.io/v1beta1"));
        let broken = files.file("broken.yaml", "apiVersion: v1\nkind: [\n");
        let text = files.file("text.wasm", "text");
        for (arguments, words) in [
            (
                vec!["render", &plugin],
                "give an object that the plugin reconciles with -f; it reconciles kosmos.io/v1 AppService",
            ),
            (vec!["render", &plugin, "-f", &empty], "empty.yaml is empty"),
            (vec!["render", &plugin, "-f", "-"], "standard input is empty"),
            (
                vec!["render", &plugin, "-f", "-", "--cluster", "-"],
                "standard input (-) is named twice",
            ),
            (
                vec!["render", &plugin, "-f", &secret],
                "the plugin does not reconcile v1 Secret, only kosmos.io/v1 AppService",
            ),
            (
                vec!["render", &plugin, "-f", &older],
                "does not reconcile kosmos.io/v1beta1 AppService, only kosmos.io/v1",
            ),
            (vec!["render", &plugin, "-f", &broken], "broken.yaml, document 1, line "),
            (vec!["render", &plugin, "-f", "/nope.yaml"], "cannot read /nope.yaml"),
            (vec!["render", &text, "-f", &app], "text.wasm"),
            (
                vec!["render", &plugin, "-f", &app, "--diff", "/nope.yaml"],
                "cannot read /nope.yaml",
            ),
            (
                vec!["render", &plugin, "-f", &app, "--now", "1960-01-01T00:00:00Z"],
                "is before 1970",
            ),
            (vec!["check", &plugin, "-f", &secret], "does not reconcile v1 Secret"),
            (
                vec!["check", &component("service-ingress")],
                "brings no CRD for v1 Service; give a sample of it",
            ),
            (vec!["bench", &plugin, "-f", &empty], "empty.yaml is empty"),
        ] {
            let said = refused(&arguments);
            assert!(said.contains(words), "{arguments:?}: {said}");
        }
    }

    #[test]
    fn a_wrong_command_line_ends_with_2() {
        let plugin = component("app-service");
        for arguments in [
            vec!["check", &plugin, "--property", "nonsense"],
            vec!["check", &plugin, "--cases", "0"],
            vec!["bench", &plugin],
            vec!["render", &plugin, "--now", "yesterday"],
        ] {
            assert_eq!(pilothouse(&arguments, "").code, 2, "{arguments:?}");
        }
    }
}

mod checking {
    use super::*;

    #[test]
    fn a_broken_property_shows_the_object_and_the_repeat_command() {
        let files = Files::new();
        let sample = files.file("a sample.yaml", &hostile("differs-by-read"));
        let ended = pilothouse(&["check", &component("hostile"), "-f", &sample, "--cases", "1"], "");
        assert_eq!(
            (ended.code, ended.said.as_str()),
            (3, "the plugin breaks fixed-point\n"),
            "{}",
            ended.printed
        );
        let text = ended.printed;
        assert!(
            text.contains("BROKEN fixed-point") && text.contains("ok     no-trap"),
            "{text}"
        );
        assert!(
            text.contains("  kind: Hostile\n") && text.contains("per second"),
            "{text}"
        );
        let (before, command) = text.split_once("\nrepeat it with:\n\n").unwrap();
        assert!(!before.contains("BROKEN"), "the result comes last: {text}");
        let command = command.lines().next().unwrap().trim();
        assert!(
            command.ends_with("a sample.yaml' --seed 1 --case 0 --property fixed-point"),
            "{command}"
        );
        let repeated = [
            "check",
            &component("hostile"),
            "-f",
            &sample,
            "--seed",
            "1",
            "--case",
            "0",
            "--property",
            "fixed-point",
        ];
        let again = pilothouse(&repeated, "");
        assert!(
            again.code == 3 && again.printed.contains("fixed-point is broken"),
            "{}",
            again.printed
        );
    }

    #[test]
    fn remarks_are_counted_and_the_result_comes_after_them() {
        let arguments = ["check", &component("app-service"), "--cases", "60", "--seed", "3"];
        let text = printed(&arguments);
        let remarks: Vec<&str> = text.lines().filter(|line| line.contains("Service default/")).collect();
        let document: Value = serde_json::from_str(&printed(&[&arguments[..], &["-o", "json"]].concat())).unwrap();
        let listed = document["remarks"].as_array().unwrap();
        assert!(!listed.is_empty(), "no port of a node was out of its range: {document}");
        assert_eq!(remarks.len(), listed.len(), "{text}");
        let cases: u64 = listed.iter().map(|remark| remark["cases"].as_u64().unwrap()).sum();
        assert!(cases >= document["refusedByServer"].as_u64().unwrap(), "{document}");
        let first = listed[0]["case"].to_string();
        let alone = printed(&[
            "check",
            &component("app-service"),
            "--seed",
            "3",
            "--case",
            &first,
            "-o",
            "json",
        ]);
        let alone: Value = serde_json::from_str(&alone).unwrap();
        assert_eq!(
            (&alone["judged"], &alone["refusedByServer"]),
            (&json!(1), &json!(1)),
            "{alone}"
        );
        let strict = pilothouse(
            &[
                "check",
                &component("app-service"),
                "--seed",
                "3",
                "--case",
                &first,
                "--strict",
            ],
            "",
        );
        assert_eq!(
            (strict.code, strict.said.as_str()),
            (3, "the plugin breaks valid\n"),
            "{}",
            strict.printed
        );
        let verdict = text.find("ok     equal").unwrap();
        assert!(
            remarks.iter().all(|remark| text.find(remark).unwrap() < verdict),
            "{text}"
        );
        assert!(text.trim_end().ends_with("per second"), "{text}");
    }

    #[test]
    fn what_the_plugin_does_not_reconcile_is_part_of_the_cluster() {
        let files = Files::new();
        let service = |name: &str, annotations: &str| {
            format!(
                "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, annotations: {{{annotations}}}}}\nspec: {{ports: [{{port: 80}}]}}\n"
            )
        };
        let map = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n";
        let given = files.file(
            "all.yaml",
            &(service("s", "ingress/http: ''") + &service("t", "") + map),
        );
        let (plugin, cases) = (component("service-ingress"), ["--cases", "20", "-o", "json"]);
        let ended = pilothouse(&[&["check", &plugin, "-f", &given][..], &cases].concat(), "");
        assert_eq!(ended.code, 0, "{}{}", ended.said, ended.printed);
        let words = "Service default/t is no sample but part of the cluster: the plugin reconciles only objects with the annotation \
                     ingress/http\n";
        assert!(ended.said.ends_with(words), "{}", ended.said);
        let only_others = files.file("map.yaml", map);
        let said = refused(&["check", &plugin, "-f", &only_others]);
        assert!(
            said.contains("the plugin does not reconcile v1 ConfigMap, only v1 Service"),
            "{said}"
        );
    }

    #[test]
    fn findings_that_are_accepted_break_nothing_and_are_counted() {
        let files = Files::new();
        let sample = files.file("sample.yaml", &hostile("differs-by-read"));
        let plugin = component("hostile");
        let check = |accepted: &str| {
            let accepted = files.file("accepted.yaml", accepted);
            pilothouse(
                &["check", &plugin, "-f", &sample, "--cases", "1", "--accept", &accepted],
                "",
            )
        };
        let finding = |property: &str, contains: &str| {
            format!("- property: {property}\n  contains: {contains:?}\n  reason: it counts what it reads\n")
        };
        let ended = check(&finding("fixed-point", "still changes what it has made"));
        assert_eq!(ended.code, 0, "{}{}", ended.said, ended.printed);
        let words = "accepted 1 times: fixed-point with \"still changes what it has made\": it counts what it reads\n";
        assert!(
            ended.printed.contains(words) && ended.printed.contains("ok     fixed-point"),
            "{}",
            ended.printed
        );
        for other in [
            finding("fixed-point", "something else"),
            finding("order", "still changes what it has made"),
        ] {
            let ended = check(&other);
            assert_eq!(ended.code, 3, "{}", ended.printed);
            assert!(ended.printed.contains("accepted and not found: "), "{}", ended.printed);
            assert!(ended.printed.contains("--accept "), "{}", ended.printed);
        }
        for (accepted, words) in [
            (
                "- property: fixed-point\n",
                "is no list of findings, each with property, contains and reason",
            ),
            (
                "- {property: fixed, contains: a, reason: b}\n",
                "is no list of findings",
            ),
            (
                "- {property: order, contains: ' ', reason: b}\n",
                "finding 1: contains is empty",
            ),
            (
                "- {property: order, contains: a, reason: ''}\n",
                "finding 1: reason is empty",
            ),
        ] {
            let ended = check(accepted);
            assert!(
                ended.code == 1 && ended.said.contains(words),
                "{accepted}: {}",
                ended.said
            );
        }
    }

    #[test]
    fn findings_below_a_part_that_is_taken_over_are_remarks() {
        let files = Files::new();
        let wish = {
            let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a, image: 'a:1', ports: [{containerPort: 99999999999}]}]}}";
            format!(
                "apiVersion: wishes.test.dev/v1\nkind: Wish\nmetadata: {{name: it}}\nspec: {{owns: [{{object: {pod}}}]}}\n"
            )
        };
        let sample = files.file("wish.yaml", &wish);
        let config = files.file("config.yaml", "{owns: [Pod], steers: [Wish]}");
        let check = |more: &[&str]| {
            let fixed = [
                "check",
                &component("wisher"),
                "-f",
                &sample,
                "--config",
                &config,
                "--property",
                "valid",
                "-o",
                "json",
            ];
            pilothouse(&[&fixed[..], more].concat(), "")
        };
        // Case 0 is the sample, of which the server has to take everything; the others are changes to it.
        let judged = |case: &str| {
            let ended = check(&["--case", case]);
            (ended.code, serde_json::from_str::<Value>(&ended.printed).unwrap())
        };
        let refused = (1..30).map(|case| judged(&case.to_string()));
        let found = refused.filter(|(_, report)| report["remarks"].to_string().contains("99999999999"));
        let codes: Vec<i32> = found.map(|(code, _)| code).collect();
        assert!(!codes.is_empty() && codes.iter().all(|code| *code == 0), "{codes:?}");
        assert_eq!(judged("0").0, 3);
    }

    #[test]
    fn plugins_that_are_shipped_break_nothing() {
        for plugin in [
            "app-service",
            "ecs-binding",
            "reverse-proxy",
            "service-ingress",
            "stream-ingress",
        ] {
            let sample = root()
                .join(format!("deploy/samples/{plugin}.yaml"))
                .display()
                .to_string();
            let text = printed(&[
                "check",
                &component(plugin),
                "-f",
                &sample,
                "--cases",
                "25",
                "-o",
                "json",
            ]);
            let report: Value = serde_json::from_str(&text).unwrap();
            assert!(report["judged"].as_u64().unwrap() > 10, "{plugin}: {text}");
        }
    }
}

#[test]
fn a_component_is_measured_against_another_in_turns() {
    let files = Files::new();
    let (app, plugin) = (files.file("app.yaml", APP), component("app-service"));
    let text = printed(&[
        "bench",
        &plugin,
        "-f",
        &app,
        "--against",
        &plugin,
        "--calls",
        "50",
        "-o",
        "json",
    ]);
    let report: Value = serde_json::from_str(&text).unwrap();
    let object = &report["objects"][0];
    assert_eq!(
        (&report["calls"], &object["object"]),
        (&json!(50), &json!("AppService default/web"))
    );
    assert_eq!(object["ratios"]["output bytes"], 1.0);
    let figure = |name: &str| object["components"][0][name].as_f64().unwrap();
    assert!(
        figure("p50Microseconds") > 0.0 && figure("p50Microseconds") <= figure("p99Microseconds"),
        "{text}"
    );
    let (wordless, other) = (files.file("h.yaml", WORDLESS), reworded(&files));
    let against = [
        "bench",
        &component("hostile"),
        "-f",
        &wordless,
        "--against",
        &other,
        "--calls",
        "10",
    ];
    let report: Value = serde_json::from_str(&printed(&[&against[..], &["-o", "json"]].concat())).unwrap();
    let object = &report["objects"][0];
    let of = |index: usize, name: &str| object["components"][index][name].as_f64().unwrap();
    // The text is in the data and in the status, each with three letters that JSON escapes.
    let bytes = |index: usize| object["components"][index]["outputBytes"].as_u64().unwrap();
    assert_eq!(bytes(0) + 6, bytes(1), "{report}");
    assert!(object["ratios"]["output bytes"].as_f64().unwrap() < 1.0, "{report}");
    assert!(
        of(0, "memoryBytes") >= 65_536.0 && of(1, "memoryBytes") >= 65_536.0,
        "{report}"
    );

    let failing = files.file("failing.yaml", &hostile("permanent-failure"));
    let ended = pilothouse(&["bench", &component("hostile"), "-f", &failing], "");
    assert!(
        ended.code == 3 && ended.said.contains("fails for Hostile default/h"),
        "{}",
        ended.said
    );
}

#[test]
fn components_are_measured_on_the_same_cluster() {
    let files = Files::new();
    let plugin = component("hostile");
    // It reads the ConfigMap of its own name and counts on, so what it writes has as many digits as what is there.
    let count = "9".repeat(12);
    let there = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: h}}\ndata: {{text: '{count}'}}\n");
    let object = files.file("h.yaml", &hostile("differs-by-read"));
    let cluster = files.file("cluster.yaml", &there);
    let both = files.file("both.yaml", &format!("{}---\n{there}", hostile("differs-by-read")));
    let ratio = |arguments: &[&str], input: &str| {
        let fixed = ["bench", &plugin, "--against", &plugin, "--calls", "2", "-o", "json"];
        let ended = pilothouse(&[&fixed[..], arguments].concat(), input);
        assert_eq!(ended.code, 0, "{}", ended.said);
        let report: Value = serde_json::from_str(&ended.printed).unwrap();
        let bytes = |index: usize| {
            report["objects"][0]["components"][index]["outputBytes"]
                .as_u64()
                .unwrap()
        };
        (bytes(0), bytes(1))
    };
    let (alone, _) = ratio(&["-f", &object], "");
    for (arguments, input) in [
        (&["-f", &object, "--cluster", &cluster][..], ""),
        (&["-f", &object, "--cluster", "-"], &there),
        (&["-f", &both], ""),
    ] {
        let (first, second) = ratio(arguments, input);
        assert!(
            first > alone + 10,
            "{arguments:?}: the cluster is read, {first} and {alone}"
        );
        assert_eq!(first, second, "{arguments:?}");
    }
}

#[test]
fn a_component_that_imports_wasi_needs_a_grant_for_each_command() {
    let files = Files::new();
    let dice = files.file("dice.wasm", "");
    std::fs::write(&dice, dice::component()).unwrap();
    let object = files.file("c.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n");
    let plugin = |grant: &str| format!("apiVersion: pilothouse.dev/v1alpha1\nkind: Plugin\nspec: {{wasi: {grant}}}\n");
    let (inert, none) = (
        files.file("inert.yaml", &plugin("Inert")),
        files.file("none.yaml", &plugin("None")),
    );
    let header = Header {
        format: FORMAT.to_owned(),
        contract: "0.1.0".to_owned(),
        plugin: "dice".to_owned(),
        version: "0.1.0".to_owned(),
        digest: String::new(),
        component: dice.clone(),
        begun: String::new(),
        limits: Limits::default(),
        manifest: Value::Null,
    };
    let lines = [Line::Recording(Box::new(header)), Line::End(Trailer::default())];
    let lines = lines.map(|line| serde_json::to_string(&line).unwrap());
    let recording = files.file("dice.recording.jsonl", &lines.join("\n"));
    let run = |arguments: &[String]| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        pilothouse(&arguments, "")
    };
    let succeeds = |arguments: &[String]| {
        let Ended { code, printed, said } = run(arguments);
        assert_eq!(code, 0, "{arguments:?}: {said}{printed}");
    };
    for command in [
        &["render", &dice, "-f", &object][..],
        &["check", &dice, "-f", &object, "--cases", "2"],
        &["bench", &dice, "-f", &object, "--calls", "2", "--against", &dice],
        &["replay", &recording, "--component", &dice],
    ] {
        let with = |more: &[&str]| -> Vec<String> { command.iter().chain(more).map(|it| (*it).to_owned()).collect() };
        for arguments in [with(&[]), with(&["--wasi", "none"])] {
            let ended = run(&arguments);
            assert_eq!(ended.code, 1, "{arguments:?}: {}{}", ended.said, ended.printed);
            for words in ["wasi:random/random@0.2.3", "--wasi inert"] {
                assert!(ended.said.contains(words), "{arguments:?}: {}", ended.said);
            }
        }
        succeeds(&with(&["--wasi", "inert"]));
        if command[0] == "replay" {
            let piped = ["replay", "-", "--component", &dice, "--wasi", "inert"];
            let ended = pilothouse(&piped, &lines.join("\n"));
            assert_eq!(ended.code, 0, "{}{}", ended.said, ended.printed);
        } else {
            succeeds(&with(&["--config", &inert]));
            succeeds(&with(&["--config", &none, "--wasi", "inert"]));
            assert_eq!(run(&with(&["--config", &inert, "--wasi", "none"])).code, 1);
        }
    }
}
