//! Answers API servers: finds the plugin for a path, and calls it once, in time. A failure is answered with an HTTP
//! error, so that the failure policy decides. Reads that only other replicas can serve are made by `reads`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use pilothouse_cluster::cache::store::Store;
use pilothouse_core::admission::field_errors::InvalidObject;
use pilothouse_core::admission::{conversion, match_condition, patch, review};
use pilothouse_core::plugin::contract::{FieldError, Review};
use pilothouse_core::recording::{RecordedAnswer, RecordedInput};
use pilothouse_core::status::reason::Reason;
use pilothouse_core::text::parsed_size::parsed_size;
use pilothouse_core::{Failure, Limits, Name};
use pilothouse_metrics::{ReviewReads, ReviewResult, ReviewedFunction};
use pilothouse_webhook::budget::{MAX_PARSED_BYTES, SMALL_BODY_BYTES};
use pilothouse_webhook::handler::{WebhookClient, WebhookHandler, WebhookRequest, WebhookResponse};
use pilothouse_webhook::log_throttle::LogThrottle;
use pilothouse_webhook::peers::{FORWARDED_HEADER, PeerClient};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::reads::{RemoteReader, RemoteReads, RemoteReview, lacking};
use crate::context::HostContext;
use crate::lanes::health::without_object;
use crate::lanes::lane::Lane;
use crate::plugins::PluginRegistry;
use crate::view::View;

/// Concurrent calls; further ones wait, but for no reconcile.
const CALLS: usize = 16;

/// Concurrent calls of one plugin: slow calls of one leave the rest to the others.
const CALLS_OF_A_PLUGIN: usize = CALLS / 2;

/// Concurrent calls with large requests: a client that sends many leaves the processors to the others.
const LONG_CALLS: usize = 2;

/// Parsed size in bytes from which a request is large.
const LONG_QUESTION_BYTES: usize = 1024 * 1024;

/// Copies of a request's text that are made until it is answered.
const COPIES: usize = 3;

/// Size in bytes that a parsed answer may have beyond twice its object.
const ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// Timeout if the API server names none, upper bound of the named one, and the part that is kept for sending the
/// response.
const WAIT: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const WAY_BACK: Duration = Duration::from_millis(300);

/// Answers requests for the running plugins.
pub(super) struct AdmissionHandler {
    host: Arc<HostContext>,
    registry: Arc<PluginRegistry>,
    /// Set if API servers have to show a certificate to have an object reviewed.
    wants_certificates: bool,
    calls: Arc<Semaphore>,
    long_calls: Arc<Semaphore>,
    calls_of: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
    remote: RemoteReader,
    /// Throttles the log lines about unanswered requests.
    unanswered: LogThrottle,
}

/// Interface of a plugin that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AdmissionInterface {
    Defaulter,
    Validator,
}

/// Meaning of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WebhookRoute<'a> {
    Judge {
        asked: AdmissionInterface,
        plugin: &'a str,
        controller: &'a str,
    },
    Convert {
        plugin: &'a str,
    },
}

impl<'a> WebhookRoute<'a> {
    /// Function in the metrics.
    fn function(self) -> ReviewedFunction {
        match self {
            Self::Judge { asked, .. } => match asked {
                AdmissionInterface::Defaulter => ReviewedFunction::Default,
                AdmissionInterface::Validator => ReviewedFunction::Validate,
            },
            Self::Convert { .. } => ReviewedFunction::Convert,
        }
    }

    /// Parses a path. A URL may have a prefix before ours.
    fn of(path: &'a str) -> Result<Self, WebhookResponse> {
        let steps: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match *steps.as_slice() {
            [.., "default", plugin, controller] => Ok(Self::Judge {
                asked: AdmissionInterface::Defaulter,
                plugin,
                controller,
            }),
            [.., "validate", plugin, controller] => Ok(Self::Judge {
                asked: AdmissionInterface::Validator,
                plugin,
                controller,
            }),
            [.., "convert", plugin] => Ok(Self::Convert { plugin }),
            _ => Err(WebhookResponse::error(
                404,
                format!("{path} is not answered here; /default, /validate and /convert are, each with a plugin"),
            )),
        }
    }
}

impl AdmissionHandler {
    pub(super) fn new(
        host: Arc<HostContext>,
        registry: Arc<PluginRegistry>,
        peers: watch::Receiver<Arc<PeerClient>>,
        wants_certificates: bool,
    ) -> Self {
        Self {
            remote: RemoteReader::new(host.clone(), peers),
            host,
            registry,
            wants_certificates,
            calls: Arc::new(Semaphore::new(CALLS)),
            long_calls: Arc::new(Semaphore::new(LONG_CALLS)),
            calls_of: Mutex::default(),
            unanswered: LogThrottle::default(),
        }
    }

    async fn ask(&self, question: &WebhookRequest, until: Instant) -> WebhookResponse {
        let asked = match WebhookRoute::of(&question.path).and_then(|route| Ok((route, self.lane(route)?))) {
            Ok((WebhookRoute::Convert { .. }, lane)) => self.call(None, lane, question, None, until).await,
            Ok((WebhookRoute::Judge { asked, .. }, lane)) => self.review(asked, lane, question, until).await,
            // The replica that has forwarded the review may have the plugin itself.
            Err(error) if question.is_forwarded => Err(WebhookResponse { code: 503, ..error }),
            Err(error) => Err(error),
        };
        asked.unwrap_or_else(|error| {
            if let Some(left_out) = self.unanswered.may_say() {
                tracing::warn!(
                    path = question.path,
                    code = error.code,
                    problem = error.body,
                    left_out,
                    "a webhook request was not answered"
                );
            }
            error
        })
    }

    /// The lane that answers.
    fn lane(&self, route: WebhookRoute<'_>) -> Result<Arc<Lane>, WebhookResponse> {
        let (plugin, what) = match route {
            WebhookRoute::Judge { plugin, controller, .. } => (plugin, format!(" with a controller {controller}")),
            WebhookRoute::Convert { plugin } => (plugin, " that converts".to_owned()),
        };
        let answers = |lane: &&Arc<Lane>| match route {
            WebhookRoute::Judge { controller, .. } => lane.controller == controller,
            WebhookRoute::Convert { .. } => lane.component.optional().converter,
        };
        let lanes = self.host.state.lanes();
        let mut of_plugin = lanes.iter().filter(|lane| &*lane.plugin == plugin).peekable();
        if of_plugin.peek().is_none() && self.registry.expects(plugin) == Some(true) {
            // An API server passes on a server's message with this code, and with no other.
            return Err(WebhookResponse::error(
                500,
                format!(
                    "plugin {plugin} does not run at the moment: it starts, is suspended or was stopped; try again, or look \
                     at its Plugin resource and at the host's log"
                ),
            ));
        }
        let lane = of_plugin.find(answers);
        lane.cloned()
            .ok_or_else(|| WebhookResponse::error(404, format!("no plugin {plugin}{what} runs here")))
    }

    /// Reviews an object where the required reads can be served: here, at another replica, or with live lists.
    async fn review(
        &self,
        asked: AdmissionInterface,
        lane: Arc<Lane>,
        question: &WebhookRequest,
        until: Instant,
    ) -> Result<WebhookResponse, WebhookResponse> {
        let local = async || {
            self.host.metrics.reviews().answered(ReviewReads::Local);
            self.call(Some(asked), lane.clone(), question, None, until).await
        };
        if lane.cached_namespaces().is_none() {
            return local().await;
        }
        // The call parses the body again, on its own thread: the request borrows from the body, so it cannot be moved
        // there. That takes 2 µs of processor time per KB (measured with objects of 4 KB to 3 MB), and a call takes
        // much longer.
        let reviewed = {
            let request = review::parse(&question.body).map_err(bad)?;
            Name::new(request.namespace.as_deref(), &request.name)
        };
        let mut lacks = lacking(&self.host, &lane, &reviewed);
        if lacks.is_empty() {
            let answer = local().await;
            if answer.is_ok() {
                return answer;
            }
            // The cached objects may have been dropped before the plugin read them.
            lacks = lacking(&self.host, &lane, &reviewed);
            if lacks.is_empty() {
                return answer;
            }
        }
        let remote = RemoteReview {
            lane: &lane,
            path: &question.path,
            body: &question.body,
            namespace: reviewed.namespace.as_deref().unwrap_or_default(),
            lacking: &lacks,
            is_forwarded: question.is_forwarded,
            until,
        };
        match self.remote.read(&remote).await? {
            RemoteReads::Answered(answer) => {
                self.host.metrics.reviews().answered(ReviewReads::Forwarded);
                Ok(answer)
            }
            RemoteReads::Listed(store) => {
                self.host.metrics.reviews().answered(ReviewReads::Live);
                self.call(Some(asked), lane, question, Some(store), until).await
            }
        }
    }

    /// Makes a call on a blocking thread of this server. `asked` is `None` for a conversion, and `live` holds the
    /// objects listed for the call. Its slot, the request's bytes and the memory for parsing are released when it has
    /// ended, also if its caller was cancelled.
    async fn call(
        &self,
        asked: Option<AdmissionInterface>,
        lane: Arc<Lane>,
        question: &WebhookRequest,
        live: Option<Store>,
        until: Instant,
    ) -> Result<WebhookResponse, WebhookResponse> {
        let body = question.body.clone();
        let needs = needs(asked, &lane, &body).await?;
        let Some(memory) = question.memory.reserve(needs).await else {
            let problem = format!(
                "the question takes {needs} bytes when it is parsed, and may take {MAX_PARSED_BYTES}; make the object smaller, \
                 or nest less in it"
            );
            return Err(WebhookResponse::error(413, problem));
        };
        let of_plugin = self.calls_of(&lane.plugin);
        let turn = async |calls: Arc<Semaphore>| calls.acquire_owned().await.expect("the semaphore is never closed");
        let long = if needs > LONG_QUESTION_BYTES {
            Some(turn(self.long_calls.clone()).await)
        } else {
            None
        };
        let turns = (long, turn(of_plugin).await, turn(self.calls.clone()).await);
        let host = self.host.clone();
        let call = tokio::task::spawn_blocking(move || {
            let answer = match asked {
                Some(asked) => judge(&host, asked, &lane, &body, live),
                None => convert(&lane, &body, until.into_std()),
            };
            drop(body);
            if memory.is_large() {
                // Memory that the allocator keeps would add to that of other calls.
                pilothouse_sandbox::return_free_memory();
            }
            drop((turns, memory));
            answer
        });
        call.await
            .unwrap_or_else(|error| Err(WebhookResponse::error(500, format!("the call was lost: {error}"))))
    }

    fn calls_of(&self, plugin: &Arc<str>) -> Arc<Semaphore> {
        let mut calls = self.calls_of.lock();
        if !calls.contains_key(plugin) {
            // Waiting and running calls hold a copy: only plugins without any are forgotten.
            calls.retain(|_, calls| Arc::strong_count(calls) > 1);
        }
        let new = || Arc::new(Semaphore::new(CALLS_OF_A_PLUGIN));
        calls.entry(plugin.clone()).or_insert_with(new).clone()
    }
}

impl WebhookHandler for AdmissionHandler {
    fn admits(&self, path: &str, client: WebhookClient<'_>) -> Result<(), WebhookResponse> {
        let route = WebhookRoute::of(path)?;
        let is_peer = match client.forwards {
            None => false,
            Some(proof) if self.remote.is_peer(proof) => true,
            // The reason is not disclosed. A replica without the new authority answers by itself.
            Some(_) => {
                return Err(WebhookResponse::error(
                    403,
                    format!(
                        "the header {FORWARDED_HEADER} does not prove that a replica of this host forwards the review"
                    ),
                ));
            }
        };
        let is_known = client.is_certified || is_peer;
        if self.wants_certificates && !is_known && matches!(route, WebhookRoute::Judge { .. }) {
            return Err(WebhookResponse::error(
                403,
                "this host answers API servers only that show a client certificate of --webhook-client-ca; give the API \
                 server one in its admission kubeconfig",
            ));
        }
        Ok(())
    }

    async fn answer(&self, question: WebhookRequest) -> WebhookResponse {
        let wait = question.timeout.unwrap_or(WAIT).min(LONGEST_WAIT);
        let left = wait.saturating_sub(WAY_BACK + question.received.elapsed());
        let until = Instant::now() + left;
        let asked = tokio::time::timeout_at(until, self.ask(&question, until)).await;
        let answer = asked.unwrap_or_else(|_| {
            WebhookResponse::error(504, format!("{} was not answered within {wait:?}", question.path))
        });
        if let Ok(route) = WebhookRoute::of(&question.path) {
            let took = question.received.elapsed();
            self.host
                .metrics
                .reviews()
                .ended(route.function(), result(&answer), took);
        }
        answer
    }
}

/// Result of a request in the metrics.
fn result(answer: &WebhookResponse) -> ReviewResult {
    match answer.code {
        200 if review::is_refusal(&answer.body) => ReviewResult::Denied,
        200 => ReviewResult::Allowed,
        _ => ReviewResult::Failed,
    }
}

/// Memory that a request takes until it is answered: copies of its text, what the host parses of it, and the guest's
/// memory. Objects of a conversion are handled one by one.
async fn needs(asked: Option<AdmissionInterface>, lane: &Lane, body: &Bytes) -> Result<usize, WebhookResponse> {
    let guest = usize::try_from(lane.limits.memory_bytes).unwrap_or(usize::MAX);
    let parsed = |object: &str| parsed_size(object.as_bytes());
    let read = move |body: &[u8]| {
        let (host, guest) = if let Some(asked) = asked {
            let request = review::parse(body).map_err(bad)?;
            let of = |object: Option<&RawValue>| object.map_or(0, |object| parsed(object.get()));
            let (object, old) = (of(request.object), of(request.old));
            // The whole object, the part shown to the plugin, its answer, and the whole with that.
            let parsed = match asked {
                AdmissionInterface::Defaulter => 4 * object,
                AdmissionInterface::Validator => object,
            };
            (parsed.max(object + old), guest.min(object + old))
        } else {
            let mut largest = 0;
            let request = conversion::parse(body).map_err(bad)?;
            let each = request.each_size(|object| largest = parsed(object).max(largest));
            each.map_err(bad)?;
            (2 * largest, guest.min(largest))
        };
        Ok(COPIES * body.len() + host + guest)
    };
    if body.len() <= SMALL_BODY_BYTES {
        return read(body);
    }
    let body = body.clone();
    let read = tokio::task::spawn_blocking(move || read(&body)).await;
    read.unwrap_or_else(|error| Err(WebhookResponse::error(500, format!("the question was lost: {error}"))))
}

/// Turns a plugin's failure into an HTTP error, so that the failure policy decides.
fn failed(failure: Failure) -> WebhookResponse {
    WebhookResponse::error(500, failure.message)
}

fn bad(error: impl std::fmt::Display) -> WebhookResponse {
    WebhookResponse::error(400, error.to_string())
}

fn judge(
    host: &Arc<HostContext>,
    asked: AdmissionInterface,
    lane: &Arc<Lane>,
    body: &[u8],
    live: Option<Store>,
) -> Result<WebhookResponse, WebhookResponse> {
    let request = review::parse(body).map_err(bad)?;
    let primary = lane.grants.primary();
    if request.kind != *primary {
        let problem = format!(
            "{} is asked about {}, and judges {primary} alone",
            lane.title(),
            request.kind
        );
        return Err(WebhookResponse::error(400, problem));
    }
    let has_it = match asked {
        AdmissionInterface::Defaulter => lane.asked.defaulter && lane.access.defaults(),
        AdmissionInterface::Validator => lane.asked.validator && lane.access.validates(),
    };
    // The webhook configuration may belong to another version of the plugin, or to a time when its account had the
    // right to be called.
    if !has_it || !match_condition::is_asked(&request).map_err(bad)? {
        return Ok(WebhookResponse::json(
            review::allowed(&request.uid, &[], &[]).to_string(),
        ));
    }
    let shown = |object: Option<&RawValue>| {
        object
            .map(|object| lane.grants.primary_projection().project(object, primary))
            .transpose()
            .map_err(|error| WebhookResponse::error(400, format!("the object cannot be read: {error}")))
    };
    let (object, old) = (shown(request.object)?, shown(request.old)?);
    let subject = ReviewedObject {
        lane,
        uid: &request.uid,
        name: &request.name,
        whole: request.object.map_or("null", RawValue::get),
    };
    let asking = Review {
        phase: request.operation.into(),
        kind: request.kind,
        object,
        old_object: old,
        configuration: lane.config.clone(),
        user_info: Some(request.user_info),
        dry_run: request.dry_run,
    };
    let name = Name::new(request.namespace.as_deref(), &request.name);
    let view = View::new(host.clone(), lane.clone(), name);
    let view = match live {
        Some(live) => view.with_live(live),
        None => view,
    };
    match asked {
        AdmissionInterface::Defaulter => subject.default(asking, view),
        AdmissionInterface::Validator => subject.validate(&asking, view),
    }
    .map_err(failed)
}

fn convert(lane: &Lane, body: &[u8], until: std::time::Instant) -> Result<WebhookResponse, WebhookResponse> {
    let request = conversion::parse(body).map_err(bad)?;
    let answer = request.answer(|object| {
        if std::time::Instant::now() > until {
            return Err("the objects were not converted in time".to_owned());
        }
        let limits: &Limits = &lane.limits;
        let log = without_object(lane.plugin.clone(), lane.health.clone());
        let call = lane
            .component
            .convert_with_log(&object.shown(), &request.desired, limits, log);
        let converted = call.result.map_err(|failure| failure.message)??;
        object.converted(&converted, &request.desired)
    });
    Ok(WebhookResponse::json(answer.map_err(bad)?))
}

/// The reviewed object and its lane.
struct ReviewedObject<'a> {
    lane: &'a Lane,
    uid: &'a str,
    name: &'a str,
    /// The whole object as JSON.
    whole: &'a str,
}

impl ReviewedObject<'_> {
    fn default(&self, mut review: Review, view: View) -> Result<WebhookResponse, Failure> {
        let Self { lane, uid, .. } = *self;
        let mut call = lane.component.apply_defaults(&review, &lane.limits, view);
        call.imports.record(
            || RecordedInput::ApplyDefaults((&review).into()),
            || RecordedAnswer::defaulted(&call.result),
            &call.usage,
        );
        let answer = match call.result? {
            Ok(answer) => answer,
            Err(errors) => return self.refused(&errors),
        };
        let shown = review.object.take().unwrap_or_else(|| "null".to_owned());
        if shown == answer {
            return Ok(WebhookResponse::json(review::allowed(uid, &[], &[]).to_string()));
        }
        let (takes, most) = (
            parsed_size(answer.as_bytes()),
            2 * parsed_size(shown.as_bytes()) + ANSWER_BYTES,
        );
        if takes > most {
            let problem = format!(
                "the object with defaults takes {takes} bytes when it is parsed, and may take {most}: twice the object, and \
                 {ANSWER_BYTES} bytes; fix the plugin"
            );
            return Err(Failure::guest(Reason::GuestLimit, problem));
        }
        let (whole, shown) = (parsed(self.whole)?, parsed(&shown)?);
        let defaulted = patch::with_defaults(&whole, &shown, &answer)?;
        let patch = patch::difference(&whole, &defaulted);
        Ok(WebhookResponse::json(review::allowed(uid, &[], &patch).to_string()))
    }

    fn validate(&self, review: &Review, view: View) -> Result<WebhookResponse, Failure> {
        let Self { lane, uid, .. } = *self;
        let mut call = lane.component.validate(review, &lane.limits, view);
        call.imports.record(
            || RecordedInput::Validate(review.into()),
            || RecordedAnswer::validated(&call.result),
            &call.usage,
        );
        match call.result? {
            Ok(warnings) => Ok(WebhookResponse::json(review::allowed(uid, &warnings, &[]).to_string())),
            Err(errors) => self.refused(&errors),
        }
    }

    fn refused(&self, errors: &[FieldError]) -> Result<WebhookResponse, Failure> {
        let refusal = InvalidObject::new(self.lane.grants.primary(), self.name, errors, &parsed(self.whole)?);
        Ok(WebhookResponse::json(review::refused(self.uid, &refusal).to_string()))
    }
}

/// Parses an object. It is passed on as stored, so it may nest too deep or have a number that is too large.
fn parsed(object: &str) -> Result<Value, Failure> {
    serde_json::from_str(object).map_err(|error| {
        let problem = format!("the object cannot be read: {error}; reduce its nesting or the size of its numbers");
        Failure::user(Reason::Invalid, problem)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_a_plugin_whatever_stands_before_it() {
        let judge = WebhookRoute::Judge {
            asked: AdmissionInterface::Validator,
            plugin: "gate",
            controller: "gates",
        };
        assert_eq!(WebhookRoute::of("/validate/gate/gates"), Ok(judge));
        assert_eq!(WebhookRoute::of("/base/validate/gate/gates"), Ok(judge));
        assert_eq!(
            WebhookRoute::of("/convert/gate"),
            Ok(WebhookRoute::Convert { plugin: "gate" })
        );
        for path in ["/", "", "/validate/gate", "/healthz"] {
            assert_eq!(WebhookRoute::of(path).map_err(|answer| answer.code), Err(404), "{path}");
        }
    }
}
