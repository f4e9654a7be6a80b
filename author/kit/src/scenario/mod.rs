//! Scenario files: stories in YAML that run on the simulated and on the real cluster alike.

mod attempt;
mod checks;
mod failure;
mod file;
mod form;
mod left;
mod located;
mod manner;
pub mod matching;
mod mistake;
mod objects;
mod path;
mod quiet;
mod run;
mod variables;

pub use self::{
    checks::Unmet,
    failure::{ScenarioError, StepError},
    file::{Scenario, ScenarioFileError, Step},
    form::{
        Action, Apply, Check, ConditionCheck, Create, Delete, EventCheck, Expect, ExpectWrites, HostAction, Patch,
        PatchKind, Place, Propagation, Reference, Remember, Trigger, Wait, WorkloadStep,
    },
    located::Place as FilePlace,
    manner::Manner,
    mistake::Mistake,
    objects::Objects,
    path::Path,
    quiet::QuietError,
    run::{run, run_with},
};
