//! Names the reasons why an object was queued, for people who ask why it was reconciled. No decision depends on them.

use std::sync::Arc;

use pilothouse_core::Key;

/// Reason why an object was queued. docs/api.md explains each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerReason {
    /// The object itself was created, changed or deleted.
    ObjectChanged,
    /// A child changed, or was deleted, not by the host.
    ChildChanged,
    /// An object that its last call read has changed, or one that blocks it.
    DependencyChanged,
    /// The outcome of one of its contributions has changed.
    ContributionChanged,
    /// A write of the host had another effect than expected, or was overwritten by another writer.
    WriteOvertaken,
    /// Another plugin released an object or field that this object desires.
    PluginLeft,
    /// The host or the plugin started, a kind is served again, or this replica took the object's shard over.
    Started,
    /// Another version or configuration of the plugin started.
    NewVersion,
    /// The CRD of a kind changed, of which the API server had rejected an object.
    DefinitionChanged,
    /// The periodic resync, or a push by hand.
    Resync,
    /// An annotation requested it.
    Requested,
    /// The back-off after a failure ended.
    Retry,
    /// A time was due that the plugin had requested, or had compared with.
    Timer,
    /// The hot-loop limiter checks whether the hot loop is over.
    HotLoop,
    /// The watchdog found that the object had waited in vain.
    Watchdog,
}

impl TriggerReason {
    /// Every reason.
    pub const ALL: [Self; 15] = [
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
        Self::Requested,
        Self::Retry,
        Self::Timer,
        Self::HotLoop,
        Self::Watchdog,
    ];

    /// The name of the reason in the API.
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
            Self::Requested => "Requested",
            Self::Retry => "Retry",
            Self::Timer => "Timer",
            Self::HotLoop => "HotLoop",
            Self::Watchdog => "Watchdog",
        }
    }
}

/// Trigger of a reconcile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Reason why the object was queued.
    pub reason: TriggerReason,
    /// The other object that caused it, if there is one.
    pub object: Option<Arc<Key>>,
}

impl Trigger {
    /// Makes a trigger that another object caused.
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
