//! Decides which client may read what. On the machine itself, a client that shows the key, which only the host's own
//! user can read, may read everything. From elsewhere a client shows a token; the API server tells its user, and
//! whether that user may see the requested objects. No other client is answered: an address proves nothing.
//!
//! Reviews are cached for [`FRESH`], so a right that is revoked ends within that time.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use pilothouse_cluster::Client;
use pilothouse_cluster::error::RequestError;
use pilothouse_cluster::write::permissions::{Permission, listed};
use pilothouse_cluster::write::reviews::{User, allows, authenticate};
use pilothouse_core::diff::canonical::digest;
use pilothouse_core::kubernetes::token::TokenClaims;
use serde_json::{Value, json};
use tokio::runtime::Handle as RuntimeHandle;
use tokio::time::{Instant, timeout};

use super::review_limit::{Bucket, ClientAddress, FairTurns, NoTurn};

/// Audience of tokens made for the host. Such a token is useless to anybody who takes it from the host.
pub const AUDIENCE: &str = "pilothouse.dev";

/// Time for which the answer of a review is valid.
const FRESH: Duration = Duration::from_secs(30);

/// The most answers that are kept, for each kind of review.
const MOST_KEPT: usize = 2000;

/// Reviews of tokens per second, for unknown tokens and for those that the API server has accepted lately. Anybody who
/// reaches the port can cause one. Including saved-up turns that is less than ten in any second.
const UNKNOWN_PER_SECOND: f64 = 6.0;
const ACCEPTED_PER_SECOND: f64 = 1.8;

/// Time for which an accepted token counts as accepted lately.
const LATELY: Duration = Duration::from_hours(1);

/// Reviews of rights, of one user and of all: rate per second, and burst.
const RIGHTS_PER_SECOND: f64 = 5.0;
const RIGHTS_BURST: f64 = 20.0;
const ALL_RIGHTS_PER_SECOND: f64 = 40.0;
const ALL_RIGHTS_BURST: f64 = 80.0;

/// Time limit of a review.
const PATIENCE: Duration = Duration::from_secs(10);

/// Authentication of clients.
#[derive(Clone)]
pub enum ClientAccess {
    /// A key, which the host has written into a file that only its own user can read.
    Key(String),
    /// A token, which the API server reviews.
    Tokens,
}

/// Authenticated client.
#[derive(Clone, Debug)]
pub enum Caller {
    /// User that runs the host, on the same machine.
    Local,
    /// User of the cluster, with a digest of all its attributes.
    User(Arc<User>, Arc<str>),
}

/// Reason why a request is not answered: an HTTP status code, and a message with the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// 400, 401, 403, 404, 429 or 503.
    pub code: u16,
    /// The cause and the next step.
    pub message: String,
}

impl Refusal {
    /// Makes a refusal.
    pub fn new(code: u16, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message }
    }
}

/// Authenticates and authorizes clients.
pub struct Gate {
    access: ClientAccess,
    /// Client and runtime for reviews, once the host is there.
    cluster: OnceLock<(Client, RuntimeHandle)>,
    users: ReviewCache<Option<Caller>>,
    rights: ReviewCache<bool>,
    /// Tokens that were accepted lately, by their digests.
    accepted: Mutex<HashMap<String, Instant>>,
    unknown_turns: FairTurns,
    accepted_turns: FairTurns,
    rights_of: Mutex<HashMap<Arc<str>, Bucket>>,
    rights_of_all: Mutex<Bucket>,
}

impl Gate {
    /// Makes a gate without a cluster.
    pub fn new(access: ClientAccess) -> Self {
        Self {
            access,
            cluster: OnceLock::new(),
            users: ReviewCache::default(),
            rights: ReviewCache::default(),
            accepted: Mutex::default(),
            unknown_turns: FairTurns::new(Bucket::new(UNKNOWN_PER_SECOND, 1.0)),
            accepted_turns: FairTurns::new(Bucket::new(ACCEPTED_PER_SECOND, 1.0)),
            rights_of: Mutex::default(),
            rights_of_all: Mutex::new(Bucket::new(ALL_RIGHTS_PER_SECOND, ALL_RIGHTS_BURST)),
        }
    }

    /// Sets the client and the runtime for reviews.
    pub fn connect(&self, client: Client, runtime: RuntimeHandle) {
        // There is one cluster in a process.
        let _ = self.cluster.set((client, runtime));
    }

    /// Authenticates a client by its credential.
    pub async fn identify(&self, client: &ClientAddress, credential: Option<&str>) -> Result<Caller, Refusal> {
        match &self.access {
            ClientAccess::Key(key) => match credential {
                Some(shown) if is_same(shown, key) => Ok(Caller::Local),
                _ => Err(Refusal::new(
                    401,
                    "show the key of this host, as `Authorization: Bearer KEY`; the host's log says which file has it",
                )),
            },
            ClientAccess::Tokens => match credential {
                Some(token) => self.user_of(client, token).await,
                None => Err(Refusal::new(
                    401,
                    "show a token for the cluster, as `Authorization: Bearer TOKEN`, or as `Pilothouse-Authorization: \
                     Bearer TOKEN` through the API server's proxy; `kubectl pilothouse` does",
                )),
            },
        }
    }

    async fn user_of(&self, client: &ClientAddress, token: &str) -> Result<Caller, Refusal> {
        let shown = digest(&json!(token));
        let known = match self.users.get(&shown) {
            Some(known) => known,
            None => self.review(client, token, shown).await?,
        };
        known.ok_or_else(|| {
            Refusal::new(
                401,
                "the API server does not know the token, or it has expired; show a token for this cluster",
            )
        })
    }

    /// Reviews a token, when it is the client's turn. `None`: the token is invalid.
    async fn review(&self, client: &ClientAddress, token: &str, shown: String) -> Result<Option<Caller>, Refusal> {
        let (cluster, runtime) = self.cluster()?;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        let claims = TokenClaims::read(token, AUDIENCE, i64::try_from(now).unwrap_or(i64::MAX));
        let accepted = self.accepted.lock().get(&shown).copied();
        let turns = match accepted {
            Some(since) if since.elapsed() < LATELY => &self.accepted_turns,
            _ => &self.unknown_turns,
        };
        let turn = turns.wait(client, claims.is_current).await;
        turn.map_err(|NoTurn| Refusal::new(429, "too many tokens are being reviewed; try again in a few seconds"))?;
        if let Some(known) = self.users.get(&shown) {
            // Another request with the same token was faster.
            turns.give_back();
            return Ok(known);
        }
        let token = token.to_owned();
        let audience = claims.is_for_audience.then_some(AUDIENCE);
        let review = runtime.spawn(async move { authenticate(&cluster, &token, audience).await });
        let user = self.reviewed(review, "tokenreviews.authentication.k8s.io").await?;
        let caller = user.map(|user| {
            let digest = digest(&user.as_value());
            Caller::User(Arc::new(user), digest.into())
        });
        if caller.is_some() {
            let mut accepted = self.accepted.lock();
            if accepted.len() >= MOST_KEPT {
                accepted.retain(|_, since| since.elapsed() < LATELY);
            }
            if accepted.len() < MOST_KEPT || accepted.contains_key(&shown) {
                accepted.insert(shown.clone(), Instant::now());
            }
        }
        self.users.put(shown, caller.clone());
        Ok(caller)
    }

    /// Returns `true` if a caller has a right.
    pub async fn allows(&self, caller: &Caller, right: &Permission) -> Result<bool, Refusal> {
        let Caller::User(user, who) = caller else {
            return Ok(true);
        };
        let Permission {
            group,
            resource,
            namespace,
            name,
            verb,
        } = right;
        let asked = digest(&json!([**who, group, resource, namespace, name, verb]));
        if let Some(known) = self.rights.get(&asked) {
            return Ok(known);
        }
        let (client, runtime) = self.cluster()?;
        self.may_review_right(who)?;
        let (user, right) = (user.clone(), right.clone());
        let review = runtime.spawn(async move { allows(&client, &user, &right).await });
        let allowed = self
            .reviewed(review, "subjectaccessreviews.authorization.k8s.io")
            .await?;
        self.rights.put(asked, allowed);
        Ok(allowed)
    }

    /// Fails if a caller lacks a right.
    pub async fn demand(&self, caller: &Caller, right: &Permission) -> Result<(), Refusal> {
        if self.allows(caller, right).await? {
            return Ok(());
        }
        let Caller::User(user, _) = caller else {
            return Ok(());
        };
        Err(Refusal::new(
            403,
            format!(
                "{} may not {}; ask an administrator of the cluster for this right",
                user.name,
                listed(std::slice::from_ref(right))
            ),
        ))
    }

    /// Returns `true` if a caller may see objects, given the right to get them. The right to list them in the same
    /// place is enough, because it shows them whole, too: the account of a host that acts as its plugins' accounts may
    /// only list.
    pub async fn may_see(&self, caller: &Caller, get: &Permission) -> Result<bool, Refusal> {
        Ok(self.allows(caller, get).await? || self.allows(caller, &in_its_place(get)).await?)
    }

    /// Fails if a caller may not see objects.
    pub async fn demand_to_see(&self, caller: &Caller, get: &Permission) -> Result<(), Refusal> {
        match (self.may_see(caller, get).await?, caller) {
            (true, _) | (_, Caller::Local) => Ok(()),
            (false, Caller::User(user, _)) => Err(Refusal::new(
                403,
                format!(
                    "{} may not {}; ask an administrator of the cluster for this right, or for list in place of get",
                    user.name,
                    listed(std::slice::from_ref(get))
                ),
            )),
        }
    }

    fn cluster(&self) -> Result<(Client, RuntimeHandle), Refusal> {
        let cluster = self.cluster.get().cloned();
        cluster.ok_or_else(|| Refusal::new(503, "the host is starting; try again in a few seconds"))
    }

    async fn reviewed<T>(
        &self,
        review: tokio::task::JoinHandle<Result<T, RequestError>>,
        resource: &str,
    ) -> Result<T, Refusal> {
        match timeout(PATIENCE, review).await {
            Ok(Ok(Ok(answer))) => Ok(answer),
            Ok(Ok(Err(error))) if error.code() == Some(403) => Err(Refusal::new(
                503,
                format!("the host may not find out what you may see: grant its ServiceAccount create on {resource}"),
            )),
            Ok(Ok(Err(error))) => Err(Refusal::new(
                503,
                format!("the API server cannot say what you may see: {error}; try again later"),
            )),
            Ok(Err(_)) | Err(_) => Err(Refusal::new(
                503,
                format!(
                    "the API server has not said within {} s what you may see; try again later",
                    PATIENCE.as_secs()
                ),
            )),
        }
    }

    /// Takes a turn to review a right from those of the user and of all users.
    fn may_review_right(&self, who: &Arc<str>) -> Result<(), Refusal> {
        let mut users = self.rights_of.lock();
        if users.len() >= MOST_KEPT {
            users.retain(|_, bucket| !bucket.is_full());
        }
        let new = || Bucket::new(RIGHTS_PER_SECOND, RIGHTS_BURST);
        if users.entry(who.clone()).or_insert_with(new).take() && self.rights_of_all.lock().take() {
            return Ok(());
        }
        Err(Refusal::new(
            429,
            format!(
                "too many of your rights are being reviewed; ask about fewer objects, at most {RIGHTS_PER_SECOND} new ones a \
                 second, or try again in a few seconds"
            ),
        ))
    }
}

/// Compares in constant time.
fn is_same(one: &str, other: &str) -> bool {
    let differing = one
        .bytes()
        .zip(other.bytes())
        .fold(0, |differing, (one, other)| differing | (one ^ other));
    one.len() == other.len() && differing == 0
}

/// Answers of reviews, while they are valid.
struct ReviewCache<T>(Mutex<HashMap<String, (Instant, T)>>);

impl<T> Default for ReviewCache<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> ReviewCache<T> {
    fn get(&self, asked: &str) -> Option<T> {
        let known = self.0.lock();
        let (since, answer) = known.get(asked)?;
        (since.elapsed() < FRESH).then(|| answer.clone())
    }

    fn put(&self, asked: String, answer: T) {
        let mut known = self.0.lock();
        if known.len() >= MOST_KEPT {
            known.retain(|_, (since, _)| since.elapsed() < FRESH);
        }
        if known.len() >= MOST_KEPT {
            known.clear();
        }
        known.insert(asked, (Instant::now(), answer));
    }
}

/// The right to list in place of the right to get. With a name it is the right to list that object alone, with a field
/// selector.
fn in_its_place(get: &Permission) -> Permission {
    Permission {
        verb: "list",
        ..get.clone()
    }
}

/// The right to see the plugins and their status.
pub fn to_list_plugins() -> Permission {
    Permission {
        group: pilothouse_crds::plugin::GROUP.to_owned(),
        resource: "plugins".to_owned(),
        namespace: None,
        name: None,
        verb: "list",
    }
}

/// The right of another replica to take artifacts over from the cache.
pub fn to_take_artifacts() -> Permission {
    Permission {
        resource: "plugins/artifact".to_owned(),
        verb: "get",
        ..to_list_plugins()
    }
}

/// Body of a refusal.
pub fn as_json(refusal: &Refusal) -> Value {
    json!({"error": {"code": refusal.code, "message": refusal.message}})
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_review_counts_for_half_a_minute() {
        let cache = ReviewCache::default();
        cache.put("a".to_owned(), true);
        tokio::time::advance(Duration::from_millis(29_999)).await;
        assert_eq!(cache.get("a"), Some(true));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(cache.get("a"), None);
        for index in 0..3 * MOST_KEPT {
            cache.put(index.to_string(), true);
        }
        assert!(cache.0.lock().len() <= MOST_KEPT);
    }

    #[tokio::test(start_paused = true)]
    async fn reviews_of_rights_are_limited_per_user() {
        let gate = Gate::new(ClientAccess::Tokens);
        let [ann, ben] = ["ann", "ben"].map(Arc::from);
        let passed = |who: &Arc<str>| (0..100).filter(|_| gate.may_review_right(who).is_ok()).count();
        assert_eq!([passed(&ann), passed(&ben)], [20, 20]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!([passed(&ann), passed(&ben)], [5, 5]);
        let refusal = gate.may_review_right(&ann).unwrap_err();
        assert_eq!(refusal.code, 429);
        assert_eq!(passed(&"cat".into()), 20);
        tokio::time::advance(Duration::from_mins(1)).await;
        for number in 0..3 * MOST_KEPT {
            let _ = gate.may_review_right(&number.to_string().into());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(gate.rights_of.lock().len() <= MOST_KEPT);
    }

    fn somewhere() -> ClientAddress {
        ClientAddress {
            peer: Ipv4Addr::LOCALHOST.into(),
            forwarded_for: None,
        }
    }

    #[tokio::test]
    async fn only_the_whole_key_lets_somebody_in() {
        let gate = Gate::new(ClientAccess::Key("secret".to_owned()));
        assert!(matches!(
            gate.identify(&somewhere(), Some("secret")).await,
            Ok(Caller::Local)
        ));
        for shown in [None, Some(""), Some("secre"), Some("secrets"), Some("Secret")] {
            assert_eq!(
                gate.identify(&somewhere(), shown).await.unwrap_err().code,
                401,
                "{shown:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_host_that_knows_no_cluster_yet_lets_nobody_in() {
        let gate = Gate::new(ClientAccess::Tokens);
        assert_eq!(gate.identify(&somewhere(), None).await.unwrap_err().code, 401);
        let refusal = gate.identify(&somewhere(), Some("t")).await.unwrap_err();
        assert!(
            refusal.code == 503 && refusal.message.contains("is starting"),
            "{refusal}"
        );
    }
}
