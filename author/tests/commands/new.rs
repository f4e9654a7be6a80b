//! New projects as files: what is written, and what is refused. That they build is tested in `build`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::program::{call, checkout, ended, program};

/// Fails where something of a template is left in a file.
fn are_filled(files: &[(PathBuf, String)]) {
    for (path, text) in files {
        assert!(
            !text.contains("{{") && !text.contains("\n%"),
            "{}: {text}",
            path.display()
        );
    }
}

/// The files of a folder with their contents.
fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = fs::read_to_string(&path).unwrap();
                files.push((path, text));
            }
        }
    }
    files.sort();
    files
}

fn made(arguments: &[&str]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let all = [["new", "site", "--kind", "example.com/v1/Site"].as_slice(), arguments].concat();
    call(folder.path(), &all).ok();
    let project = folder.path().join("site");
    (folder, project)
}

#[test]
fn a_project_is_complete_whatever_is_asked_for() {
    for options in [
        &[][..],
        &["--finalizer"],
        &["--admission"],
        &["--scope", "Cluster"],
        &[
            "--scope",
            "cluster",
            "--finalizer",
            "--admission",
            "--plural",
            "siteses",
        ],
    ] {
        let (_folder, project) = made(options);
        for (path, text) in files(&project) {
            assert!(
                !text.contains("{{") && !text.contains("\n%"),
                "{}: {text}",
                path.display()
            );
        }
        for file in [
            "Cargo.toml",
            "README.md",
            "sample.yaml",
            ".gitignore",
            ".github/workflows/ci.yaml",
            "src/site.rs",
        ] {
            assert!(project.join(file).is_file(), "{options:?}: {file}");
        }
        assert_eq!(
            project.join("src/site_admission.rs").exists(),
            options.contains(&"--admission")
        );
        let kind = fs::read_to_string(project.join("src/site.rs")).unwrap();
        assert_eq!(
            kind.contains("impl Finalizer for SiteController"),
            options.contains(&"--finalizer")
        );
        let plural = if options.contains(&"--plural") {
            "siteses"
        } else {
            "sites"
        };
        let crd = fs::read_to_string(project.join(format!("crds/{plural}.example.com.yaml"))).unwrap();
        assert_eq!(crd.contains("scope: Cluster"), options.contains(&"--scope"), "{crd}");
    }
}

#[test]
fn a_project_that_decorates_has_no_kind_of_its_own() {
    for (kind, is_of_cluster, has_scenario) in [
        ("apps/v1/StatefulSet", false, true),
        ("v1/Namespace", true, true),
        ("networking.k8s.io/v1/Ingress", false, true),
        ("batch/v1/CronJob", false, true),
        ("monitoring.coreos.com/v1/Prometheus", false, false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let arguments = [
            "new",
            "site",
            "--decorates",
            kind,
            "--annotation",
            "example.com/decorate",
        ];
        call(folder.path(), &arguments).ok();
        let project = folder.path().join("site");
        let files = files(&project);
        are_filled(&files);
        let text = |name: &str| fs::read_to_string(project.join(name)).unwrap();
        let module = files
            .iter()
            .find(|(_, text)| text.contains("pub const ANNOTATION: &str = \"example.com/decorate\""));
        let (_, module) = module.unwrap();
        assert_eq!(
            module.contains(".owns_with::<ConfigMap>(|touch| touch.anywhere())"),
            is_of_cluster,
            "{module}"
        );
        assert!(
            !project.join("crds").exists() && !text("src/lib.rs").contains("CRD"),
            "{kind}"
        );
        assert!(!text("Cargo.toml").contains("schemars"), "{kind}");
        assert_eq!(project.join("scenarios").exists(), has_scenario, "{kind}");
        let sample: serde_json::Value = serde_saphyr::from_str(&text("sample.yaml")).unwrap();
        assert_eq!(sample["metadata"]["annotations"]["example.com/decorate"], "blue");
    }
    let refused = |arguments: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let error = call(folder.path(), &[&["new", "site"], arguments].concat());
        assert!(!folder.path().join("site").exists());
        error
    };
    let decorates = ["--decorates", "apps/v1/StatefulSet"];
    assert!(refused(&decorates).failed(2).contains("--annotation"));
    assert!(refused(&["--annotation", "x"]).failed(2).contains("--decorates"));
    let with = |more: &[&str]| refused(&[&decorates[..], &["--annotation", "x"], more].concat());
    assert!(with(&["--finalizer"]).failed(2).contains("cannot be used with"));
    assert!(
        with(&["--kind", "example.com/v1/Site"])
            .failed(2)
            .contains("cannot be used with")
    );
    let python = with(&["--lang", "python"]).failed(1);
    assert!(python.contains("--decorates is for projects in Rust"), "{python}");
    let annotation = refused(&["--decorates", "v1/Service", "--annotation", "a b"]).failed(2);
    assert!(annotation.contains("is no name of an annotation"), "{annotation}");
}

#[test]
fn the_sdk_is_the_published_one_unless_a_checkout_is_named() {
    let (_folder, project) = made(&[]);
    let manifest = fs::read_to_string(project.join("Cargo.toml")).unwrap();
    assert!(
        manifest.contains("pilothouse-plugin = { version = \"0.1\", features"),
        "{manifest}"
    );
    assert!(
        fs::read_to_string(project.join("README.md"))
            .unwrap()
            .contains("--sdk PATH")
    );

    let sdk = checkout().display().to_string();
    let (_folder, project) = made(&["--sdk", &sdk]);
    let manifest = fs::read_to_string(project.join("Cargo.toml")).unwrap();
    let expected = fs::canonicalize(checkout().join("plugins/sdk")).unwrap();
    assert!(
        manifest.contains(&format!("path = \"{}\"", expected.display())),
        "{manifest}"
    );

    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "new",
        "site",
        "--kind",
        "example.com/v1/Site",
        "--sdk",
        "/no/such/folder",
    ];
    let error = call(folder.path(), &arguments).failed(1);
    assert!(error.contains("--sdk: cannot read /no/such/folder"), "{error}");
    assert!(!error.contains("os error"), "{error}");
    assert!(!folder.path().join("site").exists());
}

/// A folder in place of crates.io, with empty crates of these names.
fn registry(folder: &Path, names: &[&str]) {
    for name in names {
        let library = folder.join(name).join("src/lib.rs");
        fs::create_dir_all(library.parent().unwrap()).unwrap();
        fs::write(library, "").unwrap();
        let package = format!("[package]\nname = \"{name}\"\nversion = \"1.0.0\"\n[features]\nderive = []\n");
        fs::write(folder.join(name).join("Cargo.toml"), package).unwrap();
        let checksums = r#"{"files": {}, "package": null}"#;
        fs::write(folder.join(name).join(".cargo-checksum.json"), checksums).unwrap();
    }
}

#[test]
fn a_project_whose_sdk_is_in_a_git_repository_resolves() {
    let folder = tempfile::tempdir().unwrap();
    let (repository, crates) = (folder.path().join("pilothouse"), folder.path().join("crates"));
    let sdk = repository.join("plugins/sdk");
    fs::create_dir_all(sdk.join("src")).unwrap();
    fs::write(sdk.join("src/lib.rs"), "").unwrap();
    let package = "[package]\nname = \"pilothouse-plugin\"\nversion = \"0.1.0\"\n[features]\ncrd = []\nk8s-apps = []\n";
    fs::write(sdk.join("Cargo.toml"), package).unwrap();
    for arguments in [
        &["init", "--quiet"][..],
        &["add", "."],
        &[
            "-c",
            "user.name=test",
            "-c",
            "user.email=t@example.com",
            "commit",
            "-qm",
            "sdk",
        ],
    ] {
        let mut git = Command::new("git");
        let git = git.args(arguments).current_dir(&repository);
        ended(git.env("GIT_CONFIG_GLOBAL", "/dev/null")).ok();
    }
    registry(&crates, &["schemars", "serde"]);

    let url = format!("file://{}", repository.display());
    let (_folder, project) = made(&["--sdk", &url]);
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["metadata", "--format-version", "1", "--config"])
        .arg("source.crates-io.replace-with='folder'")
        .arg("--config")
        .arg(format!("source.folder.directory='{}'", crates.display()))
        .current_dir(&project)
        .env("CARGO_HOME", folder.path().join("cargo"))
        .env_remove("CARGO_NET_OFFLINE");
    let metadata: serde_json::Value = serde_json::from_str(&ended(&mut cargo).ok()).unwrap();
    let sources = metadata["packages"].as_array().unwrap().iter();
    let sources: Vec<_> = sources.filter(|it| it["name"] == "pilothouse-plugin").collect();
    let source = sources[0]["source"].as_str().unwrap();
    assert!(source.starts_with(&format!("git+{url}#")), "{source}");
}

#[test]
fn the_workflow_installs_the_program_from_where_the_sdk_comes() {
    let workflow = |arguments: &[&str]| {
        let (_folder, project) = made(arguments);
        let text = fs::read_to_string(project.join(".github/workflows/ci.yaml")).unwrap();
        let parsed: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        let steps = parsed["jobs"]["test"]["steps"].as_array().unwrap().clone();
        let commands: Vec<String> = steps
            .iter()
            .filter_map(|step| step["run"].as_str().map(str::to_owned))
            .collect();
        let program = commands
            .iter()
            .find(|it| it.starts_with("command -v pilothouse"))
            .unwrap();
        (program.clone(), text)
    };
    let (published, _) = workflow(&[]);
    assert_eq!(published, "command -v pilothouse || cargo install --locked pilothouse");
    let url = "https://git.example.com/pilothouse";
    let (from_git, _) = workflow(&["--sdk", url]);
    assert_eq!(
        from_git,
        format!("command -v pilothouse || cargo install --locked --git {url} pilothouse")
    );
    let (from_folder, text) = workflow(&["--sdk", &checkout().display().to_string()]);
    assert_eq!(from_folder, "command -v pilothouse");
    assert!(text.contains("# The SDK comes from a folder of one machine"), "{text}");
}

/// The interfaces that the world of a project exports beside those that every plugin has.
fn exports(files: &[(PathBuf, String)]) -> Vec<&str> {
    let (_, world) = files.iter().find(|(path, _)| path.ends_with("wit/world.wit")).unwrap();
    let lines = world.lines().filter_map(|line| line.trim().strip_prefix("export "));
    lines.map(|line| line.trim_end_matches(';')).collect()
}

#[test]
fn a_project_in_another_language_has_only_the_requested_parts() {
    const FINALIZER: &str = "--finalizer";
    const ADMISSION: &str = "--admission";
    const CLUSTER: &str = "--scope=Cluster";
    // What the manifest names, and what only an operator with the option has.
    let languages = [
        (
            "js",
            "finalizer: \"example.com/site\"",
            "kinds/site_admission.js",
            "scope: \"Any\"",
        ),
        (
            "python",
            "finalizer=\"example.com/site\"",
            "kinds/site_admission.py",
            "scope=\"Any\"",
        ),
        ("go", "\"example.com/site\"", "site/site_admission.go", "Scope: \"Any\""),
        (
            "c",
            ".finalizer = \"example.com/site\"",
            "kinds/site_admission.c",
            "'scope': 'Any'",
        ),
    ];
    let choices = [
        &[][..],
        &[FINALIZER],
        &[ADMISSION],
        &[CLUSTER],
        &[FINALIZER, ADMISSION],
        &[FINALIZER, ADMISSION, CLUSTER],
    ];
    for (language, finalizer, admission, any) in languages {
        for options in choices {
            let (_folder, project) = made(&[&["--lang", language][..], options].concat());
            let files = files(&project);
            are_filled(&files);
            let has = |name: &str| files.iter().any(|(path, _)| path.ends_with(name));
            for name in [
                "README.md",
                ".gitignore",
                "sample.yaml",
                "scenarios/site.yaml",
                ".github/workflows/ci.yaml",
            ] {
                assert!(has(name), "{language} {options:?}: {name}");
            }
            let (with_finalizer, with_admission) = (options.contains(&FINALIZER), options.contains(&ADMISSION));
            let mut expected = Vec::new();
            expected.extend(with_finalizer.then_some("finalizer"));
            expected.extend(
                with_admission
                    .then_some(["defaulter", "validator"])
                    .into_iter()
                    .flatten(),
            );
            assert_eq!(exports(&files), expected, "{language} {options:?}");
            assert_eq!(has(admission), with_admission, "{language} {options:?}");
            let is_of_cluster = options.contains(&CLUSTER);
            let text_of = |name: &str| &files.iter().find(|(path, _)| path.ends_with(name)).unwrap().1;
            assert_eq!(
                text_of("crds/sites.example.com.yaml").contains("scope: Cluster"),
                is_of_cluster,
                "{language} {options:?}"
            );
            let scenario = text_of("scenarios/site.yaml");
            assert_eq!(scenario.contains("namespace: $NAMESPACE"), is_of_cluster, "{scenario}");
            assert_eq!(scenario.contains("webhooks: true"), with_admission, "{scenario}");
            assert_eq!(scenario.contains("finalizers"), with_finalizer, "{scenario}");
            // The helpers know all; what the operator uses is its own.
            let is_helper = |path: &Path| path.to_string_lossy().contains("pilothouse") || path.extension().is_none();
            let operator: String = files
                .iter()
                .filter(|(path, _)| !is_helper(path.strip_prefix(&project).unwrap()))
                .map(|(_, text)| text.as_str())
                .collect();
            assert_eq!(operator.contains(finalizer), with_finalizer, "{language} {options:?}");
            assert_eq!(operator.contains(any), is_of_cluster, "{language} {options:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let arguments = [
            "new",
            "site",
            "--kind",
            "example.com/v1/Site",
            "--lang",
            language,
            "--sdk",
            "https://a.b/c",
        ];
        let error = call(folder.path(), &arguments).failed(1);
        assert!(error.contains("--sdk is for projects in Rust"), "{language}: {error}");
        assert!(!folder.path().join("site").exists());
    }
}

/// Files that `new kind` and `new admission` write in a language other than Rust, for a kind Gallery beside Site.
struct Added {
    language: &'static str,
    /// The files of Gallery and of its admission.
    files: &'static [&'static str],
    /// Lines of a file, which follow each other.
    lines: &'static [(&'static str, &'static str)],
}

const ADDED: [Added; 4] = [
    Added {
        language: "js",
        files: &[
            "kinds/gallery.js",
            "kinds/gallery_admission.js",
            "test/gallery.test.js",
            "test/gallery_admission.test.js",
        ],
        lines: &[
            (
                "operator.js",
                "import { siteController } from \"./kinds/site.js\";\nimport { galleryController } from \"./kinds/gallery.js\";",
            ),
            ("operator.js", "    siteController,\n    galleryController,"),
            (
                "kinds/gallery.js",
                "import { applyDefaults, validate } from \"./gallery_admission.js\";",
            ),
            ("kinds/gallery.js", "  finalize,\n  applyDefaults,\n  validate,"),
        ],
    },
    Added {
        language: "python",
        files: &[
            "kinds/gallery.py",
            "kinds/gallery_admission.py",
            "tests/test_gallery.py",
            "tests/test_gallery_admission.py",
        ],
        lines: &[
            ("plugin.py", "from kinds import site\nfrom kinds import gallery"),
            ("plugin.py", "        site.CONTROLLER,\n        gallery.CONTROLLER,"),
            ("kinds/gallery.py", "from kinds import gallery_admission"),
            (
                "kinds/gallery.py",
                "    apply_defaults=gallery_admission.apply_defaults,\n    validate=gallery_admission.validate,",
            ),
            ("app.py", "from wit_world.exports import finalizer"),
            ("app.py", "Finalizer = finalizer_export(PLUGIN, finalizer, **HOST)"),
            (
                "app.py",
                "Defaulter, Validator = admission_exports(PLUGIN, admission, **HOST)",
            ),
        ],
    },
    Added {
        language: "go",
        files: &[
            "kinds/gallery/gallery.go",
            "kinds/gallery/gallery_test.go",
            "kinds/gallery/gallery_admission.go",
            "kinds/gallery/gallery_admission_test.go",
        ],
        lines: &[
            // gofmt orders imports, where there is one.
            ("main.go", "\t\"site/kinds/gallery\"\n"),
            (
                "main.go",
                "//go:embed crds/galleries.example.com.yaml\nvar galleryCRD string\n\n// pilothouse:embedded",
            ),
            ("main.go", "\t\t\tsiteCRD,\n\t\t\tgalleryCRD,\n"),
            ("main.go", "\t\t\tsite.Controller,\n\t\t\tgallery.Controller,\n"),
            (
                "kinds/gallery/gallery.go",
                "\tApplyDefaults: ApplyDefaults,\n\tValidate:      pilothouse.TypedValidate(Validate),\n",
            ),
        ],
    },
    Added {
        language: "c",
        files: &[
            "kinds/gallery.c",
            "kinds/gallery_admission.c",
            "tests/gallery.c",
            "tests/gallery_admission.c",
        ],
        lines: &[
            (
                "operator.h",
                "extern const ph_controller site_controller;\nextern const ph_controller gallery_controller;",
            ),
            (
                "operator.h",
                "void gallery_validate(const ph_review *review, ph_verdict *verdict);",
            ),
            ("operator.c", "    &site_controller,\n    &gallery_controller,"),
            (
                "kinds/gallery.c",
                "    .apply_defaults = gallery_apply_defaults,\n    .validate = gallery_validate,",
            ),
        ],
    },
];

#[test]
fn a_kind_is_added_in_every_other_language() {
    for Added {
        language,
        files: expected,
        lines,
    } in ADDED
    {
        let (_folder, project) = made(&["--lang", language]);
        let kind = [
            "new",
            "kind",
            "example.com/v1/Gallery",
            "--finalizer",
            "--admission",
            "--scope",
            "Cluster",
        ];
        let out = call(&project, &kind).ok();
        assert!(!out.contains("Add to"), "{language}: {out}");
        assert!(out.contains("wit/world.wit (changed)"), "{language}: {out}");
        assert!(
            !out.contains(&format!("{} (changed)", expected[0])),
            "{language}: {out}"
        );
        let now = files(&project);
        for file in ["crds/galleries.example.com.yaml", "scenarios/gallery.yaml"]
            .iter()
            .chain(expected)
        {
            let (_, text) = now
                .iter()
                .find(|(path, _)| *path == project.join(file))
                .unwrap_or_else(|| panic!("{language}: {file}"));
            assert!(!text.contains("{{") && !text.contains("\n%"), "{file}: {text}");
        }
        for (file, line) in lines {
            let text = fs::read_to_string(project.join(file)).unwrap();
            assert_eq!(text.matches(line).count(), 1, "{language}: {file}: {line}: {text}");
        }
        let text = fs::read_to_string(project.join("crds/galleries.example.com.yaml")).unwrap();
        assert!(text.contains("scope: Cluster"), "{text}");
        let scenario = fs::read_to_string(project.join("scenarios/gallery.yaml")).unwrap();
        assert!(scenario.contains("plugins: [site]"), "{scenario}");
        assert_eq!(exports(&now), ["finalizer", "defaulter", "validator"], "{language}");

        // A third kind names no interface a second time.
        call(
            &project,
            &["new", "kind", "example.com/v1/Shelf", "--finalizer", "--admission"],
        )
        .ok();
        let now = files(&project);
        assert_eq!(exports(&now), ["finalizer", "defaulter", "validator"], "{language}");
        for again in [&kind[..], &["new", "admission", "Gallery"]] {
            let error = call(&project, again).failed(1);
            assert!(
                error.contains("is there already; nothing was written"),
                "{language}: {error}"
            );
        }
        let error = call(&project, &["new", "admission", "Site2"]).failed(1);
        assert!(
            error.contains("site has no kind Site2; it has Gallery, Shelf, Site"),
            "{language}: {error}"
        );
        assert_eq!(files(&project), now, "{language}");
    }
}

#[test]
fn admission_that_is_added_later_is_what_a_new_project_has() {
    for Added { language, .. } in ADDED {
        for scope in ["Namespaced", "Cluster"] {
            let options = ["--lang", language, "--scope", scope];
            let (_folder, later) = made(&options);
            call(&later, &["new", "admission", "Site"]).ok();
            let (_other, at_once) = made(&[&options[..], &["--admission"]].concat());
            // These tell of admission from the beginning only.
            let is_left = |path: &Path| path.ends_with("README.md") || path.ends_with("scenarios/site.yaml");
            let code = |project: &Path| -> Vec<(PathBuf, String)> {
                files(project)
                    .into_iter()
                    .map(|(path, text)| (path.strip_prefix(project).unwrap().to_owned(), text))
                    .filter(|(path, _)| !is_left(path))
                    .collect()
            };
            assert_eq!(code(&later), code(&at_once), "{language}");
        }
    }
}

#[test]
fn lines_without_their_marker_are_printed_in_every_language() {
    let languages = [
        ("js", "operator.js", "//", "galleryController,"),
        ("python", "plugin.py", "#", "gallery.CONTROLLER,"),
        ("go", "main.go", "//", "gallery.Controller,"),
        ("c", "operator.c", "//", "&gallery_controller,"),
    ];
    for (language, file, comment, line) in languages {
        let (_folder, project) = made(&["--lang", language]);
        let path = project.join(file);
        let marker = format!("{comment} pilothouse:controllers");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(&marker), "{text}");
        fs::write(&path, text.replace(&marker, "")).unwrap();
        let world = project.join("wit/world.wit");
        fs::write(&world, "package pilothouse:plugin@0.1.0;\n").unwrap();
        let out = call(&project, &["new", "kind", "example.com/v1/Gallery", "--finalizer"]).ok();
        let add = format!("{file}, which has no comment `{comment} pilothouse:...` for it:\n  controllers:  {line}\n");
        assert!(out.contains(&add), "{language}: {out}");
        assert!(
            out.contains(
                "wit/world.wit, which has no comment `// pilothouse:...` for it:\n  exports:  export finalizer;\n"
            ),
            "{language}: {out}"
        );
        assert!(!out.contains("imports:"), "{language}: {out}");
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(line), "{language}: {text}");
        assert_eq!(
            fs::read_to_string(&world).unwrap(),
            "package pilothouse:plugin@0.1.0;\n"
        );
    }
}

#[test]
fn names_reserved_in_a_language_are_escaped() {
    for (language, kind, file) in [
        ("python", "Import", "kinds/import_kind.py"),
        ("python", "Admission", "kinds/admission.py"),
        ("go", "Package", "kinds/packagekind/packagekind.go"),
        ("go", "String", "kinds/stringkind/stringkind.go"),
        ("go", "Internal", "kinds/internalkind/internalkind.go"),
        ("go", "HTTPRoute", "kinds/httproute/httproute.go"),
        ("js", "Operator", "kinds/operator.js"),
        ("c", "Operator", "kinds/operator.c"),
    ] {
        let (_folder, project) = made(&["--lang", language]);
        let kind = format!("example.com/v1/{kind}");
        call(&project, &["new", "kind", &kind, "--admission"]).ok();
        assert!(project.join(file).is_file(), "{language}: {file}");
    }
}

#[test]
fn a_go_module_and_its_plugin_may_differ_from_the_folder_name() {
    let (_folder, project) = made(&["--lang", "go"]);
    let rename = |file: &str, old: &str, new: &str| {
        let text = fs::read_to_string(project.join(file)).unwrap();
        assert!(text.contains(old), "{text}");
        fs::write(project.join(file), text.replace(old, new)).unwrap();
    };
    rename("go.mod", "module site", "module example.com/shop");
    rename("main.go", "\"site\"", "\"shop\"");
    call(&project, &["new", "kind", "example.com/v1/Gallery"]).ok();
    let main = fs::read_to_string(project.join("main.go")).unwrap();
    assert!(main.contains("\"example.com/shop/kinds/gallery\""), "{main}");
    let gallery = fs::read_to_string(project.join("kinds/gallery/gallery.go")).unwrap();
    assert!(gallery.contains("import \"example.com/shop/pilothouse\""), "{gallery}");
    let scenario = fs::read_to_string(project.join("scenarios/gallery.yaml")).unwrap();
    assert!(scenario.contains("plugins: [shop]"), "{scenario}");
}

#[test]
fn a_project_of_unknown_structure_is_left_as_it_is() {
    for (language, file) in [
        ("js", "operator.js"),
        ("python", "plugin.py"),
        ("go", "main.go"),
        ("c", "operator.c"),
    ] {
        let (_folder, project) = made(&["--lang", language]);
        for (change, said) in [("// nothing\n", "says no name of the plugin"), ("", "it has no ")] {
            if change.is_empty() {
                fs::remove_file(project.join(file)).unwrap();
            } else {
                fs::write(project.join(file), change).unwrap();
            }
            let before = files(&project);
            for arguments in [
                &["new", "kind", "example.com/v1/Gallery"][..],
                &["new", "admission", "Site"],
            ] {
                let error = call(&project, arguments).failed(1);
                assert!(error.contains(said) && error.contains(file), "{language}: {error}");
            }
            assert_eq!(files(&project), before);
        }
    }
}

#[test]
fn commands_in_a_project_in_another_language_say_what_builds_it() {
    let languages = [
        ("js", "npm run build"),
        ("python", "make build"),
        ("go", "go run ./tool"),
        ("c", "make build"),
    ];
    for (language, build) in languages {
        let (_folder, project) = made(&["--lang", language]);
        for command in [&["build"][..], &["manifests"], &["test"]] {
            let error = call(&project, command).failed(1);
            assert!(error.contains(&format!("`{build}`")), "{language} {command:?}: {error}");
            assert!(!error.contains("`pilothouse build`"), "{language} {command:?}: {error}");
        }
        let readme = fs::read_to_string(project.join("README.md")).unwrap();
        assert!(readme.contains(build), "{language}");
    }
}

#[test]
fn a_missing_language_tool_is_named_with_its_install_command() {
    let programs = tempfile::tempdir().unwrap();
    for (language, tool, install) in [
        ("js", "node", "apt-get install nodejs npm"),
        ("python", "make", "apt-get install make"),
        ("go", "go", "https://go.dev/dl"),
        ("c", "make", "apt-get install make"),
    ] {
        let (_folder, project) = made(&["--lang", language]);
        let error = ended(program(&project).arg("build").env("PATH", programs.path())).failed(1);
        assert!(
            error.contains(&format!("{tool} is not installed; install it: ")) && error.contains(install),
            "{language}: {error}"
        );
    }
}

#[test]
fn the_contract_in_a_project_is_the_contract() {
    let (_folder, project) = made(&["--lang", "js"]);
    let contract = fs::read_to_string(checkout().join("wit/plugin.wit")).unwrap();
    assert_eq!(fs::read_to_string(project.join("wit/plugin.wit")).unwrap(), contract);
}

#[test]
fn wrong_arguments_name_the_right_ones_and_write_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, said) in [
        (&["My_Site", "--kind", "example.com/v1/Site"][..], "try my-site"),
        (&["site"], "--kind <GROUP/VERSION/KIND>"),
        (&["site", "--kind", "Site"], "write GROUP/VERSION/KIND"),
        (&["site", "--kind", "example/v1/Site"], "is no API group"),
        (&["site", "--kind", "example.com/1/Site"], "is no API version"),
        (&["site", "--kind", "example.com/v1/site"], "try Site"),
        (
            &["site", "--kind", "example.com/v1/Site", "--lang", "cobol"],
            "there is one for rust",
        ),
        (
            &["site", "--kind", "example.com/v1/Site", "--scope", "all"],
            "Namespaced",
        ),
    ] {
        let error = call(folder.path(), &[&["new"], arguments].concat()).failed(2);
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
    let plural = ["new", "site", "--kind", "example.com/v1/Site", "--plural", "Sites"];
    let error = call(folder.path(), &plural).failed(2);
    assert!(error.contains("\"Sites\" is no plural of a kind"), "{error}");
    assert_eq!(files(folder.path()), []);
}

#[test]
fn a_folder_with_files_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("site/notes.txt");
    fs::create_dir(kept.parent().unwrap()).unwrap();
    fs::write(&kept, "mine").unwrap();
    let arguments = ["new", "site", "--kind", "example.com/v1/Site"];
    let error = call(folder.path(), &arguments).failed(1);
    assert!(error.contains("site is there already, and not empty"), "{error}");
    assert_eq!(files(folder.path()), [(kept.clone(), "mine".to_owned())]);
    fs::remove_file(kept).unwrap();
    call(folder.path(), &arguments).ok();
}

#[test]
fn a_kind_and_its_admission_are_added_where_the_markers_are() {
    let (_folder, project) = made(&[]);
    call(&project, &["new", "kind", "example.com/v1/Gallery", "--finalizer"]).ok();
    call(&project, &["new", "admission", "Gallery"]).ok();
    call(&project, &["new", "admission", "Site"]).ok();
    let library = fs::read_to_string(project.join("src/lib.rs")).unwrap();
    for line in [
        "pub mod gallery;",
        "pub mod gallery_admission;",
        "gallery::GalleryController,",
        ".controller(gallery::manifest())",
        ".crd(gallery::CRD)",
        "gallery_admission::GalleryAdmission,",
        "site_admission::SiteAdmission,",
    ] {
        assert!(library.contains(line), "{line}: {library}");
    }
    assert_eq!(library.matches("defaulter: (").count(), 1, "{library}");
    assert!(project.join("crds/galleries.example.com.yaml").is_file());
    assert!(project.join("scenarios/gallery.yaml").is_file());

    let again = call(&project, &["new", "kind", "example.com/v1/Gallery"]).failed(1);
    assert!(
        again.contains("src/gallery.rs is there already; nothing was written"),
        "{again}"
    );
    let unknown = call(&project, &["new", "admission", "Site2"]).failed(1);
    assert!(
        unknown.contains("site has no kind Site2; it has Gallery, Site"),
        "{unknown}"
    );
}

/// The text of the file that a page of the documentation has under a name: the first block of code behind it.
fn file_of_page(page: &str, file: &str) -> String {
    let text = fs::read_to_string(checkout().join("docs").join(page)).unwrap();
    let (_, rest) = text.split_once(&format!("**`{file}`**")).unwrap();
    let (_, rest) = rest.split_once("```").unwrap();
    let (_, code) = rest.split_once('\n').unwrap();
    code.split_once("```").unwrap().0.to_owned()
}

#[test]
fn admission_of_the_tutorials_website_is_tested_with_its_sample() {
    let folder = tempfile::tempdir().unwrap();
    call(
        folder.path(),
        &["new", "website", "--kind", "example.com/v1alpha1/Website"],
    )
    .ok();
    let project = folder.path().join("website");
    for file in ["src/website.rs", "sample.yaml", "scenarios/website.yaml"] {
        fs::write(project.join(file), file_of_page("tutorial.md", file)).unwrap();
    }
    let out = call(&project, &["new", "admission", "Website"]).ok();
    assert!(!out.contains("no sample"), "{out}");
    let source = fs::read_to_string(project.join("src/website_admission.rs")).unwrap();
    let spec = r#""spec": {"page": "<h1>Hello</h1>", "replicas": 2},"#;
    assert!(source.contains(spec), "{source}");
}

#[test]
fn admission_fits_the_tutorial_files_in_other_languages() {
    for (language, file) in [("js", "kinds/website.js"), ("python", "kinds/website.py")] {
        let folder = tempfile::tempdir().unwrap();
        let kind = "example.com/v1alpha1/Website";
        call(folder.path(), &["new", "website", "--kind", kind, "--lang", language]).ok();
        let project = folder.path().join("website");
        fs::write(project.join(file), file_of_page("tutorial-other-languages.md", file)).unwrap();
        let out = call(&project, &["new", "admission", "Website"]).ok();
        assert!(!out.contains("which has no comment"), "{language}: {out}");
        let source = fs::read_to_string(project.join(file)).unwrap();
        assert!(source.contains("website_admission"), "{language}: {source}");
    }
}

#[test]
fn adding_to_a_project_formats_no_other_source() {
    let (_folder, project) = made(&[]);
    let source = project.join("src/site.rs");
    let text = fs::read_to_string(&source).unwrap() + "pub fn   mine ( ) { }\n";
    fs::write(&source, &text).unwrap();
    call(&project, &["new", "kind", "example.com/v1/Gallery"]).ok();
    call(&project, &["new", "admission", "Site"]).ok();
    assert_eq!(fs::read_to_string(source).unwrap(), text);
}

#[test]
fn a_project_whose_sdk_is_not_published_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let new = ["new", "site", "--kind", "example.com/v1/Site"];
    let out = call(folder.path(), &new).ok();
    assert!(
        out.contains("pilothouse-plugin is not published yet: give --sdk"),
        "{out}"
    );
}

#[test]
fn admission_without_a_sample_says_that_its_tests_need_a_spec() {
    let (_folder, project) = made(&[]);
    fs::remove_file(project.join("sample.yaml")).unwrap();
    fs::remove_dir_all(project.join("scenarios")).unwrap();
    let out = call(&project, &["new", "admission", "Site"]).ok();
    let said =
        "src/site_admission.rs tests with the spec {\"image\": \"nginx:1.29\"}, because no sample of the kind Site was";
    assert!(out.contains(said), "{out}");
}

#[test]
fn what_has_no_marker_is_printed() {
    let (_folder, project) = made(&[]);
    let library = project.join("src/lib.rs");
    let text = fs::read_to_string(&library).unwrap();
    let text = text
        .replace("// pilothouse:controllers", "")
        .replace("// pilothouse:interfaces", "");
    fs::write(&library, text).unwrap();
    let out = call(&project, &["new", "kind", "example.com/v1/Gallery", "--finalizer"]).ok();
    assert!(out.contains("controllers:  gallery::GalleryController,"), "{out}");
    assert!(out.contains("finalizer: ("), "{out}");
    assert!(!out.contains("modules:"), "{out}");
}

#[test]
fn a_kind_is_added_in_a_project_only() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["new", "kind", "example.com/v1/Gallery"][..],
        &["new", "admission", "Gallery"],
    ] {
        let error = call(folder.path(), arguments).failed(1);
        assert!(error.contains("it has no Cargo.toml"), "{error}");
        assert!(!error.contains("os error"), "{error}");
    }
    assert_eq!(files(folder.path()), []);
}
