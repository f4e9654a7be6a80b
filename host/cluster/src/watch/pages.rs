//! Sizes the pages of a list by the objects' size, so that a page stays within its memory limit, and reads a page.

use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use kube::core::Status;

use crate::error::RequestError;
use crate::write::send::REQUEST_TIMEOUT;

/// The highest number of objects in a page.
const MOST_OBJECTS: u32 = 500;

/// The number of objects in the first page, when their size is not known.
const FIRST_OBJECTS: u32 = 50;

/// The aimed size of a page in bytes, by the objects of the page before it.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// The size at which a page is aborted and requested again with fewer objects, in bytes.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// The same for a page of one object. No object is as large; a server without paging answers with all of them.
const MOST_BYTES_OF_ONE: usize = 64 * 1024 * 1024;

/// The divisor of the page size after a time-out.
const SLOW_DIVISOR: u32 = 4;

/// The number of objects to request for the next page.
#[derive(Debug)]
pub(crate) struct PageSize {
    objects: u32,
    /// The highest number that arrived in time recently.
    most: u32,
}

impl Default for PageSize {
    fn default() -> Self {
        Self {
            objects: FIRST_OBJECTS,
            most: MOST_OBJECTS,
        }
    }
}

impl PageSize {
    /// The number of objects to request.
    pub(crate) fn objects(&self) -> u32 {
        self.objects
    }

    /// The largest allowed size of such a page, in bytes.
    fn most_bytes(&self) -> usize {
        if self.objects == 1 {
            MOST_BYTES_OF_ONE
        } else {
            MOST_BYTES
        }
    }

    /// Records the objects and bytes of a page, and adjusts the size of the next one.
    pub(crate) fn had(&mut self, objects: usize, bytes: usize) {
        self.most = self.most.saturating_add(self.most / 4 + 1).min(MOST_OBJECTS);
        if let Some(each) = bytes.checked_div(objects) {
            let fitting = PAGE_BYTES / each.max(1);
            self.objects = u32::try_from(fitting).unwrap_or(u32::MAX).clamp(1, self.most);
        }
    }

    /// Records that a page was too large. Returns whether a smaller one can be requested.
    fn was_too_large(&mut self) -> bool {
        // Each object had at least this much, on average.
        let each = MOST_BYTES / self.objects.max(1) as usize;
        let fitting = u32::try_from(PAGE_BYTES / each.max(1)).unwrap_or(u32::MAX);
        let before = self.objects;
        self.objects = fitting.clamp(1, before.saturating_sub(1).max(1));
        before > 1
    }

    /// Records that a page did not arrive in time.
    fn was_too_slow(&mut self) {
        self.objects = (self.objects / SLOW_DIVISOR).max(1);
        self.most = self.objects;
    }
}

/// Requests a page until one arrives that is small enough. `request` builds the request for a number of objects.
pub(crate) async fn read_page(
    client: &Client,
    size: &mut PageSize,
    request: impl Fn(u32) -> Result<Request<Body>, RequestError>,
) -> Result<String, RequestError> {
    loop {
        let most = size.most_bytes();
        let reading = read(client, request(size.objects())?, most);
        let Ok(read) = tokio::time::timeout(REQUEST_TIMEOUT, reading).await else {
            size.was_too_slow();
            return Err(RequestError::Silent(REQUEST_TIMEOUT));
        };
        match read? {
            Some(text) => return Ok(text),
            None if size.was_too_large() => {}
            None => {
                let problem = format!(
                    "a list of one object has more than {most} bytes; the API server that serves it does not know pages"
                );
                return Err(RequestError::Garbled(problem));
            }
        }
    }
}

/// Reads a response of at most `most` bytes; none if it is longer.
async fn read(client: &Client, request: Request<Body>, most: usize) -> Result<Option<String>, RequestError> {
    let response = client.send(request).await?;
    let status = response.status();
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if bytes.len() + data.len() > most {
            return Ok(None);
        }
        bytes.extend_from_slice(&data);
    }
    if status.is_success() {
        let text = String::from_utf8(bytes).map_err(|error| RequestError::Garbled(error.to_string()))?;
        return Ok(Some(text));
    }
    Err(refusal(status, &bytes))
}

/// The error in a response.
pub(crate) fn refusal(status: StatusCode, body: &[u8]) -> RequestError {
    let answer: Status = serde_json::from_slice(body).unwrap_or_default();
    RequestError::Answered(Box::new(Status {
        code: status.as_u16(),
        ..answer
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;
    const MIB: usize = 1024 * KIB;

    #[test]
    fn pages_have_as_many_objects_as_fit() {
        let mut size = PageSize::default();
        size.had(50, 50 * 2 * KIB);
        assert_eq!(size.objects(), MOST_OBJECTS, "small objects");
        size.had(500, 500 * 32 * KIB);
        assert_eq!(size.objects(), 128);
        size.had(4, 4 * MIB);
        assert_eq!(size.objects(), 4);
        size.had(1, 30 * MIB);
        assert_eq!(size.objects(), 1);
        size.had(0, 100);
        assert_eq!(size.objects(), 1, "an empty page says nothing");
        size.had(1, KIB);
        assert_eq!(size.objects(), MOST_OBJECTS, "and upward again");
    }

    #[test]
    fn a_page_that_is_too_large_comes_to_an_end() {
        let mut size = PageSize::default();
        let mut tries = 1;
        while size.was_too_large() {
            tries += 1;
        }
        assert_eq!(size.objects(), 1);
        assert!(tries <= 6, "{tries}");
    }

    #[test]
    fn pages_grow_again_step_by_step_after_a_slow_page() {
        let mut size = PageSize::default();
        size.had(50, 50);
        size.was_too_slow();
        assert_eq!(size.objects(), 125);
        size.had(125, 125);
        assert_eq!(size.objects(), 157);
        for _ in 0..6 {
            size.had(1, 1);
        }
        assert_eq!(size.objects(), MOST_OBJECTS);
    }
}
