//! Loads a [`PluginComponent`]: reads it, checks its digest, inspects it, and compiles it unless its code is cached.

use std::fs::File;
use std::io;
use std::io::Read as _;
use std::path::Path;

use crate::compile::cache;
use crate::inspect;
use crate::inspect::{ComponentError, ComponentInterfaces, Inspected};
use crate::load_error::{LoadError, cache_error};
use crate::plugin::PluginComponent;
use crate::sandbox::Sandbox;

/// A component that was read and is not compiled yet.
pub struct UncompiledComponent {
    name: String,
    digest: String,
    bytes: Vec<u8>,
}

impl UncompiledComponent {
    /// Returns its imports and exports, if it is a plugin that this host runs. Its imports of WASI need not be granted.
    pub fn interfaces(&self) -> Result<ComponentInterfaces, LoadError> {
        inspect::interfaces(&self.bytes).map_err(|problem| LoadError::Refused {
            name: self.name.clone(),
            problem,
        })
    }

    /// Returns the bytes of the component.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Sandbox {
    /// Loads a component from a file.
    pub fn load(&self, path: &Path) -> Result<PluginComponent, LoadError> {
        self.load_expecting(path, None)
    }

    /// Loads a component from a file, if it has this digest (SHA-256 in hexadecimal digits).
    pub fn load_expecting(&self, path: &Path, digest: Option<&str>) -> Result<PluginComponent, LoadError> {
        // A component that was compiled before is not read into memory at all.
        match self.load_known(path, digest)? {
            Some(plugin) => Ok(plugin),
            None => self.load_read(&self.read(path, digest)?),
        }
    }

    /// Loads a component from a file if it was compiled before, by its digest; none if it has to be read and compiled.
    pub fn load_known(&self, path: &Path, digest: Option<&str>) -> Result<Option<PluginComponent>, LoadError> {
        let (mut file, name, most) = self.open(path)?;
        // One byte more than allowed, so that a file that grows meanwhile is noticed.
        let (found, length) =
            cache::digest_of(file.by_ref().take(most.saturating_add(1))).map_err(|source| unread(path, source))?;
        if length > most {
            return Err(LoadError::TooLarge { name, most });
        }
        expect(&name, digest, &found)?;
        let Some(code) = self.shared.cache.find(&found) else {
            return Ok(None);
        };
        match self.plugin(&name, found, length, &code) {
            // The host that compiled it knew another draft of the contract; inspecting it gives the right error.
            Err(LoadError::Refused {
                problem: ComponentError::Signature { .. },
                ..
            }) => Ok(None),
            loaded => loaded.map(Some),
        }
    }

    /// Reads a component from a file, if it has this digest.
    pub fn read(&self, path: &Path, digest: Option<&str>) -> Result<UncompiledComponent, LoadError> {
        let (file, name, most) = self.open(path)?;
        let mut bytes = Vec::new();
        file.take(most.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(|source| unread(path, source))?;
        let found = cache::digest(&bytes);
        expect(&name, digest, &found)?;
        Ok(UncompiledComponent {
            name,
            digest: found,
            bytes,
        })
    }

    /// Loads a component that was read.
    pub fn load_read(&self, component: &UncompiledComponent) -> Result<PluginComponent, LoadError> {
        let UncompiledComponent { name, digest, bytes } = component;
        self.load_digested(name, digest.clone(), bytes)
    }

    /// Loads a component from bytes; `name` (a path, an OCI reference) identifies it in messages.
    pub fn load_bytes(&self, name: &str, bytes: &[u8]) -> Result<PluginComponent, LoadError> {
        self.load_digested(name, cache::digest(bytes), bytes)
    }

    fn open(&self, path: &Path) -> Result<(File, String, u64), LoadError> {
        let (name, most) = (path.display().to_string(), self.shared.max_component_bytes);
        let file = File::open(path).map_err(|source| unread(path, source))?;
        if file.metadata().map_err(|source| unread(path, source))?.len() > most {
            return Err(LoadError::TooLarge { name, most });
        }
        Ok((file, name, most))
    }

    fn load_digested(&self, name: &str, digest: String, bytes: &[u8]) -> Result<PluginComponent, LoadError> {
        let most = self.shared.max_component_bytes;
        if bytes.len() as u64 > most {
            return Err(LoadError::TooLarge {
                name: name.to_owned(),
                most,
            });
        }
        let Inspected { version } = inspect::inspect(bytes, self.wasi).map_err(|problem| LoadError::Refused {
            name: name.to_owned(),
            problem,
        })?;
        let code = self.shared.cache.code(&digest, version, bytes, &self.shared.compiler);
        let code = code.map_err(|error| cache_error(name, error))?;
        self.plugin(name, digest, bytes.len() as u64, &code)
    }
}

fn unread(path: &Path, source: io::Error) -> LoadError {
    LoadError::Read {
        path: path.to_owned(),
        source,
    }
}

/// Checks that a component has the expected digest.
fn expect(name: &str, expected: Option<&str>, found: &str) -> Result<(), LoadError> {
    match expected {
        Some(expected) if expected != found => Err(LoadError::Digest {
            name: name.to_owned(),
            expected: expected.to_owned(),
            found: found.to_owned(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[cfg(feature = "compiler")]
mod tests {
    use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
    use wit_parser::Resolve;

    use super::*;
    use crate::compile::Compiler;
    use crate::sandbox::SandboxOptions;

    const MODULE: &str = r#"(module
        (memory (export "memory") 1)
        (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) unreachable)
        (func (export "pilothouse:plugin/manifest@0.1.0#describe") (param i32 i32 i32) (result i32) unreachable)
        (func (export "pilothouse:plugin/reconciler@0.1.0#reconcile") (param i32 i32 i32 i32 i32 i32 i32) (result i32)
            unreachable))"#;

    fn draft() -> Vec<u8> {
        let mut module = wat::parse_str(MODULE).unwrap();
        let mut resolve = Resolve::default();
        let document = include_str!("../tests/drafts/plugin.wit");
        let package = resolve.push_str("plugin.wit", document).unwrap();
        let world = resolve.select_world(&[package], Some("plugin")).unwrap();
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
        ComponentEncoder::default().module(&module).unwrap().encode().unwrap()
    }

    /// An earlier build of the host, which knew the draft, has left its code in the directory.
    #[test]
    fn a_draft_whose_code_is_in_the_cache_is_refused_as_a_draft() {
        let directory = tempfile::tempdir().unwrap();
        let cache = directory.path().join("cache");
        let sandbox = Sandbox::new(SandboxOptions::new(&cache, Compiler::InProcess)).unwrap();
        let (path, bytes) = (directory.path().join("shop.wasm"), draft());
        std::fs::write(&path, &bytes).unwrap();
        let digest = cache::digest(&bytes);
        let code = sandbox
            .shared
            .cache
            .code(&digest, "0.1.0", &bytes, &Compiler::InProcess);
        assert!(code.is_ok(), "{:?}", code.err());
        let refused = [sandbox.load(&path), sandbox.load_bytes("shop.wasm", &bytes)];
        for error in refused.map(Result::unwrap_err) {
            let problem = ComponentError::Draft { version: "0.1.0" };
            assert!(
                matches!(&error, LoadError::Refused { problem: found, .. } if *found == problem),
                "{error}"
            );
        }
    }
}
