//! Compiled code is kept, checked and made again, in a directory that only this user can write to, by a child process.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use pilothouse_core::{Blame, Limits};
use pilothouse_sandbox::{
    CacheError, CompileError, Compiler, LoadError, PluginComponent, Sandbox, SandboxError, SandboxOptions,
};
use support::{Recorder, component, module, request};

/// Compiler that cannot compile: a success with it means that the code was in the cache.
fn none() -> Compiler {
    Compiler::Child {
        program: PathBuf::from("/nowhere/pilothouse"),
    }
}

fn load(directory: &Path, compiler: Compiler) -> Result<PluginComponent, LoadError> {
    let sandbox = Sandbox::new(SandboxOptions::new(directory, compiler)).unwrap();
    sandbox.load_bytes("shop.wasm", &component(&module("", "(i32.const 16)")))
}

fn works(plugin: &PluginComponent) -> bool {
    plugin
        .reconcile(&request("{}"), &Limits::default(), Recorder::default())
        .result
        .is_ok()
}

/// The one file with this ending.
fn file(directory: &Path, ending: &str) -> PathBuf {
    let files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == ending))
        .collect();
    let [file] = files.as_slice() else {
        panic!("not one file .{ending}: {files:?}")
    };
    file.clone()
}

/// Damages the cache, then loads again: without a compiler that must fail, with one it must work.
#[track_caller]
fn is_noticed(damage: impl Fn(&Path)) {
    let damaged = || {
        let directory = tempfile::tempdir().unwrap();
        load(directory.path(), Compiler::InProcess).unwrap();
        damage(directory.path());
        directory
    };
    let error = load(damaged().path(), none()).unwrap_err();
    assert!(
        matches!(
            error,
            LoadError::Compile {
                source: CompileError::Start { .. },
                ..
            }
        ),
        "{error}"
    );
    let directory = damaged();
    assert!(works(&load(directory.path(), Compiler::InProcess).unwrap()));
    assert!(works(&load(directory.path(), none()).unwrap()), "the cache is fixed");
}

/// The program of examples/compile.rs, which cargo builds along with the tests.
fn compiler() -> Compiler {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().parent().unwrap().join("examples/compile");
    assert!(
        program.exists(),
        "{} is missing: run `cargo build -p pilothouse-sandbox --examples`",
        program.display()
    );
    Compiler::Child { program }
}

#[test]
fn a_component_is_compiled_once() {
    let directory = tempfile::tempdir().unwrap();
    load(directory.path(), Compiler::InProcess).unwrap();
    assert!(works(&load(directory.path(), none()).unwrap()));
}

#[test]
fn a_damaged_file_is_compiled_again() {
    is_noticed(|directory| {
        let path = file(directory, "cwasm");
        let mut code = fs::read(&path).unwrap();
        let middle = code.len() / 2;
        code[middle] ^= 1;
        fs::write(path, code).unwrap();
    });
}

#[test]
fn a_truncated_file_is_compiled_again() {
    is_noticed(|directory| {
        let path = file(directory, "cwasm");
        let code = fs::read(&path).unwrap();
        fs::write(path, &code[..code.len() / 2]).unwrap();
    });
}

#[test]
fn a_missing_file_is_compiled_again() {
    is_noticed(|directory| fs::remove_file(file(directory, "cwasm")).unwrap());
}

#[test]
fn a_damaged_index_is_compiled_again() {
    is_noticed(|directory| fs::write(file(directory, "index"), "../../etc/passwd\n").unwrap());
}

#[test]
fn code_for_an_unknown_contract_version_is_recompiled() {
    is_noticed(|directory| {
        let path = file(directory, "index");
        let index = fs::read_to_string(&path).unwrap();
        assert!(index.ends_with(" 0.1.0\n"), "{index}");
        fs::write(path, index.replace(" 0.1.0", " 0.0.9")).unwrap();
    });
}

#[test]
fn a_compiled_component_is_known_without_reading_it() {
    let directory = tempfile::tempdir().unwrap();
    load(directory.path(), Compiler::InProcess).unwrap();
    let path = directory.path().join("shop.wasm");
    fs::write(&path, component(&module("", "(i32.const 16)"))).unwrap();
    let sandbox = Sandbox::new(SandboxOptions::new(directory.path(), none())).unwrap();
    let plugin = sandbox.load(&path).unwrap();
    assert!(works(&plugin));
    assert_eq!(plugin.contract_version(), "0.1.0");
    assert_eq!(plugin.component_bytes(), fs::metadata(&path).unwrap().len());
}

#[test]
fn whole_files_that_are_no_code_are_compiled_again() {
    // As if written by another version: the digests are right, the content is not for us.
    is_noticed(|directory| {
        let code = directory.join("2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae.cwasm");
        fs::write(code, "foo").unwrap();
        fs::write(
            file(directory, "index"),
            "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae 0.1.0\n",
        )
        .unwrap();
    });
}

#[test]
fn two_hosts_share_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(works(&load(directory.path(), Compiler::InProcess).unwrap())));
        }
    });
    assert!(works(&load(directory.path(), none()).unwrap()));
    let left = fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 3, "component, code and index, nothing half-written");
}

#[test]
fn nobody_else_may_read_or_write_the_directory() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("a/b");
    load(&directory, Compiler::InProcess).unwrap();
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    for entry in fs::read_dir(&directory).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o077, 0);
    }
}

#[track_caller]
fn refused(directory: &Path) -> (CacheError, String) {
    match Sandbox::new(SandboxOptions::new(directory, none())).err() {
        Some(SandboxError::Cache(error)) => {
            let message = error.to_string();
            (error, message)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_directory_that_others_can_write_to_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for mode in [0o777, 0o770, 0o702] {
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
        let (error, message) = refused(directory.path());
        assert!(matches!(error, CacheError::WritableByOthers { .. }), "{message}");
        assert!(
            message.contains(&format!("{mode:03o}")) && message.contains("chmod 700"),
            "{message}"
        );
    }
}

#[test]
fn a_directory_of_somebody_else_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    // Root can give a directory away; everybody else finds that root owns this one.
    let foreign = match std::os::unix::fs::chown(directory.path(), Some(12345), None) {
        Ok(()) => directory.path(),
        Err(_) => Path::new("/usr"),
    };
    let (error, message) = refused(foreign);
    assert!(matches!(error, CacheError::ForeignOwner { .. }), "{message}");
}

#[test]
fn a_file_in_place_of_the_directory_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (_, message) = refused(file.path());
    assert!(message.contains(file.path().to_str().unwrap()), "{message}");
}

#[test]
fn a_child_process_compiles() {
    let directory = tempfile::tempdir().unwrap();
    assert!(works(&load(directory.path(), compiler()).unwrap()));
    assert!(works(&load(directory.path(), none()).unwrap()));
}

#[test]
fn what_the_child_says_is_in_the_error() {
    let directory = tempfile::tempdir().unwrap();
    let mut bytes = component(&module("", "(i32.const 16)"));
    // `i32.const 16` of reconcile becomes `i64.const 16`, so its type is wrong.
    let at = bytes.windows(3).position(|window| window == [0x41, 0x10, 0x0b]);
    bytes[at.unwrap()] = 0x42;
    let sandbox = Sandbox::new(SandboxOptions::new(directory.path(), compiler())).unwrap();
    let error = sandbox.load_bytes("shop.wasm", &bytes).unwrap_err();
    assert!(
        matches!(
            error,
            LoadError::Compile {
                source: CompileError::Failed { .. },
                ..
            }
        ),
        "{error}"
    );
    assert!(
        error.to_string().contains("shop.wasm") && error.to_string().contains("type mismatch"),
        "{error}"
    );
}

#[test]
fn a_sleeping_plugin_whose_code_was_swept_is_recompiled() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = load(directory.path(), Compiler::InProcess).unwrap();
    plugin.sleep();
    fs::remove_file(file(directory.path(), "cwasm")).unwrap();
    assert!(works(&plugin));
}

#[test]
fn a_sleeping_plugin_whose_code_was_changed_is_recompiled() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = load(directory.path(), Compiler::InProcess).unwrap();
    plugin.sleep();
    let path = file(directory.path(), "cwasm");
    let mut code = fs::read(&path).unwrap();
    code.fill(0x90);
    fs::write(path, code).unwrap();
    assert!(works(&plugin));
}

#[test]
fn calls_of_a_plugin_gone_from_the_cache_fail_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = load(directory.path(), Compiler::InProcess).unwrap();
    plugin.sleep();
    for ending in ["cwasm", "wasm", "index"] {
        fs::remove_file(file(directory.path(), ending)).unwrap();
    }
    let call = plugin.reconcile(&request("{}"), &Limits::default(), Recorder::default());
    let failure = call.result.unwrap_err();
    assert_eq!(failure.blame, Blame::Host);
    assert!(
        failure.message.contains("shop.wasm") && failure.message.contains("gone from the cache"),
        "{failure}"
    );
}

/// Checks that a sandbox without a place on a disk works from memory, and reports why.
#[track_caller]
fn works_from_memory(plugin: &PluginComponent, why: &str) {
    let said = plugin.kept_in_memory_because().unwrap_or_default();
    assert!(said.contains(why), "{said}");
    assert!(works(plugin));
    plugin.sleep();
    assert!(works(plugin), "it wakes again");
    assert!(plugin.code_bytes() > 0);
}

#[test]
fn a_plugin_that_a_disk_has_no_room_for_is_compiled_into_memory() {
    let directory = tempfile::tempdir().unwrap();
    let sandbox = Sandbox::new(SandboxOptions::new(directory.path(), compiler())).unwrap();
    // Nothing can be written there any more, as on a disk that is full or read-only.
    fs::remove_dir(directory.path()).unwrap();
    let bytes = component(&module("", "(i32.const 16)"));
    let plugin = sandbox.load_bytes("shop.wasm", &bytes).unwrap();
    works_from_memory(&plugin, directory.path().to_str().unwrap());
    let again = sandbox.load_bytes("again.wasm", &bytes).unwrap();
    works_from_memory(&again, directory.path().to_str().unwrap());
}

#[test]
fn a_directory_that_cannot_be_made_is_done_without() {
    // Nobody makes a directory there, root neither.
    let plugin = load(Path::new("/proc/pilothouse/cache"), Compiler::InProcess).unwrap();
    works_from_memory(&plugin, "/proc/pilothouse/cache");
}

#[test]
fn what_is_kept_on_disk_is_not_kept_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = load(directory.path(), Compiler::InProcess).unwrap();
    assert_eq!(plugin.kept_in_memory_because(), None);
}

/// A component with one function of so many variables, all of which are set after so many branches. The compiler keeps a
/// table of them all: a few hundred kilobytes of code take gigabytes.
fn hard(variables: usize, branches: usize) -> Vec<u8> {
    let locals = "(local i64)".repeat(variables);
    let branches = "(if (i64.eqz (local.get 0)) (then (local.set 0 (i64.const 1))))".repeat(branches);
    let set = |variable: usize| format!("(local.set {} (local.get 0))", 1 + variable);
    let sets: String = (0..variables).map(set).collect();
    let function =
        format!(r#"(func (export "hard") (param i64) (result i64) {locals} {branches} {sets} (local.get 1))"#);
    component(&module(&function, "(i32.const 16)"))
}

/// Variable that makes this process the test's second one.
const WITHIN: &str = "PILOTHOUSE_TEST_WITHIN_CGROUP";

/// The memory of that cgroup, in bytes.
const GROUP_BYTES: u64 = 1024 * 1024 * 1024;

/// Creates a cgroup of version 1; none where this user may not.
fn cgroup() -> Option<PathBuf> {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let path = own.lines().find_map(|line| line.split_once(":memory:"))?.1;
    let below = Path::new("/sys/fs/cgroup/memory").join(path.trim_start_matches('/'));
    let around = if below.is_dir() {
        below
    } else {
        PathBuf::from("/sys/fs/cgroup/memory")
    };
    let group = around.join(format!("pilothouse-{}", std::process::id()));
    fs::create_dir(&group).ok()?;
    fs::write(group.join("memory.limit_in_bytes"), GROUP_BYTES.to_string()).ok()?;
    Some(group)
}

#[test]
fn a_compiler_stays_below_the_memory_of_its_container() {
    if let Some(component) = std::env::var_os(WITHIN) {
        let directory = tempfile::tempdir().unwrap();
        let sandbox = Sandbox::new(SandboxOptions::new(directory.path(), compiler())).unwrap();
        match sandbox.load_bytes("shop.wasm", &fs::read(component).unwrap()) {
            Ok(_) => println!("COMPILED"),
            Err(error) => println!("REFUSED {error}"),
        }
        return;
    }
    let Some(group) = cgroup() else {
        eprintln!("skipped: a cgroup of version 1 cannot be made here");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let component = folder.path().join("hard.wasm");
    fs::write(&component, hard(25_000, 10_000)).unwrap();
    let script = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", group.display());
    let output = std::process::Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_compiler_stays_below_the_memory_of_its_container",
            "--nocapture",
        ])
        .env(WITHIN, &component)
        .output()
        .unwrap();
    let read = |file: &str| fs::read_to_string(group.join(file)).unwrap_or_default();
    let (oom, most) = (read("memory.oom_control"), read("memory.max_usage_in_bytes"));
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    let said = said.concat();
    fs::remove_dir(&group).unwrap();
    println!("at most {} bytes: {said}", most.trim());
    assert!(output.status.success(), "the host of the compiler lives: {said}");
    assert!(!oom.contains("oom_kill ") || oom.contains("oom_kill 0"), "{oom}");
    assert!(most.trim().parse::<u64>().unwrap() < GROUP_BYTES, "{most}");
    assert!(said.contains("raise the container's limit of memory"), "{said}");
}
