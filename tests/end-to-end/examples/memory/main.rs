//! Measures a replica's memory with the five plugins and many primaries in a hundred namespaces, on a real API server:
//! one replica alone, and each of four that divide the work. `cargo xtask bench memory` runs it.
//!
//! `objects` makes the primaries, and `replica` is a host's process with what it says of itself.

mod objects;
mod replica;

use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};

use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::controlplane::Options;
use pilothouse_testkit::requests::Request;

use crate::objects::Mix;
use crate::replica::{Figures, Replica};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Has the API server divide lists and watches.
const GATE: &str = "--feature-gates=ShardedListAndWatch=true";

const REPLICAS: usize = 4;

/// Shards that docs/replicas.md advises for four replicas.
const SHARDS: u64 = 16;

/// The fewest shards of a replica that has its share. Shards are divided by their load, so not all have four.
const FEWEST_SHARDS: u64 = 2;

/// Time limit of each wait.
const PATIENCE: Duration = Duration::from_hours(1);

/// Time without requests after which replicas count as settled.
const QUIET: Duration = Duration::from_secs(5);

/// Rest of settled replicas before their memory is measured: objects that moved to another replica are dropped after 30
/// quiet seconds, and plugins' code is unmapped when they are idle.
const REST: Duration = Duration::from_mins(1);

#[tokio::main]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [profile, objects, gate] = arguments.as_slice() else {
        return Err("usage: memory PROFILE OBJECTS on|off".into());
    };
    let mix = Mix::of(objects.parse()?);
    let options = Options {
        apiserver_arguments: (gate == "on").then(|| GATE.to_owned()).into_iter().collect(),
        ..Options::default()
    };
    let cluster = Cluster::real_with(options).await?;
    println!("{mix}\nhost built with the profile {profile}; feature gate ShardedListAndWatch {gate}");
    println!(
        "{:<44} {:>9} {:>9} {:>9} {:>7}",
        "", "PSS, MiB", "RSS, MiB", "objects", "shards"
    );

    let mut one = Replica::new(profile, &[])?;
    one.start(&cluster).await?;
    until("all controllers work", &mut [&mut one], async |all| {
        Ok(all[0].scrape()?.count("pilothouse_controller_synced", &[]) == Some(objects::CONTROLLERS))
    })
    .await?;
    rest(&cluster, &mut [&mut one]).await?;
    line("one replica, no primaries", &one.figures()?);
    let begun = Instant::now();
    mix.make(&cluster).await?;
    let client = cluster.client().await?;
    until("all primaries are reconciled", &mut [&mut one], async |all| {
        settled(&cluster, all).await?;
        mix.is_reconciled(&client).await
    })
    .await?;
    let taken = begun.elapsed().as_secs();
    rest(&cluster, &mut [&mut one]).await?;
    line(
        &format!("one replica, after it made all, in {taken} s"),
        &one.figures()?,
    );
    one.stop().await?;
    one.start(&cluster).await?;
    until("all controllers work", &mut [&mut one], async |all| {
        Ok(all[0].scrape()?.count("pilothouse_controller_synced", &[]) == Some(objects::CONTROLLERS))
    })
    .await?;
    rest(&cluster, &mut [&mut one]).await?;
    let alone = one.figures()?;
    line("one replica, started again", &alone);
    one.stop().await?;

    let mut four = Vec::new();
    for _ in 0..REPLICAS {
        let mut replica = Replica::new(profile, &["--leader-election", "--shards", &SHARDS.to_string()])?;
        replica.start(&cluster).await?;
        four.push(replica);
    }
    let mut all: Vec<&mut Replica> = four.iter_mut().collect();
    until("four replicas share all shards", &mut all, async |all| {
        let mut held = Vec::new();
        for replica in all {
            held.push(
                replica
                    .scrape()?
                    .count("pilothouse_shards_held", &[])
                    .unwrap_or_default(),
            );
        }
        Ok(held.iter().sum::<u64>() == SHARDS && held.iter().all(|held| *held >= FEWEST_SHARDS))
    })
    .await?;
    rest(&cluster, &mut all).await?;
    let mut figures = four.iter().map(Replica::figures).collect::<Outcome<Vec<_>>>()?;
    figures.sort_by_key(|figures| !figures.leads);
    for figures in &figures {
        let what = if figures.leads { "the leader" } else { "another" };
        line(&format!("four replicas: {what}"), figures);
    }
    for replica in &mut four {
        replica.stop().await?;
    }
    by_kind(&alone, &figures);
    Ok(())
}

fn line(what: &str, figures: &Figures) {
    let Figures {
        proportional,
        resident,
        cached,
        shards,
        leads: _,
    } = figures;
    let cached: u64 = cached.values().sum();
    let shards = shards.map_or_else(|| "-".to_owned(), |shards| shards.to_string());
    println!("{what:<44} {proportional:>9.1} {resident:>9.1} {cached:>9} {shards:>7}");
}

/// Prints the count of cached objects of each kind, for the one replica and for each of the four.
fn by_kind(alone: &Figures, four: &[Figures]) {
    println!("\ncached objects of each kind: one replica, and each of the four");
    let kinds: BTreeMap<&String, &u64> = alone.cached.iter().collect();
    for (kind, count) in kinds {
        let each = four.iter().map(|figures| figures.cached.get(kind).copied());
        let each: Vec<String> = each.map(|count| format!("{:>7}", count.unwrap_or_default())).collect();
        println!("  {kind:<52} {count:>7}  {}", each.join(" "));
    }
}

/// Waits until something holds of replicas that run.
async fn until(
    what: &str,
    replicas: &mut [&mut Replica],
    mut holds: impl AsyncFnMut(&mut [&mut Replica]) -> Outcome<bool>,
) -> Outcome<()> {
    let begun = Instant::now();
    while !holds(replicas).await? {
        for replica in replicas.iter_mut() {
            replica.runs()?;
        }
        if begun.elapsed() > PATIENCE {
            let logs: Vec<String> = replicas.iter().map(|replica| replica.log_tail()).collect();
            return Err(format!("waited in vain until {what}\n{}", logs.join("\n---\n")).into());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

/// Waits until replicas have asked the API server for nothing but their Leases and the plan of their shards.
async fn settled(cluster: &Cluster, replicas: &mut [&mut Replica]) -> Outcome<()> {
    until("the replicas are quiet", replicas, async |_| {
        let mark = cluster.mark()?;
        tokio::time::sleep(QUIET).await;
        let mut requests = cluster.requests_since(mark)?.into_iter().filter(Request::is_by_host);
        let is_usual = |request: &Request| request.resource == "leases" || request.name.ends_with("-shards");
        Ok(requests.all(|request| is_usual(&request)))
    })
    .await
}

async fn rest(cluster: &Cluster, replicas: &mut [&mut Replica]) -> Outcome<()> {
    settled(cluster, replicas).await?;
    tokio::time::sleep(REST).await;
    for replica in replicas {
        replica.runs()?;
    }
    Ok(())
}
