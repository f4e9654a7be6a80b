//! Measures calls, and prints the figures.

use std::time::{Duration, Instant};

use crate::controllers::Case;

/// Calls of one side before it is the other's turn.
pub const TURN: usize = 250;

/// Calls of each side before anything is timed.
pub const WARM_UP: usize = 2000;

/// Count of sleeps and wakes of the plugin for each repetition.
const WAKES: usize = 50;

/// Calls that are not counted.
pub fn warm_up(case: &Case) {
    let cluster = case.pretended();
    for _ in 0..WARM_UP {
        std::hint::black_box(case.sandboxed());
        let _ = std::hint::black_box(case.native(&cluster));
    }
}

/// Measures one controller and prints its table.
pub fn print(case: &Case, calls: usize, repetitions: usize) {
    let (output, reads) = case.same_answers();
    let used = case.sandboxed().usage;
    let repetitions: Vec<_> = (0..repetitions).map(|_| repetition(case, calls)).collect();
    println!(
        "\n{}: {} B of JSON in, {output} B out, {reads} reads, {} KiB of linear memory",
        case.name,
        case.request.object.len(),
        used.memory_bytes / 1024
    );
    println!(
        "component {:.1} KiB, compiled {:.1} KiB",
        kibibytes(case.plugin.component_bytes()),
        kibibytes(case.plugin.code_bytes())
    );
    println!("{:34}{:>10}{:>10}{:>10}", "", "min", "median", "max");
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let row = |name: &str, value: &dyn Fn(&Repetition) -> f64| {
        let mut values: Vec<_> = repetitions.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let (least, middle, most) = (values[0], values[values.len() / 2], values[values.len() - 1]);
        println!("{name:34}{least:>10.2}{middle:>10.2}{most:>10.2}");
    };
    row("native p50, µs", &|repetition| micros(repetition.native.half));
    row("native p99, µs", &|repetition| micros(repetition.native.most));
    row("sandboxed p50, µs", &|repetition| micros(repetition.sandboxed.half));
    row("sandboxed p99, µs", &|repetition| micros(repetition.sandboxed.most));
    row("ratio of p50", &|repetition| {
        repetition.sandboxed.half.as_secs_f64() / repetition.native.half.as_secs_f64()
    });
    row("ratio of p99", &|repetition| {
        repetition.sandboxed.most.as_secs_f64() / repetition.native.most.as_secs_f64()
    });
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    row("sandboxed calls/s, one thread", &|repetition| repetition.one_thread);
    row(&format!("sandboxed calls/s, {threads} threads"), &|repetition| {
        repetition.all_threads
    });
    row("wake p50, µs", &|repetition| micros(repetition.wake.half));
    row("wake p99, µs", &|repetition| micros(repetition.wake.most));
}

#[expect(clippy::cast_precision_loss, reason = "a file is far smaller than 2^52 bytes")]
fn kibibytes(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}

struct Repetition {
    native: Times,
    sandboxed: Times,
    wake: Times,
    one_thread: f64,
    all_threads: f64,
}

/// p50 and p99.
struct Times {
    half: Duration,
    most: Duration,
}

impl Times {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self {
            half: times[times.len() / 2],
            most: times[times.len() * 99 / 100],
        }
    }
}

fn repetition(case: &Case, calls: usize) -> Repetition {
    let (mut ours, mut theirs) = (Vec::with_capacity(calls), Vec::with_capacity(calls));
    while ours.len() < calls {
        for _ in 0..TURN {
            let start = Instant::now();
            std::hint::black_box(case.sandboxed());
            ours.push(start.elapsed());
        }
        let cluster = case.pretended();
        for _ in 0..TURN {
            let start = Instant::now();
            let _ = std::hint::black_box(case.native(&cluster));
            theirs.push(start.elapsed());
        }
    }
    let wakes = (0..WAKES).map(|_| {
        case.plugin.sleep();
        case.sandboxed().usage.wake.unwrap()
    });
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Repetition {
        native: Times::of(theirs),
        sandboxed: Times::of(ours),
        wake: Times::of(wakes.collect()),
        one_thread: rate(case, calls, 1),
        all_threads: rate(case, calls, threads),
    }
}

/// Calls per second of so many threads.
fn rate(case: &Case, calls: usize, threads: usize) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..calls).for_each(|_| drop(case.sandboxed())));
        }
    });
    #[expect(clippy::cast_precision_loss, reason = "a number of calls is far below 2^52")]
    let calls = (calls * threads) as f64;
    calls / start.elapsed().as_secs_f64()
}
