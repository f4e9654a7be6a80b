//! Estimates, in one pass over a JSON text, its memory once it is parsed. A text of a few bytes, such as `{"":1},`,
//! becomes a hundred times as large. Parsers of untrusted texts reserve that much first.
//!
//! The figures are those of [`serde_json::Value`] on 64 bits with glibc's allocator, rounded up.

/// The size of a value in a list or map, in bytes.
const VALUE: usize = 32;

/// The smallest allocation, in bytes.
const PIECE: usize = 32;

/// The first node of a non-empty map, and the members that every node certainly holds.
const FIRST_NODE: usize = 672;
const MEMBERS_OF_A_NODE: usize = 5;
const FURTHER_MEMBER: usize = 128;

/// A list with room for its first items, and their number. A full list doubles.
const FIRST_ITEMS: usize = 4 * VALUE + 16;
const ITEMS: usize = 4;
const FURTHER_ITEM: usize = 3 * VALUE;

/// The nesting that is followed. No parser of the host accepts deeper values.
const MAX_DEPTH: usize = 128;

/// The highest possible memory of a JSON text that is parsed as a whole, in bytes. For invalid JSON, the memory that a
/// parser may have used before it finds the error.
pub fn parsed_size(text: &[u8]) -> usize {
    let mut size = VALUE;
    // How many parts each value around has, and whether it is a list.
    let mut around = [(0, false); MAX_DEPTH];
    // The text as a whole is in nothing.
    around[0] = (1, true);
    let mut depth = 0;
    let mut place = 0;
    while let Some(byte) = text.get(place) {
        place += 1;
        match byte {
            b'"' => {
                let begin = place;
                while let Some(byte) = text.get(place).filter(|byte| **byte != b'"') {
                    place += if *byte == b'\\' { 2 } else { 1 };
                }
                let length = place.min(text.len()) - begin;
                place += 1;
                if length > 0 {
                    size += PIECE.max((length + 24).next_multiple_of(16));
                }
                size += part(&mut around[depth.min(MAX_DEPTH - 1)]);
            }
            b'{' | b'[' => {
                size += part(&mut around[depth.min(MAX_DEPTH - 1)]);
                depth += 1;
                around[depth.min(MAX_DEPTH - 1)] = (0, *byte == b'[');
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' | b':' | b' ' | b'\n' | b'\r' | b'\t' => {}
            // Counted at the first character of a number or a literal.
            _ => {
                size += part(&mut around[depth.min(MAX_DEPTH - 1)]);
                while text.get(place).is_some_and(|byte| !b",:]}{[\" \n\r\t".contains(byte)) {
                    place += 1;
                }
            }
        }
    }
    size
}

/// The memory of one more part of a value beside its own bytes. A member of an object has two parts: name and value.
fn part((parts, is_list): &mut (usize, bool)) -> usize {
    *parts += 1;
    if *is_list {
        match *parts {
            1 => FIRST_ITEMS,
            2..=ITEMS => 0,
            _ => FURTHER_ITEM,
        }
    } else {
        match *parts {
            1 => FIRST_NODE,
            further if further > 2 * MEMBERS_OF_A_NODE && further % 2 == 0 => FURTHER_MEMBER,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_much_is_seen_to_take_much() {
        let of = |text: &str| parsed_size(text.as_bytes());
        assert_eq!(of("1"), VALUE);
        assert_eq!(of(r#""abc""#), VALUE + PIECE);
        let maps = vec![r#"{"":1}"#; 10_000].join(",");
        assert!(of(&format!("[{maps}]")) > 10_000 * (FIRST_NODE + VALUE));
        let items = vec!["1"; 10_000].join(",");
        assert!(of(&format!("[{items}]")) < 10_000 * 100);
        let text = "x".repeat(1_000_000);
        assert!(of(&format!(r#"{{"data":"{text}"}}"#)) < 1_002_000);
        assert!(
            of(r#"{"a":"\"}","b":"c"}"#) > of(r#"{"a":"b"}"#),
            "an escaped quote ends no text"
        );
        for broken in ["", "\"", "{", "]", "[[[", "\"\\", "{\"a"] {
            let _ = of(broken);
        }
        assert!(of(&"[".repeat(100_000)) > 0);
    }
}
