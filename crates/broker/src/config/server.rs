//! Options of the server as a whole: its identity, its directories, mounts, threads, the admin port, and how topics are made.

use std::path::PathBuf;

use riverrun_types::limits;

use super::definition::Kind::{Bool, Choice, Int, List, Long, Text};
use super::definition::{Accept, options};
use super::host_name::HostName;
use super::mount::Mount;

/// Log dirs that take no new partitions.
pub(crate) const CORDONED_LOG_DIRS: &str = "cordoned.log.dirs";

options! {
    /// The server as a whole.
    struct ServerOptions;

    /// Id of this node, as clients see it. The data directory remembers it and refuses another.
    node_id: i32 = "node.id", Int(0, i32::MAX), Some("1");
    /// Rack or zone of this node, told to clients that prefer a near one.
    broker_rack: Option<String> = "broker.rack", Text("any text"), None;
    /// Directory that holds everything this server keeps: metadata in `meta`, records in `logs` unless `log.dirs` says
    /// otherwise. It is made if it does not exist, unless `data.dir.create` forbids it.
    data_dir: PathBuf = "data.dir", Text("a path"), Some("riverrun-data");
    /// Whether a start makes new metadata, and with it a new cluster without topics, where `data.dir` holds none. The cause may
    /// be a disk that is not mounted: with `false` such a start is refused, with exit code 3, and nothing is made. Where the
    /// option is not set, the start warns in the log; `true` says that a new cluster is meant.
    data_dir_create: bool = "data.dir.create", Bool, Some("true");
    /// Directories of the partitions' records, separated by commas. A new partition goes to the one that holds the
    /// fewest. A directory may have another path at the next start. It may be left out once it has no partitions, and come
    /// back as a new one; until then a start without it is refused, because partitions do not move between log dirs. Not set:
    /// `logs` in `data.dir`.
    log_dirs: Vec<PathBuf> = "log.dirs", List("paths separated by commas"), None;
    /// Log dirs that take no new partitions (KIP-1066), as `log.dirs` names them or by their absolute paths, separated by
    /// commas; `*`, which stands alone, is all of them. Partitions that are there go on. A value that a client sets for the
    /// server holds at once and over restarts, even if the directory has another path then. Once a client deletes it, the value
    /// that is set here holds again.
    cordoned_log_dirs: Vec<String> = "cordoned.log.dirs", List("paths of log.dirs separated by commas, or *"), Some("");
    /// Bytes of each log dir's volume that producers leave free, so that when it fills up, readers, group offsets and
    /// deletions go on. It is never more than a twentieth of the volume.
    log_dir_reserve_bytes: u64 = "log.dir.reserve.bytes", Long(0, i64::MAX), Some("134217728");
    /// Embedded queues (`riverrun queue`) of this machine that are offered as topics, as `name=directory`, separated by
    /// commas; in the file also as a table `[mounts]` with a directory for each name. Such a topic has one partition, which
    /// is read by Kafka clients while processes append to the queue. Clients see all published records, as the queue's own
    /// readers do; with `:synced` behind the directory (`quotes=/var/lib/quotes:synced`) only those that a sync has covered,
    /// which no power cut takes back. Clients produce to it only with `:rw` (`quotes=/var/lib/quotes:rw`, or `:rw:synced`):
    /// their batches are stored as they were sent, up to the size of a segment, among those of the processes, and acked when
    /// they are published, or synced with `:synced`. Idempotent producers are remembered, transactions are refused. One
    /// server at a time takes records for a queue. The server removes no records, whatever `log.retention.*` says, unless the
    /// mount says so: with `:retention.ms=N` or `:retention.bytes=N` behind `:rw`
    /// (`orders=/var/lib/orders:rw:retention.bytes=10737418240`) the oldest segments go, as with a topic's options of these
    /// names; never the one that is appended to, nor one that a process of this machine is reading with a tailer. Processes
    /// that append remove records by their own retention. Server and appenders may reach the queue by different mounts of one
    /// machine, as a container does by a volume. A queue that no process has open, and that was last used before a boot or by
    /// another mount, is served as a recovery would find it, with a warning in the log, until a process opens it to append.
    mounts: Vec<Mount> = "mounts", List("name=directory pairs separated by commas, each with any of :rw, :synced, :retention.ms=N and :retention.bytes=N behind it"), Some("");
    /// Threads that serve connections and requests. Not set: one for each processor core. Compressed records that are
    /// many (above 16 KiB in a request), or of a connection whose last ones took long, are inflated and compressed again
    /// by other threads, as many at once as there are cores (two where there is one). A request gives way to others after each
    /// slice of its batches, and one of these threads is only for connections whose batches do not take long.
    /// `riverrun_requests_waiting_to_inflate` of the metrics counts the requests that wait for one. When clients ask for more
    /// than the threads can do, their sources (addresses, of IPv6 the first 64 bits) take turns of about a millisecond: a source
    /// with many connections gets no more than another. `riverrun_connections_waiting_for_turn` counts the connections that
    /// wait.
    num_network_threads: Option<usize> = "num.network.threads", Int(1, 1024), None;
    /// Address of the HTTP port for `/metrics` and `/health`. It has no access control, so it should stay on a
    /// loopback address. Not set: no such port. It has 16 connections at most; a new one takes the place of one of the address
    /// that has most, first of one that has not asked for anything. A connection that has not been answered for 10 seconds
    /// ends, and any after a minute.
    admin_listen: Option<std::net::SocketAddr> = "admin.listen", Text("an address and port such as 127.0.0.1:9644"), None;
    /// How `riverrun serve` writes a line of its log: as text for people, or as a JSON object with `timestamp`, `level`,
    /// `target`, `message` and `fields`. The error that ends the server is such a line, too, with `exit_code` and `advice` in
    /// its fields. With `json` the line on stdout that says that the server is ready is an object, too, as `--json` has it. A
    /// server inside a program logs as that program wants it.
    log_format: LogFormat = "log.format", Choice(&["text", "json"]), Some("text");
    /// Names by which the admin port is reached, separated by commas. A request that names another host is refused, so that no
    /// page in a browser can read the port through a name of its own (DNS rebinding). `localhost`, loopback addresses and the
    /// address at which a request comes in are known already.
    admin_hosts: Vec<HostName> = "admin.hosts", List("host names separated by commas"), Some("");
    /// Whether a client that asks for a topic that does not exist makes it, with `num.partitions` partitions.
    auto_create_topics_enable: bool = "auto.create.topics.enable", Bool, Some("true");
    /// Whether topics may be deleted.
    delete_topic_enable: bool = "delete.topic.enable", Bool, Some("true");
    /// Partitions of a topic that is made without saying how many.
    num_partitions: i32 = "num.partitions", Int(1, limits::TOPIC_PARTITIONS_MAX), Some("1");
    /// Replicas of a topic that is made without saying how many.
    default_replication_factor: i16 = "default.replication.factor", Int(1, 32767), Some("1"),
        Accept::Only(&["1"], "it must be 1, because this server is one node");
    /// Partitions in one answer to a client that describes topics; it asks again for the rest.
    max_request_partition_size_limit: usize = "max.request.partition.size.limit", Int(1, i32::MAX), Some("2000");
    /// Milliseconds for which a producer's sequence numbers are remembered after its last write. A producer that was
    /// silent for longer gets a new id.
    producer_id_expiration_ms: u64 = "producer.id.expiration.ms", Int(1, i32::MAX), Some("86400000");
    /// Milliseconds between two searches for producers to forget.
    producer_id_expiration_check_interval_ms: u64 = "producer.id.expiration.check.interval.ms", Int(1, i32::MAX), Some("600000");
}

impl ServerOptions {
    /// How many threads serve connections.
    pub(crate) fn network_threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.num_network_threads.unwrap_or_else(cores)
    }
}

/// The form of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs: one object on each line.
    Json,
}

impl super::definition::FromOption for LogFormat {
    fn from_option(text: Option<&str>) -> Result<Self, String> {
        match text {
            Some("text") => Ok(Self::Text),
            Some("json") => Ok(Self::Json),
            _ => Err("it must be one of text, json".to_owned()),
        }
    }
}

impl super::definition::FromOption for std::net::SocketAddr {
    fn from_option(text: Option<&str>) -> Result<Self, String> {
        text.and_then(|text| text.trim().parse().ok())
            .ok_or_else(|| "it must be an IP address and port, such as 127.0.0.1:9644".to_owned())
    }
}
