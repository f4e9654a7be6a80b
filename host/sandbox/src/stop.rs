//! Translates a call that ended without an answer into a [`Failure`]: a broken limit, a trap, or an import's error.

use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Blame, Failure};
use pilothouse_metrics::GuestFault;
use wasmtime::{PoolConcurrencyLimitError, Trap};

use crate::outcome::{Limit, MAX_GUEST_WORDS, Stop, shorten};
use crate::state::CallState;

/// Returns the metrics' label of a failure that an answer contained; none if it is not the guest's fault.
pub(crate) fn fault_of_answer(failure: &Failure) -> Option<GuestFault> {
    fault(failure, GuestFault::Output)
}

/// Returns the label of a failure, with `limit` for a broken limit.
fn fault(failure: &Failure, limit: GuestFault) -> Option<GuestFault> {
    let fault = match failure.reason {
        Reason::GuestLimit => limit,
        Reason::GuestTrap => GuestFault::Trap,
        _ => GuestFault::Contract,
    };
    (failure.blame == Blame::Guest).then_some(fault)
}

/// Translates an error of wasmtime, given the state of the call, into a failure and the metrics' label for it.
pub(crate) fn classify(error: &wasmtime::Error, state: &CallState) -> (Failure, Option<GuestFault>) {
    let broken = |limit: Limit| (limit.failure(&state.limits), Some(limit.fault()));
    if let Some(stop) = error.downcast_ref::<Stop>() {
        return match stop {
            Stop::Limit(limit) => broken(*limit),
            Stop::Failure(failure) => (failure.clone(), fault(failure, GuestFault::Reads)),
            Stop::Unavailable(import) => {
                let problem = format!(
                    "the plugin calls {import} in describe or convert, where only log is answered; these may use what they \
                     are given alone"
                );
                (
                    Failure::guest(Reason::InvalidAnswer, problem),
                    Some(GuestFault::Contract),
                )
            }
            Stop::Inert(function) => trapped(
                &format!("calls {function}, which the inert set of WASI does not have: it gives access to nothing"),
                state,
            ),
            Stop::Exit(status) => trapped(
                &format!(
                    "ended itself with status {status} (wasi:cli/exit), and a call ends with an answer or a failure"
                ),
                state,
            ),
        };
    }
    if error.is::<PoolConcurrencyLimitError>() {
        let problem = format!("more calls at once than the sandbox has slots for ({error}); it is tried again");
        return (Failure::host(Reason::HostFault, problem), None);
    }
    if is_transfer(error) {
        return broken(Limit::Transfer);
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => return broken(Limit::Time),
        Some(Trap::StackOverflow) => return broken(Limit::Stack),
        Some(_) | None => {}
    }
    if let Some(limit) = state.growth.refused() {
        // Rust's allocator aborts when the memory does not grow, so this shows up as a trap like any other.
        return broken(limit);
    }
    let what = match error.downcast_ref::<Trap>() {
        Some(trap) => format!("trapped ({trap})"),
        None => format!(
            "broke the component model's rules ({})",
            shorten(&format!("{error:#}"), MAX_GUEST_WORDS)
        ),
    };
    trapped(&what, state)
}

/// End of the messages of Rust's standard library about threads, sockets, files and clocks on targets without them.
const UNSUPPORTED: &str = " on this platform";

/// Advice that is appended to such a message.
const CURE: &str = ", which has no threads, sockets, files, environment and clock: it reads objects and the time through `Cluster`, and \
                    answers with objects";

fn cure(message: &str) -> &'static str {
    if message.contains(UNSUPPORTED) { CURE } else { "" }
}

/// Returns the failure of a call that trapped, with the guest's last message.
fn trapped(what: &str, state: &CallState) -> (Failure, Option<GuestFault>) {
    let words = match (&state.last_error, state.wasi.last_words()) {
        (Some(message), _) => {
            let cure = cure(message);
            format!("the plugin {what}; fix the plugin{cure}: the last error that it logged is {message}")
        }
        (None, Some(message)) => {
            let message = shorten(&message, MAX_GUEST_WORDS);
            format!("the plugin {what}; fix the plugin: on standard error it wrote {message}")
        }
        (None, None) => format!("the plugin {what}; fix the plugin; it logged no error before"),
    };
    (Failure::guest(Reason::GuestTrap, words), Some(GuestFault::Trap))
}

/// Reports whether the guest passed too much data. Wasmtime's error has no public type; a test guards its wording.
fn is_transfer(error: &wasmtime::Error) -> bool {
    error
        .root_cause()
        .to_string()
        .contains("fuel allocated for hostcalls has been exhausted")
}

#[cfg(test)]
mod tests {
    use pilothouse_core::Limits;

    use super::*;

    #[test]
    fn shortened_text_keeps_whole_characters_and_its_limit() {
        assert_eq!(shorten("abcdef", 6), "abcdef");
        assert_eq!(shorten("abcdefg", 6), "abc...");
        assert_eq!(shorten("äöüäöü", 8), "äö...");
        assert_eq!(shorten("äöü", 1), "...");
    }

    #[test]
    fn a_trap_for_want_of_a_platform_names_what_takes_its_place() {
        for message in [
            "panicked at src/lib.rs:7:9:\ntime not implemented on this platform",
            "panicked at library/std/src/thread/functions.rs:131:29:\nfailed to spawn thread: Error { kind: Unsupported, message: \
             \"operation not supported on this platform\" }",
        ] {
            assert!(
                cure(message).contains("it reads objects and the time through `Cluster`"),
                "{message}"
            );
        }
        assert_eq!(cure("panicked at src/lib.rs:7:9:\nindex out of bounds"), "");
    }

    #[test]
    fn every_limit_is_named_as_a_limits_file_spells_it() {
        let limits = Limits::default();
        let spelled = serde_json::to_value(&limits).unwrap();
        for limit in [
            Limit::Time,
            Limit::Memory,
            Limit::Table,
            Limit::Stack,
            Limit::Transfer,
            Limit::OutputBytes,
            Limit::OutputObjects,
            Limit::Reads,
            Limit::ReadBytes,
        ] {
            let message = limit.failure(&limits).message;
            let (name, value) = message
                .split_once("limit ")
                .and_then(|(_, rest)| rest.split_once(';'))
                .and_then(|(named, _)| named.split_once(" is "))
                .unwrap();
            assert_eq!(spelled[name].to_string(), value, "{message}");
        }
    }
}
