//! Behaviours that exhaust what the host limits: time, stack, memory, log, reads, and the size of the answer.

use std::hint::black_box;

use pilothouse_plugin::raw::types::{ListOptions, Outcome};
use pilothouse_plugin::raw::{cluster, log};

use crate::answers;
use crate::behaviour::{Behaviour, Given};

/// Repetitions of a behaviour that counts, unless the resource sets another number.
const OFTEN: usize = 1_000_000;

/// The size of a huge answer, in bytes, when the resource does not say.
const HUGE: usize = 100_000_000;

/// One more object than the design allows, when the resource does not say how many.
const MANY: usize = 10_001;

/// The answer, if the behaviour is one of these and leaves one.
pub fn of(behaviour: Behaviour, given: &Given) -> Option<Outcome> {
    Some(match behaviour {
        Behaviour::Trap => trap(),
        Behaviour::TrapAtFirst if given.attempt < 2 => trap(),
        Behaviour::TrapAtLimits if is_at_limits(given) => trap(),
        Behaviour::Panic => panic!("{}", given.text),
        Behaviour::Loop => spin(),
        Behaviour::Work => work(given),
        Behaviour::Recursion => recurse(given),
        Behaviour::MemoryBomb => fill_memory(),
        Behaviour::MemoryGrowth => grow_memory(given),
        Behaviour::LogFlood => flood_log(given),
        Behaviour::LogEachLevel => log_each_level(given),
        Behaviour::ManyReads => read_often(given),
        Behaviour::ManyFinds => find_often(given),
        Behaviour::HugeOutput => huge_output(given),
        Behaviour::ManyObjects => many_objects(given),
        _ => return None,
    })
}

/// Ends the call as a compiler's "this can't happen" does.
pub fn trap() -> ! {
    #[cfg(target_family = "wasm")]
    core::arch::wasm32::unreachable();
    #[cfg(not(target_family = "wasm"))]
    std::process::abort();
}

/// Returns `true` if the notes are as many and as long as the schema of the CRD allows.
fn is_at_limits(given: &Given) -> bool {
    given.notes.len() == 50 && given.notes.iter().any(|note| note.chars().count() == 10_000)
}

/// Never ends.
pub fn spin() -> ! {
    let mut rounds = 0_u64;
    loop {
        rounds = black_box(rounds.wrapping_add(1));
    }
}

/// Takes its time.
fn work(given: &Given) -> Outcome {
    for round in 0..given.count_or(OFTEN) {
        black_box(round);
    }
    answers::config_map(given)
}

/// Uses up the stack.
fn recurse(given: &Given) -> Outcome {
    /// Not a loop in disguise: the result is used after the call returns.
    fn deeper(depth: u64) -> u64 {
        let frame = black_box([depth; 16]);
        if depth == u64::MAX {
            depth
        } else {
            deeper(depth + 1) ^ frame[3]
        }
    }
    let depth = deeper(0);
    answers::config_map_with(given, &depth.to_string())
}

/// Allocates until the allocator gives up, which aborts.
fn fill_memory() -> ! {
    let mut blocks = Vec::new();
    loop {
        blocks.push(black_box(vec![0x5a_u8; 1 << 20]));
    }
}

/// Grows the memory until the host says no.
fn grow_memory(given: &Given) -> Outcome {
    #[cfg(target_family = "wasm")]
    while core::arch::wasm32::memory_grow::<0>(1) != usize::MAX {}
    answers::config_map(given)
}

/// Logs without end.
fn flood_log(given: &Given) -> Outcome {
    flood(given.count_or(OFTEN));
    answers::config_map(given)
}

/// Logs so many lines of a kilobyte each.
pub fn flood(lines: usize) {
    let fields = [("field".to_owned(), "v".repeat(500))];
    let message = "m".repeat(500);
    for _ in 0..lines {
        log::log(log::Level::Info, &message, &fields);
    }
}

/// One line of each level.
fn log_each_level(given: &Given) -> Outcome {
    use log::Level::{Debug, Error, Info, Trace, Warn};
    for level in [Trace, Debug, Info, Warn, Error] {
        log::log(level, &given.text, &[]);
    }
    answers::config_map(given)
}

/// Reads another absent object each time.
fn read_often(given: &Given) -> Outcome {
    for index in 0..given.count_or(OFTEN) {
        black_box(cluster::get(
            &answers::lower(crate::CONFIG_MAP),
            Some(&given.namespace),
            &format!("absent-{index}"),
        ));
    }
    answers::config_map(given)
}

/// Asks for everything again and again.
fn find_often(given: &Given) -> Outcome {
    let options = ListOptions {
        namespace: None,
        label_selector: None,
        field_selector: Vec::new(),
        limit: None,
    };
    for _ in 0..given.count_or(OFTEN) {
        black_box(cluster::list(&answers::lower(crate::CONFIG_MAP), &options));
    }
    answers::config_map(given)
}

/// One object that is larger than any API server takes.
fn huge_output(given: &Given) -> Outcome {
    answers::config_map_with(given, &"x".repeat(given.count_or(HUGE)))
}

/// More objects than anybody wants.
fn many_objects(given: &Given) -> Outcome {
    let objects = (0..given.count_or(MANY)).map(|index| {
        let name = format!("{}-{index}", given.name);
        answers::config_map_json(&name, &given.namespace, &serde_json::json!({"text": given.text}))
    });
    answers::outcome(objects)
}
