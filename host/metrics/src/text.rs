//! Prints registries in the text format of Prometheus, version 0.0.4, which every scraper and `promtool` read.
//!
//! prometheus-client prints OpenMetrics. The two differ in the lines that begin with `#`: there the family of a counter is
//! named without `_total`, and there are units and an end mark. See
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::fmt::Write as _;

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;

/// Prints the registries one after another.
pub fn print<'a>(registries: impl IntoIterator<Item = &'a Registry>) -> String {
    let mut open_metrics = String::new();
    for registry in registries {
        encode_registry(&mut open_metrics, registry).expect("a String takes all text, and no encoder fails");
    }
    translated(&open_metrics)
}

fn translated(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut lines = open_metrics.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("# UNIT ") || line == "# EOF" {
            continue;
        }
        let head = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' '));
        let (Some((name, help)), Some(type_line)) = (head, lines.peek().copied()) else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        lines.next();
        let metric_type = type_line.rsplit(' ').next().unwrap_or_default();
        let suffix = if metric_type == "counter" { "_total" } else { "" };
        let _ = writeln!(
            text,
            "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {metric_type}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_family_of_a_counter_is_named_as_its_samples_are() {
        let open_metrics = "# HELP a_b Number of b.\n# TYPE a_b counter\na_b_total{c=\"# EOF\"} 1\n\
                            # HELP a_d_seconds Time.\n# TYPE a_d_seconds gauge\n# UNIT a_d_seconds seconds\na_d_seconds 1.0\n# EOF\n";
        let text = "# HELP a_b_total Number of b.\n# TYPE a_b_total counter\na_b_total{c=\"# EOF\"} 1\n\
                    # HELP a_d_seconds Time.\n# TYPE a_d_seconds gauge\na_d_seconds 1.0\n";
        assert_eq!(translated(open_metrics), text);
    }
}
