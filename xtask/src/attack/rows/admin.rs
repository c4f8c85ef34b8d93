//! Slow connections to the admin port.

use std::time::Duration;

use super::{Attack, Ground};
use crate::attack::attacker::{From, Shot, Tally, Target};
use crate::wire::Conn;

/// Number of workers, and connections of each.
const WORKERS: usize = 50;
const HELD: usize = 25;

/// Descriptors of the server, which these connections would exhaust.
const DESCRIPTORS: u32 = 1024;

/// The beginning of a header without an end.
const BEGUN: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nA: ";

/// Headers that never end.
pub(super) struct Slow;

impl Attack for Slow {
    fn name(&self) -> &'static str {
        "slow-admin"
    }

    fn about(&self) -> &'static str {
        "1,250 connections to the admin port that never end their header, with 1,024 descriptors"
    }

    fn short(&self) -> Option<From> {
        Some(From::Others)
    }

    fn ground(&self) -> Ground {
        Ground { descriptors: Some(DESCRIPTORS), ..Ground::default() }
    }

    fn log_words(&self) -> &'static [&'static str] {
        &["the admin port is full"]
    }

    fn takes_admin_port(&self) -> bool {
        true
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        target.storm(WORKERS, |worker, held: &mut Vec<Conn>| {
            // Once all are open, one byte each keeps them alive.
            if held.len() >= HELD {
                worker.pause(Duration::from_millis(300));
                held.retain_mut(|conn| conn.send(b"a").is_ok());
                return Ok(Shot::Sent);
            }
            let mut conn = worker.connect_admin()?;
            conn.send(BEGUN)?;
            held.push(conn);
            Ok(Shot::Sent)
        })
    }
}
