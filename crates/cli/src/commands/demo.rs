//! The server of `riverrun demo`, in this process. What is done with it is in `riverrun_tools::commands::demo`.

use riverrun_broker::Server;
use riverrun_tools::commands::demo::{self, DemoArgs, DemoServer};
use riverrun_tools::exit::{Exit, Failure};

use super::config::config_failure;

/// Settings of the demo's server, beside the defaults: a group comes together at once instead of in some seconds.
const SETTINGS: [(&str, &str); 2] =
    [("group.consumer.heartbeat.interval.ms", "100"), ("group.consumer.assignment.interval.ms", "0")];

pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    demo::run(args, start)
}

/// A server on a free port. Its data goes with it, or stays in a directory that is made.
fn start(keep: bool) -> Result<DemoServer, Failure> {
    let mut builder = Server::builder();
    let mut kept = None;
    if keep {
        let dir = tempfile::Builder::new().prefix("riverrun-demo-").tempdir();
        let path = dir.map_err(|error| Failure::io("cannot make a directory", &error))?.keep();
        builder = builder
            .data_dir(&path)
            .and_then(|builder| builder.set("data.dir.create", "true"))
            .map_err(|error| config_failure(&error))?;
        kept = Some(path);
    }
    for (name, value) in SETTINGS {
        builder = builder.set(name, value).map_err(|error| config_failure(&error))?;
    }
    let server =
        builder.start().map_err(|error| Failure::new(Exit::Failed, format!("cannot start: {error}")))?;
    Ok(DemoServer {
        bootstrap: server.bootstrap().to_owned(),
        durability: server.default_durability(),
        kept,
        stop: Box::new(|| server.stop().map_err(|error| Failure::new(Exit::Failed, error.to_string()))),
    })
}
