//! Finds the data that live objects lose when a CustomResourceDefinition is replaced: versions in which objects are
//! stored, and fields that the new schema does not accept. The caller provides the schema validator.

use std::collections::BTreeSet;

use anyhow::ensure;
use pilothouse_cluster::resources::install::MANAGER as HOST_MANAGER;
use pilothouse_cluster::resources::installer::{Installer, InstallerError, MANAGER};
use pilothouse_core::Kind;
use pilothouse_core::kubernetes::crd_change::{CrdChange, moves};
use pilothouse_core::kubernetes::served::ServedKind;
use pilothouse_core::plugin::manifest::BroughtCrd;
use serde_json::Value;

use pilothouse_core::text::printable::printable;

/// The most objects that are named in one list.
const MOST_NAMED: usize = 20;

/// Objections of a schema to an object that another schema accepts.
#[derive(Debug, Default)]
pub struct Objections {
    /// Values that it does not accept, and fields that it would drop: each with its path.
    pub errors: BTreeSet<String>,
    /// Rules (`x-kubernetes-validations`) that could not be evaluated.
    pub unevaluated: BTreeSet<String>,
}

/// Compares two schemas' objections to an object.
pub type CompareObject = Box<dyn Fn(&Value) -> Objections>;

/// Compares a version of a definition with a version of another one; none if a version is not served.
pub type CompareSchemas = fn(live: (&Value, &str), wanted: (&Value, &str)) -> Option<CompareObject>;

/// Effects of a changed definition on live objects.
#[derive(Default)]
pub struct Losses {
    /// Reasons why it would lose data.
    pub refusals: Vec<String>,
    /// Effects that could not be determined.
    pub cautions: Vec<String>,
}

impl Losses {
    /// Adds those of another definition.
    pub fn extend(&mut self, other: Self) {
        let Self { refusals, cautions } = other;
        self.refusals.extend(refusals);
        self.cautions.extend(cautions);
    }

    /// Formats them for people, a line each.
    pub fn explained(&self) -> String {
        let Self { refusals, cautions } = self;
        let cautions = cautions
            .iter()
            .map(|caution| format!("caution: {}\n", printable(caution)));
        let refusals = refusals
            .iter()
            .map(|refusal| format!("refused: {}\n", printable(refusal)));
        cautions.chain(refusals).collect()
    }

    /// Returns an error if data would be lost.
    pub fn refuse(&self, what: &str) -> anyhow::Result<()> {
        ensure!(
            self.refusals.is_empty(),
            "the {what} would lose data or make live objects invalid, and is refused; nothing was changed"
        );
        Ok(())
    }
}

/// Checks all live objects.
pub async fn losses(
    installer: &Installer,
    crd: &BroughtCrd,
    live: &Value,
    change: &CrdChange,
    compare: CompareSchemas,
) -> Result<Losses, InstallerError> {
    let mut losses = Losses::default();
    let others = other_managers(live);
    if !others.is_empty() && !change.is_none() {
        losses.cautions.push(format!(
            "CustomResourceDefinition {} is there from {}; what this plugin brings takes the place of what it says",
            crd.name,
            Vec::from_iter(others).join(", ")
        ));
    }
    if !change.dropped_stored.is_empty() {
        losses.refusals.push(format!(
            "CustomResourceDefinition {} drops {}, in which objects are or were stored; keep the version until another one is \
             the storage version and `pilothouse migrate-storage {}` has rewritten the objects",
            crd.name,
            change.dropped_stored.join(", "),
            crd.name
        ));
    }
    if change.is_none() {
        return Ok(losses);
    }
    let unchecked = || {
        format!(
            "live objects of CustomResourceDefinition {} cannot be compared with it, because no version is served before and after; \
             serve one, or look at them yourself",
            crd.name
        )
    };
    let Some((from, to)) = moves(live, &crd.definition) else {
        losses.cautions.push(unchecked());
        return Ok(losses);
    };
    let Some(served) = ServedKind::of_crd(crd, &Kind::new(&crd.group, &from, &crd.kind)) else {
        losses.cautions.push(unchecked());
        return Ok(losses);
    };
    let (comparisons, mut cautions) = comparisons(compare, (live, &from), crd, &to);
    losses.cautions.append(&mut cautions);
    let mut named = Vec::new();
    let mut more = 0_usize;
    let mut unevaluated = BTreeSet::new();
    installer
        .each(&served, |object| {
            let mut errors = BTreeSet::new();
            for compare in &comparisons {
                let objections = compare(&object);
                errors.extend(objections.errors);
                unevaluated.extend(objections.unevaluated);
            }
            if errors.is_empty() {
                return;
            }
            if named.len() == MOST_NAMED {
                more += 1;
                return;
            }
            let metadata = &object["metadata"];
            let namespace = metadata["namespace"].as_str().map(|namespace| format!("{namespace}/"));
            named.push(format!(
                "{}{}: {}",
                namespace.unwrap_or_default(),
                metadata["name"].as_str().unwrap_or_default(),
                Vec::from_iter(errors).join(", ")
            ));
        })
        .await?;
    if !named.is_empty() {
        let rest = match more {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        losses.refusals.push(format!(
            "the new schema of CustomResourceDefinition {} does not accept {} live objects: {}{rest}; change these objects, or the \
             schema",
            crd.name,
            named.len() + more,
            named.join("; ")
        ));
    }
    losses.cautions.extend(unevaluated.into_iter().map(|rule| {
        format!(
            "only an API server can evaluate the rule {rule:?} of CustomResourceDefinition {}; check that live objects keep it",
            crd.name
        )
    }));
    Ok(losses)
}

/// Returns comparisons of a live version with those to which objects move, and cautions about impossible comparisons.
fn comparisons(
    compare: CompareSchemas,
    live: (&Value, &str),
    crd: &BroughtCrd,
    to: &[String],
) -> (Vec<CompareObject>, Vec<String>) {
    let (mut comparisons, mut cautions) = (Vec::new(), Vec::new());
    for to in to {
        match compare(live, (&crd.definition, to)) {
            Some(comparison) => comparisons.push(comparison),
            None => cautions.push(format!(
                "live objects of CustomResourceDefinition {} cannot be compared with version {to}, which is not served; if they will be \
                 stored in it, serve it, or look at them yourself",
                crd.name
            )),
        }
    }
    (comparisons, cautions)
}

/// Returns the field managers, other than hosts and installations, that have written the definition's spec.
fn other_managers(live: &Value) -> BTreeSet<String> {
    let entries = live["metadata"]["managedFields"].as_array().into_iter().flatten();
    let writers = entries.filter(|entry| entry["fieldsV1"]["f:spec"].is_object() && entry["subresource"].is_null());
    let managers = writers.filter_map(|entry| entry["manager"].as_str());
    let others = managers.filter(|manager| ![HOST_MANAGER, MANAGER].contains(manager));
    others.map(printable).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_version_that_cannot_be_compared_is_named() {
        let is_served = |_: (&Value, &str), (wanted, version): (&Value, &str)| -> Option<CompareObject> {
            (wanted["served"] == version).then(|| Box::new(|_: &Value| Objections::default()) as CompareObject)
        };
        let crd = BroughtCrd {
            name: "webs.x.dev".to_owned(),
            group: "x.dev".to_owned(),
            kind: "Web".to_owned(),
            definition: json!({"served": "v1"}),
        };
        let to = ["v1".to_owned(), "v2".to_owned()];
        let (comparisons, cautions) = comparisons(is_served, (&Value::Null, "v1"), &crd, &to);
        assert_eq!((comparisons.len(), cautions.len()), (1, 1));
        assert!(
            cautions[0].contains("webs.x.dev cannot be compared with version v2"),
            "{cautions:?}"
        );
    }

    #[test]
    fn who_else_has_written_a_definition_is_named() {
        let entry = |manager: &str, fields: Value| json!({"manager": manager, "fieldsV1": fields});
        let live = json!({"metadata": {"managedFields": [
            entry("pilothouse", json!({"f:spec": {}})),
            entry("pilothouse-install", json!({"f:spec": {}})),
            entry("kube-apiserver", json!({"f:status": {}})),
            entry("cert-manager", json!({"f:metadata": {}})),
            entry("helm", json!({"f:spec": {"f:versions": {}}})),
        ]}});
        assert_eq!(Vec::from_iter(other_managers(&live)), ["helm"]);
        assert!(other_managers(&json!({})).is_empty());
    }
}
