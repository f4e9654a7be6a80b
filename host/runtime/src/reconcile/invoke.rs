//! Owns the second stage: the plugin is asked, on a fresh instance, on a thread that may be blocked. Reads the cache
//! through the plugin's view.

use std::sync::Arc;
use std::time::Duration;

use pilothouse_core::Failure;
use pilothouse_core::contract::Outcome;
use pilothouse_core::failure::reason;

use super::gather::Gathered;
use crate::hub::Hub;
use crate::lane::Lane;
use crate::view::View;

/// What came of the call.
pub struct Invoked {
    /// The plugin's answer, or why there is none.
    pub result: Result<Outcome, Failure>,
    /// What it asked; none when the call did not come to an end.
    pub view: Option<View>,
    /// How long it took.
    pub used: Duration,
}

/// Asks the plugin.
pub async fn invoke(hub: &Arc<Hub>, lane: &Arc<Lane>, gathered: &Gathered) -> Invoked {
    let view = View::new(hub.clone(), lane.clone(), gathered.object.name.clone());
    let (component, limits, request) = (lane.component.clone(), lane.limits.clone(), gathered.request.clone());
    let call = tokio::task::spawn_blocking(move || component.reconcile(&request, &limits, view));
    match call.await {
        Ok(call) => Invoked {
            result: call.result,
            view: Some(call.imports),
            used: call.usage.time,
        },
        Err(error) => Invoked {
            result: Err(Failure::host(
                reason::HOST,
                format!("the call of {} was lost: {error}", lane.title()),
            )),
            view: None,
            used: Duration::ZERO,
        },
    }
}
