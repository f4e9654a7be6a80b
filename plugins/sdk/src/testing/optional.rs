//! Calls the optional interfaces of a plugin, like the host.

use serde_json::Value;

use super::{Answer, FakeCluster, key_of};
use crate::admission::FieldError;
use crate::dispatch;
use crate::optional::{Finalization, HasConverter, HasDefaulter, HasFinalizer, HasValidator};
use crate::outcome::Failure;
use crate::raw::{admission, types};

/// Answer of a finalizer.
#[derive(Clone, Debug, PartialEq)]
pub enum Finalized {
    /// The resource may be deleted.
    Done,
    /// Not yet: these objects should still exist.
    Pending(Answer),
}

impl FakeCluster {
    /// Calls the finalizer for an object that is being deleted.
    ///
    /// # Panics
    ///
    /// Like [`reconcile`](Self::reconcile), and when the manifest names no finalizer for the object's kind.
    pub fn finalize<P: HasFinalizer>(&self, object: Value) -> Result<Finalized, Failure> {
        let (request, grants) = self.request::<P>(&object, 0);
        assert!(
            grants.finalizer.is_some(),
            "the manifest names no finalizer for the kind of this object, so the host would not ask: {object}"
        );
        let answer = self.granted(&grants, || dispatch::optional::finalize::<P>(&request, &self.cluster()));
        Ok(match answer? {
            Finalization::Done => Finalized::Done,
            Finalization::Pending(outcome) => {
                let answer = Answer::of(outcome)?;
                answer.desired.iter().for_each(|desired| grants.check_desired(desired));
                Finalized::Pending(answer)
            }
        })
    }

    /// Calls the finalizer like [`finalize`](Self::finalize), for a plugin with a defaulter: like the host, it fills in
    /// the defaults first. An object that the defaulter refuses is finalized unchanged.
    ///
    /// # Panics
    ///
    /// Like [`finalize`](Self::finalize) and [`apply_defaults`](Self::apply_defaults).
    pub fn finalize_with_defaults<P: HasFinalizer + HasDefaulter>(&self, object: Value) -> Result<Finalized, Failure> {
        let completed = self.completed::<P>(admission::Phase::Reconcile, &object);
        self.finalize::<P>(completed.unwrap_or(object))
    }

    /// Completes an object that is about to be created.
    ///
    /// # Panics
    ///
    /// Like [`reconcile`](Self::reconcile), and when completing it again would change it again.
    pub fn apply_defaults<P: HasDefaulter>(&self, object: Value) -> Result<Value, Vec<FieldError>> {
        self.completed::<P>(admission::Phase::Create, &object)
    }

    fn completed<P: HasDefaulter>(&self, phase: admission::Phase, object: &Value) -> Result<Value, Vec<FieldError>> {
        let once = self.defaults_of::<P>(phase, object)?;
        let twice = self.defaults_of::<P>(phase, &once)?;
        assert_eq!(twice, once, "the defaulter changes what it has completed");
        Ok(once)
    }

    fn defaults_of<P: HasDefaulter>(&self, phase: admission::Phase, object: &Value) -> Result<Value, Vec<FieldError>> {
        let review = self.review(phase, None, object);
        let grants = self.grants::<P>(object);
        let completed = self.granted(&grants, || {
            dispatch::optional::apply_defaults::<P>(&review, &self.cluster())
        })?;
        Ok(serde_json::from_str(&completed).expect("serde_json has written it"))
    }

    /// Validates an object that is about to be created; returns the warnings or the errors of its fields.
    ///
    /// # Panics
    ///
    /// Like [`reconcile`](Self::reconcile).
    pub fn validate<P: HasValidator>(&self, object: Value) -> Result<Vec<String>, Vec<FieldError>> {
        self.validate_review::<P>(admission::Phase::Create, None, &object)
    }

    /// Validates an object like [`validate`](Self::validate), before a reconcile: there is no request, and no user.
    pub fn validate_before_reconcile<P: HasValidator>(&self, object: Value) -> Result<Vec<String>, Vec<FieldError>> {
        self.validate_review::<P>(admission::Phase::Reconcile, None, &object)
    }

    /// Validates an object like [`validate`](Self::validate), for an update.
    pub fn validate_update<P: HasValidator>(&self, old: Value, object: Value) -> Result<Vec<String>, Vec<FieldError>> {
        self.validate_review::<P>(admission::Phase::Update, Some(&old), &object)
    }

    fn validate_review<P: HasValidator>(
        &self,
        phase: admission::Phase,
        old: Option<&Value>,
        object: &Value,
    ) -> Result<Vec<String>, Vec<FieldError>> {
        let review = self.review(phase, old, object);
        let grants = self.grants::<P>(object);
        self.granted(&grants, || dispatch::optional::validate::<P>(&review, &self.cluster()))
    }

    /// Converts an object to another version.
    pub fn convert<P: HasConverter>(&self, object: Value, api_version: &str) -> Result<Value, String> {
        let converted = dispatch::optional::convert::<P>(&object.to_string(), api_version, &self.cluster())?;
        Ok(serde_json::from_str(&converted).expect("serde_json has written it"))
    }

    fn review(&self, phase: admission::Phase, old: Option<&Value>, object: &Value) -> admission::Review {
        let ((group, version, kind), _, _) = key_of(object);
        admission::Review {
            phase,
            kind: types::GroupVersionKind { group, version, kind },
            object: Some(object.to_string()),
            old_object: old.map(ToString::to_string),
            configuration: self.configuration_json(),
            user_info: match phase {
                admission::Phase::Reconcile => None,
                _ => Some(admission::UserInfo {
                    username: "somebody".to_owned(),
                    groups: Vec::new(),
                }),
            },
            dry_run: false,
            extensions: "{}".to_owned(),
        }
    }
}
