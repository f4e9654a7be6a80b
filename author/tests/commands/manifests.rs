//! Output of `pilothouse manifests` for a plugin.

mod isolated {
    use std::fs;

    use serde_json::Value;
    use xtask::plugins::{PluginsOptions, build};

    use crate::program::call;

    fn component() -> String {
        let options = PluginsOptions {
            only: vec!["app-service".to_owned()],
            ..PluginsOptions::default()
        };
        build(&options).unwrap().remove(0).path.display().to_string()
    }

    fn kinds(yaml: &str) -> Vec<String> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
        documents
            .iter()
            .map(|document| document["kind"].as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn definitions_come_first_and_a_valid_sample_last() {
        let folder = tempfile::tempdir().unwrap();
        let yaml = call(folder.path(), &["manifests", &component(), "--namespace", "shop"]).ok();
        let kinds = kinds(&yaml);
        assert_eq!(kinds[0], "CustomResourceDefinition");
        assert!(kinds.contains(&"ServiceAccount".to_owned()), "{kinds:?}");
        assert_eq!(kinds[kinds.len() - 2..], ["Plugin", "AppService"]);
        let documents: Vec<Value> = serde_saphyr::from_multiple(&yaml).unwrap();
        let sample = documents.last().unwrap();
        assert_eq!(sample["metadata"]["namespace"], "shop");
        // What the definition requires, and within its bounds.
        assert_eq!(sample["spec"], serde_json::json!({"size": 1, "image": "example"}));
    }

    #[test]
    fn a_folder_gets_a_file_for_each_purpose_and_a_kustomization() {
        let folder = tempfile::tempdir().unwrap();
        let component_beside = folder.path().join("app-service.wasm");
        fs::copy(component(), &component_beside).unwrap();
        let sample = "apiVersion: kosmos.io/v1\nkind: AppService\nmetadata: {name: mine}\nspec: {size: 2, image: a}\n";
        fs::write(folder.path().join("sample.yaml"), sample).unwrap();
        call(folder.path(), &["manifests", "./app-service.wasm", "-o", "deploy"]).ok();
        let read = |name: &str| fs::read_to_string(folder.path().join("deploy").join(name)).unwrap();
        assert_eq!(kinds(&read("crds.yaml")), ["CustomResourceDefinition"]);
        assert_eq!(kinds(&read("plugin.yaml")), ["Plugin"]);
        assert!(kinds(&read("rbac.yaml")).contains(&"ClusterRole".to_owned()));
        assert!(
            read("sample.yaml").contains("name: mine"),
            "the sample beside the component is taken"
        );
        assert!(read("kustomization.yaml").ends_with("resources:\n- crds.yaml\n- rbac.yaml\n- plugin.yaml\n"));
    }

    #[test]
    fn health_checks_are_printed_alone_one_for_each_kind() {
        let folder = tempfile::tempdir().unwrap();
        let yaml = call(folder.path(), &["manifests", &component(), "--argocd"]).ok();
        assert_eq!(kinds(&yaml), ["ConfigMap"]);
        let map: Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(map["metadata"]["name"], "argocd-cm");
        let checks: Vec<_> = map["data"].as_object().unwrap().iter().collect();
        let names: Vec<_> = checks.iter().map(|(name, _)| name.as_str()).collect();
        let prefix = "resource.customizations.health";
        let expected = [
            format!("{prefix}.kosmos.io_AppService"),
            format!("{prefix}.pilothouse.dev_Plugin"),
        ];
        assert_eq!(names, expected);
        assert_eq!(checks[0].1, checks[1].1);
        assert!(
            yaml.contains("_Plugin: |\n    -- The rules of kstatus"),
            "as people read it: {yaml}"
        );
        let both = ["manifests", "app-service.wasm", "--argocd", "-o", "deploy"];
        let error = call(folder.path(), &both).failed(2);
        assert!(error.contains("--argocd") && error.contains("--output"), "{error}");
    }

    #[test]
    fn a_folder_without_a_crate_and_a_missing_file_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = call(folder.path(), &["manifests"]).failed(1);
        assert!(error.contains("has no Cargo.toml"), "{error}");
        let error = call(folder.path(), &["manifests", "nothing.wasm"]).failed(1);
        assert!(error.contains("nothing.wasm"), "{error}");
    }
}
