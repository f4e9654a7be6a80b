//! Inspects a component without compiling it: checks that it is one, lists its imports and exports, and finds the
//! version of the contract that it speaks. The types of its functions are checked by wasmtime.

use std::collections::BTreeSet;

use pilothouse_core::plugin::contract::{PACKAGE, VERSIONS};
use pilothouse_core::plugin::wasi;
use pilothouse_core::plugin::wasi::Wasi;
use wasmparser::{
    ComponentDefinedType, ComponentType, ComponentTypeDeclaration, Encoding, InstanceTypeDeclaration, Parser, Payload,
};

use crate::engine::MAX_MEMORY_BYTES;
use crate::outcome::shorten;
use crate::v0_1;

/// Names in one message.
const MAX_NAMES: usize = 12;

/// Bytes of one name in a message.
const MAX_NAME: usize = 128;

/// The fields of the record `request` in the drafts of version 0.1.0; the settled one has `configuration`.
const DRAFT_REQUEST: [&str; 4] = ["object", "config", "attempt", "extensions"];

/// Unit in which linear memory grows unless the module says otherwise.
const DEFAULT_PAGE_BYTES: u64 = 65_536;

/// Reasons why a file is not a plugin that this host runs. Each message says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ComponentError {
    /// No bytes.
    #[error("the file is empty; build the plugin again")]
    Empty,
    /// Not WebAssembly.
    #[error("this is not WebAssembly: it starts with {start}; give the path of a component, a .wasm file")]
    NotWasm {
        /// Its first bytes.
        start: String,
    },
    /// A core module.
    #[error(
        "this is a core module, not a component; encode it with wit-component, as `cargo xtask plugins` and \
         `wasm-tools component new` do"
    )]
    CoreModule,
    /// Cut short or damaged.
    #[error("the component is damaged: {message}; fetch or build it again")]
    Damaged {
        /// The parser's message.
        message: String,
    },
    /// The component imports more than the contract's interfaces.
    #[error(
        "the component imports {}, and a plugin may import only the interfaces of {PACKAGE} and, if it is granted them, those of \
         WASI 0.2; remove what needs these imports, and build it again",
        .names.join(", ")
    )]
    ForbiddenImports {
        /// The imports.
        names: Vec<String>,
    },
    /// The component imports interfaces of WASI, and none are granted.
    #[error(
        "the component imports {}{}, and this plugin is granted nothing of WASI; build it without WASI (Rust: for \
         wasm32-unknown-unknown), or replace the imports by stubs (--stub-wasi of componentize-py and componentize-qjs), or grant \
         the inert set, which links them and gives access to nothing: spec.wasi: Inert in the Plugin, --wasi inert on the command line",
        .names.join(", "),
        in_brackets(.purposes)
    )]
    UngrantedWasi {
        /// The imports.
        names: Vec<String>,
        /// Purposes of these imports, in words.
        purposes: Vec<&'static str>,
    },
    /// The component was built against a contract that this host does not know.
    #[error(
        "the component speaks version {found} of {PACKAGE} (it has {name}), and this host knows {}; build the plugin with \
         a matching SDK, or update the host",
        VERSIONS.join(", ")
    )]
    UnknownVersion {
        /// The import or export that names the version.
        name: String,
        /// Its version.
        found: String,
    },
    /// The component was built before the version that it names was settled.
    #[error(
        "the component was built against a draft of {PACKAGE}@{version}, which differs from the {version} that this host \
         knows; rebuild it with the current SDK"
    )]
    Draft {
        /// The version that it names.
        version: &'static str,
    },
    /// The component lacks an export that every plugin must have.
    #[error("the component does not export {}; every plugin exports the manifest and the reconciler of {PACKAGE}", .names.join(" and "))]
    MissingExports {
        /// The missing exports.
        names: Vec<String>,
    },
    /// The component starts with more memory than any limit allows.
    #[error(
        "the component starts with {bytes} bytes of memory, and no plugin can have more than {MAX_MEMORY_BYTES}; link it with less"
    )]
    MemoryTooLarge {
        /// Bytes that it starts with.
        bytes: u64,
    },
    /// A function of the contract has the wrong type.
    #[error("the component does not fit the contract: {message}; build it against the contract's WIT files")]
    Signature {
        /// Wasmtime's message.
        message: String,
    },
}

/// Findings about a component that may be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inspected {
    /// The contract's version, one of [`VERSIONS`].
    pub(crate) version: &'static str,
}

/// Names of a plugin component's imports and exports, in alphabetical order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentInterfaces {
    /// The imports, such as `pilothouse:plugin/log@0.1.0`.
    pub imports: Vec<String>,
    /// The exports.
    pub exports: Vec<String>,
}

impl ComponentInterfaces {
    /// Returns the imports that belong to WASI.
    pub fn wasi_imports(&self) -> impl Iterator<Item = &str> {
        self.imports
            .iter()
            .map(String::as_str)
            .filter(|name| wasi::is_wasi(name))
    }
}

/// Inspects a component's sections. Its imports of WASI must be granted.
pub(crate) fn inspect(bytes: &[u8], granted: Wasi) -> Result<Inspected, ComponentError> {
    let (found, version) = checked(bytes)?;
    check_wasi(found.imports.iter().filter(|name| wasi::is_wasi(name)), granted)?;
    Ok(Inspected { version })
}

/// Checks that a component's imports of WASI are granted.
pub(crate) fn check_wasi<'a>(
    imports: impl IntoIterator<Item = &'a String>,
    granted: Wasi,
) -> Result<(), ComponentError> {
    let names: Vec<_> = imports.into_iter().cloned().collect();
    match granted {
        Wasi::None if !names.is_empty() => Err(ComponentError::UngrantedWasi {
            purposes: wasi::purposes(names.iter().map(String::as_str)),
            names: some_of(&names),
        }),
        Wasi::None | Wasi::Inert => Ok(()),
    }
}

fn in_brackets(purposes: &[&str]) -> String {
    if purposes.is_empty() {
        return String::new();
    }
    format!(" (for {})", purposes.join(", "))
}

/// Returns the interfaces of a component that may be compiled.
pub(crate) fn interfaces(bytes: &[u8]) -> Result<ComponentInterfaces, ComponentError> {
    let (FoundInterfaces { imports, exports, .. }, _) = checked(bytes)?;
    Ok(ComponentInterfaces {
        imports: imports.into_iter().collect(),
        exports: exports.into_iter().collect(),
    })
}

fn checked(bytes: &[u8]) -> Result<(FoundInterfaces, &'static str), ComponentError> {
    if bytes.is_empty() {
        return Err(ComponentError::Empty);
    }
    if !bytes.starts_with(b"\0asm") {
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(16)]).into_owned();
        return Err(ComponentError::NotWasm {
            start: format!("{start:?}"),
        });
    }
    let found = sections(bytes)?;
    let version = contract_version(&found)?;
    let forbidden: Vec<_> = found
        .imports
        .iter()
        .filter(|name| !may_import(name, version))
        .cloned()
        .collect();
    if !forbidden.is_empty() {
        return Err(ComponentError::ForbiddenImports {
            names: some_of(&forbidden),
        });
    }
    let missing: Vec<_> = v0_1::EXPORTS
        .iter()
        .map(|interface| format!("{PACKAGE}/{interface}@{version}"))
        .filter(|name| !found.exports.contains(name))
        .collect();
    if !missing.is_empty() {
        return Err(ComponentError::MissingExports { names: missing });
    }
    if found.has_draft_types {
        return Err(ComponentError::Draft { version });
    }
    if found.memory_bytes > MAX_MEMORY_BYTES {
        return Err(ComponentError::MemoryTooLarge {
            bytes: found.memory_bytes,
        });
    }
    Ok((found, version))
}

#[derive(Default)]
struct FoundInterfaces {
    imports: BTreeSet<String>,
    exports: BTreeSet<String>,
    /// Set if a record has a form that only drafts of the contract had.
    has_draft_types: bool,
    /// The largest memory that one of the core modules starts with.
    memory_bytes: u64,
}

fn sections(bytes: &[u8]) -> Result<FoundInterfaces, ComponentError> {
    let mut found = FoundInterfaces::default();
    // Depth of nested modules and components; only the outermost one's imports and exports are the plugin's.
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(|error| damaged(&error))? {
            Payload::Version {
                encoding: Encoding::Module,
                ..
            } if depth == 0 => return Err(ComponentError::CoreModule),
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(imports) if depth == 0 => {
                for import in imports {
                    found
                        .imports
                        .insert(import.map_err(|error| damaged(&error))?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(exports) if depth == 0 => {
                for export in exports {
                    found
                        .exports
                        .insert(export.map_err(|error| damaged(&error))?.name.name.to_owned());
                }
            }
            Payload::ComponentTypeSection(types) if depth == 0 => {
                for ty in types {
                    found.has_draft_types |= has_draft_types(&ty.map_err(|error| damaged(&error))?);
                }
            }
            Payload::MemorySection(memories) => {
                for memory in memories {
                    let memory = memory.map_err(|error| damaged(&error))?;
                    let page = memory
                        .page_size_log2
                        .map_or(DEFAULT_PAGE_BYTES, |log2| 1_u64.checked_shl(log2).unwrap_or(u64::MAX));
                    found.memory_bytes = found.memory_bytes.max(memory.initial.saturating_mul(page));
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Reports whether a type, or one that it declares, is the `request` of the drafts of 0.1.0, which every plugin uses.
fn has_draft_types(ty: &ComponentType<'_>) -> bool {
    match ty {
        ComponentType::Defined(ComponentDefinedType::Record(fields)) => {
            fields.iter().map(|(name, _)| *name).eq(DRAFT_REQUEST)
        }
        ComponentType::Component(declarations) => declarations.iter().any(|declaration| match declaration {
            ComponentTypeDeclaration::Type(ty) => has_draft_types(ty),
            _ => false,
        }),
        ComponentType::Instance(declarations) => declarations.iter().any(|declaration| match declaration {
            InstanceTypeDeclaration::Type(ty) => has_draft_types(ty),
            _ => false,
        }),
        _ => false,
    }
}

fn damaged(error: &wasmparser::BinaryReaderError) -> ComponentError {
    ComponentError::Damaged {
        message: shorten(&error.to_string(), 256),
    }
}

/// Returns the version that all of the contract's interfaces in the component have in common.
fn contract_version(found: &FoundInterfaces) -> Result<&'static str, ComponentError> {
    let mut versions = BTreeSet::new();
    for name in found.imports.union(&found.exports) {
        let Some((_, version)) = interface(name) else { continue };
        match VERSIONS.iter().find(|known| **known == version) {
            Some(known) => versions.insert(*known),
            None => {
                return Err(ComponentError::UnknownVersion {
                    name: shorten(name, MAX_NAME),
                    found: shorten(version, MAX_NAME),
                });
            }
        };
    }
    // A component without any interface of the contract gets an error below about the newest version.
    let newest = VERSIONS.last().expect("the host knows a version of the contract");
    Ok(versions.into_iter().next().unwrap_or(newest))
}

/// Returns interface and version of a name of the contract, such as `pilothouse:plugin/log@0.1.0`.
fn interface(name: &str) -> Option<(&str, &str)> {
    let interface = name.strip_prefix(PACKAGE)?.strip_prefix('/')?;
    Some(interface.split_once('@').unwrap_or((interface, "none")))
}

fn may_import(name: &str, version: &str) -> bool {
    interface(name).is_some_and(|(interface, found)| found == version && v0_1::IMPORTS.contains(&interface))
        || wasi::interface(name).is_some()
}

fn some_of(names: &[String]) -> Vec<String> {
    let left_off = names.len().saturating_sub(MAX_NAMES);
    let mut some: Vec<_> = names
        .iter()
        .take(MAX_NAMES)
        .map(|name| shorten(name, MAX_NAME))
        .collect();
    if left_off > 0 {
        some.push(format!("and {left_off} more"));
    }
    some
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_that_the_host_knows_has_an_adapter() {
        assert_eq!(VERSIONS, [v0_1::VERSION]);
    }

    #[test]
    fn names_of_other_packages_are_not_the_contracts() {
        assert_eq!(interface("pilothouse:plugin/log@0.1.0"), Some(("log", "0.1.0")));
        assert_eq!(interface("pilothouse:plugin/log"), Some(("log", "none")));
        assert_eq!(interface("pilothouse:plugins/log@0.1.0"), None);
        assert_eq!(interface("wasi:cli/run@0.2.0"), None);
    }
}
