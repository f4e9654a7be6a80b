//! The second stage: calls the plugin in a fresh instance on a blocking thread. Reads the cache through the plugin's
//! view. [`admit()`] fills in defaults and validates the object first; an object that is being deleted is never
//! validated.

use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::apart::weigh;
use pilothouse_core::plugin::contract::{Finalization, Outcome};
use pilothouse_core::recording::{RecordedAnswer, RecordedInput};
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Failure, Tenant};
use pilothouse_sandbox::CallResult;

use super::admit::{Admitted, admit};
use super::gather::Gathered;
use crate::context::HostContext;
use crate::lanes::lane::Lane;
use crate::lanes::primary::PrimaryRef;
use crate::process::room::{AnswerRoom, CallRoom};
use crate::reconcile::contribute::Waiting;
use crate::telemetry::traces::Trace;
use crate::view::View;

/// Result of the call.
pub struct Invoked {
    /// The plugin's answer, or the failure.
    pub result: Result<Outcome, Failure>,
    /// Set if the plugin releases an object that is being deleted; nothing is desired then.
    pub is_done: bool,
    /// The view with the recorded reads; `None` if the call was lost.
    pub view: Option<View>,
    /// Time spent in the guest.
    pub used: Duration,
    /// Memory reserved for its answer as text.
    room: Option<CallRoom>,
}

impl Invoked {
    /// Size of the answer in bytes, before it is parsed.
    fn bytes(&self) -> usize {
        let Ok(Outcome { desired, status, .. }) = &self.result else {
            return 0;
        };
        let desired = desired
            .iter()
            .map(|desired| desired.object.len() + desired.options.len());
        desired.sum::<usize>() + status.as_ref().map_or(0, String::len)
    }

    /// Weighs the answer and waits for memory to parse it. An answer for which there cannot be enough is a failure. A
    /// `worker` that waits is left to others meanwhile: several large answers would occupy all of them.
    pub async fn make_room(
        &mut self,
        host: &Arc<HostContext>,
        lane: &Lane,
        worker: Option<&PrimaryRef>,
    ) -> Option<AnswerRoom> {
        weigh(self.bytes()).await;
        let (answer, call) = (self.result.as_ref().ok()?, self.room.take()?);
        let mut waiting = None;
        let waits = || waiting = worker.map(|primary_ref| Waiting::begin(host, primary_ref));
        let room = host.room.for_answer(&lane.plugin, answer, call, waits).await;
        drop(waiting);
        match room {
            Ok(room) => Some(room),
            Err(failure) => {
                self.result = Err(failure);
                None
            }
        }
    }
}

/// Calls the plugin for the desired objects; for an object that is being deleted, for those that should still exist.
pub async fn invoke(host: &Arc<HostContext>, lane: &Arc<Lane>, gathered: &Gathered, trace: &Trace) -> Invoked {
    let view = View::new(host.clone(), lane.clone(), gathered.object.name.clone()).traced(trace.clone());
    let (asked, request, object) = (lane.clone(), gathered.request.clone(), gathered.object.clone());
    let turn = lane.calls.take(Tenant::of(&gathered.object.name)).await;
    let room = host.room.for_call(&lane.limits).await;
    let book = host.clone();
    let call = host.blocking.run(move || {
        // Released when the call is over, also if its caller was cancelled.
        let _turn = turn;
        let ended = || room.ended();
        let Admitted { result, view, used } = admit(&asked, &object.name.name, object.deleting, request, view);
        let request = match result {
            Ok(request) => request,
            Err(failure) => return (Err(failure), view, used, ended()),
        };
        let (component, limits) = (&asked.component, &asked.limits);
        if object.deleting {
            let call = component.finalize(&request, limits, view);
            let CallResult {
                result,
                mut imports,
                usage,
            } = call;
            imports.record(
                || RecordedInput::Finalize((&request).into()),
                || RecordedAnswer::finalized(&result),
                &usage,
            );
            book.usage.called(&asked.plugin, usage.memory_bytes);
            return (result, imports, used + usage.time, ended());
        }
        let CallResult {
            result,
            mut imports,
            usage,
        } = component.reconcile(&request, limits, view);
        imports.record(
            || RecordedInput::Reconcile((&request).into()),
            || RecordedAnswer::reconciled(&result),
            &usage,
        );
        book.usage.called(&asked.plugin, usage.memory_bytes);
        (result.map(Finalization::Pending), imports, used + usage.time, ended())
    });
    match call.await {
        Ok((result, view, used, room)) => {
            let is_done = matches!(result, Ok(Finalization::Done));
            let result = result.map(|answer| match answer {
                Finalization::Done => Outcome::default(),
                Finalization::Pending(outcome) => outcome,
            });
            Invoked {
                result,
                is_done,
                view: Some(view),
                used: host.blocking.taken(used),
                room: Some(room),
            }
        }
        Err(error) => Invoked {
            result: Err(Failure::host(
                Reason::HostFault,
                format!("the call of {} was lost: {error}", lane.title()),
            )),
            is_done: false,
            view: None,
            used: Duration::ZERO,
            room: None,
        },
    }
}
