//! Carries one request through the simulated API server: route, faults, verb, controllers, log, response.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WARNING};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use serde_json::{Value, json};

use crate::controllers;
use crate::discovery;
use crate::failure::Failure;
use crate::faults::{Asked, Fault};
use crate::inner::{Inner, TransportError};
use crate::journal::Author;
use crate::log::Record;
use crate::objects::{Answer, Call, bind, create, delete, patch, read, scale, update};
use crate::openapi;
use crate::request::{Form, Options as RequestOptions, Query};
use crate::rights::ReviewKind;
use crate::routing::{self, Route, Target};
use crate::state::State;
use crate::stream::{ResponseBody, Trouble, WatchStream, Wish};
use crate::table;
use crate::tokens::{self, TokenRequest};
use crate::watching;
use crate::webhooks;
use crate::webhooks::consultation::{Consultation, Question};

const VERSION: &str = include_str!("../schemas/version.json");
/// Duration of a watch that does not set one.
const DEFAULT_WATCH: Duration = Duration::from_mins(30);

/// Maximum count of webhook calls of one request. Each is made once, unless another client changes the object
/// meanwhile.
const MAX_QUESTIONS: usize = 100;

/// Outcome of a request with the webhook answers so far.
enum Attempt {
    /// A webhook has to be called first; nothing was changed.
    Asks(Question),
    Done {
        response: Response<ResponseBody>,
        changed: bool,
    },
}

/// One request, parsed.
pub(crate) struct Exchange {
    inner: Arc<Inner>,
    parts: Parts,
    body: Bytes,
    query: Query,
}

impl Exchange {
    pub(crate) fn new(inner: Arc<Inner>, parts: Parts, body: Bytes) -> Self {
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        Self {
            inner,
            parts,
            body,
            query,
        }
    }

    fn header(&self, name: &http::header::HeaderName) -> &str {
        self.parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    /// Returns the user that the client acts as, if not as itself: it impersonates one, or has a service account's
    /// token.
    fn impersonated(&self) -> Option<String> {
        let user = self.parts.headers.get("impersonate-user");
        let user = user.and_then(|user| user.to_str().ok()).map(str::to_owned);
        user.or_else(|| self.of_token().ok().flatten())
    }

    fn of_token(&self) -> Result<Option<String>, Failure> {
        match self.header(&http::header::AUTHORIZATION) {
            "" => Ok(None),
            authorization => tokens::user(&self.inner.state.lock(), authorization),
        }
    }

    pub(crate) async fn run(self) -> Result<Response<ResponseBody>, TransportError> {
        if let Err(failure) = self.of_token() {
            self.record(self.blank(), failure.code.as_u16(), false, None);
            return Ok(refused(&failure));
        }
        if self.parts.method == Method::POST {
            if let Some(kind) = ReviewKind::of(self.parts.uri.path()) {
                return self.review(kind).await;
            }
            if let Some(request) = TokenRequest::of(self.parts.uri.path()) {
                return Ok(self.grant_token(&request));
            }
        }
        let route = {
            let state = self.inner.state.lock();
            routing::route(&state.kinds, self.parts.uri.path())
        };
        let target = match route {
            Ok(Route::Resource(target)) => target,
            Ok(other) => {
                if let Route::OpenApi(_) = other
                    && let Some(refusal) = self.disturbed_document()
                {
                    return refusal;
                }
                let response = self.fixed(&other);
                self.record(self.blank(), response.status().as_u16(), false, None);
                return Ok(response);
            }
            Err(failure) => {
                self.record(self.blank(), failure.code.as_u16(), false, None);
                return Ok(refused(&failure));
            }
        };
        let watch = self.query.flag("watch") && self.parts.method == Method::GET;
        let verb = routing::verb(&self.parts.method, &target, watch);
        let asked = Asked {
            verb: verb.to_owned(),
            group: target.resource.group.clone(),
            resource: target.resource.plural.clone(),
            subresource: target.subresource.clone(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            continued: self.query.has("continue"),
            user_agent: self.header(&http::header::USER_AGENT).to_owned(),
            impersonated: self.impersonated(),
        };
        let decision = self.inner.faults.decide(&asked);
        if !decision.delay.is_zero() {
            tokio::time::sleep(decision.delay).await;
        }
        let record = self.describe(&asked, &target);
        if let Err(failure) = self.inner.rights.check(&asked) {
            self.record(record, failure.code.as_u16(), false, None);
            return Ok(refused(&failure));
        }
        self.perform(verb, target, record, decision.fault.as_ref()).await
    }

    /// Issues a token for a service account.
    fn grant_token(self, request: &TokenRequest) -> Response<ResponseBody> {
        let asked = Asked {
            verb: "create".to_owned(),
            group: String::new(),
            resource: "serviceaccounts".to_owned(),
            subresource: "token".to_owned(),
            namespace: Some(request.namespace.clone()),
            name: Some(request.name.clone()),
            continued: false,
            user_agent: self.header(&http::header::USER_AGENT).to_owned(),
            impersonated: self.impersonated(),
        };
        let record = Record {
            verb: asked.verb.clone(),
            version: "v1".to_owned(),
            resource: asked.resource.clone(),
            subresource: asked.subresource.clone(),
            namespace: asked.namespace.clone(),
            name: asked.name.clone(),
            ..self.blank()
        };
        let granted = self.inner.rights.check(&asked);
        let granted = granted.and_then(|()| request.grant(&self.inner.state.lock(), &self.body));
        match granted {
            Ok(answer) => {
                self.record(record, StatusCode::CREATED.as_u16(), false, None);
                whole(StatusCode::CREATED, &answer)
            }
            Err(failure) => {
                self.record(record, failure.code.as_u16(), false, None);
                refused(&failure)
            }
        }
    }

    /// Answers an access review.
    async fn review(self, kind: ReviewKind) -> Result<Response<ResponseBody>, TransportError> {
        let asked = Asked {
            verb: "create".to_owned(),
            group: kind.group().to_owned(),
            resource: kind.resource().to_owned(),
            subresource: String::new(),
            namespace: None,
            name: None,
            continued: false,
            user_agent: self.header(&http::header::USER_AGENT).to_owned(),
            impersonated: self.impersonated(),
        };
        let decision = self.inner.faults.decide(&asked);
        if !decision.delay.is_zero() {
            tokio::time::sleep(decision.delay).await;
        }
        let record = Record {
            verb: asked.verb.clone(),
            group: asked.group.clone(),
            version: "v1".to_owned(),
            resource: asked.resource.clone(),
            ..self.blank()
        };
        if let Some(fault) = decision.fault {
            let (code, answer) = match &fault {
                Fault::Status { code, retry_after } => (*code, Ok(refused(&Failure::injected(*code, *retry_after)))),
                _ => (0, Err(TransportError::Closed)),
            };
            self.record(record, code, false, Some(format!("{fault:?}")));
            return answer;
        }
        match self.inner.rights.review(kind, &asked, &self.body) {
            Ok(review) => {
                self.record(record, StatusCode::CREATED.as_u16(), false, None);
                Ok(whole(StatusCode::CREATED, &review))
            }
            Err(failure) => {
                self.record(record, failure.code.as_u16(), false, None);
                Ok(refused(&failure))
            }
        }
    }

    /// Applies the faults to a request for a document of OpenAPI: such requests are of the resource `openapi`.
    fn disturbed_document(&self) -> Option<Result<Response<ResponseBody>, TransportError>> {
        let asked = Asked {
            verb: "get".to_owned(),
            group: String::new(),
            resource: "openapi".to_owned(),
            subresource: String::new(),
            namespace: None,
            name: None,
            continued: false,
            user_agent: self.header(&http::header::USER_AGENT).to_owned(),
            impersonated: None,
        };
        let fault = self.inner.faults.decide(&asked).fault?;
        let (code, answer) = match &fault {
            Fault::Status { code, retry_after } => (*code, Ok(refused(&Failure::injected(*code, *retry_after)))),
            _ => (0, Err(TransportError::Closed)),
        };
        self.record(self.blank(), code, false, Some(format!("{fault:?}")));
        Some(answer)
    }

    /// Everything after the faults have had their say about when.
    async fn perform(
        &self,
        verb: &'static str,
        target: Target,
        record: Record,
        fault: Option<&Fault>,
    ) -> Result<Response<ResponseBody>, TransportError> {
        let shown_fault = fault.map(|fault| format!("{fault:?}"));
        match fault {
            Some(Fault::Refuse) => {
                self.record(record, 0, false, shown_fault);
                return Err(TransportError::Closed);
            }
            Some(Fault::Denied { code, retry_after }) => {
                self.record(record, *code, false, shown_fault);
                let said = json!({
                    "code": code, "message": "not today", "details": {"retryAfterSeconds": retry_after},
                });
                return Ok(refused(&Failure::denied("denier.test.dev", &said)));
            }
            Some(Fault::Status { code, retry_after }) => {
                self.record(record, *code, false, shown_fault);
                return Ok(refused(&Failure::injected(*code, *retry_after)));
            }
            _ => {}
        }
        let (response, changed) = match self.call(target) {
            Ok(mut call) => {
                if let Some(Fault::Rewritten(rewrite)) = fault {
                    call.rewrite = Some(rewrite.clone());
                }
                self.carry_out(verb, &call, fault).await
            }
            Err(failure) => (refused(&failure), false),
        };
        if fault == Some(&Fault::LoseResponse) {
            self.record(record, 0, changed, shown_fault);
            return Err(TransportError::Closed);
        }
        self.record(record, response.status().as_u16(), changed, shown_fault);
        if let Some(Fault::LateAnswer(duration)) = fault {
            tokio::time::sleep(*duration).await;
        }
        Ok(response)
    }

    fn call(&self, target: Target) -> Result<Call, Failure> {
        let resource = &target.resource;
        // Webhooks that convert are not called, and without them the answer would not be a real server's.
        let custom = resource.custom.as_ref().filter(|custom| custom.converted);
        if custom.is_some_and(|custom| custom.storage_version != resource.version) {
            return Err(Failure::not_simulated(&resource.plural, "conversion"));
        }
        Ok(Call {
            resource: target.resource,
            namespace: target.namespace,
            name: target.name,
            subresource: target.subresource,
            options: RequestOptions::read(self.query.clone(), &self.parts.headers)?,
            rewrite: None,
        })
    }

    /// Returns the response, and `true` if anything was changed. Starts again after each webhook call that is needed.
    async fn carry_out(&self, verb: &str, call: &Call, fault: Option<&Fault>) -> (Response<ResponseBody>, bool) {
        let mut consultation = Consultation::default();
        for _ in 0..MAX_QUESTIONS {
            let question = match self.attempt(verb, call, fault, &mut consultation) {
                Attempt::Done { mut response, changed } => {
                    warn(&mut response, &consultation.warnings());
                    return (response, changed);
                }
                Attempt::Asks(question) => question,
            };
            // On a thread that may block; a runtime whose time is paused holds it for as long.
            let asked = tokio::task::spawn_blocking(move || {
                let reply = webhooks::call::ask(&question);
                (question, reply)
            });
            match asked.await {
                Ok((question, reply)) => consultation.learn(&question, reply),
                Err(error) => return (refused(&Failure::internal(error.to_string())), false),
            }
        }
        (refused(&Failure::internal("webhooks do not come to an end")), false)
    }

    fn attempt(&self, verb: &str, call: &Call, fault: Option<&Fault>, consultation: &mut Consultation) -> Attempt {
        let mut state = self.inner.state.lock();
        controllers::wake(&mut state);
        let (before, random) = (state.store.revision(), state.random.clone());
        state.consultation = Some(std::mem::take(consultation));
        state.store.journal.author = Author {
            user_agent: self.header(&http::header::USER_AGENT).to_owned(),
            field_manager: self.query.text("fieldManager").to_owned(),
        };
        let result = self.execute(&mut state, verb, call, fault);
        *consultation = state.consultation.take().unwrap_or_default();
        if let Some(question) = consultation.open() {
            // The next attempt draws the same.
            state.random = random;
            return Attempt::Asks(question);
        }
        let changed = state.store.revision() != before;
        state.store.journal.author = Author::default();
        if changed {
            controllers::settle(&mut state);
        }
        drop(state);
        let response = result.unwrap_or_else(|failure| refused(&failure));
        Attempt::Done { response, changed }
    }

    fn execute(
        &self,
        state: &mut State,
        verb: &str,
        call: &Call,
        fault: Option<&Fault>,
    ) -> Result<Response<ResponseBody>, Failure> {
        let form = call.options.form;
        if verb == "watch" {
            return self.watch(state, call, fault);
        }
        let content_type = self.header(&CONTENT_TYPE).to_owned();
        let answer = match fault {
            Some(Fault::Stale { changes }) => read::stale_list(state, call, *changes)?,
            Some(Fault::ShortPages { objects }) => read::list_in_pages(state, call, *objects)?,
            Some(Fault::GoneInList) => return Err(read::expired_page()),
            _ => dispatch(state, verb, call, &content_type, &self.body)?,
        };
        Ok(self.show(state, call, form, answer))
    }

    fn watch(&self, state: &mut State, call: &Call, fault: Option<&Fault>) -> Result<Response<ResponseBody>, Failure> {
        if !call.resource.allows("watch") {
            return Err(Failure::method_not_allowed());
        }
        let trouble = match fault {
            Some(Fault::CutWatch { after }) => Trouble {
                cut_after: Some(*after),
                ..Trouble::default()
            },
            Some(Fault::SilentWatch) => Trouble {
                silent: true,
                ..Trouble::default()
            },
            Some(Fault::LoseEvents { events }) => Trouble {
                lose: *events,
                ..Trouble::default()
            },
            _ => Trouble::default(),
        };
        let gone = fault == Some(&Fault::GoneOnWatch);
        let stale = match fault {
            Some(Fault::Stale { changes }) => *changes,
            _ => 0,
        };
        let channel = watching::open(state, call, gone, stale)?;
        let timeout = self.query.number("timeoutSeconds").filter(|seconds| *seconds > 0);
        let wish = Wish {
            form: call.options.form,
            include: self.query.text("includeObject").to_owned(),
            timeout: timeout.map_or(DEFAULT_WATCH, Duration::from_secs),
            bookmarks: self.query.flag("allowWatchBookmarks"),
        };
        let stream = WatchStream::new(self.inner.clone(), channel, call.resource.clone(), wish, trouble);
        let mut response = Response::new(ResponseBody::watch(stream));
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(response)
    }

    fn show(&self, state: &State, call: &Call, form: Form, answer: Answer) -> Response<ResponseBody> {
        let value = match form {
            Form::Table if answer.of_resource => table::table(
                &call.resource,
                &answer.value,
                self.query.text("includeObject"),
                state.clock.now(),
                true,
            ),
            Form::Metadata if answer.of_resource => table::partial(&call.resource, &answer.value),
            _ => answer.value,
        };
        let mut response = whole(answer.code, &value);
        warn(&mut response, &answer.warnings);
        response
    }

    /// Answers requests that are not about objects.
    fn fixed(&self, route: &Route) -> Response<ResponseBody> {
        let state = self.inner.state.lock();
        let aggregated = discovery::wants_aggregated(self.header(&ACCEPT));
        match route {
            Route::Groups { core } if aggregated => {
                let mut response = whole(StatusCode::OK, &discovery::aggregated(&state.kinds, *core));
                response
                    .headers_mut()
                    .insert(CONTENT_TYPE, HeaderValue::from_static(discovery::AGGREGATED));
                response
            }
            Route::Groups { core } => whole(StatusCode::OK, &discovery::groups(&state.kinds, *core)),
            Route::Group(group) => {
                discovery::group(&state.kinds, group).map_or_else(page_not_found, |value| whole(StatusCode::OK, &value))
            }
            Route::GroupVersion { group, version } => match discovery::resources(&state.kinds, group, version) {
                Ok(value) => whole(StatusCode::OK, &value),
                Err(failure) => refused(&failure),
            },
            Route::Version => text(StatusCode::OK, "application/json", VERSION),
            Route::Health => text(StatusCode::OK, "text/plain; charset=utf-8", "ok"),
            Route::Root => whole(
                StatusCode::OK,
                &serde_json::json!({"paths": ["/api", "/apis", "/healthz", "/openapi/v3", "/version"]}),
            ),
            Route::OpenApi(path) if path.is_empty() => {
                whole(StatusCode::OK, &openapi::index(&state.kinds, state.kinds_generation))
            }
            Route::OpenApi(path) => {
                openapi::document(&state.kinds, path).map_or_else(page_not_found, |value| whole(StatusCode::OK, &value))
            }
            // kubectl asks for it where the third version has no such kind, in Protobuf, of which this is an empty document.
            Route::OpenApiV2 => text(StatusCode::OK, openapi::V2_MEDIA, Bytes::new()),
            Route::Unknown | Route::Resource(_) => page_not_found(),
        }
    }

    fn blank(&self) -> Record {
        Record {
            index: 0,
            verb: String::new(),
            group: String::new(),
            version: String::new(),
            resource: String::new(),
            subresource: String::new(),
            namespace: None,
            name: None,
            uri: self
                .parts
                .uri
                .path_and_query()
                .map_or_else(String::new, ToString::to_string),
            status: 0,
            field_manager: Some(self.query.text("fieldManager").to_owned()).filter(|manager| !manager.is_empty()),
            content_type: Some(self.header(&CONTENT_TYPE).to_owned()).filter(|media| !media.is_empty()),
            user_agent: self.header(&http::header::USER_AGENT).to_owned(),
            user: self.impersonated(),
            write: false,
            changed: false,
            fault: None,
        }
    }

    fn describe(&self, asked: &Asked, target: &Target) -> Record {
        Record {
            verb: asked.verb.clone(),
            group: asked.group.clone(),
            version: target.resource.version.clone(),
            resource: asked.resource.clone(),
            subresource: asked.subresource.clone(),
            namespace: asked.namespace.clone(),
            name: asked.name.clone(),
            write: asked.is_write() && !self.query.has("dryRun"),
            ..self.blank()
        }
    }

    fn record(&self, record: Record, status: u16, changed: bool, fault: Option<String>) {
        self.inner.log.push(Record {
            status,
            changed,
            fault,
            ..record
        });
    }
}

/// The most bytes of a body that the server reads.
const MOST_BODY_BYTES: usize = 3 * 1024 * 1024;

fn dispatch(state: &mut State, verb: &str, call: &Call, content_type: &str, body: &Bytes) -> Result<Answer, Failure> {
    let resource = &call.resource;
    // Nothing is created below an object, and the whole collection is not replaced.
    let misplaced = match verb {
        "create" => call.name.is_some() && call.subresource.is_empty(),
        "update" | "patch" => call.name.is_none(),
        _ => verb.is_empty(),
    };
    if misplaced {
        return Err(Failure::method_not_allowed());
    }
    if body.len() > MOST_BODY_BYTES {
        return Err(Failure::body_too_large(MOST_BODY_BYTES));
    }
    let allowed = match resource.subresource(&call.subresource) {
        Some(part) => part.verbs.iter().any(|allowed| allowed == verb),
        None => resource.allows(verb),
    };
    if !allowed {
        return Err(Failure::method_not_allowed());
    }
    match (verb, call.subresource.as_str()) {
        ("get", "scale") => scale::get(state, call),
        ("update", "scale") => scale::replace(state, call, body),
        ("patch", "scale") => scale::patch(state, call, content_type, body),
        ("get", "" | "status") => read::get(state, call),
        ("list", "") => read::list(state, call),
        ("create", "") => create::create(state, call, body),
        ("create", "binding") => bind::bind(state, call, body),
        ("update", "" | "status" | "finalize") => update::replace(state, call, body),
        ("patch", "" | "status") => patch::patch(state, call, content_type, body),
        ("delete", "") => delete::delete(state, call, body),
        ("deletecollection", "") => delete::delete_collection(state, call, body),
        _ => Err(Failure::not_simulated(&resource.plural, &call.subresource)),
    }
}

fn warn(response: &mut Response<ResponseBody>, warnings: &[String]) {
    for warning in warnings {
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {warning:?}")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}

fn whole(code: StatusCode, value: &Value) -> Response<ResponseBody> {
    text(code, "application/json", value.to_string())
}

fn text(code: StatusCode, media: &'static str, body: impl Into<Bytes>) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::whole(body));
    *response.status_mut() = code;
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(
        http::header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, private"),
    );
    response
}

fn page_not_found() -> Response<ResponseBody> {
    text(
        StatusCode::NOT_FOUND,
        "text/plain; charset=utf-8",
        "404 page not found\n",
    )
}

fn refused(failure: &Failure) -> Response<ResponseBody> {
    let mut response = whole(failure.code, &failure.status());
    if let Some(seconds) = failure.retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
