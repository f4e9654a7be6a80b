//! Owns the order of a reconcile: six stages, each in its own file. Each takes what the one before it made, so that no
//! stage can be left out or run early.
//!
//! gather and diff look at the cache; invoke runs the guest; validate is pure; apply and report make requests.

mod apply;
mod contest;
mod diff;
mod gather;
mod invoke;
mod report;
mod validate;

use std::sync::Arc;
use std::time::Duration;

use pilothouse_core::{Failure, Retry};
use tokio::time::Instant;

use crate::contribute;
use crate::hub::{Hub, Reader};
use crate::lane::Lane;
use crate::queue::{Ended, Job, Verdict};

/// Reconciles one object once.
pub async fn reconcile(hub: &Arc<Hub>, lane: &Arc<Lane>, job: &Job) -> Ended {
    let reader = Reader {
        lane: job.lane,
        name: job.name.clone(),
    };
    let gathered = match gather::gather(hub, lane, job) {
        gather::Found::Steered(gathered) => gathered,
        gather::Found::Left(left) => return leave(hub, lane, &reader, left).await,
        gather::Found::Gone => {
            {
                let mut state = hub.state.write();
                state.forget_reader(&reader);
                contribute::withdraw(&mut state, lane, &reader);
            }
            hub.claims.notify_one();
            return Ended::idly(Verdict::Gone);
        }
    };
    let invoked = invoke::invoke(hub, lane, &gathered).await;
    let used = invoked.used;
    let validated = validate::validate(hub, lane, &gathered, &reader, invoked);
    let planned = validated.map(|answer| diff::diff(hub, lane, &gathered.owner, answer));
    let story = match &planned {
        Ok(planned) => contest::look(lane, job, planned).await,
        Err(_) => None,
    };
    let mut applied = match planned {
        Ok(planned) => apply::apply(hub, lane, &reader, Some(&gathered.object), planned).await,
        Err(failure) => apply::Applied::nothing(failure),
    };
    let (again, wrote) = (applied.again(hub), applied.writes > 0);
    applied.failure = applied.failure.or_else(|| story.as_deref().cloned());
    let failure = report::report(hub, lane, &reader, &gathered, applied).await.err();
    Ended {
        verdict: verdict(failure.as_ref(), again),
        used,
        wrote,
        failure,
        story,
    }
}

/// An object that has left the filter: nothing is desired of it any more.
async fn leave(hub: &Arc<Hub>, lane: &Arc<Lane>, reader: &Reader, left: gather::Left) -> Ended {
    {
        let mut state = hub.state.write();
        state.forget_reader(reader);
        contribute::withdraw(&mut state, lane, reader);
    }
    hub.claims.notify_one();
    let planned = diff::diff(hub, lane, &left.owner, validate::Validated::nothing());
    let applied = apply::apply(hub, lane, reader, None, planned).await;
    if let Some(failure) = &applied.failure {
        tracing::warn!(lane = lane.title(), object = %reader.name, %failure, "cannot clean up after an object");
    }
    Ended {
        wrote: applied.writes > 0,
        verdict: verdict(applied.failure.as_ref(), None),
        used: Duration::ZERO,
        failure: applied.failure,
        story: None,
    }
}

fn verdict(failure: Option<&Failure>, again: Option<Instant>) -> Verdict {
    match failure {
        None => Verdict::Done { again },
        Some(failure) if failure.retry == Retry::Backoff => Verdict::Retry {
            at_least: Duration::ZERO,
        },
        Some(_) => Verdict::AwaitChange,
    }
}
