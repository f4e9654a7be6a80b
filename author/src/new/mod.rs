//! `pilothouse new`: makes a project outside of this repository that builds and passes its tests at once, and files for
//! another kind in an existing project. Names are checked in `names`, the texts are in `template`, and `add` inserts
//! lines into sources, even into those of a new project, which name no kind at first.

mod add;
mod members;
mod names;
mod published;
mod samples;
mod template;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use clap::error::ErrorKind as UsageError;
use clap::{Args, Subcommand, ValueEnum};
use pilothouse_core::Kind;
use pilothouse_core::rights::built_in;

pub(crate) use self::add::package_name;
use self::names::GivenKind;
pub use self::names::{NameError, NewKind, PackageName};
use self::published::PublishedKind;
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
  pilothouse new backups --crd backups.example.org.yaml
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

    /// The kind that the operator is for, for example example.com/v1/Website; with --crd, the version of it
    #[arg(long, value_name = "GROUP/VERSION/KIND", required_unless_present_any = ["decorates", "crds"])]
    kind: Option<GivenKind>,

    /// In place of a new CRD: a file with a CRD that exists already, which is kept as it is. May be repeated
    #[arg(long = "crd", value_name = "FILE", conflicts_with_all = ["decorates", "scope", "plural", "finalizer", "admission"])]
    crds: Vec<PathBuf>,

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

    /// For a project in Rust: a checkout of Pilothouse, or the URL of its repository, for the SDK (default: the published version)
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

    /// Where the SDK is says the project.
    #[arg(long, hide = true)]
    sdk: Option<String>,
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
            crds,
            decorates,
            annotation,
            options,
            lang,
            sdk,
        } = self;
        match add {
            Some(AddCommand::Kind(AddKind { sdk: Some(_), .. })) => clap::Error::raw(
                UsageError::UnknownArgument,
                "--sdk is for a new project; this one has the SDK already, and Cargo.toml says where from\n",
            )
            .exit(),
            Some(AddCommand::Kind(AddKind {
                kind,
                options,
                sdk: None,
            })) => add::kind(Path::new("."), &kind, &options),
            Some(AddCommand::Admission(AddAdmission { kind })) => add::admission(Path::new("."), &kind),
            None => {
                let name = name.context("NAME is needed")?;
                let sdk = sdk.map_or(Ok(Sdk::Published), |sdk| Sdk::of(&sdk))?;
                if let Some((kind, annotation)) = decorates.zip(annotation) {
                    let values = decorating(&name, lang, &kind, &annotation)?;
                    return create(&name, lang.decorator, false, lang, &sdk, values, &[]);
                }
                if !crds.is_empty() {
                    return for_published(&name, &crds, kind.map(|given| given.kind).as_ref(), lang, &sdk);
                }
                let GivenKind { kind, refused } = kind.context("--kind is needed")?;
                if let Some(error) = refused {
                    clap::Error::raw(UsageError::ValueValidation, format!("--kind: {error}\n")).exit();
                }
                let mut files = [lang.project, lang.kind].concat();
                if options.admission {
                    files.extend(lang.admission);
                }
                let values = values(name.as_str(), lang, &kind, &options);
                create(&name, &files, options.admission, lang, &sdk, values, &[])
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
    others: &[Values],
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
    let mut paths = write(folder, files, &values)?;
    let mut lines = add::lines(language, with_admission, &values);
    for values in others {
        paths.extend(write(folder, language.published, values)?);
        lines.extend(add::lines(language, with_admission, values));
    }
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
        ("template", true),
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

/// Makes a project for kinds whose CRDs exist already: with the first one, and then the others in it.
fn for_published(
    name: &PackageName,
    files: &[PathBuf],
    wanted: Option<&NewKind>,
    language: &'static Language,
    sdk: &Sdk,
) -> anyhow::Result<()> {
    ensure!(
        !language.published.is_empty(),
        "there is no template in {} for a CRD that exists; there is one in rust, js, python and go",
        language.name
    );
    let mut kinds = Vec::new();
    for file in files {
        kinds.push(PublishedKind::read(file, wanted)?);
    }
    if let Some(wanted) = wanted.filter(|wanted| !kinds.iter().any(|it| it.kind == **wanted)) {
        let found: Vec<String> = kinds.iter().map(|it| it.kind.to_string()).collect();
        bail!("--kind {wanted}: the CRD is of {}", found.join(", "));
    }
    let mut all = Vec::new();
    for published in &kinds {
        all.push(published.values(name.as_str(), language)?);
    }
    let joined = |part: &str, between: &str| {
        let parts: Vec<&str> = all
            .iter()
            .map(|values| values.texts[part].as_str())
            .filter(|it| !it.is_empty())
            .collect();
        parts.join(between)
    };
    let (samples, accepted) = (joined("sample", "\n---\n"), joined("accepted", ""));
    let mut values = all.remove(0);
    values.holds.extend((!accepted.is_empty()).then_some("findings"));
    values.texts.extend([("sample", samples), ("accepted", accepted)]);
    let files = [language.project, language.published].concat();
    create(name, &files, false, language, sdk, values, &all)?;
    for published in &kinds {
        published.tell();
    }
    Ok(())
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
    values.holds.remove("template");
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
