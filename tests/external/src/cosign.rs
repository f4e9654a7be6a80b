//! Runs cosign 3: keys, signatures by key in both formats, attestations, and cosign's own verification. All of it works
//! without a transparency log, without Sigstore's services and so without a network.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{
    command::{Failed, Printed, Tool},
    programs::Program,
    registry::Registry,
};

/// cosign with a home of its own, in which its keys lie.
#[derive(Debug)]
pub struct Cosign {
    tool: Tool,
    _home: TempDir,
}

/// Format of a signature in the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A Sigstore bundle in an artifact that refers to the signed one: the default of cosign 3.
    Bundle,
    /// A layer of the image tagged `sha256-<digest>.sig`: the only format of cosign 1 and the default of cosign 2.
    Tag,
}

/// A key pair with an empty password.
#[derive(Debug, Clone)]
pub struct Key {
    private: PathBuf,
    public: PathBuf,
}

impl Key {
    /// The file with the public key as PEM.
    pub fn public_file(&self) -> &Path {
        &self.public
    }

    /// The public key as PEM.
    pub fn public(&self) -> String {
        fs::read_to_string(&self.public).unwrap_or_else(|error| panic!("read {}: {error}", self.public.display()))
    }
}

impl Default for Cosign {
    fn default() -> Self {
        Self::new()
    }
}

impl Cosign {
    /// cosign with an empty home.
    pub fn new() -> Self {
        let home = tempfile::tempdir().expect("there is room for a folder");
        Self {
            tool: Tool::new(Program::Cosign.path(), home.path()),
            _home: home,
        }
    }

    /// Makes a key pair (ECDSA with P-256) with a name that tells it from the others.
    pub fn generate_key(&self, name: &str) -> Result<Key, Failed> {
        self.run(&["generate-key-pair", "--output-key-prefix", name])?;
        Ok(self.key(name))
    }

    /// Takes over a private key as PEM, for example one with another algorithm.
    pub fn import_key(&self, name: &str, pem: &str) -> Result<Key, Failed> {
        let file = self.write(&format!("{name}.pem"), pem.as_bytes());
        self.run(&["import-key-pair", "--key", &file, "--output-key-prefix", name, "--yes"])?;
        Ok(self.key(name))
    }

    /// Signs what `repository@digest` names and leaves the signature in the registry, with these annotations.
    pub fn sign(
        &self,
        registry: &Registry,
        artifact: &str,
        key: &Key,
        format: Format,
        annotations: &[(&str, &str)],
    ) -> Result<Printed, Failed> {
        let mut arguments = strings(&["sign", "--yes", "--key"]);
        arguments.push(key.private.display().to_string());
        arguments.extend(without_services());
        arguments.push(format.flag());
        for (name, value) in annotations {
            arguments.extend(["--annotations".to_owned(), format!("{name}={value}")]);
        }
        self.on(registry, artifact, arguments)
    }

    /// Attests this predicate, as JSON, of what `repository@digest` names. An attestation is no signature, though it lies in
    /// a bundle too and refers to the artifact.
    pub fn attest(
        &self,
        registry: &Registry,
        artifact: &str,
        key: &Key,
        predicate_type: &str,
        predicate: &str,
    ) -> Result<Printed, Failed> {
        let file = self.write("predicate.json", predicate.as_bytes());
        let mut arguments = strings(&[
            "attest",
            "--yes",
            "--type",
            predicate_type,
            "--predicate",
            &file,
            "--key",
        ]);
        arguments.push(key.private.display().to_string());
        arguments.extend(without_services());
        self.on(registry, artifact, arguments)
    }

    /// Has cosign verify a signature of this key in this format. Asked for a bundle where there is none, cosign takes the
    /// tag. It also takes any attestation in a bundle for a signature.
    pub fn verify(&self, registry: &Registry, artifact: &str, key: &Key, format: Format) -> Result<Printed, Failed> {
        let mut arguments = strings(&["verify", "--insecure-ignore-tlog=true", "--key"]);
        arguments.extend([key.public.display().to_string(), format.flag()]);
        self.on(registry, artifact, arguments)
    }

    /// Signs bytes that are in no registry: the bundle, which has no envelope.
    pub fn sign_blob(&self, key: &Key, blob: &[u8]) -> Result<Vec<u8>, Failed> {
        let file = self.write("blob", blob);
        let bundle = self.tool.home().join("blob.bundle");
        let mut arguments = strings(&["sign-blob", "--yes", "--key"]);
        arguments.push(key.private.display().to_string());
        arguments.extend(without_services());
        arguments.extend(["--bundle".to_owned(), bundle.display().to_string(), file]);
        self.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok(fs::read(&bundle).unwrap_or_else(|error| panic!("read {}: {error}", bundle.display())))
    }

    /// Runs any other command.
    pub fn run(&self, arguments: &[&str]) -> Result<Printed, Failed> {
        self.tool.run_with(arguments, &[("COSIGN_PASSWORD", "")])
    }

    fn on(&self, registry: &Registry, artifact: &str, mut arguments: Vec<String>) -> Result<Printed, Failed> {
        match registry.ca_file() {
            Some(ca) => arguments.extend(["--registry-cacert".to_owned(), ca.display().to_string()]),
            None => arguments.push("--allow-http-registry".to_owned()),
        }
        if let Some((user, password)) = registry.credentials() {
            arguments.extend(strings(&["--registry-username", user, "--registry-password", password]));
        }
        arguments.push(registry.reference(artifact));
        self.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn key(&self, name: &str) -> Key {
        let file = |ending: &str| self.tool.home().join(format!("{name}.{ending}"));
        Key {
            private: file("key"),
            public: file("pub"),
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.tool.home().join(name);
        fs::write(&path, bytes).unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
        path.display().to_string()
    }
}

impl Format {
    fn flag(self) -> String {
        format!("--new-bundle-format={}", self == Self::Bundle)
    }
}

/// The signing configuration of Sigstore names its transparency log, and cosign would fetch it first. Both flags belong
/// together: cosign refuses the first one without the second.
fn without_services() -> [String; 2] {
    [
        "--tlog-upload=false".to_owned(),
        "--use-signing-config=false".to_owned(),
    ]
}

fn strings(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|argument| (*argument).to_owned()).collect()
}
