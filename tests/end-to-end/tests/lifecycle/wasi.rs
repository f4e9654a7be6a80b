//! A component that imports WASI: a Plugin has to grant it the inert set, and a grant can be given and taken away.

mod simulated {
    use serde_json::json;
    use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
    use wit_parser::Resolve;

    use crate::fleet::Fleet;

    const MANIFEST: &str = r#"{"name": "dice", "version": "0.1.0", "controllers":
        [{"name": "dice", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"}}]}"#;

    /// Asks for a random number when it is described, and wants nothing.
    fn dice() -> Vec<u8> {
        let module = format!(
            r#"(module
                (import "wasi:random/random@0.2.3" "get-random-u64" (func $random (result i64)))
                (memory (export "memory") 1)
                (global $heap (mut i32) (i32.const 4096))
                (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
                    (global.set $heap (i32.add (global.get $heap) (i32.and (i32.add (local.get 3) (i32.const 15)) (i32.const -8))))
                    (i32.sub (global.get $heap) (i32.and (i32.add (local.get 3) (i32.const 15)) (i32.const -8))))
                (data (i32.const 100) "\00\00\00\00\c8\00\00\00\{:02x}\00\00\00")
                (data (i32.const 200) "{}")
                (func (export "pilothouse:plugin/manifest@0.1.0#describe") (param i32 i32 i32) (result i32)
                    (drop (call $random)) (i32.const 100))
                (func (export "pilothouse:plugin/reconciler@0.1.0#reconcile")
                    (param i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const 16)))"#,
            MANIFEST.len(),
            MANIFEST.replace('"', "\\22").replace('\n', "\\n"),
        );
        let wit = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../wit/plugin.wit")).unwrap();
        let wasi = "world dice { include plugin; import wasi:random/random@0.2.3; }
            package wasi:random@0.2.3 { interface random { get-random-u64: func() -> u64; } }";
        let mut module = wat::parse_str(module).unwrap();
        let mut resolve = Resolve::default();
        let package = resolve.push_str("plugin.wit", &(wit + wasi)).unwrap();
        let world = resolve.select_world(&[package], Some("dice")).unwrap();
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
        ComponentEncoder::default().module(&module).unwrap().encode().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_is_needed_and_can_be_given_and_taken_away() {
        let fleet = Fleet::start().await;
        fleet.put_bytes("dice.wasm", &dice());
        fleet.plugin("dice", json!({"source": {"file": "dice.wasm"}})).await;
        let compiled = fleet.says("dice", "Compiled", "False", "Refused").await;
        let message = compiled["message"].as_str().unwrap();
        assert!(
            message.contains("wasi:random/random@0.2.3") && message.contains("spec.wasi: Inert"),
            "{message}"
        );

        fleet.change("dice", json!({"wasi": "Inert"})).await;
        fleet.is_ready("dice").await;

        // Neither that it runs nor that its code is compiled stands for a grant.
        fleet.change("dice", json!({"wasi": "None"})).await;
        fleet.says("dice", "Ready", "True", "PreviousVersion").await;
        fleet.says("dice", "Compiled", "False", "Refused").await;

        fleet.change("dice", json!({"wasi": null})).await;
        fleet.says("dice", "Compiled", "False", "Refused").await;
        fleet.change("dice", json!({"wasi": "Inert"})).await;
        fleet.is_ready("dice").await;
        fleet.stage.stop().await;
    }
}
