//! Serves a review whose plugin may read objects that this replica does not cache, because replicas divide the work.
//! The review is forwarded to the replica that holds the namespace's shard; if that cannot answer, the objects are
//! listed live, so that the answer is correct and only slower. [`pilothouse_core::replicas::shards`] decides which
//! replica answers.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use pilothouse_cluster::cache::codec::ObjectCodec;
use pilothouse_cluster::cache::store::{IndexValues, Store};
use pilothouse_cluster::watch::live_list::{LiveListError, ReadBytes};
use pilothouse_core::plugin::manifest::Access;
use pilothouse_core::reads::reach::Reach;
use pilothouse_core::replicas::shards::Answerer;
use pilothouse_core::{Kind, Name};
use pilothouse_webhook::handler::WebhookResponse;
use pilothouse_webhook::log_throttle::LogThrottle;
use pilothouse_webhook::peers::{ForwardError, PeerClient};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use crate::context::HostContext;
use crate::lanes::lane::{Lane, read_reach};

/// Concurrent reviews with live lists: each may hold some tens of megabytes.
const LIVE: usize = 4;

/// Time for which a replica is skipped after it could not be reached or did not answer.
const SILENT_FOR: Duration = Duration::from_secs(5);

/// Divisor of the remaining time that a forwarded review gets, so that the rest is enough to answer without it.
const SHARE_OF_HOLDER: u32 = 2;

/// Kinds that a plugin may read for a review of an object, and that this replica does not cache for it. Empty if the
/// work is not divided.
pub(super) fn lacking(host: &HostContext, lane: &Lane, primary: &Name) -> Vec<Kind> {
    if lane.cached_namespaces().is_none() || primary.namespace.is_none() {
        return Vec::new();
    }
    let read = lane.grants.touched().filter(|grant| {
        let kind = &grant.touch.kind;
        // Cluster-scoped objects are in no namespace of a primary.
        let is_served = lane.served(kind).is_some_and(|served| served.facts.namespaced);
        is_served && grant.allows(Access::Read) && lane.is_divided(kind)
    });
    let lacking = read.filter(|grant| {
        let reach = read_reach(grant, primary);
        !host.state.has_listed(&grant.touch.kind, &grant.projection, &reach)
    });
    lacking.map(|grant| grant.touch.kind.clone()).collect()
}

/// A review for which this replica lacks cached objects.
pub(super) struct RemoteReview<'a> {
    pub(super) lane: &'a Lane,
    pub(super) path: &'a str,
    pub(super) body: &'a Bytes,
    pub(super) namespace: &'a str,
    pub(super) lacking: &'a [Kind],
    pub(super) is_forwarded: bool,
    /// Deadline of the answer.
    pub(super) until: Instant,
}

/// Result of the reads.
pub(super) enum RemoteReads {
    /// The answer of the shard's holder.
    Answered(WebhookResponse),
    /// Objects that this replica lacks, listed live.
    Listed(Store),
}

/// Reads objects that this replica does not cache.
pub(super) struct RemoteReader {
    host: Arc<HostContext>,
    peers: watch::Receiver<Arc<PeerClient>>,
    live: Semaphore,
    /// Replicas that did not answer, and when.
    silent: Mutex<HashMap<SocketAddr, Instant>>,
    /// Throttles the log lines about live reads.
    told: LogThrottle,
}

impl RemoteReader {
    pub(super) fn new(host: Arc<HostContext>, peers: watch::Receiver<Arc<PeerClient>>) -> Self {
        Self {
            host,
            peers,
            live: Semaphore::new(LIVE),
            silent: Mutex::default(),
            told: LogThrottle::default(),
        }
    }

    /// Returns `true` if a client proves to be another replica of this host.
    pub(super) fn is_peer(&self, proof: &str) -> bool {
        self.peers.borrow().is_proof(proof)
    }

    /// Forwards the review to the holder of the shard, or else lists what this replica lacks.
    pub(super) async fn read(&self, review: &RemoteReview<'_>) -> Result<RemoteReads, WebhookResponse> {
        let holders = self.host.holders.lock().clone();
        let shard = holders.of(review.namespace).map(|(shard, _)| shard);
        let cause = match holders.answerer(review.namespace, review.is_forwarded) {
            Answerer::Holder(holder, address) => match self.forward(address, review).await {
                Ok(answer) => return Ok(RemoteReads::Answered(answer)),
                Err(problem) => format!("the replica {holder} at {address} holds the shard, and {problem}"),
            },
            Answerer::Live(cause) => cause.to_string(),
        };
        if let Some(left_out) = self.told.may_say() {
            tracing::warn!(
                lane = review.lane.title(),
                namespace = review.namespace,
                shard,
                cause,
                left_out,
                "an admission review is answered by live reads"
            );
        }
        let listed = self.list(review).await;
        listed.map(RemoteReads::Listed).map_err(|(kind, problem)| {
            let (namespace, lane) = (review.namespace, review.lane.title());
            let shard = shard.map_or_else(|| "of no plan yet".to_owned(), |shard| shard.to_string());
            let problem = format!(
                "this replica does not cache namespace {namespace} (shard {shard}), which {lane} may read to answer; {cause}; and \
                 {kind} cannot be listed live: {problem}; try again, and look at the Leases of the replicas and at their logs if \
                 it lasts"
            );
            WebhookResponse::error(500, problem)
        })
    }

    async fn forward(&self, address: SocketAddr, review: &RemoteReview<'_>) -> Result<WebhookResponse, String> {
        let now = Instant::now();
        {
            let mut silent = self.silent.lock();
            silent.retain(|_, since| now < *since + SILENT_FOR);
            if silent.contains_key(&address) {
                return Err(format!("it could not be asked in the last {SILENT_FOR:?}"));
            }
        }
        let time = review.until.saturating_duration_since(now) / SHARE_OF_HOLDER;
        let client = self.peers.borrow().clone();
        let answer = client.forward(address, review.path, review.body.clone(), time).await;
        answer.map_err(|error| {
            if matches!(error, ForwardError::Silent(_) | ForwardError::Unreachable(_)) {
                // Counted from the end of the wait, which may have been as long.
                self.silent.lock().insert(address, Instant::now());
            }
            error.to_string()
        })
    }

    /// Lists the objects that the plugin may read in the namespace, in the name of its account.
    async fn list(&self, review: &RemoteReview<'_>) -> Result<Store, (String, LiveListError)> {
        let RemoteReview {
            lane,
            namespace,
            lacking,
            ..
        } = *review;
        let _place = self.live.acquire().await.expect("the semaphore is never closed");
        let namespaces = BTreeSet::from([namespace.to_owned()]);
        let (mut store, mut read) = (Store::default(), ReadBytes::default());
        for kind in lacking {
            let (Some(grant), Some(served)) = (lane.grants.get(kind), lane.served(kind)) else {
                continue;
            };
            let codec = Arc::new(ObjectCodec::new(served.kind.clone(), grant.projection.clone()));
            codec.ask(&lane.fact_keys(kind));
            let reach = grant.seen(Reach::of(&grant.touch)).within_namespaces(&namespaces);
            for source in store.open(codec.clone(), reach, served.facts.namespaced) {
                store.begin_list(&source);
                if !source.scope.is_empty() {
                    let listed = lane.writer.list_live(&served, &source.scope, &codec, &mut read).await;
                    for object in listed.map_err(|error| (kind.to_string(), error))? {
                        // Nothing is indexed: the store serves one review.
                        store.upsert(&source, object, &IndexValues::default());
                    }
                }
                store.end_list(&source);
            }
        }
        Ok(store)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::SystemTime;

    use pilothouse_core::replicas::shards::HashRanges;
    use pilothouse_webhook::certificates::{Certificates, Lifetimes};

    use super::*;
    use crate::lanes::cached_namespaces::CachedPart;
    use crate::test_support::*;

    fn put(host: &TestHost, access: &[&str]) -> Arc<Lane> {
        let lane = host.lane(access[0], controller(access));
        let cached = host.context.cached.clone();
        host.put(Lane { cached, ..lane })
    }

    #[tokio::test(start_paused = true)]
    async fn a_review_lacks_readable_kinds_that_are_not_cached() {
        let host = TestHost::new().await;
        let (reader, maker) = (put(&host, &["read"]), put(&host, &["owned"]));
        host.serve(&child_kind());
        let lacks = |lane: &Lane, name: &Name| lacking(&host.context, lane, name);
        assert!(lacks(&reader, &name("p")).is_empty(), "nothing is divided");
        let elsewhere = CachedPart::Namespaces(HashRanges::of_namespace("b"), Arc::default());
        host.context.cached.set(elsewhere);
        assert_eq!(lacks(&reader, &name("p")), [child_kind()]);
        assert!(lacks(&maker, &name("p")).is_empty(), "it reads nothing");
        assert!(lacks(&reader, &Name::new(None, "p")).is_empty(), "it is in no shard");
        host.list(&child_kind(), &[]);
        assert!(lacks(&reader, &name("p")).is_empty(), "it is cached");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_replica_is_skipped_after_the_end_of_the_wait() {
        let host = TestHost::new().await;
        let lane = put(&host, &["read"]);
        // Connections are taken, and nothing is ever said on them.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        let names = [address.ip().to_string()];
        let certificates = Certificates::make(&names, SystemTime::now(), &Lifetimes::default()).unwrap();
        let peers = Arc::new(PeerClient::new(&certificates, &names[0]).unwrap());
        let (_peers, peers) = watch::channel(peers);
        let reader = RemoteReader::new(host.context.clone(), peers);
        let ask = async || {
            let review = RemoteReview {
                lane: &lane,
                path: "/validate/reader/things",
                body: &Bytes::from_static(b"{}"),
                namespace: "b",
                lacking: &[child_kind()],
                is_forwarded: false,
                until: Instant::now() + SILENT_FOR * 4,
            };
            reader.forward(address, &review).await.unwrap_err()
        };
        let began = Instant::now();
        assert!(ask().await.contains("did not answer within"));
        assert!(began.elapsed() > SILENT_FOR, "the wait is as long as it is left alone");
        assert!(ask().await.contains("could not be asked in the last"));
        tokio::time::advance(SILENT_FOR).await;
        assert!(ask().await.contains("did not answer within"));
    }
}
