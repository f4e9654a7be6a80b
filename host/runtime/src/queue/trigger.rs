//! Owns what made an object be queued, for people who ask why it was reconciled. Nothing is decided by it.

use std::sync::Arc;

use pilothouse_core::Key;

/// Why an object was queued. docs/api.md explains each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerReason {
    /// The object itself was created, changed or deleted.
    ObjectChanged,
    /// A child changed, or was deleted, not by the host.
    ChildChanged,
    /// Something that its last call has read changed, or something that stands in its way.
    DependencyChanged,
    /// What became of one of its contributions is another than before.
    ContributionChanged,
    /// A write of the host had another effect than expected, or was overtaken by somebody.
    WriteOvertaken,
    /// Another plugin let go of what this object desires.
    PluginLeft,
    /// The host or the plugin started, a kind is served again, or this replica took the object's shard over.
    Started,
    /// Another version or configuration of the plugin took over.
    NewVersion,
    /// The CRD of a kind changed, in which a body had been refused.
    DefinitionChanged,
    /// The periodic resync, or a push by hand.
    Resync,
    /// The back-off after a failure ended.
    Retry,
    /// A time came that the plugin had asked for, or had compared with.
    Timer,
    /// The hot-loop limiter has the object looked at again.
    HotLoop,
    /// The host noticed that it had waited for nothing.
    Watchdog,
}

impl TriggerReason {
    /// Every reason.
    pub const ALL: [Self; 14] = [
        Self::ObjectChanged,
        Self::ChildChanged,
        Self::DependencyChanged,
        Self::ContributionChanged,
        Self::WriteOvertaken,
        Self::PluginLeft,
        Self::Started,
        Self::NewVersion,
        Self::DefinitionChanged,
        Self::Resync,
        Self::Retry,
        Self::Timer,
        Self::HotLoop,
        Self::Watchdog,
    ];

    /// In one word, as the API has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ObjectChanged => "ObjectChanged",
            Self::ChildChanged => "ChildChanged",
            Self::DependencyChanged => "DependencyChanged",
            Self::ContributionChanged => "ContributionChanged",
            Self::WriteOvertaken => "WriteOvertaken",
            Self::PluginLeft => "PluginLeft",
            Self::Started => "Started",
            Self::NewVersion => "NewVersion",
            Self::DefinitionChanged => "DefinitionChanged",
            Self::Resync => "Resync",
            Self::Retry => "Retry",
            Self::Timer => "Timer",
            Self::HotLoop => "HotLoop",
            Self::Watchdog => "Watchdog",
        }
    }
}

/// What made an object be queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Why.
    pub reason: TriggerReason,
    /// The other object that it was about, if it was about one.
    pub object: Option<Arc<Key>>,
}

impl Trigger {
    /// A trigger that another object was the reason for.
    pub fn of(reason: TriggerReason, object: Arc<Key>) -> Self {
        Self {
            reason,
            object: Some(object),
        }
    }
}

impl From<TriggerReason> for Trigger {
    fn from(reason: TriggerReason) -> Self {
        Self { reason, object: None }
    }
}
