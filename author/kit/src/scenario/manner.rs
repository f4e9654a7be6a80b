//! Modes of running a scenario: strictly, as the tests do, or with patience, against a host under injected faults.

use std::time::Duration;

use tokio::time::Instant;

use super::{form::Check, quiet::QuietError};
use crate::cluster::Cluster;
use crate::host::{SteeredHost, SteeredPlugin};

/// The shortest pause between two looks at an object.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The part of the time waited so far for which a pause lasts: an hour of simulated time is not spent on looks.
const WAITED_PART: u32 = 20;

/// The longest pause.
const LONGEST_INTERVAL: Duration = Duration::from_secs(10);

/// A patient teller takes a host that has been idle for so long for settled.
const IDLE: Duration = Duration::from_secs(1);

/// Mode in which a scenario is run.
#[derive(Debug, Clone)]
pub struct Manner {
    /// Namespace of the scenario; absent: one of its own.
    pub namespace: Option<String>,
    /// Time limit of waits for a host under injected faults; absent: strict mode. With it, checks that should hold at
    /// once are waited for too, nothing has to keep holding, and no writes are counted.
    pub patience: Option<Duration>,
    /// Factor for the time limits of the scenario: more than 1 on a machine that is busy otherwise. Checks that hold at
    /// once, and keep holding, are not affected.
    pub slowness: u32,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            namespace: None,
            patience: None,
            slowness: 1,
        }
    }
}

impl Manner {
    /// Returns the time limit of a wait for which the scenario grants so much.
    pub(super) fn within(&self, granted: Duration) -> Duration {
        self.patience
            .unwrap_or_default()
            .max(granted.saturating_mul(self.slowness))
    }

    /// Returns the pause until the next check of a wait that began then.
    pub(super) fn pause(begun: Instant) -> Duration {
        (begun.elapsed() / WAITED_PART).clamp(LOOK_INTERVAL, LONGEST_INTERVAL)
    }

    /// Returns the checks that count. Under faults, a check that the object was replaced is dropped: if the host learns
    /// of the deletion and of the new object at once, it may take over the old one's children.
    pub(super) fn checks(&self, checks: &[Check]) -> Vec<Check> {
        let mut checks = checks.to_vec();
        if self.patience.is_some() {
            checks.retain(|check| check.differs_from.is_none() || check.path.as_deref() != Some(".metadata.uid"));
        }
        checks
    }

    /// Waits until a host has been idle for a while.
    pub(super) async fn settle<H: SteeredHost>(&self, host: &mut H) -> Result<(), QuietError> {
        let (begun, mut idle) = (Instant::now(), None::<Instant>);
        loop {
            if host.is_idle() == Some(false) {
                idle = None;
            } else if idle.get_or_insert_with(Instant::now).elapsed() >= IDLE {
                return Ok(());
            }
            let after = self.within(IDLE);
            if begun.elapsed() > after {
                let requests = Vec::new();
                return Err(QuietError::Restless { after, requests });
            }
            if let Some(reason) = host.failure() {
                return Err(QuietError::Ended(reason));
            }
            tokio::time::sleep(Self::pause(begun)).await;
        }
    }

    /// Stops a host and starts it again.
    pub(super) async fn restart<H: SteeredHost>(
        &self,
        host: &mut H,
        cluster: &Cluster,
        plugins: &[SteeredPlugin],
    ) -> Result<(), QuietError> {
        let left = host.stop().await.map_err(QuietError::Host)?;
        if !left.is_empty() {
            return Err(QuietError::Left(left));
        }
        host.start(cluster, plugins).await.map_err(QuietError::Host)?;
        self.settle(host).await
    }
}
