//! A wall clock that is set is noticed by the timer, whatever deadlines there are.

use riverrun_types::TimestampMs;

use super::*;

const MONTH_MS: i64 = 30 * 24 * 3_600_000;

/// A server that has taken a commit.
async fn with_a_commit(sim: &SimEnv) -> (Arc<Broker>, watch::Sender<bool>) {
    let (broker, stop) = start(sim).await;
    create_topic(&broker).await;
    assert_eq!(commit(&broker, 7).await, ErrorCode::NONE);
    (broker, stop)
}

fn set_wall_by(sim: &SimEnv, ms: i64) {
    sim.clock.set_wall(TimestampMs(sim.env().clock.wall().0 + ms));
}

/// Waits until the log has the commit with about the time that the clock shows.
async fn until_it_is_written_anew(sim: &SimEnv, broker: &Arc<Broker>) {
    let slot = &broker.groups.host.open_slots().expect("made")[0];
    let age_ms = || {
        let state = slot.state.lock();
        let loaded = state.loaded().expect("loaded");
        let (.., offset) = loaded.machine.committed_offsets().next().expect("a commit");
        sim.env().clock.wall().0 - offset.committed_at.wall.0
    };
    let waits = async {
        while age_ms().abs() > 60_000 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, waits).await.expect("written anew");
}

#[tokio::test]
async fn a_clock_that_is_set_has_times_written_anew_at_once() {
    let sim = SimEnv::new(1);
    let (broker, _stop) = with_a_commit(&sim).await;
    for by_ms in [MONTH_MS, -MONTH_MS] {
        set_wall_by(&sim, by_ms);
        until_it_is_written_anew(&sim, &broker).await;
    }
}

#[tokio::test]
async fn a_stop_in_order_writes_times_anew_before_the_end() {
    let sim = SimEnv::new(1);
    let (broker, stop) = with_a_commit(&sim).await;
    // The timer has not looked at the clock since when it is told to stop.
    set_wall_by(&sim, MONTH_MS);
    stop.send(true).expect("heard");
    until_it_is_written_anew(&sim, &broker).await;
}
