//! Owns making a component of a core module, and checking that it can do nothing but what a plugin may.

use anyhow::{Context, Result, bail, ensure};
use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, DecodedWasm};
use wit_parser::{Resolve, WorldId, WorldItem, WorldKey};

/// The only package that a plugin imports from and exports to.
const CONTRACT: (&str, &str) = ("pilothouse", "plugin");

/// What every plugin exports.
const REQUIRED_EXPORTS: [&str; 2] = ["manifest", "reconciler"];

/// The memory that a module begins with, in pages of 64 KiB, when the link arguments have reached it.
const INITIAL_PAGES: u64 = 32;

/// Wraps a module, checks the component, and gives its bytes.
pub(super) fn wrap(module: &[u8]) -> Result<Vec<u8>> {
    check_memory(module)?;
    let component = ComponentEncoder::default()
        .module(module)
        .context("reading the contract from the module; has its crate an `export!`?")?
        .validate(true)
        .encode()
        .context("making a component of the module")?;
    match wit_component::decode(&component).context("reading the component back")? {
        DecodedWasm::Component(resolve, world) => check_world(&resolve, world)?,
        DecodedWasm::WitPackage(..) => bail!("the component is a WIT package; its crate exports no plugin"),
    }
    Ok(component)
}

/// A module that was linked without our arguments works, at half the speed on several cores: nobody would notice.
fn check_memory(module: &[u8]) -> Result<()> {
    for payload in Parser::new(0).parse_all(module) {
        if let Payload::MemorySection(memories) = payload.context("reading the module")? {
            for memory in memories {
                let initial = memory.context("reading the module's memory")?.initial;
                ensure!(
                    initial >= INITIAL_PAGES,
                    "the module begins with {initial} pages of memory in place of {INITIAL_PAGES}: the rustflags of \
                     .cargo/config.toml did not reach the linker; is another configuration in front of it?"
                );
            }
        }
    }
    Ok(())
}

fn check_world(resolve: &Resolve, world: WorldId) -> Result<()> {
    let world = &resolve.worlds[world];
    for (key, item) in &world.imports {
        interface_of_contract(resolve, key, item).context("a plugin may import nothing else")?;
    }
    let mut exports = Vec::new();
    for (key, item) in &world.exports {
        exports.push(interface_of_contract(resolve, key, item).context("a plugin may export nothing else")?);
    }
    for required in REQUIRED_EXPORTS {
        ensure!(
            exports.iter().any(|export| export == required),
            "the component does not export {required}"
        );
    }
    Ok(())
}

/// The name of an interface of the contract; an error for anything else.
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
