//! Owns what one controller may read and write: its manifest's declarations, asked at every read and every answer.

use std::collections::HashMap;

use crate::contract::Query;
use crate::failure::Failure;
use crate::key::Kind;
use crate::manifest::{Access, Controller, Touch};
use crate::path::{FieldPath, Projection};
use crate::query::CheckedQuery;
use crate::reason::Reason;
use crate::selector::Selector;

/// What a controller may do with one kind.
#[derive(Clone, Debug)]
pub struct Grant {
    /// How the kind may be touched.
    pub touch: Touch,
    /// What of an object of this kind the controller sees.
    pub projection: Projection,
}

impl Grant {
    /// Whether the kind may be touched in this way.
    pub fn allows(&self, access: Access) -> bool {
        self.touch.access.contains(&access)
    }

    fn covers_namespace(&self, namespace: Option<&str>) -> bool {
        self.touch.namespaces.is_empty()
            || namespace.is_some_and(|namespace| self.touch.namespaces.iter().any(|it| it == namespace))
    }

    fn covers_name(&self, name: &str) -> bool {
        self.touch.names.is_empty() || self.touch.names.iter().any(|it| it == name)
    }
}

/// What one controller may touch.
#[derive(Clone, Debug)]
pub struct Grants {
    controller: String,
    primary: Kind,
    primary_projection: Projection,
    kinds: HashMap<Kind, Grant>,
}

impl Grants {
    /// The grants that a controller's manifest declares.
    pub fn new(controller: &Controller) -> Self {
        let kinds = controller
            .touches
            .iter()
            .map(|touch| {
                let grant = Grant {
                    touch: touch.clone(),
                    projection: Projection::new(&touch.fields),
                };
                (touch.kind.clone(), grant)
            })
            .collect();
        Self {
            controller: controller.name.clone(),
            primary: controller.kind.clone(),
            primary_projection: Projection::new(&controller.fields),
            kinds,
        }
    }

    /// The primary kind.
    pub fn primary(&self) -> &Kind {
        &self.primary
    }

    /// What of the primary the controller sees.
    pub fn primary_projection(&self) -> &Projection {
        &self.primary_projection
    }

    /// The grant for a kind, if it was declared in exactly this version.
    pub fn get(&self, kind: &Kind) -> Option<&Grant> {
        self.kinds.get(kind)
    }

    /// Every kind that is touched besides the primary.
    pub fn touched(&self) -> impl Iterator<Item = &Grant> {
        self.kinds.values()
    }

    fn readable(&self, kind: &Kind) -> Result<&Grant, Failure> {
        match self.kinds.get(kind) {
            Some(grant) if grant.allows(Access::Read) => Ok(grant),
            Some(_) => Err(self.undeclared(&format!(
                "it reads {kind}, which the manifest declares without access read"
            ))),
            None => Err(self.undeclared(&match self.kinds.keys().find(|it| it.same_kind(kind)) {
                Some(declared) => format!("it reads {kind}, but the manifest declares {declared}"),
                None => format!("it reads {kind}, which the manifest does not declare"),
            })),
        }
    }

    fn undeclared(&self, problem: &str) -> Failure {
        Failure::guest(
            Reason::Undeclared,
            format!(
                "controller {} was stopped: {problem}; declare it under touches",
                self.controller
            ),
        )
    }

    /// Checks a `get`; the grant says what is visible of the object.
    pub fn check_get(&self, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<&Grant, Failure> {
        let grant = self.readable(kind)?;
        if !grant.covers_namespace(namespace) {
            let place = namespace.unwrap_or("the cluster scope");
            return Err(self.undeclared(&format!(
                "it reads {kind} in {place}, outside the namespaces that it declares"
            )));
        }
        if !grant.covers_name(name) {
            return Err(self.undeclared(&format!("it reads {kind} {name}, outside the names that it declares")));
        }
        Ok(grant)
    }

    /// Checks a `find`: parses its selector and paths, and holds them against the declared fields.
    pub fn check_find(&self, kind: &Kind, query: &Query) -> Result<(&Grant, CheckedQuery), Failure> {
        let grant = self.readable(kind)?;
        if !grant.touch.namespaces.is_empty() && !grant.covers_namespace(query.namespace.as_deref()) {
            return Err(self.undeclared(&format!(
                "it looks for {kind} in {}, outside the namespaces that it declares",
                query.namespace.as_deref().unwrap_or("every namespace")
            )));
        }
        let broken = |problem: String| {
            Failure::guest(
                Reason::InvalidAnswer,
                format!(
                    "controller {} was stopped: its query for {kind} cannot be read: {problem}",
                    self.controller
                ),
            )
        };
        let labels =
            Selector::parse(query.labels.as_deref().unwrap_or_default()).map_err(|error| broken(error.to_string()))?;
        let mut fields = Vec::with_capacity(query.fields.len());
        for (path, value) in &query.fields {
            let path = FieldPath::parse(path).map_err(|error| broken(error.to_string()))?;
            if !grant.projection.shows(&path) {
                return Err(self.undeclared(&format!(
                    "it asks for {kind} by {path}, a field that it does not declare"
                )));
            }
            fields.push((path, value.clone()));
        }
        Ok((
            grant,
            CheckedQuery {
                namespace: query.namespace.clone(),
                labels: labels.and(grant.touch.labels.as_ref()),
                fields,
                names: grant.touch.names.clone(),
                limit: query.limit,
                until: None,
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn grants() -> Grants {
        let controller: Controller = serde_json::from_value(json!({
            "name": "c", "kind": {"group": "x.dev", "version": "v1", "kind": "X"},
            "touches": [
                {"kind": {"group": "", "version": "v1", "kind": "Service"}, "access": ["read"],
                 "fields": [".spec.ports"], "namespaces": ["a"], "names": ["n"]},
                {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}, "access": ["owned"]},
                {"kind": {"group": "", "version": "v1", "kind": "Node"}, "access": ["read"]}
            ]
        }))
        .unwrap();
        Grants::new(&controller)
    }

    fn service() -> Kind {
        Kind::new("", "v1", "Service")
    }

    #[test]
    fn a_declared_read_is_allowed() {
        assert!(grants().check_get(&service(), Some("a"), "n").is_ok());
        assert!(grants().check_get(&Kind::new("", "v1", "Node"), None, "any").is_ok());
    }

    #[test]
    fn an_undeclared_read_is_refused_and_names_the_declaration() {
        let message = |kind: &Kind, namespace, name| grants().check_get(kind, namespace, name).unwrap_err().message;
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
    fn a_query_is_held_against_the_declared_fields() {
        let find = |query: Query| grants().check_find(&service(), &query).map(|(_, query)| query);
        let within = Query {
            namespace: Some("a".into()),
            ..Query::default()
        };
        assert!(find(within.clone()).is_ok());
        assert!(find(Query::default()).unwrap_err().message.contains("every namespace"));
        let by_field = |path: &str| Query {
            fields: vec![(path.into(), "80".into())],
            ..within.clone()
        };
        assert!(find(by_field(".spec.ports[].port")).is_ok());
        assert!(find(by_field(".metadata.labels.app")).is_ok());
        assert!(
            find(by_field(".spec.type"))
                .unwrap_err()
                .message
                .contains("does not declare")
        );
        assert!(find(by_field("spec")).unwrap_err().message.contains("cannot be read"));
        let bad_labels = Query {
            labels: Some("a=b=c".into()),
            ..within
        };
        assert!(find(bad_labels).unwrap_err().message.contains("a=b=c"));
    }
}
