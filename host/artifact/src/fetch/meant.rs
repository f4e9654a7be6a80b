//! Remembers the last target of a tag. A host whose plugins are named on the command line has nothing else to start
//! from while the registry does not respond.

use serde::{Deserialize, Serialize};

use crate::fetch::fetcher::blocking;
use crate::fetch::replica;
use crate::{CacheError, Choice, Digest, FetchError, FetchedComponent, Fetcher, Hold, Keychain, Location};

/// The kind of the records with a tag's last target.
const MEANT: &str = "meant";

/// The longest such record, in bytes.
const LONGEST_MEANT: usize = 4 << 10;

/// The last target of a tag.
#[derive(Serialize, Deserialize)]
struct Meant {
    location: String,
    manifest: Digest,
}

impl Fetcher {
    /// Fetches the component of the artifact to which a location refers now, and remembers that artifact.
    pub async fn fetch_meant(
        &self,
        location: &Location,
        keychain: &dyn Keychain,
    ) -> Result<FetchedComponent, FetchError> {
        let chosen = self.choose(location, &Choice::Target, keychain).await?;
        let mut fetched = self.fetch(location, chosen.digest, keychain).await?;
        if let (Location::Registry(_), Some(_)) = (location, &chosen.tag) {
            let meant = Meant {
                location: location.to_string(),
                manifest: chosen.digest,
            };
            let (cache, key) = (self.cache.clone(), meant_key(&meant.location));
            let note = move || {
                let meant = serde_json::to_vec(&meant).expect("it is JSON");
                cache.put_record(MEANT, &key, &meant)
            };
            match blocking(note).await? {
                Ok(hold) => fetched.holds.push(hold),
                Err(error) => tracing::warn!(%location, %error, "a start without the registry will not know the tag"),
            }
        }
        Ok(fetched)
    }

    /// Fetches the artifact that [`Self::fetch_meant`] fetched last for this location, without the registry: from
    /// the cache, else from another replica. None if neither has it. The record alone says which artifact that is; its
    /// signature is verified like any other.
    pub async fn fetch_last(&self, location: &Location) -> Result<Option<FetchedComponent>, FetchError> {
        let Some((manifest, hold)) = self.last_meant(location.to_string()).await? else {
            return self.fetch_last_of_others(location).await;
        };
        let mut fetched = self.fetch_cached(location, manifest).await?;
        if let Some(fetched) = &mut fetched {
            fetched.holds.push(hold);
        }
        Ok(fetched)
    }

    /// Fetches from another replica what that one fetched last for this location.
    async fn fetch_last_of_others(&self, location: &Location) -> Result<Option<FetchedComponent>, FetchError> {
        let (Some(replicas), Location::Registry(_)) = (&self.replicas, location) else {
            return Ok(None);
        };
        match replica::meant(&**replicas, location.to_string()).await {
            Ok(manifest) => Ok(Some(self.take_over(location, manifest, replicas.clone()).await?)),
            Err(error) => {
                tracing::debug!(%location, %error, "no other replica knows the tag");
                Ok(None)
            }
        }
    }

    /// The manifest that a tag meant last, with a hold on the record of it.
    pub(crate) async fn last_meant(&self, location: String) -> Result<Option<(Digest, Hold)>, FetchError> {
        let cache = self.cache.clone();
        let read = move || -> Result<_, CacheError> {
            let key = meant_key(&location);
            let found = cache.record(MEANT, &key)?.filter(|bytes| bytes.len() <= LONGEST_MEANT);
            let meant = found.and_then(|bytes| serde_json::from_slice::<Meant>(&bytes).ok());
            let Some(meant) = meant.filter(|meant| meant.location == location) else {
                return Ok(None);
            };
            let hold = cache.hold_record(MEANT, &key)?;
            Ok(hold.map(|hold| (meant.manifest, hold)))
        };
        blocking(read).await?.map_err(FetchError::from)
    }
}

fn meant_key(location: &str) -> String {
    Digest::of(location.as_bytes()).hex()
}
