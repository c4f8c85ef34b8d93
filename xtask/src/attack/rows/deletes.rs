//! One thing requested many times in one request.

use riverrun_protocol::DeleteRecordsRequest;
use riverrun_protocol::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use riverrun_records::Compression;

use super::{Attack, must_create_topic};
use crate::attack::attacker::{From, Shot, Tally, Target};
use crate::wire::{Conn, batch, frame, produce_frame, produced};

/// How often the partition is named.
const TIMES: i64 = 50_000;

/// Connections that send it.
const WORKERS: usize = 2;

const TOPIC: &str = "deletes";

/// `DeleteRecords` of one partition, fifty thousand times.
pub(super) struct SameRecords;

impl Attack for SameRecords {
    fn name(&self) -> &'static str {
        "delete-records"
    }

    fn about(&self) -> &'static str {
        "2 connections name one partition 50,000 times in DeleteRecords, with rising offsets"
    }

    fn short(&self) -> Option<From> {
        Some(From::Others)
    }

    fn prepare(&self, conn: &mut Conn) -> anyhow::Result<()> {
        must_create_topic(conn, TOPIC, 1, &[])?;
        let values = vec![b"v".as_slice(); usize::try_from(TIMES)?];
        let records = batch(Compression::None, &values)?;
        conn.send(&produce_frame(TOPIC, &[(0, &records)])?)?;
        let result = produced(&conn.answer()?)?;
        anyhow::ensure!(result.is_ok(), "{TOPIC} takes no records: error {result:?}");
        Ok(())
    }

    fn act(&self, target: &Target) -> anyhow::Result<Tally> {
        let partitions = (0..TIMES).map(|offset| DeleteRecordsPartition { partition_index: 0, offset });
        let topic = DeleteRecordsTopic { name: TOPIC.into(), partitions: partitions.collect() };
        let request = frame(&DeleteRecordsRequest { topics: vec![topic], timeout_ms: 10_000 }, 1)?;
        target.storm(WORKERS, |worker, kept: &mut Option<Conn>| {
            let mut conn = match kept.take() {
                Some(conn) => conn,
                None => worker.connect()?,
            };
            conn.send(&request)?;
            conn.skip_answer()?;
            *kept = Some(conn);
            Ok(Shot::Answered)
        })
    }
}
