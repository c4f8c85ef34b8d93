//! Decides which requests pass the gate: shares of the write cache.
//!
//! While the cache is half empty every request passes. Beyond that none takes the last of it: a holder of more than a multiple
//! of the free bytes waits, so that with any number of such holders something stays free for those that hold less (the dynamic
//! thresholds of Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). A holder is the connection, its
//! source, the partition or the log dir. A holder of little passes as long as there is room at all: a connection in the free
//! bytes, even where its source holds much, and a source also in a reserve that is for such sources only.
//!
//! Partitions and log dirs count the bytes that they hold. For a connection and a source they are estimated from above: all
//! bytes sent since the cache last lost all that it had then, as far as settling takes the oldest first. Pure: counts in,
//! answers out.

/// A connection, source or partition may hold so many times as much as is free: one alone takes seven eighths.
const SHARE_OF_FREE: u64 = 7;
/// A log dir may hold so many times as much as is free, where there are several: one that hangs leaves a quarter, which is
/// enough for another to be settled in runs that are worth it.
const DIR_SHARE_OF_FREE: u64 = 3;
/// This share of the cache is only for sources that hold little.
const RESERVE_SHARE: u64 = 8;
/// This share of the cache is little: a megabyte unless configured otherwise, which a producer of small records sends in
/// seconds, while the reserve takes 16 that are as large.
const LITTLE_SHARE: u64 = 128;

/// The write cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    /// Bytes that can be settled.
    pub(crate) used_bytes: u64,
    /// All bytes.
    pub(crate) held_bytes: u64,
    pub(crate) bytes_max: u64,
    /// All that has ever left.
    pub(crate) removed_bytes: u64,
}

/// A request that wants to pass, and the bytes that its sender may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) request_bytes: u64,
    /// Bytes that the connection may hold.
    pub(super) of_connection: u64,
    /// Bytes that its source may hold.
    pub(super) of_source: u64,
}

/// The bytes that the fullest partition and the fullest log dir of a request's records hold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places {
    pub(crate) partition_bytes: u64,
    /// Nothing where there is one log dir.
    pub(crate) dir_bytes: u64,
    /// Whether the disk of one of the dirs does not answer.
    pub(crate) hangs: bool,
}

/// Whether a request passes. Where it goes is looked up only if that decides.
pub(super) fn passes(load: Load, ask: Ask, places: impl FnOnce() -> Places) -> bool {
    if load.used_bytes <= load.bytes_max / 2 {
        return true;
    }
    let limit_bytes = load.bytes_max - load.bytes_max / RESERVE_SHARE;
    let free_bytes = limit_bytes.saturating_sub(load.used_bytes);
    let is_in_share = |held_bytes: u64| free_bytes > 0 && held_bytes <= SHARE_OF_FREE * free_bytes;
    let is_little = |held_bytes: u64| held_bytes + ask.request_bytes <= load.bytes_max / LITTLE_SHARE;
    let fits_in = |bytes: u64| load.used_bytes + ask.request_bytes <= bytes;
    let is_small = is_little(ask.of_connection)
        && (fits_in(limit_bytes) || (is_little(ask.of_source) && fits_in(load.bytes_max)));
    let has_share = is_in_share(ask.of_connection) && is_in_share(ask.of_source);
    if !is_small && !has_share {
        return false;
    }
    let places = places();
    let has_partition_room = is_in_share(places.partition_bytes) || is_little(places.partition_bytes);
    let has_dir_room = places.dir_bytes <= DIR_SHARE_OF_FREE * free_bytes || (is_small && !places.hangs);
    has_partition_room && has_dir_room
}

/// Terms, in each of which all that was in the cache at the end of the one before it leaves.
///
/// Invariants: nothing that came in before the last term began is in the cache, as far as the oldest leaves first.
#[derive(Debug, Default)]
pub(super) struct Terms {
    number: u64,
    /// It ends when so much has ever left.
    ends_at_bytes: u64,
}

impl Terms {
    /// The present term.
    pub(super) fn look(&mut self, load: Load) -> u64 {
        if load.removed_bytes >= self.ends_at_bytes {
            self.number += 1;
            self.ends_at_bytes = load.removed_bytes + load.held_bytes;
        }
        self.number
    }
}

/// The bytes that a connection or source has sent in the present term and the one before.
#[derive(Debug, Default)]
pub(super) struct Sent {
    term: u64,
    bytes: u64,
    bytes_before: u64,
}

impl Sent {
    /// The bytes of it that may be in the cache.
    pub(super) fn held_bytes(&mut self, term: u64, load: Load) -> u64 {
        self.turn_to(term);
        (self.bytes + self.bytes_before).min(load.held_bytes)
    }

    pub(super) fn add(&mut self, term: u64, bytes: u64) {
        self.turn_to(term);
        self.bytes += bytes;
    }

    fn turn_to(&mut self, term: u64) {
        // A caller may have read the term earlier and come later.
        if term > self.term {
            self.bytes_before = if term == self.term + 1 { self.bytes } else { 0 };
            (self.bytes, self.term) = (0, term);
        }
    }
}

#[cfg(test)]
mod tests {
    use riverrun_env::Random as _;
    use riverrun_env::sim::SimRandom;

    use super::*;

    const MAX: u64 = 128 << 10;
    const RESERVE: u64 = MAX / RESERVE_SHARE;
    const LITTLE: u64 = MAX / LITTLE_SHARE;

    fn any_below(random: &SimRandom, end: usize) -> usize {
        usize::try_from(random.next_u64() % end as u64).unwrap()
    }

    fn load(used_bytes: u64) -> Load {
        Load { used_bytes, held_bytes: used_bytes, bytes_max: MAX, removed_bytes: 0 }
    }

    fn ask(request_bytes: u64, of_connection: u64, of_source: u64) -> Ask {
        Ask { request_bytes, of_connection, of_source }
    }

    #[test]
    fn everybody_passes_while_half_of_the_cache_is_free() {
        let places = || Places { partition_bytes: MAX, dir_bytes: MAX, hangs: true };
        assert!(passes(load(MAX / 2), ask(MAX, MAX, MAX), places));
        assert!(!passes(load(MAX - RESERVE - 1), ask(MAX, MAX, MAX), places));
    }

    /// Each sends as much as it may, in whatever order, and nothing is ever settled.
    #[test]
    fn holder_of_little_passes_whatever_others_hold() {
        const REQUEST: u64 = 256;
        for seed in 0..200 {
            let random = SimRandom::new(seed);
            let greedy = 1 + any_below(&random, 40);
            let (mut held, mut used, mut refused) = (vec![0; greedy], 0, 0);
            while refused < 1000 {
                let who = any_below(&random, greedy);
                if passes(load(used), ask(REQUEST, held[who], held[who]), Places::default) {
                    held[who] += REQUEST;
                    used += REQUEST;
                    refused = 0;
                } else {
                    refused += 1;
                }
            }
            assert!(used <= MAX, "the bound holds");
            assert!(
                used <= MAX - RESERVE + greedy as u64 * LITTLE,
                "the reserve is not for those who hold more"
            );
            let mut little = 0;
            while little + REQUEST <= LITTLE && used + REQUEST <= MAX {
                assert!(
                    passes(load(used), ask(REQUEST, little, little), Places::default),
                    "{seed}: {little}"
                );
                (little, used) = (little + REQUEST, used + REQUEST);
            }
            assert!(!passes(load(MAX), ask(1, 0, 0), Places::default), "there is no room at all");
        }
    }

    #[test]
    fn a_small_connection_passes_beside_large_ones_of_its_source() {
        let used = MAX - RESERVE - RESERVE / 2;
        assert!(!passes(load(used), ask(1, used, used), Places::default));
        assert!(passes(load(used), ask(LITTLE, 0, used), Places::default));
        assert!(!passes(load(used), ask(LITTLE, 1, used), Places::default));
        assert!(!passes(load(MAX - RESERVE), ask(1, 0, used), Places::default), "the reserve is by source");
        assert!(passes(load(MAX - RESERVE), ask(1, 0, 0), Places::default));
    }

    #[test]
    fn one_log_dir_or_partition_does_not_take_all() {
        let used = MAX / 4 * 3;
        let places = |partition_bytes, dir_bytes, hangs| move || Places { partition_bytes, dir_bytes, hangs };
        let large = ask(LITTLE + 1, 0, 0);
        assert!(!passes(load(used), large, places(0, used, false)));
        assert!(passes(load(used), large, places(0, RESERVE, false)));
        assert!(passes(load(used), ask(1, 0, 0), places(0, used, false)), "it is small, and is settled soon");
        assert!(!passes(load(used), ask(1, 0, 0), places(0, used, true)));
        let used = MAX - RESERVE - RESERVE / 2;
        assert!(!passes(load(used), ask(1, 0, 0), places(used, 0, false)));
        assert!(passes(load(used), ask(1, 0, 0), places(RESERVE, 0, false)));
    }

    #[test]
    fn request_of_any_size_passes_while_its_sender_holds_nothing() {
        assert!(passes(load(MAX - RESERVE - 1), ask(MAX, 0, 0), Places::default));
    }

    /// The oldest leaves first.
    #[test]
    fn estimated_bytes_are_never_less_than_held_bytes() {
        for seed in 0..50 {
            let random = SimRandom::new(seed);
            let mut terms = Terms::default();
            let mut senders: [Sent; 3] = Default::default();
            let mut cache = std::collections::VecDeque::new();
            let (mut held_bytes, mut removed_bytes) = (0, 0);
            for _ in 0..2000 {
                let now = Load { used_bytes: held_bytes, held_bytes, bytes_max: MAX, removed_bytes };
                let term = terms.look(now);
                for (who, sender) in senders.iter_mut().enumerate() {
                    let of_sender = |(whose, bytes): &(usize, u64)| if *whose == who { *bytes } else { 0 };
                    let really: u64 = cache.iter().map(of_sender).sum();
                    assert!(sender.held_bytes(term, now) >= really);
                }
                if random.next_u64() % 5 < 3 {
                    let (who, bytes) = (any_below(&random, 3), random.next_u64() % 100);
                    senders[who].add(term, bytes);
                    cache.push_back((who, bytes));
                    held_bytes += bytes;
                }
                while any_below(&random, 2) == 0
                    && let Some((_, bytes)) = cache.pop_front()
                {
                    held_bytes -= bytes;
                    removed_bytes += bytes;
                }
            }
        }
    }

    #[test]
    fn sent_bytes_count_until_all_bytes_of_their_term_have_left() {
        let mut terms = Terms::default();
        let mut sent = Sent::default();
        let at = |held_bytes, removed_bytes| Load {
            used_bytes: held_bytes,
            held_bytes,
            bytes_max: MAX,
            removed_bytes,
        };
        sent.add(terms.look(at(0, 0)), 100);
        for (held, removed, expected) in [(100, 0, 100), (100, 99, 100), (50, 100, 0)] {
            let now = at(held, removed);
            assert_eq!(sent.held_bytes(terms.look(now), now), expected, "{held} {removed}");
        }
    }
}
