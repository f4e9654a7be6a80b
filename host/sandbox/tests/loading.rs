//! Files that are no plugin of this host are refused, with a message that names the file, the reason and the next step.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::fs::{self, File};
use std::path::Path;

use pilothouse_core::Limits;
use pilothouse_core::plugin::contract::VERSIONS;
use pilothouse_sandbox::{Compiler, ComponentError, LoadError, Optional, Sandbox, SandboxOptions};
use support::{Recorder, component, component_of, module, request, sandbox, wit, with_functions};

/// The error of loading some bytes, and its message.
fn refused(bytes: &[u8]) -> (LoadError, String) {
    let error = sandbox().load_bytes("shop.wasm", bytes).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("shop.wasm"), "the file is not named: {message}");
    (error, message)
}

fn problem(bytes: &[u8]) -> (ComponentError, String) {
    match refused(bytes) {
        (LoadError::Refused { problem, .. }, message) => (problem, message),
        (error, _) => panic!("{error}"),
    }
}

fn valid() -> Vec<u8> {
    component(&module("", "(i32.const 16)"))
}

#[test]
fn a_plugin_says_what_it_is() {
    let sandbox = sandbox();
    let bytes = valid();
    let path = sandbox.directory.path().join("shop.wasm");
    fs::write(&path, &bytes).unwrap();
    let plugin = sandbox.load(&path).unwrap();
    assert_eq!(plugin.name(), path.to_str().unwrap());
    assert_eq!(plugin.digest().len(), 64);
    assert_eq!(plugin.contract_version(), VERSIONS[0]);
    assert_eq!(plugin.optional(), Optional::default());
    assert_eq!(plugin.component_bytes(), bytes.len() as u64);
    assert!(plugin.code_bytes() > 1000);
}

#[test]
fn optional_interfaces_are_found() {
    let document = fs::read_to_string(wit()).unwrap();
    let finalize = r#"(func (export "pilothouse:plugin/finalizer@0.1.0#finalize")
        (param i32 i32 i32 i32 i32 i32 i32) (result i32) unreachable)"#;
    let text = with_functions(&module("", "(i32.const 16)"), finalize);
    let sandbox = sandbox();
    let plugin = sandbox
        .load_bytes("x", &component_of(&text, &document, "plugin-with-finalizer"))
        .unwrap();
    assert_eq!(
        plugin.optional(),
        Optional {
            finalizer: true,
            ..Optional::default()
        }
    );
    assert_eq!(plugin.describe(None, &Limits::default()).unwrap(), "{}");
}

#[test]
fn an_empty_file_is_refused() {
    assert_eq!(problem(b"").0, ComponentError::Empty);
}

#[test]
fn text_is_refused_with_its_first_words() {
    let (_, message) = problem(b"(component)");
    assert!(message.contains(r#"starts with "(component)""#), "{message}");
}

#[test]
fn a_truncated_component_is_refused() {
    let bytes = valid();
    for length in [5, 8, 9, bytes.len() / 2, bytes.len() - 1] {
        let (error, message) = refused(&bytes[..length]);
        assert!(
            matches!(
                error,
                LoadError::Refused {
                    problem: ComponentError::Damaged { .. } | ComponentError::MissingExports { .. },
                    ..
                } | LoadError::Compile { .. }
            ),
            "{length}: {message}"
        );
    }
}

#[test]
fn an_invalid_module_is_refused_in_the_compilers_words() {
    let mut bytes = valid();
    // `i32.const 16` of reconcile becomes `i64.const 16`, so its type is wrong.
    let at = bytes
        .windows(4)
        .position(|window| window == [0x41, 0x10, 0x0b, 0x0b])
        .or_else(|| bytes.windows(3).position(|window| window == [0x41, 0x10, 0x0b]));
    bytes[at.unwrap()] = 0x42;
    let (error, message) = refused(&bytes);
    assert!(matches!(error, LoadError::Compile { .. }), "{message}");
    assert!(message.contains("type mismatch"), "{message}");
}

#[test]
fn a_core_module_is_refused_with_a_way_to_encode_it() {
    let (problem, message) = problem(&wat::parse_str(module("", "(i32.const 16)")).unwrap());
    assert_eq!(problem, ComponentError::CoreModule);
    assert!(message.contains("cargo xtask plugins"), "{message}");
}

#[test]
fn what_a_component_imports_beyond_the_contract_is_named() {
    let bytes = wat::parse_str(
        r#"(component
            (import "wasi:cli/environment@0.3.0" (instance))
            (import "env:other/types@0.2.0" (instance))
            (import "pilothouse:plugin/manifest@0.1.0" (instance))
        )"#,
    );
    let (problem, message) = problem(&bytes.unwrap());
    let names = [
        "env:other/types@0.2.0",
        "pilothouse:plugin/manifest@0.1.0",
        "wasi:cli/environment@0.3.0",
    ];
    assert_eq!(
        problem,
        ComponentError::ForbiddenImports {
            names: names.map(str::to_owned).to_vec()
        }
    );
    assert!(message.contains("wasi:cli/environment@0.3.0"), "{message}");
}

#[test]
fn a_flood_of_imports_makes_a_short_message() {
    let imports: Vec<_> = (0..5000)
        .map(|number| format!("(import \"a{number}:{}/c\" (instance))", "b".repeat(1000)))
        .collect();
    let (_, message) = problem(&wat::parse_str(format!("(component {})", imports.concat())).unwrap());
    assert!(message.len() < 4096 && message.contains("and 4988 more"), "{message}");
}

#[test]
fn what_a_component_does_not_export_is_named() {
    let (problem, message) = problem(&wat::parse_str("(component)").unwrap());
    let names = ["pilothouse:plugin/manifest@0.1.0", "pilothouse:plugin/reconciler@0.1.0"];
    assert_eq!(
        problem,
        ComponentError::MissingExports {
            names: names.map(str::to_owned).to_vec()
        }
    );
    assert!(
        message.contains("does not export pilothouse:plugin/manifest@0.1.0 and"),
        "{message}"
    );
}

#[test]
fn a_component_without_a_reconciler_is_told_so() {
    let document = fs::read_to_string(wit()).unwrap() + "\nworld describes { export manifest; }";
    let (problem, _) = problem(&component_of(&module("", "(i32.const 16)"), &document, "describes"));
    assert_eq!(
        problem,
        ComponentError::MissingExports {
            names: vec!["pilothouse:plugin/reconciler@0.1.0".to_owned()]
        }
    );
}

#[test]
fn an_unknown_version_is_refused_by_name() {
    let document = fs::read_to_string(wit())
        .unwrap()
        .replace("pilothouse:plugin@0.1.0", "pilothouse:plugin@0.9.0");
    let text = module("", "(i32.const 16)").replace("@0.1.0", "@0.9.0");
    let (problem, message) = problem(&component_of(&text, &document, "plugin"));
    assert!(matches!(problem, ComponentError::UnknownVersion { found, .. } if found == "0.9.0"));
    assert!(
        message.contains("version 0.9.0") && message.contains("knows 0.1.0"),
        "{message}"
    );
}

#[test]
fn the_right_name_with_another_type_is_refused() {
    let document = fs::read_to_string(wit())
        .unwrap()
        .replace("attempt: u32", "attempt: u64");
    let text = module("", "(i32.const 16)").replace("$attempt i32", "$attempt i64");
    let (problem, message) = problem(&component_of(&text, &document, "plugin"));
    assert!(matches!(problem, ComponentError::Signature { .. }), "{message}");
    assert!(message.contains("reconcile"), "{message}");
}

#[test]
fn a_component_of_a_draft_contract_is_refused_with_next_step() {
    let draft = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/drafts/plugin.wit");
    let draft = fs::read_to_string(draft).unwrap();
    let reading = r#"(import "pilothouse:plugin/cluster@0.1.0" "get"
        (func $get (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))"#;
    for imports in ["", reading] {
        let component = component_of(&module(imports, "(i32.const 16)"), &draft, "plugin");
        let (problem, message) = problem(&component);
        assert!(
            matches!(problem, ComponentError::Draft { version: "0.1.0" }),
            "{message}"
        );
        assert!(message.contains("shop.wasm"), "{message}");
        let told = "was built against a draft of pilothouse:plugin@0.1.0, which differs from the 0.1.0 that this \
                    host knows; rebuild it with the current SDK";
        assert!(message.contains(told), "{message}");
    }
}

#[test]
fn an_import_of_the_right_name_with_another_type_is_refused() {
    let document = fs::read_to_string(wit())
        .unwrap()
        .replace("reached: func(moment: u64)", "reached: func(moment: u32)");
    let import = r#"(import "pilothouse:plugin/clock@0.1.0" "reached" (func $reached (param i32) (result i32)))"#;
    let (problem, message) = problem(&component_of(
        &module(import, "(drop (call $reached (i32.const 1))) (i32.const 16)"),
        &document,
        "plugin",
    ));
    assert!(matches!(problem, ComponentError::Signature { .. }), "{message}");
    assert!(message.contains("clock"), "{message}");
}

#[test]
fn a_missing_file_is_named() {
    let error = sandbox().load(Path::new("/nowhere/shop.wasm")).unwrap_err();
    assert!(matches!(error, LoadError::Read { .. }));
    assert!(error.to_string().contains("/nowhere/shop.wasm"), "{error}");
}

#[test]
fn a_directory_is_not_a_component() {
    let sandbox = sandbox();
    let error = sandbox.load(sandbox.directory.path()).unwrap_err();
    assert!(matches!(error, LoadError::Read { .. }), "{error}");
}

#[test]
fn a_component_of_100_mib_is_refused_without_reading_it() {
    let sandbox = sandbox();
    let path = sandbox.directory.path().join("huge.wasm");
    File::create(&path).unwrap().set_len(100 * 1024 * 1024).unwrap();
    let error = sandbox.load(&path).unwrap_err();
    assert!(matches!(error, LoadError::TooLarge { .. }), "{error}");
    assert!(error.to_string().contains("67108864"), "{error}");
}

#[test]
fn the_limit_on_a_components_size_can_be_set() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = valid();
    let mut options = SandboxOptions::new(directory.path(), Compiler::InProcess);
    options.max_component_bytes = bytes.len() as u64;
    let mut longer = bytes.clone();
    longer.push(0);
    let sandbox = Sandbox::new(options).unwrap();
    assert!(sandbox.load_bytes("x", &bytes).is_ok());
    assert!(matches!(
        sandbox.load_bytes("x", &longer),
        Err(LoadError::TooLarge { .. })
    ));
}

#[test]
fn more_memory_than_any_limit_allows_is_refused() {
    let text =
        module("", "(i32.const 16)").replace("(memory (export \"memory\") 2)", "(memory (export \"memory\") 1025)");
    assert_eq!(
        problem(&component(&text)).0,
        ComponentError::MemoryTooLarge { bytes: 1025 * 65_536 }
    );
}

#[test]
fn more_memory_than_this_plugins_limit_fails_its_calls() {
    let text =
        module("", "(i32.const 16)").replace("(memory (export \"memory\") 2)", "(memory (export \"memory\") 1024)");
    let sandbox = sandbox();
    let plugin = sandbox.guest(&text);
    let failure = plugin
        .reconcile(&request("{}"), &Limits::default(), Recorder::default())
        .result
        .unwrap_err();
    assert!(failure.message.contains("limit memoryBytes is 33554432"), "{failure}");
    let limits = Limits {
        memory_bytes: 64 * 1024 * 1024,
        ..Limits::default()
    };
    plugin
        .reconcile(&request("{}"), &limits, Recorder::default())
        .result
        .unwrap();
}

#[test]
fn more_tables_than_the_pool_has_are_refused_at_load() {
    let tables = "(table 1 funcref)".repeat(20);
    let (_, message) = refused(&component(&module(&tables, "(i32.const 16)")));
    assert!(message.contains("tables"), "{message}");
}

#[test]
fn no_damage_to_a_component_harms_the_host() {
    let sandbox = sandbox();
    let bytes = component(&module(
        support::LOG,
        "(call $log (i32.const 1) (i32.const 2064) (i32.const 2) (i32.const 0) (i32.const 0)) (i32.const 16)",
    ));
    let limits = Limits {
        call_milliseconds: 10,
        ..Limits::default()
    };
    let (mut loaded, mut refused) = (0, 0);
    for at in (8..bytes.len()).step_by(11) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        match sandbox.load_bytes("damaged.wasm", &damaged) {
            // What still is a plugin is as harmless as any other, whatever it answers.
            Ok(plugin) => {
                loaded += 1;
                let _ = plugin.describe(None, &limits);
                let _ = plugin.reconcile(&request("{}"), &limits, Recorder::default());
            }
            Err(error) => {
                refused += 1;
                assert!(error.to_string().contains("damaged.wasm"), "{error}");
            }
        }
    }
    assert!(loaded > 20 && refused > 20, "{loaded} loaded, {refused} refused");
}
