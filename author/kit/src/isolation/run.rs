//! Handles one object in the host's order: defaults, validation, then the reconcile, or the finalizer of an object that
//! is being deleted.

use pilothouse_core::answer::CheckedAnswer;
use pilothouse_core::plugin::contract::Finalization;
use pilothouse_sandbox::Usage;
use serde_json::Value;

use super::{About, Admission, Answered, Failed, Isolated, LogLine, Reads, Reconciled};

/// Result of one object.
#[derive(Debug, Clone)]
pub struct Run {
    /// The answer. Empty for an object that the finalizer lets go. Reads, log and time are those of all calls.
    pub reconciled: Reconciled,
    /// Answer of the finalizer for an object that is being deleted; none for any other object.
    pub finalizer: Option<FinalizerAnswer>,
    /// The object with the plugin's defaults; none if it has no defaulter.
    pub defaulted: Option<Value>,
    /// Warnings of the validator.
    pub warnings: Vec<String>,
    /// Description of the controller's filter, where it does not select the object: then the plugin is not called, and
    /// the answer is empty.
    pub unselected: Option<String>,
}

/// Answer of a finalizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalizerAnswer {
    /// The object may go once all that it owned is gone.
    Done,
    /// Not yet: the desired objects should still exist.
    Pending,
}

/// Reads, log and usage of the calls so far.
#[derive(Default)]
struct Spent {
    reads: Reads,
    log: Vec<LogLine>,
    usage: Usage,
}

impl Spent {
    fn add<A>(&mut self, answered: Answered<A>) -> A {
        let Answered {
            answer,
            reads,
            log,
            usage,
        } = answered;
        self.reads.extend(reads);
        self.log.extend(log);
        let Usage {
            time,
            wake,
            memory_bytes,
            reads,
            read_bytes,
            log_bytes,
            log_lines_dropped,
        } = usage;
        self.usage.time += time;
        self.usage.wake = self.usage.wake.or(wake);
        self.usage.memory_bytes = self.usage.memory_bytes.max(memory_bytes);
        self.usage.reads += reads;
        self.usage.read_bytes += read_bytes;
        self.usage.log_bytes += log_bytes;
        self.usage.log_lines_dropped += log_lines_dropped;
        answer
    }

    fn before(self, failed: &mut Failed) {
        failed.reads.extend(self.reads);
        let mut log = self.log;
        log.append(&mut failed.log);
        failed.log = log;
    }
}

impl Isolated {
    /// Handles an object as the host does: calls the defaulter and the validator, as far as the plugin has them, and
    /// then reconciles. An object that is being deleted (`metadata.deletionTimestamp`) is finalized instead, without
    /// validation. An object that the controller's filter does not select is skipped.
    pub fn run(&self, primary: &Value) -> Result<Run, Box<Failed>> {
        let mut spent = Spent::default();
        if let Some(filter) = self.unselected(primary) {
            let Spent { reads, log, usage } = spent;
            return Ok(Run {
                reconciled: Reconciled {
                    answer: CheckedAnswer::default(),
                    reads,
                    log,
                    usage,
                },
                finalizer: None,
                defaulted: None,
                warnings: Vec::new(),
                unselected: Some(filter),
            });
        }
        match self.run_spending(primary, &mut spent) {
            Ok((answer, finalizer, defaulted, warnings)) => {
                let Spent { reads, log, usage } = spent;
                Ok(Run {
                    reconciled: Reconciled {
                        answer,
                        reads,
                        log,
                        usage,
                    },
                    finalizer,
                    defaulted,
                    warnings,
                    unselected: None,
                })
            }
            Err(mut failed) => {
                spent.before(&mut failed);
                Err(failed)
            }
        }
    }

    fn run_spending(&self, primary: &Value, spent: &mut Spent) -> Result<Parts, Box<Failed>> {
        let is_deleted = primary
            .pointer("/metadata/deletionTimestamp")
            .is_some_and(|it| !it.is_null());
        if is_deleted {
            self.needs("finalizer", self.plugin.optional().finalizer)?;
        }
        let mut about = self.about(primary)?;
        let defaulted = self.admit_defaults(&mut about, is_deleted, spent)?;
        let mut warnings = Vec::new();
        if !is_deleted && about.asked.validator {
            let review = self.review(&about, &about.shown, &Admission::reconcile())?;
            let answered = self.call(&about, |cache| self.plugin.validate(&review, &self.limits, cache))?;
            match spent.add(answered) {
                Ok(warned) => warnings = warned,
                Err(errors) => {
                    let refusal = Self::refusal(&about, &about.shown, &errors);
                    return Err(Box::new(Failed::before_the_call(refusal)));
                }
            }
        }
        let request = self.request(about.shown.clone());
        let answered = if is_deleted {
            self.call(&about, |cache| self.plugin.finalize(&request, &self.limits, cache))?
        } else {
            let answered = self.call(&about, |cache| self.plugin.reconcile(&request, &self.limits, cache))?;
            answered.map(Finalization::Pending)
        };
        let (pending, finalizer) = match &answered.answer {
            Finalization::Done => {
                spent.add(answered);
                return Ok((
                    CheckedAnswer::default(),
                    Some(FinalizerAnswer::Done),
                    defaulted,
                    warnings,
                ));
            }
            Finalization::Pending(outcome) => (outcome.clone(), is_deleted.then_some(FinalizerAnswer::Pending)),
        };
        let Reconciled {
            answer,
            reads,
            log,
            usage,
        } = self.check(&about, answered.map(|_| pending))?;
        spent.add(Answered {
            answer: (),
            reads,
            log,
            usage,
        });
        Ok((answer, finalizer, defaulted, warnings))
    }

    /// Calls the defaulter, if there is one, and shows the plugin the object with the defaults from then on. An object
    /// that is being deleted and that the defaulter refuses is finalized as it is: an invalid one must remain
    /// deletable.
    fn admit_defaults(
        &self,
        about: &mut About,
        is_deleted: bool,
        spent: &mut Spent,
    ) -> Result<Option<Value>, Box<Failed>> {
        if !about.asked.defaulter {
            return Ok(None);
        }
        let failed = |failure| Box::new(Failed::before_the_call(failure));
        let review = self.review(about, &about.shown, &Admission::reconcile())?;
        let answered = self.call(about, |cache| self.plugin.apply_defaults(&review, &self.limits, cache))?;
        let defaulted = match spent.add(answered) {
            Ok(text) => Self::defaulted(about, &text).map_err(failed)?,
            Err(_) if is_deleted => return Ok(None),
            Err(errors) => return Err(failed(Self::refusal(about, &about.shown, &errors))),
        };
        about.shown = defaulted.to_string();
        Ok(Some(defaulted))
    }
}

/// The parts of a [`Run`] that are not counted.
type Parts = (CheckedAnswer, Option<FinalizerAnswer>, Option<Value>, Vec<String>);
