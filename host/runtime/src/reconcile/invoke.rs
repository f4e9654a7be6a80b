//! Owns the second stage: calls the plugin in a fresh instance on a blocking thread. Reads the cache through the
//! plugin's view. [`admit()`] has defaults filled in and the object validated first; an object that is being deleted is never
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
    /// The room that its answer takes as text.
    room: Option<CallRoom>,
}

impl Invoked {
    /// The bytes of the answer that have to be parsed.
    fn bytes(&self) -> usize {
        let Ok(Outcome { desired, status, .. }) = &self.result else {
            return 0;
        };
        let desired = desired
            .iter()
            .map(|desired| desired.object.len() + desired.options.len());
        desired.sum::<usize>() + status.as_ref().map_or(0, String::len)
    }

    /// Weighs the answer and waits for its room, before it is parsed; an answer for which there can be none is a failure. A
    /// `worker` that waits is left to others meanwhile: answers that are as large would keep all of them.
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

/// Asks the plugin what should exist; of an object that is being deleted, what should still exist.
pub async fn invoke(host: &Arc<HostContext>, lane: &Arc<Lane>, gathered: &Gathered, trace: &Trace) -> Invoked {
    let view = View::new(host.clone(), lane.clone(), gathered.object.name.clone()).traced(trace.clone());
    let (asked, request, object) = (lane.clone(), gathered.request.clone(), gathered.object.clone());
    let turn = lane.calls.take(Tenant::of(&gathered.object.name)).await;
    let room = host.room.for_call(&lane.limits).await;
    let book = host.clone();
    let call = host.blocking.run(move || {
        // Given back when the call is over, also when nobody waits for it any more.
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
