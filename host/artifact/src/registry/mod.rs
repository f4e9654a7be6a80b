//! Accesses a registry's repository: sends the requests of the OCI distribution specification, checks the responses.

pub(crate) mod client;
pub(crate) mod credentials;
pub(crate) mod http;
pub(crate) mod local;
pub(crate) mod registries;
pub(crate) mod session;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue, RANGE};
use reqwest::{Method, StatusCode, Url};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep, timeout_at};

use crate::content::blob::{Content, Resolved};
use crate::content::descriptor::{Listed, media_type, parse_lenient};
use crate::error::quoted;
use crate::fetch::download::{Download, sink_failed};
use crate::limits::{MANIFEST_LIMIT, PARSED_LIMIT};
use crate::reference::is_tag;
use crate::registry::http::{Body, Endpoint, Request, error, pause, worth_another_attempt};
use crate::registry::session::{Scope, Session, same_server};
use crate::{ArtifactError, Credentials, Descriptor, Digest, ErrorKind, Progress, Reference, Target};

/// The accepted media types of manifests. Readers refuse others by name.
const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
                         application/vnd.docker.distribution.manifest.v2+json, \
                         application/vnd.docker.distribution.manifest.list.v2+json";
/// The number of tags requested at a time.
const TAGS_PAGE: usize = 1000;
/// The highest number of pages of one list.
const PAGES: usize = 100;
/// The highest number of attempts to add to a referrers index that others write too.
const INDEX_ATTEMPTS: u32 = 8;

/// A repository of a registry.
pub(crate) struct Registry {
    session: Session,
    /// `HOST/REPOSITORY`.
    name: String,
}

/// An image index, including members that this crate does not know.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    pub(crate) schema_version: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) media_type: Option<String>,
    /// The entries, unparsed: one with a digest of another algorithm is not used here, but must not be lost.
    pub(crate) manifests: Vec<Value>,
    #[serde(flatten)]
    pub(crate) other: BTreeMap<String, Value>,
}

impl Index {
    pub(crate) fn empty() -> Self {
        Self {
            schema_version: 2,
            media_type: Some(media_type::INDEX.to_owned()),
            manifests: Vec::new(),
            other: BTreeMap::new(),
        }
    }

    /// The valid entries, at most `limit`.
    pub(crate) fn descriptors(&self, limit: usize) -> Vec<Descriptor> {
        let read = |entry: &Value| Descriptor::deserialize(entry).ok();
        self.manifests.iter().filter_map(read).take(limit).collect()
    }
}

#[derive(Deserialize)]
struct Tags {
    /// The tags. Nexus lists `null` among the names.
    tags: Option<Vec<Value>>,
}

/// The found referrers, and the reason why there may be others.
#[derive(Default)]
pub(crate) struct Referrers {
    pub(crate) found: Vec<Descriptor>,
    pub(crate) problem: Option<ArtifactError>,
}

impl From<Result<Vec<Descriptor>, ArtifactError>> for Referrers {
    fn from(answer: Result<Vec<Descriptor>, ArtifactError>) -> Self {
        let (found, problem) = answer.map_or_else(|error| (Vec::new(), Some(error)), |found| (found, None));
        Self { found, problem }
    }
}

impl Registry {
    pub(crate) fn new(endpoint: Arc<Endpoint>, reference: &Reference, credentials: Credentials) -> Self {
        Self {
            session: Session::new(endpoint, reference.repository(), credentials),
            name: reference.name(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn host(&self) -> &str {
        &self.session.endpoint.host
    }

    /// The name `NAME:TAG` or `NAME@DIGEST`.
    pub(crate) fn full(&self, target: &Target) -> String {
        match target {
            Target::Tag(tag) => format!("{}:{tag}", self.name),
            Target::Digest(digest) => format!("{}@{digest}", self.name),
        }
    }

    pub(crate) async fn resolve(&self, target: &Target) -> Result<Resolved, ArtifactError> {
        let what = format!("cannot resolve {}", self.full(target));
        let request =
            Request::new(Method::HEAD, self.session.url(&format!("manifests/{target}")), &what).accept(MANIFESTS);
        match self.session.exchange(&request, Scope::Pull, 0).await {
            Ok(answer) => {
                let digest = answer
                    .header("docker-content-digest")
                    .and_then(|it| it.parse::<Digest>().ok());
                let size = answer.header("content-length").and_then(|it| it.parse().ok());
                let media_type = answer
                    .header("content-type")
                    .map(|it| it.split(';').next().unwrap_or(it).trim().to_owned());
                if let (Some(digest), Some(size), Some(media_type)) = (digest, size, media_type)
                    && size <= MANIFEST_LIMIT
                    && (matches!(target, Target::Tag(_)) || *target == Target::Digest(digest))
                {
                    return Ok(Resolved {
                        digest,
                        size,
                        media_type,
                    });
                }
            }
            // Some registries and proxies know no HEAD.
            Err(error) if error.kind() == ErrorKind::Protocol => {}
            Err(error) => return Err(error),
        }
        let (bytes, media_type) = self.manifest(target).await?;
        Ok(Resolved {
            digest: Digest::of(&bytes),
            size: bytes.len() as u64,
            media_type,
        })
    }

    /// A manifest with its media type. If it is requested by digest, its digest is verified.
    pub(crate) async fn manifest(&self, target: &Target) -> Result<(Bytes, String), ArtifactError> {
        let what = format!("cannot read the manifest of {}", self.full(target));
        let request =
            Request::new(Method::GET, self.session.url(&format!("manifests/{target}")), &what).accept(MANIFESTS);
        let answer = self.session.exchange(&request, Scope::Pull, MANIFEST_LIMIT).await?;
        let found = Digest::of(&answer.body);
        if *target != Target::Digest(found) {
            if answer.body.trim_ascii_start().first() != Some(&b'{') {
                let media_type = answer.header("content-type");
                return Err(self
                    .session
                    .endpoint
                    .answered_otherwise(&what, media_type, "a manifest"));
            }
            if matches!(target, Target::Digest(_)) {
                let cause = format!(
                    "{} answered with other bytes, which have the digest {found}; do not use this registry",
                    self.host()
                );
                return Err(error(ErrorKind::DigestMismatch, &what, &cause));
            }
        }
        let media_type = answer.header("content-type").unwrap_or(media_type::MANIFEST);
        let media_type = media_type.split(';').next().unwrap_or_default().trim().to_owned();
        Ok((answer.body, media_type))
    }

    pub(crate) async fn tags(&self) -> Result<Vec<String>, ArtifactError> {
        let what = format!("cannot list the tags of {}", self.name);
        let limit = self.session.endpoint.limits.tags;
        let mut url = self.session.url("tags/list");
        url.query_pairs_mut().append_pair("n", &TAGS_PAGE.to_string());
        let mut tags = Vec::new();
        for _ in 0..PAGES {
            let request = Request::new(Method::GET, url, &what);
            let answer = self.session.exchange(&request, Scope::Pull, PARSED_LIMIT).await?;
            let page: Tags = serde_json::from_slice(&answer.body).map_err(|_| {
                let media_type = answer.header("content-type");
                self.session
                    .endpoint
                    .answered_otherwise(&what, media_type, "a list of tags")
            })?;
            // A text that is not a tag cannot be requested.
            let named = page.tags.iter().flatten().filter_map(Value::as_str);
            tags.extend(named.filter(|tag| is_tag(tag)).map(str::to_owned));
            if tags.len() > limit {
                let cause = format!("it has more than {limit} tags; name one, or remove some");
                return Err(error(ErrorKind::TooLarge, &what, &cause));
            }
            match self.next(&answer.url, answer.header("link"), &what)? {
                Some(next) => url = next,
                None => return Ok(tags),
            }
        }
        Err(error(
            ErrorKind::TooLarge,
            &what,
            &format!("the list has more than {PAGES} pages"),
        ))
    }

    /// The next page of a list, which must be on the same server.
    fn next(&self, page: &Url, link: Option<&str>, what: &str) -> Result<Option<Url>, ArtifactError> {
        let Some(link) = link.filter(|link| link.contains("rel=\"next\"") || link.contains("rel=next")) else {
            return Ok(None);
        };
        let target = link
            .split_once('<')
            .and_then(|(_, rest)| rest.split_once('>'))
            .map(|(target, _)| target);
        let next = target.and_then(|target| page.join(target).ok());
        match next.filter(|next| same_server(next, &self.session.endpoint.base)) {
            Some(next) if next != *page => Ok(Some(next)),
            _ => {
                let cause = format!(
                    "{} continues its list at {}, which is refused",
                    self.host(),
                    quoted(link)
                );
                Err(error(ErrorKind::Protocol, what, &cause))
            }
        }
    }

    /// All manifests with this subject: those that the referrers API lists, and those of the fallback tag. Both are
    /// needed: registries gain the API after manifests were attached, and some clients write the tag although the API
    /// exists.
    pub(crate) async fn referrers(&self, digest: Digest) -> Referrers {
        let limit = self.session.endpoint.limits.referrers;
        let mut referrers = Referrers::default();
        let mut has_api = false;
        match self.referrers_api(digest, limit, &mut referrers.found).await {
            Ok(is_known) => has_api = is_known,
            Err(error) => referrers.problem = Some(error),
        }
        let index = match self.behind_fallback(digest).await {
            Ok(index) => index.and_then(|bytes| Listed::read(&bytes)).unwrap_or_default(),
            // JFrog answers so where there is no such tag (https://github.com/sigstore/cosign/issues/2973).
            Err(error) if has_api && error.kind() == ErrorKind::Forbidden => {
                tracing::debug!(%error, "taking the fallback tag for absent");
                Listed::default()
            }
            Err(error) => {
                referrers.problem.get_or_insert(error);
                Listed::default()
            }
        };
        let found = &mut referrers.found;
        for descriptor in index.descriptors(limit) {
            if found.len() < limit && !found.iter().any(|it| it.digest == descriptor.digest) {
                found.push(descriptor);
            }
        }
        referrers
    }

    /// Adds the referrers that the API lists. Returns false if the registry does not know the API.
    async fn referrers_api(
        &self,
        digest: Digest,
        limit: usize,
        found: &mut Vec<Descriptor>,
    ) -> Result<bool, ArtifactError> {
        let what = format!("cannot list what belongs to {}@{digest}", self.name);
        let mut url = self.session.url(&format!("referrers/{digest}"));
        while found.len() < limit {
            let request = Request::new(Method::GET, url, &what).accept(media_type::INDEX);
            let answer = match self.session.exchange(&request, Scope::Pull, MANIFEST_LIMIT).await {
                Ok(answer) => answer,
                // Registries without the API answer in many ways; the specification knows 404 only.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Protocol) => return Ok(false),
                Err(error) => return Err(error),
            };
            let Some(index) = Listed::read(&answer.body) else {
                tracing::debug!(
                    registry = self.host(),
                    "the referrers API answered with something else than an index"
                );
                return Ok(false);
            };
            let before = found.len();
            found.extend(index.descriptors(limit - before));
            match self.next(&answer.url, answer.header("link"), &what)? {
                // A page without an entry leads nowhere.
                Some(next) if found.len() > before => url = next,
                _ => break,
            }
        }
        Ok(true)
    }

    /// The manifest of the fallback tag, if there is one.
    async fn behind_fallback(&self, digest: Digest) -> Result<Option<Bytes>, ArtifactError> {
        match self.manifest(&fallback_tag(digest)).await {
            // GitLab takes the tag for the digest, and answers with the subject itself
            // (https://github.com/oras-project/oras-go/issues/1396).
            Ok((bytes, _)) if Digest::of(&bytes) == digest => Ok(None),
            Ok((bytes, _)) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The index of the fallback tag, to be extended; an empty one if there is none, or it cannot be parsed.
    async fn fallback_index(&self, digest: Digest) -> Result<Index, ArtifactError> {
        let bytes = self.behind_fallback(digest).await?;
        Ok(bytes
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_else(Index::empty))
    }

    /// Continues a download until it is complete.
    pub(crate) async fn blob(
        &self,
        download: &mut Download,
        sink: &mut (dyn AsyncWrite + Unpin + Send),
        progress: &dyn Progress,
    ) -> Result<(), ArtifactError> {
        let limits = &self.session.endpoint.limits;
        let what = format!("cannot download {} of {}", download.digest(), self.name);
        let deadline = Instant::now() + limits.transfer;
        let mut failed = 0;
        loop {
            let before = download.received();
            let error = match self.blob_once(download, sink, progress, &what, deadline).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            // An attempt that moved something is a beginning; one that did not is a failure.
            failed = if download.received() - before >= limits.progress {
                1
            } else {
                failed + 1
            };
            if failed >= limits.attempts || !worth_another_attempt(&error) {
                return Err(error);
            }
            let wait = pause(limits, failed, &error);
            if Instant::now() + wait >= deadline {
                return Err(error);
            }
            tracing::debug!(%error, received = download.received(), ?wait, "resuming a download");
            sleep(wait).await;
        }
    }

    async fn blob_once(
        &self,
        download: &mut Download,
        sink: &mut (dyn AsyncWrite + Unpin + Send),
        progress: &dyn Progress,
        what: &str,
        deadline: Instant,
    ) -> Result<(), ArtifactError> {
        let endpoint = &self.session.endpoint;
        let limits = &endpoint.limits;
        let mut request = Request::new(
            Method::GET,
            self.session.url(&format!("blobs/{}", download.digest())),
            what,
        );
        let resumed = download.received();
        if resumed > 0 {
            let range = HeaderValue::from_str(&format!("bytes={resumed}-")).expect("digits are a header");
            request = request.header(RANGE, range);
        }
        let head = deadline.min(Instant::now() + limits.exchange);
        let response = timeout_at(head, self.session.send(&request, Scope::Pull)).await;
        let mut response = response.map_err(|_| endpoint.late(what, limits.exchange))??;
        // A server without ranges starts again; bytes that exist already are skipped.
        let mut skip = if response.status() == StatusCode::PARTIAL_CONTENT {
            0
        } else {
            resumed
        };
        if response.status() == StatusCode::PARTIAL_CONTENT {
            let range = response.headers().get("content-range").and_then(|it| it.to_str().ok());
            if !range.is_some_and(|it| it.starts_with(&format!("bytes {resumed}-"))) {
                let cause = format!(
                    "{} answered with another range than it was asked for; use a mirror",
                    self.host()
                );
                return Err(error(ErrorKind::Protocol, what, &cause));
            }
        }
        let media_type = response.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
        let length = response.content_length();
        if media_type.is_some_and(|it| it.starts_with("text/html"))
            && length.is_none_or(|length| length != download.size() - download.received())
        {
            return Err(endpoint.answered_otherwise(what, media_type, "the blob"));
        }
        if length.is_some_and(|length| length > download.size()) {
            return Err(download.too_much(what));
        }
        let mut interval_ends = Instant::now() + limits.progress_interval;
        let mut in_interval = 0;
        loop {
            let chunk = timeout_at(interval_ends.min(deadline), response.chunk()).await;
            if Instant::now() >= deadline {
                return Err(endpoint.late(what, limits.transfer));
            }
            let chunk = match chunk {
                Ok(Ok(chunk)) => Some(chunk),
                // All is there; how the connection ends does not matter.
                Ok(Err(_)) if download.received() == download.size() => break,
                Ok(Err(error)) => return Err(endpoint.broken(what, &error)),
                Err(_) => None,
            };
            if let Some(Some(chunk)) = &chunk {
                in_interval += chunk.len() as u64;
            }
            if Instant::now() >= interval_ends {
                if in_interval < limits.progress {
                    return Err(self.slow(what));
                }
                interval_ends = Instant::now() + limits.progress_interval;
                in_interval = 0;
            }
            let mut chunk = match chunk {
                Some(Some(chunk)) => chunk,
                Some(None) => break,
                // The interval ended, and enough had come before.
                None => continue,
            };
            let passed = skip.min(chunk.len() as u64);
            skip -= passed;
            let chunk = chunk.split_off(usize::try_from(passed).expect("it is at most a chunk's length"));
            download.write(&chunk, sink, progress, what).await?;
        }
        if download.received() < download.size() {
            let cause = format!(
                "{} ended after {} of {} bytes; if a proxy does not cut it off, the registry has lost a part: push it again",
                self.host(),
                download.received(),
                download.size()
            );
            return Err(error(ErrorKind::Truncated, what, &cause));
        }
        download.finish(what, self.host())?;
        sink.flush().await.map_err(|error| sink_failed(what, &error))
    }

    fn slow(&self, what: &str) -> ArtifactError {
        let limits = &self.session.endpoint.limits;
        let cause = format!(
            "{} sends less than {} bytes in {:?}; check the network, or use a mirror",
            self.host(),
            limits.progress,
            limits.progress_interval
        );
        error(ErrorKind::Timeout, what, &cause)
    }

    pub(crate) async fn has(&self, kind: &str, digest: Digest, scope: Scope) -> Result<bool, ArtifactError> {
        let what = format!("cannot look for {digest} in {}", self.name);
        let request =
            Request::new(Method::HEAD, self.session.url(&format!("{kind}/{digest}")), &what).accept(MANIFESTS);
        match self.session.exchange(&request, scope, 0).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Requests a mount of a blob from another repository of the registry, which the registry may decline. Returns
    /// whether it was mounted.
    pub(crate) async fn mount(&self, digest: Digest, from: &Self) -> bool {
        let what = format!("cannot take {digest} from {}", from.name);
        let mut url = self.session.url("blobs/uploads/");
        let from = &from.session.repository;
        url.query_pairs_mut()
            .append_pair("mount", &digest.to_string())
            .append_pair("from", from);
        let request = Request::new(Method::POST, url, &what);
        let answer = self.session.exchange(&request, Scope::Push, MANIFEST_LIMIT).await;
        answer.is_ok_and(|answer| answer.status == StatusCode::CREATED)
    }

    /// Uploads a blob in one piece.
    pub(crate) async fn push_blob(
        &self,
        descriptor: &Descriptor,
        content: &Content,
        progress: &dyn Progress,
    ) -> Result<(), ArtifactError> {
        let what = format!("cannot push {} to {}", descriptor.digest, self.name);
        let limits = &self.session.endpoint.limits;
        progress.started(descriptor.size);
        let mut failed = 0;
        // Each attempt needs an upload of its own: one that was cut off cannot be used again.
        while let Err(error) = self.upload(descriptor, content, &what).await {
            failed += 1;
            if failed >= limits.attempts || !worth_another_attempt(&error) {
                return Err(error);
            }
            sleep(pause(limits, failed, &error)).await;
        }
        progress.advanced(descriptor.size);
        progress.done();
        Ok(())
    }

    async fn upload(&self, descriptor: &Descriptor, content: &Content, what: &str) -> Result<(), ArtifactError> {
        let endpoint = &self.session.endpoint;
        let begin = Request::new(Method::POST, self.session.url("blobs/uploads/"), what);
        let answer = self.session.exchange(&begin, Scope::Push, MANIFEST_LIMIT).await?;
        let location = answer.header("location").and_then(|it| answer.url.join(it).ok());
        let Some(mut url) = location else {
            let cause = format!("{} does not say where to upload", self.host());
            return Err(error(ErrorKind::Protocol, what, &cause));
        };
        url.query_pairs_mut()
            .append_pair("digest", &descriptor.digest.to_string());
        let body = match content {
            Content::Bytes(bytes) => Body::Bytes(bytes),
            Content::File(path) => Body::File(path, descriptor.size),
        };
        let request = Request::new(Method::PUT, url, what)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))
            .body(body);
        if same_server(&request.url, &endpoint.base) {
            self.session.attempt(&request, Scope::Push, MANIFEST_LIMIT, 1).await?;
            return Ok(());
        }
        // Another host gets the blob, if at all, without credentials.
        endpoint.may_visit(&request.url).map_err(|problem| {
            let cause = format!("{} wants the upload to go {problem}", self.host());
            error(ErrorKind::Protocol, what, &cause)
        })?;
        let deadline = Instant::now() + endpoint.limits.transfer;
        let response = timeout_at(deadline, endpoint.send(&request, None, false)).await;
        let response = response.map_err(|_| endpoint.late(what, endpoint.limits.transfer))??;
        if !response.status().is_success() {
            return Err(endpoint.refused(response, what, true).await);
        }
        Ok(())
    }

    /// Writes a manifest under a tag or its digest. If it has a subject and the registry keeps no list of referrers, it
    /// is added to the fallback tag of the subject.
    pub(crate) async fn push_manifest(
        &self,
        bytes: &Bytes,
        media_type: &str,
        tag: Option<&str>,
    ) -> Result<Descriptor, ArtifactError> {
        let mut descriptor = Descriptor::of(media_type, bytes);
        let target = tag.map_or(Target::Digest(descriptor.digest), |tag| Target::Tag(tag.to_owned()));
        let handled = self.put_manifest(bytes, media_type, &target).await?;
        let document: Belonging = parse_lenient(bytes);
        if let Some(subject) = document.subject.filter(|_| !handled) {
            descriptor.artifact_type = document.artifact_type.or(document.config.map(|it| it.media_type));
            descriptor.annotations = document.annotations.unwrap_or_default();
            self.add_to_fallback(subject.digest, &descriptor).await?;
        }
        Ok(Descriptor::of(media_type, bytes))
    }

    /// Writes a manifest. Returns whether the registry lists it as a referrer, which the header OCI-Subject shows.
    async fn put_manifest(&self, bytes: &Bytes, media_type: &str, target: &Target) -> Result<bool, ArtifactError> {
        let what = format!("cannot push the manifest {}", self.full(target));
        let content_type = HeaderValue::from_str(media_type)
            .map_err(|_| error(ErrorKind::NotAPlugin, &what, "its media type is not valid"))?;
        let request = Request::new(Method::PUT, self.session.url(&format!("manifests/{target}")), &what)
            .header(CONTENT_TYPE, content_type)
            .body(Body::Bytes(bytes));
        let answer = self.session.exchange(&request, Scope::Push, MANIFEST_LIMIT).await?;
        Ok(answer.headers.contains_key(HeaderName::from_static("oci-subject")))
    }

    /// Adds an entry to the index of the fallback tag. Registries have no compare-and-set, so the index is read again
    /// after the write, until it has the entry.
    async fn add_to_fallback(&self, subject: Digest, entry: &Descriptor) -> Result<(), ArtifactError> {
        let limits = &self.session.endpoint.limits;
        let tag = fallback_tag(subject);
        let has = |index: &Index| index.descriptors(usize::MAX).iter().any(|it| it.digest == entry.digest);
        for attempt in 1..=INDEX_ATTEMPTS {
            let mut index = self.fallback_index(subject).await?;
            if has(&index) {
                return Ok(());
            }
            index.media_type = Some(media_type::INDEX.to_owned());
            index
                .manifests
                .push(serde_json::to_value(entry).expect("it is written as JSON"));
            let bytes = Bytes::from(serde_json::to_vec(&index).expect("it is written as JSON"));
            self.put_manifest(&bytes, media_type::INDEX, &tag).await?;
            if has(&self.fallback_index(subject).await?) {
                // Another client that read the index before this write may still replace it. That client would have to
                // check again, which oras and cosign do not. Nothing more can be done here.
                return Ok(());
            }
            let error = error(ErrorKind::Server, "", "");
            sleep(pause(limits, attempt, &error)).await;
        }
        let what = format!("cannot list {} as belonging to {}@{subject}", entry.digest, self.name);
        Err(error(
            ErrorKind::Server,
            &what,
            &format!("others keep replacing the tag {tag}; try again"),
        ))
    }
}

/// The members that make a manifest a referrer.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Belonging {
    pub(crate) subject: Option<Descriptor>,
    pub(crate) artifact_type: Option<String>,
    pub(crate) config: Option<Descriptor>,
    pub(crate) annotations: Option<BTreeMap<String, String>>,
}

/// The tag with the index of referrers, for registries without the API.
pub(crate) fn fallback_tag(digest: Digest) -> Target {
    Target::Tag(format!("sha256-{}", digest.hex()))
}
