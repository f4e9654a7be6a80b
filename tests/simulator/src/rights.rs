//! Owns who may do what: everybody everything, but what a test denies; and the reviews by which a client asks. A client is
//! known by what it calls itself.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::faults::Asked;

type Predicate = Arc<dyn Fn(&Asked) -> bool + Send + Sync>;

/// What is denied.
#[derive(Default)]
pub struct Rights(Mutex<Vec<Predicate>>);

impl fmt::Debug for Rights {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Rights").field(&self.0.lock().len()).finish()
    }
}

impl Rights {
    /// Denies what the predicate accepts, from now on.
    pub fn deny(&self, predicate: impl Fn(&Asked) -> bool + Send + Sync + 'static) {
        self.0.lock().push(Arc::new(predicate));
    }

    /// Everybody may do everything again.
    pub fn grant_all(&self) {
        self.0.lock().clear();
    }

    /// Refuses what is denied, in a real server's words.
    pub(crate) fn check(&self, asked: &Asked) -> Result<(), Failure> {
        if !self.0.lock().iter().any(|denied| denied(asked)) {
            return Ok(());
        }
        let Asked {
            verb, group, resource, ..
        } = asked;
        let (user, name) = (&asked.user_agent, asked.name.as_deref().unwrap_or_default());
        let resource = match asked.subresource.as_str() {
            "" => resource.clone(),
            subresource => format!("{resource}/{subresource}"),
        };
        let place = match &asked.namespace {
            Some(namespace) => format!("in the namespace {namespace:?}"),
            None => "at the cluster scope".to_owned(),
        };
        let cause = format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {place}");
        Err(Failure::forbidden(group, &asked.resource, name, &cause))
    }

    /// The answer to a review of what the client itself may do; none for another path.
    pub(crate) fn review(&self, path: &str, user_agent: &str, body: &[u8]) -> Option<Value> {
        let mut review: Value = serde_json::from_slice(body).ok()?;
        match path {
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => {
                let attributes = &review["spec"]["resourceAttributes"];
                let word = |name: &str| attributes[name].as_str().unwrap_or_default().to_owned();
                let given = |name: &str| Some(word(name)).filter(|word| !word.is_empty());
                let asked = Asked {
                    verb: word("verb"),
                    group: word("group"),
                    resource: word("resource"),
                    subresource: word("subresource"),
                    namespace: given("namespace"),
                    name: given("name"),
                    continued: false,
                    user_agent: user_agent.to_owned(),
                };
                review["status"] = json!({"allowed": self.check(&asked).is_ok()});
            }
            "/apis/authentication.k8s.io/v1/selfsubjectreviews" => {
                review["status"] = json!({"userInfo": {"username": user_agent, "groups": ["system:authenticated"]}});
            }
            _ => return None,
        }
        Some(review)
    }
}
