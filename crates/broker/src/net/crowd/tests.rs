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
fn an_address_may_have_a_bound_of_its_own_however_a_socket_spells_it() {
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
async fn connections_that_have_not_asked_go_for_newcomers_when_descriptors_run_out() {
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
async fn the_newest_of_the_source_that_has_most_go_for_those_of_others() {
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
async fn who_is_closed_for_others_and_comes_again_does_not_find_their_room() {
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
