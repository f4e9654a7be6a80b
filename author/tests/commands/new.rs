//! New projects as files: what is written, and what is refused. That they build is tested in `build`.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::program::{call, checkout};

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
    assert!(!folder.path().join("site").exists());
}

#[test]
fn a_project_in_another_language_is_complete_and_says_what_its_template_lacks() {
    for language in ["js", "python", "go", "c"] {
        let (_folder, project) = made(&["--lang", language]);
        let files = files(&project);
        for (path, text) in &files {
            assert!(
                !text.contains("{{") && !text.contains("\n%"),
                "{}: {text}",
                path.display()
            );
        }
        let has = |name: &str| files.iter().any(|(path, _)| path.ends_with(name));
        for name in [
            "README.md",
            ".gitignore",
            "sample.yaml",
            "scenarios/site.yaml",
            ".github/workflows/ci.yaml",
        ] {
            assert!(has(name), "{language}: {name}");
        }
        let folder = tempfile::tempdir().unwrap();
        for (option, said) in [
            (&["--admission"][..], "no --admission"),
            (&["--scope", "Cluster"], "no --scope Cluster"),
            (&["--sdk", "https://example.com/sdk"], "--sdk is for projects in Rust"),
        ] {
            let base = ["new", "site", "--kind", "example.com/v1/Site", "--lang", language];
            let error = call(folder.path(), &[&base[..], option].concat()).failed(1);
            assert!(error.contains(said), "{language}: {error}");
            assert!(!folder.path().join("site").exists());
        }
    }
}

#[test]
fn the_contract_in_a_project_is_the_contract() {
    let (_folder, project) = made(&["--lang", "js"]);
    let contract = fs::read_to_string(checkout().join("wit/plugin.wit")).unwrap();
    assert_eq!(fs::read_to_string(project.join("wit/plugin.wit")).unwrap(), contract);
}

#[test]
fn wrong_arguments_are_answered_with_right_ones_and_write_nothing() {
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
    let error = call(folder.path(), &plural).failed(1);
    assert!(error.contains("for example sites"), "{error}");
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
    }
    assert_eq!(files(folder.path()), []);
}
