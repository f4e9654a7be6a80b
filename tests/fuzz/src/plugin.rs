//! Smallest plugin: a component of the contract's world whose functions only trap.

use wit_component::{ComponentEncoder, StringEncoding, dummy_module, embed_component_metadata};
use wit_parser::{LiftLowerAbi, ManglingAndAbi, Resolve};

const WIT: &str = include_str!("../../../wit/plugin.wit");

/// Its component.
pub fn smallest() -> Vec<u8> {
    let mut resolve = Resolve::default();
    let package = resolve.push_str("plugin.wit", WIT).expect("the contract parses");
    let world = resolve
        .select_world(&[package], Some("plugin"))
        .expect("it has the world");
    let mut module = dummy_module(&resolve, world, ManglingAndAbi::Legacy(LiftLowerAbi::Sync));
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).expect("the world is encoded");
    ComponentEncoder::default()
        .module(&module)
        .and_then(|encoder| encoder.validate(true).encode())
        .expect("the module is a component")
}
