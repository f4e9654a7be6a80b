//! Reads what this process uses of the machine, on Linux.

use std::fs;
use std::time::SystemTime;

use pilothouse_metrics::ProcessFigures;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// The figures of this process, which started at a time; `None` on systems without `/proc`.
pub fn process_figures(started: SystemTime) -> Option<ProcessFigures> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    #[expect(clippy::cast_precision_loss, reason = "a process that runs for 285 million years")]
    let cpu_seconds = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
    Some(ProcessFigures {
        cpu_seconds,
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
        assert!(after.cpu_seconds > before.cpu_seconds, "{before:?}, {after:?}");
        assert!(after.open_descriptors >= 1 && after.max_descriptors.is_none_or(|most| after.open_descriptors <= most));
        drop(file);
        assert!(after.started > 1_700_000_000.0);
    }
}
