//! The component's allocator: uses the memory that the linker left free before it grows the memory.
//!
//! Every `memory.grow` costs the host two `mprotect` calls under a lock that all its threads share, so a call that
//! needs only the initial memory scales over cores and one that grows it does not. Rust's own allocator always grows.

use core::alloc::Layout;
use core::arch::wasm32::{memory_grow, memory_size};

use talc::base::Talc;
use talc::base::binning::Binning;
use talc::cell::TalcSyncCell;
use talc::source::Source;
use talc::wasm::WasmBinning;

/// The size of a page of WebAssembly memory, in bytes.
const PAGE: usize = 64 * 1024;

/// Least number of pages per growth, so that a plugin that outgrows its initial memory grows seldom.
const GROWTH: usize = 16;

/// Overhead of an allocation beyond its size and alignment, in bytes: the tags at both ends of a heap.
const OVERHEAD: usize = 64;

#[global_allocator]
static MEMORY: TalcSyncCell<Pages, WasmBinning> = TalcSyncCell::new_wasm(Pages { end: Heap::Unclaimed });

unsafe extern "C" {
    /// End of data and stack; placed by the linker, only its address is meaningful.
    static __heap_base: u8;
}

/// The pages of the component's only memory.
#[derive(Debug)]
struct Pages {
    end: Heap,
}

/// State of the allocator.
#[derive(Clone, Copy, Debug)]
enum Heap {
    /// Nothing is allocated yet.
    Unclaimed,
    /// The end of the heap, as the allocator rounded it.
    Until(core::ptr::NonNull<u8>),
    /// The initial memory was too small for the allocator's own data; the next heap begins in new pages.
    None,
}

// SAFETY: nothing in here allocates; memory is only handed over by `claim` and `extend`, and each byte once: first the
// range between `__heap_base` and the end of the initial memory, then the pages that `memory.grow` has added.
unsafe impl Source for Pages {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        if let Heap::Unclaimed = talc.source.end {
            let base = (&raw const __heap_base).cast_mut();
            let size = memory_size::<0>() * PAGE - base as usize;
            // SAFETY: the linker puts nothing above `__heap_base`, and no other allocator is linked.
            talc.source.end = unsafe { talc.claim(base, size) }.map_or(Heap::None, Heap::Until);
            if let Heap::Until(_) = talc.source.end {
                return Ok(());
            }
        }
        let needed = (layout.size() + layout.align() + OVERHEAD).div_ceil(PAGE);
        let (start, pages) = grow(needed)?;
        let base = core::ptr::without_provenance_mut::<u8>(start * PAGE);
        let end = base.wrapping_add(pages * PAGE);
        talc.source.end = match talc.source.end {
            // SAFETY: the heap ends where the new pages begin, and those are nobody else's.
            Heap::Until(old) if old.as_ptr() == base => Heap::Until(unsafe { talc.extend(old, end) }),
            // A plugin may call `memory.grow` itself: the pages in between are its own, so a new heap begins.
            // SAFETY: the new pages are nobody else's.
            Heap::Until(_) | Heap::Unclaimed | Heap::None => {
                unsafe { talc.claim(base, pages * PAGE) }.map_or(Heap::None, Heap::Until)
            }
        };
        Ok(())
    }
}

/// Adds at least `needed` pages and returns the first one's index, and their number.
fn grow(needed: usize) -> Result<(usize, usize), ()> {
    // Close to the host's limit a generous request is refused where the minimum would pass.
    for pages in [needed.max(GROWTH), needed] {
        let start = memory_grow::<0>(pages);
        if start != usize::MAX {
            return Ok((start, pages));
        }
    }
    Err(())
}
