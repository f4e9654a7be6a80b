//! Reads what this process uses of the machine, on Linux.

use std::fs;
use std::time::SystemTime;

use pilothouse_metrics::ProcessFigures;
use rustix::process::{Resource, getrlimit};

/// Clock ticks in a second, in which `/proc` gives processor times: 100 on all platforms of Linux that the host runs on
/// (`USER_HZ`, <https://man7.org/linux/man-pages/man7/time.7.html>).
const TICKS: f64 = 100.0;

/// The figures of this process, which started at a time; `None` on systems without `/proc`.
pub fn process_figures(started: SystemTime) -> Option<ProcessFigures> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    Some(ProcessFigures {
        cpu_seconds: cpu_seconds(&fs::read_to_string("/proc/self/stat").ok()?)?,
        resident_bytes: bytes(&status, "VmRSS:")?,
        virtual_bytes: bytes(&status, "VmSize:")?,
        open_descriptors: fs::read_dir("/proc/self/fd").ok()?.count() as u64,
        max_descriptors: getrlimit(Resource::Nofile).current,
        started: started
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs_f64(),
    })
}

/// Times of user and system, the fields 14 and 15 of `/proc/self/stat`. The second field, the name in parentheses, may have
/// spaces.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut times = rest.split_ascii_whitespace().skip(11);
    let mut seconds = || Some(times.next()?.parse::<f64>().ok()? / TICKS);
    Some(seconds()? + seconds()?)
}

/// A size of `/proc/self/status`, which has kibibytes.
fn bytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_memory_descriptors_and_time() {
        let now = SystemTime::now();
        let before = process_figures(now).expect("Linux has /proc");
        // More than a megabyte and less than a terabyte: the kernel says it in kibibytes.
        assert!((1 << 20..1 << 40).contains(&before.resident_bytes), "{before:?}");
        assert!(before.virtual_bytes >= before.resident_bytes);
        let file = fs::File::open("/proc/self/status").expect("it was read before");
        let after = process_figures(now).expect("Linux has /proc");
        assert!(after.cpu_seconds >= before.cpu_seconds, "{before:?}, {after:?}");
        assert!(after.open_descriptors >= 1 && after.max_descriptors.is_none_or(|most| after.open_descriptors <= most));
        drop(file);
        assert!(after.started > 1_700_000_000.0);
    }

    #[test]
    fn processor_time_is_found_behind_any_name() {
        let stat = "1 (a) b (c)) S 2 3 4 5 6 7 8 9 10 11 250 50 14 15";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("1 (a) S"), None);
    }
}
