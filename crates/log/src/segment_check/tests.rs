//! How far a check goes at once, and which part of the bytes that it reads it believes.

use riverrun_records::layout::HEADER_BYTES;

use super::*;
use crate::scan::tests::{BASE, BytesFile, alternating, header};

/// Less than is read at once.
const STEP_BYTES: u64 = 64 * 1024;

fn check_of(bytes: &[u8]) -> SegmentCheck {
    let facts = Facts {
        base: Offset(BASE),
        size_bytes: bytes.len() as u64,
        next_base: None,
        gapless_from: None,
        walks_records: false,
    };
    SegmentCheck::new(facts, IndexContent::default())
}

/// The places of the flaws, and the offsets that they hit.
fn places(check: &SegmentCheck) -> Vec<(u64, Offset, Option<Offset>)> {
    check.flaws.iter().map(|flaw| (flaw.position, flaw.from, flaw.until)).collect()
}

#[test]
fn a_check_can_be_left_in_the_midst_of_a_search() {
    let (rest, count) = alternating(1 << 20);
    let mut bytes = header(BASE + 1_000_000, HEADER_BYTES + rest.len()).to_vec();
    bytes.extend(rest);
    let file = BytesFile::new(bytes.clone(), usize::MAX);
    let mut at_once = check_of(&bytes);
    assert!(at_once.run(&file, u64::MAX).unwrap());
    let (mut in_steps, mut waits) = (check_of(&bytes), 0);
    // The first batch is read to its claimed end before it turns out to be none.
    assert!(!in_steps.run(&file, STEP_BYTES).unwrap());
    loop {
        let before = (in_steps.position(), in_steps.flaws.len(), file.read_bytes());
        let is_done = in_steps.run(&file, STEP_BYTES).unwrap();
        // A step of the search, and the window that the next header is in.
        assert!(file.read_bytes() - before.2 <= 2 * 256 * 1024);
        waits += usize::from((before.0, before.1) == (in_steps.position(), in_steps.flaws.len()));
        if is_done {
            break;
        }
    }
    assert!(waits >= 2, "left {waits} times while the next batch behind the damage was unknown");
    assert_eq!(places(&in_steps), places(&at_once));
    assert_eq!((in_steps.counts, in_steps.end()), (at_once.counts, at_once.end()));
    assert_eq!(in_steps.counts.batches, count as u64);
}
