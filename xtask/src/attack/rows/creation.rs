//! Topics that are made because a request names them.

use anyhow::{Context, ensure};
use riverrun_protocol::MetadataRequest;
use riverrun_protocol::metadata_request::MetadataRequestTopic;

use super::Attack;
use crate::attack::attacker::{From, Shot, Tally, Target};
use crate::wire::{Conn, frame};

/// Topics of one request, nearly as many as it may name.
const NAMES: usize = 99_000;

/// Most topics that strangers may make in the time of an attack.
const TOPICS_MAX: usize = 50_000;

/// Connections that name topics in turn.
const WORKERS: usize = 8;

/// A version of Metadata that may make topics.
const VERSION: i16 = 4;

/// Metadata requests that name as many topics as they may.
pub(super) struct Metadata;

impl Attack for Metadata {
    fn name(&self) -> &'static str {
        "auto-create"
    }

    fn about(&self) -> &'static str {
        "Metadata requests that name 99,000 topics that do not exist"
    }

    fn short(&self) -> Option<From> {
        Some(From::Others)
    }

    fn log_words(&self) -> &'static [&'static str] {
        &["too many in a short time"]
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        let request = request((0..NAMES).map(|index| format!("{}x{index}", std::process::id())))?;
        target.storm(2, |worker, (): &mut ()| {
            let mut conn = worker.connect()?;
            conn.send(&request)?;
            conn.skip_answer()?;
            Ok(Shot::Answered)
        })
    }

    fn check(&self, conn: &mut Conn) -> anyhow::Result<()> {
        few_topics(conn)
    }
}

/// Many Metadata requests that name a few topics each.
pub(super) struct TopicsInTurn;

impl Attack for TopicsInTurn {
    fn name(&self) -> &'static str {
        "auto-create-in-turn"
    }

    fn about(&self) -> &'static str {
        "8 connections name 100 new topics after another"
    }

    fn log_words(&self) -> &'static [&'static str] {
        &["too many in a short time"]
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        target.storm(WORKERS, |worker, kept: &mut Option<Conn>| {
            let (process, index, shot) = (std::process::id(), worker.index, worker.shot);
            let names = (0..100).map(|topic| format!("{process}x{index}x{shot}x{topic}"));
            let mut conn = match kept.take() {
                Some(conn) => conn,
                None => worker.connect()?,
            };
            conn.send(&request(names)?)?;
            conn.skip_answer()?;
            *kept = Some(conn);
            Ok(Shot::Answered)
        })
    }

    fn check(&self, conn: &mut Conn) -> anyhow::Result<()> {
        few_topics(conn)
    }
}

fn request(names: impl Iterator<Item = String>) -> anyhow::Result<Vec<u8>> {
    let topic =
        |name: String| MetadataRequestTopic { name: Some(name.into()), ..MetadataRequestTopic::default() };
    let request = MetadataRequest {
        topics: Some(names.map(topic).collect()),
        allow_auto_topic_creation: true,
        ..MetadataRequest::default()
    };
    frame(&request, VERSION)
}

fn few_topics(conn: &mut Conn) -> anyhow::Result<()> {
    let request = MetadataRequest { topics: None, ..MetadataRequest::default() };
    conn.send(&frame(&request, VERSION)?)?;
    let answer = conn.answer_up_to(1 << 30)?;
    let (_, answer) = riverrun_protocol::decode_response::<MetadataRequest<'_>>(&answer, VERSION)
        .context("the topics cannot be listed")?;
    let topics = answer.topics.len();
    ensure!(topics <= TOPICS_MAX, "{topics} topics are there");
    Ok(())
}
