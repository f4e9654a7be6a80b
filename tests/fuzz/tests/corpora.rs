//! Plays the corpora: what a fuzzer once found, and what it begins with, keeps the promises without a fuzzer too.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pilothouse_fuzz::targets;

fn corpora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn play(name: &str) {
    let target = targets::ALL.iter().find(|target| target.name == name);
    let run = target.expect("it is a target").run;
    let mut played = 0;
    for entry in fs::read_dir(corpora().join(name)).expect("it has a corpus") {
        let path = entry.expect("it can be read").path();
        // What a panic says is not enough to find the input.
        println!("{}", path.display());
        run(&fs::read(path).expect("it can be read"));
        played += 1;
    }
    assert!(played > 0, "{name} has no corpus");
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let entries = fs::read_dir(corpora()).expect("the corpora can be read");
    let found: BTreeSet<String> = entries
        .map(|entry| {
            entry
                .expect("it can be read")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let known: BTreeSet<String> = targets::ALL.iter().map(|target| target.name.to_owned()).collect();
    assert_eq!(found, known);
}

#[test]
fn what_is_read_from_outside_keeps_the_promises() {
    for target in targets::ALL.iter().filter(|target| target.name != "plugins") {
        play(target.name);
    }
}

mod isolated {
    #[test]
    fn plugins_answer_for_whatever_object_their_schema_allows() {
        super::play("plugins");
    }
}
