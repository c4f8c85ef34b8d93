//! The scrub's shell: when a pass begins, how fast it goes, and its counts.
//!
//! Each log dir has passes of its own. A pass goes over all partitions of the dir that have records, in their order, from a
//! random one on. A large partition is read in turns, between which the others have theirs. The log decides which bytes are
//! read, and what follows from damage.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_log::compaction::execute::CleanerControl;
use riverrun_log::compaction::pace::IoPace;
use riverrun_log::scrub::{order, rate};
use riverrun_types::Offset;

use crate::broker::Broker;
use crate::error::is_log_trouble;
use crate::log_limit::UPKEEP_TROUBLE;
use crate::stop_signal::{StopSignal, stopped};
use crate::supervisor::on_blocking_thread;
use crate::upkeep::{Kept, in_turns, kept_partitions};

/// Time from the start to the first pass, unless one interval is shorter: a server that is often started anew is scrubbed,
/// too.
const FIRST_PASS: Duration = Duration::from_mins(1);

/// Bytes that a look at a partition's directory, and opening its log, count for in the pace: so many small partitions take
/// their time like few large ones.
const LOOK_BYTES: u64 = 4 * 1024;
const OPEN_BYTES: u64 = 64 * 1024;

/// Bytes of a partition that are read in one turn, and the rest of their segment: with fewer, the log would be opened too
/// often.
const TURN_BYTES: u64 = 64 * 1024 * 1024;

/// Lent to the reads of one pass.
struct Control {
    broker: Arc<Broker>,
    pace: Mutex<IoPace>,
    stop: StopSignal,
}

impl CleanerControl for Control {
    fn on_io(&self, bytes: u64) {
        let mut debt = bytes;
        while !self.is_stopped() {
            let wait = self.pace.lock().charge(debt, self.broker.env.clock.monotonic());
            let Some(wait) = wait else { return };
            std::thread::sleep(wait);
            debt = 0;
        }
    }

    fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }
}

/// Scrubs a log dir again and again until `stop` turns true. `log.scrub.interval.ms` lies between the beginnings of two passes,
/// or more if one takes longer.
pub(crate) async fn run(broker: Arc<Broker>, dir: usize, interval: Duration, mut stop: StopSignal) {
    let mut pause = FIRST_PASS.min(interval);
    loop {
        tokio::select! {
            () = stopped(&mut stop) => return,
            () = tokio::time::sleep(pause) => {}
        }
        let begun = broker.env.clock.monotonic();
        let (for_pass, stop) = (Arc::clone(&broker), stop.clone());
        on_blocking_thread(move || pass(&for_pass, dir, interval, stop)).await;
        let took = broker.env.clock.monotonic().saturating_sub(begun);
        pause = interval.saturating_sub(took).max(Duration::from_millis(1));
    }
}

/// Goes over all partitions of a log dir once. Blocks for the disk and for the pace.
fn pass(broker: &Arc<Broker>, dir: usize, interval: Duration, stop: StopSignal) {
    let kept = kept_partitions(broker, dir);
    let total_bytes = kept.iter().map(|kept| kept.known.size_bytes).sum();
    let rate = rate(total_bytes, interval, rate_max(broker, dir, total_bytes));
    let pace = Mutex::new(IoPace::new(Some(rate)));
    let control = Control { broker: Arc::clone(broker), pace, stop };
    if scrub_in_turns(broker, order(kept, broker.env.random.next_u64()), &control) {
        broker.scrub.note_pass();
    }
}

/// A log dir's share of the rate of all passes: its share of all bytes.
fn rate_max(broker: &Broker, dir: usize, total_bytes: u64) -> u64 {
    let others = (0..broker.logs.dir_count()).filter(|other| *other != dir);
    let of_others: u64 =
        others.flat_map(|other| broker.logs.known(other)).map(|known| known.size_bytes).sum();
    let rate_max = u128::from(broker.config.upkeep.log_scrub_bytes_per_second);
    let part = rate_max * u128::from(total_bytes) / u128::from((total_bytes + of_others).max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// Reads one turn's bytes of each partition, until nothing is left; false if stopped before.
fn scrub_in_turns(broker: &Broker, kept: Vec<Kept>, control: &Control) -> bool {
    let kept = kept.into_iter().map(|kept| (kept, Offset::ZERO)).collect();
    in_turns(
        kept,
        || control.is_stopped(),
        |(kept, from)| {
            let next = scrub(broker, kept, *from, control);
            *from = next.unwrap_or(*from);
            next.is_some()
        },
    )
}

/// A turn of a partition; the place at which the next one begins, if something is left.
fn scrub(broker: &Broker, kept: &Kept, from: Offset, control: &Control) -> Option<Offset> {
    if kept.is_in_failed_dir(broker) {
        return None;
    }
    control.on_io(LOOK_BYTES);
    // Many partitions have no sealed segment: a log is opened only if it has one, or if a file of it is missing.
    let seems_whole = broker.logs.seems_whole(kept.known.id, kept.dir);
    if seems_whole && !broker.logs.has_sealed_segments(kept.known.id, kept.dir) {
        return None;
    }
    control.on_io(OPEN_BYTES);
    let partition = kept.open(broker)?;
    match partition.log.scrub(from, TURN_BYTES, control) {
        Ok(scrubbed) => {
            broker.scrub.note_bytes(scrubbed.bytes);
            return scrubbed.next;
        }
        Err(error) if is_log_trouble(&error) => {
            UPKEEP_TROUBLE.warn(|suppressed| {
                let (topic, partition) = (&*kept.topic.name, kept.known.id.index);
                let what = "the scrub found damage, or could not read";
                tracing::error!(topic, partition, %error, suppressed, "{what}");
            });
        }
        Err(_) => {}
    }
    None
}

#[cfg(test)]
mod tests {
    use riverrun_env::sim::SimEnv;
    use riverrun_types::TimestampMs;
    use tokio::sync::watch;

    use super::*;
    use crate::config::BrokerConfig;
    use crate::metadata::NewTopic;
    use crate::start::open_broker;
    use crate::testing::record;

    #[test]
    fn a_log_dir_that_has_failed_is_not_scrubbed_and_the_others_are() {
        let sim = SimEnv::new(1);
        let config = BrokerConfig::from_pairs([("data.dir", "/data"), ("log.dirs", "/one,/two")]);
        let broker = open_broker(sim.env(), config.expect("valid")).expect("starts");
        let configs = [("segment.bytes", "1048576"), ("durability", "4")];
        let configs = configs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let new = NewTopic { name: "t".to_owned(), partition_count: 2, configs };
        let topic =
            broker.catalog.store().change(|draft| draft.create_topic(new)).expect("changed").expect("made");
        for index in 0..2 {
            let partition = broker.partition(&topic, index).expect("there");
            for timestamp in 0..4 {
                let batch = record(TimestampMs(timestamp), &vec![7; 400_000]);
                partition.append(batch, broker.append_options()).expect("taken");
                partition.write_staged().expect("written");
            }
        }
        let (_stop, stop) = watch::channel(false);
        let pace = Mutex::new(IoPace::new(None));
        let control = Control { broker: Arc::clone(&broker), pace, stop };
        let scrub_all = || {
            let before = broker.scrub.bytes();
            for dir in 0..2 {
                assert!(scrub_in_turns(&broker, kept_partitions(&broker, dir), &control));
            }
            broker.scrub.bytes() - before
        };
        let of_both = scrub_all();
        sim.fs.kill_device(Some("/two".as_ref())).expect("there");
        crate::jobs::checkpoint(&broker);
        sim.fs.kill_device(None).expect("none");
        assert!(of_both > 0 && broker.logs.dir_failure(1).is_some());
        assert_eq!(scrub_all(), of_both / 2);
    }
}
