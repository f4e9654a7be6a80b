//! Runs helm and kustomize: rendering, checking, installing and removing a chart, and building manifests.

use std::{fs, path::Path};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    command::{Failed, Printed, Tool},
    programs::Program,
};

/// helm with a home of its own, for one chart, release and namespace.
#[derive(Debug)]
pub struct Helm {
    tool: Tool,
    home: TempDir,
    chart: String,
    release: String,
    namespace: String,
    kubeconfig: Option<String>,
    has_image: bool,
}

/// The image that values get which name none.
pub const IMAGE: &str = "registry.example.com/pilothouse-host";

impl Helm {
    /// helm without a cluster.
    pub fn new(chart: &Path, release: &str, namespace: &str) -> Self {
        let home = tempfile::tempdir().expect("there is room for a folder");
        Self {
            tool: Tool::new(Program::Helm.path(), home.path()),
            home,
            chart: chart.display().to_string(),
            release: release.to_owned(),
            namespace: namespace.to_owned(),
            kubeconfig: None,
            has_image: true,
        }
    }

    /// The same, with values that name no image as they are.
    #[must_use]
    pub fn without_image(mut self) -> Self {
        self.has_image = false;
        self
    }

    /// The same for a cluster.
    #[must_use]
    pub fn on(mut self, kubeconfig: &str) -> Self {
        self.kubeconfig = Some(kubeconfig.to_owned());
        self
    }

    /// `helm lint --strict`.
    pub fn lint(&self, values: &Value) -> Result<Printed, Failed> {
        self.with_values(&["lint", "--strict", &self.chart], values)
    }

    /// Returns the output of `helm template`.
    pub fn template(&self, values: &Value) -> Result<String, Failed> {
        let arguments = ["template", &self.release, &self.chart, "--namespace", &self.namespace];
        let printed = self.with_values(&arguments, values)?;
        Ok(printed.output)
    }

    /// `helm install`.
    pub fn install(&self, values: &Value) -> Result<Printed, Failed> {
        self.with_values(&["install", &self.release, &self.chart], values)
    }

    /// `helm upgrade`.
    pub fn upgrade(&self, values: &Value) -> Result<Printed, Failed> {
        self.with_values(&["upgrade", &self.release, &self.chart], values)
    }

    /// `helm rollback` to an earlier revision.
    pub fn rollback(&self, revision: u32) -> Result<Printed, Failed> {
        self.run(&["rollback", &self.release, &revision.to_string()])
    }

    /// `helm uninstall`, which waits until the objects are gone.
    pub fn uninstall(&self) -> Result<Printed, Failed> {
        self.run(&["uninstall", &self.release, "--wait"])
    }

    /// The same although there are Plugins, which the chart's hook would refuse.
    pub fn uninstall_without_hooks(&self) -> Result<Printed, Failed> {
        self.run(&["uninstall", &self.release, "--wait", "--no-hooks"])
    }

    fn with_values(&self, arguments: &[&str], values: &Value) -> Result<Printed, Failed> {
        let file = self.home.path().join("values.yaml");
        let mut values = values.clone();
        if self.has_image && values["image"]["repository"].is_null() {
            values["image"]["repository"] = json!(IMAGE);
        }
        // JSON is YAML.
        fs::write(&file, values.to_string()).expect("there is room for values");
        let file = file.display().to_string();
        self.run(&[arguments, &["--values", &file]].concat())
    }

    fn run(&self, arguments: &[&str]) -> Result<Printed, Failed> {
        let mut arguments = arguments.to_vec();
        if let Some(kubeconfig) = &self.kubeconfig {
            arguments.extend(["--kubeconfig", kubeconfig, "--namespace", &self.namespace]);
        }
        self.tool.run_with(&arguments, &[])
    }
}

/// Returns the output of `kustomize build` for a folder.
pub fn kustomize(folder: &Path) -> Result<String, Failed> {
    let home = tempfile::tempdir().expect("there is room for a folder");
    let tool = Tool::new(Program::Kustomize.path(), home.path());
    let printed = tool.run_with(&["build", &folder.display().to_string()], &[])?;
    Ok(printed.output)
}
