//! Parses the paths of the API.

use std::sync::Arc;

use http::Method;

use crate::failure::Failure;
use crate::kinds::{Kinds, Resource};
use crate::request::percent_decode;

/// Target of a request.
#[derive(Debug, Clone)]
pub(crate) enum Route {
    /// `/api`, `/apis`.
    Groups {
        core: bool,
    },
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1`, `/apis/GROUP/VERSION`.
    GroupVersion {
        group: String,
        version: String,
    },
    /// Objects.
    Resource(Target),
    Version,
    Health,
    /// Path `/openapi/v3`, and those below it.
    OpenApi(String),
    OpenApiV2,
    /// `/`.
    Root,
    Unknown,
}

/// The objects that a request is about.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: String,
    /// Below `/watch/`, the old form of watches.
    pub(crate) watch: bool,
}

/// Reads a path.
pub(crate) fn route(kinds: &Kinds, path: &str) -> Result<Route, Failure> {
    let steps: Vec<String> = path
        .split('/')
        .filter(|step| !step.is_empty())
        .map(percent_decode)
        .collect();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    Ok(match steps.as_slice() {
        [] => Route::Root,
        ["version"] => Route::Version,
        ["healthz" | "livez" | "readyz", ..] => Route::Health,
        ["openapi", "v2"] => Route::OpenApiV2,
        ["openapi", "v3", rest @ ..] => Route::OpenApi(rest.join("/")),
        ["api"] => Route::Groups { core: true },
        ["apis"] => Route::Groups { core: false },
        ["api", version, rest @ ..] => below(kinds, "", version, rest)?,
        ["apis", group] => Route::Group((*group).to_owned()),
        ["apis", group, version, rest @ ..] => below(kinds, group, version, rest)?,
        _ => Route::Unknown,
    })
}

fn below(kinds: &Kinds, group: &str, version: &str, rest: &[&str]) -> Result<Route, Failure> {
    if !kinds.versions(group).contains(&version) {
        return Ok(Route::Unknown);
    }
    if rest.is_empty() {
        return Ok(Route::GroupVersion {
            group: group.to_owned(),
            version: version.to_owned(),
        });
    }
    let (watch, rest) = match rest {
        ["watch", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let owned = |text: &str| Some(text.to_owned());
    // `namespaces/NAME/status` is a part of a namespace, `namespaces/NAME/pods` the pods in it.
    let (plural, namespace, name, subresource) = match rest {
        ["namespaces", name, part @ ("status" | "finalize")] if group.is_empty() => {
            ("namespaces", None, owned(name), *part)
        }
        ["namespaces", namespace, plural] => (*plural, owned(namespace), None, ""),
        ["namespaces", namespace, plural, name] => (*plural, owned(namespace), owned(name), ""),
        ["namespaces", namespace, plural, name, part] => (*plural, owned(namespace), owned(name), *part),
        [plural] => (*plural, None, None, ""),
        [plural, name] => (*plural, None, owned(name), ""),
        [plural, name, part] => (*plural, None, owned(name), *part),
        _ => return Err(Failure::no_such_resource()),
    };
    let resource = kinds
        .get(group, version, plural)
        .cloned()
        .ok_or_else(Failure::no_such_resource)?;
    let scope_fits = resource.namespaced || namespace.is_none();
    let named_fits = !resource.namespaced || name.is_none() || namespace.is_some();
    if !scope_fits || !named_fits || (!subresource.is_empty() && resource.subresource(subresource).is_none()) {
        return Err(Failure::no_such_resource());
    }
    Ok(Route::Resource(Target {
        resource,
        namespace,
        name,
        subresource: subresource.to_owned(),
        watch,
    }))
}

/// The verb as RBAC and the request log name it.
pub(crate) fn verb(method: &Method, target: &Target, watch: bool) -> &'static str {
    let named = target.name.is_some();
    match *method {
        Method::GET | Method::HEAD if watch || target.watch => "watch",
        Method::GET | Method::HEAD if named => "get",
        Method::GET | Method::HEAD => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if named => "delete",
        Method::DELETE => "deletecollection",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Option<(String, Option<String>, Option<String>, String)> {
        match route(&Kinds::builtin(), path) {
            Ok(Route::Resource(target)) => Some((
                target.resource.plural.clone(),
                target.namespace,
                target.name,
                target.subresource,
            )),
            _ => None,
        }
    }

    #[test]
    fn paths_name_resources_their_parts_and_their_scope() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(
            target("/api/v1/namespaces/a"),
            Some(("namespaces".to_owned(), None, some("a"), String::new()))
        );
        assert_eq!(
            target("/api/v1/namespaces/a/pods"),
            Some(("pods".to_owned(), some("a"), None, String::new()))
        );
        assert_eq!(
            target("/apis/apps/v1/namespaces/a/deployments/b/scale"),
            Some(("deployments".to_owned(), some("a"), some("b"), "scale".to_owned()))
        );
        assert_eq!(target("/api/v1/pods/b"), None);
        assert_eq!(target("/api/v1/namespaces/a/nodes"), None);
        assert!(matches!(
            route(&Kinds::builtin(), "/apis/nope/v1/x"),
            Ok(Route::Unknown)
        ));
    }
}
