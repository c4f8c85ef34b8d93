//! Conditions that hold after the demo, decided from the records that each reader saw. Pure.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use riverrun_measure::text::number::count;

use super::flights::Flights;

/// One record as a reader saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// The row that it says it is; none if it does not say.
    pub(super) row: Option<usize>,
    pub(super) partition: i32,
    /// Whether key and value are those of the row.
    pub(super) is_unchanged: bool,
}

/// The records that one member of the group saw, in its order, and how long it took.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) arrivals: Vec<Arrival>,
    /// Nanoseconds from when a row was due to when it was read, of rows with a due time.
    pub(super) latencies_ns: Vec<u64>,
    /// Nanoseconds from the beginning to the last row of the fast part.
    pub(super) last_fast_ns: u64,
}

/// A statement and whether it is true.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct Check {
    pub(super) statement: String,
    pub(super) ok: bool,
    /// The actual value, if the statement is false.
    pub(super) found: Option<String>,
}

fn check(statement: String, ok: bool, found: impl FnOnce() -> String) -> Check {
    Check { statement, ok, found: (!ok).then(found) }
}

/// Every record was acknowledged.
pub(super) fn acknowledged(rows: usize, acked: usize) -> Check {
    let statement = format!("all {} rows were acknowledged", count(rows as u64));
    check(statement, acked == rows, || format!("{acked} were"))
}

/// The server has as many records as there are rows.
pub(super) fn held(rows: usize, held: i64) -> Check {
    let is_right = i64::try_from(rows) == Ok(held);
    check("the server holds each of them once".to_owned(), is_right, || format!("it holds {held} records"))
}

/// The group has committed everything.
pub(super) fn committed(lag: i64) -> Check {
    let statement = "the group has committed up to the end of every partition".to_owned();
    check(statement, lag == 0, || format!("{lag} records are not committed"))
}

/// The checks of what the readers saw.
pub(super) fn arrivals(flights: &Flights, seen: &[Seen]) -> Vec<Check> {
    vec![once(flights, seen), unchanged(seen), in_order(flights, seen), shared(seen)]
}

fn once(flights: &Flights, seen: &[Seen]) -> Check {
    let mut times = vec![0_u32; flights.len()];
    let mut strangers = 0;
    for arrival in all(seen) {
        match arrival.row.and_then(|row| times.get_mut(row)) {
            Some(times) => *times += 1,
            None => strangers += 1,
        }
    }
    let missing = times.iter().filter(|times| **times == 0).count();
    let repeated = times.iter().filter(|times| **times > 1).count();
    let ok = missing == 0 && repeated == 0 && strangers == 0;
    check("every row arrived exactly once".to_owned(), ok, || {
        format!("{missing} are missing, {repeated} came more than once, {strangers} are not of the file")
    })
}

fn unchanged(seen: &[Seen]) -> Check {
    let changed = all(seen).filter(|arrival| !arrival.is_unchanged).count();
    check("every byte of key and value is as it was sent".to_owned(), changed == 0, || {
        format!("{changed} rows were changed")
    })
}

/// Within a key, rows arrive in the order of the file, and all lie in one partition.
fn in_order(flights: &Flights, seen: &[Seen]) -> Check {
    let mut out_of_order = 0;
    let mut places = BTreeMap::<&Bytes, BTreeSet<i32>>::new();
    for reader in seen {
        let mut last = BTreeMap::<&Bytes, usize>::new();
        for arrival in &reader.arrivals {
            let Some((row, flight)) = arrival.row.and_then(|row| Some((row, flights.get(row)?))) else {
                continue;
            };
            places.entry(&flight.carrier).or_default().insert(arrival.partition);
            if last.insert(&flight.carrier, row).is_some_and(|before| before >= row) {
                out_of_order += 1;
            }
        }
    }
    let split = places.values().filter(|partitions| partitions.len() > 1).count();
    let statement = format!("for each of {} carriers, rows arrived in the order of the file", places.len());
    check(statement, out_of_order == 0 && split == 0, || {
        format!("{out_of_order} came out of order, {split} carriers lie in several partitions")
    })
}

/// Each partition with records was read by one member, so that the order within a member is the order of the key.
fn shared(seen: &[Seen]) -> Check {
    let mut readers = BTreeMap::<i32, BTreeSet<usize>>::new();
    for (reader, seen) in seen.iter().enumerate() {
        for arrival in &seen.arrivals {
            readers.entry(arrival.partition).or_default().insert(reader);
        }
    }
    let several = readers.values().filter(|readers| readers.len() > 1).count();
    check("every partition was read by one member of the group".to_owned(), several == 0, || {
        format!("{several} were read by several")
    })
}

fn all(seen: &[Seen]) -> impl Iterator<Item = &Arrival> {
    seen.iter().flat_map(|seen| &seen.arrivals)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: usize = 40;

    fn flights() -> Flights {
        Flights::load(ROWS).expect("the excerpt is whole")
    }

    /// Everything right: carriers by their first letter in one of three partitions, each read by one member.
    fn right(flights: &Flights) -> Vec<Seen> {
        let mut seen = vec![Seen::default(); 3];
        for (row, flight) in flights.rows().iter().enumerate() {
            let partition = flight.carrier[0] % 3;
            let arrival = Arrival { row: Some(row), partition: i32::from(partition), is_unchanged: true };
            seen[usize::from(partition)].arrivals.push(arrival);
        }
        seen
    }

    fn failed(flights: &Flights, seen: &[Seen]) -> Vec<String> {
        let checks = arrivals(flights, seen);
        checks.into_iter().filter(|check| !check.ok).map(|check| check.statement).collect()
    }

    #[test]
    fn right_results_pass_every_check() {
        let flights = flights();
        assert_eq!(failed(&flights, &right(&flights)), Vec::<String>::new());
        assert!(acknowledged(5, 5).ok && held(5, 5).ok && committed(0).ok);
    }

    #[test]
    fn a_planted_fault_fails_the_check_that_is_meant_to_find_it() {
        type Fault = fn(&mut Vec<Seen>);
        let faults: [(Fault, &str); 6] = [
            (|seen| seen[0].arrivals.truncate(1), "exactly once"),
            (|seen| seen[0].arrivals.extend_from_within(..1), "exactly once"),
            (|seen| seen[0].arrivals[0].row = None, "exactly once"),
            (|seen| seen[1].arrivals[0].is_unchanged = false, "as it was sent"),
            (|seen| seen.iter_mut().for_each(|seen| seen.arrivals.reverse()), "order of the file"),
            (
                |seen| {
                    let moved = seen[0].arrivals.split_off(1);
                    seen[1].arrivals.extend(moved);
                },
                "by one member",
            ),
        ];
        let flights = flights();
        for (fault, expected) in faults {
            let mut seen = right(&flights);
            fault(&mut seen);
            let failed = failed(&flights, &seen);
            assert!(failed.iter().any(|statement| statement.contains(expected)), "{expected}: {failed:?}");
        }
    }

    #[test]
    fn a_key_in_two_partitions_is_out_of_order() {
        let flights = flights();
        let mut seen = right(&flights);
        seen[0].arrivals[0].partition = 77;
        assert!(failed(&flights, &seen).iter().any(|statement| statement.contains("order of the file")));
    }

    #[test]
    fn counts_that_differ_fail() {
        assert!(!acknowledged(5, 4).ok);
        assert_eq!(held(5, 6).found.as_deref(), Some("it holds 6 records"));
        assert!(!committed(1).ok);
    }
}
