//! Templates of projects, by language, and their expansion.
//!
//! A template is a text with `{{name}}` for a value. The lines from `%if CONDITION` to `%else` or `%end` are only
//! included if the condition holds. The files are called `*.in`, so that no tool treats them as sources.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

/// Values for templates.
#[derive(Clone, Debug, Default)]
pub struct Values {
    /// The values by name.
    pub texts: BTreeMap<&'static str, String>,
    /// The conditions that hold.
    pub holds: BTreeSet<&'static str>,
}

/// A file of a project.
#[derive(Clone, Copy, Debug)]
pub struct TemplateFile {
    /// Path; a template, too.
    pub path: &'static str,
    /// Content.
    pub text: &'static str,
    /// Condition under which it is written.
    pub only_if: Option<&'static str>,
}

/// Lines that are inserted above a marker in a file of a project. Markers are explained in `add`.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    /// File; a template, too.
    pub path: &'static str,
    /// Name of the marker.
    pub marker: &'static str,
    /// Lines; a template, too.
    pub text: &'static str,
    /// Marker and lines to use if the first marker is missing.
    pub otherwise: Option<(&'static str, &'static str)>,
    /// Condition under which they are inserted.
    pub only_if: Option<&'static str>,
    /// Set if several kinds share them, so that they are inserted once.
    pub is_shared: bool,
}

impl Lines {
    const fn new(path: &'static str, marker: &'static str, text: &'static str) -> Self {
        Self {
            path,
            marker,
            text,
            otherwise: None,
            only_if: None,
            is_shared: false,
        }
    }

    const fn or(mut self, marker: &'static str, text: &'static str) -> Self {
        self.otherwise = Some((marker, text));
        self
    }

    const fn only_if(mut self, condition: &'static str) -> Self {
        self.only_if = Some(condition);
        self
    }

    const fn shared(mut self) -> Self {
        self.is_shared = true;
        self
    }
}

/// Templates and tools of a language.
#[derive(Clone, Copy, Debug)]
pub struct Language {
    /// Name on the command line.
    pub name: &'static str,
    /// Files of a new project, beside those of its first kind.
    pub project: &'static [TemplateFile],
    /// Files of a kind.
    pub kind: &'static [TemplateFile],
    /// Files of a new project that decorates a foreign kind; empty if the language has no template for it.
    pub decorator: &'static [TemplateFile],
    /// The files of a kind whose CRD exists already; empty where the language has no template for it.
    pub published: &'static [TemplateFile],
    /// Lines that name a kind.
    pub kind_lines: &'static [Lines],
    /// Files of a kind's defaulter and validator.
    pub admission: &'static [TemplateFile],
    /// Lines that name a kind's defaulter and validator.
    pub admission_lines: &'static [Lines],
    /// File that lists the parts of the plugin.
    pub plugin: &'static str,
    /// Helper that a project has in place of the SDK; it identifies the language of a project.
    pub helper: Option<&'static str>,
    /// Words in lower case that cannot be module names, beside those in `names`.
    pub reserved: &'static [&'static str],
    /// Formatter of sources; without the program they stay as they are.
    pub format: Option<Formatter>,
    /// Command that builds the component of a project.
    pub build: &'static str,
    /// Programs that the build needs, each with the command that installs it. For Rust see `pilothouse_build`.
    pub tools: &'static [(&'static str, &'static str)],
    /// Next commands in the folder of a new project.
    pub next: &'static [&'static str],
}

/// A program that formats its standard input.
#[derive(Clone, Copy, Debug)]
pub struct Formatter {
    /// The program.
    pub program: &'static str,
    /// Its arguments.
    pub arguments: &'static [&'static str],
    /// Extension of its sources.
    pub ending: &'static str,
}

const PYTHON_3: (&str, &str) = (
    "python3",
    "on Debian `apt-get install python3 python3-venv`, elsewhere https://www.python.org",
);
const MAKE: (&str, &str) = (
    "make",
    "on Debian `apt-get install make`, on macOS `xcode-select --install`",
);
const NODE: &str = "on Debian `apt-get install nodejs npm`, elsewhere https://nodejs.org";

/// All languages of `pilothouse new`. A language is added here, with a folder of `author/templates`.
pub const LANGUAGES: &[Language] = &[RUST, JAVASCRIPT, PYTHON, GO, C];

macro_rules! file {
    ($path:literal, $template:literal) => {
        file!($path, $template, None)
    };
    ($path:literal, $template:literal, if $condition:literal) => {
        file!($path, $template, Some($condition))
    };
    ($path:literal, $template:literal, $condition:expr) => {
        TemplateFile {
            path: $path,
            text: include_str!(concat!("../../templates/", $template)),
            only_if: $condition,
        }
    };
}

/// Export of wit/world.wit that a finalizer needs, in a project whose world lists the component's exports.
const FINALIZER_EXPORT: Lines = Lines::new(WORLD, "exports", "export finalizer;")
    .only_if("finalizer")
    .shared();

/// Exports that a defaulter and a validator need.
const ADMISSION_EXPORTS: Lines = Lines::new(WORLD, "exports", "export defaulter;\nexport validator;").shared();

const WORLD: &str = "wit/world.wit";

const RUST: Language = Language {
    name: "rust",
    project: &[
        file!("Cargo.toml", "rust/Cargo.toml.in"),
        file!("src/lib.rs", "rust/lib.rs.in"),
        file!("sample.yaml", "rust/sample.yaml.in", if "template"),
        file!("sample.yaml", "published_sample.yaml.in", if "existing"),
        file!("accepted-findings.yaml", "accepted.yaml.in", if "findings"),
        file!("README.md", "rust/README.md.in"),
        file!("rustfmt.toml", "rust/rustfmt.toml.in"),
        file!("clippy.toml", "rust/clippy.toml.in"),
        file!(".gitignore", "rust/gitignore.in"),
        file!(".github/workflows/ci.yaml", "rust/ci.yaml.in"),
    ],
    kind: &[
        file!("src/{{module}}.rs", "rust/kind.rs.in"),
        file!("crds/{{plural}}.{{group}}.yaml", "rust/crd.yaml.in"),
        file!("scenarios/{{label}}.yaml", "rust/scenario.yaml.in"),
    ],
    decorator: &[
        file!("Cargo.toml", "rust/Cargo.toml.in"),
        file!("src/lib.rs", "rust/lib.rs.in"),
        file!("src/{{module}}.rs", "rust/decorator.rs.in"),
        file!("sample.yaml", "rust/decorator_sample.yaml.in"),
        file!("scenarios/{{label}}.yaml", "rust/decorator_scenario.yaml.in", if "built-in"),
        file!("README.md", "rust/decorator_README.md.in"),
        file!("rustfmt.toml", "rust/rustfmt.toml.in"),
        file!("clippy.toml", "rust/clippy.toml.in"),
        file!(".gitignore", "rust/gitignore.in"),
        file!(".github/workflows/ci.yaml", "rust/ci.yaml.in"),
    ],
    published: &[
        file!("src/{{module}}.rs", "rust/published.rs.in"),
        file!("crds/{{plural}}.{{group}}.yaml", "published_crd.yaml.in"),
        file!("scenarios/{{label}}.yaml", "published_scenario.yaml.in"),
    ],
    kind_lines: &[
        Lines::new("src/lib.rs", "modules", "pub mod {{module}};"),
        Lines::new("src/lib.rs", "controllers", "{{module}}::{{type}}Controller,"),
        Lines::new("src/lib.rs", "manifest", ".controller({{module}}::manifest())"),
        Lines::new("src/lib.rs", "manifest", ".crd({{module}}::CRD)").only_if("own"),
        Lines::new("src/lib.rs", "finalizers", "{{module}}::{{type}}Controller,")
            .or(
                "interfaces",
                "finalizer: (\n    {{module}}::{{type}}Controller,\n    // pilothouse:finalizers\n),",
            )
            .only_if("finalizer"),
    ],
    admission: &[file!("src/{{module}}_admission.rs", "rust/admission.rs.in")],
    admission_lines: &[
        Lines::new("src/lib.rs", "modules", "pub mod {{module}}_admission;"),
        Lines::new("src/lib.rs", "defaulters", "{{module}}_admission::{{type}}Admission,").or(
            "interfaces",
            "defaulter: (\n    {{module}}_admission::{{type}}Admission,\n    // pilothouse:defaulters\n),",
        ),
        Lines::new("src/lib.rs", "validators", "{{module}}_admission::{{type}}Admission,").or(
            "interfaces",
            "validator: (\n    {{module}}_admission::{{type}}Admission,\n    // pilothouse:validators\n),",
        ),
    ],
    plugin: "src/lib.rs",
    helper: None,
    reserved: &[],
    format: Some(Formatter {
        program: "rustfmt",
        arguments: &["--edition", "2024"],
        ending: "rs",
    }),
    build: "pilothouse build",
    tools: &[],
    next: &["cargo test", "pilothouse build", "pilothouse test", "pilothouse dev"],
};

const JAVASCRIPT: Language = Language {
    name: "js",
    project: &[
        file!("package.json", "js/package.json.in"),
        file!("tsconfig.json", "js/tsconfig.json.in"),
        file!(".npmrc", "js/npmrc.in"),
        file!("build.js", "js/build.js.in"),
        file!("plugin.js", "js/plugin.js.in"),
        file!("operator.js", "js/operator.js.in"),
        file!("pilothouse.js", "js/pilothouse.js.in"),
        file!("pilothouse.d.ts", "js/pilothouse.d.ts.in"),
        file!("imports.d.ts", "js/imports.d.ts.in"),
        file!("wit/plugin.wit", "plugin.wit.in"),
        file!("wit/world.wit", "world.wit.in"),
        file!("sample.yaml", "rust/sample.yaml.in", if "template"),
        file!("sample.yaml", "published_sample.yaml.in", if "existing"),
        file!("accepted-findings.yaml", "accepted.yaml.in", if "findings"),
        file!("README.md", "js/README.md.in"),
        file!(".gitignore", "js/gitignore.in"),
        file!(".github/workflows/ci.yaml", "js/ci.yaml.in"),
    ],
    kind: &[
        file!("kinds/{{module}}.js", "js/kind.js.in"),
        file!("test/{{module}}.test.js", "js/test.js.in"),
        file!("crds/{{plural}}.{{group}}.yaml", "crd.yaml.in"),
        file!("scenarios/{{label}}.yaml", "rust/scenario.yaml.in"),
    ],
    decorator: &[],
    published: &[
        file!("kinds/{{module}}.js", "js/published.js.in"),
        file!("test/{{module}}.test.js", "js/published_test.js.in"),
        file!("crds/{{plural}}.{{group}}.yaml", "published_crd.yaml.in"),
        file!("scenarios/{{label}}.yaml", "published_scenario.yaml.in"),
    ],
    kind_lines: &[
        Lines::new(
            "operator.js",
            "imports",
            "import { {{variable}}Controller } from \"./kinds/{{module}}.js\";",
        ),
        Lines::new("operator.js", "controllers", "{{variable}}Controller,"),
        FINALIZER_EXPORT,
    ],
    admission: &[
        file!("kinds/{{module}}_admission.js", "js/admission.js.in"),
        file!("test/{{module}}_admission.test.js", "js/admission_test.js.in"),
    ],
    admission_lines: &[
        Lines::new(
            "kinds/{{module}}.js",
            "imports",
            "import { applyDefaults, validate } from \"./{{module}}_admission.js\";",
        ),
        Lines::new("kinds/{{module}}.js", "functions", "applyDefaults,\nvalidate,"),
        ADMISSION_EXPORTS,
    ],
    plugin: "operator.js",
    helper: Some("pilothouse.js"),
    reserved: &[],
    format: None,
    build: "npm run build",
    tools: &[("node", NODE), ("npm", NODE)],
    next: &[
        "npm install",
        "npm test",
        "npm run check",
        "npm run build",
        "pilothouse test",
        "pilothouse dev",
    ],
};

const PYTHON: Language = Language {
    name: "python",
    project: &[
        file!("Makefile", "python/Makefile.in"),
        file!("requirements.txt", "python/requirements.txt.in"),
        file!("app.py", "python/app.py.in"),
        file!("plugin.py", "python/plugin.py.in"),
        file!("pilothouse.py", "python/pilothouse.py.in"),
        file!("kinds/__init__.py", "empty.in"),
        file!("tests/__init__.py", "empty.in"),
        file!("wit/plugin.wit", "plugin.wit.in"),
        file!("wit/world.wit", "world.wit.in"),
        file!("sample.yaml", "rust/sample.yaml.in", if "template"),
        file!("sample.yaml", "published_sample.yaml.in", if "existing"),
        file!("accepted-findings.yaml", "accepted.yaml.in", if "findings"),
        file!("README.md", "python/README.md.in"),
        file!(".gitignore", "python/gitignore.in"),
        file!(".github/workflows/ci.yaml", "python/ci.yaml.in"),
    ],
    kind: &[
        file!("kinds/{{module}}.py", "python/kind.py.in"),
        file!("tests/test_{{module}}.py", "python/test.py.in"),
        file!("crds/{{plural}}.{{group}}.yaml", "crd.yaml.in"),
        file!("scenarios/{{label}}.yaml", "rust/scenario.yaml.in"),
    ],
    decorator: &[],
    published: &[
        file!("kinds/{{module}}.py", "python/published.py.in"),
        file!("tests/test_{{module}}.py", "python/published_test.py.in"),
        file!("crds/{{plural}}.{{group}}.yaml", "published_crd.yaml.in"),
        file!("scenarios/{{label}}.yaml", "published_scenario.yaml.in"),
    ],
    kind_lines: &[
        Lines::new("plugin.py", "imports", "from kinds import {{module}}"),
        Lines::new("plugin.py", "controllers", "{{module}}.CONTROLLER,"),
        FINALIZER_EXPORT,
        Lines::new(
            "app.py",
            "imports",
            "from pilothouse import finalizer_export\nfrom wit_world.exports import finalizer",
        )
        .only_if("finalizer")
        .shared(),
        Lines::new(
            "app.py",
            "exports",
            "Finalizer = finalizer_export(PLUGIN, finalizer, **HOST)",
        )
        .only_if("finalizer")
        .shared(),
    ],
    admission: &[
        file!("kinds/{{module}}_admission.py", "python/admission.py.in"),
        file!("tests/test_{{module}}_admission.py", "python/admission_test.py.in"),
    ],
    admission_lines: &[
        Lines::new(
            "kinds/{{module}}.py",
            "imports",
            "from kinds import {{module}}_admission",
        ),
        Lines::new(
            "kinds/{{module}}.py",
            "functions",
            "apply_defaults={{module}}_admission.apply_defaults,\nvalidate={{module}}_admission.validate,",
        ),
        ADMISSION_EXPORTS,
        Lines::new(
            "app.py",
            "imports",
            "from pilothouse import admission_exports\nfrom wit_world.imports import admission",
        )
        .shared(),
        Lines::new(
            "app.py",
            "exports",
            "Defaulter, Validator = admission_exports(PLUGIN, admission, **HOST)",
        )
        .shared(),
    ],
    plugin: "plugin.py",
    helper: Some("pilothouse.py"),
    reserved: &[
        "and", "assert", "class", "def", "del", "elif", "except", "finally", "from", "global", "import", "is",
        "lambda", "nonlocal", "not", "or", "pass", "raise", "with",
    ],
    format: None,
    build: "make build",
    tools: &[MAKE, PYTHON_3],
    next: &["make test", "make build", "pilothouse test", "pilothouse dev"],
};

const GO: Language = Language {
    name: "go",
    project: &[
        file!("go.mod", "go/go.mod.in"),
        file!("main.go", "go/main.go.in"),
        file!("requirements.txt", "go/requirements.txt.in"),
        file!("pilothouse/pilothouse.go", "go/pilothouse.go.in"),
        file!("pilothouse/component.go", "go/component.go.in"),
        file!("pilothouse/finalizer_component.go", "go/finalizer_component.go.in"),
        file!("pilothouse/admission_component.go", "go/admission_component.go.in"),
        file!("tool/main.go", "go/tool.go.in"),
        file!("tool/wasi.wat", "go/wasi.wat.in"),
        file!("tool/wasi.wit", "go/wasi.wit.in"),
        file!("wit/plugin.wit", "plugin.wit.in"),
        file!("wit/world.wit", "world.wit.in"),
        file!("sample.yaml", "rust/sample.yaml.in", if "template"),
        file!("sample.yaml", "published_sample.yaml.in", if "existing"),
        file!("accepted-findings.yaml", "accepted.yaml.in", if "findings"),
        file!("README.md", "go/README.md.in"),
        file!(".gitignore", "go/gitignore.in"),
        file!(".github/workflows/ci.yaml", "go/ci.yaml.in"),
    ],
    kind: &[
        file!("kinds/{{package}}/{{package}}.go", "go/kind.go.in"),
        file!("kinds/{{package}}/{{package}}_test.go", "go/test.go.in"),
        file!("crds/{{plural}}.{{group}}.yaml", "crd.yaml.in"),
        file!("scenarios/{{label}}.yaml", "rust/scenario.yaml.in"),
    ],
    decorator: &[],
    published: &[
        file!("kinds/{{package}}/{{package}}.go", "go/published.go.in"),
        file!("kinds/{{package}}/{{package}}_test.go", "go/published_test.go.in"),
        file!("crds/{{plural}}.{{group}}.yaml", "published_crd.yaml.in"),
        file!("scenarios/{{label}}.yaml", "published_scenario.yaml.in"),
    ],
    kind_lines: &[
        Lines::new("main.go", "imports", "\"{{go_module}}/kinds/{{package}}\""),
        Lines::new(
            "main.go",
            "embedded",
            "//go:embed crds/{{plural}}.{{group}}.yaml\nvar {{variable}}CRD string\n\n",
        ),
        Lines::new("main.go", "crds", "{{variable}}CRD,"),
        Lines::new("main.go", "controllers", "{{package}}.Controller,"),
        FINALIZER_EXPORT,
    ],
    admission: &[
        file!("kinds/{{package}}/{{package}}_admission.go", "go/admission.go.in"),
        file!(
            "kinds/{{package}}/{{package}}_admission_test.go",
            "go/admission_test.go.in"
        ),
    ],
    admission_lines: &[
        Lines::new(
            "kinds/{{package}}/{{package}}.go",
            "functions",
            "ApplyDefaults: ApplyDefaults,\nValidate:      pilothouse.TypedValidate(Validate),",
        ),
        ADMISSION_EXPORTS,
    ],
    plugin: "main.go",
    helper: Some("pilothouse/pilothouse.go"),
    // Keywords, names that no package can be imported by, those that Go knows in every file and the project uses, and folders
    // that mean something to Go.
    reserved: &[
        "any",
        "append",
        "bool",
        "break",
        "byte",
        "case",
        "chan",
        "const",
        "continue",
        "copy",
        "default",
        "defer",
        "else",
        "error",
        "fallthrough",
        "false",
        "for",
        "func",
        "go",
        "goto",
        "if",
        "import",
        "init",
        "int",
        "interface",
        "internal",
        "len",
        "main",
        "make",
        "map",
        "new",
        "nil",
        "package",
        "panic",
        "pilothouse",
        "range",
        "return",
        "select",
        "string",
        "struct",
        "switch",
        "testdata",
        "true",
        "type",
        "var",
        "vendor",
    ],
    format: Some(Formatter {
        program: "gofmt",
        arguments: &[],
        ending: "go",
    }),
    build: "go run ./tool",
    tools: &[
        (
            "go",
            "on Debian `apt-get install golang`, elsewhere https://go.dev/dl; Go 1.24 or newer",
        ),
        PYTHON_3,
    ],
    next: &["go test ./...", "go run ./tool", "pilothouse test", "pilothouse dev"],
};

const C: Language = Language {
    name: "c",
    project: &[
        file!("Makefile", "c/Makefile.in"),
        file!("requirements.txt", "c/requirements.txt.in"),
        file!("component.c", "c/component.c.in"),
        file!("operator.c", "c/operator.c.in"),
        file!("operator.h", "c/operator.h.in"),
        file!("pilothouse.c", "c/pilothouse.c.in"),
        file!("pilothouse.h", "c/pilothouse.h.in"),
        file!("tests/host.h", "c/host.h.in"),
        file!("wit/plugin.wit", "plugin.wit.in"),
        file!("wit/world.wit", "world.wit.in"),
        file!("sample.yaml", "rust/sample.yaml.in", if "template"),
        file!("sample.yaml", "published_sample.yaml.in", if "existing"),
        file!("accepted-findings.yaml", "accepted.yaml.in", if "findings"),
        file!("README.md", "c/README.md.in"),
        file!(".gitignore", "c/gitignore.in"),
        file!(".github/workflows/ci.yaml", "c/ci.yaml.in"),
    ],
    kind: &[
        file!("kinds/{{module}}.c", "c/kind.c.in"),
        file!("tests/{{module}}.c", "c/test.c.in"),
        file!("crds/{{plural}}.{{group}}.yaml", "crd.yaml.in"),
        file!("scenarios/{{label}}.yaml", "rust/scenario.yaml.in"),
    ],
    decorator: &[],
    published: &[],
    kind_lines: &[
        Lines::new(
            "operator.h",
            "declarations",
            "extern const ph_controller {{module}}_controller;",
        ),
        Lines::new("operator.c", "controllers", "&{{module}}_controller,"),
        FINALIZER_EXPORT,
    ],
    admission: &[
        file!("kinds/{{module}}_admission.c", "c/admission.c.in"),
        file!("tests/{{module}}_admission.c", "c/admission_test.c.in"),
    ],
    admission_lines: &[
        Lines::new(
            "operator.h",
            "declarations",
            "const char *{{module}}_apply_defaults(const ph_review *review, ph_verdict *verdict);\n\
             void {{module}}_validate(const ph_review *review, ph_verdict *verdict);",
        ),
        Lines::new(
            "kinds/{{module}}.c",
            "functions",
            ".apply_defaults = {{module}}_apply_defaults,\n.validate = {{module}}_validate,",
        ),
        ADMISSION_EXPORTS,
    ],
    plugin: "operator.c",
    helper: Some("pilothouse.c"),
    reserved: &[],
    format: None,
    build: "make build",
    tools: &[MAKE, PYTHON_3],
    next: &["make test", "make build", "pilothouse test", "pilothouse dev"],
};

impl Language {
    /// Returns the language of the project in a folder, if `pilothouse new` made it in another language than Rust.
    pub fn of_project(folder: &Path) -> Option<&'static Self> {
        if folder.join("Cargo.toml").is_file() {
            return None;
        }
        let has_helper = |it: &&Self| it.helper.is_some_and(|helper| folder.join(helper).is_file());
        LANGUAGES.iter().find(has_helper)
    }

    /// Returns the first program that the build needs and that is missing, with the command that installs it.
    pub fn missing_tool(&self) -> Option<String> {
        let is_missing = |program: &str| {
            let mut asked = Command::new(program);
            asked
                .arg("--version")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            asked.status().is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        let (program, install) = self.tools.iter().find(|(program, _)| is_missing(program))?;
        Some(format!("{program} is not installed; install it: {install}"))
    }

    /// Returns a variant of the name that is not reserved in the language.
    pub fn unreserved(&self, name: String, ending: &str) -> String {
        if self.reserved.contains(&name.as_str()) {
            name + ending
        } else {
            name
        }
    }

    /// Returns the language of this name, or an error that lists the languages.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        let known = || LANGUAGES.iter().map(|it| it.name).collect::<Vec<_>>().join(", ");
        LANGUAGES.iter().find(|it| it.name == name).ok_or_else(|| {
            format!(
                "there is no template for {name}; there is one for {}. In any other language, a component of the world `plugin` \
                 of wit/plugin.wit will do",
                known()
            )
        })
    }
}

impl TemplateFile {
    /// Returns the path and the content; none if the file is not wanted.
    pub fn made(&self, values: &Values) -> Option<(String, String)> {
        let Self { path, text, only_if } = self;
        let is_wanted = only_if.is_none_or(|condition| values.holds.contains(condition));
        is_wanted.then(|| (expanded(path, values), expanded(text, values)))
    }
}

impl Lines {
    /// Returns the file and the lines; none if they are not wanted.
    pub fn made(&self, values: &Values) -> Option<MadeLines> {
        let Self {
            path,
            marker,
            text,
            otherwise,
            only_if,
            is_shared,
        } = self;
        let is_wanted = only_if.is_none_or(|condition| values.holds.contains(condition));
        is_wanted.then(|| MadeLines {
            path: filled(path, values),
            marker,
            text: filled(text, values),
            otherwise: otherwise.map(|(marker, text)| (marker, filled(text, values))),
            is_shared: *is_shared,
        })
    }
}

/// Expanded lines.
#[derive(Debug)]
pub struct MadeLines {
    /// File.
    pub path: String,
    /// Name of the marker.
    pub marker: &'static str,
    /// Lines.
    pub text: String,
    /// Marker and lines to use if the first marker is missing.
    pub otherwise: Option<(&'static str, String)>,
    /// Set if they are inserted once.
    pub is_shared: bool,
}

/// Expands a template.
///
/// # Panics
///
/// If the template names a missing value, or an `%if` has no `%end`. A test expands all of them.
fn expanded(template: &str, values: &Values) -> String {
    let mut lines = Vec::new();
    // For each enclosing `%if`, true if its lines are included.
    let mut conditions: Vec<bool> = Vec::new();
    for line in template.split('\n') {
        if let Some(condition) = line.strip_prefix("%if ") {
            conditions.push(values.holds.contains(condition));
        } else if line == "%else" {
            let last = conditions.last_mut().expect("an %else stands behind an %if");
            *last = !*last;
        } else if line == "%end" {
            conditions.pop().expect("an %end stands behind an %if");
        } else if conditions.iter().all(|holds| *holds) {
            lines.push(line);
        }
    }
    assert!(conditions.is_empty(), "an %if has no %end");
    filled(&lines.join("\n"), values)
}

fn filled(template: &str, values: &Values) -> String {
    let mut parts = template.split("{{");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").expect("a value's name ends");
        let value = values
            .texts
            .get(name)
            .unwrap_or_else(|| panic!("there is no value {name}"));
        text.push_str(value);
        text.push_str(rest);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(holds: &[&'static str]) -> Values {
        Values {
            texts: [("name", "site".to_owned())].into(),
            holds: holds.iter().copied().collect(),
        }
    }

    #[test]
    fn lines_depend_on_conditions_and_values_on_names() {
        let template = "a {{name}}\n%if x\nb\n%if y\nc\n%end\n%else\nd {{name}}{{name}}\n%end\ne\n";
        assert_eq!(expanded(template, &values(&["x", "y"])), "a site\nb\nc\ne\n");
        assert_eq!(expanded(template, &values(&["x"])), "a site\nb\ne\n");
        assert_eq!(expanded(template, &values(&["y"])), "a site\nd sitesite\ne\n");
    }

    #[test]
    fn an_unknown_language_is_refused_with_the_known_ones() {
        let error = Language::named("cobol").unwrap_err();
        assert!(
            error.starts_with("there is no template for cobol; there is one for rust"),
            "{error}"
        );
    }
}
