//! Generates the pages of the reference, and compares them with the files. Each source (the command line, or a schema)
//! has its module.

mod chart;
mod commands;
mod schema;

use std::fs;

use serde_json::Value;

use crate::root;

/// The page of all commands.
pub fn commands() -> String {
    commands::page(pilothouse::command_line::command())
}

/// The page of the resource Plugin.
pub fn plugin() -> String {
    schema::plugin_page(&definition())
}

/// The page of the limits.
pub fn limits() -> String {
    schema::limits_page(&definition())
}

/// The page of the manifest.
pub fn manifest() -> String {
    let text = fs::read_to_string(root().join("wit/manifest.schema.json")).expect("the schema is in the repository");
    schema::manifest_page(&serde_json::from_str(&text).expect("the schema is JSON"))
}

/// The page of the Helm chart's values.
pub fn chart() -> String {
    let text =
        fs::read_to_string(root().join("deploy/chart/values.schema.json")).expect("the schema is in the repository");
    chart::page(&serde_json::from_str(&text).expect("the schema is JSON"))
}

/// The schema of the resource Plugin.
fn definition() -> Value {
    pilothouse_crds::plugin_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

#[cfg(test)]
mod tests {
    use std::env;

    use super::*;

    /// Compares a page with its file, or writes it with `UPDATE` set, as `cargo xtask generate` sets it.
    fn keep(file: &str, page: &str) {
        let path = root().join("docs/reference").join(file);
        if env::var_os("UPDATE").is_some() {
            fs::write(&path, page).unwrap();
            return;
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == page,
            "docs/reference/{file} is stale: run `cargo xtask generate`"
        );
    }

    #[test]
    fn generated_page_of_commands_is_what_the_command_line_gives() {
        keep("commands.md", &commands());
    }

    #[test]
    fn generated_page_of_the_resource_plugin_is_what_its_crd_gives() {
        keep("plugin.md", &plugin());
    }

    #[test]
    fn generated_page_of_limits_is_what_the_crd_gives() {
        keep("limits.md", &limits());
    }

    #[test]
    fn generated_page_of_the_chart_matches_its_values_schema() {
        keep("chart.md", &chart());
    }

    #[test]
    fn generated_page_of_the_manifest_is_what_its_schema_gives() {
        keep("manifest.md", &manifest());
    }
}
