//! A journal on a disk of its own that is nearly full before there is a journal, and later completely full. The log dir
//! has room, so that everything can be settled, and the journal keeps reusing the files that it has.
//!
//! Each life has a directory and two disks of its own.

use std::time::Instant;

use anyhow::Context;

use super::{BALLAST_TOPIC, BRIM_ONE_IN, DISK_BYTES, Full, Lived, make_dir, prepare};
use crate::clients::install::Toolbox;
use crate::crash::Settings;
use crate::crash::disk::Disk;

/// Free space of the journal's disk at the start, in turn: less than half of the reserve, less than the reserve, and as
/// much more as the journal may take.
const ROOMS_BYTES: [u64; 3] = [4 << 20, 12 << 20, 40 << 20];

/// Records that go through the journal; every second one is large.
const AROUND_RECORDS: u64 = 600;

/// One life.
pub(super) async fn live(settings: &Settings, toolbox: &Toolbox, life: u64) -> anyhow::Result<Lived> {
    let name = format!("journal-{life}");
    let dir = make_dir(settings, &name)?;
    let data = Disk::make(settings.fs, &dir, DISK_BYTES)?;
    let disk = Disk::make(settings.fs, &make_dir(settings, &format!("{name}/journal"))?, DISK_BYTES)?;
    let room_bytes = ROOMS_BYTES[usize::try_from((settings.seed / 3 + life) % 3)?];
    disk.leave(room_bytes)?;
    let mut run = prepare(settings, toolbox, &dir, data.path().join("data"))?;
    let journal = disk.path().join("journal");
    run.launch = run.launch.with_own_settings([format!("journal.dirs={}", journal.display())]);
    let begun = Instant::now();
    let mut full = Full::begin(run, &disk).await?;
    goes_around(&mut full, life).await.context("with the journal's disk nearly full")?;
    let before = full.run.progress().tally();
    let refusal = full.brim(life % BRIM_ONE_IN == 1, BALLAST_TOPIC).await;
    if let Some(error) = refusal.context("without any room for the journal")? {
        return Err(error).context("deleting a topic, for which the data's disk has room");
    }
    full.resumes(&before).await.context("with room for the journal again")?;
    full.others_go_on().await.context("with room for the journal again")?;
    println!(
        "server {} with a full disk of its journal's own: {} MiB free at first; {}; {:.1} s",
        life + 1,
        room_bytes >> 20,
        full.counts(),
        begun.elapsed().as_secs_f64()
    );
    let (run, lived) = full.end().await?;
    drop((disk, data));
    run.clear()?;
    Ok(lived)
}

/// Checks that records are accepted, though the journal may grow little or not at all.
async fn goes_around(full: &mut Full<'_, '_>, life: u64) -> anyhow::Result<()> {
    let before = full.run.progress().tally();
    let ballast = full.load_ballast(life).await?;
    full.resumes(&before).await?;
    full.wait("records go around in the journal", |run| run.progress().acked() > AROUND_RECORDS).await?;
    ballast.stop().await?;
    full.others_go_on().await
}
