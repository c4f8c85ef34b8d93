//! Requests get memory for their responses, and connections are sent away for it.

use std::net::Ipv4Addr;

use futures_util::FutureExt as _;

use super::*;

const MIB: usize = 1 << 20;

fn memory() -> Arc<ResponseMemory> {
    ResponseMemory::new(128 * MIB)
}

/// A connection from the address that ends so.
fn from(memory: &Arc<ResponseMemory>, connection: u64, address: u8) -> Arc<Account> {
    memory.account(connection, Ipv4Addr::new(192, 0, 2, address).into())
}

fn is_granted(in_line: &mut InLine) -> bool {
    in_line.granted().now_or_never().is_some()
}

#[track_caller]
fn assert_nothing_is_held(memory: &ResponseMemory) {
    assert_eq!((memory.used_bytes(), memory.waiting(), memory.sources.lock().len()), (0, 0, 0));
    assert!(memory.line.lock().waiting.is_empty());
}

/// Lets time pass in steps of a look.
async fn look_for(memory: &ResponseMemory, time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        tokio::time::advance(LOOK_PERIOD).await;
        memory.look();
    }
}

fn is_evicted(account: &Account) -> bool {
    account.is_evicted.load(SeqCst)
}

#[test]
fn a_source_may_hold_as_much_as_it_leaves_free() {
    let memory = memory();
    let (greedy, other, late) = (from(&memory, 1, 1), from(&memory, 2, 1), from(&memory, 3, 2));
    let held: Vec<_> = (0..64).map(|_| greedy.reserve(MIB).expect("free")).collect();
    assert!(other.reserve(MIB).is_err(), "the source has its share, from whatever connection");
    let theirs: Vec<_> = (0..32).map(|_| late.reserve(MIB).expect("free")).collect();
    assert!(late.reserve(MIB).is_err());
    let least = from(&memory, 4, 3).reserve(16 * MIB).expect("some is left for whoever holds least");
    drop((held, theirs, least, greedy, other, late));
    assert_nothing_is_held(&memory);
}

#[test]
fn small_responses_are_always_kept_and_large_ones_up_to_a_bound() {
    let memory = memory();
    let account = from(&memory, 1, 1);
    let held: Vec<_> = (0..4).map(|_| account.charge(54 * MIB).expect("it exists")).collect();
    assert!(account.charge(54 * MIB).is_none() && account.charge(SMALL_BYTES + 1).is_none());
    let small = account.charge(SMALL_BYTES).expect("small");
    assert_eq!(memory.used_bytes(), 216 * MIB + SMALL_BYTES);
    assert!(memory.trouble().expect("spent").contains("for 192.0.2.1"));
    drop((held, small));
    assert_eq!(memory.trouble(), None);
    drop(account);
    assert_nothing_is_held(&memory);
}

#[test]
fn line_serves_the_source_holding_least_smallest_request_first() {
    let memory = memory();
    let (one, two, third) = (from(&memory, 1, 1), from(&memory, 2, 2), from(&memory, 3, 3));
    let ones = one.charge(2 * MIB).expect("it exists");
    let [full, six, twelve] = [110, 6, 12].map(|mib| third.charge(mib * MIB).expect("it exists"));
    let mut of_one = one.reserve(4 * MIB).expect_err("spent");
    let mut large = two.reserve(6 * MIB).expect_err("spent");
    let mut small = two.reserve(4 * MIB).expect_err("spent");
    assert_eq!(memory.waiting(), 3);
    drop(six);
    assert!(is_granted(&mut small) && !is_granted(&mut of_one) && !is_granted(&mut large));
    let smalls = small.take();
    drop(twelve);
    assert!(is_granted(&mut of_one) && !is_granted(&mut large), "the other one holds more now");
    let of_ones = of_one.take();
    drop(full);
    assert!(is_granted(&mut large));
    drop((ones, smalls, of_ones, large, one, two, third));
    assert_nothing_is_held(&memory);
}

#[test]
fn leaving_the_line_gives_back_a_grant_made_meanwhile() {
    let memory = memory();
    let account = from(&memory, 1, 1);
    let full = account.charge(128 * MIB).expect("it exists");
    let (left, granted) =
        (account.reserve(MIB).expect_err("spent"), account.reserve(MIB).expect_err("spent"));
    drop(left);
    drop(full);
    assert_eq!((memory.waiting(), memory.used_bytes()), (0, MIB));
    drop((granted, account));
    assert_nothing_is_held(&memory);
}

#[test]
fn request_for_more_than_all_memory_passes_alone() {
    let memory = memory();
    let (one, two) = (from(&memory, 1, 1), from(&memory, 2, 1));
    let first = one.reserve(usize::MAX).expect("alone");
    let mut second = two.reserve(usize::MAX).expect_err("not both");
    drop(first);
    assert!(is_granted(&mut second));
    drop((second, one, two));
    assert_nothing_is_held(&memory);
}

#[tokio::test(start_paused = true)]
async fn lagging_clients_go_largest_first_when_others_wait() {
    let memory = memory();
    let (large, larger, reader) = (from(&memory, 1, 1), from(&memory, 2, 1), from(&memory, 3, 1));
    let held = (large.charge(30 * MIB), larger.charge(40 * MIB), reader.charge(50 * MIB));
    look_for(&memory, Duration::from_secs(10)).await;
    assert!(!is_evicted(&larger), "nobody waits");
    let waiting = from(&memory, 4, 2).reserve(20 * MIB).expect_err("spent");
    for _ in 0..10 {
        reader.sent(MIB);
        look_for(&memory, LOOK_PERIOD).await;
    }
    assert_eq!([&large, &larger, &reader].map(|account| is_evicted(account)), [false, true, false]);
    larger.evicted().now_or_never().expect("it is woken");
    assert_eq!(memory.evicted(), 1);
    drop((held, waiting, large, larger, reader));
    assert_nothing_is_held(&memory);
}

#[tokio::test(start_paused = true)]
async fn client_that_takes_a_byte_now_and_then_lags_too() {
    let memory = memory();
    let (dripping, small) = (from(&memory, 1, 1), from(&memory, 2, 1));
    let held = (dripping.charge(130 * MIB), small.charge(SMALL_BYTES));
    for _ in 0..10 {
        dripping.sent(1000);
        look_for(&memory, LOOK_PERIOD).await;
    }
    assert!(is_evicted(&dripping) && !is_evicted(&small));
    drop((held, dripping, small));
    assert_nothing_is_held(&memory);
}

#[test]
fn fetch_takes_part_of_its_sources_free_bytes_or_a_minimum() {
    let memory = memory();
    let address = |last| Ipv4Addr::new(192, 0, 2, last).into();
    assert_eq!(memory.fetch_bytes_max(address(1)), 32 * MIB);
    let account = from(&memory, 1, 1);
    let held = account.charge(48 * MIB).expect("it exists");
    assert_eq!([1, 2].map(|last| memory.fetch_bytes_max(address(last))), [8 * MIB, 20 * MIB]);
    let more = account.charge(100 * MIB).expect("it exists");
    assert_eq!(memory.fetch_bytes_max(address(2)), SMALL_BYTES);
    drop((held, more));
}
