//! Owns components that differ from a built one in nothing that matters: so many plugins of which no two share a file, and
//! fixtures with API groups of their own.

/// The same component with a section of text that nobody reads: another file, another digest, compiled code of its own.
///
/// A custom section is 0, its size, the size of its name, its name, and anything:
/// <https://github.com/WebAssembly/component-model/blob/main/design/mvp/Binary.md>.
pub fn marked(component: &[u8], mark: &str) -> Vec<u8> {
    const NAME: &[u8] = b"mark";
    let size = u8::try_from(1 + NAME.len() + mark.len()).expect("a mark is short");
    assert!(size < 0x80, "a mark is short, so that its size is one byte");
    let mut marked = component.to_vec();
    marked.extend([0, size, 4]);
    marked.extend(NAME);
    marked.extend(mark.as_bytes());
    marked
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
}
