//! Collects the remarks of a report. Remarks that differ only in names, numbers and quoted values are merged into one,
//! with a count and the first example.

use std::collections::{BTreeMap, BTreeSet};

/// Subject of a remark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Count of cases.
    pub count: u32,
    /// The first of these cases.
    pub case: u32,
    /// Text of the remark.
    pub words: String,
}

/// All remarks so far, by their common text.
#[derive(Debug, Default)]
pub(super) struct Remarks(BTreeMap<String, Remark>);

impl Remarks {
    /// Adds those of a case. Equal ones count once for each case.
    pub(super) fn add(&mut self, case: u32, remarks: &[String]) {
        let mut seen = BTreeSet::new();
        for words in remarks {
            let pattern = pattern(words);
            if !seen.insert(pattern.clone()) {
                continue;
            }
            let remark = self.0.entry(pattern).or_insert_with(|| Remark {
                count: 0,
                case,
                words: words.clone(),
            });
            remark.count += 1;
        }
    }

    /// All of them, the most frequent first.
    pub(super) fn list(self) -> Vec<Remark> {
        let mut list: Vec<Remark> = self.0.into_values().collect();
        list.sort_by_key(|remark| (std::cmp::Reverse(remark.count), remark.case));
        list
    }
}

/// A remark on an object, as in `Service shop/web: ...`, without the object's name, quoted texts and numbers.
fn pattern(words: &str) -> String {
    let (title, said) = words.split_once(": ").unwrap_or(("", words));
    let kind = title.split(' ').next().unwrap_or_default();
    let mut pattern = format!("{kind}: ");
    let mut letters = said.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                while let Some(quoted) = letters.next() {
                    match quoted {
                        '\\' => drop(letters.next()),
                        '"' => break,
                        _ => {}
                    }
                }
                pattern.push('"');
            }
            '0'..='9' => {
                while letters.next_if(char::is_ascii_digit).is_some() {}
                pattern.push('#');
            }
            other => pattern.push(other),
        }
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(cases: &[(u32, &[&str])]) -> Vec<Remark> {
        let mut remarks = Remarks::default();
        for (case, words) in cases {
            let words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
            remarks.add(*case, &words);
        }
        remarks.list()
    }

    #[test]
    fn remarks_that_differ_in_names_and_values_are_merged() {
        let found = list(&[
            (3, &["Secret n/x: data: Required value"]),
            (
                4,
                &[r#"Service n/a: Service "a" is invalid: spec.ports[0].nodePort: Invalid value: 80: it is \"low\""#],
            ),
            (
                9,
                &[
                    r#"Service n/b-2: Service "b-2" is invalid: spec.ports[11].nodePort: Invalid value: 1228: it is \"low\""#,
                    r#"Service n/c: Service "c" is invalid: spec.ports[0].nodePort: Invalid value: 7: it is \"low\""#,
                ],
            ),
        ]);
        let counted: Vec<(u32, u32)> = found.iter().map(|remark| (remark.count, remark.case)).collect();
        assert_eq!(
            counted,
            [(2, 4), (1, 3)],
            "the most frequent first, each once in a case"
        );
        assert!(found[0].words.starts_with("Service n/a:"), "{found:?}");
    }

    #[test]
    fn remarks_on_another_kind_or_field_are_others() {
        let found = list(&[
            (1, &["Service n/a: spec.a: Invalid value: \"x\\\"y\": too long"]),
            (2, &["Service n/a: spec.b: Invalid value: \"x\\\"y\": too long"]),
            (3, &["Ingress n/a: spec.a: Invalid value: \"x\\\"y\": too long"]),
            (4, &["Service n/a: spec.a: Invalid value: \"x\\\"z\": too short"]),
        ]);
        assert_eq!(found.len(), 4, "{found:?}");
    }
}
