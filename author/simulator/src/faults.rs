//! Injects faults into requests. Everything is drawn from the seed, so that a run can be repeated.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use crate::random::Random;

/// Probabilities are drawn in this many steps.
const STEPS: u64 = 1 << 53;

/// Fault of a request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// The write takes place, but the connection breaks before the response.
    LoseResponse,
    /// The connection breaks before anything takes place.
    Refuse,
    /// The server answers with this HTTP status, and nothing takes place. 409 is a conflict, 410 an expired list or watch.
    Status {
        /// The HTTP status.
        code: u16,
        /// Seconds of a Retry-After header.
        retry_after: Option<u32>,
    },
    /// Denial of the request by an admission webhook, as API servers word it.
    Denied {
        /// The HTTP status that the webhook chose.
        code: u16,
        /// The `retryAfterSeconds` that the webhook put into its answer.
        retry_after: u32,
    },
    /// Mutating webhook of another user, which changes the object after its ownership is known.
    Rewritten(Rewrite),
    /// Sends 410 Gone as the first event of a watch.
    GoneOnWatch,
    /// A list comes in pages of at most so many objects, though more of them were asked for.
    ShortPages {
        /// Objects in a page.
        objects: usize,
    },
    /// Answers 410 Gone to a continued list: the history does not reach back to where it began.
    GoneInList,
    /// A watch ends after so many events.
    CutWatch {
        /// Events until the cut.
        after: u32,
    },
    /// A watch stays open but says nothing, no bookmark either.
    SilentWatch,
    /// Loss of a watch's first events, which are not sent later either: a broken server or proxy.
    LoseEvents {
        /// Count of events that it skips.
        events: u32,
    },
    /// A list, or the list that begins a watch, shows the state as it was so many changes ago.
    Stale {
        /// Count of changes of any object that are not shown yet.
        changes: u64,
    },
    /// The request takes so long, by tokio's clock.
    Delay(Duration),
    /// Carries out the request at once, but delays the response for so long, by tokio's clock.
    LateAnswer(Duration),
}

/// A change that a mutating webhook makes of an object.
#[derive(Clone)]
pub struct Rewrite(Arc<dyn Fn(&mut Value) + Send + Sync>);

impl Rewrite {
    /// A change of the whole object.
    pub fn new(change: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        Self(Arc::new(change))
    }

    pub(crate) fn apply(&self, object: &mut Value) {
        (self.0)(object);
    }
}

impl PartialEq for Rewrite {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Rewrite {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Rewrite")
    }
}

/// Parts of a request that a rule can match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// get, list, watch, create, update, patch, delete or deletecollection.
    pub verb: String,
    /// The resource's group.
    pub group: String,
    /// The resource's plural name.
    pub resource: String,
    /// status, scale and so on, or empty.
    pub subresource: String,
    /// The namespace in the path.
    pub namespace: Option<String>,
    /// The name in the path.
    pub name: Option<String>,
    /// Set if the request continues a paged list.
    pub continued: bool,
    /// The client's name for itself.
    pub user_agent: String,
    /// The user that the client acts as, or asks about.
    pub impersonated: Option<String>,
}

impl Asked {
    /// Returns `true` if the verb writes.
    pub fn is_write(&self) -> bool {
        ["create", "update", "patch", "delete", "deletecollection"].contains(&self.verb.as_str())
    }
}

type Predicate = Arc<dyn Fn(&Asked) -> bool + Send + Sync>;

/// Fault, and the requests that it is injected into.
#[derive(Clone)]
pub struct Rule {
    fault: Fault,
    predicate: Predicate,
    probability: f64,
    skip: u32,
    times: Option<u32>,
}

impl Rule {
    /// Injects the fault into every request to a resource.
    pub fn new(fault: Fault) -> Self {
        Self {
            fault,
            predicate: Arc::new(|_| true),
            probability: 1.0,
            skip: 0,
            times: None,
        }
    }

    /// Restricts it to requests that the predicate accepts, in addition to earlier conditions.
    #[must_use]
    pub fn when(mut self, predicate: impl Fn(&Asked) -> bool + Send + Sync + 'static) -> Self {
        let earlier = self.predicate;
        self.predicate = Arc::new(move |asked| earlier(asked) && predicate(asked));
        self
    }

    /// Restricts it to these verbs.
    #[must_use]
    pub fn verbs(self, verbs: &[&str]) -> Self {
        let verbs: Vec<String> = verbs.iter().map(|verb| (*verb).to_owned()).collect();
        self.when(move |asked| verbs.contains(&asked.verb))
    }

    /// Restricts it to this resource, by its plural name.
    #[must_use]
    pub fn resource(self, plural: &str) -> Self {
        let plural = plural.to_owned();
        self.when(move |asked| asked.resource == plural)
    }

    /// Restricts it to writes.
    #[must_use]
    pub fn writes(self) -> Self {
        self.when(Asked::is_write)
    }

    /// Injects it into a matching request with this probability, from 0 to 1.
    #[must_use]
    pub fn probability(mut self, probability: f64) -> Self {
        self.probability = probability;
        self
    }

    /// Skips so many matching requests first.
    #[must_use]
    pub fn skip(mut self, requests: u32) -> Self {
        self.skip = requests;
        self
    }

    /// Injects it into at most so many requests.
    #[must_use]
    pub fn times(mut self, requests: u32) -> Self {
        self.times = Some(requests);
        self
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Rule")
            .field("fault", &self.fault)
            .field("probability", &self.probability)
            .field("skip", &self.skip)
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

/// Names a rule, to take it away again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleId(u64);

#[derive(Debug)]
struct Inner {
    rules: Vec<(RuleId, Rule)>,
    next: u64,
    random: Random,
    injected: u64,
}

/// The faults of a simulated cluster.
#[derive(Debug)]
pub struct Faults(Mutex<Inner>);

impl Faults {
    pub(crate) fn new(seed: u64) -> Self {
        // Another sequence than the one that uids are drawn from, so that faults do not change names.
        let random = Random::new(seed ^ 0xFA01_7FA0_17FA_017F);
        Self(Mutex::new(Inner {
            rules: Vec::new(),
            next: 0,
            random,
            injected: 0,
        }))
    }

    /// Adds a rule. Where several match, the first one that strikes counts; delays add to it.
    pub fn add(&self, rule: Rule) -> RuleId {
        let mut inner = self.0.lock();
        let id = RuleId(inner.next);
        inner.next += 1;
        inner.rules.push((id, rule));
        id
    }

    /// Removes a rule, if it is still there.
    pub fn remove(&self, id: RuleId) {
        self.0.lock().rules.retain(|(known, _)| *known != id);
    }

    /// Removes every rule.
    pub fn clear(&self) {
        self.0.lock().rules.clear();
    }

    /// Count of requests with an injected fault.
    pub fn injected(&self) -> u64 {
        self.0.lock().injected
    }

    /// Decides the faults of a request.
    pub(crate) fn decide(&self, asked: &Asked) -> Decision {
        let mut inner = self.0.lock();
        let mut decision = Decision::default();
        let Inner { rules, random, .. } = &mut *inner;
        for (_, rule) in rules.iter_mut() {
            let is_delay = matches!(rule.fault, Fault::Delay(_));
            if (decision.fault.is_some() && !is_delay) || rule.times == Some(0) || !applies(&rule.fault, asked) {
                continue;
            }
            if !(rule.predicate)(asked) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            if rule.probability < 1.0 && !strikes(random, rule.probability) {
                continue;
            }
            if let Some(times) = &mut rule.times {
                *times -= 1;
            }
            match &rule.fault {
                Fault::Delay(duration) => decision.delay += *duration,
                fault => decision.fault = Some(fault.clone()),
            }
        }
        if decision.fault.is_some() || !decision.delay.is_zero() {
            inner.injected += 1;
        }
        decision
    }
}

/// Some faults make sense for some requests only.
fn applies(fault: &Fault, asked: &Asked) -> bool {
    match fault {
        Fault::LoseResponse => asked.is_write(),
        Fault::Rewritten(_) => asked.is_write() && !asked.verb.starts_with("delete") && asked.subresource.is_empty(),
        Fault::GoneOnWatch | Fault::CutWatch { .. } | Fault::SilentWatch | Fault::LoseEvents { .. } => {
            asked.verb == "watch"
        }
        Fault::ShortPages { .. } => asked.verb == "list",
        Fault::GoneInList => asked.verb == "list" && asked.continued,
        Fault::Stale { .. } => asked.verb == "list" || asked.verb == "watch",
        Fault::Refuse | Fault::Status { .. } | Fault::Denied { .. } | Fault::Delay(_) | Fault::LateAnswer(_) => true,
    }
}

fn strikes(random: &mut Random, probability: f64) -> bool {
    // Both numbers are below 2^53 and so exact.
    #[expect(clippy::cast_precision_loss, reason = "the number is below 2^53")]
    let drawn = random.below(STEPS) as f64 / STEPS as f64;
    drawn < probability
}

/// Faults of one request.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    pub(crate) delay: Duration,
    pub(crate) fault: Option<Fault>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(verb: &str) -> Asked {
        Asked {
            verb: verb.to_owned(),
            group: String::new(),
            resource: "configmaps".to_owned(),
            subresource: String::new(),
            namespace: None,
            name: None,
            continued: false,
            user_agent: String::new(),
            impersonated: None,
        }
    }

    #[test]
    fn a_rule_skips_strikes_and_is_used_up() {
        let faults = Faults::new(1);
        faults.add(
            Rule::new(Fault::Status {
                code: 503,
                retry_after: None,
            })
            .verbs(&["get"])
            .skip(1)
            .times(1),
        );
        let struck: Vec<bool> = (0..3).map(|_| faults.decide(&asked("get")).fault.is_some()).collect();
        assert_eq!(struck, [false, true, false]);
        assert!(faults.decide(&asked("list")).fault.is_none());
        assert_eq!(faults.injected(), 1);
    }

    #[test]
    fn the_same_seed_strikes_the_same_requests() {
        let strikes = |seed| -> Vec<bool> {
            let faults = Faults::new(seed);
            faults.add(Rule::new(Fault::LoseResponse).probability(0.5));
            (0..64)
                .map(|_| faults.decide(&asked("create")).fault.is_some())
                .collect()
        };
        assert_eq!(strikes(1), strikes(1));
        assert_ne!(strikes(1), strikes(2));
    }
}
