//! Fetches the plugins that the command line names by reference, before the host connects: several at once, with
//! retries after transient problems, and from the cache if a registry does not answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pilothouse_artifact::{DockerConfig, FetchError, FetchedComponent, Fetcher, Hold, Location};
use pilothouse_core::status::backoff;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::artifact::host::store::described;
use crate::plugins::NamedFile;

/// Plugins that are fetched at the same time, as many as of Plugin resources.
const FETCHERS: usize = 4;

/// Time after which nothing is retried: the host starts without the plugin.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Fetches the plugins that are named by reference, and puts their files in place of the references, in the same order.
/// A plugin that cannot be fetched is logged and left out. The returned holds keep the files in the cache.
pub async fn fetch_all(
    fetcher: Arc<Fetcher>,
    plugins: Vec<NamedFile>,
    patience: Duration,
) -> (Vec<NamedFile>, Vec<Hold>) {
    let turns = Arc::new(Semaphore::new(FETCHERS));
    let mut fetching = JoinSet::new();
    for (place, plugin) in plugins.iter().enumerate() {
        if let Some(reference) = plugin.reference() {
            let (fetcher, turns, reference) = (fetcher.clone(), turns.clone(), reference.to_owned());
            fetching.spawn(async move { (place, fetch(&fetcher, &turns, &reference, place, patience).await) });
        }
    }
    let mut files: Vec<Option<NamedFile>> = plugins.into_iter().map(Some).collect();
    let mut holds = Vec::new();
    while let Some(fetched) = fetching.join_next().await {
        let (place, fetched) = fetched.expect("a fetch does not panic, and nobody ends it");
        let plugin = files[place].take().expect("each plugin is fetched once");
        let reference = plugin.reference().unwrap_or_default().to_owned();
        match fetched {
            Ok((called, fetched)) => {
                let FetchedComponent {
                    manifest,
                    component,
                    file,
                    size,
                    verification,
                    holds: held,
                } = fetched;
                let verified = described(&verification);
                let signer = verified
                    .signer
                    .as_deref()
                    .unwrap_or("nobody whose signature was verified");
                tracing::info!(reference, digest = %manifest, size, signer, "fetched the plugin");
                holds.extend(held);
                files[place] = Some(NamedFile {
                    called: Some(called),
                    digest: Some(component.hex()),
                    file,
                    ..plugin
                });
            }
            Err(error) => {
                tracing::error!(reference, %error, "the plugin cannot be fetched; restart the host to try again");
            }
        }
    }
    (files.into_iter().flatten().collect(), holds)
}

/// Fetches an artifact with the user's credentials; its name is the last part of the repository or of the layout's path.
async fn fetch(
    fetcher: &Fetcher,
    turns: &Semaphore,
    reference: &str,
    place: usize,
    patience: Duration,
) -> Result<(String, FetchedComponent), FetchError> {
    let location: Location = reference.parse()?;
    let called = match &location {
        Location::Registry(reference) => reference.repository().rsplit('/').next().unwrap_or_default().to_owned(),
        Location::Layout(layout) => {
            let stem = layout.path.file_stem();
            stem.map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
        }
    };
    let (begun, mut failures) = (Instant::now(), 0);
    loop {
        let turn = turns.acquire().await;
        let fetched = fetcher.fetch_meant(&location, &DockerConfig).await;
        // Released while waiting: a registry that is down delays no other.
        drop(turn);
        let error = match fetched {
            Ok(fetched) => return Ok((called, fetched)),
            Err(error) if error.is_transient() => error,
            Err(error) => return Err(error),
        };
        match fetcher.fetch_last(&location).await {
            Ok(Some(fetched)) => {
                let digest = fetched.manifest;
                tracing::warn!(reference, %error, %digest, "running what the tag meant when it was fetched last");
                return Ok((called, fetched));
            }
            Ok(None) => {}
            Err(problem) => tracing::warn!(reference, %problem, "what the tag meant last cannot be used"),
        }
        failures += 1;
        let wait = backoff::delay(failures, place as u64).max(error.retry_after().unwrap_or_default());
        if begun.elapsed() + wait > patience {
            return Err(error);
        }
        tracing::warn!(reference, %error, ?wait, "cannot fetch the plugin; retrying");
        tokio::time::sleep(wait).await;
    }
}
