//! Builder of a controller's `admission` in the manifest: the requests for which API servers call the plugin, and the
//! outcome of a request if the plugin cannot answer.

use serde::Serialize;

/// Conditions under which an API server calls the plugin's [`Defaulter`](crate::Defaulter) and
/// [`Validator`](crate::Validator) before it stores a resource. All that are given must hold. The terms are those of a
/// Kubernetes [webhook
/// configuration](https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/).
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
/// API servers only call plugins if the host's webhooks are configured. They never call them for `kube-system`, the
/// host's own namespace, deletions, and changes of neither spec, labels nor annotations. Before each reconcile the host
/// calls both in any case, whatever is declared here.
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

/// Outcome of a request if the plugin cannot be called, or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum FailurePolicy {
    /// The API server refuses the request; this is the default.
    Fail,
    /// The API server continues as if the plugin had not been called.
    Ignore,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct MatchCondition {
    name: String,
    expression: String,
}

impl Admission {
    /// Matches every resource, with 5 seconds for the answer; a request is refused if the plugin cannot be called.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the outcome of a request if the plugin cannot be called, or fails; [`FailurePolicy::Fail`] by default.
    pub fn failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.failure_policy = Some(policy);
        self
    }

    /// Sets the time that the API server waits for the answer: 1 to 30 seconds, 5 by default.
    pub fn timeout_seconds(mut self, seconds: u8) -> Self {
        self.timeout_seconds = Some(seconds);
        self
    }

    /// Matches only resources with these labels: a label selector, for example `a=b,c in (d,e)`. Users who may set a
    /// resource's labels can exclude it from the calls, so a mandatory rule must not depend on them.
    pub fn object_selector(mut self, selector: impl Into<String>) -> Self {
        self.object_selector = Some(selector.into());
        self
    }

    /// Matches only resources in namespaces with these labels: a label selector.
    pub fn namespace_selector(mut self, selector: impl Into<String>) -> Self {
        self.namespace_selector = Some(selector.into());
        self
    }

    /// Adds a condition in CEL that requests must meet, with a name for messages. There can be up to 60.
    pub fn match_condition(mut self, name: impl Into<String>, expression: impl Into<String>) -> Self {
        self.match_conditions.push(MatchCondition {
            name: name.into(),
            expression: expression.into(),
        });
        self
    }
}
