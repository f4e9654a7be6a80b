//! Decides who may ask what. On the machine itself, whoever shows the key that only the host's own user can read may see
//! everything. From elsewhere a client shows a token; the API server says whose it is, and whether that user may see what
//! is asked about. Nobody else is answered: an address proves nothing about a client.
//!
//! Reviews are kept for [`FRESH`], so a right that is revoked ends within that time.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use pilothouse_cluster::Client;
use pilothouse_cluster::error::RequestError;
use pilothouse_cluster::permissions::{Permission, listed};
use pilothouse_cluster::reviews::{User, allows, authenticate};
use pilothouse_core::canonical::digest;
use serde_json::{Value, json};
use tokio::runtime::Handle as RuntimeHandle;
use tokio::time::{Instant, timeout};

/// The audience of tokens that are made for the host. Such a token is of no use to anybody who takes it from the host.
pub const AUDIENCE: &str = "pilothouse.dev";

/// For so long an answer of a review counts.
const FRESH: Duration = Duration::from_secs(30);

/// The most answers that are kept, of each kind of review.
const MOST_KEPT: usize = 2000;

/// Anybody who reaches the port can have a token reviewed: so many at once, and so many in a second after that.
const REVIEW_BURST: f64 = 50.0;
const REVIEWS_PER_SECOND: f64 = 10.0;

/// How long a review may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How clients show who they are.
#[derive(Clone)]
pub enum ClientAccess {
    /// By this key, which the host has written into a file that only its own user can read.
    Key(String),
    /// By a token, which the API server reviews.
    Tokens,
}

/// Who asks.
#[derive(Clone, Debug)]
pub enum Caller {
    /// The user that the host runs as, on the same machine.
    Local,
    /// A user of the cluster, with a digest of all that is known of it.
    User(Arc<User>, Arc<str>),
}

/// Why something is not answered: an HTTP status code, and words with the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// 400, 401, 403, 404, 429 or 503.
    pub code: u16,
    /// The cause and the next step.
    pub message: String,
}

impl Refusal {
    /// A refusal with its words.
    pub fn new(code: u16, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message }
    }
}

/// Lets clients in, or not.
pub struct Gate {
    access: ClientAccess,
    /// How the API server is asked, and on which threads, once the host is there.
    cluster: OnceLock<(Client, RuntimeHandle)>,
    users: ReviewCache<Option<Caller>>,
    rights: ReviewCache<bool>,
    bucket: Mutex<Option<(Instant, f64)>>,
}

impl Gate {
    /// A gate that knows no cluster yet.
    pub fn new(access: ClientAccess) -> Self {
        Self {
            access,
            cluster: OnceLock::new(),
            users: ReviewCache::default(),
            rights: ReviewCache::default(),
            bucket: Mutex::new(None),
        }
    }

    /// The cluster is asked so, on the threads of a runtime.
    pub fn connect(&self, client: Client, runtime: RuntimeHandle) {
        // There is one cluster in a process.
        let _ = self.cluster.set((client, runtime));
    }

    /// Who shows this.
    pub async fn identify(&self, credential: Option<&str>) -> Result<Caller, Refusal> {
        match &self.access {
            ClientAccess::Key(key) => match credential {
                Some(shown) if is_same(shown, key) => Ok(Caller::Local),
                _ => Err(Refusal::new(
                    401,
                    "show the key of this host, as `Authorization: Bearer KEY`; the host's log says which file has it",
                )),
            },
            ClientAccess::Tokens => match credential {
                Some(token) => self.user_of(token).await,
                None => Err(Refusal::new(
                    401,
                    "show a token for the cluster, as `Authorization: Bearer TOKEN`, or as `Pilothouse-Authorization: \
                     Bearer TOKEN` through the API server's proxy; `kubectl pilothouse` does",
                )),
            },
        }
    }

    async fn user_of(&self, token: &str) -> Result<Caller, Refusal> {
        let shown = digest(&json!(token));
        let mut known = self.users.get(&shown);
        if known.is_none() {
            self.may_review()?;
            let (client, runtime) = self.cluster()?;
            let token = token.to_owned();
            let review = runtime.spawn(async move { authenticate(&client, &token, AUDIENCE).await });
            let user = self.reviewed(review, "tokenreviews.authentication.k8s.io").await?;
            let caller = user.map(|user| {
                let digest = digest(&user.as_value());
                Caller::User(Arc::new(user), digest.into())
            });
            self.users.put(shown, caller.clone());
            known = Some(caller);
        }
        known.flatten().ok_or_else(|| {
            Refusal::new(
                401,
                "the API server does not know the token, or it has expired; show a token for this cluster",
            )
        })
    }

    /// Whether a caller has a right.
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
        let (user, right) = (user.clone(), right.clone());
        let review = runtime.spawn(async move { allows(&client, &user, &right).await });
        let allowed = self
            .reviewed(review, "subjectaccessreviews.authorization.k8s.io")
            .await?;
        self.rights.put(asked, allowed);
        Ok(allowed)
    }

    /// The same, where the lack of the right is the end.
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

    /// Whether a caller may see objects of which `get` is the right to get them. Whoever may list them in the same place sees them
    /// whole, too: the account of a host that acts as its plugins' accounts may do that alone.
    pub async fn may_see(&self, caller: &Caller, get: &Permission) -> Result<bool, Refusal> {
        Ok(self.allows(caller, get).await? || self.allows(caller, &in_its_place(get)).await?)
    }

    /// The same, where the lack of both rights is the end.
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

    fn may_review(&self) -> Result<(), Refusal> {
        let mut bucket = self.bucket.lock();
        let now = Instant::now();
        let left = bucket.map_or(REVIEW_BURST, |(since, left)| {
            let refilled = left + now.duration_since(since).as_secs_f64() * REVIEWS_PER_SECOND;
            refilled.min(REVIEW_BURST)
        });
        *bucket = Some((now, (left - 1.0).max(0.0)));
        if left < 1.0 {
            return Err(Refusal::new(
                429,
                "too many tokens are being reviewed; try again in a few seconds",
            ));
        }
        Ok(())
    }
}

/// Compares in a time that does not depend on where the two differ.
fn is_same(one: &str, other: &str) -> bool {
    let differing = one
        .bytes()
        .zip(other.bytes())
        .fold(0, |differing, (one, other)| differing | (one ^ other));
    one.len() == other.len() && differing == 0
}

/// Answers of reviews, for a while.
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

/// The right to list what a right is to get. With a name it is that to list the object alone, with a field selector.
fn in_its_place(get: &Permission) -> Permission {
    Permission {
        verb: "list",
        ..get.clone()
    }
}

/// The right to see which plugins there are, and how they fare.
pub fn to_list_plugins() -> Permission {
    Permission {
        group: pilothouse_crds::plugin::GROUP.to_owned(),
        resource: "plugins".to_owned(),
        namespace: None,
        name: None,
        verb: "list",
    }
}

/// The body of a refusal.
pub fn as_json(refusal: &Refusal) -> Value {
    json!({"error": {"code": refusal.code, "message": refusal.message}})
}

#[cfg(test)]
mod tests {
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
    async fn a_flood_of_tokens_is_not_passed_on() {
        let gate = Gate::new(ClientAccess::Tokens);
        let passed = |gate: &Gate| (0..1000).filter(|_| gate.may_review().is_ok()).count();
        assert_eq!(passed(&gate), 50);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(passed(&gate), 20);
        assert_eq!(gate.may_review().unwrap_err().code, 429);
    }

    #[tokio::test]
    async fn only_the_whole_key_lets_somebody_in() {
        let gate = Gate::new(ClientAccess::Key("secret".to_owned()));
        assert!(matches!(gate.identify(Some("secret")).await, Ok(Caller::Local)));
        for shown in [None, Some(""), Some("secre"), Some("secrets"), Some("Secret")] {
            assert_eq!(gate.identify(shown).await.unwrap_err().code, 401, "{shown:?}");
        }
    }

    #[tokio::test]
    async fn a_host_that_knows_no_cluster_yet_lets_nobody_in() {
        let gate = Gate::new(ClientAccess::Tokens);
        assert_eq!(gate.identify(None).await.unwrap_err().code, 401);
        let refusal = gate.identify(Some("t")).await.unwrap_err();
        assert!(
            refusal.code == 503 && refusal.message.contains("is starting"),
            "{refusal}"
        );
    }
}
