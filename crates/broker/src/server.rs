//! A server from its start to its stop, on a thread of its own.
//!
//! Owns the runtime, the listeners and the tasks. When [`Server::start`] returns, clients can connect. When
//! [`Server::stop`] returns, nothing of the server is left but its files. They need no recovery, unless a disk did not answer
//! or seconds did not suffice: then the next start recovers them. A server whose disks have all failed, or one of whose
//! threads has died, stops by itself.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use riverrun_env::Env;
use riverrun_log::Closed;
use riverrun_types::{DurabilityLevel, LogAccount};
use tempfile::TempDir;
use thiserror::Error;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::admin;
use crate::aside::{self, Aside};
use crate::broker::Broker;
use crate::broker::health::nothing_to_write_to;
use crate::catalog;
use crate::config::{BrokerConfig, ConfigError, Listener as ListenerAddress, Origin, Settings};
use crate::descriptors::Descriptors;
use crate::handlers::router::Router;
use crate::jobs;
use crate::metadata::first_start;
use crate::mounts::Watchers;
use crate::net::admission::{ConnectionBounds, ConnectionCounts};
use crate::net::limits::ConnectionLimits;
use crate::net::listener::{Bound, Listener, ListenerLimits, bind};
use crate::settle::Settlers;
use crate::start::open_broker;
use crate::start_error::StartError;
use crate::stop_signal::{StopSignal, stopped};
use crate::supervisor::panic_text;
use crate::watchdog::Watchdog;
use crate::writers::Writers;

/// Time of a stop at most, whatever is unsettled and whatever hangs: supervisors kill a server after ten seconds or more,
/// and a stop that is cut off by that is not in order.
const STOP_TIME_MAX: Duration = Duration::from_millis(4500);
/// Part of it for the tasks of connections and listeners, before they are aborted.
const TASKS_GRACE: Duration = Duration::from_millis(1500);
/// Part of it for jobs that work on threads of their own, of either runtime: each looks at the stop signal now and then.
const JOBS_GRACE: Duration = Duration::from_millis(500);
/// Part of it for bringing the journals' records into the segments; the journals keep the rest. The syncs that follow have
/// the rest of the time.
const SETTLING_TIME_MAX: Duration = Duration::from_secs(3);
/// Divisor of the memory for requests: requests aside may take this part beside it, for their decoded form.
const ASIDE_SHARE: usize = 2;
/// Connections to the admin port that may wait to be accepted, so that a short crowd keeps nobody else from the line.
const ADMIN_BACKLOG: u32 = 512;

/// A running server. Dropping it stops it.
///
/// ```
/// let server = riverrun_broker::Server::builder().start()?;
/// println!("Kafka clients connect to {}", server.bootstrap());
/// server.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Server {
    addresses: Addresses,
    durability: DurabilityLevel,
    journal_dirs: Vec<PathBuf>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<Result<(), StopError>>>,
    /// Removed with the server.
    temporary: Option<TempDir>,
}

#[derive(Clone, Debug)]
struct Addresses {
    bootstrap: String,
    listeners: Vec<(ListenerAddress, SocketAddr)>,
    admin: Option<SocketAddr>,
}

/// The reason why a server did not stop in order. The next start recovers.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StopError {
    /// It stopped by itself: no log dir takes writes any more, or the metadata log does not.
    #[error("the server stopped by itself: {0}")]
    StorageFailed(String),
    /// It stopped by itself: one of its threads has died, which is a fault of the server. Its files are as after a kill.
    #[error("the server stopped by itself: {0}; the next start recovers")]
    ThreadDied(String),
    /// It was told to stop, and could not write everything.
    #[error("the server did not stop cleanly: {0}")]
    Unclean(String),
}

/// Time that a new group waits for more members. A server in a process, mostly a test's, has few members, and waits in vain.
const REBALANCE_DELAY: &str = "group.initial.rebalance.delay.ms";

/// Collects options for a server in this process. Without any, it listens on a free loopback port, keeps its
/// data in a temporary directory that goes with it, and lets the first member of a classic group wait for no others.
#[derive(Debug, Default)]
pub struct ServerBuilder {
    settings: Settings,
    env: Option<Env>,
    log: Arc<LogAccount>,
    has_data_dir: bool,
    has_listeners: bool,
    has_rebalance_delay: bool,
}

impl ServerBuilder {
    /// Keeps the data in this directory, and leaves it there.
    pub fn data_dir(self, path: &Path) -> Result<Self, ConfigError> {
        self.set("data.dir", &path.to_string_lossy())
    }

    /// Sets any option of the server by name.
    pub fn set(mut self, key: &str, value: &str) -> Result<Self, ConfigError> {
        self.settings.set(key, value, Origin::Flag)?;
        self.has_data_dir |= key == "data.dir";
        self.has_listeners |= key == "listeners";
        self.has_rebalance_delay |= key == REBALANCE_DELAY;
        Ok(self)
    }

    /// Gives the server other files, clocks and randomness than the operating system's, as simulations do.
    #[must_use]
    pub fn env(self, env: Env) -> Self {
        Self { env: Some(env), ..self }
    }

    /// Lets `/health` and metrics show the lost log lines of this process.
    #[must_use]
    pub fn log_account(self, log: Arc<LogAccount>) -> Self {
        Self { log, ..self }
    }

    /// Starts the server.
    pub fn start(mut self) -> Result<Server, StartError> {
        let temporary = if self.has_data_dir {
            None
        } else {
            Some(TempDir::with_prefix("riverrun-").map_err(StartError::TemporaryDirectory)?)
        };
        if let Some(directory) = &temporary {
            self = self.data_dir(directory.path())?.set(first_start::OPTION, "true")?;
        }
        if !self.has_listeners {
            self = self.set("listeners", "PLAINTEXT://127.0.0.1:0")?;
        }
        if !self.has_rebalance_delay {
            self = self.set(REBALANCE_DELAY, "0")?;
        }
        let env = self.env.unwrap_or_else(Env::real);
        let mut server = Server::start_on(env, BrokerConfig::new(self.settings)?, self.log)?;
        server.temporary = temporary;
        Ok(server)
    }
}

impl Server {
    /// A server for this process, with everything at its default.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Starts a server with this configuration; `/health` and its metrics show `log`.
    pub fn start(config: BrokerConfig, log: Arc<LogAccount>) -> Result<Self, StartError> {
        Self::start_on(Env::real(), config, log)
    }

    fn start_on(env: Env, config: BrokerConfig, log: Arc<LogAccount>) -> Result<Self, StartError> {
        let durability = config.topic_defaults.level();
        let journal_dirs = config.journal_dirs();
        let (stop, stopping) = watch::channel(false);
        let (ready, started) = sync_channel(1);
        let stopper = stop.clone();
        let report = move |outcome| ready.send(outcome).unwrap_or_default();
        let thread = std::thread::Builder::new()
            .name("riverrun".to_owned())
            .spawn(move || run_caught(env, config, log, &stopper, stopping, report))
            .map_err(StartError::Thread)?;
        let addresses = started.recv().map_err(|_| StartError::Died)??;
        Ok(Self { addresses, durability, journal_dirs, stop, thread: Some(thread), temporary: None })
    }

    /// `host:port` that Kafka clients take as `bootstrap.servers`.
    pub fn bootstrap(&self) -> &str {
        &self.addresses.bootstrap
    }

    /// Each listener with the address that it is bound to.
    pub fn listeners(&self) -> impl Iterator<Item = (&str, SocketAddr)> {
        self.addresses.listeners.iter().map(|(listener, address)| (listener.name.as_str(), *address))
    }

    /// Address of `/metrics` and `/health`, if they are served.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.addresses.admin
    }

    /// The durability of acked records in topics that do not set a level.
    pub fn default_durability(&self) -> DurabilityLevel {
        self.durability
    }

    /// Directories of the journals.
    pub fn journal_dirs(&self) -> &[PathBuf] {
        &self.journal_dirs
    }

    /// Ready once the server stops by itself, because it cannot write to anything any more, or one of its threads has died.
    /// [`Self::stop`] then returns the reason, after it has closed the files.
    pub fn stopping(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stopping = self.stop.subscribe();
        async move { stopped(&mut stopping).await }
    }

    /// Whether the server stops or has stopped by itself; see [`Self::stopping`].
    pub fn is_stopping(&self) -> bool {
        *self.stop.borrow()
    }

    /// Stops the server and waits until its files are closed in order. If it has stopped by itself, returns the reason.
    pub fn stop(mut self) -> Result<(), StopError> {
        self.shut_down()
    }

    fn shut_down(&mut self) -> Result<(), StopError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.stop.send_replace(true);
        thread
            .join()
            .unwrap_or_else(|_| Err(StopError::Unclean("a thread of the server panicked".to_owned())))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.shut_down() {
            tracing::error!(%error, "stopping");
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// The server's thread, whose panic is the server's end as well.
fn run_caught(
    env: Env,
    config: BrokerConfig,
    log: Arc<LogAccount>,
    stop: &watch::Sender<bool>,
    stopping: StopSignal,
    report: impl FnOnce(Result<Addresses, StartError>),
) -> Result<(), StopError> {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(env, config, log, stop, stopping, report)));
    outcome.unwrap_or_else(|panic| {
        stop.send_replace(true);
        Err(StopError::ThreadDied(format!("the thread riverrun panicked: {}", panic_text(&*panic))))
    })
}

/// The server's thread: starts, reports, serves until told to stop or until nothing can be written, closes.
fn run(
    env: Env,
    config: BrokerConfig,
    log: Arc<LogAccount>,
    stop: &watch::Sender<bool>,
    stopping: StopSignal,
    report: impl FnOnce(Result<Addresses, StartError>),
) -> Result<(), StopError> {
    let (Runtimes { network: runtime, aside, admin }, started) = match build(env, config, &stopping) {
        Ok(built) => built,
        Err(error) => {
            report(Err(error));
            return Ok(());
        }
    };
    let Started { broker, addresses, tasks } = started;
    broker.log_account.get_or_init(|| log);
    let watchers = match Watchers::start(&broker.mounts, &broker.supervisor) {
        Ok(watchers) => watchers,
        Err(error) => {
            report(Err(StartError::Thread(error)));
            return Ok(());
        }
    };
    let settlers = match Settlers::start(&broker) {
        Ok(settlers) => settlers,
        Err(error) => {
            report(Err(StartError::Thread(error)));
            return Ok(());
        }
    };
    let writers = match Writers::start(&broker) {
        Ok(writers) => writers,
        Err(error) => {
            report(Err(StartError::Thread(error)));
            return Ok(());
        }
    };
    let watchdog = match Watchdog::start(&broker, runtime.handle().clone()) {
        Ok(watchdog) => watchdog,
        Err(error) => {
            report(Err(StartError::Thread(error)));
            return Ok(());
        }
    };
    report(Ok(addresses));
    let (failure, deadline) = runtime.block_on(serve(&broker, tasks, stop, stopping));
    watchdog.stop();
    let begun = Instant::now();
    runtime.shutdown_timeout(JOBS_GRACE.min(deadline.left()));
    aside.shutdown_timeout(JOBS_GRACE.min(deadline.left()));
    admin.shutdown_timeout(JOBS_GRACE.min(deadline.left()));
    let tasks_ended = begun.elapsed();
    let has_died = matches!(failure, Some(StopError::ThreadDied(_)));
    let closed = in_time(&deadline, move || {
        settlers.stop();
        writers.stop();
        drop(watchers);
        if has_died { Ok(()) } else { close(&broker) }
    });
    tracing::info!(
        tasks_ms = millis(tasks_ended),
        files_ms = millis(begun.elapsed().saturating_sub(tasks_ended)),
        "the server has stopped"
    );
    failure.map_or(closed, Err)
}

/// End of a stop, by real time.
struct Deadline(Instant);

impl Deadline {
    fn left(&self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// Closes files on a thread of its own, which is left behind if a disk holds it up beyond the deadline, and ends with the
/// process. The next start recovers what it has not closed.
fn in_time(
    deadline: &Deadline,
    close: impl FnOnce() -> Result<(), StopError> + Send + 'static,
) -> Result<(), StopError> {
    let (tell, told) = sync_channel(1);
    let run = move || tell.send(close()).unwrap_or_default();
    let closer = std::thread::Builder::new().name("riverrun-close".to_owned()).spawn(run);
    let closer =
        closer.map_err(|error| StopError::Unclean(format!("no thread to close the files: {error}")))?;
    match told.recv_timeout(deadline.left()) {
        Ok(outcome) => {
            let _ended = closer.join();
            outcome
        }
        Err(RecvTimeoutError::Timeout) => {
            let what =
                "a disk does not answer: the next start recovers the records that were not written there";
            Err(StopError::Unclean(what.to_owned()))
        }
        Err(RecvTimeoutError::Disconnected) => {
            Err(StopError::Unclean("the thread that closes the files has panicked".to_owned()))
        }
    }
}

/// Lets the tasks work until the server stops, and waits for their end. Returns the reason of a stop by itself.
async fn serve(
    broker: &Broker,
    mut tasks: JoinSet<()>,
    stop: &watch::Sender<bool>,
    mut stopping: StopSignal,
) -> (Option<StopError>, Deadline) {
    let failure = tokio::select! {
        () = stopped(&mut stopping) => None,
        reason = broker.supervisor.death() => Some(StopError::ThreadDied(reason)),
        reason = nothing_to_write_to(broker) => Some(StopError::StorageFailed(reason)),
    };
    if let Some(reason) = &failure {
        tracing::error!("{reason}");
        stop.send_replace(true);
    }
    let deadline = Deadline(Instant::now() + STOP_TIME_MAX);
    broker.logs.close_by(broker.env.clock.monotonic() + SETTLING_TIME_MAX);
    let ended = tokio::time::timeout(TASKS_GRACE, async { while tasks.join_next().await.is_some() {} }).await;
    if ended.is_err() {
        tasks.abort_all();
    }
    (failure, deadline)
}

fn close(broker: &Broker) -> Result<(), StopError> {
    let closed = close_logs(broker);
    if matches!(closed, Ok(Closed::LeftToJournals { .. })) {
        // The metadata is synced already, and the last syncs of its close might wait for all of the disk's writes.
        return Ok(());
    }
    // The journals may just have released the last records of deleted topics.
    broker.catalog.forget_discarded();
    broker
        .catalog
        .store()
        .close()
        .map_err(|error| StopError::Unclean(error.to_string()))
        .and(closed.map(|_| ()))
}

fn close_logs(broker: &Broker) -> Result<Closed, StopError> {
    let hanging = (0..broker.logs.dir_count()).find(|dir| broker.logs.dir_hangs(*dir));
    let closed = broker.logs.close().map_err(|error| StopError::Unclean(error.to_string()))?;
    if let Some(dir) = hanging {
        let dir = broker.logs.dir_path(dir).display();
        let what = format!(
            "the disk of {dir} does not answer: the next start recovers the records that were not written there"
        );
        return Err(StopError::Unclean(what));
    }
    if let Closed::LeftToJournals { bytes } = closed {
        // Without bytes only the last checkpoint is missing.
        if bytes > 0 {
            tracing::info!(
                bytes,
                "records that are not in the segments yet are left to the journals: the next start reads them there"
            );
        }
        return Ok(closed);
    }
    if broker.logs.has_aside() {
        tracing::warn!("the journals keep records aside that no log has: they must stay as they are");
        return Ok(closed);
    }
    broker.journals.note_settled().map_err(|error| StopError::Unclean(error.to_string()))?;
    Ok(closed)
}

/// The runtimes of the server's tasks.
struct Runtimes {
    network: Runtime,
    /// For requests that have much to do.
    aside: Runtime,
    /// For the admin port, which must answer whatever the others are doing.
    admin: Runtime,
}

struct Started {
    broker: Arc<Broker>,
    addresses: Addresses,
    tasks: JoinSet<()>,
}

fn build(env: Env, config: BrokerConfig, stopping: &StopSignal) -> Result<(Runtimes, Started), StartError> {
    let connections_max = Descriptors::of_process().connections_max(dirs(&config))?;
    let network = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(config.server.network_threads())
        .thread_name("riverrun-worker")
        .enable_all()
        .build()
        .map_err(StartError::Thread)?;
    let aside = aside::runtime().map_err(StartError::Thread)?;
    let admin = admin::runtime().map_err(StartError::Thread)?;
    let begun = Instant::now();
    // Before anything is made on disk: a server whose addresses are taken leaves no trace. Of two that start at once, both
    // get this far, and one fails when it begins to listen.
    let sockets = Sockets::bind(&config)?;
    let broker = open_broker(env, config)?;
    let opened = begun.elapsed();
    let started = {
        // Sockets belong to the runtime in which they begin to listen.
        let _inside = network.enter();
        let memory_bytes = broker.config.network.queued_max_request_bytes / ASIDE_SHARE;
        let aside = Aside::on(&aside, memory_bytes);
        let _ = broker.aside.set(aside.places().clone());
        listen(&broker, aside, admin.handle(), sockets, connections_max, stopping)?
    };
    tell_ready(&started, opened, begun.elapsed());
    Ok((Runtimes { network, aside, admin }, started))
}

/// Logs log dirs, mounts and addresses, and how long it took to open them.
fn tell_ready(started: &Started, opened: Duration, ready: Duration) {
    let (broker, addresses) = (&started.broker, &started.addresses);
    let image = broker.catalog.image();
    for (index, dir) in image.node.log_dirs().iter().enumerate() {
        if broker.logs.dir_failure(index).is_none() {
            tracing::info!(path = %dir.path.display(), "log dir opened");
        }
    }
    for mount in &broker.config.server.mounts {
        tracing::info!(topic = mount.topic, path = %mount.dir.display(), "queue mounted");
    }
    let listeners: Vec<String> =
        addresses.listeners.iter().map(|(listener, at)| format!("{}://{at}", listener.name)).collect();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        node = image.node.id().0,
        listeners = listeners.join(","),
        admin = addresses.admin.map(tracing::field::display),
        data = %broker.config.server.data_dir.display(),
        durability = broker.config.topic_defaults.durability.number(),
        topics = image.cluster.topics_sorted().len(),
        open_ms = millis(opened),
        ready_ms = millis(ready),
        "the server is ready"
    );
}

/// Milliseconds, for a log line.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The addresses of a server, taken, and closed to clients until it is ready for them.
struct Sockets {
    listeners: Vec<(ListenerAddress, Bound)>,
    admin: Option<(SocketAddr, Bound)>,
}

impl Sockets {
    fn bind(config: &BrokerConfig) -> Result<Self, StartError> {
        let listeners = config.network.listeners.iter();
        let listeners =
            listeners.map(|listener| Ok((listener.clone(), bind_address(&listener.host, listener.port)?)));
        let listeners = listeners.collect::<Result<_, StartError>>()?;
        let admin = config.server.admin_listen;
        let admin = admin.map(|at| {
            let bound = bind(at).map_err(|source| bind_error(&at.ip().to_string(), at.port(), source))?;
            Ok::<_, StartError>((at, bound))
        });
        Ok(Self { listeners, admin: admin.transpose()? })
    }
}

/// Log dirs and journal dirs.
fn dirs(config: &BrokerConfig) -> usize {
    config.log_dirs().len() + config.journal_dirs().len()
}

fn listen(
    broker: &Arc<Broker>,
    aside: Aside,
    admin_runtime: &Handle,
    sockets: Sockets,
    connections_max: usize,
    stopping: &StopSignal,
) -> Result<Started, StartError> {
    let config = Arc::clone(&broker.config);
    let limits = listener_limits(broker, aside.clone(), connections_max);
    let router = Arc::new(Router::new(Arc::clone(broker), aside));
    let counts = Arc::new(ConnectionCounts::default());
    let mut tasks = JoinSet::new();
    let mut bound = Vec::new();
    let mut listeners = Vec::new();
    for (listener, socket) in sockets.listeners {
        let failed = |source| bind_error(&listener.host, listener.port, source);
        let socket = socket.listen(config.network.socket_listen_backlog_size).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        bound.push((listener.clone(), address));
        listeners.push(Listener {
            name: Arc::from(listener.name.as_str()),
            socket,
            limits: limits.clone(),
            counts: Arc::clone(&counts),
            metrics: Arc::clone(&broker.metrics),
            supervisor: Arc::clone(&broker.supervisor),
            dispatch: Arc::clone(&router),
        });
    }
    let listen_admin = |(at, socket): (SocketAddr, Bound)| {
        // Its connections belong to the runtime in which it begins to listen.
        let _inside = admin_runtime.enter();
        socket.listen(ADMIN_BACKLOG).map_err(|source| bind_error(&at.ip().to_string(), at.port(), source))
    };
    let admin_socket = sockets.admin.map(listen_admin).transpose()?;
    let admin = admin_socket.as_ref().and_then(|socket| socket.local_addr().ok());
    if let Some(address) = admin {
        admin::warn_if_exposed(address);
    }
    let advertised = advertised(&config, &bound);
    let bootstrap =
        advertised.first().map(|first| format!("{}:{}", first.host, first.port)).unwrap_or_default();
    broker.advertised.get_or_init(|| advertised);
    // Before the first request: a request that deletes topics removes their files itself.
    let supervisor = &broker.supervisor;
    supervisor.ends_with(stopping.clone());
    tasks.spawn(supervisor.errand("resume-removals", catalog::resume_removals(&broker.catalog, stopping)));
    for listener in listeners {
        let name = format!("listener {}", listener.name);
        tasks.spawn(supervisor.task(&name, listener.run(stopping.clone())));
    }
    if let Some(socket) = admin_socket {
        let run = admin::run(socket, Arc::clone(broker), stopping.clone());
        tasks.spawn_on(supervisor.task("admin", run), admin_runtime);
    }
    jobs::spawn(broker, stopping, &mut tasks);
    Ok(Started {
        broker: Arc::clone(broker),
        addresses: Addresses { bootstrap, listeners: bound, admin },
        tasks,
    })
}

/// The addresses for clients: those of the configuration, with the bound port where it was left open.
fn advertised(config: &BrokerConfig, bound: &[(ListenerAddress, SocketAddr)]) -> Vec<ListenerAddress> {
    let told = |(listener, address): &(ListenerAddress, SocketAddr)| {
        let mut told = config.advertised(&listener.name).unwrap_or(listener).clone();
        if told.port == 0 {
            told.port = address.port();
        }
        told
    };
    bound.iter().map(told).collect()
}

fn bind_address(host: &str, port: u16) -> Result<Bound, StartError> {
    let host = if host.is_empty() { "0.0.0.0" } else { host };
    let unknown = |source| StartError::Lookup { address: format!("{host}:{port}"), source };
    let address = (host, port).to_socket_addrs().map_err(unknown)?.next();
    let address =
        address.ok_or_else(|| bind_error(host, port, std::io::ErrorKind::AddrNotAvailable.into()))?;
    bind(address).map_err(|source| bind_error(host, port, source))
}

fn bind_error(host: &str, port: u16, source: std::io::Error) -> StartError {
    StartError::Bind { address: format!("{host}:{port}"), source }
}

fn listener_limits(broker: &Broker, aside: Aside, connections_max: usize) -> ListenerLimits {
    let network = &broker.config.network;
    let buffer = |bytes: i32| usize::try_from(bytes).ok();
    ListenerLimits {
        connections: Arc::new(ConnectionBounds::new(network, connections_max)),
        send_buffer_bytes: buffer(network.socket_send_buffer_bytes),
        receive_buffer_bytes: buffer(network.socket_receive_buffer_bytes),
        turns: Arc::clone(&broker.turns),
        connection: ConnectionLimits {
            frame_bytes_max: network.socket_request_max_bytes,
            requests_max: network.queued_max_requests,
            frame_time_max: Duration::from_millis(network.socket_frame_timeout_ms),
            idle_time_max: Duration::from_millis(network.connections_max_idle_ms),
            requests: Arc::clone(&broker.budgets.requests),
            responses: Arc::clone(&broker.budgets.responses),
            catch_up: Arc::clone(&broker.catch_up),
            produce_gate: Arc::clone(&broker.produce_gate),
            inflating: Arc::clone(&broker.inflating),
            aside,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpStream};
    use std::task::Context;

    use bytes::BytesMut;
    use riverrun_env::sim::SimEnv;

    use super::*;
    use crate::context::ConnectionInfo;
    use crate::flow::budget::Charge;
    use crate::net::dispatch::{Dispatch, Staged};

    /// A bug that a request triggers.
    struct Panics;

    impl Dispatch for Panics {
        fn stage(&self, _: &mut Context<'_>, _: &Arc<ConnectionInfo>, _: BytesMut, _: Charge) -> Staged {
            panic!("planted")
        }
    }

    #[test]
    fn a_request_that_panics_ends_its_connection_and_no_other() {
        let config = BrokerConfig::from_pairs([("data.dir", "/data")]).expect("valid");
        let broker = open_broker(SimEnv::new(1).env(), config).expect("starts");
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("started");
        let _inside = runtime.enter();
        let socket =
            bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("bound").listen(5).expect("listens");
        let address = socket.local_addr().expect("bound");
        let listener = Listener {
            name: Arc::from("PLAINTEXT"),
            socket,
            limits: listener_limits(&broker, Aside::on(&runtime, 0), usize::MAX),
            counts: Arc::default(),
            metrics: Arc::clone(&broker.metrics),
            supervisor: Arc::clone(&broker.supervisor),
            dispatch: Arc::new(Panics),
        };
        let (stop, stopping) = watch::channel(false);
        broker.supervisor.ends_with(stopping.clone());
        let running = runtime.spawn(broker.supervisor.task("listener", listener.run(stopping)));
        for panics in 1..3 {
            let mut client = TcpStream::connect(address).expect("the listener goes on");
            client.write_all(&[&10_u32.to_be_bytes()[..], &[0; 10]].concat()).expect("taken");
            assert_eq!(client.read(&mut [0]).expect("closed"), 0);
            // The connection is closed while the panic unwinds, and counted then.
            let until = Instant::now() + Duration::from_secs(10);
            while broker.supervisor.connection_panics() < panics {
                assert!(Instant::now() < until, "the panic is not counted");
                std::thread::yield_now();
            }
            assert_eq!(broker.supervisor.connection_panics(), panics);
        }
        assert_eq!(broker.supervisor.troubles(), [""; 0]);
        stop.send_replace(true);
        runtime.block_on(running).expect("it ends");
    }
}
