//! Settings of the C library's allocator, for the whole process: freed memory is returned to the kernel.

/// Pieces of at least this size are mapped by themselves, and unmapped as soon as they are freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE_BYTES: i32 = 1024 * 1024;

/// Makes the allocator return large freed pieces of memory to the kernel. Must be called before any thread starts.
///
/// glibc by default raises its threshold to the largest piece that was ever freed (up to 32 MiB), and from then on
/// keeps such pieces in an arena of each thread. A host that handled a few large objects would keep a multiple of them.
/// Source: mallopt(3), `M_MMAP_THRESHOLD`. With another C library this does nothing.
pub fn return_large_allocations() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: only changes how later allocations are served, and touches no memory that is in use.
        #[expect(unsafe_code, reason = "the setting has no other interface")]
        let _is_set = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES) };
    }
}

/// Returns freed memory that the allocator keeps for later use to the kernel. Takes some milliseconds.
///
/// Source: malloc_trim(3). With another C library this does nothing.
pub fn return_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: touches no memory that is in use, and takes the allocator's own locks.
        #[expect(unsafe_code, reason = "the allocator has no other interface")]
        let _is_returned = unsafe { libc::malloc_trim(0) };
    }
}
