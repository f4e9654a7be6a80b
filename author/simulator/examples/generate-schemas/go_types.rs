//! Reads the Go types: the serialisation of zeros, and the numbers of fields in the binary form.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

/// Places of the Go types of a definition: prefix of the definition's name, module, folder of the module.
const SOURCES: &[(&str, &str, &str)] = &[
    ("io.k8s.api.", "api", ""),
    ("io.k8s.apimachinery.pkg.apis.", "apimachinery", "pkg/apis"),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.",
        "apiextensions-apiserver",
        "pkg/apis",
    ),
];

/// Serialisation of the zero values of a type's fields in Go.
#[derive(Default)]
struct Zeros {
    /// Pointers: a zero that was given is kept.
    kept: BTreeSet<String>,
    /// Values without `omitempty`, and structs such as times that `omitempty` never drops: written even when not given.
    always: BTreeSet<String>,
    /// Structs with `omitzero`, which go when they are empty.
    dropped: BTreeSet<String>,
    /// Types of the same package whose fields are this type's own.
    inline: Vec<String>,
    /// Fields by their number in the binary form.
    numbers: BTreeMap<String, Field>,
}

/// Meaning of a field's number.
enum Field {
    Named(String),
    Embedded(String),
}

/// The packages that were read so far.
pub struct Sources {
    modules: PathBuf,
    packages: BTreeMap<PathBuf, BTreeMap<String, Zeros>>,
}

impl Sources {
    pub fn new(modules: &Path) -> Self {
        Self {
            modules: modules.to_owned(),
            packages: BTreeMap::new(),
        }
    }

    /// The package of a definition and the name of its type; None where there is no Go type.
    fn of(&mut self, name: &str) -> Result<Option<(&BTreeMap<String, Zeros>, String)>> {
        let found = SOURCES
            .iter()
            .find_map(|(prefix, module, folder)| name.strip_prefix(prefix).map(|rest| (rest, module, folder)));
        let Some((rest, module, folder)) = found else {
            return Ok(None);
        };
        let Some((package, kind)) = rest.rsplit_once('.') else {
            return Ok(None);
        };
        let path = module_folder(&self.modules, module)?
            .join(folder)
            .join(package.replace('.', "/"));
        if !self.packages.contains_key(&path) {
            self.packages.insert(path.clone(), package_zeros(&path)?);
        }
        Ok(Some((&self.packages[&path], kind.to_owned())))
    }
}

/// One of the sets of a type's fields.
type Select = fn(&Zeros) -> BTreeSet<String>;
pub type Tables = (BTreeMap<String, Value>, BTreeMap<String, Value>);

/// Returns the serialisation of zeros, and the numbers of fields in the binary form, for each definition.
pub fn of_go_types<'a>(sources: &mut Sources, names: impl Iterator<Item = &'a String>) -> Result<Tables> {
    let (mut zeros, mut numbers) = (BTreeMap::new(), BTreeMap::new());
    for name in names {
        let Some((types, kind)) = sources.of(name)? else {
            continue;
        };
        let mut entry = Map::new();
        let selections: [(&str, Select); 3] = [
            ("kept", |zeros| zeros.kept.clone()),
            ("always", |zeros| zeros.always.clone()),
            ("dropped", |zeros| zeros.dropped.clone()),
        ];
        for (member, select) in selections {
            let fields = with_inline(types, &kind, &select);
            if !fields.is_empty() {
                entry.insert(member.to_owned(), fields.into_iter().collect());
            }
        }
        if !entry.is_empty() {
            zeros.insert(name.clone(), Value::Object(entry));
        }
        let fields = numbered(types, &kind);
        if fields.as_object().is_some_and(|fields| !fields.is_empty()) {
            numbers.insert(name.clone(), fields);
        }
    }
    Ok((zeros, numbers))
}

/// Names by number; an embedded type is an object of its own.
fn numbered(types: &BTreeMap<String, Zeros>, kind: &str) -> Value {
    let Some(zeros) = types.get(kind) else { return json!({}) };
    let fields = zeros.numbers.iter().map(|(number, field)| {
        let field = match field {
            Field::Named(name) => json!(name),
            Field::Embedded(kind) => numbered(types, kind),
        };
        (number.clone(), field)
    });
    fields.collect::<Map<_, _>>().into()
}

fn with_inline(
    types: &BTreeMap<String, Zeros>,
    kind: &str,
    select: &impl Fn(&Zeros) -> BTreeSet<String>,
) -> BTreeSet<String> {
    let Some(zeros) = types.get(kind) else {
        return BTreeSet::new();
    };
    let mut fields = select(zeros);
    for inline in &zeros.inline {
        fields.extend(with_inline(types, inline, select));
    }
    fields
}

fn module_folder(modules: &Path, module: &str) -> Result<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(modules)
        .with_context(|| format!("list {}", modules.display()))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with(&format!("{module}@")))
        })
        .collect();
    found.sort();
    found
        .pop()
        .with_context(|| format!("there is no {module}@VERSION in {}", modules.display()))
}

fn package_zeros(folder: &Path) -> Result<BTreeMap<String, Zeros>> {
    let mut types = BTreeMap::new();
    let entries = std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
            .to_owned();
        if name.starts_with("zz_generated")
            || name.ends_with("_test.go")
            || path.extension().is_none_or(|extension| extension != "go")
        {
            continue;
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let mut current: Option<(String, Zeros)> = None;
        for line in text.lines() {
            if let Some(name) = line
                .strip_prefix("type ")
                .and_then(|rest| rest.strip_suffix(" struct {"))
            {
                current = Some((name.to_owned(), Zeros::default()));
            } else if line == "}" {
                types.extend(current.take());
            } else if let Some((_, zeros)) = &mut current {
                field(line, zeros);
            }
        }
    }
    Ok(types)
}

/// Reads one line of a struct: `Name Type `json:"name,options" ...``, or an embedded type.
fn field(line: &str, zeros: &mut Zeros) {
    let line = line.trim();
    let Some((declaration, tags)) = line.split_once('`') else {
        return;
    };
    let Some(tag) = tags.split_once("json:\"").and_then(|(_, rest)| rest.split_once('"')) else {
        return;
    };
    let (name, options) = tag.0.split_once(',').unwrap_or((tag.0, ""));
    let words: Vec<&str> = declaration.split_whitespace().collect();
    let number = tags
        .split_once("protobuf:\"")
        .and_then(|(_, rest)| rest.split(',').nth(1))
        .filter(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
    if name.is_empty() {
        zeros.inline.extend(words.first().map(|word| (*word).to_owned()));
        if let (Some(number), Some(word)) = (number, words.first()) {
            zeros
                .numbers
                .insert(number.to_owned(), Field::Embedded((*word).to_owned()));
        }
        return;
    }
    if let Some(number) = number {
        zeros.numbers.insert(number.to_owned(), Field::Named(name.to_owned()));
    }
    let Some(kind) = words.get(1) else { return };
    let bare = kind.rsplit('.').next().unwrap_or(kind);
    let never_empty = ["Time", "MicroTime", "Quantity", "IntOrString"].contains(&bare) && !kind.starts_with(['*', '[']);
    if options.contains("omitzero") {
        zeros.dropped.insert(name.to_owned());
    } else if kind.starts_with('*') {
        zeros.kept.insert(name.to_owned());
    } else if never_empty || !options.contains("omitempty") {
        zeros.always.insert(name.to_owned());
    }
}
