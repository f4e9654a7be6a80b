//! Takes over objects of an earlier operator: its fields become ours before the first apply, if the installation names
//! its field managers.

use pilothouse_cluster::object::ControllerRef;
use pilothouse_cluster::write::LiveObject;
use pilothouse_core::ownership::{Owner, takeover};
use pilothouse_core::{Failure, Retry};

use super::requests::{Requests, version};
use crate::lanes::lane::Lane;
use crate::reconcile::diff::{PlannedObject, holder, key};

/// Takes over the fields of former managers. Returns `true` if the object is ours now: it has such fields, and no other
/// owner. Makes a request if there is something to take over.
pub async fn take_over(
    requests: &Requests<'_>,
    lane: &Lane,
    owner: &Owner,
    step: &PlannedObject,
    live: LiveObject,
    former: &[String],
) -> Result<bool, Failure> {
    let LiveObject { object, managers } = live;
    let (manager, api_version) = (lane.writer.manager(), step.desired.kind().api_version());
    let Some(managers) = takeover::take_over(&managers, former, manager, &api_version) else {
        return Ok(false);
    };
    let title = step.desired.title();
    let is_others = |controller: &ControllerRef| {
        let holder = holder(controller, &object, owner);
        *holder.uid != *owner.uid && !holder.is_namesake
    };
    if object.deleting || object.controller.as_deref().is_some_and(is_others) {
        return Ok(false);
    }
    let taken = requests
        .tracked(
            key(&step.desired.served, &step.desired.name),
            lane.writer.set_managers(&step.desired.served, &object, managers),
            version,
        )
        .await;
    match taken {
        Ok(_) => {
            tracing::info!(lane = lane.title(), object = title, ?former, "took over an object");
            Ok(true)
        }
        Err(error) => Err(error.into_failure("take over", &title).retry(Retry::Backoff)),
    }
}
