//! Owns the second stage: the plugin is asked, on a fresh instance, on a thread that may be blocked. Reads the cache
//! through the plugin's view.

use std::sync::Arc;
use std::time::Duration;

use pilothouse_core::Failure;
use pilothouse_core::contract::{Finalization, Outcome};
use pilothouse_core::failure::reason;
use pilothouse_sandbox::Call;

use super::gather::Gathered;
use crate::hub::Hub;
use crate::lane::Lane;
use crate::view::View;

/// What came of the call.
pub struct Invoked {
    /// The plugin's answer, or why there is none.
    pub result: Result<Outcome, Failure>,
    /// Whether the plugin lets an object go that is being deleted; nothing is desired of it then.
    pub is_done: bool,
    /// What it asked; none when the call did not come to an end.
    pub view: Option<View>,
    /// How long it took.
    pub used: Duration,
}

/// Asks the plugin what should exist; of an object that is being deleted, what should still exist.
pub async fn invoke(hub: &Arc<Hub>, lane: &Arc<Lane>, gathered: &Gathered) -> Invoked {
    let view = View::new(hub.clone(), lane.clone(), gathered.object.name.clone());
    let (component, limits, request) = (lane.component.clone(), lane.limits.clone(), gathered.request.clone());
    let deleting = gathered.object.deleting;
    let call = tokio::task::spawn_blocking(move || {
        if deleting {
            return component.finalize(&request, &limits, view);
        }
        let Call { result, imports, usage } = component.reconcile(&request, &limits, view);
        Call {
            result: result.map(Finalization::Pending),
            imports,
            usage,
        }
    });
    match call.await {
        Ok(Call { result, imports, usage }) => {
            let is_done = matches!(result, Ok(Finalization::Done));
            let result = result.map(|answer| match answer {
                Finalization::Done => Outcome::default(),
                Finalization::Pending(outcome) => outcome,
            });
            Invoked {
                result,
                is_done,
                view: Some(imports),
                used: usage.time,
            }
        }
        Err(error) => Invoked {
            result: Err(Failure::host(
                reason::HOST,
                format!("the call of {} was lost: {error}", lane.title()),
            )),
            is_done: false,
            view: None,
            used: Duration::ZERO,
        },
    }
}
