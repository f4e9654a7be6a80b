//! `pilothouse bench`: measures a plugin's calls for an object, and compares two components. Calls are interleaved, so
//! that other load on the machine affects both.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use clap::Args;
use pilothouse_host::output::Format;
use pilothouse_testkit::documents::Document;
use pilothouse_testkit::isolation::Isolated;
use serde_json::{Value, json};

use crate::plugin::{PluginArguments, StateArguments};
use crate::verdict::NotAsExpected;

/// Calls before the first that is measured.
const WARM_UP: u32 = 20;

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse bench app-service.wasm -f web.yaml
  pilothouse bench app-service-0.2.0.wasm -f web.yaml --against app-service-0.1.0.wasm --calls 5000

A call is what the host does for an object: the defaulter, the validator and the reconcile, each in a fresh instance. Times are
those of the plugin; calls per second include making instances. Calls of two components take turns, and the ratio is that of the
first to the second: below 1 the first is faster or smaller.

Exit code: 0, 1 on an error, 2 if the command line is wrong, 3 if a plugin fails for an object.";

/// `pilothouse bench`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchCommand {
    #[command(flatten)]
    plugin: PluginArguments,

    /// Objects that the plugin reconciles: a YAML or JSON file, a folder, or - for standard input. May be repeated
    #[arg(long = "filename", short = 'f', value_name = "FILE|FOLDER|-", required = true)]
    files: Vec<PathBuf>,

    #[command(flatten)]
    state: StateArguments,

    /// Compare with this component
    #[arg(long, value_name = "OTHER.wasm")]
    against: Option<PathBuf>,

    /// The number of calls for each object and component
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    calls: u32,

    /// Output format
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// A component and the measurements of its calls so far.
struct Candidate {
    plugin: Isolated,
    primary: Document,
    times: Vec<Duration>,
    whole: Duration,
    memory_bytes: u64,
    output_bytes: usize,
}

/// Measurements of calls.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Figures {
    p50: Duration,
    p99: Duration,
    memory_bytes: u64,
    output_bytes: usize,
    calls_per_second: f64,
}

impl BenchCommand {
    /// Measures.
    pub fn execute(self) -> anyhow::Result<()> {
        let given = self.state.read(&self.files)?;
        let mut prepared = vec![self.state.prepare(self.plugin.load()?, &given)?];
        if let Some(other) = &self.against {
            prepared.push(self.state.prepare(self.plugin.load_other(other)?, &given)?);
        }
        let mut results = Vec::new();
        for primary in &prepared[0].primaries {
            let title = format!("{} {}", primary.kind.kind, primary.name);
            let candidates = prepared.iter().map(|it| {
                let is_same = |its: &&Document| its.kind == primary.kind && its.name == primary.name;
                let own = it.primaries.iter().find(is_same);
                let own = own.with_context(|| {
                    format!(
                        "{} does not reconcile {}",
                        it.plugin.component().display(),
                        primary.kind
                    )
                })?;
                Ok((it.plugin.clone(), own.clone()))
            });
            let candidates = candidates.collect::<anyhow::Result<_>>()?;
            results.push((title, measured(candidates, self.calls)?));
        }
        match self.output {
            Format::Text => print!("{}", text(&results, self.calls)),
            Format::Json => println!("{:#}", document(&results, self.calls)),
        }
        Ok(())
    }
}

/// Measures components, each with the object as its own CRD completes it.
fn measured(plugins: Vec<(Isolated, Document)>, calls: u32) -> anyhow::Result<Vec<Figures>> {
    let candidate = |(plugin, primary): (Isolated, Document)| Candidate {
        plugin: plugin.once(),
        primary,
        times: Vec::with_capacity(calls as usize),
        whole: Duration::ZERO,
        memory_bytes: 0,
        output_bytes: 0,
    };
    let mut candidates: Vec<Candidate> = plugins.into_iter().map(candidate).collect();
    for call in 0..WARM_UP + calls {
        // The first of one round is the last of the next.
        if call % 2 == 1 {
            candidates.reverse();
        }
        for candidate in &mut candidates {
            candidate.call(call >= WARM_UP)?;
        }
        if call % 2 == 1 {
            candidates.reverse();
        }
    }
    candidates.into_iter().map(Candidate::figures).collect()
}

impl Candidate {
    fn call(&mut self, counts: bool) -> anyhow::Result<()> {
        let primary = &self.primary;
        let begun = Instant::now();
        let run = self.plugin.run(&primary.object);
        let whole = begun.elapsed();
        let run = run.map_err(|failed| {
            let component = self.plugin.component().display();
            NotAsExpected(format!(
                "{component} fails for {} {}: {failed}",
                primary.kind.kind, primary.name
            ))
        })?;
        if counts {
            self.times.push(run.reconciled.usage.time);
            self.whole += whole;
            self.memory_bytes = self.memory_bytes.max(run.reconciled.usage.memory_bytes);
            if self.output_bytes == 0 {
                self.output_bytes = run.reconciled.to_value().to_string().len();
            }
        }
        Ok(())
    }

    fn figures(mut self) -> anyhow::Result<Figures> {
        self.times.sort_unstable();
        let part = |hundredths: usize| {
            let index = (self.times.len() * hundredths / 100).min(self.times.len().saturating_sub(1));
            self.times
                .get(index)
                .copied()
                .ok_or_else(|| anyhow!("there were no calls"))
        };
        Ok(Figures {
            p50: part(50)?,
            p99: part(99)?,
            memory_bytes: self.memory_bytes,
            output_bytes: self.output_bytes,
            calls_per_second: f64::from(u32::try_from(self.times.len()).unwrap_or(u32::MAX))
                / self.whole.as_secs_f64().max(1e-9),
        })
    }
}

/// Returns the ratio of two figures, if there is another one.
fn ratio(one: f64, other: f64) -> Option<f64> {
    (other > 0.0).then(|| one / other)
}

/// Converts a number that fits: memory and output are below four billion.
fn number(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

impl Figures {
    /// Returns each figure with its name.
    fn numbers(&self) -> [(&'static str, f64); 5] {
        [
            ("p50 µs", self.p50.as_secs_f64() * 1e6),
            ("p99 µs", self.p99.as_secs_f64() * 1e6),
            ("memory KiB", number(self.memory_bytes / 1024)),
            ("output bytes", number(self.output_bytes as u64)),
            ("calls/s", self.calls_per_second),
        ]
    }
}

fn text(results: &[(String, Vec<Figures>)], calls: u32) -> String {
    let mut text = String::new();
    for (object, figures) in results {
        let _ = writeln!(text, "{object}, {calls} calls");
        let Some((first, others)) = figures.split_first() else {
            continue;
        };
        for (index, (name, value)) in first.numbers().into_iter().enumerate() {
            let _ = write!(text, "  {name:<12} {value:>12.1}");
            for other in others {
                let other = other.numbers()[index].1;
                let _ = write!(text, " {other:>12.1}");
                if let Some(ratio) = ratio(value, other) {
                    let _ = write!(text, "  ratio {ratio:.2}");
                }
            }
            text.push('\n');
        }
    }
    text
}

fn document(results: &[(String, Vec<Figures>)], calls: u32) -> Value {
    let figures = |figures: &Figures| {
        let Figures {
            p50,
            p99,
            memory_bytes,
            output_bytes,
            calls_per_second,
        } = figures;
        json!({
            "p50Microseconds": p50.as_secs_f64() * 1e6,
            "p99Microseconds": p99.as_secs_f64() * 1e6,
            "memoryBytes": memory_bytes,
            "outputBytes": output_bytes,
            "callsPerSecond": calls_per_second,
        })
    };
    let object = |(object, all): &(String, Vec<Figures>)| {
        let ratios = match all.as_slice() {
            [first, second] => {
                let pairs = first.numbers().into_iter().zip(second.numbers());
                pairs
                    .map(|((name, one), (_, other))| (name.to_owned(), json!(ratio(one, other))))
                    .collect()
            }
            _ => Value::Null,
        };
        json!({"object": object, "components": all.iter().map(figures).collect::<Vec<_>>(), "ratios": ratios})
    };
    json!({"calls": calls, "objects": results.iter().map(object).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(p50: u64) -> Figures {
        Figures {
            p50: Duration::from_micros(p50),
            p99: Duration::from_micros(2 * p50),
            memory_bytes: 1_048_576,
            output_bytes: 0,
            calls_per_second: 1000.0,
        }
    }

    #[test]
    fn two_components_are_compared_as_ratios() {
        let shown = text(&[("App a".into(), vec![figures(50), figures(100)])], 10);
        assert!(shown.starts_with("App a, 10 calls\n"), "{shown}");
        assert!(shown.contains("ratio 0.50") && shown.contains("ratio 1.00"), "{shown}");
        // There is no ratio to zero.
        assert_eq!(shown.matches("ratio").count(), 4, "{shown}");
        let alone = document(&[("App a".into(), vec![figures(50)])], 10);
        assert_eq!(alone["objects"][0]["ratios"], Value::Null);
    }
}
