//! Crash by `kill -9`: the process ends, the system and its page cache stay.

use std::time::Duration;

use riverrun_client::NewTopic;

use super::load::Shape;
use super::run::{Allowed, Run};
use super::{Settings, topic_of};
use crate::clients::install::Toolbox;
use crate::clients::server::Server;

/// Longest life of a server before it is killed.
const LIFE_MAX: Duration = Duration::from_millis(400);

/// One server in this many is killed while it starts.
const EARLY_ONE_IN: u64 = 6;

/// About the longest start.
const START_MAX: Duration = Duration::from_millis(40);

/// Kills the server for each cycle of the settings.
pub(super) async fn run(settings: &Settings, toolbox: &Toolbox) -> anyhow::Result<()> {
    let data = settings.dir.join("server/data");
    let mut run = Run::prepare(settings, toolbox, &settings.dir, data, Allowed::default())?;
    let mut server = run.start().await?;
    let shape = Shape::usual("crash");
    run.begin_load(&shape, NewTopic { partitions: Some(shape.partitions), ..topic_of("crash") }).await?;
    for _ in 0..settings.cycles {
        tokio::time::sleep(run.rng.up_to(LIFE_MAX)).await;
        server = crash(&mut run, server).await?;
        run.check().await?;
    }
    run.judge().await?;
    server.stop()?;
    run.clear()
}

/// Kills it, and now and then the next one too while it starts.
async fn crash(run: &mut Run<'_>, mut server: Server) -> anyhow::Result<Server> {
    loop {
        server.must_run()?;
        server.kill()?;
        run.crashed().await?;
        if !run.rng.one_in(EARLY_ONE_IN) {
            return run.start().await;
        }
        server = run.launch.spawn()?;
        run.counts.early_crashes += 1;
        tokio::time::sleep(run.rng.up_to(START_MAX)).await;
    }
}
