//! Owns how many commands a member may have proposed that are not accepted yet: what they take is memory.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Upper bound of the commands in flight.
const COMMANDS_MAX: usize = 1_024;
/// Upper bound of their bytes.
const BYTES_MAX: usize = 128 << 20;

const _: () = assert!(super::COMMAND_BYTES_MAX <= BYTES_MAX, "each command fits");

/// The line of commands that are to be in flight.
pub(super) struct InFlight {
    commands: Semaphore,
    bytes: Semaphore,
}

impl Default for InFlight {
    fn default() -> Self {
        Self { commands: Semaphore::new(COMMANDS_MAX), bytes: Semaphore::new(BYTES_MAX) }
    }
}

/// A command's share, until it is dropped.
pub(super) struct Share<'a> {
    _command: SemaphorePermit<'a>,
    _bytes: SemaphorePermit<'a>,
}

impl InFlight {
    /// Waits for the share of a command, which has at most [`COMMAND_BYTES_MAX`](super::COMMAND_BYTES_MAX). Those that came
    /// before get theirs before: a small one does not overtake a large one. If this is dropped, those behind it move on.
    pub(super) async fn enter(&self, bytes: usize) -> Share<'_> {
        let open = "neither semaphore is ever closed";
        let command = self.commands.acquire().await.expect(open);
        // One of no bytes at all would overtake.
        let bytes = u32::try_from(bytes.max(1)).expect("a command is small enough");
        let bytes = self.bytes.acquire_many(bytes).await.expect(open);
        Share { _command: command, _bytes: bytes }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;
    use std::pin::{Pin, pin};
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use bytes::Bytes;
    use openraft_rt::WatchReceiver as _;
    use parking_lot::Mutex;
    use riverrun_env::sim::World;

    use super::super::{COMMAND_BYTES_MAX, Quorum, QuorumOptions};
    use super::*;
    use crate::{Machine, Peer, Secret, Unreadable, VoterId};

    fn poll<'a>(entering: &mut Pin<&mut impl Future<Output = Share<'a>>>) -> Option<Share<'a>> {
        match entering.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(share) => Some(share),
            Poll::Pending => None,
        }
    }

    fn enter(in_flight: &InFlight, bytes: usize) -> Option<Share<'_>> {
        poll(&mut pin!(in_flight.enter(bytes)))
    }

    #[test]
    fn commands_in_flight_have_a_bounded_number() {
        let in_flight = InFlight::default();
        let mut shares: Vec<_> = (0..COMMANDS_MAX).map_while(|_| enter(&in_flight, 0)).collect();
        assert_eq!(shares.len(), COMMANDS_MAX);
        let mut next = pin!(in_flight.enter(1));
        assert!(poll(&mut next).is_none());
        shares.pop();
        assert!(poll(&mut next).is_some());
    }

    #[test]
    fn commands_in_flight_have_bounded_bytes() {
        let in_flight = InFlight::default();
        let mut shares: Vec<_> =
            (0..COMMANDS_MAX).map_while(|_| enter(&in_flight, COMMAND_BYTES_MAX)).collect();
        assert_eq!(shares.len(), 4);
        shares.pop();
        shares.push(enter(&in_flight, COMMAND_BYTES_MAX - 1).expect("it fits"));
        shares.push(enter(&in_flight, 0).expect("it fits exactly"));
        assert!(enter(&in_flight, 0).is_none());
    }

    #[test]
    fn small_commands_do_not_overtake_large_ones() {
        let in_flight = InFlight::default();
        let mut shares: Vec<_> =
            (0..4).map(|_| enter(&in_flight, COMMAND_BYTES_MAX - 1).expect("it fits")).collect();
        let mut large = pin!(in_flight.enter(5));
        let mut small = pin!(in_flight.enter(1));
        assert!(poll(&mut large).is_none());
        assert!(poll(&mut small).is_none());
        shares.clear();
        assert!(poll(&mut small).is_some());
        assert!(poll(&mut large).is_some());
    }

    #[test]
    fn one_that_is_dropped_while_it_waits_lets_others_pass() {
        let in_flight = InFlight::default();
        let shares: Vec<_> =
            (0..4).map(|_| enter(&in_flight, COMMAND_BYTES_MAX - 1).expect("it fits")).collect();
        let mut small = pin!(in_flight.enter(1));
        {
            let mut large = pin!(in_flight.enter(5));
            assert!(poll(&mut large).is_none());
            assert!(poll(&mut small).is_none());
        }
        assert!(poll(&mut small).is_some());
        drop(shares);
        assert_eq!(
            (in_flight.commands.available_permits(), in_flight.bytes.available_permits()),
            (COMMANDS_MAX, BYTES_MAX)
        );
    }

    struct Nothing;

    impl Machine for Nothing {
        fn apply(&mut self, _index: u64, command: &[u8]) -> Result<Bytes, Unreadable> {
            Ok(Bytes::copy_from_slice(command))
        }

        fn snapshot(&self) -> Bytes {
            Bytes::new()
        }

        fn restore(&mut self, _snapshot: &[u8]) -> Result<(), String> {
            Ok(())
        }
    }

    #[test]
    fn commands_wait_in_line_while_nothing_is_accepted() {
        const COMMANDS: u64 = 3_000;
        let world = World::new(1);
        let node = world.node("a");
        let (env, slot) = (node.env(), Arc::new(Mutex::new(None)));
        let voter = VoterId { node: 0, life: 1 };
        let options = QuorumOptions {
            cluster: [7; 16],
            secret: Secret::new([9; 32]),
            voter,
            listen: "a".to_owned(),
            directory: PathBuf::from("/quorum"),
            heartbeat: Duration::from_millis(50),
            snapshot_every: 10_000,
        };
        let started = Arc::clone(&slot);
        node.env().tasks.spawn(
            "start",
            Box::pin(async move {
                let quorum = Quorum::start(&env, options, Nothing).await.expect("it starts");
                let members = BTreeMap::from([(voter, Peer { address: "a".to_owned() })]);
                quorum.found(members).await.expect("founded");
                *started.lock() = Some(quorum);
            }),
        );
        world.run_for(Duration::from_secs(2));
        let quorum = slot.lock().clone().expect("it has started");
        assert!(quorum.leads().1);
        node.sim().fs.set_space(Some(0));
        let accepted = Arc::new(Mutex::new(Vec::new()));
        for number in 0..COMMANDS {
            let (quorum, accepted) = (quorum.clone(), Arc::clone(&accepted));
            let command = Bytes::copy_from_slice(&number.to_le_bytes());
            node.env().tasks.spawn(
                "propose",
                Box::pin(async move {
                    let taken = quorum.propose(command.clone()).await.expect("it is accepted in the end");
                    assert_eq!(taken.reply, command);
                    accepted.lock().push(taken.index);
                }),
            );
        }
        world.run_for(Duration::from_secs(5));
        assert_eq!(*accepted.lock(), [0; 0]);
        let last = quorum.inner.raft.metrics().borrow_watched().last_log_index.expect("there is one");
        assert!((COMMANDS_MAX as u64..COMMANDS_MAX as u64 + 10).contains(&last), "{last}");
        node.sim().fs.set_space(None);
        world.run_for(Duration::from_mins(1));
        let mut indexes = accepted.lock().clone();
        assert_eq!(indexes.len() as u64, COMMANDS);
        indexes.sort_unstable();
        indexes.dedup();
        assert_eq!(indexes.len() as u64, COMMANDS, "each has an index of its own");
    }
}
