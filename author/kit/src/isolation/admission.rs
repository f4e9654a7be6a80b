//! Calls admission functions of an isolated plugin: defaulting, validation and conversion, with the circumstances of a
//! review.

use pilothouse_core::Failure;
use pilothouse_core::admission::field_errors::InvalidObject;
use pilothouse_core::admission::patch::with_defaults;
use pilothouse_core::plugin::contract::{FieldError, Phase, Review, UserInfo, ValidatorResult};
use pilothouse_core::status::reason::Reason;
use serde_json::Value;

use super::{
    About, Isolated,
    result::{Answered, Failed},
};

/// Circumstances of a review: the operation, and the user who requests it.
///
/// ```
/// use pilothouse_testkit::isolation::Admission;
/// use serde_json::json;
///
/// let old = json!({"spec": {"size": 1}});
/// let admission = Admission::update(&old).by("jane", ["developers"]).dry_run();
/// # let _ = admission;
/// ```
#[derive(Debug, Clone)]
pub struct Admission {
    phase: Phase,
    old_object: Option<Value>,
    user: Option<UserInfo>,
    dry_run: bool,
}

impl Admission {
    /// Review of the creation of the object.
    pub fn create() -> Self {
        Self {
            phase: Phase::Create,
            old_object: None,
            user: Some(UserInfo::default()),
            dry_run: false,
        }
    }

    /// Review of an update of this object.
    pub fn update(old_object: &Value) -> Self {
        Self {
            phase: Phase::Update,
            old_object: Some(old_object.clone()),
            ..Self::create()
        }
    }

    /// Review of the deletion of the object.
    pub fn delete() -> Self {
        Self {
            phase: Phase::Delete,
            ..Self::create()
        }
    }

    /// Circumstances of a reconcile; there is no request.
    pub fn reconcile() -> Self {
        Self {
            phase: Phase::Reconcile,
            user: None,
            ..Self::create()
        }
    }

    /// Sets the user of the request.
    #[must_use]
    pub fn by<G: Into<String>>(mut self, username: &str, groups: impl IntoIterator<Item = G>) -> Self {
        self.user = Some(UserInfo {
            username: username.to_owned(),
            groups: groups.into_iter().map(Into::into).collect(),
        });
        self
    }

    /// Makes it a dry run.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }
}

impl Isolated {
    /// Calls the defaulter. The answer is the part of the object that the plugin sees, with the defaults, or the
    /// refusal.
    pub fn default(
        &self,
        object: &Value,
        admission: &Admission,
    ) -> Result<Answered<Result<Value, Vec<FieldError>>>, Box<Failed>> {
        self.needs("defaulter", self.plugin.optional().defaulter)?;
        let about = self.about(object)?;
        let review = self.review(&about, &about.shown, admission)?;
        let answered = self.call(&about, |cache| self.plugin.apply_defaults(&review, &self.limits, cache))?;
        let answer = match &answered.answer {
            Ok(text) => Self::defaulted(&about, text).map(Ok),
            Err(errors) => Ok(Err(errors.clone())),
        };
        match answer {
            Ok(answer) => Ok(answered.map(|_| answer)),
            Err(failure) => Err(Box::new(answered.refused(failure))),
        }
    }

    /// Calls the validator: returns warnings, or the refusal.
    pub fn validate(&self, object: &Value, admission: &Admission) -> Result<Answered<ValidatorResult>, Box<Failed>> {
        self.needs("validator", self.plugin.optional().validator)?;
        let about = self.about(object)?;
        let review = self.review(&about, &about.shown, admission)?;
        self.call(&about, |cache| self.plugin.validate(&review, &self.limits, cache))
    }

    /// Calls the converter: returns the object in another version, or the error.
    pub fn convert(&self, object: &Value, api_version: &str) -> Result<Result<Value, String>, Box<Failed>> {
        self.needs("converter", self.plugin.optional().converter)?;
        let converted = self.plugin.convert(&object.to_string(), api_version, &self.limits);
        let failed = |failure| Box::new(Failed::before_the_call(failure));
        let converted = converted.result.map_err(failed)?;
        let parsed = converted.map(|text| serde_json::from_str(&text));
        match parsed {
            Ok(Ok(object)) => Ok(Ok(object)),
            Ok(Err(error)) => {
                let problem = format!("the converted object is not JSON: {error}");
                Err(failed(Failure::guest(Reason::InvalidAnswer, problem)))
            }
            Err(words) => Ok(Err(words)),
        }
    }

    /// Returns the object as the plugin sees it after its defaults, as far as it may set them.
    pub(super) fn defaulted(about: &About, answer: &str) -> Result<Value, Failure> {
        let shown: Value = serde_json::from_str(&about.shown)
            .map_err(|error| Failure::user(Reason::Invalid, format!("the object cannot be read: {error}")))?;
        let object = with_defaults(&shown, &shown, answer)?;
        Ok(object)
    }

    pub(super) fn review(&self, about: &About, shown: &str, admission: &Admission) -> Result<Review, Box<Failed>> {
        let Admission {
            phase,
            old_object,
            user,
            dry_run,
        } = admission;
        let old = old_object.as_ref().map(|old| self.about(old)).transpose()?;
        // Of an object that is deleted there is only what was.
        let (object, old_object) = match phase {
            Phase::Delete => (None, Some(shown.to_owned())),
            Phase::Create | Phase::Update | Phase::Reconcile => (Some(shown.to_owned()), old.map(|old| old.shown)),
        };
        Ok(Review {
            phase: *phase,
            kind: about.kind.clone(),
            object,
            old_object,
            configuration: self.configuration(),
            user_info: user.clone(),
            dry_run: *dry_run,
        })
    }

    /// Returns the failure of an object that the plugin refuses, as the host words it.
    pub(super) fn refusal(about: &About, shown: &str, errors: &[FieldError]) -> Failure {
        let object = serde_json::from_str(shown).unwrap_or_default();
        let refusal = InvalidObject::new(&about.kind, &about.name.name, errors, &object);
        Failure::user(Reason::Invalid, format!("{}; correct the object", refusal.message()))
    }

    pub(super) fn needs(&self, interface: &str, is_exported: bool) -> Result<(), Box<Failed>> {
        if is_exported {
            return Ok(());
        }
        let message = format!(
            "{} has no {interface}; it does not export that interface",
            self.component.display()
        );
        Err(Box::new(Failed::before_the_call(Failure::user(
            Reason::Failure,
            message,
        ))))
    }
}
