//! Owns answering API servers: which plugin a path means, and one call of it, in time. What cannot be answered is an
//! error of HTTP, so that the failure policy decides.

use std::sync::Arc;
use std::time::Duration;

use pilothouse_core::admission::words::Refusal;
use pilothouse_core::admission::{conversion, patch, review, when};
use pilothouse_core::contract::{FieldError, Review};
use pilothouse_core::depth::{MAX_DEPTH, is_too_deep};
use pilothouse_core::{Failure, Limits, Name};
use pilothouse_webhook::server::{Answer, Handler, Question};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use crate::hub::Hub;
use crate::lane::Lane;
use crate::view::View;

/// Calls at once; more wait for their turn, and for no reconcile.
const CALLS: usize = 16;

/// How long an API server waits unless it says so, and what is kept of that for the way back.
const WAIT: Duration = Duration::from_secs(10);
const WAY_BACK: Duration = Duration::from_millis(300);

/// Answers for the plugins that run.
pub(super) struct Answering {
    hub: Arc<Hub>,
    calls: Semaphore,
}

/// Which of a plugin's interfaces is asked.
#[derive(Clone, Copy)]
enum Asked {
    Defaulter,
    Validator,
}

impl Answering {
    pub(super) fn new(hub: Arc<Hub>) -> Self {
        Self {
            hub,
            calls: Semaphore::new(CALLS),
        }
    }

    async fn ask(&self, question: Question) -> Answer {
        let Question { path, body, .. } = question;
        let steps: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        // A URL may have a path of its own before ours.
        let asked = match steps.as_slice() {
            [.., "default", plugin, controller] => self.review(Asked::Defaulter, plugin, controller, &body).await,
            [.., "validate", plugin, controller] => self.review(Asked::Validator, plugin, controller, &body).await,
            [.., "convert", plugin] => self.convert(plugin, &body).await,
            _ => Err(Answer::error(
                404,
                format!("{path} is not answered here; /default, /validate and /convert are, each with a plugin"),
            )),
        };
        asked.unwrap_or_else(|error| {
            tracing::warn!(
                path,
                code = error.code,
                problem = error.body,
                "an API server's question is not answered"
            );
            error
        })
    }

    async fn review(&self, asked: Asked, plugin: &str, controller: &str, body: &[u8]) -> Result<Answer, Answer> {
        let lane = self
            .lane(|lane| &*lane.plugin == plugin && lane.controller == controller)
            .ok_or_else(|| {
                Answer::error(
                    404,
                    format!("no plugin {plugin} with a controller {controller} runs here"),
                )
            })?;
        let request = review::parse(body).map_err(|error| Answer::error(400, error.to_string()))?;
        let primary = lane.grants.primary();
        if request.kind != *primary {
            let problem = format!(
                "{} is asked about {}, and judges {primary} alone",
                lane.title(),
                request.kind
            );
            return Err(Answer::error(400, problem));
        }
        if !when::is_asked(&request).map_err(|error| Answer::error(400, error.to_string()))? {
            return Ok(Answer::json(review::allowed(&request.uid, &[], &[]).to_string()));
        }
        let shown = |object: &Option<Box<RawValue>>| {
            object
                .as_ref()
                .map(|object| lane.grants.primary_projection().project(object, primary))
                .transpose()
                .map_err(|error| Answer::error(400, format!("the object cannot be read: {error}")))
        };
        let (object, old) = (shown(&request.object)?, shown(&request.old)?);
        let whole = request.object.as_deref().map_or("null", RawValue::get).to_owned();
        let (uid, name) = (request.uid, request.name);
        let unreadable = |error| Answer::error(400, format!("the object cannot be read: {error}"));
        if is_too_deep(&whole).map_err(unreadable)? {
            let error = FieldError {
                path: String::new(),
                message: format!("it nests deeper than {MAX_DEPTH} levels, and the plugin could not read it"),
            };
            return Ok(refused(&lane, &uid, &name, &[error], "null"));
        }
        let asking = Review {
            operation: request.operation,
            kind: request.kind,
            object,
            old,
            config: lane.config.clone(),
            username: request.username,
            groups: request.groups,
            dry_run: request.dry_run,
        };
        let view = View::new(
            self.hub.clone(),
            lane.clone(),
            Name::new(request.namespace.as_deref(), &name),
        );
        self.call(move || match asked {
            Asked::Defaulter => default(&lane, &uid, &name, &asking, &whole, view),
            Asked::Validator => validate(&lane, &uid, &name, &asking, &whole, view),
        })
        .await
    }

    async fn convert(&self, plugin: &str, body: &[u8]) -> Result<Answer, Answer> {
        let lane = self
            .lane(|lane| &*lane.plugin == plugin && lane.component.optional().converter)
            .ok_or_else(|| Answer::error(404, format!("no plugin {plugin} that converts runs here")))?;
        let request = conversion::parse(body).map_err(|error| Answer::error(400, error.to_string()))?;
        self.call(move || {
            let objects = request.objects.iter().map(|object| {
                let limits: &Limits = &lane.limits;
                let call = lane
                    .component
                    .convert(&conversion::shown(object), &request.desired, limits);
                let converted = call.result.map_err(|failure| failure.message)??;
                conversion::converted(object, &converted, &request.desired)
            });
            let answer = conversion::answer(&request.uid, objects.collect());
            Ok(Answer::json(answer.to_string()))
        })
        .await
    }

    fn lane(&self, is: impl Fn(&Lane) -> bool) -> Option<Arc<Lane>> {
        self.hub.lanes().iter().find(|lane| is(lane)).cloned()
    }

    /// Makes a call on a thread of this server that may be blocked.
    async fn call(&self, call: impl FnOnce() -> Result<Answer, Failure> + Send + 'static) -> Result<Answer, Answer> {
        let turn = self.calls.acquire().await.expect("the semaphore is never closed");
        let answered = tokio::task::spawn_blocking(call).await;
        drop(turn);
        match answered {
            Ok(answered) => answered.map_err(|failure| Answer::error(500, failure.message)),
            Err(error) => Err(Answer::error(500, format!("the call was lost: {error}"))),
        }
    }
}

impl Handler for Answering {
    async fn answer(&self, question: Question) -> Answer {
        let wait = question.timeout.unwrap_or(WAIT).saturating_sub(WAY_BACK);
        let path = question.path.clone();
        tokio::time::timeout(wait, self.ask(question))
            .await
            .unwrap_or_else(|_| Answer::error(504, format!("{path} was not answered within {wait:?}")))
    }
}

fn default(lane: &Lane, uid: &str, name: &str, review: &Review, whole: &str, view: View) -> Result<Answer, Failure> {
    let answer = match lane.component.apply_defaults(review, &lane.limits, view).result? {
        Ok(answer) => answer,
        Err(errors) => return Ok(refused(lane, uid, name, &errors, whole)),
    };
    let whole = parsed(whole);
    let shown = parsed(review.object.as_deref().unwrap_or("null"));
    let defaulted = patch::with_defaults(&whole, &shown, &answer)?;
    let patch = patch::difference(&whole, &defaulted);
    Ok(Answer::json(review::allowed(uid, &[], &patch).to_string()))
}

fn validate(lane: &Lane, uid: &str, name: &str, review: &Review, whole: &str, view: View) -> Result<Answer, Failure> {
    Ok(match lane.component.validate(review, &lane.limits, view).result? {
        Ok(warnings) => Answer::json(review::allowed(uid, &warnings, &[]).to_string()),
        Err(errors) => refused(lane, uid, name, &errors, whole),
    })
}

fn refused(lane: &Lane, uid: &str, name: &str, errors: &[FieldError], whole: &str) -> Answer {
    let refusal = Refusal::new(lane.grants.primary(), name, errors, &parsed(whole));
    Answer::json(review::refused(uid, &refusal).to_string())
}

fn parsed(object: &str) -> Value {
    serde_json::from_str(object).expect("it was read as JSON before")
}
