//! Names of all behaviours, and the choice of behaviour in a resource.

use pilothouse_plugin::ObjectMeta;
use pilothouse_plugin::raw::types::Request;
use serde::Deserialize;

/// Behaviour of the plugin for a resource: `spec.behaviour`, in kebab-case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Behaviour {
    /// Owns one ConfigMap of the resource's name with `spec.text` as its data, and has a status with the same text and
    /// the condition `Behaved`.
    #[serde(alias = "configmap")]
    ConfigMap,
    /// Wants nothing.
    Nothing,

    /// Traps at an `unreachable` instruction.
    #[serde(alias = "unreachable")]
    Trap,
    /// Traps if `spec.notes` has 50 items, one of them with 10,000 letters, which is all that the schema allows; then behaves
    /// as `config-map`.
    TrapAtLimits,
    /// Panics with `spec.text`.
    Panic,
    /// Never ends.
    Loop,
    /// Works for `spec.count` rounds, a million when not given; then behaves as `config-map`.
    Work,
    /// Calls itself until the stack is used up.
    Recursion,
    /// Allocates and fills memory until there is no more.
    MemoryBomb,
    /// Grows the memory page by page, without touching it, as often as the host lets it; then behaves as `config-map`.
    MemoryGrowth,
    /// Logs `spec.count` lines, a million when not given; then behaves as `config-map`.
    LogFlood,
    /// Logs `spec.text` once at each level; then behaves as `config-map`.
    LogEachLevel,
    /// Gets an absent ConfigMap of another name each time, `spec.count` times, a million when not given.
    ManyReads,
    /// Finds all ConfigMaps `spec.count` times, a million when not given.
    ManyFinds,
    /// Wants one ConfigMap with `spec.count` bytes of data, 100 MB when not given.
    HugeOutput,
    /// Wants `spec.count` ConfigMaps, 10,001 when not given.
    ManyObjects,

    /// Fails for the time being, with `spec.text`.
    TransientFailure,
    /// Fails for good, with `spec.text`.
    PermanentFailure,
    /// Traps until two calls in a row have failed; then behaves as `config-map`.
    TrapAtFirst,
    /// Fails for the time being until two calls in a row have failed; then behaves as `config-map`.
    FailAtFirst,

    /// A desired object that is no JSON.
    BrokenJson,
    /// A desired object that is a JSON list.
    NotAnObject,
    /// A desired object without a name.
    Nameless,
    /// A desired object without apiVersion and kind.
    Kindless,
    /// A desired Secret, which is not declared.
    UndeclaredKind,
    /// The same ConfigMap twice.
    SameNameTwice,
    /// A Deployment in another namespace, `spec.text`: Deployments are declared for the primary's own namespace.
    OtherNamespace,
    /// Contributes to a ConfigMap, which is declared as owned only.
    UndeclaredContribution,
    /// Reads a Secret, which is not declared.
    UndeclaredRead,
    /// Reads ConfigMaps by a condition on a field that is not declared.
    UndeclaredField,
    /// Reads ConfigMaps by a label selector that is none.
    BrokenSelector,

    /// A ConfigMap whose data has a number, which server-side apply answers with 500.
    WrongType,
    /// A Deployment with a field that does not exist, which server-side apply answers with 500.
    UnknownField,
    /// A Deployment with -1 replicas and no container, which the server answers with 422.
    InvalidValue,
    /// A ConfigMap whose name no object can have.
    InvalidName,

    /// Data that differs whenever the clock has moved on by a second.
    DiffersByClock,
    /// A status that differs whenever the clock has moved on by a second; its ConfigMap does not.
    ClockInStatus,
    /// A status that counts how often it was written, by reading its own. Needs the configuration `sees-status`.
    CountInStatus,
    /// A status that is one more than that of the Hostile `spec.text`. Needs the configuration `sees-status`.
    CountOnAnother,
    /// Data that counts how often it was written, by reading what was written.
    DiffersByRead,
    /// Data that differs with the number of failures before, which a failure changes.
    DiffersByAttempt,
    /// Data that differs with the order of the members of `spec`, which has no meaning.
    DiffersByOrder,
    /// Data that is the first of `spec.notes`, whose order has no meaning.
    DiffersByListOrder,

    /// Owns `spec.count` ConfigMaps that it makes one by one, each when the one before has `data.ready`; where there are
    /// more, the last one goes, and the one before it with the next run.
    InOrder,
    /// As `config-map`, with the text of the ConfigMap `spec.text`.
    Copy,

    /// A status that is a JSON list.
    StatusNotAnObject,
    /// A status that is no JSON.
    StatusBroken,
    /// A status with a field that the schema forbids the type of.
    StatusWrongType,
    /// A condition whose name no condition can have.
    BadConditionName,
    /// Two conditions of the same name.
    SameConditionTwice,
    /// A condition that is the host's own: `Reconciled`.
    HostCondition,
    /// An event without a reason.
    EmptyEventReason,
    /// An event with a message of 100 KB.
    HugeEventMessage,
    /// `spec.count` events (1000 when not given), each with another message.
    ManyEvents,
    /// To be run again after 0 ms.
    RequeueAtOnce,
    /// To be run again after the largest number of milliseconds.
    RequeueNever,
    /// Extensions that are no JSON.
    BrokenExtensions,
}

/// Settings of a resource.
#[derive(Debug)]
pub struct Given {
    /// The behaviour.
    pub behaviour: Behaviour,
    /// The resource's name.
    pub name: String,
    /// The resource's namespace.
    pub namespace: String,
    /// Data or a message.
    pub text: String,
    /// Count or amount.
    pub count: Option<u64>,
    /// Words, whose order has no meaning.
    pub notes: Vec<String>,
    /// Failures in a row before this call.
    pub attempt: u32,
    /// The text of its status, as far as the plugin sees it.
    pub told: Option<String>,
    /// Set if the text stands before the behaviour.
    pub is_text_first: bool,
}

impl Given {
    /// Reads the request, or says why it can't be read.
    pub fn read(request: &Request) -> Result<Self, String> {
        let Resource { metadata, spec, status } = serde_json::from_str(&request.object)
            .map_err(|error| format!("the Hostile cannot be read: {error}; correct the field"))?;
        Ok(Self {
            behaviour: spec.behaviour,
            name: metadata.name,
            namespace: metadata.namespace.unwrap_or_default(),
            text: spec.text.unwrap_or_else(|| "as it was told to".to_owned()),
            count: spec.count,
            notes: spec.notes,
            attempt: request.attempt,
            told: status.text,
            is_text_first: request.object.find("\"text\"") < request.object.find("\"behaviour\""),
        })
    }

    /// `spec.count`, or this when it is not given.
    pub fn count_or(&self, otherwise: usize) -> usize {
        self.count
            .map_or(otherwise, |count| usize::try_from(count).unwrap_or(usize::MAX))
    }
}

#[derive(Deserialize)]
struct Resource {
    metadata: ObjectMeta,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
struct Status {
    text: Option<String>,
}

#[derive(Deserialize)]
struct Spec {
    behaviour: Behaviour,
    text: Option<String>,
    count: Option<u64>,
    #[serde(default)]
    notes: Vec<String>,
}
