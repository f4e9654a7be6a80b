//! Keeps the files of each crate in layers: no import cycle spans more than two of them.
//!
//! A file imports another if a `use` declaration or a path in its code that begins with `crate`, `self` or `super` leads
//! there. A path through a re-export leads to the file that has the item, and a re-export itself imports nothing. Code for
//! tests does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use pilothouse_end_to_end::components::root;

/// The most files of a cycle.
const LONGEST: usize = 2;

/// A path as segments.
type Segments = Vec<String>;

/// One file.
#[derive(Default)]
struct Module {
    file: String,
    /// Paths that it names, from the crate's root.
    paths: Vec<Segments>,
    /// Re-exports, by the names under which it exports them.
    exports: BTreeMap<String, Segments>,
}

fn segments(path: &str) -> Segments {
    path.split("::").map(|segment| segment.trim().to_owned()).collect()
}

/// The code without comments, and without what is for tests alone.
fn code_of(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code = lines.collect::<Vec<_>>().join("\n");
    let tests = code.match_indices("#[cfg(test)]\n").find(|(at, attribute)| {
        let item = &code[at + attribute.len()..];
        item.trim_start_matches("pub(crate) ").starts_with("mod tests {")
    });
    let code = tests.map_or(code.as_str(), |(at, _)| &code[..at]);
    code.replace("pub(in crate::", "pub(in ")
}

/// The paths of a use tree, each with the name that it brings.
fn expand(tree: &str, prefix: &str, found: &mut Vec<(String, String)>) {
    let tree = tree.trim();
    let Some((before, group)) = tree.split_once('{') else {
        let (path, name) = tree.split_once(" as ").unwrap_or((tree, ""));
        let name = if name.is_empty() {
            path.rsplit("::").next().unwrap_or_default()
        } else {
            name
        };
        if !path.is_empty() {
            found.push((format!("{prefix}{}", path.trim()), name.trim().to_owned()));
        }
        return;
    };
    let group = group.rsplit_once('}').map_or(group, |(group, _)| group);
    let (mut depth, mut start) = (0, 0);
    let prefix = format!("{prefix}{before}");
    for (index, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&group[start..index], &prefix, found);
                start = index + 1;
            }
            _ => {}
        }
    }
    expand(&group[start..], &prefix, found);
}

/// A path from the root of the crate; none if it leads to another crate.
fn absolute(path: &str, module: &[String], names: &BTreeSet<Segments>) -> Option<Segments> {
    let mut path = segments(path);
    let mut base = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module[..module.len().checked_sub(1)?].to_vec(),
        child => {
            let mut child_path = module.to_vec();
            child_path.push(child.to_owned());
            if !names.contains(&child_path) {
                return None;
            }
            path.insert(0, "self".to_owned());
            module.to_vec()
        }
    };
    for segment in &path[1..] {
        if segment == "super" {
            base.pop();
        } else if segment != "self" {
            base.push(segment.clone());
        }
    }
    Some(base)
}

/// Paths within code, such as `crate::lane::finalizers(object)`.
fn inline_paths(code: &str) -> Vec<String> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_' || character == ':';
    let words = code.split(|character: char| !is_part(character));
    words
        .filter(|word| word.starts_with("crate::") || word.starts_with("super::"))
        .map(|word| word.trim_end_matches(':').to_owned())
        .collect()
}

fn read(folder: &Path, module: &[String], found: &mut Vec<(Segments, String, String)>) {
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("it can be read").path();
        let name = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
        let mut module = module.to_vec();
        if path.is_dir() {
            module.push(name);
            read(&path, &module, found);
        } else if name != "tests" && name != "test_support" {
            if name != "mod" && name != "lib" {
                module.push(name);
            }
            let text = fs::read_to_string(&path).expect("it can be read");
            found.push((module, path.display().to_string(), code_of(&text)));
        }
    }
}

fn modules(source: &Path) -> BTreeMap<Segments, Module> {
    let mut files = Vec::new();
    read(source, &[], &mut files);
    let names: BTreeSet<Segments> = files.iter().map(|(module, ..)| module.clone()).collect();
    let parsed = files.into_iter().map(|(name, file, code)| {
        let file = file.trim_start_matches(&format!("{}/", source.display())).to_owned();
        let mut module = Module {
            file,
            ..Module::default()
        };
        let mut rest = String::new();
        for statement in code.split_inclusive(';') {
            let flat = statement.split_whitespace().collect::<Vec<_>>().join(" ");
            let Some((before, tree)) = flat.strip_suffix(';').and_then(|flat| flat.rsplit_once("use ")) else {
                rest.push_str(statement);
                continue;
            };
            let mut found = Vec::new();
            expand(tree, "", &mut found);
            let is_export = before.trim_end().ends_with("pub") || before.trim_end().ends_with(')');
            for (path, short) in found {
                let Some(path) = absolute(&path, &name, &names) else {
                    continue;
                };
                module.exports.insert(short, path.clone());
                if !is_export {
                    module.paths.push(path);
                }
            }
        }
        for path in inline_paths(&rest) {
            module.paths.extend(absolute(&path, &name, &names));
        }
        (name, module)
    });
    parsed.collect()
}

/// The file that a path leads to, through what is re-exported on the way.
fn resolve(modules: &BTreeMap<Segments, Module>, path: &[String], depth: usize) -> Option<Segments> {
    let mut at = Vec::new();
    for (index, segment) in path.iter().enumerate() {
        let mut child = at.clone();
        child.push(segment.clone());
        if modules.contains_key(&child) {
            at = child;
            continue;
        }
        if let Some(export) = modules.get(&at)?.exports.get(segment)
            && depth < 10
        {
            let whole: Segments = export.iter().chain(&path[index + 1..]).cloned().collect();
            return resolve(modules, &whole, depth + 1);
        }
        break;
    }
    modules.contains_key(&at).then_some(at)
}

/// The strongly connected components of a graph that have more than one node, by Kosaraju's algorithm.
fn cycles(edges: &BTreeMap<Segments, BTreeSet<Segments>>) -> Vec<BTreeSet<Segments>> {
    fn visit(
        edges: &BTreeMap<Segments, BTreeSet<Segments>>,
        node: &Segments,
        seen: &mut BTreeSet<Segments>,
        order: &mut Vec<Segments>,
    ) {
        if seen.insert(node.clone()) {
            for next in edges.get(node).into_iter().flatten() {
                visit(edges, next, seen, order);
            }
            order.push(node.clone());
        }
    }
    let (mut seen, mut order) = (BTreeSet::new(), Vec::new());
    for node in edges.keys() {
        visit(edges, node, &mut seen, &mut order);
    }
    let mut back: BTreeMap<Segments, BTreeSet<Segments>> = BTreeMap::new();
    for (from, nexts) in edges {
        for next in nexts {
            back.entry(next.clone()).or_default().insert(from.clone());
        }
    }
    let mut seen = BTreeSet::new();
    let mut components = Vec::new();
    for node in order.iter().rev() {
        let mut component = Vec::new();
        visit(&back, node, &mut seen, &mut component);
        if component.len() > 1 {
            components.push(component.into_iter().collect());
        }
    }
    components
}

/// The files that each file imports.
fn imports(modules: &BTreeMap<Segments, Module>) -> BTreeMap<Segments, BTreeSet<Segments>> {
    let of = |(name, module): (&Segments, &Module)| {
        let found = module.paths.iter().filter_map(|path| resolve(modules, path, 0));
        (name.clone(), found.filter(|import| import != name).collect())
    };
    modules.iter().map(of).collect()
}

fn import_cycles(source: &Path) -> Vec<BTreeSet<String>> {
    let modules = modules(source);
    let file = |name: &Segments| modules[name].file.clone();
    let cycles = cycles(&imports(&modules)).into_iter();
    cycles.map(|cycle| cycle.iter().map(file).collect()).collect()
}

/// The row of each room in ARCHITECTURE.md's table of host/runtime.
fn rows() -> BTreeMap<String, usize> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("it is there");
    let (_, table) = text.split_once("| row | rooms |").expect("the table is there");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| {
        let mut cells = row.split('|').skip(1).map(str::trim);
        Some((cells.next()?.parse().ok()?, cells.next()?))
    });
    let rooms = |(row, rooms): (usize, &str)| {
        let rooms: Vec<_> = rooms.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        rooms.into_iter().map(move |room| (room, row))
    };
    cells.flat_map(rooms).collect()
}

#[test]
fn the_runtimes_rooms_import_only_rows_above() {
    let source = root().join("host/runtime/src");
    let (rows, modules) = (rows(), modules(&source));
    let rooms: BTreeSet<&String> = modules.keys().filter_map(|name| name.first()).collect();
    assert_eq!(
        rooms,
        rows.keys().collect(),
        "ARCHITECTURE.md has all rooms, and no others"
    );
    let mut arrows = BTreeSet::new();
    for (from, imported) in imports(&modules) {
        let Some(from) = from.first() else { continue };
        let rooms = imported.iter().filter_map(|import| import.first());
        arrows.extend(rooms.map(|to| (from.clone(), to.clone())));
    }
    arrows.retain(|(from, to)| from != to);
    let wrong: Vec<_> = arrows.iter().filter(|(from, to)| rows[from] < rows[to]).collect();
    assert!(
        wrong.is_empty(),
        "these rooms import one of a row below theirs: {wrong:?}"
    );
    assert!(arrows.len() <= 90, "{} arrows between rooms", arrows.len());
}

#[test]
fn no_import_cycle_spans_more_than_two_files() {
    let crates = ["author", "description", "host", "plugins", "tests", "xtask"];
    let mut folders: Vec<_> = crates.map(|folder| root().join(folder)).into();
    let (mut files, mut long) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).expect("the folder can be read");
        let inner = entries.map(|entry| entry.expect("it can be read").path());
        let inner = inner.filter(|path| path.is_dir() && !path.ends_with("target"));
        folders.extend(inner.filter(|path| !path.ends_with("src")));
        let source = folder.join("src");
        if folder.join("Cargo.toml").exists() && source.exists() {
            files += modules(&source).len();
            let cycles = import_cycles(&source).into_iter();
            long.extend(
                cycles
                    .filter(|cycle| cycle.len() > LONGEST)
                    .map(|cycle| (folder.clone(), cycle)),
            );
        }
    }
    assert!(files > 500, "the files are found");
    assert!(
        long.is_empty(),
        "these files import each other in a cycle; let the lower one take what it needs as an argument: {long:#?}"
    );
}

#[test]
fn a_cycle_through_a_re_export_and_an_inline_path_is_found() {
    let folder = tempfile::tempdir().expect("there is room for three files");
    let files = [
        ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::One;"),
        ("a.rs", "use crate::b::{self, Two as Other};\npub struct One;"),
        ("b.rs", "pub struct Two;\nfn f() { crate::c::g() }"),
        (
            "c.rs",
            "use crate::One;\n#[cfg(test)]\nmod tests {\n    use crate::d::X;\n}",
        ),
        ("d.rs", "use crate::c::g;\npub struct X;"),
    ];
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("there is room for it");
    }
    let cycle = BTreeSet::from(["a.rs", "b.rs", "c.rs"].map(str::to_owned));
    assert_eq!(import_cycles(folder.path()), [cycle]);
}
