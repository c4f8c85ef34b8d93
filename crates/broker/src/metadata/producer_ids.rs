//! Producer ids from reserved blocks, so that a new producer waits for the disks once in a thousand times.

use std::ops::Range;

use parking_lot::Mutex;
use riverrun_types::ProducerId;

use super::draft::Draft;

/// Producer ids that one change reserves.
pub(crate) const PRODUCER_IDS_BLOCK: i64 = 1000;

/// Invariants: the ids are of a block that the metadata has reserved durably, and each is taken once. The lock is held for
/// no work.
#[derive(Debug, Default)]
pub(crate) struct ProducerIds(Mutex<Range<i64>>);

/// The id or block that a drafted change has got.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reserved {
    /// An id of an earlier block.
    Ready(ProducerId),
    /// A new block, which begins here.
    Block(i64),
}

impl ProducerIds {
    /// An id that was never given out before, if a block has some left.
    pub(crate) fn ready(&self) -> Option<ProducerId> {
        self.0.lock().next().map(ProducerId)
    }

    /// Takes an id, or reserves a block.
    pub(crate) fn reserve(&self, draft: &mut Draft<'_>) -> Reserved {
        let block = || Reserved::Block(draft.reserve_producer_ids(PRODUCER_IDS_BLOCK));
        self.ready().map_or_else(block, Reserved::Ready)
    }

    /// The id, once the change that has reserved it is durable.
    pub(crate) fn take(&self, reserved: Reserved) -> ProducerId {
        match reserved {
            Reserved::Ready(id) => id,
            Reserved::Block(first) => {
                *self.0.lock() = first + 1..first + PRODUCER_IDS_BLOCK;
                ProducerId(first)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use riverrun_env::sim::SimEnv;

    use super::*;
    use crate::metadata::Store;
    use crate::metadata::testing::options;

    #[test]
    fn producer_ids_are_never_given_out_twice() {
        let sim = SimEnv::new(1);
        let env = sim.env();
        let mut last = -1;
        for _ in 0..3 {
            let (store, ids) =
                (Store::open(&env, &options(&["/logs"])).expect("opens"), ProducerIds::default());
            for _ in 0..=PRODUCER_IDS_BLOCK {
                let reserved = store.change(|draft| ids.reserve(draft)).expect("durable");
                let ProducerId(id) = ids.take(reserved);
                assert!(id > last, "{id} after {last}");
                last = id;
            }
            drop(store);
            sim.fs.crash();
        }
    }
}
