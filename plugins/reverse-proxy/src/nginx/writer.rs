//! Writes a configuration: directives, blocks, and quotes that keep every value one token.

/// A configuration that is being written.
#[derive(Debug, Default)]
pub(super) struct Writer {
    text: String,
    depth: usize,
}

impl Writer {
    /// Writes a directive with its values.
    pub(super) fn directive(&mut self, name: &'static str, values: &[&str]) {
        self.begin(name, values);
        self.text.push_str(";\n");
    }

    /// Writes a directive with a number.
    pub(super) fn number(&mut self, name: &'static str, number: impl Into<i64>) {
        self.directive(name, &[&number.into().to_string()]);
    }

    /// Writes a block with its content.
    pub(super) fn block(&mut self, name: &'static str, values: &[&str], inside: impl FnOnce(&mut Self)) {
        self.begin(name, values);
        self.text.push_str(" {\n");
        self.depth += 1;
        inside(self);
        self.depth -= 1;
        self.indent();
        self.text.push_str("}\n");
    }

    /// Writes an empty line between blocks.
    pub(super) fn gap(&mut self) {
        self.text.push('\n');
    }

    /// Returns the whole text.
    pub(super) fn finish(self) -> String {
        self.text
    }

    fn indent(&mut self) {
        for _ in 0..self.depth {
            self.text.push_str("    ");
        }
    }

    fn begin(&mut self, name: &str, values: &[&str]) {
        self.indent();
        self.text.push_str(name);
        for value in values {
            self.text.push(' ');
            write_token(&mut self.text, value);
        }
    }
}

/// Writes a value as one token, quoted unless it is a plain word.
fn write_token(text: &mut String, value: &str) {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"$_-./:=".contains(&byte);
    if !value.is_empty() && value.bytes().all(plain) {
        text.push_str(value);
        return;
    }
    text.push('"');
    for character in value.chars() {
        if matches!(character, '"' | '\\') {
            text.push('\\');
        }
        text.push(character);
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use super::Writer;

    #[test]
    fn every_value_is_one_token() {
        let mut writer = Writer::default();
        writer.block("server", &[], |writer| {
            writer.directive("a", &["plain", "$host/x.y:80", "", "two words", "; } \" \\d '"]);
        });
        let expected = "server {\n    a plain $host/x.y:80 \"\" \"two words\" \"; } \\\" \\\\d '\";\n}\n";
        assert_eq!(writer.finish(), expected);
    }
}
