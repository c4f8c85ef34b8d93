//! Answers that nobody reads, and requests whose clients have left.

use std::time::Duration;

use super::{Attack, lists};
use crate::attack::attacker::{From, Shot, Tally, Target};

/// Connections that send requests: their answers together exceed the memory for answers.
const WORKERS: usize = 8;

/// Slightly less than two seconds, so that a client that gets two seconds leaves and comes again just before.
const STAY: Duration = Duration::from_millis(1900);

/// Receive buffer of a client that does not read.
const NARROW: usize = 4096;

/// Clients that request much, read nothing, and come again.
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

    fn log_words(&self) -> &'static [&'static str] {
        &["memory for responses"]
    }

    fn health_words(&self) -> &'static [&'static str] {
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

/// Clients that request much and leave at once.
pub(super) struct Abandoned;

impl Attack for Abandoned {
    fn name(&self) -> &'static str {
        "abandoned"
    }

    fn about(&self) -> &'static str {
        "8 clients ask for the configs of 249,000 topics, leave at once, and come again"
    }

    fn log_words(&self) -> &'static [&'static str] {
        &["memory for responses"]
    }

    fn health_words(&self) -> &'static [&'static str] {
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
