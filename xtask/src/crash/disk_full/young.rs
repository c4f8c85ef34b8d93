//! A server that finds its disk nearly full before it has a journal: any number of lives, each with a directory and a
//! disk of its own.
//!
//! Its first journal files are the smallest, there is no space for others, and most data on the disk is not its own.
//! Deleting a topic frees only the space of its records.

use std::time::Instant;

use anyhow::{Context, ensure};
use riverrun_client::NewTopic;

use super::turn::Turn;
use super::{BALLAST_TOPIC, BRIM_ONE_IN, DISK_BYTES, Full, Lived, STEP_LIMIT, make_dir, prepare, topic};
use crate::clients::install::Toolbox;
use crate::crash::Settings;
use crate::crash::disk::Disk;
use crate::crash::run::create;

/// Free space at the start, in turn: less than half of the reserve, less than the reserve, and as much more as a
/// journal and some records need.
const ROOMS_BYTES: [u64; 3] = [4 << 20, 12 << 20, 64 << 20];

/// Space that other data on the disk frees, when no deletion would free enough.
const GIVEN_BYTES: u64 = 64 << 20;

/// A topic without producers, which is deleted while there is no room at all.
const SPARE_TOPIC: &str = "spare";

/// One life.
pub(super) async fn live(settings: &Settings, toolbox: &Toolbox, life: u64) -> anyhow::Result<Lived> {
    let dir = make_dir(settings, &format!("young-{life}"))?;
    let disk = Disk::make(settings.fs, &dir, DISK_BYTES)?;
    let room_bytes = ROOMS_BYTES[usize::try_from((settings.seed % 3 + life) % 3)?];
    disk.leave(room_bytes)?;
    let run = prepare(settings, toolbox, &dir, disk.path().join("data"))?;
    let begun = Instant::now();
    let mut full = Full::begin(run, &disk).await?;
    refused(&mut full, life).await?;
    let free_mb = full.free_mb()?;
    full.others_go_on().await.with_context(|| format!("with the disk full, {free_mb:.1} MB free"))?;
    let before = full.run.progress().tally();
    full.delete(BALLAST_TOPIC).await?;
    if room_bytes < GIVEN_BYTES {
        disk.give_back(GIVEN_BYTES)?;
    }
    full.resumes(&before).await.context("with a topic deleted")?;
    brim(&mut full, life).await?;
    full.others_go_on().await.context("with room again")?;
    println!(
        "young server {}: {} MiB free at first, refused with {free_mb:.1} MB free; {}; {:.1} s",
        life + 1,
        room_bytes >> 20,
        full.counts(),
        begun.elapsed().as_secs_f64()
    );
    let (run, lived) = full.end().await?;
    drop(disk);
    run.clear()?;
    Ok(lived)
}

/// Lets the load and another one run until all of the first is refused.
async fn refused(full: &mut Full<'_, '_>, life: u64) -> anyhow::Result<()> {
    let before = full.run.progress().tally();
    let spare = NewTopic { partitions: Some(1), ..topic(SPARE_TOPIC) };
    create(&full.run.shared, spare, STEP_LIMIT).await?;
    let ballast = full.load_ballast(life).await?;
    full.until("every producer is refused", Turn::Refused, &before).await?;
    ballast.stop().await
}

/// Takes all room away for a while, and returns more of it. A topic that could not be deleted for lack of room is
/// deleted then.
async fn brim(full: &mut Full<'_, '_>, life: u64) -> anyhow::Result<()> {
    let before = full.run.progress().tally();
    let refusal = full.brim(life % BRIM_ONE_IN == 1, SPARE_TOPIC).await.context("without any room")?;
    if let Some(error) = refusal {
        println!("  without any room a topic is not deleted: {error}");
        full.delete(SPARE_TOPIC).await.context("with room again")?;
    }
    full.disk.give_back(GIVEN_BYTES)?;
    full.resumes(&before).await.context("with room again")?;
    ensure!(full.run.progress().failed() > 0, "nothing was refused, which proves nothing");
    Ok(())
}
