//! Makes a component of a core module, and checks that it has only the imports and exports of a plugin.

use anyhow::{Context as _, Result, bail, ensure};
use wasmparser::{Encoding, Parser, Payload};
use wit_component::{ComponentEncoder, DecodedWasm};
use wit_parser::{Resolve, WorldId, WorldItem, WorldKey};

/// The only package that a plugin exports to, and the only one that a plugin in Rust imports from.
const CONTRACT: (&str, &str) = ("pilothouse", "plugin");

/// The namespace of the interfaces that other toolchains import for their runtime.
const WASI: &str = "wasi";

/// Interfaces that every plugin exports.
const REQUIRED_EXPORTS: [&str; 2] = ["manifest", "reconciler"];

/// The memory that a module begins with, in pages of 64 KiB, when the link arguments have reached it.
const INITIAL_PAGES: u64 = 32;

/// Error message for a component without a plugin's exports.
const NO_EXPORT: &str =
    "it exports no plugin; in Rust, add `pilothouse_plugin::export!(YourPlugin);` at the root of the crate";

/// A component of another toolchain, perhaps made of its module.
#[derive(Debug)]
pub struct ForeignComponent {
    /// The component.
    pub bytes: Vec<u8>,
    /// Set if it was a module, which is now wrapped.
    pub was_module: bool,
    /// The interfaces of WASI that it imports.
    pub wasi: Vec<String>,
}

/// Wraps a module that our flags have made, checks the component, and returns its bytes.
pub fn wrap(module: &[u8]) -> Result<Vec<u8>> {
    check_memory(module)?;
    let component = encode(module)?;
    let wasi = check(&component)?;
    ensure!(
        wasi.is_empty(),
        "the component imports {}, and a plugin in Rust may import nothing but the contract; which dependency asks for it?",
        wasi.join(", ")
    );
    Ok(component)
}

/// Wraps a module of another toolchain, or accepts its component unchanged, and checks it.
pub fn wrap_foreign(bytes: Vec<u8>) -> Result<ForeignComponent> {
    let was_module = !is_component(&bytes)?;
    let bytes = if was_module { encode(&bytes)? } else { bytes };
    let wasi = check(&bytes)?;
    Ok(ForeignComponent {
        bytes,
        was_module,
        wasi,
    })
}

fn is_component(bytes: &[u8]) -> Result<bool> {
    match Parser::new(0).parse_all(bytes).next() {
        Some(Ok(Payload::Version { encoding, .. })) => Ok(encoding == Encoding::Component),
        _ => bail!("it is no WebAssembly; give the module or the component that the toolchain has made"),
    }
}

fn encode(module: &[u8]) -> Result<Vec<u8>> {
    ComponentEncoder::default()
        .module(module)
        .context("the module does not say what it imports and exports: has it been made with bindings for the contract?")?
        .validate(true)
        .encode()
        .context(
            "no component can be made of the module; a module for WASI needs its toolchain's own way to make a component",
        )
}

/// Checks the initial memory of a module: if it was linked without our arguments it works, at half the speed on several
/// cores, which nobody would notice.
fn check_memory(module: &[u8]) -> Result<()> {
    for payload in Parser::new(0).parse_all(module) {
        if let Payload::MemorySection(memories) = payload.context("reading the module")? {
            for memory in memories {
                let initial = memory.context("reading the module's memory")?.initial;
                ensure!(
                    initial >= INITIAL_PAGES,
                    "the module begins with {initial} pages of memory in place of {INITIAL_PAGES}: the link arguments did \
                     not reach the linker; does a .cargo/config.toml or a build script set other ones?"
                );
            }
        }
    }
    Ok(())
}

/// Checks the imports and exports of a component, and returns the interfaces of WASI among its imports.
fn check(component: &[u8]) -> Result<Vec<String>> {
    match wit_component::decode(component).context("reading the component back")? {
        DecodedWasm::Component(resolve, world) => check_world(&resolve, world),
        DecodedWasm::WitPackage(..) => bail!("it is a WIT package and no component: {NO_EXPORT}"),
    }
}

fn check_world(resolve: &Resolve, world: WorldId) -> Result<Vec<String>> {
    let world = &resolve.worlds[world];
    let (mut wasi, mut foreign) = (Vec::new(), Vec::new());
    for (key, item) in &world.imports {
        if is_of_wasi(resolve, item) {
            wasi.push(resolve.name_world_key(key));
        } else if interface_of_contract(resolve, key, item).is_err() {
            foreign.push(resolve.name_world_key(key));
        }
    }
    ensure!(
        foreign.is_empty(),
        "the component imports {}, and a plugin may import only the interfaces of {}:{} and, if it is granted them, those of \
         WASI 0.2; remove what needs these imports, and build it again",
        foreign.join(", "),
        CONTRACT.0,
        CONTRACT.1
    );
    let mut exports = Vec::new();
    for (key, item) in &world.exports {
        // Toolchains add exports for their own needs; hosts call the contract's interfaces alone.
        exports.extend(interface_of_contract(resolve, key, item).ok());
    }
    ensure!(!exports.is_empty(), NO_EXPORT);
    for required in REQUIRED_EXPORTS {
        ensure!(
            exports.iter().any(|export| export == required),
            "the component does not export {required}"
        );
    }
    Ok(wasi)
}

fn is_of_wasi(resolve: &Resolve, item: &WorldItem) -> bool {
    let WorldItem::Interface { id, .. } = item else {
        return false;
    };
    let package = resolve.interfaces[*id].package;
    package.is_some_and(|package| resolve.packages[package].name.namespace == WASI)
}

/// Returns the name of an interface of the contract; an error for any other.
fn interface_of_contract(resolve: &Resolve, key: &WorldKey, item: &WorldItem) -> Result<String> {
    let name = resolve.name_world_key(key);
    let WorldItem::Interface { id, .. } = item else {
        bail!("{name} is not an interface");
    };
    let interface = &resolve.interfaces[*id];
    let package = interface.package.map(|package| &resolve.packages[package].name);
    match (package, &interface.name) {
        (Some(package), Some(interface)) if (package.namespace.as_str(), package.name.as_str()) == CONTRACT => {
            Ok(interface.clone())
        }
        _ => bail!("{name} is not of the package {}:{}", CONTRACT.0, CONTRACT.1),
    }
}
