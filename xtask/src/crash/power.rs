//! Crash by loss of power: all unsynced data is gone, and the process with it.
//!
//! While the topic's level changes all the time, acked records may be gone unless a level has synced them
//! ([`Binding`](super::binding::Binding)).

use std::time::Duration;

use riverrun_client::NewTopic;

use super::disk::Disk;
use super::load::Shape;
use super::run::{Allowed, Run};
use super::{Settings, topic_of};
use crate::clients::install::Toolbox;
use crate::clients::server::Server;

/// Room for the data of hundreds of cycles. The image is sparse.
const DISK_BYTES: u64 = 8 << 30;

/// Longest life of a server before the power is cut.
const LIFE_MAX: Duration = Duration::from_millis(400);

/// One cut in this many happens while the server starts.
const EARLY_ONE_IN: u64 = 6;

/// About the longest start.
const START_MAX: Duration = Duration::from_millis(40);

/// Longest time between the cut and the end of the process: records acked in it must have been synced before.
const AGONY_MAX: Duration = Duration::from_millis(20);

/// Cuts the power for each cycle of the settings.
pub(super) async fn run(settings: &Settings, toolbox: &Toolbox) -> anyhow::Result<()> {
    let mut disk = Disk::make(settings.fs, &settings.dir, DISK_BYTES)?;
    let syncs = settings.level.syncs();
    let allowed = Allowed {
        losses: !syncs && !settings.flip,
        unsynced_losses: settings.flip,
        failures: !syncs || settings.flip,
    };
    let data = disk.path().join("data");
    let mut run = Run::prepare(settings, toolbox, &settings.dir, data, allowed)?;
    let mut server = run.start().await?;
    let shape = Shape::usual("crash");
    run.begin_load(&shape, NewTopic { partitions: Some(shape.partitions), ..topic_of("crash") }).await?;
    for _ in 0..settings.cycles {
        tokio::time::sleep(run.rng.up_to(LIFE_MAX)).await;
        server = crash(&mut run, &mut disk, server).await?;
        run.check().await?;
    }
    run.judge().await?;
    server.stop()?;
    drop(disk);
    run.clear()
}

/// Cuts the power, and now and then again while the next server starts.
async fn crash(run: &mut Run<'_>, disk: &mut Disk, mut server: Server) -> anyhow::Result<Server> {
    loop {
        server.must_run()?;
        cut(run, disk, server).await?;
        if !run.rng.one_in(EARLY_ONE_IN) {
            return run.start().await;
        }
        server = run.launch.spawn()?;
        run.counts.early_crashes += 1;
        tokio::time::sleep(run.rng.up_to(START_MAX)).await;
    }
}

/// Cuts the power, kills the process, and restores the power.
pub(super) async fn cut(run: &mut Run<'_>, disk: &mut Disk, mut server: Server) -> anyhow::Result<()> {
    run.begin_crash();
    disk.cut()?;
    tokio::time::sleep(run.rng.up_to(AGONY_MAX)).await;
    server.kill()?;
    disk.restore()?;
    run.crashed().await
}
