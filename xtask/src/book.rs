//! `cargo xtask book`: builds docs/ with mdBook. On mdBook's way through, this program makes links that leave the book
//! lead to the repository. A test of `tests/book` checks their targets.

use std::env;
use std::io::{self, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::cargo_tool::CargoTool;
use crate::root;

/// The mdBook that builds the book. Without the features of `mdbook serve`, which take longer to compile than the rest.
const MDBOOK: CargoTool = CargoTool {
    name: "mdbook",
    version: "0.5.4",
    says: "mdbook v0.5.4",
    options: &["--no-default-features", "--features", "search", "--debug"],
    takes: "about a minute",
};

/// Target of links that leave the book.
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// Options of `cargo xtask book`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct BookOptions {
    /// What mdBook asks of its preprocessor: `supports RENDERER`, or nothing, with a book on standard input.
    #[arg(long, hide = true, num_args = 0.., value_name = "WORD")]
    preprocess: Option<Vec<String>>,
}

/// Builds the book, or answers mdBook.
pub fn run(options: &BookOptions) -> Result<()> {
    match &options.preprocess {
        None => build(),
        // It supports every renderer.
        Some(words) if !words.is_empty() => Ok(()),
        Some(_) => preprocess(),
    }
}

fn build() -> Result<()> {
    let this = env::current_exe().context("find this program")?;
    let status = Command::new(MDBOOK.installed()?)
        .current_dir(root())
        .args(["build", "docs"])
        // In place of book.toml's `cargo xtask`, which would look whether this program has to be built.
        .env(
            "MDBOOK_PREPROCESSOR__REPOSITORY__COMMAND",
            format!("{} book --preprocess", this.display()),
        )
        .status()
        .context("run mdbook")?;
    ensure!(status.success(), "`mdbook build docs` ended with {status}");
    let page = root().join("target/book/index.html");
    ensure!(page.exists(), "mdbook has not written {}", page.display());
    println!("the book is in target/book: open {}", page.display());
    Ok(())
}

/// Reads `[context, book]` and writes the book.
fn preprocess() -> Result<()> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).context("read what mdBook says")?;
    let said: Value = serde_json::from_str(&text).context("mdBook says something else than JSON")?;
    let mut book = said[1].clone();
    ensure!(book.is_object(), "mdBook's JSON has no book");
    rewrite_chapters(&mut book);
    serde_json::to_writer(io::stdout().lock(), &book).context("answer mdBook")?;
    io::stdout().flush().context("answer mdBook")
}

/// Rewrites all chapters, wherever they are in the book.
fn rewrite_chapters(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(rewrite_chapters),
        Value::Object(members) => {
            let path = members.get("path").and_then(Value::as_str).map(str::to_owned);
            if let (Some(path), Some(Value::String(content))) = (path, members.get_mut("content")) {
                *content = with_links_to_the_repository(&path, content);
            }
            members.values_mut().for_each(rewrite_chapters);
        }
        _ => {}
    }
}

/// The chapter at that path below docs/, with links to the repository in place of those that leave docs/.
fn with_links_to_the_repository(path: &str, content: &str) -> String {
    let mut rewritten = String::new();
    let mut parts = content.split("](../");
    rewritten.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let end = part.find([')', '\n']).unwrap_or(part.len());
        let (link, rest) = part.split_at(end);
        let (file, anchor) = link
            .split_once('#')
            .map_or((link, None), |(file, anchor)| (file, Some(anchor)));
        let link = match from_root(path, &format!("../{file}")) {
            Some(file) => {
                let form = if root().join(&file).is_dir() { "tree" } else { "blob" };
                let anchor = anchor.map(|anchor| format!("#{anchor}")).unwrap_or_default();
                format!("]({REPOSITORY}/{form}/main/{}{anchor}", file.display())
            }
            None => format!("](../{link}"),
        };
        rewritten.push_str(&link);
        rewritten.push_str(rest);
    }
    rewritten
}

/// The file that a link of a chapter names, from the root of the repository; none if it is in the book.
fn from_root(chapter: &str, link: &str) -> Option<PathBuf> {
    let mut path = PathBuf::from("docs").join(chapter);
    path.pop();
    for component in Path::new(link).components() {
        match component {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    (!path.starts_with("docs")).then_some(path)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn links_that_leave_the_book_lead_to_the_repository() {
        let page = "[a](../README.md#b), [c](d.md), [e](../deploy) and [f](reference/g.md)";
        let expected = format!(
            "[a]({REPOSITORY}/blob/main/README.md#b), [c](d.md), [e]({REPOSITORY}/tree/main/deploy) and [f](reference/g.md)"
        );
        assert_eq!(with_links_to_the_repository("x.md", page), expected);
        let page = "[a](../contract.md), [b](../../wit/plugin.wit)";
        let expected = format!("[a](../contract.md), [b]({REPOSITORY}/blob/main/wit/plugin.wit)");
        assert_eq!(with_links_to_the_repository("reference/x.md", page), expected);
    }

    #[test]
    fn chapters_are_found_at_any_depth() {
        let chapter =
            |content: &str, below: Value| json!({"Chapter": {"path": "x.md", "content": content, "sub_items": below}});
        let mut book = json!({"items": [chapter("[a](../LICENSE)", json!([chapter("[a](../LICENSE)", json!([]))]))]});
        rewrite_chapters(&mut book);
        let to = format!("[a]({REPOSITORY}/blob/main/LICENSE)");
        assert_eq!(book, json!({"items": [chapter(&to, json!([chapter(&to, json!([]))]))]}));
    }
}
