//! Passes a checked manifest to pilothouse-description, which finds contradictions in it.

use pilothouse_description::{
    Controller as Described, Crd, Description, Field, Kind as DescribedKind, Touch as Touched,
};
pub use pilothouse_description::{Exports, Finding, Severity, accepted};

use crate::kubernetes::key::Kind;
use crate::kubernetes::path::FieldPath;
use crate::plugin::manifest::{Access, BroughtCrd, CheckedManifest, Controller, Filter, Touch, TouchScope};

/// All findings, errors first.
pub fn check(checked: &CheckedManifest, exports: Exports) -> Vec<Finding> {
    let CheckedManifest { manifest, crds } = checked;
    pilothouse_description::check(&described(&manifest.controllers, crds, exports))
}

/// The same without the check that the CRDs have the status fields, which the host makes for any CRD.
pub fn check_parts(controllers: &[Controller], crds: &[BroughtCrd], exports: Exports) -> Vec<Finding> {
    pilothouse_description::check_parts(&described(controllers, crds, exports))
}

fn described<'a>(controllers: &'a [Controller], crds: &'a [BroughtCrd], exports: Exports) -> Description<'a> {
    Description {
        controllers: controllers.iter().map(controller).collect(),
        crds: crds.iter().map(BroughtCrd::described).collect(),
        exports,
    }
}

fn controller(controller: &Controller) -> Described<'_> {
    let Controller {
        name,
        kind,
        optional: _,
        fields,
        filter,
        finalizer,
        defaulter,
        validator,
        admission,
        failure_reason: _,
        touches,
        options: _,
    } = controller;
    Described {
        name,
        kind: described_kind(kind),
        fields: fields.iter().map(field).collect(),
        has_filter: *filter != Filter::default(),
        has_finalizer: finalizer.is_some(),
        defaulter: *defaulter,
        validator: *validator,
        has_admission: admission.is_some(),
        touches: touches.iter().map(touched).collect(),
    }
}

fn touched(touch: &Touch) -> Touched<'_> {
    let Touch {
        kind,
        access,
        fields,
        scope,
        ..
    } = touch;
    Touched {
        kind: described_kind(kind),
        fields: fields.iter().map(field).collect(),
        is_owned: access.contains(&Access::Owned),
        is_anywhere: *scope == TouchScope::Any,
    }
}

fn field(path: &FieldPath) -> Field<'_> {
    Field {
        text: path.to_string().into(),
        steps: path.steps(),
    }
}

fn described_kind(kind: &Kind) -> DescribedKind<'_> {
    let Kind { group, version, kind } = kind;
    DescribedKind { group, version, kind }
}

impl BroughtCrd {
    /// The CRD in the form of pilothouse-description.
    pub fn described(&self) -> Crd<'_> {
        let Self {
            name,
            group,
            kind,
            definition,
        } = self;
        Crd {
            name,
            group,
            kind,
            definition,
        }
    }
}

#[cfg(test)]
mod tests;
