//! Makes one write of a scenario, and compares its outcome with the expected one. `run` retries.

use std::time::Duration;

use serde_json::Value;

use super::{
    checks::describe,
    failure::StepError,
    form::{Apply, Create, MANAGER, Patch, Reference},
    matching::mismatches,
    objects::{Objects, Write, Written, words},
};

/// Write with all its parameters besides its object, and its expected outcome.
pub(super) struct Attempt<'step> {
    action: &'static str,
    subresource: Option<&'step str>,
    manager: &'step str,
    write: Write<'step>,
    dry_run: bool,
    refused: Option<&'step str>,
    warned: Option<&'step str>,
    answered: Option<&'step Value>,
    /// Time limit of retries.
    pub(super) within: Duration,
}

impl<'step> Attempt<'step> {
    /// One of which nothing is expected but that it succeeds.
    pub(super) fn new(action: &'static str, write: Write<'step>) -> Self {
        Self {
            action,
            subresource: None,
            manager: MANAGER,
            write,
            dry_run: false,
            refused: None,
            warned: None,
            answered: None,
            within: Duration::ZERO,
        }
    }

    pub(super) fn apply(apply: &'step Apply, body: &'step Value) -> Self {
        let Apply {
            objects: _,
            manager,
            force,
            subresource,
            dry_run,
            refused,
            warned,
            answered,
            within,
        } = apply;
        Self {
            subresource: subresource.as_deref(),
            manager,
            dry_run: *dry_run,
            refused: refused.as_deref(),
            warned: warned.as_deref(),
            answered: answered.as_ref(),
            within: *within,
            ..Self::new("apply", Write::Apply { body, force: *force })
        }
    }

    pub(super) fn create(create: &'step Create, body: &'step Value) -> Self {
        let Create {
            objects: _,
            manager,
            dry_run,
            refused,
            warned,
            answered,
            within,
        } = create;
        Self {
            manager,
            dry_run: *dry_run,
            refused: refused.as_deref(),
            warned: warned.as_deref(),
            answered: answered.as_ref(),
            within: *within,
            ..Self::new("create", Write::Create(body))
        }
    }

    pub(super) fn patch(patch: &'step Patch) -> Self {
        let Patch {
            object: _,
            kind,
            body,
            manager,
            subresource,
            dry_run,
            refused,
            warned,
            answered,
            within,
        } = patch;
        Self {
            subresource: subresource.as_deref(),
            manager,
            dry_run: *dry_run,
            refused: refused.as_deref(),
            warned: warned.as_deref(),
            answered: answered.as_ref(),
            within: *within,
            ..Self::new("patch", Write::Patch { body, kind: *kind })
        }
    }

    /// Returns `true` if its success would create the object.
    pub(super) async fn makes(&self, objects: &mut Objects, reference: &Reference) -> bool {
        match self.write {
            _ if self.dry_run => false,
            Write::Create(_) => true,
            Write::Apply { .. } => !matches!(objects.get(reference).await, Ok(Some(_))),
            Write::Patch { .. } => false,
        }
    }

    pub(super) async fn make(&self, objects: &mut Objects, reference: &Reference) -> Result<Written, kube::Error> {
        let write = (&self.write, self.dry_run);
        objects.write(reference, self.subresource, self.manager, write).await
    }

    /// Compares the result with the expected one.
    pub(super) fn judge(&self, reference: &Reference, result: &Result<Written, kube::Error>) -> Result<(), StepError> {
        let action = self.action;
        let found = match (result, self.refused) {
            (Ok(written), None) => {
                return self.problem(written).map_or(Ok(()), |problem| {
                    let object = describe(reference);
                    Err(StepError::Answered {
                        action,
                        object,
                        problem,
                    })
                });
            }
            (Err(error), None) => return Err(StepError::refused(action, reference, error)),
            (Ok(_), Some(_)) => "the server accepted it".to_owned(),
            (Err(error), Some(expected)) if words(error).contains(expected) => return Ok(()),
            (Err(error), Some(_)) => format!("the server said {}", words(error)),
        };
        Err(StepError::NotRefused {
            action,
            object: describe(reference),
            expected: self.refused.unwrap_or_default().to_owned(),
            found,
        })
    }

    fn problem(&self, written: &Written) -> Option<String> {
        let Written { object, warnings } = written;
        if let Some(expected) = self.warned
            && !warnings.iter().any(|warning| warning.contains(expected))
        {
            return Some(format!(
                "expected a warning with {expected:?}, but the server warned of {warnings:?}"
            ));
        }
        let differences = mismatches(self.answered?, object);
        let lines: Vec<String> = differences
            .iter()
            .map(|found| format!("{}: {}", found.path, found.problem))
            .collect();
        (!lines.is_empty()).then(|| format!("the server's answer differs: {}", lines.join("; ")))
    }
}

/// Discovery does not know the kind, or the server does not serve it although discovery says so.
pub(super) fn is_missing_kind(result: &Result<Written, kube::Error>) -> bool {
    match result {
        Err(kube::Error::Discovery(_)) => true,
        Err(kube::Error::Api(status)) => {
            status.code == 404 && status.details.as_ref().is_none_or(|details| details.name.is_empty())
        }
        _ => false,
    }
}
