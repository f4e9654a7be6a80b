//! Gives back memory that only repeats the content of a file: the program's own code and constants.
//!
//! Most of a host's memory is code that it needed only to start: parsers, the command line, TLS, wasmtime's loading.
//! The kernel maps it in steps of 64 KiB around executed code, and never reclaims it while there is memory to spare.

/// Drops the pages of the program's code and constants that do not differ from its file. Pages that are used again are
/// read from the page cache, in microseconds. Returns the number of mapped bytes that were dropped, resident or not.
///
/// Does nothing on kernels that cannot report which pages differ from the file.
pub fn give_back_code() -> usize {
    #[cfg(target_os = "linux")]
    return linux::give_back_code();
    #[cfg(not(target_os = "linux"))]
    return 0;
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::path::Path;

    use rustix::mm::{Advice, madvise};

    /// Part of the address space.
    #[derive(Debug, PartialEq, Eq)]
    pub(super) struct Range {
        pub(super) start: usize,
        pub(super) length: usize,
    }

    pub(super) fn give_back_code() -> usize {
        let (Ok(program), Ok(maps)) = (fs::read_link("/proc/self/exe"), fs::read_to_string("/proc/self/smaps")) else {
            return 0;
        };
        let mut given_back = 0;
        for Range { start, length } in unchanged(&maps, &program) {
            // SAFETY: the range is mapped from the program's own file for as long as the process lives, and nobody can
            // write to it; the kernel reports that no page of it differs from the file. So each page that is dropped
            // here is read from the file again, unchanged, when it is next touched.
            #[expect(unsafe_code, reason = "the kernel drops what it can read again")]
            let done = unsafe {
                let start = std::ptr::with_exposed_provenance_mut(start);
                madvise(start, length, Advice::LinuxDontNeed)
            };
            if done.is_ok() {
                given_back += length;
            }
        }
        given_back
    }

    /// Returns the read-only mappings of a file in `maps` (`/proc/PID/smaps`) that do not differ from the file.
    pub(super) fn unchanged(maps: &str, file: &Path) -> Vec<Range> {
        let mut unchanged = Vec::new();
        let mut mapping = None;
        for line in maps.lines() {
            if let Some(header) = Header::parse(line) {
                let is_candidate = header.path == file.as_os_str().as_encoded_bytes() && !header.is_writable;
                mapping = is_candidate.then_some(header.range);
            } else if let Some(kibibytes) = line.strip_prefix("Anonymous:") {
                // Relocated constants are not writable either, but they are the process's own.
                let is_unchanged = kibibytes.trim() == "0 kB";
                unchanged.extend(mapping.take().filter(|_| is_unchanged));
            }
        }
        unchanged
    }

    /// First line of a mapping's entry: `START-END PERMISSIONS OFFSET DEVICE INODE   PATH`.
    struct Header<'a> {
        range: Range,
        is_writable: bool,
        path: &'a [u8],
    }

    impl<'a> Header<'a> {
        fn parse(line: &'a str) -> Option<Self> {
            let mut rest = line;
            let mut field = || {
                let (field, after) = rest.split_once(' ').unwrap_or((rest, ""));
                rest = after.trim_start();
                field
            };
            let (start, end) = field().split_once('-')?;
            let (start, end) = (
                usize::from_str_radix(start, 16).ok()?,
                usize::from_str_radix(end, 16).ok()?,
            );
            let is_writable = field().contains('w');
            let (_offset, _device, _inode) = (field(), field(), field());
            Some(Self {
                range: Range {
                    start,
                    length: end.checked_sub(start)?,
                },
                is_writable,
                path: rest.as_bytes(),
            })
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::linux::{Range, unchanged};
    use super::*;

    const MAPS: &str = "\
00001000-00003000 r--p 00000000 fe:00 7 /bin/the host
Rss:                   8 kB
Anonymous:             0 kB
VmFlags: rd mr mw me
00003000-00006000 r-xp 00002000 fe:00 7 /bin/the host
Anonymous:             0 kB
00006000-00007000 r--p 00005000 fe:00 7 /bin/the host
Anonymous:             4 kB
00007000-00008000 rw-p 00006000 fe:00 7 /bin/the host
Anonymous:             0 kB
00008000-00009000 rw-p 00000000 00:00 0 [heap]
Anonymous:             0 kB
0000a000-0000b000 r-xp 00000000 fe:00 8 /lib/other
Anonymous:             0 kB
0000b000-0000c000 r--p 00000000 00:00 0
Anonymous:             0 kB
";

    #[test]
    fn only_unmodified_read_only_file_pages_are_released() {
        let range = |start, length| Range { start, length };
        assert_eq!(
            unchanged(MAPS, Path::new("/bin/the host")),
            [range(0x1000, 0x2000), range(0x3000, 0x3000)]
        );
    }

    #[test]
    fn a_program_goes_on_and_takes_less() {
        let resident = || {
            let maps = fs::read_to_string("/proc/self/smaps").unwrap();
            let program = fs::read_link("/proc/self/exe").unwrap();
            let mut is_ours = false;
            let mut kibibytes = 0;
            for line in maps.lines() {
                if let Some(rss) = line.strip_prefix("Rss:").filter(|_| is_ours) {
                    kibibytes += rss.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
                } else if line.contains(" r-xp ") || line.contains(" rw-p ") || line.contains(" r--p ") {
                    is_ours = line.ends_with(program.to_str().unwrap()) && line.contains(" r-xp ");
                }
            }
            kibibytes
        };
        // Run code that makes an engine, so that there are pages to drop.
        let directory = tempfile::tempdir().unwrap();
        let make = || crate::Sandbox::new(crate::SandboxOptions::new(directory.path(), crate::Compiler::InProcess));
        make().unwrap();
        let before = resident();
        assert!(give_back_code() > 0);
        let after = resident();
        assert!(after < before / 2, "{before} KiB before, {after} KiB after");
        make().unwrap();
    }
}
