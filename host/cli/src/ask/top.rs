//! `pilothouse top`: prints the plugins of a host by the time, memory and requests that they use.

use std::time::Duration;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use pilothouse_runtime::api::documents::{PluginUsageDocument, UsageDocument};

use super::replicas::{Replies, silence};
use super::table::{Cell, Emphasis, Screen, Table, duration, size};
use super::{AskedHost, HostArguments, OutputForm, run};

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse top
  pilothouse top --interval 10 --sort-by requests
  pilothouse top --host http://127.0.0.1:8082 -o json            # a host on this machine

Exit code: 0, 1 if no host answers, 2 if the command line is wrong.";

/// `pilothouse top`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct TopCommand {
    /// By what to sort the plugins, the largest first
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = SortKey::Time)]
    sort_by: SortKey,

    /// Count for this many seconds from now (default: since the host started)
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: Option<u64>,

    #[command(flatten)]
    host: HostArguments,
}

#[derive(Clone, Copy, ValueEnum)]
enum SortKey {
    /// The time of its reconciles.
    Time,
    /// The largest memory of a call.
    Memory,
    /// Its requests to the API server.
    Requests,
}

impl TopCommand {
    /// Queries the host and prints.
    pub fn execute(self) -> anyhow::Result<()> {
        run(async {
            let host = self.host.connect().await?;
            let before = match self.interval {
                None => None,
                Some(seconds) => {
                    let before = get_usage(&host).await?;
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                    Some(before)
                }
            };
            let after = get_usage(&host).await?;
            let used = after.map(|after| used(after, before.as_ref()));
            let sum = used.sum();
            match host.output {
                OutputForm::Json if self.interval.is_none() => print!("{}", after.as_json()?),
                // A host without shards has one document, printed as received.
                OutputForm::Json if sum.document.host.shards_held.is_none() => {
                    println!("{}", serde_json::to_string(&sum.document)?);
                }
                OutputForm::Json => println!("{}", serde_json::to_string(&sum)?),
                OutputForm::Table => {
                    let (document, now) = (&sum.document, Timestamp::now());
                    print!(
                        "{}",
                        shown(document, self.sort_by, now, self.interval, Screen::stdout())
                    );
                    if let Some(silence) = silence(&sum.silent_replicas) {
                        println!("\n{silence}");
                    }
                }
            }
            Ok(())
        })
    }
}

async fn get_usage(host: &AskedHost) -> anyhow::Result<Replies<UsageDocument>> {
    host.ask_all("/api/v1/usage").await
}

/// Returns the usage of a process between two answers, or since its start if it has not answered before.
fn used(now: &UsageDocument, before: Option<&Replies<UsageDocument>>) -> UsageDocument {
    let is_same = |before: &&UsageDocument| {
        (&before.host.instance, &before.host.started) == (&now.host.instance, &now.host.started)
    };
    let Some(before) = before.and_then(|before| before.documents().find(is_same)) else {
        return now.clone();
    };
    let difference = |now: &PluginUsageDocument| {
        let Some(before) = before.plugins.iter().find(|before| before.plugin == now.plugin) else {
            return now.clone();
        };
        PluginUsageDocument {
            reconciles: now.reconciles.saturating_sub(before.reconciles),
            failures: now.failures.saturating_sub(before.failures),
            reconcile_seconds: (now.reconcile_seconds - before.reconcile_seconds).max(0.0),
            call_seconds: (now.call_seconds - before.call_seconds).max(0.0),
            requests: now.requests.saturating_sub(before.requests),
            ..now.clone()
        }
    };
    UsageDocument {
        plugins: now.plugins.iter().map(difference).collect(),
        ..now.clone()
    }
}

fn shown(document: &UsageDocument, sort_by: SortKey, now: Timestamp, interval: Option<u64>, screen: Screen) -> String {
    let mut plugins: Vec<&PluginUsageDocument> = document.plugins.iter().collect();
    plugins.sort_by(|one, other| {
        let order = match sort_by {
            SortKey::Time => other.reconcile_seconds.total_cmp(&one.reconcile_seconds),
            SortKey::Memory => other.largest_call_bytes.cmp(&one.largest_call_bytes),
            SortKey::Requests => other.requests.cmp(&one.requests),
        };
        order.then_with(|| one.plugin.cmp(&other.plugin))
    });
    let span = match interval {
        Some(seconds) => format!("in {seconds} s"),
        None => format!(
            "since the host started, {}",
            super::table::ago(&document.host.started, now)
        ),
    };
    let mut table = Table::new(&[
        "PLUGIN",
        "RECONCILES",
        "FAILED",
        "TIME",
        "CODE",
        "REQUESTS",
        "LARGEST CALL",
        "DEPENDENCIES",
        "OBJECTS",
    ]);
    for plugin in plugins {
        let failed = if plugin.failures > 0 {
            Emphasis::Bad
        } else {
            Emphasis::Plain
        };
        table.row([
            plugin.plugin.as_str().into(),
            plugin.reconciles.to_string().into(),
            Cell::new(plugin.failures.to_string(), failed),
            duration(plugin.reconcile_seconds).into(),
            duration(plugin.call_seconds).into(),
            plugin.requests.to_string().into(),
            size(plugin.largest_call_bytes).into(),
            size(plugin.dependency_bytes).into(),
            plugin.objects.to_string().into(),
        ]);
    }
    format!("Used {span}\n\n{}", table.lines(0, screen))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(started: &str, plugins: &[(&str, u64, f64, u64)]) -> UsageDocument {
        let mut document = UsageDocument::default();
        started.clone_into(&mut document.host.started);
        document.plugins = plugins
            .iter()
            .map(|(name, reconciles, seconds, memory)| PluginUsageDocument {
                plugin: (*name).to_owned(),
                reconciles: *reconciles,
                reconcile_seconds: *seconds,
                requests: 2 * reconciles,
                largest_call_bytes: *memory,
                ..PluginUsageDocument::default()
            })
            .collect();
        document
    }

    #[test]
    fn usage_is_the_difference_of_two_answers_of_one_process() {
        let before = document("2026-01-02T03:00:00Z", &[("a", 10, 1.0, 100)]);
        let now = document("2026-01-02T03:00:00Z", &[("a", 12, 1.5, 200), ("b", 1, 0.1, 300)]);
        let replies = |document: UsageDocument| Replies::new(String::new(), document);
        let used = used(&now, Some(&replies(before)));
        let counts: Vec<_> = used
            .plugins
            .iter()
            .map(|it| (it.reconciles, it.requests, it.largest_call_bytes))
            .collect();
        assert_eq!(counts, [(2, 4, 200), (1, 2, 300)]);
        let other = document("2026-01-02T02:00:00Z", &[("a", 10, 1.0, 100)]);
        assert_eq!(super::used(&now, Some(&replies(other))), now);
    }

    #[test]
    fn plugins_come_in_the_order_of_what_they_use() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let document = document("2026-01-02T03:00:00Z", &[("a", 12, 0.5, 2048), ("b", 1, 2.5, 100)]);
        let text = shown(&document, SortKey::Time, now, None, Screen::PLAIN);
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows[0], "Used since the host started, 4m5s ago");
        assert!(rows[3].starts_with("b ") && rows[3].contains("2.5s"), "{text}");
        assert!(rows[4].starts_with("a ") && rows[4].contains("2.0KiB"), "{text}");
        for key in [SortKey::Memory, SortKey::Requests] {
            let text = shown(&document, key, now, Some(5), Screen::PLAIN);
            assert!(text.lines().nth(3).is_some_and(|row| row.starts_with("a ")), "{text}");
            assert!(text.starts_with("Used in 5 s\n"), "{text}");
        }
    }
}
