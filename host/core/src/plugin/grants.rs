//! Decides, at every read and answer, what one controller may read and write by its manifest's declarations.

use std::collections::HashMap;
use std::sync::Arc;

use crate::kubernetes::key::{Kind, Name};
use crate::kubernetes::path::{FieldPath, Projection};
use crate::kubernetes::selector::Selector;
use crate::plugin::contract::ListOptions;
use crate::plugin::manifest::{Access, Controller, Touch, TouchScope};
use crate::reads::query::CheckedQuery;
use crate::reads::reach::Reach;
use crate::rights::Confinement;
use crate::status::failure::Failure;
use crate::status::reason::Reason;

/// The access of a controller to one kind.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The declaration in the manifest.
    pub touch: Touch,
    /// The fields of such an object that the controller sees.
    pub projection: Projection,
    /// The namespaces to which the Plugin is confined.
    confinement: Arc<Confinement>,
}

impl Grant {
    /// Reports whether this kind of access is declared.
    pub fn allows(&self, access: Access) -> bool {
        self.touch.access.contains(&access)
    }

    /// Describes how a namespace is outside of the declared ones for a primary; none if it is inside. The namespace is
    /// none for cluster-scoped objects, or for all namespaces.
    pub fn outside(&self, primary: &Name, namespace: Option<&str>) -> Option<String> {
        let home = primary.namespace.as_deref();
        match (self.touch.scope, home) {
            (TouchScope::Namespace, Some(home)) if namespace == Some(home) => None,
            (TouchScope::Namespace, Some(home)) => Some(format!(
                "outside the primary's own namespace {home}; declare the kind with scope \"Any\""
            )),
            (TouchScope::Namespace, None) => Some(
                "but the primary is cluster-scoped and has no namespace of its own; declare the kind with scope \"Any\""
                    .to_owned(),
            ),
            (TouchScope::Any, _) => {
                let listed = &self.touch.namespaces;
                let is_listed = namespace.is_some_and(|namespace| listed.iter().any(|it| it == namespace));
                if !listed.is_empty() && !is_listed {
                    return Some("outside the namespaces that it declares; declare it under touches".to_owned());
                }
                let named = namespace.filter(|_| !self.reaches(namespace))?;
                Some(format!(
                    "outside the namespaces that its Plugin names ({}); add {named} to spec.accessNamespaces of the Plugin, \
                     or leave the object out",
                    self.confinement
                ))
            }
        }
    }

    /// Reports whether the Plugin's confinement includes a namespace. None stands for cluster-scoped objects.
    pub fn reaches(&self, namespace: Option<&str>) -> bool {
        namespace.is_none_or(|namespace| self.confinement.reaches(namespace))
    }

    /// The part of a reach that the host sees.
    pub fn seen(&self, reach: Reach) -> Reach {
        self.confinement.seen(reach)
    }

    fn covers_name(&self, name: &str) -> bool {
        self.touch.names.is_empty() || self.touch.names.iter().any(|it| it == name)
    }
}

/// The declared accesses of one controller.
#[derive(Clone, Debug)]
pub struct Grants {
    controller: String,
    primary: Kind,
    primary_projection: Projection,
    kinds: HashMap<Kind, Grant>,
    options: Vec<String>,
    confinement: Arc<Confinement>,
}

impl Grants {
    /// The grants that a controller's manifest declares.
    pub fn new(controller: &Controller) -> Self {
        Self::confined(controller, &Arc::default())
    }

    /// The same, restricted to the Plugin's namespaces. A list over every namespace becomes a list over these.
    pub fn confined(controller: &Controller, confinement: &Arc<Confinement>) -> Self {
        let kinds = controller
            .touches
            .iter()
            .map(|touch| {
                let grant = Grant {
                    touch: touch.clone(),
                    projection: Projection::new(&touch.fields),
                    confinement: confinement.clone(),
                };
                (touch.kind.clone(), grant)
            })
            .collect();
        Self {
            controller: controller.name.clone(),
            primary: controller.kind.clone(),
            primary_projection: Projection::new(&controller.fields),
            kinds,
            options: controller.options.clone(),
            confinement: confinement.clone(),
        }
    }

    /// Reports whether desired objects may have an option.
    pub fn lists_option(&self, option: &str) -> bool {
        self.options.iter().any(|it| it == option)
    }

    /// The namespaces that the Plugin is confined to.
    pub fn confinement(&self) -> &Confinement {
        &self.confinement
    }

    /// The controller's name.
    pub fn controller(&self) -> &str {
        &self.controller
    }

    /// The primary kind.
    pub fn primary(&self) -> &Kind {
        &self.primary
    }

    /// The fields of the primary that the controller sees.
    pub fn primary_projection(&self) -> &Projection {
        &self.primary_projection
    }

    /// The grant for a kind, if it was declared in exactly this version.
    pub fn get(&self, kind: &Kind) -> Option<&Grant> {
        self.kinds.get(kind)
    }

    /// Every declared kind except the primary.
    pub fn touched(&self) -> impl Iterator<Item = &Grant> {
        self.kinds.values()
    }

    fn readable(&self, kind: &Kind) -> Result<&Grant, Failure> {
        match self.kinds.get(kind) {
            Some(grant) if grant.allows(Access::Read) => Ok(grant),
            Some(_) => Err(self.undeclared(&format!(
                "it reads {kind}, which the manifest declares without access read; declare it under touches"
            ))),
            None => Err(self.undeclared(&match self.kinds.keys().find(|it| it.same_kind(kind)) {
                Some(declared) => {
                    format!("it reads {kind}, but the manifest declares {declared}; declare it under touches")
                }
                None => format!("it reads {kind}, which the manifest does not declare; declare it under touches"),
            })),
        }
    }

    fn undeclared(&self, problem: &str) -> Failure {
        Failure::guest(
            Reason::Undeclared,
            format!("controller {} was stopped: {problem}", self.controller),
        )
    }

    /// Checks a `get` on behalf of a primary. The returned grant says which fields are visible.
    pub fn check_get(
        &self,
        primary: &Name,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<&Grant, Failure> {
        let grant = self.readable(kind)?;
        if let Some(problem) = grant.outside(primary, namespace) {
            let place = namespace.unwrap_or("the cluster scope");
            return Err(self.undeclared(&format!("it reads {kind} in {place}, {problem}")));
        }
        if !grant.covers_name(name) {
            return Err(self.undeclared(&format!(
                "it reads {kind} {name}, outside the names that it declares; declare it under touches"
            )));
        }
        Ok(grant)
    }

    /// Checks a `list` on behalf of a primary: parses its selector and paths, and compares them with the declaration.
    pub fn check_list(
        &self,
        primary: &Name,
        kind: &Kind,
        options: &ListOptions,
    ) -> Result<(&Grant, CheckedQuery), Failure> {
        let grant = self.readable(kind)?;
        let namespace = options.namespace.as_deref();
        if let Some(problem) = grant.outside(primary, namespace) {
            let place = namespace.unwrap_or("every namespace");
            return Err(self.undeclared(&format!("it lists {kind} in {place}, {problem}")));
        }
        let broken = |problem: String| {
            Failure::guest(
                Reason::InvalidAnswer,
                format!(
                    "controller {} was stopped: its list options for {kind} cannot be read: {problem}",
                    self.controller
                ),
            )
        };
        // The manifest cannot contain a selector that is none, so this one was made for the object: most often it was copied
        // from it, or from the configuration.
        let labels = Selector::parse(options.label_selector.as_deref().unwrap_or_default()).map_err(|error| {
            Failure::user(
                Reason::Invalid,
                format!("{kind} cannot be listed: {error}; correct the selector where this object or the configuration has it"),
            )
        })?;
        let mut fields = Vec::with_capacity(options.field_selector.len());
        for (path, value) in &options.field_selector {
            let path = FieldPath::parse(path).map_err(|error| broken(error.to_string()))?;
            if !grant.projection.shows(&path) {
                return Err(self.undeclared(&format!(
                    "it lists {kind} by {path}, a field that it does not declare; declare it under touches"
                )));
            }
            fields.push((path, value.clone()));
        }
        Ok((
            grant,
            CheckedQuery {
                namespace: options.namespace.clone(),
                labels: labels.and(grant.touch.label_selector.as_ref()),
                fields,
                names: grant.touch.names.clone(),
                limit: options.limit,
                until: None,
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use crate::status::failure::Blame;
    use serde_json::json;

    use super::*;

    fn grants() -> Grants {
        let controller: Controller = serde_json::from_value(json!({
            "name": "c", "kind": {"group": "x.dev", "version": "v1", "kind": "X"},
            "touches": [
                {"kind": {"group": "", "version": "v1", "kind": "Service"}, "access": ["read"],
                 "fields": [".spec.ports"], "scope": "Any", "namespaces": ["a"], "names": ["n"]},
                {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}, "access": ["owned"]},
                {"kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "access": ["read"]},
                {"kind": {"group": "", "version": "v1", "kind": "Node"}, "access": ["read"], "scope": "Any"}
            ]
        }))
        .unwrap();
        Grants::new(&controller)
    }

    fn primary() -> Name {
        Name::new(Some("home"), "it")
    }

    fn service() -> Kind {
        Kind::new("", "v1", "Service")
    }

    #[test]
    fn a_declared_read_is_allowed() {
        assert!(grants().check_get(&primary(), &service(), Some("a"), "n").is_ok());
        assert!(
            grants()
                .check_get(&primary(), &Kind::new("", "v1", "Node"), None, "any")
                .is_ok()
        );
    }

    #[test]
    fn an_undeclared_read_is_refused_and_names_the_declaration() {
        let message = |kind: &Kind, namespace, name| {
            let checked = grants().check_get(&primary(), kind, namespace, name).map(drop);
            checked.unwrap_err().message
        };
        assert!(message(&service(), Some("b"), "n").contains("outside the namespaces"));
        assert!(message(&service(), None, "n").contains("outside the namespaces"));
        assert!(message(&service(), Some("a"), "m").contains("outside the names"));
        assert!(message(&Kind::new("apps", "v1", "Deployment"), Some("a"), "n").contains("without access read"));
        assert!(
            message(&Kind::new("apps", "v2", "Deployment"), Some("a"), "n").contains("declares apps/v1 Deployment")
        );
        assert!(message(&Kind::new("", "v1", "Secret"), Some("a"), "n").contains("does not declare"));
    }

    #[test]
    fn a_read_outside_the_primarys_namespace_needs_the_scope_any() {
        let config_map = Kind::new("", "v1", "ConfigMap");
        let listed = |namespace: Option<&str>| ListOptions {
            namespace: namespace.map(str::to_owned),
            ..ListOptions::default()
        };
        let read = |primary: &Name, namespace: Option<&str>| {
            let got = grants().check_get(primary, &config_map, namespace, "a").map(drop);
            let found = grants().check_list(primary, &config_map, &listed(namespace)).map(drop);
            assert_eq!(got.is_ok(), found.is_ok());
            [got, found].map(|checked| checked.map_err(|failure| failure.message))
        };
        assert_eq!(read(&primary(), Some("home")), [Ok(()), Ok(())]);
        for namespace in [Some("other"), None] {
            for refused in read(&primary(), namespace) {
                let message = refused.unwrap_err();
                assert!(
                    message.contains("outside the primary's own namespace home"),
                    "{message}"
                );
                assert!(message.ends_with("with scope \"Any\""), "{message}");
            }
        }
        for namespace in [Some("home"), None] {
            for refused in read(&Name::new(None, "it"), namespace) {
                assert!(refused.unwrap_err().contains("the primary is cluster-scoped"));
            }
        }
    }

    #[test]
    fn confined_plugin_reads_only_its_plugins_namespaces() {
        let controller: Controller = serde_json::from_value(json!({
            "name": "c", "kind": {"group": "x.dev", "version": "v1", "kind": "X"},
            "touches": [
                {"kind": {"group": "", "version": "v1", "kind": "Secret"}, "access": ["read"], "scope": "Any"},
                {"kind": {"group": "", "version": "v1", "kind": "Node"}, "access": ["read"], "scope": "Any"},
                {"kind": {"group": "", "version": "v1", "kind": "ConfigMap"}, "access": ["read"], "scope": "Any",
                 "namespaces": ["edge", "elsewhere"]}
            ]
        }))
        .unwrap();
        let confinement = Confinement::new(&["home".to_owned()], &["edge".to_owned()]).unwrap();
        let grants = Grants::confined(&controller, &Arc::new(confinement));
        let core = |kind: &str| Kind::new("", "v1", kind);
        let get = |kind: &str, namespace| {
            let checked = grants.check_get(&primary(), &core(kind), namespace, "n").map(drop);
            checked.map_err(|failure| failure.message)
        };
        for namespace in ["home", "edge"] {
            assert_eq!(get("Secret", Some(namespace)), Ok(()));
        }
        assert_eq!(get("ConfigMap", Some("edge")), Ok(()));
        assert_eq!(get("Node", None), Ok(()));
        for kind in ["Secret", "ConfigMap"] {
            let message = get(kind, Some("elsewhere")).unwrap_err();
            assert!(
                message.contains("outside the namespaces that its Plugin names (home and edge)")
                    && message.contains("add elsewhere to spec.accessNamespaces"),
                "{message}"
            );
        }
        let list = |namespace: Option<&str>| {
            let options = ListOptions {
                namespace: namespace.map(str::to_owned),
                ..ListOptions::default()
            };
            grants.check_list(&primary(), &core("Secret"), &options).is_ok()
        };
        assert!(list(None) && list(Some("edge")) && !list(Some("elsewhere")));
        let grant = grants.get(&core("Secret")).unwrap();
        assert!(grant.reaches(None) && grant.reaches(Some("edge")) && !grant.reaches(Some("elsewhere")));
    }

    #[test]
    fn a_query_is_held_against_the_declared_fields() {
        let list = |options: ListOptions| {
            grants()
                .check_list(&primary(), &service(), &options)
                .map(|(_, query)| query)
        };
        let within = ListOptions {
            namespace: Some("a".into()),
            ..ListOptions::default()
        };
        assert!(list(within.clone()).is_ok());
        assert!(
            list(ListOptions::default())
                .unwrap_err()
                .message
                .contains("every namespace")
        );
        let by_field = |path: &str| ListOptions {
            field_selector: vec![(path.into(), "80".into())],
            ..within.clone()
        };
        assert!(list(by_field(".spec.ports[].port")).is_ok());
        assert!(list(by_field(".metadata.labels.app")).is_ok());
        assert!(
            list(by_field(".spec.type"))
                .unwrap_err()
                .message
                .contains("does not declare")
        );
        assert!(list(by_field("spec")).unwrap_err().message.contains("cannot be read"));
        let bad_labels = ListOptions {
            label_selector: Some("a=b=c".into()),
            ..within
        };
        let failure = list(bad_labels).unwrap_err();
        assert_eq!((failure.blame, failure.reason), (Blame::User, Reason::Invalid));
        assert!(
            failure
                .message
                .contains("\"a=b=c\" is not a label selector: at character 3"),
            "{failure}"
        );
    }
}
