//! Types and checks of `deploy/chart`: the values, of which `values.schema.json` is generated, the defaults in
//! `values.yaml`, and the copy of the CRD in the chart. The tests in `tests/` render, install and run the chart.
#![forbid(unsafe_code)]

pub mod values;

use std::path::PathBuf;

/// The folder of the chart.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart")
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use schemars::generate::SchemaSettings;
    use serde_json::{Map, Value};

    use super::folder;
    use super::values::Values;

    /// Compares a file of the chart with what it is generated from, or writes it.
    fn keep(name: &str, generated: &str) {
        let path = folder().join(name);
        if env::var_os("UPDATE").is_some() {
            fs::write(&path, generated).expect("the file can be written");
            return;
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == generated,
            "deploy/chart/{name} is stale: run `cargo xtask generate`"
        );
    }

    /// With members in order of their names: whether serde_json keeps another order depends on what else is built.
    fn sorted(value: Value) -> Value {
        match value {
            Value::Array(items) => items.into_iter().map(sorted).collect(),
            Value::Object(members) => {
                let mut members: Vec<_> = members.into_iter().collect();
                members.sort_by(|(one, _), (other, _)| one.cmp(other));
                let members = members.into_iter().map(|(name, value)| (name, sorted(value)));
                Value::Object(members.collect::<Map<_, _>>())
            }
            scalar => scalar,
        }
    }

    #[test]
    fn generated_values_schema_is_what_the_types_give() {
        // The draft that every Helm 3 and 4 reads.
        let generator = SchemaSettings::draft07().into_generator();
        let schema = generator.into_root_schema_for::<Values>().to_value();
        keep("values.schema.json", &format!("{:#}\n", sorted(schema)));
    }

    #[test]
    fn generated_crd_of_the_chart_is_the_one_in_crds() {
        let path = folder().join("../../crds/yaml/plugins.pilothouse.dev.yaml");
        let crd = fs::read_to_string(path).expect("the CRD is there");
        keep("files/plugins.pilothouse.dev.yaml", &crd);
    }

    #[test]
    fn generated_monitoring_of_the_chart_is_that_in_deploy() {
        for file in ["alerts.yaml", "dashboard.json"] {
            let path = folder().join("../monitoring").join(file);
            let text = fs::read_to_string(path).expect("the file is there");
            keep(&format!("files/{file}"), &text);
        }
    }

    #[test]
    fn values_yaml_has_every_value_with_its_default() {
        let text = fs::read_to_string(folder().join("values.yaml")).expect("the file is there");
        let given: Value = serde_saphyr::from_str(&text).expect("it is YAML");
        let read: Values = serde_json::from_value(given.clone()).expect("it has values of the chart only");
        assert_eq!(read, Values::default());
        // What a type leaves out of its own accord is no value that somebody looks for in the file.
        let defaults = serde_json::to_value(Values::default()).expect("values are JSON");
        assert_eq!(sorted(given), sorted(defaults), "a value is missing in values.yaml");
    }

    #[test]
    fn the_chart_has_the_version_of_the_host() {
        let text = fs::read_to_string(folder().join("Chart.yaml")).expect("the file is there");
        let chart: Value = serde_saphyr::from_str(&text).expect("it is YAML");
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            (&chart["version"], &chart["appVersion"]),
            (&version.into(), &version.into())
        );
    }
}
