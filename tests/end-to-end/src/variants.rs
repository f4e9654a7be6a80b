//! Makes components that differ from a built one in nothing that matters: many plugins of which no two share a file,
//! fixtures with API groups of their own, and large ones.

/// The id of a custom section, in a component as in a module:
/// <https://github.com/WebAssembly/component-model/blob/main/design/mvp/Binary.md>.
const CUSTOM: u8 = 0;

/// The id of a component's section with a core module.
const CORE_MODULE: u8 = 1;

/// The size of one function of [`with_code`], in bytes: a large function of a real program.
const FUNCTION_BYTES: usize = 4096;

/// The same component with a section of text that nobody reads: another file, another digest, compiled code of its own.
pub fn marked(component: &[u8], mark: &str) -> Vec<u8> {
    with_custom_section(component, "mark", mark.as_bytes())
}

/// The same component with so many more bytes that nobody reads and nobody compiles, and a mark.
pub fn padded(component: &[u8], mark: &str, bytes: usize) -> Vec<u8> {
    let padding: Vec<u8> = mark.bytes().cycle().take(bytes).collect();
    with_custom_section(component, "padding", &padding)
}

/// The same component with so many more bytes of code, in a core module that is compiled and that nobody instantiates, and
/// a mark.
pub fn with_code(component: &[u8], mark: &str, bytes: usize) -> Vec<u8> {
    with_section(
        &marked(component, mark),
        CORE_MODULE,
        &module_of_code(bytes / FUNCTION_BYTES),
    )
}

/// The same component with other words of the same length in the place of these, wherever they stand.
pub fn reworded(component: &[u8], words: &str, others: &str) -> Vec<u8> {
    assert_eq!(words.len(), others.len(), "nothing may move");
    let mut reworded = component.to_vec();
    let mut from = 0;
    while let Some(at) = reworded[from..]
        .windows(words.len())
        .position(|window| window == words.as_bytes())
    {
        reworded[from + at..from + at + words.len()].copy_from_slice(others.as_bytes());
        from += at + words.len();
    }
    reworded
}

fn with_custom_section(component: &[u8], name: &str, content: &[u8]) -> Vec<u8> {
    let mut section = unsigned(name.len());
    section.extend(name.as_bytes());
    section.extend(content);
    with_section(component, CUSTOM, &section)
}

/// A section is its id, its size and its content.
fn with_section(binary: &[u8], id: u8, content: &[u8]) -> Vec<u8> {
    let mut whole = binary.to_vec();
    whole.push(id);
    whole.extend(unsigned(content.len()));
    whole.extend(content);
    whole
}

/// A core module with so many functions from a number to a number:
/// <https://webassembly.github.io/spec/core/binary/modules.html>.
fn module_of_code(functions: usize) -> Vec<u8> {
    const TYPES: u8 = 1;
    const FUNCTIONS: u8 = 3;
    const CODE: u8 = 10;
    let mut types = unsigned(1);
    types.extend([0x60, 1, 0x7f, 1, 0x7f]);
    let mut declared = unsigned(functions);
    declared.extend(std::iter::repeat_n(0, functions));
    let mut code = unsigned(functions);
    for number in 0..functions {
        let body = body(number);
        code.extend(unsigned(body.len()));
        code.extend(body);
    }
    let header = b"\0asm\x01\0\0\0".to_vec();
    [(TYPES, types), (FUNCTIONS, declared), (CODE, code)]
        .into_iter()
        .fold(header, |module, (id, content)| with_section(&module, id, &content))
}

/// The parameter with one constant after the other, by operators of which no two in a row can be made one.
fn body(number: usize) -> Vec<u8> {
    const OPERATORS: [u8; 3] = [0x6a, 0x73, 0x6c]; // add, xor, multiply
    let mut body = vec![0, 0x20, 0]; // no locals; get the parameter
    let mut round = 0;
    while body.len() < FUNCTION_BYTES {
        // Odd, so that a product keeps what it had. Two bytes of a positive LEB128 number.
        let constant = ((number + round) % 0x1000) | 0x0801;
        body.push(0x41);
        body.extend(unsigned(constant));
        body.push(OPERATORS[round % OPERATORS.len()]);
        round += 1;
    }
    body.push(0x0b);
    body
}

/// An unsigned LEB128 number.
fn unsigned(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(0x80 | u8::try_from(number & 0x7f).expect("seven bits are a byte"));
        number >>= 7;
    }
    bytes.push(u8::try_from(number).expect("less than 0x80 is a byte"));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_exchanged_wherever_they_stand() {
        assert_eq!(
            reworded(b"one.dev, none.dev", "one.dev", "two.dev"),
            b"two.dev, ntwo.dev"
        );
    }

    #[test]
    fn marks_make_large_components_distinct() {
        assert_eq!(padded(b"", "one", 300).len(), 3 + 8 + 300);
        assert_ne!(padded(b"", "one", 300), padded(b"", "two", 300));
        assert_ne!(with_code(b"", "one", 300), with_code(b"", "two", 300));
    }

    mod isolated {
        use super::*;
        use crate::components::{folder, sandbox};

        #[test]
        fn large_components_have_the_size_and_compile() {
            let small = std::fs::read(folder().join("reader.wasm")).unwrap();
            for make in [padded, with_code] {
                let large = make(&small, "mark", 300_000);
                let added = large.len() - small.len();
                assert!((294_000..304_000).contains(&added), "{added}");
                let file = tempfile::NamedTempFile::new().unwrap();
                std::fs::write(file.path(), &large).unwrap();
                sandbox().load(file.path()).unwrap();
            }
        }
    }
}
