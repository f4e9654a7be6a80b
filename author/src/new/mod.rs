//! `pilothouse new`: makes a project outside of this repository that builds and passes its tests at once, and files for
//! another kind in an existing project. Names are checked in `names`, the texts are in `template`, and `add` inserts
//! lines into sources, even into those of a new project, which name no kind at first.

mod add;
mod names;
mod samples;
mod template;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand, ValueEnum};
use pilothouse_core::Kind;
use pilothouse_core::rights::built_in;

pub(crate) use self::add::package_name;
pub use self::names::{NameError, NewKind, PackageName};
pub(crate) use self::template::Language;
use self::template::{Formatter, TemplateFile, Values};

/// Version of the SDK that projects depend on; docs/versions.md has its guarantees.
const SDK_VERSION: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

/// Folder of the SDK in a checkout of Pilothouse.
const SDK_FOLDER: &str = "plugins/sdk";

/// Indentation of the spec in the templates of tests.
const SPEC_INDENT: usize = 12;

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse new website --kind example.com/v1/Website
  pilothouse new website --kind example.com/v1/Website --finalizer --admission
  pilothouse new website --kind example.com/v1/Website --sdk ../pilothouse
  pilothouse new website --kind example.com/v1/Website --sdk https://git.example.com/pilothouse
  pilothouse new website --kind example.com/v1/Website --lang python --admission --scope Cluster
  pilothouse new sidecars --decorates apps/v1/StatefulSet --annotation example.com/sidecar
In the folder of a project:
  pilothouse new kind example.com/v1/Gallery
  pilothouse new admission Gallery

`new kind` and `new admission` write files and put lines above comments such as `// pilothouse:controllers`; where such a comment is
missing, they print the lines.

A project in Rust depends on the SDK from crates.io. Where cargo finds no such version there, --sdk names a checkout or its URL. A
project in another language has a small helper in place of the SDK.

Exit code: 0, 1 if the files cannot be written, 2 if the command line is wrong.";

/// Help of `new kind` below the options.
const KIND_EXAMPLES: &str = "\
Examples:
  pilothouse new kind example.com/v1/Gallery
  pilothouse new kind example.com/v1/Gallery --plural galleries --finalizer
  pilothouse new kind example.com/v1/Museum --scope Cluster --admission

Run the command in the folder of a project. No file is overwritten, and lines that cannot be put into a source are printed.

Exit code: 0, 1 if the folder has no project or the files cannot be written, 2 if the command line is wrong.";

/// Help of `new admission` below the options.
const ADMISSION_EXAMPLES: &str = "\
Examples:
  pilothouse new admission Gallery

Run the command in the folder of a project that has the kind. No file is overwritten, and lines that cannot be put into a source
are printed.

Exit code: 0, 1 if the project does not have the kind or the files cannot be written, 2 if the command line is wrong.";

/// `pilothouse new`
#[derive(Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct NewCommand {
    #[command(subcommand)]
    add: Option<AddCommand>,

    /// The name of the project, of its folder and of the plugin: a-z, 0-9 and -
    #[arg(required = true)]
    name: Option<PackageName>,

    /// The kind that the operator is for, for example example.com/v1/Website
    #[arg(long, value_name = "GROUP/VERSION/KIND", required_unless_present = "decorates")]
    kind: Option<NewKind>,

    /// In place of a kind of your own: a kind of others whose objects get more, for example apps/v1/StatefulSet or v1/Service
    #[arg(
        long,
        value_name = "GROUP/VERSION/KIND",
        value_parser = names::decorated,
        requires = "annotation",
        conflicts_with_all = ["kind", "scope", "plural", "finalizer", "admission"]
    )]
    decorates: Option<NewKind>,

    /// The annotation of the objects that are decorated, whatever its value
    #[arg(long, value_name = "NAME", value_parser = names::annotation, requires = "decorates")]
    annotation: Option<String>,

    #[command(flatten)]
    options: KindOptions,

    /// The language: rust, js, python, go or c
    #[arg(long, value_name = "LANGUAGE", default_value = "rust", value_parser = Language::named)]
    lang: &'static Language,

    /// A checkout of Pilothouse, or the URL of its repository, for the SDK (default: the published version)
    #[arg(long, value_name = "PATH|URL")]
    sdk: Option<String>,
}

#[derive(Subcommand)]
enum AddCommand {
    /// Add a kind to the project in the current folder
    Kind(AddKind),
    /// Add a defaulter and a validator for a kind to the project in the current folder
    Admission(AddAdmission),
}

#[derive(Args)]
#[command(after_help = KIND_EXAMPLES)]
struct AddKind {
    /// The kind, for example example.com/v1/Gallery
    #[arg(value_name = "GROUP/VERSION/KIND")]
    kind: NewKind,

    #[command(flatten)]
    options: KindOptions,
}

#[derive(Args)]
#[command(after_help = ADMISSION_EXAMPLES)]
struct AddAdmission {
    /// The kind, for example Gallery
    #[arg(value_name = "KIND")]
    kind: String,
}

/// What a kind is to have.
#[derive(Args)]
struct KindOptions {
    /// Whether objects of the kind are in a namespace
    #[arg(long, value_enum, default_value_t, value_name = "SCOPE", ignore_case = true)]
    scope: Scope,

    /// The plural of the kind in lower case (default: the English one)
    #[arg(long, value_name = "NAME", value_parser = names::plural)]
    plural: Option<String>,

    /// Add a finalizer, which is asked before an object is deleted
    #[arg(long)]
    finalizer: bool,

    /// Add a defaulter and a validator, which are asked before an object is stored
    #[arg(long)]
    admission: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
enum Scope {
    /// In a namespace
    #[default]
    Namespaced,
    /// In none
    Cluster,
}

impl NewCommand {
    /// Writes the files, and prints the next steps.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self {
            add,
            name,
            kind,
            decorates,
            annotation,
            options,
            lang,
            sdk,
        } = self;
        match add {
            Some(AddCommand::Kind(AddKind { kind, options })) => add::kind(Path::new("."), &kind, &options),
            Some(AddCommand::Admission(AddAdmission { kind })) => add::admission(Path::new("."), &kind),
            None => {
                let name = name.context("NAME is needed")?;
                let sdk = sdk.map_or(Ok(Sdk::Published), |sdk| Sdk::of(&sdk))?;
                if let Some((kind, annotation)) = decorates.zip(annotation) {
                    let values = decorating(&name, lang, &kind, &annotation)?;
                    return create(&name, lang.decorator, false, lang, &sdk, values);
                }
                let kind = kind.context("--kind is needed")?;
                let mut files = [lang.project, lang.kind].concat();
                if options.admission {
                    files.extend(lang.admission);
                }
                let values = values(name.as_str(), lang, &kind, &options);
                create(&name, &files, options.admission, lang, &sdk, values)
            }
        }
    }
}

/// Source of a project's SDK.
#[derive(Debug, PartialEq, Eq)]
enum Sdk {
    Published,
    Folder(PathBuf),
    Repository(String),
}

impl Sdk {
    fn of(text: &str) -> anyhow::Result<Self> {
        let is_url = ["https://", "http://", "ssh://", "git://", "file://"];
        if is_url.iter().any(|scheme| text.starts_with(scheme)) {
            return Ok(Self::Repository(text.to_owned()));
        }
        // Git's short form, which cargo does not accept.
        if let Some((host, path)) = text.split_once(':').filter(|_| text.starts_with("git@")) {
            return Ok(Self::Repository(format!("ssh://{host}/{path}")));
        }
        let about =
            || format!("--sdk: cannot read {text}; give a checkout of Pilothouse, or the URL of its repository");
        let folder = match fs::canonicalize(text) {
            Err(error) if error.kind() == ErrorKind::NotFound => bail!("{}: there is no such folder", about()),
            found => found.with_context(about)?,
        };
        let folder = [folder.join(SDK_FOLDER), folder].into_iter().find(|folder| {
            fs::read_to_string(folder.join("Cargo.toml")).is_ok_and(|it| it.contains("\"pilothouse-plugin\""))
        });
        let Some(folder) = folder else {
            bail!("--sdk: {text} is no checkout of Pilothouse: it has no {SDK_FOLDER}/Cargo.toml");
        };
        Ok(Self::Folder(folder))
    }

    /// Returns the dependency for Cargo.toml.
    fn dependency(&self) -> String {
        // JSON strings are valid TOML basic strings.
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        match self {
            Self::Published => format!("version = \"{SDK_VERSION}\""),
            Self::Folder(folder) => format!("path = {}", quoted(&folder.display().to_string())),
            Self::Repository(url) => format!("git = {}", quoted(url)),
        }
    }

    /// Adds it to the values for templates.
    fn put_into(&self, values: &mut Values) {
        values.texts.insert("sdk", self.dependency());
        let install = match self {
            Self::Repository(url) => format!("--git {url} pilothouse"),
            Self::Published | Self::Folder(_) => "pilothouse".to_owned(),
        };
        values.texts.insert("install", install);
        values.holds.extend(match self {
            Self::Published => Some("published"),
            Self::Folder(_) => Some("checkout"),
            Self::Repository(_) => None,
        });
    }
}

fn create(
    name: &PackageName,
    files: &[TemplateFile],
    with_admission: bool,
    language: &Language,
    sdk: &Sdk,
    mut values: Values,
) -> anyhow::Result<()> {
    let folder = Path::new(name.as_str());
    let is_empty = fs::read_dir(folder).map_or(!folder.exists(), |mut entries| entries.next().is_none());
    ensure!(
        is_empty,
        "{} is there already, and not empty; take another name, or add a kind to the project in it with `pilothouse new kind`",
        folder.display()
    );
    ensure!(
        language.helper.is_none() || *sdk == Sdk::Published,
        "--sdk is for projects in Rust; a project in {} has a helper of its own",
        language.name
    );
    sdk.put_into(&mut values);
    let paths = write(folder, files, &values)?;
    let lines = add::lines(language, with_admission, &values);
    let left = add::put_all(folder, &lines)?.left;
    ensure!(
        left.is_empty(),
        "the template for {} has no place for {left:?}",
        language.name
    );
    for path in &paths {
        println!("{}", path.display());
    }
    format_sources(language, &paths);
    println!("\nThe project is in {}. Next:\n  cd {0}", folder.display());
    for command in language.next {
        println!("  {command}");
    }
    if language.helper.is_none() && *sdk == Sdk::Published {
        println!(
            "\npilothouse-plugin is not published yet: give --sdk PATH-OF-A-CHECKOUT, or change the dependency in {}",
            folder.join("Cargo.toml").display()
        );
    }
    Ok(())
}

/// Returns the values for the templates.
fn values(project: &str, language: &Language, kind: &NewKind, options: &KindOptions) -> Values {
    let KindOptions {
        scope,
        plural,
        finalizer,
        admission,
    } = options;
    let is_of_cluster = *scope == Scope::Cluster;
    let conditions = [
        ("own", true),
        ("cluster", is_of_cluster),
        ("finalizer", *finalizer),
        ("admission", *admission),
    ];
    let holds: BTreeSet<_> = conditions
        .into_iter()
        .filter_map(|(name, holds)| holds.then_some(name))
        .collect();
    let child = if is_of_cluster { "\"web-$NAMESPACE\"" } else { "web" };
    let texts = [
        ("name", project.to_owned()),
        ("crate", project.replace('-', "_")),
        (
            "description",
            format!("A ConfigMap and a Deployment for each {}.", kind.kind),
        ),
        ("group", kind.group.clone()),
        ("version", kind.version.clone()),
        ("kind", kind.kind.clone()),
        ("type", kind.type_name()),
        ("module", language.unreserved(kind.module(), "_kind")),
        ("variable", kind.variable()),
        ("package", language.unreserved(kind.singular(), "kind")),
        ("go_module", project.to_owned()),
        ("label", kind.label()),
        ("singular", kind.singular()),
        ("plural", plural.clone().unwrap_or_else(|| kind.plural())),
        ("child", child.to_owned()),
        ("spec", samples::in_rust(&samples::of_template(), SPEC_INDENT)),
    ];
    Values {
        texts: texts.into(),
        holds,
    }
}

/// Returns the values for the templates of a project that decorates a foreign kind.
fn decorating(name: &PackageName, language: &Language, kind: &NewKind, annotation: &str) -> anyhow::Result<Values> {
    ensure!(
        !language.decorator.is_empty(),
        "--decorates is for projects in Rust; in a project in {}, give the controller of the kind a filter as docs/decorate.md shows",
        language.name
    );
    let served = built_in::served(&Kind::new(&*kind.group, &*kind.version, &*kind.kind));
    let namespaced = served.map(|served| served.facts.namespaced);
    let is_of_cluster = namespaced == Some(false);
    let options = KindOptions {
        scope: if is_of_cluster {
            Scope::Cluster
        } else {
            Scope::Namespaced
        },
        plural: None,
        finalizer: false,
        admission: false,
    };
    let mut values = values(name.as_str(), language, kind, &options);
    let api_version = if kind.group.is_empty() {
        kind.version.clone()
    } else {
        format!("{}/{}", kind.group, kind.version)
    };
    let yaml = |name: &str| {
        let object = samples::decorated(&api_version, &kind.kind, name, annotation);
        serde_saphyr::to_string(&object).context("writing the sample")
    };
    let (decorated, place) = if is_of_cluster {
        ("\"web-$NAMESPACE\"", ", namespace: default")
    } else {
        ("web", "")
    };
    let object = yaml(decorated.trim_matches('"'))?;
    let indented: Vec<String> = object.lines().map(|line| format!("          {line}")).collect();
    values.holds.remove("own");
    values.holds.insert("decorates");
    if namespaced.is_some() {
        values.holds.insert("built-in");
    }
    values.texts.extend([
        (
            "description",
            format!("A ConfigMap for each {} with the annotation {annotation}.", kind.kind),
        ),
        ("annotation", annotation.to_owned()),
        ("sample", yaml("sample")?.trim_end().to_owned()),
        ("scenario_object", indented.join("\n")),
        ("decoration", format!("\"{}-decoration\"", decorated.trim_matches('"'))),
        ("decoration_place", place.to_owned()),
        ("decorated", decorated.to_owned()),
        ("api_version", api_version),
    ]);
    Ok(values)
}

/// Writes files that must not exist yet. Nothing is written if one of them does, or if two of them are the same file.
fn write(folder: &Path, files: &[TemplateFile], values: &Values) -> anyhow::Result<Vec<PathBuf>> {
    let made: Vec<_> = files.iter().filter_map(|file| file.made(values)).collect();
    let mut names = BTreeSet::new();
    for (path, _) in &made {
        ensure!(
            names.insert(path),
            "the kind {} would have the file {path}, which each project has for something else; take another name for the kind; \
             nothing was written",
            values.texts["kind"]
        );
        let path = folder.join(path);
        ensure!(
            !path.exists(),
            "{} is there already; nothing was written",
            path.display()
        );
    }
    let mut paths = Vec::new();
    for (path, text) in made {
        let path = folder.join(path);
        let written = path
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&path, text));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        paths.push(path);
    }
    Ok(paths)
}

/// Runs the language's own formatter, which orders lines in these files, and breaks those that long names make too
/// long. Without the program they stay as they are. Each file goes through its standard input: given names, rustfmt
/// would also format the modules that a file names.
fn format_sources(language: &Language, files: &[PathBuf]) {
    let Some(Formatter {
        program,
        arguments,
        ending,
    }) = language.format
    else {
        return;
    };
    for file in files
        .iter()
        .filter(|file| file.extension().is_some_and(|it| it == ending))
    {
        let Ok(input) = File::open(file) else { continue };
        let formatted = Command::new(program)
            .args(arguments)
            .current_dir(
                file.parent()
                    .filter(|it| *it != Path::new(""))
                    .unwrap_or(Path::new(".")),
            )
            .stdin(input)
            .stderr(Stdio::null())
            .output();
        if let Ok(output) = formatted
            && output.status.success()
            && !output.stdout.is_empty()
        {
            // A file that cannot be written stays as it is, and works as well.
            let _ = fs::write(file, output.stdout);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::template::LANGUAGES;
    use super::*;

    /// Returns all values that a project can have.
    fn everything(language: &Language, kind: &NewKind) -> Values {
        let options = KindOptions {
            scope: Scope::Cluster,
            plural: None,
            finalizer: true,
            admission: true,
        };
        let mut values = values("site", language, kind, &options);
        Sdk::Published.put_into(&mut values);
        values
    }

    #[test]
    fn no_kind_has_a_file_that_its_project_has_for_something_else() {
        let mut tried = BTreeSet::new();
        for language in LANGUAGES {
            let files = [language.project, language.kind, language.admission].concat();
            for named_after in LANGUAGES
                .iter()
                .flat_map(|it| [it.project, it.kind, it.admission].concat())
            {
                let name = Path::new(named_after.path).file_name().unwrap().to_str().unwrap();
                let stem = name.trim_start_matches('.').split('.').next().unwrap();
                let words = stem
                    .split(|it: char| !it.is_ascii_alphanumeric())
                    .filter(|it| !it.is_empty());
                let name: String = words.map(|word| word[..1].to_uppercase() + &word[1..]).collect();
                let kind: NewKind = format!("example.com/v1/{name}").parse().unwrap();
                let folder = tempfile::tempdir().unwrap();
                let written = write(folder.path(), &files, &everything(language, &kind));
                assert!(written.is_ok(), "{} {name}: {}", language.name, written.unwrap_err());
                tried.insert(name);
            }
        }
        for name in [
            "Build",
            "Plugin",
            "Component",
            "Pilothouse",
            "Lib",
            "Operator",
            "ModuleAdmission",
        ] {
            assert!(tried.contains(name), "{name}: {tried:?}");
        }
    }

    #[test]
    fn two_files_of_one_name_are_refused_and_nothing_is_written() {
        let file = |path| TemplateFile {
            path,
            text: "text",
            only_if: None,
        };
        let folder = tempfile::tempdir().unwrap();
        let kind = "example.com/v1/Site".parse().unwrap();
        let files = [file("other.js"), file("site.js"), file("{{module}}.js")];
        let error = write(folder.path(), &files, &everything(&LANGUAGES[0], &kind))
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("the kind Site would have the file site.js"),
            "{error}"
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_sdk_is_a_version_a_checkout_or_a_repository() {
        assert_eq!(Sdk::Published.dependency(), "version = \"0.1\"");
        let url = "https://git.example.com/pilothouse";
        assert_eq!(Sdk::of(url).unwrap().dependency(), format!("git = \"{url}\""));
        assert_eq!(
            Sdk::of("git@a.b:c/d").unwrap(),
            Sdk::Repository("ssh://git@a.b/c/d".to_owned())
        );
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let sdk = fs::canonicalize(checkout.join(SDK_FOLDER)).unwrap();
        for folder in [&checkout, &sdk] {
            assert_eq!(
                Sdk::of(&folder.display().to_string()).unwrap(),
                Sdk::Folder(sdk.clone())
            );
        }
        let error = Sdk::of(env!("CARGO_MANIFEST_DIR")).unwrap_err().to_string();
        assert!(error.contains("is no checkout of Pilothouse"), "{error}");
        assert!(
            Sdk::of("/no/such/folder")
                .unwrap_err()
                .to_string()
                .contains("/no/such/folder")
        );
    }
}
