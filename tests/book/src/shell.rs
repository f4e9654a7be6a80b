//! Parses the commands of a console as a shell would: programs and arguments. It knows only the syntax that the
//! documentation uses: quotes, pipes, lists, `$(...)`, redirections, comments and continued lines.

/// The programs that a line runs, each with its arguments.
pub fn programs(line: &str) -> Vec<Vec<String>> {
    let mut reader = ShellReader::default();
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match (reader.quote, letter) {
            (Some(quote), _) if letter == quote => reader.quote = None,
            (Some('"') | None, '$') if letters.peek() == Some(&'(') => {
                letters.next();
                // What the inner command prints stands for a part of a word of the outer one, which goes on after it.
                reader.word.push('X');
                reader.is_word = true;
                let inner: String = letters.by_ref().take_while(|letter| *letter != ')').collect();
                reader.inner.extend(programs(&inner));
            }
            (Some(_), _) => reader.word.push(letter),
            (None, '\'' | '"') => {
                reader.quote = Some(letter);
                reader.is_word = true;
            }
            (None, '\\') => {
                if let Some(escaped) = letters.next().filter(|escaped| *escaped != '\n') {
                    reader.word.push(escaped);
                    reader.is_word = true;
                }
            }
            (None, '#') if !reader.is_word => break,
            (None, '|' | ';' | '&') => reader.end_program(),
            (None, '<' | '>') => {
                // The number of the stream.
                if reader.word.chars().all(|digit| digit.is_ascii_digit()) {
                    reader.word.clear();
                    reader.is_word = false;
                }
                reader.end_word();
                reader.is_file = true;
            }
            (None, ' ' | '\n') => reader.end_word(),
            (None, _) => {
                reader.word.push(letter);
                reader.is_word = true;
            }
        }
    }
    reader.end_program();
    let mut found = reader.inner;
    found.append(&mut reader.found);
    found
}

#[derive(Debug, Default)]
struct ShellReader {
    found: Vec<Vec<String>>,
    inner: Vec<Vec<String>>,
    words: Vec<String>,
    word: String,
    /// Set if a word has begun, perhaps an empty one.
    is_word: bool,
    /// Set if the next word names a file that the program reads or writes as a stream.
    is_file: bool,
    quote: Option<char>,
}

impl ShellReader {
    fn end_word(&mut self) {
        if !std::mem::take(&mut self.is_word) {
            return;
        }
        let word = std::mem::take(&mut self.word);
        // `NAME=value` before a program is its environment.
        let is_variable = self.words.is_empty()
            && word
                .split_once('=')
                .is_some_and(|(name, _)| name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_'));
        if !std::mem::take(&mut self.is_file) && !is_variable {
            self.words.push(word);
        }
    }

    fn end_program(&mut self) {
        self.end_word();
        let words = std::mem::take(&mut self.words);
        if !words.is_empty() {
            self.found.push(words);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_their_arguments_are_those_that_a_shell_runs() {
        for (line, expected) in [
            ("make it # and more", &[&["make", "it"][..]][..]),
            ("a 'b c' \"d e\" f#g ''", &[&["a", "b c", "d e", "f#g", ""]]),
            ("a b | c && d; e", &[&["a", "b"], &["c"], &["d"], &["e"]]),
            ("a \\\n    --b", &[&["a", "--b"]]),
            ("X=1 a 2> file b > other", &[&["a", "b"]]),
            ("REFERENCE=$(a b) ", &[&["a", "b"]]),
            ("c \"oci://$(a b)\" d", &[&["a", "b"], &["c", "oci://X", "d"]]),
            ("# nothing", &[]),
        ] {
            assert_eq!(programs(line), expected, "{line}");
        }
    }
}
