//! Common parts of the sandbox's tests: components made from WebAssembly text, a sandbox over a directory of its own,
//! and recording imports.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses its own part, and all of it is for tests"
)]

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use pilothouse_core::plugin::contract::{Imports, ListOptions, LogLevel, Request};
use pilothouse_core::{Failure, Kind};
use pilothouse_sandbox::{Compiler, PluginComponent, Sandbox, SandboxOptions};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// Sandbox whose cache is deleted with it.
pub struct Own {
    sandbox: Sandbox,
    pub directory: tempfile::TempDir,
}

impl Deref for Own {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.sandbox
    }
}

pub fn sandbox() -> Own {
    let directory = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(SandboxOptions::new(directory.path(), Compiler::InProcess)).unwrap();
    Own { sandbox, directory }
}

impl Own {
    /// A plugin from WebAssembly text.
    pub fn guest(&self, text: &str) -> PluginComponent {
        self.load_bytes("guest.wat", &component(text)).unwrap()
    }

    /// A plugin that `cargo xtask plugins` has built.
    pub fn built(&self, name: &str) -> PluginComponent {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../target/plugins")
            .join(name)
            .with_extension("wasm");
        assert!(
            path.exists(),
            "{} is missing: run `cargo xtask plugins`",
            path.display()
        );
        self.load(&path).unwrap()
    }
}

/// The text of a core module with more functions, for the interfaces that a component may export as needed.
pub fn with_functions(module: &str, functions: &str) -> String {
    let open = module
        .trim_end()
        .strip_suffix(')')
        .expect("a module ends with a parenthesis");
    format!("{open}{functions})")
}

/// The repository's WIT files.
pub fn wit() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit/plugin.wit")
}

/// A component of the world `plugin` from the text of its core module.
pub fn component(text: &str) -> Vec<u8> {
    component_of(text, &fs::read_to_string(wit()).unwrap(), "plugin")
}

/// A component of one world of a WIT document.
pub fn component_of(text: &str, wit: &str, world: &str) -> Vec<u8> {
    let mut module = wat::parse_str(text).unwrap_or_else(|error| panic!("{error}"));
    let mut resolve = Resolve::default();
    let package = resolve.push_str("test.wit", wit).unwrap();
    let world = resolve.select_world(&[package], Some(world)).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default()
        .module(&module)
        .unwrap()
        .validate(true)
        .encode()
        .unwrap()
}

/// The text of a core module that exports all that the world `plugin` wants.
///
/// `reconcile` is the body of its reconcile function, which has the parameters `$object $object_length $configuration
/// $configuration_length $attempt $extensions $extensions_length` and gives the address of its answer; `more` is put before it:
/// imports first. Memory below 1024 is zero: an answer at 16 is an outcome without anything.
pub fn module(more: &str, reconcile: &str) -> String {
    format!(
        r#"(module
          {more}
          (memory (export "memory") 2)
          (global $heap (mut i32) (i32.const 4096))
          (func (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
            (local $at i32)
            (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
            (global.set $heap (i32.add (local.get $at) (local.get $size)))
            (local.get $at))
          (data (i32.const 2048) "\00\00\00\00\10\08\00\00\02\00\00\00")
          (data (i32.const 2064) "{{}}")
          (func (export "pilothouse:plugin/manifest@0.1.0#describe") (param i32 i32 i32) (result i32)
            (i32.const 2048))
          (func (export "pilothouse:plugin/reconciler@0.1.0#reconcile")
            (param $object i32) (param $object_length i32) (param $configuration i32) (param $configuration_length i32)
            (param $attempt i32) (param $extensions i32) (param $extensions_length i32) (result i32)
            {reconcile})
        )"#
    )
}

/// Imports that answer from a closure and record the requests.
#[derive(Default)]
pub struct Recorder {
    pub gets: Vec<String>,
    pub lines: Vec<(LogLevel, String)>,
    /// Answer of `get`.
    pub answer: Option<String>,
    /// Error of `get`.
    pub failure: Option<Failure>,
}

impl Imports for Recorder {
    fn get(&mut self, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Option<String>, Failure> {
        self.gets.push(format!("{kind} {}/{name}", namespace.unwrap_or("-")));
        self.failure.clone().map_or_else(|| Ok(self.answer.clone()), Err)
    }

    fn list(&mut self, _: &Kind, _: &ListOptions, _: u64) -> Result<Vec<String>, Failure> {
        Ok(self.answer.clone().into_iter().collect())
    }

    fn now(&mut self, granularity: u64) -> u64 {
        granularity
    }

    fn reached(&mut self, _: u64) -> bool {
        false
    }

    fn log(&mut self, level: LogLevel, message: &str, _: &[(String, String)]) {
        self.lines.push((level, message.to_owned()));
    }
}

pub fn request(object: &str) -> Request {
    Request {
        object: object.to_owned(),
        configuration: "{}".to_owned(),
        attempt: 0,
    }
}

/// Imports of the contract's functions, to be put before a module's own parts.
pub const LOG: &str = r#"(import "pilothouse:plugin/log@0.1.0" "log" (func $log (param i32 i32 i32 i32 i32)))"#;
pub const CLOCK_NOW: &str = r#"(import "pilothouse:plugin/clock@0.1.0" "now" (func $now (param i64) (result i64)))"#;
pub const GET: &str = r#"(import "pilothouse:plugin/cluster@0.1.0" "get"
    (func $get (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))"#;
