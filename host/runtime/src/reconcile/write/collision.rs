//! Resolves an apply that the server rejects because of fields of others: the fields become ours, and the next apply,
//! which does not name them, removes them. Makes requests, and only after a rejection.

use pilothouse_cluster::error::RequestError;
use pilothouse_cluster::object::{CachedObject, MANAGER_PREFIX};
use pilothouse_cluster::write::ApplyPrecondition;
use pilothouse_core::collision::{self, Entries, FieldLocation, Search, Step};
use pilothouse_core::diff::canonical::DESIRED_ANNOTATION;
use pilothouse_core::diff::contest::FieldTaker;
use pilothouse_core::kubernetes::fields::LeafSemantics;
use pilothouse_core::kubernetes::path::Projection;
use pilothouse_core::kubernetes::values;
use pilothouse_core::ownership::recreate;
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Failure, Retry};
use serde_json::Value;

use super::requests::version;
use crate::queue::WrittenBody;
use crate::reconcile::apply::{PlanExecution, changed_meanwhile};
use crate::reconcile::diff::{PlannedObject, key};

/// Result of a search for invalid fields of others.
pub enum Clearing {
    /// The fields are ours now, so the next apply removes them.
    Cleared,
    /// No field of others is the cause: the rejection has another one.
    NotFound,
}

/// Result of a dry run of an object's successor.
pub enum Successor {
    /// The server would create it.
    Accepted,
    /// The server rejects it, too.
    Refused(RequestError),
    /// The server could not tell.
    Unknown(RequestError),
}

impl PlanExecution<'_> {
    /// Finds the fields that make a refused apply invalid, and moves them to our entry of managedFields. Fields of other
    /// plugins stay, and the failure names them.
    pub(in crate::reconcile) async fn clear(&mut self, step: &PlannedObject, uid: &str) -> Result<Clearing, Failure> {
        let (served, name, title) = (&step.desired.served, &step.desired.name, step.desired.title());
        let writer = &self.lane.writer;
        let live = self.requests.with_retries(|| writer.live_whole(served, name)).await;
        let live = live.map_err(|error| error.into_failure("look at", &title))?;
        let Some(live) = live.filter(|live| live["metadata"]["uid"] == *uid) else {
            return Err(changed_meanwhile(&title));
        };
        let types = self.host.schemas.types_or_free(step.desired.kind()).await;
        if let Err(error) = types {
            return Err(Failure::cluster(
                Reason::ClusterUnavailable,
                format!(
                    "cannot read the schema of {title}, to find out which fields make it invalid: {error}; retrying"
                ),
            ));
        }
        let types = self.host.schemas.known_types(step.desired.kind()).unwrap_or_default();
        let entries = Entries::read(&live, writer.manager());
        let sent = step.sent();
        let mut search = Search::new(&live, &sent, &entries, &types);
        let fields = loop {
            match search.next() {
                Step::Try(object) => {
                    let tried = self
                        .requests
                        .with_retries(|| writer.try_update(served, name, &live, &object))
                        .await;
                    match tried.map_err(|error| (error.invalid_fields(), error)) {
                        Ok(()) => search.accepted(),
                        Err((Some(fields), _)) => search.refused(&fields),
                        Err((None, error)) if error.is_for_good() || error.is_without_dry_run() => {
                            tracing::info!(lane = self.lane.title(), object = title, %error, "cannot try which fields make an object invalid");
                            return Ok(Clearing::NotFound);
                        }
                        Err((None, error)) if error.code() == Some(409) => return Err(changed_meanwhile(&title)),
                        Err((None, error)) => return Err(error.into_failure("try an update of", &title)),
                    }
                }
                Step::Found(fields) => break fields,
                Step::NotFound => return Ok(Clearing::NotFound),
            }
        };
        self.take(step, &live, &entries, &fields).await?;
        Ok(Clearing::Cleared)
    }

    /// Makes fields of others ours.
    async fn take(
        &mut self,
        step: &PlannedObject,
        live: &Value,
        entries: &Entries,
        fields: &[FieldLocation],
    ) -> Result<(), Failure> {
        let (served, title, writer) = (&step.desired.served, step.desired.title(), &self.lane.writer);
        if fields.is_empty() {
            return Ok(());
        }
        let mut takers: Vec<FieldTaker> = Vec::new();
        for location in fields {
            for holder in collision::holders(entries, location) {
                let field = collision::display(location);
                if holder.starts_with(MANAGER_PREFIX) && holder != writer.manager() {
                    self.apply_around(step, live, entries, location).await;
                    self.depend_on_obstacle(step);
                    return Err(held_by_plugin(&title, &field, holder));
                }
                match takers.iter_mut().find(|taker| taker.manager == holder) {
                    Some(taker) => taker.fields.push(field),
                    None => takers.push(FieldTaker {
                        manager: holder.to_owned(),
                        time: String::new(),
                        fields: vec![field],
                    }),
                }
            }
        }
        let managed = live["metadata"]["managedFields"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        let api_version = step.desired.kind().api_version();
        let moved = collision::move_to_us(managed, fields, writer.manager(), &api_version);
        let object = CachedObject::read(&live.to_string(), step.desired.kind(), &Projection::whole())
            .map_err(|error| Failure::host(Reason::HostFault, format!("{title} cannot be read: {error}")))?;
        let sent = self
            .requests
            .tracked(
                key(served, &step.desired.name),
                writer.set_managers(served, &object, moved),
                version,
            )
            .await;
        sent.map_err(|error| match error.code() {
            Some(404 | 409 | 422) => changed_meanwhile(&title),
            _ => error.into_failure("take over fields of", &title).retry(Retry::Backoff),
        })?;
        self.wrote(step, WrittenBody::Unknown);
        let fields: Vec<String> = fields.iter().map(|field| collision::display(field)).collect();
        let managers: Vec<&str> = takers.iter().map(|taker| &*taker.manager).collect();
        tracing::info!(
            lane = self.lane.title(), owner = %self.primary_ref.name, object = title, ?fields, ?managers,
            "removing fields that make the desired object invalid"
        );
        self.record_revert(step, &fields, takers);
        Ok(())
    }

    /// Applies the possible part of an object while a field of another plugin blocks the rest: members around that
    /// field stay as they are. The digest stays, too, so that the whole is retried when something changes.
    async fn apply_around(&mut self, step: &PlannedObject, live: &Value, entries: &Entries, field: &FieldLocation) {
        let (served, name, writer) = (&step.desired.served, &step.desired.name, &self.lane.writer);
        let (Some(ours), Some(uid)) = (&entries.ours, live["metadata"]["uid"].as_str()) else {
            return;
        };
        for mut body in collision::around(&step.sent(), live, ours, field) {
            let annotations = body
                .get_mut("metadata")
                .and_then(|metadata| metadata.get_mut("annotations"));
            if let Some(Value::Object(annotations)) = annotations {
                let before = live["metadata"]["annotations"].get(DESIRED_ANNOTATION);
                match before {
                    Some(digest) => _ = annotations.insert(DESIRED_ANNOTATION.to_owned(), digest.clone()),
                    None => _ = annotations.remove(DESIRED_ANNOTATION),
                }
            }
            let is_live = values::differences(ours, &body, live, step.desired.kind()).is_empty()
                && ours.missing(&body, LeafSemantics::AsApplied).paths.is_empty()
                && ours.surplus(&body).is_empty();
            if is_live {
                return;
            }
            let request = writer.apply(served, name, &body, ApplyPrecondition::Uid(uid));
            let sent = self
                .requests
                .tracked(key(served, name), request, |sent| version(&sent.object))
                .await;
            match sent {
                Ok(_) => {
                    self.wrote(step, WrittenBody::Unknown);
                    let field = collision::display(field);
                    tracing::info!(
                        lane = self.lane.title(), owner = %self.primary_ref.name, object = step.desired.title(), field,
                        "applied what a field of another plugin does not stand in the way of"
                    );
                    return;
                }
                Err(error) if error.invalid_fields().is_some() => {}
                Err(error) => {
                    tracing::debug!(lane = self.lane.title(), object = step.desired.title(), %error, "cannot apply the rest");
                    return;
                }
            }
        }
    }

    /// Tries with a dry run whether the server would create a desired object if its predecessor were gone.
    pub(in crate::reconcile) async fn try_successor(&self, step: &PlannedObject, live: &Value) -> Successor {
        let (served, name) = (&step.desired.served, &step.desired.name);
        let body = recreate::without_held(step.desired.kind(), live, &step.body);
        let writer = &self.lane.writer;
        match self
            .requests
            .with_retries(|| writer.try_create(served, name, &body))
            .await
        {
            Ok(()) => Successor::Accepted,
            Err(error) if error.is_about_predecessor() => Successor::Accepted,
            Err(error) if error.is_for_good() && !error.is_without_dry_run() => Successor::Refused(error),
            Err(error) => Successor::Unknown(error),
        }
    }
}

fn held_by_plugin(title: &str, field: &str, manager: &str) -> Failure {
    Failure::cluster(
        Reason::FieldConflict,
        format!(
            "{title} cannot be as desired while {field} is set, and another plugin, with the field manager {manager}, holds that \
             field, so it stays: have only one of the two plugins set it"
        ),
    )
    .retry(Retry::Change)
}
