//! Lists a kind once, past the watches, for a caller that cannot wait until the cache has it.

use pilothouse_core::reads::reach::Scope;

use crate::cache::codec::ObjectCodec;
use crate::discovery::ServedKind;
use crate::error::RequestError;
use crate::object::CachedObject;
use crate::watch::pages::{PageSize, read_page};
use crate::watch::reflector::{Detail, Page, encoded, list_request};
use crate::write::FieldManagerClient;
use crate::write::identity::Reader;

/// The most JSON that is read for one caller, in bytes.
const MOST_BYTES: usize = 32 * 1024 * 1024;

/// The size of the JSON that has been read for one caller, in bytes.
#[derive(Debug, Default)]
pub struct ReadBytes(usize);

/// The reason why a kind could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum LiveListError {
    /// The API server did not answer with a list.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The objects exceed the limit for one caller.
    #[error("they have more than {MOST_BYTES} bytes")]
    TooLarge,
}

impl FieldManagerClient {
    /// Lists a kind as its codec reads it, without unreadable objects. `read` counts all lists of one caller together.
    pub async fn list_live(
        &self,
        served: &ServedKind,
        scope: &Scope,
        codec: &ObjectCodec,
        read: &mut ReadBytes,
    ) -> Result<Vec<CachedObject>, LiveListError> {
        let Reader { client, credentials } = self.reader().await?;
        let detail = if codec.layout().projection().is_metadata_only() {
            Detail::Metadata
        } else {
            Detail::Whole
        };
        let (mut objects, mut pages) = (Vec::new(), PageSize::default());
        let mut next: Option<String> = None;
        loop {
            let request = |limit| {
                let mut query = format!("limit={limit}");
                if let Some(next) = &next {
                    query = format!("{query}&continue={}", encoded(next));
                }
                let mut request = list_request(served, scope, detail, &query, "List")?;
                if let Some((name, value)) = credentials.clone() {
                    request.headers_mut().insert(name, value);
                }
                Ok(request)
            };
            let text = read_page(&client, &mut pages, request).await?;
            read.0 += text.len();
            if read.0 > MOST_BYTES {
                return Err(LiveListError::TooLarge);
            }
            let page: Page<'_> = serde_json::from_str(&text).map_err(|error| {
                RequestError::Garbled(format!("a list of {} has another form: {error}", served.kind))
            })?;
            let items = page.items.unwrap_or_default();
            pages.had(items.len(), text.len());
            codec.learn(&items);
            objects.extend(items.into_iter().filter_map(|item| codec.read(item).ok()));
            next = page.metadata.next.filter(|next| !next.is_empty());
            if next.is_none() {
                return Ok(objects);
            }
        }
    }
}
