//! Compares `wit/plugin.wit` with the frozen contracts. Comments, blank lines and the order of items may differ. Every
//! interface and world of a frozen contract must be there, word for word, because a component names them all. New
//! interfaces and worlds are allowed.

use std::collections::BTreeMap;
use std::fs;

use pilothouse_end_to_end::components::root;

use super::folder;

/// The package, and each interface and world by its name, without comments and with one space between words.
#[derive(Debug, PartialEq, Eq)]
struct Contract {
    package: String,
    items: BTreeMap<String, String>,
}

impl Contract {
    fn read(text: &str) -> Self {
        let words = text.lines().map(|line| line.split("//").next().unwrap_or_default());
        let text: Vec<&str> = words.flat_map(str::split_whitespace).collect();
        let text = text.join(" ");
        let (package, mut rest) = text.split_once(';').expect("a contract begins with its package");
        let mut items = BTreeMap::new();
        while !rest.trim().is_empty() {
            let open = rest.find('{').expect("an item has a body");
            let mut depth = 0;
            let end = rest[open..]
                .char_indices()
                .find(|(_, letter)| {
                    depth += i32::from(*letter == '{') - i32::from(*letter == '}');
                    depth == 0
                })
                .expect("each brace is closed");
            let (item, after) = rest.split_at(open + end.0 + 1);
            let name = item[..item.find('{').expect("it was found above")].trim().to_owned();
            assert!(
                items.insert(name.clone(), item.trim().to_owned()).is_none(),
                "{name} is there twice"
            );
            rest = after;
        }
        Self {
            package: package.to_owned(),
            items,
        }
    }

    /// Returns the parts of this contract that another one lacks or changes.
    fn missing_in(&self, other: &Self) -> Vec<String> {
        if self.package != other.package {
            return vec![self.package.clone()];
        }
        let differs = |name: &&String| other.items.get(*name) != self.items.get(*name);
        self.items.keys().filter(differs).cloned().collect()
    }
}

#[test]
fn the_contract_still_has_all_of_0_1_0_as_it_was_frozen() {
    let read = |path: std::path::PathBuf| Contract::read(&fs::read_to_string(path).unwrap());
    let frozen = read(folder("0.1.0").join("plugin.wit"));
    assert_eq!(frozen.items.len(), 15, "{:?}", frozen.items.keys());
    let missing = frozen.missing_in(&read(root().join("wit/plugin.wit")));
    assert!(
        missing.is_empty(),
        "wit/plugin.wit does not have {} as tests/frozen/0.1.0/plugin.wit has it, so components that were built against 0.1.0 \
         would not link; take the change back, or make it in a new version of the package",
        missing.join(", ")
    );
}

#[test]
fn only_comments_and_new_interfaces_are_no_difference() {
    let text = fs::read_to_string(folder("0.1.0").join("plugin.wit")).unwrap();
    let frozen = Contract::read(&text);
    let missing = |changed: String| frozen.missing_in(&Contract::read(&changed));
    assert_eq!(
        missing(text.replace("/// The plugin's configuration", "/// Its configuration")),
        Vec::<String>::new()
    );
    assert_eq!(
        missing(text.clone() + "interface more { f: func(); }"),
        Vec::<String>::new()
    );
    for (from, to, item) in [
        ("attempt: u32", "attempt: u64", "interface types"),
        ("create-only,", "create-only, other,", "interface types"),
        ("import clock;", "", "world plugin"),
        ("validate: func", "judge: func", "interface validator"),
        ("@0.1.0", "@0.1.1", "package pilothouse:plugin@0.1.0"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        assert_eq!(missing(changed), [item], "{from} -> {to}");
    }
}
