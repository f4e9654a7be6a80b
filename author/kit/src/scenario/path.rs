//! Paths to values within objects: `.spec.ports[0].nodePort`, `.metadata.annotations["a.b/c"]` and
//! `.status.conditions[type=Ready].status`.

use serde_json::Value;

/// A parsed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path(Vec<Segment>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Member(String),
    Position(usize),
    /// The item of a list whose member has this text.
    Keyed(String, String),
}

impl Path {
    /// Parses a path, or returns the error in it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if !text.starts_with('.') {
            return Err(format!(
                "the path {text:?} is not one that begins with a dot, like .spec.replicas"
            ));
        }
        let mut segments = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (segment, after) = if let Some(inner) = rest.strip_prefix("[\"") {
                let (name, after) = inner.split_once("\"]").ok_or_else(|| unclosed(text))?;
                (Segment::Member(name.to_owned()), after)
            } else if let Some(inner) = rest.strip_prefix('[') {
                let (inside, after) = inner.split_once(']').ok_or_else(|| unclosed(text))?;
                (bracketed(text, inside)?, after)
            } else {
                let name = rest
                    .strip_prefix('.')
                    .ok_or_else(|| format!("the path {text:?} lacks a dot at {rest:?}"))?;
                let (name, after) = name.split_at(name.find(['.', '[']).unwrap_or(name.len()));
                if name.is_empty() {
                    return Err(format!("the path {text:?} has an empty name"));
                }
                (Segment::Member(name.to_owned()), after)
            };
            segments.push(segment);
            rest = after;
        }
        Ok(Self(segments))
    }

    /// Returns the value at the path, if there is one.
    pub fn find<'value>(&self, value: &'value Value) -> Option<&'value Value> {
        self.0.iter().try_fold(value, |value, segment| match segment {
            Segment::Member(name) => value.get(name),
            Segment::Position(position) => value.get(position),
            Segment::Keyed(key, text) => value.as_array()?.iter().find(|item| match item.get(key) {
                Some(Value::String(found)) => found == text,
                Some(Value::Number(found)) => text.parse().is_ok_and(|wanted: serde_json::Number| wanted == *found),
                _ => false,
            }),
        })
    }
}

fn bracketed(path: &str, inside: &str) -> Result<Segment, String> {
    if let Some((key, text)) = inside.split_once('=') {
        return Ok(Segment::Keyed(key.to_owned(), text.to_owned()));
    }
    inside.parse().map(Segment::Position).map_err(|_| {
        format!("the path {path:?} has [{inside}], which is neither a position nor key=value nor a name in quotes")
    })
}

fn unclosed(path: &str) -> String {
    format!("the path {path:?} has a bracket that is not closed")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn find(path: &str) -> Option<Value> {
        let object = json!({
            "metadata": {"annotations": {"a.b/c": "d"}},
            "spec": {"ports": [{"name": "http", "port": 80}, {"name": "dns", "port": 53}]}
        });
        Path::parse(path).unwrap().find(&object).cloned()
    }

    #[test]
    fn members_positions_keys_and_quoted_names_are_found() {
        assert_eq!(find(".spec.ports[1].port"), Some(json!(53)));
        assert_eq!(find(".spec.ports[name=dns].port"), Some(json!(53)));
        assert_eq!(find(".spec.ports[port=80].name"), Some(json!("http")));
        assert_eq!(find(".metadata.annotations[\"a.b/c\"]"), Some(json!("d")));
        assert_eq!(find(".spec.ports[2]"), None);
        assert_eq!(find(".spec.ports.name"), None);
    }

    #[test]
    fn what_is_wrong_with_a_path_is_said() {
        for (path, words) in [
            ("spec", "begins with a dot"),
            (".spec[", "not closed"),
            (".spec..a", "empty name"),
            (".spec[x]", "neither a position"),
            (".spec[0]a", "lacks a dot"),
        ] {
            let error = Path::parse(path).unwrap_err();
            assert!(error.contains(words), "{path}: {error}");
        }
    }
}
