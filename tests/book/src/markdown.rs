//! Finds the links and anchors of a Markdown page. The calling test checks the links.

use std::collections::{BTreeMap, BTreeSet};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// Anchors of a page, and its links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The anchors of its headings.
    pub anchors: BTreeSet<String>,
    /// Targets of its links and images, each as it is written.
    pub links: Vec<String>,
}

/// Reads a page.
pub fn page(text: &str) -> Page {
    let mut page = Page::default();
    let mut heading = None::<String>;
    let mut seen = BTreeMap::<String, usize>::new();
    for event in Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES) {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push(dest_url.into_string());
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let anchor = anchor(&heading.take().unwrap_or_default());
                let count = seen.entry(anchor.clone()).or_default();
                let numbered = if *count == 0 {
                    anchor
                } else {
                    format!("{anchor}-{count}")
                };
                *count += 1;
                page.anchors.insert(numbered);
            }
            Event::Html(html) | Event::InlineHtml(html) => page.links.extend(sources(&html)),
            _ => {}
        }
    }
    page
}

/// The anchor of a heading, as both mdBook and GitHub make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        letter if letter.is_alphanumeric() => Some(letter),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// Returns the links and sources in the HTML of a page.
fn sources(html: &str) -> Vec<String> {
    let attributes = ["src=\"", "srcset=\"", "href=\""];
    let found = attributes.iter().flat_map(|attribute| html.split(attribute).skip(1));
    found
        .filter_map(|rest| rest.split('"').next().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_images_and_html_sources_are_found_but_not_code() {
        let text =
            "See [this](a.md#b) and ![that](c.svg).\n\n<img src=\"d.svg\">\n\n`[no](e.md)`\n\n[f]\n\n[f]: g.md\n";
        assert_eq!(page(text).links, ["a.md#b", "c.svg", "d.svg", "g.md"]);
    }

    #[test]
    fn anchors_are_those_of_mdbook_and_github() {
        let text = "# The `a.b/c` of it\n## What's new?\n## Twice\n## Twice\n";
        let anchors = page(text).anchors;
        let expected = ["the-abc-of-it", "whats-new", "twice", "twice-1"];
        assert_eq!(anchors, expected.map(str::to_owned).into());
    }
}
