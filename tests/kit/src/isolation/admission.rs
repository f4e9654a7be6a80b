//! Owns the calls of an isolated plugin that come before an object is stored, or between its versions: defaulting,
//! validation, conversion. Leaves what is around a call to `mod`.

use pilothouse_core::{
    Failure,
    contract::{FieldError, Phase, Review, UserInfo, ValidatorResult},
    reason::Reason,
};
use serde_json::Value;

use super::{
    About, Isolated,
    result::{Answered, Failed},
};

impl Isolated {
    /// Has the plugin fill in defaults: of an object that is made, or changed from `old`. The call is made twice, because
    /// the same inputs must give the same answer. The plugin must export `defaulter`.
    pub fn apply_defaults(
        &self,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<Answered<Result<Value, Vec<FieldError>>>, Box<Failed>> {
        let about = self.about(object)?;
        let review = self.review(&about, old)?;
        let answered = self.twice(&about, |cache| self.plugin.apply_defaults(&review, &self.limits, cache))?;
        let answer = answered.answer.as_ref().map_err(Clone::clone);
        match answer.map(|text| serde_json::from_str(text)) {
            Ok(Err(error)) => {
                let problem = format!("the object with defaults is not JSON: {error}");
                Err(Box::new(
                    answered.refused(Failure::guest(Reason::InvalidAnswer, problem)),
                ))
            }
            Ok(Ok(object)) => Ok(answered.map(|_| Ok(object))),
            Err(errors) => Ok(answered.map(|_| Err(errors))),
        }
    }

    /// Has the plugin validate an object that is made, or changed from `old`; twice as well. The plugin must export
    /// `validator`.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Result<Answered<ValidatorResult>, Box<Failed>> {
        let about = self.about(object)?;
        let review = self.review(&about, old)?;
        self.twice(&about, |cache| self.plugin.validate(&review, &self.limits, cache))
    }

    /// Has the plugin bring an object into another version, or says why it cannot. The plugin must export `converter`.
    pub fn convert(&self, object: &Value, api_version: &str) -> Result<Result<Value, String>, Box<Failed>> {
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

    fn review(&self, about: &About, old: Option<&Value>) -> Result<Review, Box<Failed>> {
        let old = old.map(|old| self.about(old)).transpose()?;
        Ok(Review {
            phase: if old.is_some() { Phase::Update } else { Phase::Create },
            kind: about.kind.clone(),
            object: Some(about.shown.clone()),
            old_object: old.map(|old| old.shown),
            configuration: self.configuration(),
            user_info: Some(UserInfo::default()),
            dry_run: false,
        })
    }
}
