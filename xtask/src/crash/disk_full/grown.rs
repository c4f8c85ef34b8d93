//! A server with room for its journal and for records: producers fill the rest up to the reserve, repeatedly.
//!
//! Room is made in turn by deleting records, by retention, and by deleting a topic.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use anyhow::Context;
use riverrun_client::{Admin, ConfigChange, ConfigOperation, ConfigResource};
use riverrun_types::Offset;

use super::turn::Turn;
use super::{BALLAST_TOPIC, DISK_BYTES, Full, TOPIC, make_dir, shape};
use crate::clients::install::Toolbox;
use crate::crash::Settings;
use crate::crash::disk::Disk;
use crate::crash::event::{Event, Start};
use crate::crash::readback;
use crate::crash::run::{Allowed, Run};

/// The server's share of the disk.
const ROOM_BYTES: u64 = 120 << 20;

/// Most free space of a full disk: the reserve, and space that a refusal in between has kept free. Files deleted in the
/// last cycle may still be removed while the first records are refused.
const FULL_BYTES: u64 = 32 << 20;

/// Bytes of a partition that retention keeps when it makes room.
const RETAINED_BYTES: &str = "1000000";

/// Records that never exceed these bytes, whatever their sizes: the largest value is a tenth of them.
const RETAINED_RECORDS_MIN: i64 = 9;

/// Refused records, some of each stream, that show that the disk is full.
const REFUSED_MIN: u64 = 40;

/// Fills the disk as often as asked.
pub(super) async fn run(settings: &Settings, toolbox: &Toolbox) -> anyhow::Result<()> {
    let dir = make_dir(settings, "grown")?;
    let disk = Disk::make(settings.fs, &dir, DISK_BYTES)?;
    disk.leave(ROOM_BYTES)?;
    let allowed = Allowed { failures: true, ..Allowed::default() };
    let run = Run::prepare(settings, toolbox, &dir, disk.path().join("data"), allowed)?;
    let mut full = Full::begin(run, &disk).await?;
    for cycle in 0..settings.cycles {
        cycle_of(&mut full, cycle).await.with_context(|| format!("cycle {}", cycle + 1))?;
    }
    println!(
        "filled {} times; writing resumed at the latest {:.1} s after room was made",
        settings.cycles,
        full.slowest_resume.as_secs_f64()
    );
    let (run, _) = full.end().await?;
    drop(disk);
    run.clear()
}

/// The way in which room is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relief {
    DeleteRecords,
    Retention,
    DeleteTopic,
}

impl Relief {
    fn of(cycle: u64) -> Self {
        match cycle % 3 {
            0 => Self::DeleteRecords,
            1 => Self::Retention,
            _ => Self::DeleteTopic,
        }
    }
}

async fn cycle_of(full: &mut Full<'_, '_>, cycle: u64) -> anyhow::Result<()> {
    let relief = Relief::of(cycle);
    fill(full, relief, cycle).await?;
    let free_mb = full.free_mb()?;
    full.others_go_on().await.with_context(|| format!("with the disk full, {free_mb:.1} MB free"))?;
    let before = full.run.progress().tally();
    relieve(full, relief).await.with_context(|| format!("{relief:?}"))?;
    let begun = Instant::now();
    full.resumes(&before).await?;
    println!(
        "cycle {:>3}: refused with {free_mb:.1} MB free, {:.1} s from room by {relief:?} to the next acks",
        cycle + 1,
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Lets the load run until all of it is refused. If a topic is to be deleted, another load fills that too.
async fn fill(full: &mut Full<'_, '_>, relief: Relief, cycle: u64) -> anyhow::Result<()> {
    let before = full.run.progress().tally();
    let refused = full.run.progress().failed();
    let ballast = match relief {
        Relief::DeleteTopic => Some(full.load_ballast(cycle).await?),
        Relief::DeleteRecords | Relief::Retention => None,
    };
    let disk = full.disk;
    let is_full = |run: &Run<'_>| {
        run.progress().failed() > refused + REFUSED_MIN
            && disk.free_bytes().is_ok_and(|free| free < FULL_BYTES)
    };
    full.wait("the disk is full", is_full).await?;
    full.until("every producer is refused", Turn::Refused, &before).await?;
    match ballast {
        Some(ballast) => ballast.stop().await,
        None => Ok(()),
    }
}

async fn relieve(full: &mut Full<'_, '_>, relief: Relief) -> anyhow::Result<()> {
    match relief {
        Relief::DeleteRecords => {
            let before = shape(TOPIC).partitions().into_iter().map(|partition| (partition, Offset(-1)));
            let mut deleted = Vec::new();
            for (partition, result) in full.admin().await?.delete_records(&before.collect()).await {
                let start = result.with_context(|| format!("deleting records of {partition}"))?;
                deleted.push(Event::Deleted(Start { partition, offset: start.0 }));
            }
            full.run.shared.recorder.record(&deleted).await
        }
        Relief::Retention => {
            let (admin, disk) = (full.admin().await?, full.disk);
            let free_bytes = disk.free_bytes()?;
            retain(&admin, ConfigOperation::Set(RETAINED_BYTES.to_owned())).await?;
            let has_room =
                |_: &Run<'_>| disk.free_bytes().is_ok_and(|free| free > free_bytes + ROOM_BYTES / 4);
            full.wait("retention makes room", has_room).await?;
            retain(&admin, ConfigOperation::Delete).await?;
            note_deletable(full).await
        }
        Relief::DeleteTopic => full.delete(BALLAST_TOPIC).await,
    }
}

/// Records what retention may have taken, which excludes the last records of each partition.
async fn note_deletable(full: &Full<'_, '_>) -> anyhow::Result<()> {
    let shared = &full.run.shared;
    let bounds = readback::bounds(shared, &shape(TOPIC).partitions()).await?;
    let deletable = |(partition, Range { end, .. }): (_, Range<i64>)| {
        Event::Deletable(Start { partition, offset: (end - RETAINED_RECORDS_MIN).max(0) })
    };
    shared.recorder.record(&bounds.into_iter().map(deletable).collect::<Vec<_>>()).await
}

/// Changes the bytes that retention keeps of the load's topic.
async fn retain(admin: &Admin, operation: ConfigOperation) -> anyhow::Result<()> {
    let change = ConfigChange { name: "retention.bytes".to_owned(), operation };
    let changes = BTreeMap::from([(ConfigResource::Topic(TOPIC.to_owned()), vec![change])]);
    for (resource, result) in admin.alter_configs(&changes, false).await {
        result.with_context(|| resource.to_string())?;
    }
    Ok(())
}
