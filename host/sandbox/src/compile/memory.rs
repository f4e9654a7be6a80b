//! Files that exist only in memory: a compiler's input and output, and compiled code that the disk cannot hold.

use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// Creates an empty file without a name. It disappears with its last handle, mappings included.
pub(crate) fn create() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    Ok(File::from(memfd_create("pilothouse-plugin", flags)?))
}

/// Creates a file with this content.
pub(crate) fn holding(bytes: &[u8]) -> io::Result<File> {
    let mut file = create()?;
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// Seals the file: it can no longer be changed through any handle.
pub(crate) fn seal(file: &File) -> io::Result<()> {
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    Ok(fcntl_add_seals(file, seals)?)
}

/// Returns a path by which this process can open the file while it has the handle.
pub(crate) fn path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_sealed_file_is_read_and_never_written_again() {
        let mut file = holding(b"code").unwrap();
        seal(&file).unwrap();
        assert_eq!(fs::read(path(&file)).unwrap(), b"code");
        assert!(file.write_all(b"other").is_err() && fs::write(path(&file), b"other").is_err());
        assert_eq!(fs::read(path(&file)).unwrap(), b"code");
    }
}
