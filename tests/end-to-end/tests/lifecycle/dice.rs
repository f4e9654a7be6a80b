//! A component that imports an interface of WASI, written by hand. Another crate's tests include this file.
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

const MANIFEST: &str = r#"{"name": "dice", "version": "0.1.0", "controllers":
    [{"name": "dice", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"}}]}"#;

/// Asks for a random number when it is described, and wants nothing.
pub fn component() -> Vec<u8> {
    component_saying(MANIFEST)
}

/// The same with another manifest, of at most 3 KiB.
pub fn component_saying(manifest: &str) -> Vec<u8> {
    let escaped = |byte: &u8| format!("\\{byte:02x}");
    let bytes = |bytes: &[u8]| bytes.iter().map(escaped).collect::<Vec<_>>().concat();
    let module = format!(
        r#"(module
            (import "wasi:random/random@0.2.3" "get-random-u64" (func $random (result i64)))
            (memory (export "memory") 1)
            (global $heap (mut i32) (i32.const 4096))
            (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
                (global.set $heap (i32.add (global.get $heap) (i32.and (i32.add (local.get 3) (i32.const 15)) (i32.const -8))))
                (i32.sub (global.get $heap) (i32.and (i32.add (local.get 3) (i32.const 15)) (i32.const -8))))
            (data (i32.const 100) "\00\00\00\00\c8\00\00\00{}")
            (data (i32.const 200) "{}")
            (func (export "pilothouse:plugin/manifest@0.1.0#describe") (param i32 i32 i32) (result i32)
                (drop (call $random)) (i32.const 100))
            (func (export "pilothouse:plugin/reconciler@0.1.0#reconcile")
                (param i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const 16)))"#,
        bytes(&u32::try_from(manifest.len()).unwrap().to_le_bytes()),
        bytes(manifest.as_bytes()),
    );
    let wit = include_str!("../../../../wit/plugin.wit");
    let wasi = "world dice { include plugin; import wasi:random/random@0.2.3; }
        package wasi:random@0.2.3 { interface random { get-random-u64: func() -> u64; } }";
    let mut module = wat::parse_str(module).unwrap();
    let mut resolve = Resolve::default();
    let package = resolve.push_str("plugin.wit", &format!("{wit}{wasi}")).unwrap();
    let world = resolve.select_world(&[package], Some("dice")).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().module(&module).unwrap().encode().unwrap()
}
