//! Metrics of requests to the API server: verb and resource, from method and path, and the outcome.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::label::{LabelText, closed_set};

/// Most resources that have series of their own: any number of plugin versions may name kinds while a host runs.
const MAX_RESOURCES: usize = 500;

/// Label of the resources beyond that.
const OTHER: &str = "other";

/// Label of a request without a resource: discovery, and schemas.
const NO_RESOURCE: &str = "none";

/// Label of a request without a response.
const NO_ANSWER: &str = "none";

/// Buckets in seconds: a request to a server nearby takes some milliseconds, and ends after 30 s.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0];

closed_set! {
    /// Verb of a request, by its name in Kubernetes' own metrics.
    Verb {
        /// Reads one object.
        Get = "get",
        /// Reads objects.
        List = "list",
        /// Follows objects.
        Watch = "watch",
        /// Creates an object.
        Create = "create",
        /// Replaces an object.
        Update = "update",
        /// Changes an object.
        Patch = "patch",
        /// Applies an object on the server's side.
        Apply = "apply",
        /// Deletes an object.
        Delete = "delete",
        /// Deletes objects.
        DeleteCollection = "deletecollection",
        /// None of these.
        Other = "other",
    }
}

/// Verb and resource of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiRequest {
    verb: Verb,
    /// Resource as kubectl names it: `deployments.apps`.
    resource: String,
    subresource: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    verb: Verb,
    resource: LabelText,
    subresource: LabelText,
    code: LabelText,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerbLabel {
    verb: Verb,
}

/// The metrics of requests to the API server.
#[derive(Clone, Debug)]
pub struct RequestMetrics {
    requests: Family<Labels, Counter>,
    durations: Family<VerbLabel, Histogram>,
    /// Resources that have series, with their subresources.
    known: Arc<Mutex<HashSet<(String, String)>>>,
}

impl Default for RequestMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            known: Arc::default(),
        }
    }
}

impl ApiRequest {
    /// Returns the request with this method, path, query and media type of the body.
    pub fn new(method: &str, path: &str, query: Option<&str>, content_type: Option<&str>) -> Self {
        let (resource, subresource, is_named) = place(path);
        let is_watch =
            query.is_some_and(|query| query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1"));
        let verb = match method {
            "GET" if is_watch => Verb::Watch,
            "GET" if is_named => Verb::Get,
            "GET" if resource.is_some() => Verb::List,
            "GET" => Verb::Get,
            "POST" => Verb::Create,
            "PUT" => Verb::Update,
            "PATCH" if content_type.is_some_and(|it| it.starts_with("application/apply-patch")) => Verb::Apply,
            "PATCH" => Verb::Patch,
            "DELETE" if is_named => Verb::Delete,
            "DELETE" => Verb::DeleteCollection,
            _ => Verb::Other,
        };
        Self {
            verb,
            resource: resource.unwrap_or_else(|| NO_RESOURCE.to_owned()),
            subresource,
        }
    }
}

impl RequestMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "api_requests",
            "Number of requests to the API server, by verb, resource and HTTP code; the code is \"none\" if no answer came",
            metrics.requests.clone(),
        );
        registry.register(
            "api_request_duration_seconds",
            "Time until the head of the API server's answer, in seconds",
            metrics.durations.clone(),
        );
        metrics
    }

    /// Counts a request that has ended after this long, with this code; none if there was no response.
    pub fn ended(&self, request: ApiRequest, code: Option<u16>, took: Duration) {
        let ApiRequest {
            verb,
            resource,
            subresource,
        } = request;
        let (resource, subresource) = self.bounded(resource, subresource);
        let labels = Labels {
            verb,
            resource: LabelText::from(&*resource),
            subresource: LabelText::from(&*subresource),
            code: code.map_or_else(|| NO_ANSWER.into(), |code| LabelText::from(&*code_label(code))),
        };
        self.requests.get_or_create(&labels).inc();
        self.durations
            .get_or_create(&VerbLabel { verb })
            .observe(took.as_secs_f64());
    }

    fn bounded(&self, resource: String, subresource: String) -> (String, String) {
        let mut known = self.known.lock();
        let place = (resource, subresource);
        if known.contains(&place) {
            return place;
        }
        if known.len() >= MAX_RESOURCES {
            return (OTHER.to_owned(), String::new());
        }
        known.insert(place.clone());
        place
    }
}

/// Returns the label of a code. Codes that Kubernetes uses have series of their own; others are counted by class.
fn code_label(code: u16) -> String {
    match code {
        101 | 200..=204 | 400 | 401 | 403..=406 | 408..=410 | 412 | 413 | 415 | 422 | 429 | 500 | 502..=504 => {
            code.to_string()
        }
        100..=999 => format!("{}xx", code / 100),
        _ => OTHER.to_owned(),
    }
}

/// Returns the resource, the subresource, and whether one object is named.
fn place(path: &str) -> (Option<String>, String, bool) {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    // A cluster may be reached under a path prefix of a proxy.
    let root = parts.iter().position(|part| *part == "api" || *part == "apis");
    let Some((root, rest)) = root.and_then(|root| parts[root..].split_first()) else {
        return (None, String::new(), false);
    };
    let (group, rest) = match (*root, rest) {
        ("api", [_version, rest @ ..]) => ("", rest),
        ("apis", [group, _version, rest @ ..]) => (*group, rest),
        _ => return (None, String::new(), false),
    };
    let rest = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() && !matches!(rest, ["status" | "finalize"]) => rest,
        rest => rest,
    };
    let Some((plural, rest)) = rest.split_first() else {
        return (None, String::new(), false);
    };
    let resource = if group.is_empty() {
        (*plural).to_owned()
    } else {
        format!("{plural}.{group}")
    };
    let subresource = rest.get(1).map(|it| (*it).to_owned()).unwrap_or_default();
    (Some(resource), subresource, !rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Metrics, StateFigures};

    fn request(method: &str, path: &str, query: Option<&str>) -> (&'static str, String, String) {
        let ApiRequest {
            verb,
            resource,
            subresource,
        } = ApiRequest::new(method, path, query, None);
        (verb.as_str(), resource, subresource)
    }

    #[test]
    fn a_path_says_which_resource_is_meant_and_never_which_object() {
        let of = |verb, resource: &str, subresource: &str| (verb, resource.to_owned(), subresource.to_owned());
        let deployments = "/apis/apps/v1/namespaces/shop/deployments";
        assert_eq!(request("GET", deployments, None), of("list", "deployments.apps", ""));
        assert_eq!(
            request("GET", "/apis/apps/v1/deployments", Some("a=b&watch=true")),
            of("watch", "deployments.apps", "")
        );
        assert_eq!(
            request("GET", &format!("{deployments}/web"), None),
            of("get", "deployments.apps", "")
        );
        assert_eq!(
            request("PATCH", &format!("{deployments}/web/status"), None),
            of("patch", "deployments.apps", "status")
        );
        assert_eq!(
            request("GET", "/api/v1/namespaces/shop", None),
            of("get", "namespaces", "")
        );
        assert_eq!(
            request("PATCH", "/api/v1/namespaces/shop/status", None),
            of("patch", "namespaces", "status")
        );
        assert_eq!(request("GET", "/api/v1/namespaces", None), of("list", "namespaces", ""));
        assert_eq!(
            request("DELETE", "/k8s/clusters/c-1/api/v1/namespaces/shop/pods", None),
            of("deletecollection", "pods", "")
        );
        for path in ["/apis", "/apis/apps/v1", "/api", "/openapi/v3/apis", "/version", "/"] {
            assert_eq!(request("GET", path, None), of("get", "none", ""), "{path}");
        }
    }

    #[test]
    fn an_apply_is_told_from_other_patches() {
        let apply = ApiRequest::new("PATCH", "/api/v1/nodes/a", None, Some("application/apply-patch+yaml"));
        assert_eq!(apply.verb, Verb::Apply);
    }

    #[test]
    fn neither_codes_nor_resources_make_series_without_end() {
        let metrics = Metrics::default();
        for index in 0..2 * MAX_RESOURCES {
            let path = format!("/apis/g{index}.example.com/v1/things");
            let request = ApiRequest::new("GET", &path, None, None);
            metrics.requests().ended(request, Some(200), Duration::from_millis(1));
        }
        for code in 100..1000 {
            let request = ApiRequest::new("GET", "/apis/g0.example.com/v1/things", None, None);
            metrics.requests().ended(request, Some(code), Duration::from_millis(1));
        }
        let text = metrics.print(&StateFigures::default());
        let series = text
            .lines()
            .filter(|line| line.starts_with("pilothouse_api_requests_total{"));
        assert!(series.count() < MAX_RESOURCES + 40);
        let rest = "pilothouse_api_requests_total{verb=\"list\",resource=\"other\",subresource=\"\",code=\"200\"} 500";
        assert!(text.contains(rest), "{text}");
    }
}
