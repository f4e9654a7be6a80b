//! The plugin's configuration: the cluster's name, checked to be a valid label value.

use pilothouse_plugin::names::is_label_value;
use schemars::JsonSchema;
use serde::Deserialize;

/// The configuration of ecs-binding.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// The name of the cluster, which every EcsBinding has as the value of its label `hopegi.com/cluster`.
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    )]
    pub cluster_name: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cluster_name: "k8s-cluster".to_owned(),
        }
    }
}

impl Settings {
    /// Checks that the name is valid as a label's value. The API server would refuse every label otherwise.
    pub fn check(&self) -> Result<(), String> {
        let Self { cluster_name: name } = self;
        if !name.is_empty() && is_label_value(name) {
            return Ok(());
        }
        Err(format!(
            "clusterName: {name:?} cannot be a label's value; give 1 to 63 characters A-Z, a-z, 0-9, '-', '_' and '.' that \
             begin and end with a letter or digit"
        ))
    }
}

#[test]
fn generated_configuration_schema_is_what_the_type_gives() {
    pilothouse_plugin::crd::keep_configuration::<Settings>(env!("CARGO_MANIFEST_DIR"));
}
