//! `pilothouse migrate-storage`: rewrites the stored objects of a kind in the storage version of its CRD, at a rate, and
//! then removes the other versions from `status.storedVersions`. Without that a CRD cannot drop a version.

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use pilothouse_cluster::Client;
use pilothouse_cluster::connect::connect;
use pilothouse_cluster::error::{RequestError, chain};
use pilothouse_cluster::resources::migrate::{Rewrite, StoredKind, StoredObjects, TrimError};
use pilothouse_core::text::printable::{first_few, printable};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::WouldChange;
use crate::artifact::wait_for;
use crate::output::{Format, counted, missing_right};
use crate::run::{ClusterArguments, USER_AGENT};

/// Requests for one object while the server may answer otherwise soon.
const TRIES: u32 = 5;

/// Pause before the second request for an object; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// The most objects that are not rewritten before the rest is left: the conversion webhook is down, for example.
const MOST_FAILURES: usize = 10;

/// Time between two lines about the progress.
const PROGRESS: Duration = Duration::from_secs(10);

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse migrate-storage sites --dry-run                     # what is stored in which versions
  pilothouse migrate-storage sites.example.com                   # rewrite, then trim status.storedVersions
  pilothouse migrate-storage site --rate 100 --context prod

Each object is patched without a change: the API server then stores it in the storage version. Its generation stays, its
resourceVersion changes. The command may be interrupted and run again; objects that are stored in the storage version are not
written again. status.storedVersions is trimmed only if all objects were rewritten and the CRD did not change meanwhile.

It needs the rights to list and patch the kind, to list and get customresourcedefinitions.apiextensions.k8s.io, and to patch
customresourcedefinitions/status.

With -o json, `rewritten`, `unchanged` and `deleted` count objects, `failed` has those that were not rewritten, each with the
`error`, and `trimmed` says whether status.storedVersions has the storage version alone.

Exit code: 0, also if nothing is due; 1 if an object was not rewritten or status.storedVersions not trimmed; 2 if the command line is
wrong; with --dry-run, 3 if something is due.";

/// `pilothouse migrate-storage`
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct MigrateStorageCommand {
    /// The kind, its plural or a short name, with or without the group, such as `sites.example.com`
    kind: String,

    /// Objects that are rewritten in a second, 1 to 1000
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = RangedU64ValueParser::<u32>::new().range(1..=1000))]
    rate: u32,

    /// Print what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Output format
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    output: Format,

    #[command(flatten)]
    cluster: ClusterArguments,
}

/// Counts of the objects by their result.
#[derive(Default)]
struct Migration {
    written: usize,
    unchanged: usize,
    gone: usize,
    /// Objects that were not rewritten, with the reason.
    failed: Vec<(String, String)>,
    /// Objects that were not looked at after too many failures.
    left: usize,
}

impl MigrateStorageCommand {
    /// Migrates, or says what would be done.
    pub fn execute(self) -> anyhow::Result<()> {
        wait_for(self.migrate())
    }

    async fn migrate(self) -> anyhow::Result<()> {
        let client = connect(&self.cluster.target(), USER_AGENT).await?;
        let stored = find(&client, &self.kind).await?;
        let left = stored.left().join(", ");
        if left.is_empty() {
            match self.output {
                Format::Text => println!(
                    "nothing is due: objects of {} are stored in {} alone",
                    stored.crd, stored.storage
                ),
                Format::Json => println!("{:#}", document(&stored, self.dry_run, &Migration::default(), true)),
            }
            return Ok(());
        }
        let objects = stored.objects(&client).await;
        let objects = objects.map_err(|error| cannot(&stored, "list", &stored.crd, &error))?;
        if self.output == Format::Text {
            println!(
                "{}: objects may be stored in {left}; the storage version is {}",
                stored.crd, stored.storage
            );
        }
        if self.dry_run {
            match self.output {
                Format::Text => println!(
                    "would rewrite {}, {} in a second, and then remove {left} from status.storedVersions",
                    counted(objects.len() as u64, "object", "objects"),
                    self.rate
                ),
                Format::Json => println!("{:#}", document(&stored, true, &Migration::default(), false)),
            }
            return Err(WouldChange.into());
        }
        let migration = rewrite_all(&client, &stored, &objects, self.rate).await?;
        let trimmed = if migration.failed.is_empty() {
            Some(stored.trim(&client).await)
        } else {
            None
        };
        if self.output == Format::Json {
            let is_trimmed = matches!(trimmed, Some(Ok(())));
            println!("{:#}", document(&stored, false, &migration, is_trimmed));
        }
        report(&stored, &migration, trimmed, self.output)
    }
}

/// Finds the CRD of the kind that is called so.
async fn find(client: &Client, called: &str) -> anyhow::Result<StoredKind> {
    let all = StoredKind::list(client).await.map_err(|error| {
        let right = missing_right(&error, "list customresourcedefinitions.apiextensions.k8s.io");
        anyhow::anyhow!("cannot list the CRDs: {}{right}", chain(&error))
    })?;
    let (mut found, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|stored| stored.is_called(called));
    match found.len() {
        0 => {
            let due: Vec<String> = others
                .iter()
                .filter(|stored| !stored.left().is_empty())
                .map(|stored| stored.crd.clone())
                .collect();
            let due = if due.is_empty() {
                "no CRD is due".to_owned()
            } else {
                format!("due are {}", first_few(due.iter().map(String::as_str)))
            };
            bail!(
                "no CRD defines a kind that is called {called}, and kinds without a CRD are not migrated by this command; {due}"
            )
        }
        1 => Ok(found.remove(0)),
        _ => {
            let names: Vec<&str> = found.iter().map(|stored| stored.crd.as_str()).collect();
            bail!("{called} may be {}; write one of these", names.join(" or "))
        }
    }
}

/// Rewrites objects one after the other. An error of one does not keep others from being rewritten, unless the account
/// lacks the right.
async fn rewrite_all(
    client: &Client,
    stored: &StoredKind,
    objects: &StoredObjects,
    rate: u32,
) -> anyhow::Result<Migration> {
    let mut migration = Migration::default();
    let mut ticks = interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = Instant::now();
    for (position, name) in objects.names().enumerate() {
        if migration.failed.len() == MOST_FAILURES {
            migration.left = objects.len() - position;
            break;
        }
        ticks.tick().await;
        match rewrite(client, objects, position).await {
            Ok(Rewrite::Written) => migration.written += 1,
            Ok(Rewrite::Unchanged) => migration.unchanged += 1,
            Ok(Rewrite::Gone) => migration.gone += 1,
            Err(error) => {
                let title = format!("{} {name}", stored.kind().kind);
                if error.is_missing_right() {
                    return Err(cannot(stored, "patch", &title, &error));
                }
                migration.failed.push((title, printable(&chain(&error))));
            }
        }
        if told.elapsed() > PROGRESS {
            told = Instant::now();
            eprintln!("{} of {} objects", position + 1, objects.len());
        }
    }
    Ok(migration)
}

/// Rewrites an object; repeats what a busy server, or one that others make changes on, may accept soon.
async fn rewrite(client: &Client, objects: &StoredObjects, position: usize) -> Result<Rewrite, RequestError> {
    let mut pause = FIRST_PAUSE;
    for _ in 1..TRIES {
        match objects.rewrite(client, position).await {
            Err(error) if error.may_pass() || error.code() == Some(409) => {
                sleep(error.retry_after().unwrap_or(pause)).await;
                pause *= 2;
            }
            answer => return answer,
        }
    }
    objects.rewrite(client, position).await
}

/// Prints the result; an error if something is left.
fn report(
    stored: &StoredKind,
    migration: &Migration,
    trimmed: Option<Result<(), TrimError>>,
    output: Format,
) -> anyhow::Result<()> {
    let Migration {
        written,
        unchanged,
        gone,
        failed,
        left,
    } = migration;
    let (crd, storage) = (&stored.crd, &stored.storage);
    if output == Format::Text {
        println!(
            "rewrote {}; stored in {storage} before: {unchanged}, deleted meanwhile: {gone}",
            counted(*written as u64, "object", "objects"),
        );
        for (title, error) in failed {
            eprintln!("cannot rewrite {title}: {error}");
        }
    }
    match trimmed {
        None => bail!(
            "{} not rewritten{}, so status.storedVersions of CRD {crd} stays; correct that, and run the command again",
            counted(failed.len() as u64, "object was", "objects were"),
            if *left > 0 {
                format!(", and {left} were left because of that")
            } else {
                String::new()
            }
        ),
        Some(Ok(())) => {
            if output == Format::Text {
                println!("status.storedVersions of CRD {crd} is {storage} now");
            }
            Ok(())
        }
        Some(Err(TrimError::Request(error))) => {
            let right = missing_right(
                &error,
                "patch customresourcedefinitions/status in the group apiextensions.k8s.io",
            );
            bail!(
                "all objects are stored in {storage}, but status.storedVersions of CRD {crd} cannot be changed: {}{right}",
                chain(&error)
            )
        }
        Some(Err(error)) => Err(error.into()),
    }
}

fn cannot(stored: &StoredKind, verb: &str, what: &str, error: &RequestError) -> anyhow::Error {
    let right = missing_right(error, &format!("{verb} {}", stored.crd));
    anyhow::anyhow!("cannot {verb} {what}: {}{right}", chain(error))
}

fn document(stored: &StoredKind, dry_run: bool, migration: &Migration, trimmed: bool) -> Value {
    let failed = migration.failed.iter();
    let failed: Vec<Value> = failed
        .map(|(object, error)| json!({"object": object, "error": error}))
        .collect();
    json!({
        "crd": stored.crd, "storageVersion": stored.storage, "storedVersions": stored.stored, "dryRun": dry_run,
        "rewritten": migration.written, "unchanged": migration.unchanged, "deleted": migration.gone, "failed": failed,
        "notTried": migration.left, "trimmed": trimmed,
    })
}
