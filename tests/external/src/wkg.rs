//! Runs wkg: pushes and pulls components.

use std::fs;

use tempfile::TempDir;

use crate::{
    command::{Failed, Printed, Tool},
    programs::Program,
    registry::Registry,
};

/// wkg with a home of its own.
#[derive(Debug)]
pub struct Wkg {
    tool: Tool,
    home: TempDir,
}

impl Default for Wkg {
    fn default() -> Self {
        Self::new()
    }
}

impl Wkg {
    /// wkg with an empty home.
    pub fn new() -> Self {
        let home = tempfile::tempdir().expect("there is room for a folder");
        Self {
            tool: Tool::new(Program::Wkg.path(), home.path()),
            home,
        }
    }

    /// Pushes a component as `repository:tag`, with annotations of the manifest: its digest. wkg writes the present time into
    /// the config, so the digest of the same component differs each time.
    pub fn push(
        &self,
        registry: &Registry,
        name: &str,
        component: &[u8],
        annotations: &[(&str, &str)],
    ) -> Result<String, Failed> {
        fs::write(self.home.path().join("plugin.wasm"), component).expect("there is room for a component");
        let annotations: Vec<String> = annotations
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let mut arguments = vec!["oci", "push"];
        arguments.extend(annotations.iter().flat_map(|annotation| ["--annotation", annotation]));
        let reference = registry.reference(name);
        arguments.extend([reference.as_str(), "plugin.wasm"]);
        let printed = self.run(registry, &arguments)?;
        let digest = printed.output.lines().find_map(|line| line.strip_prefix("digest: "));
        Ok(digest.expect("wkg prints the digest of what it pushes").to_owned())
    }

    /// Pulls a component by `repository:tag` or `repository@digest`.
    pub fn pull(&self, registry: &Registry, name: &str) -> Result<Vec<u8>, Failed> {
        let reference = registry.reference(name);
        self.run(registry, &["oci", "pull", "--output", "pulled.wasm", &reference])?;
        Ok(fs::read(self.home.path().join("pulled.wasm")).expect("wkg writes what it pulls"))
    }

    fn run(&self, registry: &Registry, arguments: &[&str]) -> Result<Printed, Failed> {
        let (mut variables, address) = (Vec::new(), registry.address());
        let ca = registry.ca_file().map(|ca| ca.display().to_string());
        match &ca {
            // wkg has no flag for an authority; its TLS library reads this variable.
            Some(ca) => variables.push(("SSL_CERT_FILE", ca.as_str())),
            None => variables.push(("WKG_OCI_INSECURE", address.as_str())),
        }
        if let Some((user, password)) = registry.credentials() {
            variables.extend([("WKG_OCI_USERNAME", user), ("WKG_OCI_PASSWORD", password)]);
        }
        self.tool.run_with(arguments, &variables)
    }
}
