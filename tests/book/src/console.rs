//! Steps of a page that a test carries out: its consoles with their commands and expected output, and the files that it
//! shows. The test runs them.

/// One thing that the reader of a page does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The reader writes a file: a code block after a line that ends with the file's name in bold, as in `**src/lib.rs**`.
    Write {
        /// The file.
        file: String,
        /// All that it has.
        text: String,
    },
    /// The reader runs a command of a console.
    Run {
        /// Command, perhaps of several lines.
        command: String,
        /// Output that the page shows, line by line; `...` stands for anything.
        shown: Vec<String>,
    },
}

/// The sections of a page that are for the readers of one language: all but those whose heading names another one.
pub fn of_language(page: &str, language: &str, others: &[&str]) -> String {
    let mut is_kept = true;
    let mut is_code = false;
    let mut kept = String::new();
    for line in page.lines() {
        is_code ^= line.starts_with("```");
        if let (false, Some(heading)) = (is_code, line.strip_prefix("## ")) {
            is_kept = heading.contains(language) || !others.iter().any(|other| heading.contains(other));
        }
        if is_kept {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// The steps of a page, in order. A block after the comment `<!-- not run: REASON -->` is left out.
pub fn steps(page: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut before, mut is_skipped) = ("", false);
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            if !line.trim().is_empty() {
                is_skipped = line.starts_with("<!-- not run: ");
                before = line;
            }
            continue;
        };
        let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
        if is_skipped {
            is_skipped = false;
        } else if language == "console" {
            steps.extend(commands(&block));
        } else if let Some(file) = named_file(before) {
            let text = block.join("\n") + "\n";
            steps.push(Step::Write { file, text });
        }
        before = "";
    }
    steps
}

/// The file that a line names in bold at its end.
fn named_file(line: &str) -> Option<String> {
    let name = line.trim_end_matches(':').strip_suffix("`**")?;
    let (_, name) = name.rsplit_once("**`")?;
    Some(name.to_owned())
}

/// Returns the commands of a console.
pub fn commands(block: &[&str]) -> Vec<Step> {
    let mut steps = Vec::<Step>::new();
    let mut is_continued = false;
    for line in block {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (_, Some(Step::Run { command, .. })) if is_continued => {
                command.push('\n');
                command.push_str(line);
                is_continued = line.ends_with('\\');
            }
            (Some(command), _) => {
                is_continued = command.ends_with('\\');
                let (command, shown) = (command.to_owned(), Vec::new());
                steps.push(Step::Run { command, shown });
            }
            (None, Some(Step::Run { shown, .. })) => shown.push((*line).to_owned()),
            (None, _) => {}
        }
    }
    steps
}

/// Returns `true` if the output has these lines, in this order and without others between them. A line `...` stands for
/// any lines, and `...` within a line for any text. Without lines, any output is fine.
pub fn has_shown(output: &str, shown: &[String]) -> bool {
    let output: Vec<_> = output.lines().map(str::trim_end).collect();
    shown.is_empty() || lines_match(&output, shown)
}

fn lines_match(output: &[&str], shown: &[String]) -> bool {
    let Some((first, rest)) = shown.split_first() else {
        return output.is_empty();
    };
    if first.trim() == "..." {
        return (0..=output.len()).any(|skipped| lines_match(&output[skipped..], rest));
    }
    let is_match = output.first().is_some_and(|line| line_matches(line, first.trim_end()));
    is_match && lines_match(&output[1..], rest)
}

fn line_matches(line: &str, shown: &str) -> bool {
    let parts: Vec<_> = shown.split("...").collect();
    let (first, last) = (parts[0], parts[parts.len() - 1]);
    if parts.len() == 1 {
        return line == shown;
    }
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    for part in &parts[1..parts.len() - 1] {
        let Some((_, after)) = rest.split_once(part) else {
            return false;
        };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &str, shown: &[&str]) -> Step {
        let shown = shown.iter().map(|line| (*line).to_owned()).collect();
        let command = command.to_owned();
        Step::Run { command, shown }
    }

    #[test]
    fn commands_output_and_files_are_found_in_order() {
        let page = "\
Make it:

```console
$ make it \\
    --now
made ... files
$ look
```

Change **`src/lib.rs`**:

```rust
fn one() {}
```

Not a file:

```rust
fn two() {}
```

<!-- not run: it needs a cluster -->

```console
$ kubectl get pods
```

```console
$ end
```
";
        let expected = [
            run("make it \\\n    --now", &["made ... files"]),
            run("look", &[]),
            Step::Write {
                file: "src/lib.rs".to_owned(),
                text: "fn one() {}\n".to_owned(),
            },
            run("end", &[]),
        ];
        assert_eq!(steps(page), expected);
    }

    #[test]
    fn sections_of_other_languages_are_left_out() {
        let page = "# A\n\n## Make it in B\n\n```\n## no heading of C\n```\n## Make it in C\n\nc\n\n## End\n";
        let kept = of_language(page, "B", &["C"]);
        assert_eq!(kept, "# A\n\n## Make it in B\n\n```\n## no heading of C\n```\n## End\n");
    }

    #[test]
    fn output_is_what_is_shown_but_for_dots() {
        let has = |output: &str, shown: &[&str]| {
            let shown: Vec<_> = shown.iter().map(|line| (*line).to_owned()).collect();
            has_shown(output, &shown)
        };
        assert!(has("a\nb 3 ms\nc\n", &["a", "b ... ms", "..."]));
        assert!(has("a\nb\nc\n", &["...", "c"]));
        assert!(has("anything\n", &[]));
        assert!(!has("a\nb\n", &["a"]));
        assert!(!has("a\n", &["a", "b"]));
        assert!(!has("b 3 s\n", &["b ... ms"]));
        assert!(!has("a\nx\nb\n", &["a", "b"]));
    }
}
