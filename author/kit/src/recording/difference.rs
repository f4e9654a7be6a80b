//! Reports the differences that a replay found, as text and as JSON.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// Result of a replay.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Reason why nothing could be replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Possible explanations of differences: fields that the component reads and the recording lacks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The calls, in their order.
    pub calls: Vec<CallReport>,
}

/// Result of replaying one call.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallReport {
    /// Its number in the recording.
    pub number: u64,
    /// The function.
    pub function: String,
    /// The object, as `Kind namespace/name`.
    pub object: String,
    /// Reason why the call cannot be repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Reads of the component that the recording does not have; they were answered as absent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads_not_recorded: Vec<String>,
    /// Differences of the answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
}

/// A part of an answer that is different.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// The part, such as `Deployment shop/web`, `status` or `condition Ready`.
    pub place: String,
    /// The fields.
    pub fields: Vec<FieldDifference>,
    /// Both parts as YAML, compared.
    pub diff: String,
}

/// A field that is different.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldDifference {
    /// Its path, such as `.spec.replicas`; empty for the whole.
    pub path: String,
    /// Recorded value; absent if nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Value>,
    /// Replayed value; absent if nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replayed: Option<Value>,
    /// Set if masked values explain the difference.
    pub masked: bool,
}

impl Difference {
    /// Returns `true` if masked values explain all differences.
    pub fn is_masked(&self) -> bool {
        self.fields.iter().all(|field| field.masked)
    }
}

impl CallReport {
    /// Returns `true` if there is no difference, except by masked values.
    pub fn is_same(&self) -> bool {
        self.reads_not_recorded.is_empty() && self.differences.iter().all(Difference::is_masked)
    }
}

impl Report {
    /// Returns `true` if there is no difference, except by masked values.
    pub fn is_same(&self) -> bool {
        self.problem.is_none() && self.calls.iter().all(CallReport::is_same)
    }

    /// Count of calls with differences.
    pub fn different(&self) -> usize {
        self.calls.iter().filter(|call| !call.is_same()).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(problem) = &self.problem {
            return writeln!(formatter, "nothing was replayed: {problem}");
        }
        for call in &self.calls {
            write!(formatter, "{call}")?;
        }
        if !self.is_same() {
            for note in &self.notes {
                writeln!(formatter, "note: {note}")?;
            }
        }
        let (all, different) = (self.calls.len(), self.different());
        let skipped = self.calls.iter().filter(|call| call.skipped.is_some()).count();
        let masked = self.calls.iter().flat_map(|call| &call.differences);
        let masked = masked.filter(|difference| difference.is_masked()).count();
        write!(formatter, "{all} calls replayed, {different} with differences")?;
        if skipped > 0 {
            write!(formatter, ", {skipped} skipped")?;
        }
        if masked > 0 {
            write!(formatter, ", {masked} parts differ by masked values alone")?;
        }
        writeln!(formatter)
    }
}

impl fmt::Display for CallReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number,
            function,
            object,
            skipped,
            reads_not_recorded,
            differences,
        } = self;
        if skipped.is_none() && reads_not_recorded.is_empty() && differences.is_empty() {
            return Ok(());
        }
        writeln!(formatter, "call {number}: {function} of {object}")?;
        if let Some(reason) = skipped {
            writeln!(formatter, "  skipped: {reason}")?;
        }
        for read in reads_not_recorded {
            writeln!(
                formatter,
                "  the component reads {read}, which the recording does not have; it was answered as if it did not exist"
            )?;
        }
        for difference in differences {
            let Difference { place, fields, diff } = difference;
            if difference.is_masked() {
                let paths: Vec<&str> = fields.iter().map(|field| field.path.as_str()).collect();
                writeln!(
                    formatter,
                    "  {place}: differs by masked values alone: {}",
                    paths.join(", ")
                )?;
                continue;
            }
            writeln!(formatter, "  {place}")?;
            for line in diff.lines() {
                writeln!(formatter, "    {line}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn field(masked: bool) -> FieldDifference {
        FieldDifference {
            path: ".a".to_owned(),
            recorded: Some(json!("x")),
            replayed: Some(json!("y")),
            masked,
        }
    }

    fn report(fields: Vec<FieldDifference>, reads_not_recorded: &[&str]) -> Report {
        let difference = Difference {
            place: "status".to_owned(),
            fields,
            diff: String::new(),
        };
        let call = CallReport {
            reads_not_recorded: reads_not_recorded.iter().map(|read| (*read).to_owned()).collect(),
            differences: vec![difference],
            ..CallReport::default()
        };
        Report {
            calls: vec![call],
            ..Report::default()
        }
    }

    #[test]
    fn only_what_masked_values_explain_wholly_does_not_count() {
        assert!(report(vec![field(true), field(true)], &[]).is_same());
        for different in [
            report(vec![field(true), field(false)], &[]),
            report(vec![field(true)], &["ConfigMap shop/web"]),
        ] {
            assert!(!different.is_same());
            assert_eq!(different.different(), 1);
        }
        let unplayed = Report {
            problem: Some("it cannot describe itself".to_owned()),
            ..Report::default()
        };
        assert!(!unplayed.is_same(), "nothing was compared");
    }
}
