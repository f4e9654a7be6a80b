//! Describes how Kubernetes serves its built-in kinds. The table is pilothouse-description's.

use std::sync::Arc;

pub use pilothouse_description::built_in::BUILT_IN;

use crate::kubernetes::key::Kind;
use crate::kubernetes::served::{KindFacts, ServedKind};

/// The resource of a built-in kind, in any version. The status subresource is not known.
pub fn served(kind: &Kind) -> Option<ServedKind> {
    let found = BUILT_IN
        .iter()
        .find(|(group, name, ..)| *group == kind.group && *name == kind.kind);
    found.map(|(_, _, plural, namespaced)| ServedKind {
        short_names: Vec::new(),
        kind: Arc::new(kind.clone()),
        plural: (*plural).to_owned(),
        facts: KindFacts {
            namespaced: *namespaced,
            has_status: false,
        },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// `author/simulator/schemas/resources.json` is what a real API server answers to discovery.
    #[test]
    fn the_table_says_what_a_real_api_server_says() {
        let text = include_str!("../../../../author/simulator/schemas/resources.json");
        let lists: Vec<Value> = serde_json::from_str(text).unwrap();
        let mut compared = 0;
        for list in &lists {
            let version = list["groupVersion"].as_str().unwrap();
            for resource in list["resources"].as_array().unwrap() {
                let can_be_watched = resource["verbs"].as_array().unwrap().iter().any(|verb| verb == "watch");
                if !can_be_watched {
                    continue;
                }
                let kind = Kind::from_api_version(version, resource["kind"].as_str().unwrap());
                let served = served(&kind).unwrap_or_else(|| panic!("{kind} is missing"));
                assert_eq!(resource["name"], *served.plural, "{kind}");
                assert_eq!(resource["namespaced"], served.facts.namespaced, "{kind}");
                compared += 1;
            }
        }
        assert!(compared > 40, "{compared}");
        assert!(served(&Kind::new("kosmos.io", "v1", "AppService")).is_none());
    }
}
