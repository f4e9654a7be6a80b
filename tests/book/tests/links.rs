//! The links of the documentation: each leads to a page, a heading or a file that is there, each page is in the book, and
//! what is outside of the book is linked in the way that `cargo xtask book` rewrites.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use pilothouse_book::markdown::{Page, page};
use pilothouse_book::{pages, root};

/// The pages outside of the book whose links are checked, too.
const OTHERS: [&str; 19] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "RELEASING.md",
    "ROADMAP.md",
    "deploy/README.md",
    "host/GLOSSARY.md",
    "plugins/sdk/README.md",
    "tests/README.md",
    "tests/faults/README.md",
    "tests/fuzz/README.md",
    "plugins/app-service/README.md",
    "plugins/examples/README.md",
    "plugins/examples/website-c/README.md",
    "plugins/examples/website-go/README.md",
    "plugins/examples/website-js/README.md",
    "plugins/examples/website-python/README.md",
    "author/kit/README.md",
];

const SUMMARY: &str = "docs/SUMMARY.md";

fn all_pages() -> BTreeMap<String, (String, Page)> {
    let mut paths = pages("docs").expect("docs/ can be read");
    paths.extend(OTHERS.map(str::to_owned));
    let read = |path: String| {
        let text = fs::read_to_string(root().join(&path)).expect("the page can be read");
        let page = page(&text);
        (path, (text, page))
    };
    paths.into_iter().map(read).collect()
}

/// Returns the target of a page's link, from the root; none if that is outside of the repository.
fn target(from: &str, link: &str) -> Option<String> {
    let joined = Path::new(from).parent().unwrap_or(Path::new("")).join(link);
    let mut path = PathBuf::new();
    for component in joined.components() {
        match component {
            Component::ParentDir if !path.pop() => return None,
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    Some(path.to_string_lossy().into_owned())
}

fn is_external(link: &str) -> bool {
    link.starts_with("https://") || link.starts_with("http://") || link.starts_with("mailto:")
}

/// Returns the error of a link.
fn fault(pages: &BTreeMap<String, (String, Page)>, from: &str, link: &str) -> Option<String> {
    let (path, anchor) = link
        .split_once('#')
        .map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let path = if path.is_empty() {
        from.to_owned()
    } else {
        target(from, path).unwrap_or_default()
    };
    if path.is_empty() || !root().join(&path).exists() {
        return Some(format!("{from}: nothing is at {link}"));
    }
    let anchor = anchor?;
    let has_anchor = match pages.get(&path) {
        Some((_, page)) => page.anchors.contains(anchor),
        None => page(&fs::read_to_string(root().join(&path)).unwrap_or_default())
            .anchors
            .contains(anchor),
    };
    (!has_anchor).then(|| format!("{from}: {path} has no heading for {link}"))
}

#[test]
fn every_link_leads_to_a_file_and_a_heading_that_are_there() {
    let pages = all_pages();
    let mut faults = Vec::new();
    let mut checked = 0;
    for (from, (_, page)) in &pages {
        for link in page.links.iter().filter(|link| !is_external(link)) {
            // rustdoc resolves what the SDK's README links to in the crate.
            if from == "plugins/sdk/README.md" && link.starts_with("crate::") {
                continue;
            }
            checked += 1;
            faults.extend(fault(&pages, from, link));
        }
    }
    assert!(checked > 100, "only {checked} links were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_page_is_in_the_book_once() {
    let pages = all_pages();
    let (_, summary) = &pages[SUMMARY];
    let listed: Vec<_> = summary
        .links
        .iter()
        .map(|link| target(SUMMARY, link).unwrap())
        .collect();
    let unique: BTreeSet<_> = listed.iter().cloned().collect();
    assert_eq!(unique.len(), listed.len(), "a page is listed twice");
    let there: BTreeSet<_> = pages
        .keys()
        .filter(|path| path.starts_with("docs/") && *path != SUMMARY)
        .cloned()
        .collect();
    assert_eq!(unique, there, "docs/SUMMARY.md does not list the pages of docs/");
}

/// `cargo xtask book` rewrites links that begin with `](../` and lead out of the book, and no others.
#[test]
fn links_out_of_the_book_have_a_form_that_is_rewritten() {
    for (from, (text, page)) in all_pages() {
        if !from.starts_with("docs/") {
            continue;
        }
        for link in page.links.iter().filter(|link| !is_external(link)) {
            let path = link.split('#').next().unwrap();
            let leaves = !path.is_empty() && !target(&from, path).unwrap().starts_with("docs/");
            assert!(
                !leaves || text.contains(&format!("]({link})")),
                "{from}: write {link} as [text]({link})"
            );
        }
    }
}
