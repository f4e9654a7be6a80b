//! Values about alerts and the dashboard.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Alerts and a dashboard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Monitoring {
    /// The alerts and recording rules, for the Prometheus Operator.
    pub prometheus_rule: PrometheusRule,
    /// The dashboard, for the sidecar of Grafana.
    pub dashboard: Dashboard,
}

/// The alerts and recording rules, for the Prometheus Operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PrometheusRule {
    /// Whether the chart has a PrometheusRule.
    pub enabled: bool,
    /// Further labels of the PrometheusRule, by which Prometheus selects it.
    pub labels: BTreeMap<String, String>,
    /// The address of the page of runbooks, to which each alert appends its name.
    #[schemars(length(min = 1), regex(pattern = r"^\S+$"))]
    pub runbook_url: String,
}

impl Default for PrometheusRule {
    fn default() -> Self {
        Self {
            enabled: false,
            labels: BTreeMap::new(),
            runbook_url: "docs/runbooks.md".to_owned(),
        }
    }
}

/// The dashboard, for the sidecar of Grafana.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Dashboard {
    /// Whether the chart has a ConfigMap with the dashboard.
    pub enabled: bool,
    /// Further labels of the ConfigMap, by which Grafana's sidecar finds it.
    pub labels: BTreeMap<String, String>,
}

impl Default for Dashboard {
    fn default() -> Self {
        Self {
            enabled: false,
            labels: BTreeMap::from([("grafana_dashboard".to_owned(), "1".to_owned())]),
        }
    }
}
