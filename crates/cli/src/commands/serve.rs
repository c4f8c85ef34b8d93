//! `riverrun serve`: a server until a signal stops it.
//!
//! Guarantees that the server neither waits for the readers of stdout and stderr, nor ends when they leave. The first
//! Ctrl-C, SIGTERM or SIGHUP closes the files in order and ends with exit code 0, and a second one ends the process at
//! once, which the next start recovers from; two that come together count as one. One that comes before the server is
//! ready ends the process at once, too: a start may be cut off anywhere, and the next one does the unfinished
//! work. A server that stops by itself, because its disks have failed, ends the process with an exit code of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use riverrun_broker::config::load::{FILE_BYTES_MAX, Sources, parse_assignment};
use riverrun_broker::config::{BrokerConfig, ConfigError, LogFormat, Origin};
use riverrun_broker::{MetadataError, Server, StartError, StopError};
use riverrun_env::{RealFileSystem, is_odd_file, read_whole};
use riverrun_journal::JournalError;
use riverrun_log::LogError;
use riverrun_tools::exit::{Exit, Failure};
use riverrun_tools::logging;
use riverrun_tools::signals::StopSignals;
use riverrun_tools::text::output::OutputArgs;
use serde::Serialize;

use super::config::config_failure;
use crate::args::OWN_VARIABLES;

const EXAMPLES: &str = "\
Examples:
  riverrun serve
  riverrun serve --data /var/lib/riverrun --set num.partitions=3
  riverrun serve --listen 0.0.0.0:9092 --set advertised.listeners=PLAINTEXT://db1:9092
  riverrun serve --config riverrun.toml --admin 127.0.0.1:9644
  riverrun serve --mount quotes=/var/lib/quotes --mount orders=/var/lib/orders:rw:synced

A flag wins over the environment (RIVERRUN_LOG_RETENTION_MS for log.retention.ms), and that over
the file. `riverrun config docs` prints every option, and `riverrun config check FILE` checks a file.
Ctrl-C, SIGTERM or SIGHUP stop the server cleanly; a second one, or one that comes before the
server is ready, stops it at once with exit code 130. Under nohup, SIGHUP is ignored. When every log
dir has failed, or the metadata has, the server stops by itself with exit code 7; when one of its
threads has died, which is a fault of the server, with exit code 1.";

/// With fewer descriptors than this a server of many partitions and connections opens and closes files all the time,
/// and lets connections wait.
const DESCRIPTORS_ENOUGH: u64 = 65_536;

/// Behind the name of a listener.
const SCHEME: &str = "://";
/// The form of `--listen`, for an error message.
const LISTEN_FORM: &str = "it must be HOST:PORT, such as 127.0.0.1:9092, or NAME://HOST:PORT";

/// Flags of `serve`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Directory for everything the server keeps; made if it does not exist [default: riverrun-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Address for Kafka clients, also as NAME://HOST:PORT; port 0 takes a free one [default: 127.0.0.1:9092]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Address for /metrics and /health over HTTP [default: none]
    #[arg(long, value_name = "HOST:PORT")]
    admin: Option<String>,
    /// Format of the log on stderr: text, or json, which writes one object on each line, on stdout as well [default: text]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Offer the embedded queue in DIR as the topic NAME, for reading; with :rw, clients may produce to it, too; with
    /// :synced, they see only records that a sync has covered, and are acked then; with :retention.ms=N or
    /// :retention.bytes=N behind :rw, the server removes older records, or the oldest beyond that size; repeatable
    #[arg(long = "mount", value_name = "NAME=DIR[:rw][:synced]")]
    mounts: Vec<String>,
    /// Set any option by name; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = parse_assignment)]
    set: Vec<(String, String)>,
    #[command(flatten)]
    output: OutputArgs,
}

/// The line of a server that is ready.
#[derive(Serialize)]
struct Ready {
    version: &'static str,
    bootstrap: String,
    listeners: Vec<String>,
    admin: Option<String>,
    data: String,
    journals: Vec<String>,
    durability: u8,
    survives: &'static str,
}

pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    let output = args.output;
    let config = load(args)?;
    // Before the server starts, which takes its measure from the limit.
    raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::io("cannot start", &error))?;
    runtime.block_on(serve(config, output))
}

/// Takes all descriptors that the system lets this process have, and says if they are few.
fn raise_descriptors() {
    match riverrun_env::raise_descriptor_limit() {
        Ok(Some(limit)) if limit < DESCRIPTORS_ENOUGH => tracing::warn!(
            limit,
            enough = DESCRIPTORS_ENOUGH,
            "the limit of open descriptors is low; raise the hard limit (ulimit -Hn, systemd's LimitNOFILE)"
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "the limit of open descriptors stays as it is"),
    }
}

async fn serve(config: BrokerConfig, output: OutputArgs) -> Result<(), Failure> {
    // Before the server starts, so that no signal is lost between the two.
    let mut stop = StopSignals::new()?;
    let data = absolute(&config.server.data_dir);
    let admin = config.server.admin_listen;
    // A program that parses the server's output as JSON cannot read a line that is not.
    let output = OutputArgs { json: output.json || config.server.log_format == LogFormat::Json };
    // On a thread of its own: it may have much to recover, and signals are heard meanwhile.
    let starting = tokio::task::spawn_blocking(move || Server::start(config, logging::account()));
    let started = tokio::select! {
        biased;
        started = starting => started,
        () = stop.next() => end_at_once("stopped while starting; the next start does the unfinished work"),
    };
    let started = started.map_err(|error| Failure::new(Exit::Failed, format!("cannot start: {error}")))?;
    let server = started.map_err(|error| cannot_start(&error, &data, admin))?;
    print_ready(ready(&server, data.to_string_lossy().into_owned()), output)?;
    tokio::select! {
        () = stop.next() => tracing::info!("stopping; a second signal stops at once"),
        () = server.stopping() => {}
    }
    let stopped = tokio::task::spawn_blocking(move || server.stop());
    tokio::select! {
        stopped = stopped => match stopped {
            Ok(stopped) => stopped.map_err(|error| not_in_order(&error)),
            Err(error) => Err(Failure::new(Exit::Failed, format!("the server did not stop cleanly: {error}"))),
        },
        () = stop.next() => end_at_once("stopped at once; the next start recovers"),
    }
}

/// Ends the process as a kill does, but for the log, which says why.
fn end_at_once(why: &str) -> ! {
    tracing::warn!("{why}");
    logging::drain();
    std::process::exit(Exit::Interrupted as i32);
}

/// Prints the line by a thread of its own: the reader of stdout may have stopped or gone, and the server runs without it.
fn print_ready(ready: Ready, output: OutputArgs) -> Result<(), Failure> {
    let print = move || {
        if let Err(error) = output.try_print(&ready, ready_line) {
            tracing::warn!(%error, "the line that says that the server is ready could not be printed");
        }
    };
    let thread = std::thread::Builder::new().name("riverrun-ready".to_owned()).spawn(print);
    thread.map(drop).map_err(|error| Failure::io("cannot start a thread", &error))
}

fn not_in_order(error: &StopError) -> Failure {
    let message = error.to_string();
    match error {
        StopError::StorageFailed(_) => Failure::new(Exit::StorageFailed, message)
            .advise(
                "mend the disk (dmesg tells of it), or put back what was taken away, and start again: that recovers what was \
                 acked as synced",
            ),
        StopError::ThreadDied(_) | StopError::Unclean(_) => Failure::new(Exit::Failed, message),
    }
}

/// Reads all sources of configuration, flags last.
fn load(args: &ServeArgs) -> Result<BrokerConfig, Failure> {
    let flags = flags(args)?;
    let file = args.config.as_deref().map(read_config_file).transpose();
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let name = args.config.as_deref().map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    let text = file.as_ref().ok().and_then(|text| text.as_deref());
    let text = text.map(|text| (name.as_str(), text));
    let sources = Sources { file: text, environment, foreign_variables: &OWN_VARIABLES, flags };
    // Before any of them is checked, so that a JSON log has the reason why the server does not start.
    logging::set_json(sources.log_format() == LogFormat::Json);
    file.as_ref().map_err(Failure::clone)?;
    sources.load().map_err(|error| config_failure(&naming_flag(error, args)))
}

/// The error with the flag that set the value, as it was typed.
fn naming_flag(mut error: ConfigError, args: &ServeArgs) -> ConfigError {
    if let ConfigError::BadValue { key, value, origin: origin @ Origin::Flag, reason } = &mut error {
        let named = [
            ("data.dir", "--data", args.data.is_some()),
            ("listeners", "--listen", args.listen.is_some()),
            ("admin.listen", "--admin", args.admin.is_some()),
            ("log.format", "--log-format", args.log_format.is_some()),
            ("mounts", "--mount", !args.mounts.is_empty()),
        ];
        let flag = named.iter().find(|(option, _, is_given)| option == key && *is_given);
        let is_set = args.set.iter().any(|(set, _)| set == key);
        *origin = match flag {
            Some((_, flag, _)) => Origin::NamedFlag(flag),
            None if is_set => Origin::NamedFlag("--set"),
            None => Origin::Flag,
        };
        if let (Origin::NamedFlag("--listen"), Some(typed)) = (origin, &args.listen) {
            value.clone_from(typed);
            if !typed.contains(SCHEME) {
                LISTEN_FORM.clone_into(reason);
            }
        }
    }
    error
}

/// The named flags and `--set`, as assignments. An option that is given twice is refused: neither is meant less.
fn flags(args: &ServeArgs) -> Result<Vec<(String, String)>, Failure> {
    let mut flags: Vec<(String, String)> = Vec::new();
    let named = [
        ("data.dir", args.data.as_ref().map(|path| path_text(path)).transpose()?),
        ("listeners", args.listen.as_deref().map(listener)),
        ("admin.listen", args.admin.clone()),
        ("log.format", args.log_format.clone()),
        ("mounts", (!args.mounts.is_empty()).then(|| args.mounts.join(","))),
    ];
    let named = named.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    for (key, value) in named.chain(args.set.iter().cloned()) {
        if flags.iter().any(|(set, _)| *set == key) {
            return Err(Failure::usage(format!("option {key} is given by two flags; keep one of them")));
        }
        flags.push((key, value));
    }
    Ok(flags)
}

/// The listener that `--listen` asks for, which may name it.
fn listener(address: &str) -> String {
    if address.contains(SCHEME) { address.to_owned() } else { format!("PLAINTEXT{SCHEME}{address}") }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn path_text(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().ok_or_else(|| Failure::usage("--data: the path is not UTF-8"))?;
    Ok(text.to_owned())
}

/// The text of a configuration file. Reading is bounded, and what is no file is refused.
pub(crate) fn read_config_file(path: &Path) -> Result<String, Failure> {
    let name = format!("configuration file {}", path.display());
    let failed = |error: &std::io::Error| Failure::io(&name, error);
    let bytes = match read_whole(&RealFileSystem, path, FILE_BYTES_MAX) {
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            return Err(Failure::usage(format!("{name}: longer than {FILE_BYTES_MAX} bytes")));
        }
        Err(error) if is_odd_file(&error) => return Err(Failure::usage(format!("{name}: {error}"))),
        read => read.map_err(|error| failed(&error))?,
    };
    String::from_utf8(bytes).map_err(|_| Failure::usage(format!("{name}: it is not UTF-8")))
}

fn ready(server: &Server, data: String) -> Ready {
    let durability = server.default_durability();
    Ready {
        version: env!("CARGO_PKG_VERSION"),
        bootstrap: server.bootstrap().to_owned(),
        listeners: server.listeners().map(|(name, address)| format!("{name}://{address}")).collect(),
        admin: server.admin_address().map(|address| address.to_string()),
        data,
        journals: server.journal_dirs().iter().map(|dir| absolute(dir).display().to_string()).collect(),
        durability: durability.number(),
        survives: durability.survives(),
    }
}

fn ready_line(ready: &Ready) -> String {
    let admin =
        ready.admin.as_ref().map(|admin| format!(", metrics at http://{admin}/metrics")).unwrap_or_default();
    format!(
        "riverrun {} listens on {}{admin}, keeps its data in {}, acks at durability level {} (survives {}), has its journal in {}; Ctrl-C stops\n",
        ready.version,
        ready.listeners.join(", "),
        ready.data,
        ready.durability,
        ready.survives,
        ready.journals.join(", "),
    )
}

fn address_advice(flag: &str) -> String {
    let port = if flag == "--admin" { 9644 } else { 9092 };
    format!("{flag} with an address of this machine, such as 127.0.0.1:{port}")
}

/// Advice about a directory that another server has locked.
fn own_directory(option: &str, locked: &Path) -> String {
    format!("stop the other server on {}, or {option} with another directory", locked.display())
}

fn cannot_start(error: &StartError, data: &Path, admin: Option<SocketAddr>) -> Failure {
    let message = format!("cannot start: {error}");
    let is_admin =
        |address: &str| admin.is_some_and(|admin| address == format!("{}:{}", admin.ip(), admin.port()));
    let flag = |address: &str| if is_admin(address) { "--admin" } else { "--listen" };
    match error {
        StartError::Config(error) => config_failure(error),
        StartError::Metadata(MetadataError::InUse(_)) => Failure::new(Exit::Conflict, message)
            .advise(own_directory("--data", data)),
        StartError::Metadata(MetadataError::LogDirInUse { path, .. })
        | StartError::Log(LogError::Locked { path }) => {
            Failure::new(Exit::Conflict, message).advise(own_directory("log.dirs", path))
        }
        StartError::Log(LogError::Journal(JournalError::Locked { path })) => {
            Failure::new(Exit::Conflict, message).advise(own_directory("journal.dirs", path))
        }
        StartError::MountTaken { .. } => Failure::new(Exit::Conflict, message),
        StartError::Metadata(MetadataError::Absent(_)) => Failure::new(Exit::NotFound, message),
        StartError::Metadata(MetadataError::Missing { meta, .. }) => {
            let advice = format!("{} back from a copy, or log.dirs with other directories", meta.display());
            Failure::new(Exit::NotFound, message).advise(advice)
        }
        StartError::NoQueue { dir, .. } => Failure::new(Exit::NotFound, message).advise(format!(
            "mount the disk that has it, or leave it out of the mounts; riverrun queue create {} makes a new one",
            dir.display()
        )),
        StartError::Descriptors { .. } => Failure::usage(message),
        StartError::Bind { address, source } if source.kind() == std::io::ErrorKind::AddrInUse => {
            let advice = format!("{} with another port; 0 takes a free one", flag(address));
            Failure::new(Exit::Conflict, message).advise(advice)
        }
        StartError::QueueDir { option, .. } | StartError::OthersLogDir { option, .. } => {
            let flag = if *option == "data.dir" { "--data" } else { option };
            Failure::new(Exit::Conflict, message).advise(format!("{flag} with another directory"))
        }
        StartError::Lookup { address, .. } => Failure::usage(message).advise(address_advice(flag(address))),
        StartError::Bind { address, source } if source.kind() == std::io::ErrorKind::AddrNotAvailable => {
            Failure::usage(message).advise(address_advice(flag(address)))
        }
        _ => match data.ancestors().find(|path| path.is_file()) {
            Some(file) => Failure::usage(message)
                .advise(format!("--data with a directory; {} is a file", file.display())),
            None => Failure::new(Exit::Failed, message),
        },
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn args(flags: &[&str]) -> ServeArgs {
        Line::try_parse_from([&["serve"], flags].concat()).expect("valid flags").serve
    }

    #[test]
    fn named_flags_set_the_options_that_they_stand_for() {
        let args =
            args(&["--data", "/d", "--listen", "[::1]:1", "--admin", "127.0.0.1:2", "--set", "a.b=c=d"]);
        let expected = [
            ("data.dir", "/d"),
            ("listeners", "PLAINTEXT://[::1]:1"),
            ("admin.listen", "127.0.0.1:2"),
            ("a.b", "c=d"),
        ];
        assert_eq!(flags(&args).expect("distinct"), expected.map(|(k, v)| (k.to_owned(), v.to_owned())));
    }

    #[test]
    fn a_listener_may_be_named_and_an_error_shows_the_form() {
        let args = |listen: &str| args(&["--listen", listen]);
        let set = flags(&args("INTERNAL://:9092")).expect("distinct");
        assert_eq!(set, [("listeners".to_owned(), "INTERNAL://:9092".to_owned())]);
        for (typed, wanted) in
            [("9092", "it must be HOST:PORT, such as"), ("INTERNAL://x", "it must be NAME://host:port")]
        {
            let error = load(&args(typed)).expect_err("refused").to_string();
            assert!(error.contains(wanted) && error.contains("--listen"), "{error}");
        }
    }

    #[test]
    fn a_server_that_stopped_by_itself_has_an_exit_code_of_its_own() {
        let failed = not_in_order(&StopError::StorageFailed("no log dir is left".to_owned()));
        assert_eq!(failed.exit, Exit::StorageFailed);
        assert!(failed.to_string().contains("by itself: no log dir is left"), "{failed}");
        assert_eq!(not_in_order(&StopError::Unclean("full".to_owned())).exit, Exit::Failed);
    }

    #[test]
    fn an_option_given_twice_is_refused() {
        for twice in [&["--data", "a", "--set", "data.dir=b"][..], &["--set", "a=1", "--set", "a=2"]] {
            assert_eq!(flags(&args(twice)).expect_err("twice").exit, Exit::Usage);
        }
    }

    #[test]
    fn a_configuration_file_that_is_missing_or_endless_is_refused() {
        assert_eq!(read_config_file(Path::new("/no/such/file")).expect_err("missing").exit, Exit::NotFound);
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("long.toml");
        std::fs::write(&path, vec![b'#'; 1024 * 1024 + 1]).expect("written");
        assert_eq!(read_config_file(&path).expect_err("too long").exit, Exit::Usage);
        assert_eq!(read_config_file(Path::new("/dev/zero")).expect_err("endless").exit, Exit::Usage);
        std::fs::write(&path, b"\xff").expect("written");
        assert_eq!(read_config_file(&path).expect_err("not text").exit, Exit::Usage);
    }
}
