//! Frames that stop short, and bytes that are no frames.

use std::time::Duration;

use super::Attack;
use crate::attack::attacker::{From, Shot, Tally, Target};
use crate::attack::honest::Shape;
use crate::wire::Conn;

/// Connections that hold a half frame each.
const HOLDERS: usize = 150;

/// Length that a frame announces, and the bytes sent of it.
const PROMISED_BYTES: i32 = 4_000_000;
const SENT_BYTES: usize = 900_000;

/// A holder that was not disconnected by then connects again.
const STAY: Duration = Duration::from_millis(1500);

/// Connections that send garbage.
const BABBLERS: usize = 8;

/// A hello of TLS, and requests of a length that is negative, too long, and too short for a header.
const GARBAGE: &[&[u8]] = &[
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x00\x00\x00\x02\x00\x00",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x00\x00\x00\x0a\x7f\xff\x00\x00\x00\x00\x00\x01\xff\xff",
];

/// Large frames that stop short.
pub(super) struct HalfFrames;

impl Attack for HalfFrames {
    fn name(&self) -> &'static str {
        "half-frames"
    }

    fn about(&self) -> &'static str {
        "150 connections promise 4 MB each, send 900 kB of it, and hold it"
    }

    fn short(&self) -> Option<From> {
        Some(From::Others)
    }

    fn beside(&self) -> &'static [Shape] {
        &[Shape::Small, Shape::Large]
    }

    fn log_words(&self) -> &'static [&'static str] {
        &["its request arrives too slowly"]
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        let mut half = PROMISED_BYTES.to_be_bytes().to_vec();
        half.extend_from_slice(&[0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff]);
        half.resize(SENT_BYTES, 0);
        target.storm(HOLDERS, |worker, (): &mut ()| {
            let mut conn = worker.connect()?;
            conn.send(&half)?;
            worker.pause(STAY);
            Ok(Shot::Sent)
        })
    }
}

/// Bytes that are no requests.
pub(super) struct Garbage;

impl Attack for Garbage {
    fn name(&self) -> &'static str {
        "garbage"
    }

    fn about(&self) -> &'static str {
        "8 connections after another say TLS, HTTP, and requests of impossible lengths"
    }

    fn log_words(&self) -> &'static [&'static str] {
        &["a TLS client on a plain-text listener"]
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        target.storm(BABBLERS, |worker, (): &mut ()| {
            let mut conn: Conn = worker.connect()?;
            conn.send(GARBAGE[usize::try_from(worker.shot)? % GARBAGE.len()])?;
            // Some of it is the beginning of a request that might still come.
            worker.pause(Duration::from_millis(2));
            Ok(Shot::Sent)
        })
    }
}
