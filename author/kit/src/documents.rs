//! Reads Kubernetes objects from YAML or JSON, in a file, a folder or standard input. Each object keeps its place, so
//! that every error can name it.
//!
//! ```
//! use std::path::Path;
//! use pilothouse_testkit::documents::parse;
//!
//! let documents = parse(b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n", Path::new("objects.yaml"))?;
//! assert_eq!(documents[0].object["metadata"]["name"], "web");
//! assert_eq!(documents[0].place.to_string(), "objects.yaml, document 1, line 1, column 1");
//! # Ok::<(), pilothouse_testkit::documents::DocumentsError>(())
//! ```

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use pilothouse_core::{Kind, Name};
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::{DefaultMessageFormatter, Location, MessageFormatter as _, Spanned};
use thiserror::Error;

/// The path that means standard input.
pub const STANDARD_INPUT: &str = "-";

/// The most bytes of one file, or of standard input: ten times what an API server takes for one object.
const MAX_BYTES: u64 = 32 * 1024 * 1024;

/// The most objects of one input.
const MAX_OBJECTS: usize = 10_000;

/// Endings of the files that are read in a folder.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// Returns a hint for a boolean that was refused where a text is meant; empty for any other refusal.
pub fn quoting_hint(problem: &str) -> &'static str {
    let is_boolean = [
        "must be of type string: \"boolean\"",
        "expected string, got &value.valueUnstructured{Value:true}",
        "expected string, got &value.valueUnstructured{Value:false}",
    ];
    let of_field = |(_, field): (&str, &str)| field.contains("of type string");
    let is_decoded = problem
        .split_once("cannot unmarshal bool into Go")
        .is_some_and(of_field);
    if is_decoded || is_boolean.iter().any(|words| problem.contains(words)) {
        "; YAML reads y, yes, on, true and their opposites as booleans: quote the value"
    } else {
        ""
    }
}

/// One object and where it was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The object. It has an apiVersion, a kind and a name.
    pub object: Value,
    /// Its kind.
    pub kind: Kind,
    /// Its namespace and name.
    pub name: Name,
    /// Position of the object.
    pub place: Place,
}

/// Position of an object or of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file; `-` is standard input.
    pub file: PathBuf,
    /// Number of its document, from 1. Empty documents count.
    pub document: usize,
    /// Number of the item in a list, from 1.
    pub item: Option<usize>,
    /// The line in the file, from 1.
    pub line: u64,
    /// The column in the line, from 1.
    pub column: u64,
}

/// Errors of reading objects.
#[derive(Debug, Error)]
pub enum DocumentsError {
    /// The file or folder cannot be read.
    #[error("cannot read {}: {source}", Source(.file))]
    Unread {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// File without an object.
    #[error("{} is empty: it has no object; write at least one object with apiVersion, kind and metadata.name", Source(.0))]
    Empty(PathBuf),
    /// A folder without files that could have objects.
    #[error("the folder {} has no file that ends in .yaml, .yml or .json", .0.display())]
    EmptyFolder(PathBuf),
    /// Standard input was named twice.
    #[error("standard input (-) is named twice, but can be read once")]
    Twice,
    /// File over the size limit.
    #[error("{} is larger than {MAX_BYTES} bytes; split it", Source(.0))]
    TooLarge(PathBuf),
    /// More objects than the limit.
    #[error("the input has more than {MAX_OBJECTS} objects; give fewer")]
    TooMany,
    /// File that is not text.
    #[error("{}, line {line}: not UTF-8 text; write YAML or JSON", Source(.file))]
    NotText {
        /// The file.
        file: PathBuf,
        /// The line of the first byte that is none.
        line: usize,
    },
    /// Neither YAML nor JSON.
    #[error("{place}: {problem}")]
    Syntax {
        /// Position of the error.
        place: Place,
        /// The parser's message.
        problem: String,
    },
    /// YAML, but no object of Kubernetes.
    #[error("{place}: {problem}; an object has apiVersion, kind and metadata.name")]
    NoObject {
        /// Position of the document.
        place: Place,
        /// Missing part.
        problem: String,
    },
    /// The same object is there twice.
    #[error("{place}: {object} is there already: {first}; remove one of the two")]
    Duplicate {
        /// Position of the second.
        place: Box<Place>,
        /// The object.
        object: String,
        /// Position of the first.
        first: Box<Place>,
    },
}

/// Reads files, folders and standard input (`-`), in this order. No object may be there twice.
pub fn read(sources: &[impl AsRef<Path>]) -> Result<Vec<Document>, DocumentsError> {
    let mut documents = Vec::new();
    for (file, text) in texts(sources)? {
        documents.extend(parse(&text, &file)?);
    }
    distinct(&documents)?;
    Ok(documents)
}

/// The files that files, folders and standard input (`-`) mean, with the bytes of each.
pub fn texts(sources: &[impl AsRef<Path>]) -> Result<Vec<(PathBuf, Vec<u8>)>, DocumentsError> {
    let mut texts = Vec::new();
    let mut read_input = false;
    for source in sources {
        let source = source.as_ref();
        if source == Path::new(STANDARD_INPUT) {
            if std::mem::replace(&mut read_input, true) {
                return Err(DocumentsError::Twice);
            }
            texts.push((source.to_owned(), bytes(std::io::stdin().lock(), source)?));
            continue;
        }
        for file in files(source)? {
            let unread = |source| DocumentsError::Unread {
                file: file.clone(),
                source,
            };
            let opened = std::fs::File::open(&file).map_err(unread)?;
            let text = bytes(opened, &file)?;
            texts.push((file, text));
        }
    }
    Ok(texts)
}

/// Reads the objects of a text that comes from `file`. No object may be there twice.
pub fn parse(text: &[u8], file: &Path) -> Result<Vec<Document>, DocumentsError> {
    let documents = parse_repeated(text, file)?;
    if documents.is_empty() {
        return Err(DocumentsError::Empty(file.to_owned()));
    }
    distinct(&documents)?;
    Ok(documents)
}

/// Reads the objects of a text that comes from `file`. An object may be there several times, and there may be none.
pub fn parse_repeated(text: &[u8], file: &Path) -> Result<Vec<Document>, DocumentsError> {
    let text = std::str::from_utf8(text).map_err(|error| DocumentsError::NotText {
        file: file.to_owned(),
        line: text[..error.valid_up_to()].split(|byte| *byte == b'\n').count(),
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut documents = Vec::new();
    for chunk in chunks(text) {
        chunk.read(file, &mut documents)?;
        if documents.len() > MAX_OBJECTS {
            return Err(DocumentsError::TooMany);
        }
    }
    Ok(documents)
}

/// The kind and place of an object, or which of its members is missing or not as it should be.
pub fn identity(object: &Value) -> Result<(Kind, Name), String> {
    let Some(members) = object.as_object() else {
        return Err(format!("{} where an object should be", described(object)));
    };
    let text = |value: Option<&Value>, member: &str| match value {
        None | Some(Value::Null) => Err(format!("{member} is missing")),
        Some(Value::String(text)) if text.is_empty() => Err(format!("{member} is empty")),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(format!("{member} is {}, but must be a string", described(other))),
    };
    let api_version = text(members.get("apiVersion"), "apiVersion")?;
    let kind = text(members.get("kind"), "kind")?;
    let metadata = match members.get("metadata") {
        None | Some(Value::Null) => return Err("metadata.name is missing".to_owned()),
        Some(Value::Object(metadata)) => metadata,
        Some(other) => return Err(format!("metadata is {}, but must be an object", described(other))),
    };
    let name = text(metadata.get("name"), "metadata.name")?;
    let namespace = match metadata.get("namespace") {
        None | Some(Value::Null) => None,
        given => Some(text(given, "metadata.namespace")?),
    };
    let kind = Kind::from_api_version(&api_version, &kind);
    Ok((kind, Name::new(namespace.as_deref(), &name)))
}

/// The files that a path means: itself, or those of a folder by name. Folders in a folder are left alone, as by kubectl.
fn files(source: &Path) -> Result<Vec<PathBuf>, DocumentsError> {
    let unread = |error| DocumentsError::Unread {
        file: source.to_owned(),
        source: error,
    };
    if !std::fs::metadata(source).map_err(unread)?.is_dir() {
        return Ok(vec![source.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(source).map_err(unread)? {
        let path = entry.map_err(unread)?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if ending.is_some_and(|ending| ENDINGS.contains(&ending)) && path.is_file() {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(DocumentsError::EmptyFolder(source.to_owned()));
    }
    files.sort();
    Ok(files)
}

fn bytes(reader: impl Read, file: &Path) -> Result<Vec<u8>, DocumentsError> {
    let mut text = Vec::new();
    let read = reader.take(MAX_BYTES + 1).read_to_end(&mut text);
    read.map_err(|source| DocumentsError::Unread {
        file: file.to_owned(),
        source,
    })?;
    if text.len() as u64 > MAX_BYTES {
        return Err(DocumentsError::TooLarge(file.to_owned()));
    }
    Ok(text)
}

fn distinct(documents: &[Document]) -> Result<(), DocumentsError> {
    if documents.len() > MAX_OBJECTS {
        return Err(DocumentsError::TooMany);
    }
    let mut seen = HashMap::new();
    for document in documents {
        // Versions of a kind are views of one object.
        let Document { kind, name, place, .. } = document;
        if let Some(first) = seen.insert((&kind.group, &kind.kind, name), place) {
            return Err(DocumentsError::Duplicate {
                place: Box::new(place.clone()),
                object: format!("{} {name}", kind.kind),
                first: Box::new(first.clone()),
            });
        }
    }
    Ok(())
}

/// One document of a text.
struct Chunk {
    text: String,
    /// Its number, from 1.
    number: usize,
    /// Count of lines before it.
    lines_before: u64,
}

/// Divides a text at its document markers. A marker at the beginning of a line always counts: YAML allows it in no
/// scalar. Its own text becomes spaces, so that columns stay as they are in the file.
fn chunks(text: &str) -> Vec<Chunk> {
    let mut chunks = vec![Chunk {
        text: String::new(),
        number: 1,
        lines_before: 0,
    }];
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let is_marker = |marker: &str| {
            let rest = line.strip_prefix(marker);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
        };
        let number = chunks.len();
        let last = chunks.last_mut().expect("there is a first chunk");
        if is_marker("---") {
            // What stands before the first marker is a document of its own only if something is said there.
            if number == 1 && !says_something(&last.text) {
                last.text.push_str("   ");
                last.text.push_str(&line[3..]);
                continue;
            }
            chunks.push(Chunk {
                text: format!("   {}", &line[3..]),
                number: number + 1,
                lines_before: index as u64,
            });
        } else if is_marker("...") || (line.starts_with('%') && !says_something(&last.text)) {
            // The end of a document, or a directive before one: an empty line in place of it.
            last.text.push('\n');
        } else {
            last.text.push_str(line);
        }
    }
    chunks
}

/// Returns `true` if a text has more than comments and white space.
fn says_something(text: &str) -> bool {
    text.lines()
        .map(str::trim)
        .any(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The items of a list, each with its place.
#[derive(Deserialize)]
struct Items {
    items: Vec<Spanned<Value>>,
}

impl Chunk {
    fn read(&self, file: &Path, documents: &mut Vec<Document>) -> Result<(), DocumentsError> {
        if !says_something(&self.text) {
            return Ok(());
        }
        let place = |location: Location, item: Option<usize>| Place {
            file: file.to_owned(),
            document: self.number,
            item,
            line: self.lines_before + location.line().max(1),
            column: location.column().max(1),
        };
        let failed = |error: &serde_saphyr::Error| DocumentsError::Syntax {
            place: place(error.location().unwrap_or(Location::UNKNOWN), None),
            problem: DefaultMessageFormatter
                .format_message(error.without_snippet())
                .into_owned(),
        };
        let whole: Spanned<Value> = serde_saphyr::from_str(&self.text).map_err(|error| failed(&error))?;
        let Spanned {
            value: object,
            referenced,
            ..
        } = whole;
        if object.is_null() {
            return Ok(());
        }
        let mut push = |object: Value, place: Place| match identity(&object) {
            Ok((kind, name)) => {
                documents.push(Document {
                    object,
                    kind,
                    name,
                    place,
                });
                Ok(())
            }
            Err(problem) => Err(DocumentsError::NoObject { place, problem }),
        };
        if !is_list(&object) {
            return push(object, place(referenced, None));
        }
        let Items { items } = serde_saphyr::from_str(&self.text).map_err(|error| failed(&error))?;
        let mut items = items.into_iter().enumerate();
        items.try_for_each(|(index, item)| push(item.value, place(item.referenced, Some(index + 1))))
    }
}

/// Returns `true` if it is a list of objects, as `kubectl get -o yaml` writes one.
fn is_list(object: &Value) -> bool {
    let kind = object.get("kind").and_then(Value::as_str);
    kind.is_some_and(|kind| kind.ends_with("List"))
        && object.get("items").is_some_and(Value::is_array)
        && object.pointer("/metadata/name").is_none()
}

fn described(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Name of a file in messages.
struct Source<'a>(&'a Path);

impl fmt::Display for Source<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == Path::new(STANDARD_INPUT) {
            return formatter.write_str("standard input");
        }
        self.0.display().fmt(formatter)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            document,
            item,
            line,
            column,
        } = self;
        write!(formatter, "{}, document {document}", Source(file))?;
        if let Some(item) = item {
            write!(formatter, ", item {item}")?;
        }
        write!(formatter, ", line {line}, column {column}")
    }
}
