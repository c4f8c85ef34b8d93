//! Answers that nobody reads, and requests whose clients have left.

use std::time::Duration;

use riverrun_protocol::ElectLeadersRequest;
use riverrun_protocol::elect_leaders_request::TopicPartitions;

use super::{Attack, MANY};
use crate::attack::attacker::{From, Shot, Tally, Target};
use crate::attack::wire::frame;

/// Connections that ask.
const WORKERS: usize = 4;

/// A server that gives a client two seconds meets one that comes again just before.
const STAY: Duration = Duration::from_millis(1900);

/// The receive buffer of who does not read.
const NARROW: usize = 4096;

/// Clients that ask for much, read nothing, and come again.
pub(super) struct Unread;

impl Attack for Unread {
    fn name(&self) -> &'static str {
        "unread"
    }

    fn about(&self) -> &'static str {
        "4 clients ask for 54 MB each, read nothing, and come again after 1.9 s"
    }

    fn short(&self) -> Option<From> {
        Some(From::Own)
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        let request = request()?;
        target.storm(WORKERS, |worker, (): &mut ()| {
            let mut conn = worker.connect_narrow(NARROW)?;
            conn.send(&request)?;
            worker.pause(STAY);
            Ok(Shot::Sent)
        })
    }
}

/// Clients that ask for much and leave at once.
pub(super) struct Abandoned;

impl Attack for Abandoned {
    fn name(&self) -> &'static str {
        "abandoned"
    }

    fn about(&self) -> &'static str {
        "4 clients ask for 54 MB each, leave at once, and come again"
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        let request = request()?;
        target.storm(WORKERS, |worker, (): &mut ()| {
            let mut conn = worker.connect_narrow(NARROW)?;
            conn.send(&request)?;
            drop(conn);
            worker.pause(Duration::from_millis(100));
            Ok(Shot::Sent)
        })
    }
}

/// One partition named again and again: small to ask, large to answer.
fn request() -> anyhow::Result<Vec<u8>> {
    let topic = TopicPartitions { topic: "honest-small".into(), partitions: vec![0; MANY] };
    let request =
        ElectLeadersRequest { topic_partitions: Some(vec![topic]), timeout_ms: 1000, election_type: 0 };
    frame(&request, 1)
}
