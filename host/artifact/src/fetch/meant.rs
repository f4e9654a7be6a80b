//! Remembers the last target of a tag. A host whose plugins are named on the command line has nothing else to start
//! from while the registry does not respond.

use serde::{Deserialize, Serialize};

use crate::fetch::fetcher::blocking;
use crate::{CacheError, Choice, Digest, FetchError, FetchedComponent, Fetcher, Keychain, Location};

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

    /// Fetches the artifact that [`Self::fetch_meant`] fetched last for this location, without a network; none if the
    /// cache does not have it. The cache alone says which artifact that is; its signature is verified like any other.
    pub async fn fetch_last(&self, location: &Location) -> Result<Option<FetchedComponent>, FetchError> {
        let (cache, name) = (self.cache.clone(), location.to_string());
        let read = move || -> Result<_, CacheError> {
            let key = meant_key(&name);
            let found = cache.record(MEANT, &key)?.filter(|bytes| bytes.len() <= LONGEST_MEANT);
            let meant = found.and_then(|bytes| serde_json::from_slice::<Meant>(&bytes).ok());
            let Some(meant) = meant.filter(|meant| meant.location == name) else {
                return Ok(None);
            };
            Ok(Some((meant.manifest, cache.hold_record(MEANT, &key)?)))
        };
        let Some((manifest, hold)) = blocking(read).await?? else {
            return Ok(None);
        };
        let mut fetched = self.fetch_cached(location, manifest).await?;
        if let Some(fetched) = &mut fetched {
            fetched.holds.extend(hold);
        }
        Ok(fetched)
    }
}

fn meant_key(location: &str) -> String {
    Digest::of(location.as_bytes()).hex()
}
