//! Answers that nobody reads, and requests whose clients have left.

use std::time::Duration;

use super::{Attack, lists};
use crate::attack::attacker::{From, Shot, Tally, Target};

/// Connections that ask: their answers together are more than the memory for answers.
const WORKERS: usize = 8;

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
        "8 clients ask for the configs of 249,000 topics, read nothing, and come again after 1.9 s"
    }

    fn short(&self) -> Option<From> {
        Some(From::Own)
    }

    fn told(&self) -> &'static [&'static str] {
        &["memory for responses"]
    }

    fn told_by_health(&self) -> &'static [&'static str] {
        &["memory for responses"]
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        let request = lists::describe_configs()?;
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
        "8 clients ask for the configs of 249,000 topics, leave at once, and come again"
    }

    fn told(&self) -> &'static [&'static str] {
        &["memory for responses"]
    }

    fn told_by_health(&self) -> &'static [&'static str] {
        &["memory for responses"]
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        let request = lists::describe_configs()?;
        target.storm(WORKERS, |worker, (): &mut ()| {
            let mut conn = worker.connect_narrow(NARROW)?;
            conn.send(&request)?;
            drop(conn);
            worker.pause(Duration::from_millis(100));
            Ok(Shot::Sent)
        })
    }
}
