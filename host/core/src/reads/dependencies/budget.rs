//! Bounds the memory of the recorded reads of one group, and makes reads coarser beyond it.

use std::collections::BTreeSet;

use crate::reads::dependencies::read::Read;

/// The default memory limit for the reads of one group, in bytes: some 100,000 readers with a read each. A guest
/// chooses how often its reconciles read, and users choose the number of objects.
pub const GROUP_BYTES: usize = 128 * 1024 * 1024;

/// One reader may use this fraction of its group's bytes, so that a single object with very many reads does not make
/// the others' reads coarse.
const PARTS: usize = 16;

/// The memory of a reader beside its reads, in bytes: its entry in a map, and the first node of a B-tree, which has
/// room for eleven entries.
const READER_BYTES: usize = 600;

/// The memory of a read beside its texts, in bytes: its entries in the reader's tree and in the map of reads, and there
/// a node for the readers, which for most reads is one.
const READ_BYTES: usize = 800;

/// The budget of one group, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadBudget {
    pub(super) most: usize,
    pub(super) used: usize,
    /// The number of recorded reads.
    pub(super) reads: usize,
}

impl Default for ReadBudget {
    fn default() -> Self {
        Self {
            most: GROUP_BYTES,
            used: 0,
            reads: 0,
        }
    }
}

impl ReadBudget {
    /// Adds one more read of a reader, if there is room for it.
    pub(super) fn reserve_one(&mut self, read: &Read, is_first: bool) -> bool {
        let bytes = read_bytes(read) + if is_first { READER_BYTES } else { 0 };
        let has_room = self.used + bytes <= self.most;
        if has_room {
            self.used += bytes;
            self.reads += 1;
        }
        has_room
    }

    /// Releases the memory of a reader's reads.
    pub(super) fn release(&mut self, reads: &BTreeSet<Read>) {
        self.used = self.used.saturating_sub(bytes(reads));
        self.reads = self.reads.saturating_sub(reads.len());
    }

    /// The reads of a reader in the form to record. If there is no room for them in any form, the error has the coarse
    /// reads on which the whole group must depend.
    pub(super) fn reserve(&mut self, reads: BTreeSet<Read>) -> Result<BTreeSet<Read>, BTreeSet<Read>> {
        let exact = bytes(&reads);
        if exact <= self.most / PARTS && self.used + exact <= self.most {
            self.used += exact;
            self.reads += reads.len();
            return Ok(reads);
        }
        let coarse: BTreeSet<Read> = reads.iter().map(Read::coarse).collect();
        let bytes = bytes(&coarse);
        if self.used + bytes > self.most {
            return Err(coarse);
        }
        self.used += bytes;
        self.reads += coarse.len();
        Ok(coarse)
    }
}

/// The approximate memory of one reader's reads.
fn bytes(reads: &BTreeSet<Read>) -> usize {
    if reads.is_empty() {
        return 0;
    }
    READER_BYTES + reads.iter().map(read_bytes).sum::<usize>()
}

fn read_bytes(read: &Read) -> usize {
    let more = match read {
        Read::Get(_, name) | Read::Obstacle(_, name) => {
            name.name.len() + name.namespace.as_ref().map_or(0, |namespace| namespace.len())
        }
        // The query is indexed under each value of its anchor.
        Read::List(_, query) => {
            let values = query.anchor().map_or(0, |anchor| anchor.values.len());
            2 * query.text_bytes() + values * READ_BYTES
        }
        Read::Some(_) | Read::SomeObstacles(_) => 0,
    };
    READ_BYTES + more
}
