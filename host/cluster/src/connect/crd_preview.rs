//! A client that shows a cluster as it will be when CustomResourceDefinitions take the place of those in it: discovery
//! lists their versions, and objects are read in a version that is served now, and are shown as the new definition will
//! show them. [`CrdView`] decides how. Other requests pass unchanged; a fence stops those that change anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::stream;
use http::{Method, Request, Response, StatusCode, Uri, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use pilothouse_core::kubernetes::crd_view::{self, CrdView};
use pilothouse_core::plugin::manifest::BroughtCrd;
use pilothouse_core::{Kind, Name};
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

use crate::error::RequestError;
use crate::resources::install::read_crd;

/// Converts an object to an API version, as the plugin's converter does.
pub type Convert = Arc<dyn Fn(&Value, &str) -> Result<Value, String> + Send + Sync>;

/// The body of an answer.
type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

/// Definitions that take the place of those in a cluster.
#[derive(Clone)]
pub struct CrdPreview(Arc<Shared>);

struct Shared {
    views: Vec<CrdView>,
    convert: Option<Convert>,
    /// The objects that cannot be shown, with the reason.
    failures: Mutex<BTreeMap<(Kind, Name), String>>,
}

/// The requested part of a resource that is shown in another form.
struct ViewedRequest<'a> {
    view: &'a CrdView,
    version: &'a str,
    namespace: Option<&'a str>,
    name: Option<&'a str>,
}

impl CrdPreview {
    /// Reads the present definitions of these names.
    pub async fn new(client: &Client, crds: &[BroughtCrd], convert: Option<Convert>) -> Result<Self, RequestError> {
        let mut views = Vec::with_capacity(crds.len());
        for crd in crds {
            views.push(CrdView::new(crd.clone(), read_crd(client, &crd.name).await?));
        }
        Ok(Self(Arc::new(Shared {
            views,
            convert,
            failures: Mutex::default(),
        })))
    }

    /// The names of the definitions that the cluster does not have, so that they have no objects.
    pub fn new_definitions(&self) -> Vec<String> {
        let new = self.0.views.iter().filter(|view| view.is_new());
        new.map(|view| view.name().to_owned()).collect()
    }

    /// The objects that cannot be shown as the new definition will show them, and why.
    pub fn failures(&self) -> BTreeMap<(Kind, Name), String> {
        self.0.failures.lock().clone()
    }

    /// A client that shows the cluster of another client with these definitions.
    pub fn client(&self, inner: Client) -> Client {
        let namespace = inner.default_namespace().to_owned();
        let preview = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (preview, inner) = (preview.clone(), inner.clone());
            async move { preview.answer(&inner, request).await }
        });
        Client::new(service, namespace)
    }

    async fn answer(&self, inner: &Client, mut request: Request<Body>) -> Result<Response<AnswerBody>, BoxError> {
        if request.method() != Method::GET {
            return Ok(inner.send(request).await?.map(boxed));
        }
        let uri = request.uri().clone();
        let parts: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
        match parts[..] {
            ["apis", "apiextensions.k8s.io", "v1", "customresourcedefinitions", name] => {
                if let Some(view) = self.0.views.iter().find(|view| view.name() == name) {
                    return Ok(answered(StatusCode::OK, &view.definition()));
                }
            }
            ["apis", group, version] if self.0.views.iter().any(|view| view.group() == group) => {
                return self.discovery(inner, request, group, version).await;
            }
            _ => {}
        }
        let Some(viewed) = self.viewed(&parts) else {
            return Ok(inner.send(request).await?.map(boxed));
        };
        let query = uri.query().unwrap_or_default();
        let is_watch = query.split('&').any(|it| it == "watch=true" || it == "watch=1");
        let Some(read) = viewed.view.read_version(viewed.version) else {
            return Ok(viewed.without_objects(is_watch));
        };
        *request.uri_mut() = in_version(&uri, viewed.version, read)?;
        // Compressed pages could not be read here.
        request
            .headers_mut()
            .insert(header::ACCEPT_ENCODING, header::HeaderValue::from_static("identity"));
        let (mut head, body) = inner.send(request).await?.into_parts();
        if !head.status.is_success() {
            return Ok(Response::from_parts(head, boxed(body)));
        }
        head.headers.remove(header::CONTENT_LENGTH);
        if is_watch {
            let view = viewed.view.clone();
            return Ok(Response::from_parts(
                head,
                self.watched(body, view, viewed.version.to_owned()),
            ));
        }
        let mut value: Value = serde_json::from_slice(&body.collect().await?.to_bytes())?;
        if let Some(items) = value.get_mut("items").and_then(Value::as_array_mut) {
            items.retain_mut(|item| {
                // The items of a list need not repeat their kind.
                if item["kind"].is_null() {
                    item["kind"] = json!(viewed.view.kind());
                    item["apiVersion"] = json!(format!("{}/{read}", viewed.view.group()));
                }
                self.show(viewed.view, item, viewed.version)
            });
        } else if !self.show(viewed.view, &mut value, viewed.version) {
            return Ok(answered(StatusCode::NOT_FOUND, &viewed.not_found()));
        }
        Ok(Response::from_parts(head, full(value.to_string())))
    }

    /// The view of the requested resource, if it is one of these.
    fn viewed<'a>(&'a self, parts: &[&'a str]) -> Option<ViewedRequest<'a>> {
        let ["apis", group, version, rest @ ..] = parts else {
            return None;
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let (plural, name) = match rest {
            [plural] => (plural, None),
            [plural, name] => (plural, Some(*name)),
            _ => return None,
        };
        let mut views = self.0.views.iter();
        let view = views.find(|view| view.group() == *group && view.plural() == *plural)?;
        Some(ViewedRequest {
            view,
            version,
            namespace,
            name,
        })
    }

    /// Discovery of a group and version: the resources of these definitions are listed as they will be served.
    async fn discovery(
        &self,
        inner: &Client,
        request: Request<Body>,
        group: &str,
        version: &str,
    ) -> Result<Response<AnswerBody>, BoxError> {
        let (head, body) = inner.send(request).await?.into_parts();
        if !head.status.is_success() && head.status != StatusCode::NOT_FOUND {
            return Ok(Response::from_parts(head, boxed(body)));
        }
        let body = body.collect().await?.to_bytes();
        let mut resources = Vec::new();
        if head.status.is_success() {
            let mut list: Value = serde_json::from_slice(&body)?;
            if let Value::Array(served) = list["resources"].take() {
                resources = served;
            }
        }
        for view in self.0.views.iter().filter(|view| view.group() == group) {
            let is_of_view = |resource: &Value| {
                let name = resource["name"].as_str().unwrap_or_default();
                name.split('/').next() == Some(view.plural())
            };
            resources.retain(|resource| !is_of_view(resource));
            resources.extend(view.resources(version));
        }
        if resources.is_empty() {
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound",
                "message": "the server could not find the requested resource", "code": 404});
            return Ok(answered(StatusCode::NOT_FOUND, &status));
        }
        let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/{version}"),
            "resources": resources});
        Ok(answered(StatusCode::OK, &list))
    }

    /// Changes an object into what will be shown of it. Returns `false` if that is not possible.
    fn show(&self, view: &CrdView, object: &mut Value, version: &str) -> bool {
        let text = |member: &str| object["metadata"][member].as_str().map(str::to_owned);
        let name = Name::new(text("namespace").as_deref(), &text("name").unwrap_or_default());
        let key = (Kind::new(view.group(), version, view.kind()), name);
        let convert = self
            .0
            .convert
            .as_deref()
            .map(|convert| convert as crd_view::Convert<'_>);
        let shown = view.show(object, version, convert);
        let mut failures = self.0.failures.lock();
        match shown {
            Ok(()) => {
                failures.remove(&key);
                true
            }
            Err(problem) => {
                failures.insert(key, problem);
                false
            }
        }
    }

    /// The events of a watch, with their objects as they will be shown.
    fn watched(&self, body: Body, view: CrdView, version: String) -> AnswerBody {
        let preview = self.clone();
        let start = (body, BytesMut::new(), preview, view, version);
        let events = stream::try_unfold(start, |(mut body, mut rest, preview, view, version)| async move {
            loop {
                if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    let line = rest.split_to(end + 1);
                    let Some(line) = preview.event(&line, &view, &version) else {
                        continue;
                    };
                    return Ok(Some((Frame::data(line), (body, rest, preview, view, version))));
                }
                match body.frame().await {
                    None => return Ok::<_, BoxError>(None),
                    Some(frame) => {
                        if let Ok(data) = frame?.into_data() {
                            rest.extend_from_slice(&data);
                        }
                    }
                }
            }
        });
        StreamBody::new(events).boxed_unsync()
    }

    /// One event; none if its object cannot be shown. What is no event passes as it is.
    fn event(&self, line: &[u8], view: &CrdView, version: &str) -> Option<Bytes> {
        let unchanged = || Some(Bytes::copy_from_slice(line));
        let Ok(mut event) = serde_json::from_slice::<Value>(line) else {
            return unchanged();
        };
        if !matches!(event["type"].as_str(), Some("ADDED" | "MODIFIED")) {
            return unchanged();
        }
        let is_shown = self.show(view, &mut event["object"], version);
        is_shown.then(|| Bytes::from(format!("{event}\n")))
    }
}

impl ViewedRequest<'_> {
    /// The answer for a resource whose definition the cluster does not have, or does not serve.
    fn without_objects(&self, is_watch: bool) -> Response<AnswerBody> {
        if is_watch {
            return Response::new(StreamBody::new(stream::pending::<Result<Frame<Bytes>, BoxError>>()).boxed_unsync());
        }
        if self.name.is_some() {
            return answered(StatusCode::NOT_FOUND, &self.not_found());
        }
        let list = json!({"apiVersion": format!("{}/{}", self.view.group(), self.version),
            "kind": format!("{}List", self.view.kind()), "metadata": {"resourceVersion": "0"}, "items": []});
        answered(StatusCode::OK, &list)
    }

    fn not_found(&self) -> Value {
        let Self {
            view, namespace, name, ..
        } = self;
        let name = name.unwrap_or_default();
        let place = namespace
            .map(|namespace| format!(" in namespace {namespace}"))
            .unwrap_or_default();
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "NotFound", "code": 404,
            "message": format!("{} {name:?} not found{place}", view.name()),
            "details": {"name": name, "group": view.group(), "kind": view.plural()}})
    }
}

/// The same address in another version of the group.
fn in_version(uri: &Uri, from: &str, to: &str) -> Result<Uri, BoxError> {
    let text = uri.to_string().replacen(&format!("/{from}/"), &format!("/{to}/"), 1);
    Ok(text.parse()?)
}

fn answered(status: StatusCode, value: &Value) -> Response<AnswerBody> {
    let mut response = Response::new(full(value.to_string()));
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn full(text: String) -> AnswerBody {
    Full::new(Bytes::from(text))
        .map_err(|never| match never {})
        .boxed_unsync()
}

fn boxed(body: Body) -> AnswerBody {
    body.map_err(Into::into).boxed_unsync()
}
