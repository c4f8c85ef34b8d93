use futures_util::FutureExt as _;

use super::*;
use crate::config::BrokerConfig;

fn address(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn bounds(descriptors_max: usize) -> ConnectionBounds {
    let config = BrokerConfig::from_pairs([
        ("max.connections.per.ip", "100"),
        ("max.connections.per.ip.overrides", "192.0.2.200:2, [2001:db8::1]:0, 192.0.2.201:1"),
    ]);
    ConnectionBounds::new(&config.expect("valid").network, descriptors_max)
}

fn told(connections: &[Counted]) -> Vec<usize> {
    let is_told = |counted: &Counted| counted.standing.told_to_go().now_or_never().is_some();
    (0..connections.len()).filter(|&index| is_told(&connections[index])).collect()
}

#[test]
fn address_may_have_its_own_bound_however_a_socket_spells_it() {
    let bounds = bounds(usize::MAX);
    let counts = Arc::new(ConnectionCounts::default());
    let [busy, spelt, none, other] = ["192.0.2.200", "::ffff:192.0.2.200", "2001:db8::1", "192.0.2.201"]
        .map(|ip| ip.parse().expect("an address"));
    let _first = counts.admit(busy, &bounds).expect("the first of two");
    let second = counts.admit(spelt, &bounds).expect("the second of two");
    for ip in [busy, spelt, none] {
        assert_eq!(counts.admit(ip, &bounds).expect_err("full"), Refused::Bound);
    }
    let _other = counts.admit(other, &bounds).expect("the only one");
    assert_eq!(counts.admit(other, &bounds).expect_err("full"), Refused::Bound);
    drop(second);
    assert!(counts.admit(busy, &bounds).is_ok());
}

#[tokio::test(start_paused = true)]
async fn silent_connections_go_for_newcomers_without_descriptors() {
    let (counts, bounds) = (Arc::new(ConnectionCounts::default()), bounds(32));
    let open: Vec<_> = (0..32).map(|_| counts.admit(address(1), &bounds).expect("room").0).collect();
    open[0].standing.note_asked();
    assert_eq!(counts.admit(address(1), &bounds).expect_err("none is old"), Refused::Descriptors);
    tokio::time::advance(SILENT_TIME_MAX).await;
    let (_newcomer, leaving) = counts.admit(address(1), &bounds).expect("room is made");
    assert_eq!((leaving, told(&open)), (2, vec![1, 2]));
    assert!(counts.admit(address(1), &bounds).is_err(), "they have not gone yet");
    drop(open);
    assert_eq!(counts.open.lock().connections.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn newest_connections_of_the_largest_source_go_for_others() {
    let (counts, bounds) = (Arc::new(ConnectionCounts::default()), bounds(32));
    let open: Vec<_> =
        (0..32).map(|index| counts.admit(address(u8::from(index < 8)), &bounds).expect("room").0).collect();
    for counted in &open {
        counted.standing.note_asked();
    }
    tokio::time::advance(SILENT_TIME_MAX).await;
    assert_eq!(counts.admit(address(0), &bounds).expect_err("it has most"), Refused::Descriptors);
    let (newcomer, leaving) =
        counts.admit(address(1), &bounds).expect("room is made, whoever asked a moment ago");
    assert_eq!((leaving, told(&open)), (2, vec![30, 31]));
    drop((open, newcomer));
    let open = counts.open.lock();
    assert!(open.connections.is_empty() && open.by_ip.is_empty());
    assert!(open.by_source.is_empty() && open.by_size.is_empty());
}

#[tokio::test(start_paused = true)]
async fn client_closed_for_others_does_not_take_their_room_again() {
    let (counts, bounds) = (Arc::new(ConnectionCounts::default()), bounds(64));
    let come = |last| {
        let admitted = counts.admit(address(last), &bounds);
        admitted.inspect(|(counted, _)| counted.standing.note_asked())
    };
    let mut many: Vec<_> = (0..64).map(|_| come(1).expect("room").0).collect();
    let mut others = Vec::new();
    for last in 2..22 {
        assert_eq!(come(1).expect_err("it has most"), Refused::Descriptors);
        for which in 0..4 {
            let (counted, leaving) = come(last).expect("room is made, or was kept");
            assert_eq!(leaving, if which == 0 { 4 } else { 0 }, "for {which} of {last}");
            others.push(counted);
            // Each comes again at once.
            let told = told(&many);
            for index in told.into_iter().rev() {
                drop(many.remove(index));
            }
            assert_eq!(come(1).expect_err("it has most"), Refused::Descriptors);
        }
        assert_eq!(counts.open.lock().connections.len(), 64);
        // It has fewer with each round, and others have as many.
        tokio::time::advance(LOOK_PERIOD).await;
        if many.len() <= 8 {
            break;
        }
    }
    drop(others);
    let (_newcomer, _) = come(1).expect("there is room for all");
}

#[tokio::test(start_paused = true)]
async fn room_that_nobody_else_takes_is_anybodys_after_a_while() {
    let (counts, bounds) = (Arc::new(ConnectionCounts::default()), bounds(64));
    let mut many: Vec<_> = (0..64).map(|_| counts.admit(address(1), &bounds).expect("room").0).collect();
    let _other = counts.admit(address(2), &bounds).expect("room is made");
    for index in told(&many).into_iter().rev() {
        drop(many.remove(index));
    }
    assert!(counts.admit(address(1), &bounds).is_err());
    tokio::time::advance(KEPT_TIME).await;
    let back: Vec<_> = (0..3).map(|_| counts.admit(address(1), &bounds).expect("room").0).collect();
    assert_eq!((back.len(), counts.open.lock().connections.len()), (3, 64));
}

/// Connections that have asked, so many of each address.
fn admit(counts: &Arc<ConnectionCounts>, bounds: &ConnectionBounds, of: &[(u8, usize)]) -> Vec<Counted> {
    let lasts = of.iter().flat_map(|(last, count)| std::iter::repeat_n(*last, *count));
    lasts.map(|last| asked(counts.admit(address(last), bounds).expect("room").0)).collect()
}

fn asked(counted: Counted) -> Counted {
    counted.standing.note_asked();
    note_used([&counted]);
    counted
}

/// Something was asked for and answered just now.
fn note_used<'a>(connections: impl IntoIterator<Item = &'a Counted>) {
    for counted in connections {
        counted.standing.note_used(Instant::now());
        counted.standing.note_work(false);
    }
}

/// One of each of so many addresses.
fn one_each(addresses: u8) -> Vec<(u8, usize)> {
    (0..addresses).map(|last| (last, 1)).collect()
}

#[tokio::test(start_paused = true)]
async fn longest_idle_connections_go_where_each_source_has_one() {
    let (counts, bounds) = (Arc::new(ConnectionCounts::default()), bounds(32));
    let mut open = admit(&counts, &bounds, &one_each(32));
    for counted in open.iter().rev() {
        note_used([counted]);
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    assert_eq!(counts.admit(address(99), &bounds).expect_err("all are in use"), Refused::Descriptors);
    tokio::time::advance(IDLE_TIME_MIN).await;
    note_used(&open[30..]);
    for round in 0..3 {
        let (counted, leaving) = counts.admit(address(100 + round), &bounds).expect("room is made");
        assert_eq!((leaving, told(&open)), (2, vec![open.len() - 4, open.len() - 3]));
        for index in [open.len() - 4, open.len() - 4] {
            drop(open.remove(index));
        }
        open.insert(0, asked(counted));
        open.insert(0, asked(counts.admit(address(150 + round), &bounds).expect("room was made").0));
        tokio::time::advance(LOOK_PERIOD).await;
    }
}

#[tokio::test(start_paused = true)]
async fn connections_in_use_stay_while_many_sources_have_idle_ones() {
    for used in [2, FEW, 10, 16] {
        let (counts, bounds) = (Arc::new(ConnectionCounts::default()), bounds(32));
        let used = admit(&counts, &bounds, &[(100, used)]);
        let mut others = admit(&counts, &bounds, &one_each(32)[used.len()..]);
        tokio::time::advance(IDLE_TIME_MIN).await;
        for last in (101..).take(others.len()) {
            note_used(&used);
            let (counted, _) = counts.admit(address(last), &bounds).expect("room is made, or was");
            others.push(asked(counted));
            assert_eq!(told(&used), [0; 0], "of {}", used.len());
            for index in told(&others).into_iter().rev() {
                drop(others.remove(index));
            }
            tokio::time::advance(LOOK_PERIOD).await;
        }
        note_used(&used);
        let is_few = used.len() <= FEW;
        assert_eq!(counts.admit(address(99), &bounds).is_err(), is_few, "{}: now all are in use", used.len());
    }
}

#[tokio::test(start_paused = true)]
async fn connection_with_work_is_idle_only_once_it_is_stuck() {
    let (counts, bounds) = (Arc::new(ConnectionCounts::default()), bounds(32));
    let open = admit(&counts, &bounds, &one_each(32));
    open[0].standing.note_work(true);
    tokio::time::advance(Duration::from_millis(1)).await;
    open[1..].iter().for_each(|counted| counted.standing.note_used(Instant::now()));
    tokio::time::advance(STUCK_TIME_MIN / 2).await;
    assert_eq!(counts.admit(address(99), &bounds).expect_err("all are in work"), Refused::Descriptors);
    note_used(&open[3..4]);
    open[5].standing.note_used(Instant::now());
    tokio::time::advance(STUCK_TIME_MIN / 2).await;
    let (_newcomer, leaving) = counts.admit(address(99), &bounds).expect("room is made");
    assert_eq!((leaving, told(&open)), (2, vec![0, 3]), "one that rests, and one that is stuck");
}

#[tokio::test(start_paused = true)]
async fn idle_connections_of_a_large_source_go_before_its_newest() {
    let (counts, bounds) = (Arc::new(ConnectionCounts::default()), bounds(32));
    let others = admit(&counts, &bounds, &one_each(8));
    let many = admit(&counts, &bounds, &[(100, 24)]);
    tokio::time::advance(IDLE_TIME_MIN).await;
    note_used(many.iter().enumerate().filter(|(index, _)| *index != 7).map(|(_, counted)| counted));
    for (last, gone) in [(101, [7].as_slice()), (102, &[22, 23])] {
        let (_, leaving) = counts.admit(address(last), &bounds).expect("room is made");
        assert_eq!((leaving, told(&many).as_slice()), (gone.len(), gone));
        tokio::time::advance(LOOK_PERIOD).await;
    }
    assert_eq!(told(&others), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_has_all_finds_the_room_of_its_idle_ones() {
    let (counts, bounds) = (Arc::new(ConnectionCounts::default()), bounds(32));
    let open = admit(&counts, &bounds, &[(1, 32)]);
    tokio::time::advance(IDLE_TIME_MIN).await;
    note_used(&open[..31]);
    let (_newcomer, leaving) = counts.admit(address(1), &bounds).expect("room is made");
    assert_eq!((leaving, told(&open)), (1, vec![31]));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_has_many_closes_no_idle_ones_of_others() {
    let (counts, bounds) = (Arc::new(ConnectionCounts::default()), bounds(32));
    let others = admit(&counts, &bounds, &one_each(8));
    let many = admit(&counts, &bounds, &[(100, 24)]);
    tokio::time::advance(IDLE_TIME_MIN).await;
    note_used(&many);
    assert_eq!(counts.admit(address(100), &bounds).expect_err("it has most"), Refused::Descriptors);
    assert_eq!(told(&others), [0; 0]);
}
