//! Memory that the cgroups of this process have left. A container that reaches its limit loses its host, so a compiler
//! has to reach a limit of its own before.
//!
//! Files: <https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files> and, for version 1,
//! <https://docs.kernel.org/admin-guide/cgroup-v1/memory.html>.

use std::fs;
use std::path::{Path, PathBuf};

/// Mount point of the cgroups, and the file that lists the ones of this process.
const MOUNT: &str = "/sys/fs/cgroup";
const OWN: &str = "/proc/self/cgroup";

/// File names of one cgroup version.
struct Files {
    limit: &'static str,
    usage: &'static str,
    /// Field of `memory.stat`: page cache that the kernel drops under memory pressure.
    droppable: &'static str,
}

const VERSION_1: Files = Files {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    droppable: "total_inactive_file",
};

const VERSION_2: Files = Files {
    limit: "memory.max",
    usage: "memory.current",
    droppable: "inactive_file",
};

/// Returns the bytes that this process and its children may still take; none if nothing limits them.
pub(crate) fn memory_left() -> Option<u64> {
    left(Path::new(MOUNT), &fs::read_to_string(OWN).unwrap_or_default())
}

/// Returns the least memory left in an enclosing cgroup. `own` has a line `HIERARCHY:CONTROLLERS:PATH` per hierarchy.
fn left(mount: &Path, own: &str) -> Option<u64> {
    let of = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        if controllers.is_empty() {
            return least(mount, path, &VERSION_2);
        }
        let is_memory = controllers.split(',').any(|controller| controller == "memory");
        is_memory.then(|| least(&mount.join("memory"), path, &VERSION_1))?
    };
    own.lines().filter_map(of).min()
}

fn least(mount: &Path, path: &str, files: &Files) -> Option<u64> {
    // In a container the mount is often the container's own group, while the path is relative to the machine's root:
    // then its parts do not exist here, and the mount alone counts.
    let below: PathBuf = Path::new(path).components().skip(1).collect();
    let groups = below.ancestors().map(|part| mount.join(part));
    groups.filter_map(|group| left_of(&group, files)).min()
}

fn left_of(group: &Path, files: &Files) -> Option<u64> {
    let number = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
    // An absent limit is written as `max`, or as a number that no machine has.
    let limit = number(files.limit).filter(|limit| *limit < 1 << 60)?;
    let usage = number(files.usage).unwrap_or_default();
    let statistics = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let droppable = statistics.lines().find_map(|line| {
        let (name, bytes) = line.split_once(' ')?;
        (name == files.droppable).then(|| bytes.trim().parse::<u64>().ok())?
    });
    Some(limit.saturating_sub(usage.saturating_sub(droppable.unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(mount: &Path, path: &str, files: &[(&str, &str)]) {
        fs::create_dir_all(mount.join(path)).unwrap();
        for (name, text) in files {
            fs::write(mount.join(path).join(name), format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn the_tightest_group_around_counts() {
        let mount = tempfile::tempdir().unwrap();
        let mount = mount.path();
        group(mount, "", &[("memory.stat", "anon 5")]);
        group(
            mount,
            "pods",
            &[
                ("memory.max", "1000"),
                ("memory.current", "900"),
                ("memory.stat", "anon 1\ninactive_file 300"),
            ],
        );
        group(mount, "pods/own", &[("memory.max", "max"), ("memory.current", "700")]);
        assert_eq!(left(mount, "0::/pods/own\n"), Some(400));
        group(mount, "pods/own", &[("memory.max", "800")]);
        assert_eq!(left(mount, "0::/pods/own\n"), Some(100));
        assert_eq!(left(mount, "0::/elsewhere\n"), None);
        assert_eq!(left(mount, ""), None);
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_root() {
        let mount = tempfile::tempdir().unwrap();
        group(
            mount.path(),
            "",
            &[("memory.max", "1073741824"), ("memory.current", "73741824")],
        );
        assert_eq!(left(mount.path(), "0::/\n"), Some(1_000_000_000));
    }

    #[test]
    fn version_1_is_read_too() {
        let mount = tempfile::tempdir().unwrap();
        let mount = mount.path();
        let files = [
            ("memory.limit_in_bytes", "1000"),
            ("memory.usage_in_bytes", "1000"),
            ("memory.stat", "cache 1\ntotal_inactive_file 10"),
        ];
        group(mount, "memory", &files);
        let own = "11:pids:/x\n10:cpu,memory:/kubepods/pod/own\n0::/x\n";
        assert_eq!(left(mount, own), Some(10));
        group(mount, "memory", &[("memory.limit_in_bytes", "9223372036854771712")]);
        assert_eq!(left(mount, own), None);
    }
}
