//! The memory that records and batches take of the buffer, and senders that wait for it.

use super::*;
use crate::producer::batch::BATCH_BYTES;
use crate::producer::listener::{CompletedRecords, DeliveryListener, Tagging};

#[tokio::test]
async fn waiting_for_room_ends_the_linger_of_buffered_batches() {
    // Enough for two batches, but not for another record of the second one's size.
    let accumulator = accumulator(|options| options.buffer_bytes = 2 * BATCH_BYTES + 1260);
    append(&accumulator, &record(0, 900));
    assert_eq!(partitions(&drain(&accumulator)).len(), 1, "a full batch");
    append(&accumulator, &record(1, 100));
    assert_eq!(partitions(&drain(&accumulator)), [0; 0]);
    let mut waiting = Box::pin(accumulator.reserve(150));
    assert!(waiting.as_mut().now_or_never().is_none());
    let batches = drain(&accumulator);
    assert_eq!(partitions(&batches), [1]);
    deliver(&accumulator, batches);
    assert!(waiting.now_or_never().is_some());
}

#[tokio::test]
async fn room_is_given_back_in_lumps_while_senders_wait() {
    const EACH: usize = BATCH_BYTES + 281;
    let accumulator = accumulator(|options| options.buffer_bytes = 16 * (4 * EACH + 100));
    for _ in 0..64 {
        append(&accumulator, &record(0, 180));
    }
    let mut waiting = Box::pin(accumulator.reserve(1700));
    assert!(waiting.as_mut().now_or_never().is_none());
    for _ in 0..4 {
        deliver(&accumulator, drain(&accumulator));
        assert!(waiting.as_mut().now_or_never().is_none());
    }
    assert_eq!(accumulator.freed_bytes(), 4 * EACH);
    deliver(&accumulator, drain(&accumulator));
    assert_eq!(accumulator.freed_bytes(), 0, "a sixteenth of the buffer");
    assert!(waiting.now_or_never().is_some());
    deliver(&accumulator, drain(&accumulator));
    assert_eq!(accumulator.freed_bytes(), 0, "no sender waits");
}

/// How many records of so many bytes have room at once, each with its share of a batch.
fn records_with_room(accumulator: &Accumulator, bytes: usize) -> usize {
    records_with_room_told(accumulator, bytes, || None::<Callback>)
}

/// The same with a callback or listener for each.
fn records_with_room_told<W: Enlist>(
    accumulator: &Accumulator,
    bytes: usize,
    mut waiter: impl FnMut() -> W,
) -> usize {
    let record = record(0, bytes);
    let reserved_bytes = record.size_bound_bytes();
    let mut count = 0;
    while accumulator.try_reserve(reserved_bytes).unwrap() {
        accumulator.append(&record, TimestampMs(1), reserved_bytes, &mut waiter()).unwrap();
        count += 1;
    }
    count
}

struct Unheard;

impl DeliveryListener for Unheard {
    type Tag = [u64; 8];

    fn completed(&self, _: &CompletedRecords<'_, Self::Tag>) {}
}

#[test]
fn callbacks_and_tags_count_against_the_buffer() {
    let buffer = || {
        accumulator(|options| {
            options.buffer_bytes = 1 << 20;
            options.batch_bytes = 16_384;
        })
    };
    let untold = records_with_room(&buffer(), 0);
    let listener = Arc::new(Unheard);
    let tagged = records_with_room_told(&buffer(), 0, || Tagging { listener: &listener, tag: Some([0; 8]) });
    let called = records_with_room_told(&buffer(), 0, || Some(Callback::new(|_| {})));
    // A tag takes 80 bytes here, a callback 32, and a record 7 of its own.
    assert!(tagged * 80 < 1 << 20 && called * 32 < 1 << 20, "{untold} {tagged} {called}");
    assert!(untold > 4 * called && called > tagged && tagged > 5000, "{untold} {tagged} {called}");
}

#[test]
fn buffer_counts_the_memory_of_batches_besides_records() {
    for (batch_bytes, bytes, least, most) in [
        (0, 10, 1000, 1600),
        // Compared with which a record of that length has only 17 or so.
        (16_384, 10, 50_000, 62_000),
        (16_384, 1000, 900, 1000),
    ] {
        let accumulator = accumulator(|options| {
            options.buffer_bytes = 1 << 20;
            options.batch_bytes = batch_bytes;
        });
        let count = records_with_room(&accumulator, bytes);
        assert!((least..most).contains(&count), "{batch_bytes}, {bytes}: {count}");
        let free_bytes = accumulator.space.free_bytes();
        accumulator.close();
        let mut taken_bytes = 0;
        while !accumulator.is_done() {
            let batches = drain(&accumulator);
            taken_bytes += batches.iter().map(Batch::memory_bytes).sum::<usize>();
            deliver(&accumulator, batches);
        }
        let uneven_bytes = batch_bytes / UNEVEN_PART;
        assert!(free_bytes + taken_bytes + uneven_bytes >= 1 << 20, "{free_bytes}, {taken_bytes}");
        // At most one batch is owed.
        assert!(taken_bytes < (1 << 20) + BATCH_BYTES + batch_bytes, "{taken_bytes}");
        assert_eq!(accumulator.space.free_bytes(), 1 << 20);
    }
}

#[test]
fn no_more_than_so_many_buffers_are_kept_however_small_they_are() {
    let accumulator = accumulator(|_| {});
    for _ in 0..2 * SPARE_BUFFERS_MAX {
        accumulator.keep(Vec::with_capacity(200).into());
    }
    assert_eq!(accumulator.spare().len(), SPARE_BUFFERS_MAX);
}
