//! Appending and reading allocate nothing, as long as no segment is full.

#![expect(unsafe_code, reason = "a counting allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use riverrun_queue::{AppendOptions, CreateOptions, Header, NewRecord, Queue, StartAt, TimestampMs};
use riverrun_records::{BatchBuilder, BatchOptions, UnverifiedBatch};

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count() -> usize {
    COUNT.with(Cell::get)
}

#[test]
fn appending_and_reading_allocate_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let queue = Queue::create(dir.path(), CreateOptions { segment_bytes: 4 << 20 }).unwrap();
    let mut appender = queue.appender(AppendOptions::default()).unwrap();
    let mut tailer = queue.tailer(StartAt::Start).unwrap();
    let headers = [Header { key: b"h", value: Some(b"v") }];
    let record = NewRecord { key: Some(b"k"), value: Some(b"v"), headers: &headers, timestamp: None };
    let mut others = BatchBuilder::new(BatchOptions::default());
    others.append(TimestampMs(1), None, Some(b"theirs"), &[]).unwrap();
    let others = others.build().unwrap();
    let others = UnverifiedBatch::only(&others).unwrap().verify().unwrap();
    let before = count();
    for _ in 0..1000 {
        appender.append(&[7; 512]).unwrap();
        appender.append_record(&record).unwrap();
        let mut reserved = appender.reserve(100).unwrap();
        reserved.fill(1);
        reserved.publish().unwrap();
        appender.append_whole(&others).unwrap();
        for _ in 0..4 {
            assert!(tailer.next().unwrap().is_some());
        }
    }
    assert_eq!(count() - before, 0);
    assert!(count() > 0, "allocations are counted");
}
