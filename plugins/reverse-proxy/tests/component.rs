//! The component under the host's sandbox: it answers like the native plugin, and has the required exports.

mod isolated {
    use std::path::Path;

    use pilothouse_testkit::isolation::{Admission, Finalized, Isolated};
    use serde_json::{Value, json};

    fn plugin() -> Isolated {
        let component = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/plugins/reverse-proxy.wasm");
        Isolated::load(component).expect("`cargo xtask plugins` has built it")
    }

    fn object(kind: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": "nginx.lin2ur.cn/v1", "kind": kind,
            "metadata": {"name": "web", "namespace": "shop", "uid": "u-1"},
            "spec": spec,
        })
    }

    #[test]
    fn both_kinds_have_their_children() {
        for (kind, name, spec) in [
            (
                "ReverseProxy",
                "ngx-proxy-web",
                json!({"proxyPass": "https://example.com/$1"}),
            ),
            (
                "TCPReverseProxy",
                "ngx-tcpproxy-web",
                json!({"servers": [{"server": "a:1"}]}),
            ),
        ] {
            let reconciled = plugin().reconcile(&object(kind, &spec)).expect("it is a good one");
            for child in ["ConfigMap", "Deployment", "Service"] {
                assert!(reconciled.object(child, name).is_some(), "{kind} has a {child} {name}");
            }
        }
    }

    #[test]
    fn an_unknown_variable_is_refused_in_nginxs_words_by_field() {
        let bad = object("ReverseProxy", &json!({"proxyPass": "https://$noexists", "image": "a"}));
        let errors = plugin()
            .validate(&bad, &Admission::create())
            .expect("it answers")
            .answer
            .expect_err("it is refused");
        let said: Vec<_> = errors
            .iter()
            .map(|error| (error.path.as_str(), error.message.as_str()))
            .collect();
        assert_eq!(said, [("spec.proxyPass", "unknown \"noexists\" variable")]);
        let failed = plugin().reconcile(&bad).expect_err("it is refused");
        assert!(
            failed
                .failure
                .message
                .contains("spec.proxyPass: Invalid value: unknown \"noexists\" variable"),
            "{failed}"
        );
    }

    #[test]
    fn defaults_are_filled_in_under_the_configuration() {
        let plugin = plugin()
            .configured(json!({"defaultImage": "mine:1"}))
            .expect("it is a good one");
        let given = object(
            "ReverseProxy",
            &json!({"proxyPass": "http://a.test", "proxySetHeader": {"X-A": "1"}}),
        );
        let completed = plugin
            .default(&given, &Admission::create())
            .expect("it answers")
            .answer
            .expect("it can be completed");
        assert_eq!(completed["spec"]["image"], "mine:1");
        assert_eq!(
            completed["spec"]["proxySetHeader"],
            json!({"x-a": "1", "host": "a.test"})
        );
    }

    #[test]
    fn a_deleted_stream_may_go_once_its_children_are_gone() {
        let leaving = object("TCPReverseProxy", &json!({"servers": "of no form"}));
        let finalized = plugin().finalize(&leaving).expect("it answers");
        assert!(matches!(finalized, Finalized::Done));
    }
}
