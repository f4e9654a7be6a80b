//! Authorisation: everything is allowed unless a test denies it; and the access reviews. A client is known by its user
//! agent.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::faults::Asked;

type Predicate = Arc<dyn Fn(&Asked) -> bool + Send + Sync>;

/// Denied requests.
#[derive(Default)]
pub struct Rights(Mutex<Vec<Predicate>>);

impl fmt::Debug for Rights {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Rights").field(&self.0.lock().len()).finish()
    }
}

impl Rights {
    /// Denies the requests that the predicate accepts, from now on.
    pub fn deny(&self, predicate: impl Fn(&Asked) -> bool + Send + Sync + 'static) {
        self.0.lock().push(Arc::new(predicate));
    }

    /// Allows every request again.
    pub fn grant_all(&self) {
        self.0.lock().clear();
    }

    /// Refuses a denied request as a real server does.
    pub(crate) fn check(&self, asked: &Asked) -> Result<(), Failure> {
        if !self.0.lock().iter().any(|denied| denied(asked)) {
            return Ok(());
        }
        let Asked {
            verb, group, resource, ..
        } = asked;
        let user = asked.impersonated.as_ref().unwrap_or(&asked.user_agent);
        let name = asked.name.as_deref().unwrap_or_default();
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

    /// The answer to a review. Everybody may ask for themselves, and for others who may review them.
    pub(crate) fn review(&self, kind: ReviewKind, asked: &Asked, body: &[u8]) -> Result<Value, Failure> {
        let mut review: Value = serde_json::from_slice(body).unwrap_or_default();
        let subject = match kind {
            ReviewKind::Access => {
                self.check(asked)?;
                review["spec"]["user"].as_str().map(str::to_owned)
            }
            ReviewKind::OwnAccess | ReviewKind::Own => asked.impersonated.clone(),
        };
        if kind == ReviewKind::Own {
            let user = subject.as_ref().unwrap_or(&asked.user_agent);
            review["status"] = json!({"userInfo": {"username": user, "groups": ["system:authenticated"]}});
            return Ok(review);
        }
        let attributes = &review["spec"]["resourceAttributes"];
        let word = |name: &str| attributes[name].as_str().unwrap_or_default().to_owned();
        let given = |name: &str| Some(word(name)).filter(|word| !word.is_empty());
        let reviewed = Asked {
            verb: word("verb"),
            group: word("group"),
            resource: word("resource"),
            subresource: word("subresource"),
            namespace: given("namespace"),
            name: given("name"),
            continued: false,
            user_agent: asked.user_agent.clone(),
            impersonated: subject,
        };
        review["status"] = json!({"allowed": self.check(&reviewed).is_ok()});
        Ok(review)
    }
}

/// Kind of an access review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReviewKind {
    /// Rights of another user.
    Access,
    /// Rights of the client itself.
    OwnAccess,
    /// Identity of the client.
    Own,
}

impl ReviewKind {
    /// Returns the kind of the review that a path requests; none if it is that of another resource.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let kinds = [Self::Access, Self::OwnAccess, Self::Own];
        kinds.into_iter().find(|kind| {
            let path = path
                .strip_prefix("/apis/")
                .and_then(|path| path.strip_prefix(kind.group()));
            path.and_then(|path| path.strip_prefix("/v1/")) == Some(kind.resource())
        })
    }

    pub(crate) fn group(self) -> &'static str {
        match self {
            Self::Access | Self::OwnAccess => "authorization.k8s.io",
            Self::Own => "authentication.k8s.io",
        }
    }

    pub(crate) fn resource(self) -> &'static str {
        match self {
            Self::Access => "subjectaccessreviews",
            Self::OwnAccess => "selfsubjectaccessreviews",
            Self::Own => "selfsubjectreviews",
        }
    }
}
