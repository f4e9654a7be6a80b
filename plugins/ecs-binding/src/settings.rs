//! Owns the plugin's configuration: the cluster's name, and which name no label can have.

use serde::Deserialize;
use serde_json::Value;

/// The longest value of a label, in bytes.
const LONGEST_LABEL_VALUE: usize = 63;

/// The configuration of ecs-binding.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// The name of the cluster, which every EcsBinding has as the value of its label `hopegi.com/cluster`.
    #[cfg_attr(
        test,
        schemars(
            length(min = 1, max = LONGEST_LABEL_VALUE),
            regex(pattern = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
        )
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
    /// Why no label can have this name as its value. The API server would refuse every one of them.
    pub fn check(&self) -> Result<(), String> {
        let Self { cluster_name: name } = self;
        let is_usable = (1..=LONGEST_LABEL_VALUE).contains(&name.len())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
            && name.starts_with(|first: char| first.is_ascii_alphanumeric())
            && name.ends_with(|last: char| last.is_ascii_alphanumeric());
        if is_usable {
            return Ok(());
        }
        Err(format!(
            "clusterName: {name:?} cannot be a label's value; give 1 to {LONGEST_LABEL_VALUE} characters A-Z, a-z, 0-9, '-', '_' \
             and '.' that begin and end with a letter or digit"
        ))
    }
}

/// The schema of the configuration, generated from the type above.
pub fn schema() -> Value {
    let text = include_str!("../configuration.schema.json");
    serde_json::from_str(text).expect("a test has written it as JSON")
}
