//! Owns the builder of a controller's `admission` in the manifest: when an API server asks the plugin, and what becomes of
//! the request if it cannot.

use serde::Serialize;

/// When an API server asks the plugin's [`Defaulter`](crate::Defaulter) and [`Validator`](crate::Validator) before it
/// stores a resource. What is given must all hold. The words are those of a Kubernetes
/// [webhook configuration](https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/).
///
/// ```
/// use pilothouse_plugin::{Admission, ControllerManifest, FailurePolicy};
///
/// # use pilothouse_plugin::{Kind, Resource};
/// # struct Volume;
/// # impl Resource for Volume { const KIND: Kind = Kind::new("example.com", "v1", "Volume"); }
/// let controller = ControllerManifest::of::<Volume>("volume").admission(
///     Admission::new()
///         .failure_policy(FailurePolicy::Ignore)
///         .timeout_seconds(2)
///         .namespace_selector("team")
///         .match_condition("is-large", "object.spec.size > 100"),
/// );
/// # drop(controller);
/// ```
///
/// API servers ask only where the host's webhooks are in place. They never ask about `kube-system`, the host's own
/// namespace, deletions, and changes of neither spec, labels nor annotations. Before each reconcile the host asks in any
/// case, whatever is declared here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[must_use]
pub struct Admission {
    #[serde(skip_serializing_if = "Option::is_none")]
    failure_policy: Option<FailurePolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_seconds: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_selector: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace_selector: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    match_conditions: Vec<MatchCondition>,
}

/// What becomes of a request if the plugin cannot be asked, or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum FailurePolicy {
    /// The API server refuses the request; this is the default.
    Fail,
    /// The API server goes on as if the plugin had not been asked.
    Ignore,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct MatchCondition {
    name: String,
    expression: String,
}

impl Admission {
    /// About every resource, with 5 seconds for the answer; a request is refused if the plugin cannot be asked.
    pub fn new() -> Self {
        Self::default()
    }

    /// What becomes of a request if the plugin cannot be asked, or fails; [`FailurePolicy::Fail`] by default.
    pub fn failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.failure_policy = Some(policy);
        self
    }

    /// How long the API server waits for the answer: 1 to 30 seconds, 5 by default.
    pub fn timeout_seconds(mut self, seconds: u8) -> Self {
        self.timeout_seconds = Some(seconds);
        self
    }

    /// Only resources that this label selector matches, for example `a=b,c in (d,e)`. Whoever may set a resource's labels
    /// may keep it from being asked about, so a rule that has to hold does not depend on them.
    pub fn object_selector(mut self, selector: impl Into<String>) -> Self {
        self.object_selector = Some(selector.into());
        self
    }

    /// Only resources in namespaces that this label selector matches.
    pub fn namespace_selector(mut self, selector: impl Into<String>) -> Self {
        self.namespace_selector = Some(selector.into());
        self
    }

    /// Adds a condition in CEL with a name for messages: only requests for which it is true. There can be up to 60.
    pub fn match_condition(mut self, name: impl Into<String>, expression: impl Into<String>) -> Self {
        self.match_conditions.push(MatchCondition {
            name: name.into(),
            expression: expression.into(),
        });
        self
    }
}
