//! Options of connections: addresses, sizes, time-outs, and the memory that requests and responses may hold.

use super::definition::Kind::{Int, List, Long};
use super::definition::options;
use super::listener::Listener;
use super::per_ip::ConnectionsOfIp;

options! {
    /// Connections.
    struct NetworkOptions;

    /// Addresses to listen on, each `NAME://host:port`, separated by commas. An empty host is every interface; port 0
    /// takes a free one.
    listeners: Vec<Listener> = "listeners", List("listeners NAME://host:port, separated by commas"), Some("PLAINTEXT://127.0.0.1:9092");
    /// Addresses that clients are told, by listener name. A client that connected to a listener is told the address of
    /// the same name. Not set for a listener: its address in `listeners`.
    advertised_listeners: Vec<Listener> = "advertised.listeners", List("listeners NAME://host:port, separated by commas"), None;
    /// Bytes of one request at most. A longer one ends its connection before anything is allocated.
    socket_request_max_bytes: usize = "socket.request.max.bytes", Int(1024, i32::MAX), Some("104857600");
    /// Bytes of a socket's send buffer; -1 leaves it to the system, which lets it grow with the connection's need.
    /// Kafka's default is 102400, which wakes the server about ten times for each megabyte that a consumer reads.
    socket_send_buffer_bytes: i32 = "socket.send.buffer.bytes", Int(-1, i32::MAX), Some("-1");
    /// Bytes of a socket's receive buffer; -1 leaves it to the system.
    socket_receive_buffer_bytes: i32 = "socket.receive.buffer.bytes", Int(-1, i32::MAX), Some("102400");
    /// Connections that wait to be accepted at most.
    socket_listen_backlog_size: u32 = "socket.listen.backlog.size", Int(1, i32::MAX), Some("1024");
    /// Milliseconds from the first byte of a request to its last at most. A client that sends slower is disconnected. While
    /// others wait for memory, a large request has less time: see `queued.max.request.bytes`.
    socket_frame_timeout_ms: u64 = "socket.frame.timeout.ms", Int(1, i32::MAX), Some("60000");
    /// Open connections at most; further ones are closed at once. Where the process has descriptors for fewer, room for a new
    /// one is made by closing others: those that have sent no request in their first second, then idle ones of the address that
    /// has most, or those that have been idle for longest. One in use is closed only where its address has many. If none may be
    /// closed, the new one is.
    max_connections: usize = "max.connections", Int(0, i32::MAX), Some("2147483647");
    /// Open connections from one address at most; further ones are closed at once.
    max_connections_per_ip: usize = "max.connections.per.ip", Int(0, i32::MAX), Some("2147483647");
    /// Open connections from single addresses at most, in place of `max.connections.per.ip`: `address:count`, separated by
    /// commas. An address is an IP address, not a host name; one of IPv6 may stand in brackets.
    max_connections_per_ip_overrides: Vec<ConnectionsOfIp> = "max.connections.per.ip.overrides", List("pairs address:count, separated by commas"), Some("");
    /// Milliseconds after which a connection that neither sends nor receives is closed, also while it waits for an answer.
    /// A fetch waits for half of that at most, whatever it asks for.
    connections_max_idle_ms: u64 = "connections.max.idle.ms", Long(1, i64::MAX), Some("600000");
    /// Requests of one connection that may be unanswered at once, of them 16 fetches that wait for records. Kafka counts them
    /// over all connections.
    queued_max_requests: usize = "queued.max.requests", Int(1, 65536), Some("500");
    /// Bytes of requests that all connections together may hold; further ones wait unread. A connection has no limit in bytes
    /// of its own. Its source (an IPv4 address, or a /64 of IPv6) has one: it begins no further request while those that came
    /// whole hold more of that memory than they leave free. Kafka has no such bound unless it is set.
    /// - Large requests that are not whole yet hold three quarters of it at most, so that others always pass: those of up to
    ///   2 MiB a half, larger ones a quarter. Connections whose last large request came whole are given it first, then the
    ///   source that has least of it. Connections of which none came whole yet fill it one after the other, 256 KiB in a
    ///   millisecond.
    /// - While a connection waits for that memory, others that hold some are disconnected if they send nothing for 250 ms, or
    ///   do not send their request within two seconds (less where much waits, and at least 0.25; a second more for each 64
    ///   MiB).
    /// - A fetch that waits for records counts with 4 KiB and what it keeps of its request, and ends after a second if others
    ///   wait for memory. A member that waits for its group counts with about 1 KiB.
    /// - Not counted are 64 KiB of each connection, in which it reads, and two requests that would else wait for each other:
    ///   one of up to 2 MiB, and one of up to `socket.request.max.bytes`.
    /// - Decoded requests with many elements may take half as much again, of which a source has such a share as well; one
    ///   that takes more is worked on alone. A few of them for each core are worked on at once, of one source half of these.
    /// - The metrics show the bytes that are held (`riverrun_request_memory_bytes`), how many requests wait for them
    ///   (`riverrun_requests_waiting_for_memory`), and the same of decoded requests with many elements
    ///   (`riverrun_aside_memory_bytes`, `riverrun_requests_aside`, `riverrun_requests_waiting_for_turn_aside`).
    queued_max_request_bytes: usize = "queued.max.request.bytes", Long(1_048_576, i64::MAX), Some("134217728");
    /// Bytes of unsent responses that all connections together may hold before further requests with large answers wait:
    /// those of more than 64 KiB that are no records, and those for all topics, groups or configs. A request with a small
    /// answer never waits.
    /// - A source (an IPv4 address, or a /64 of IPv6) may begin more while it holds no more than is left, so that the source
    ///   that holds least comes first.
    /// - A fetch answers with a quarter of what is left for it, as far as its records are in memory, and with 64 KiB or a
    ///   batch in any case.
    /// - While others wait, or more is held than there is, a connection that holds more than 64 KiB and takes less than a
    ///   sixty-fourth of that in 200 ms is closed, the largest first. A response of more than 64 KiB is not kept, and its
    ///   connection closed, where half as much again is held as this. `/health` and the log say so.
    /// - The metrics show the bytes that are held (`riverrun_response_memory_bytes`), how many requests wait
    ///   (`riverrun_requests_waiting_for_response_memory`) and how many connections were closed
    ///   (`riverrun_connections_closed_for_response_memory_total`).
    queued_max_response_bytes: usize = "queued.max.response.bytes", Long(1_048_576, i64::MAX), Some("134217728");
    /// Bytes of records in one fetch response at most, whatever the client asks for.
    fetch_max_bytes: usize = "fetch.max.bytes", Int(1024, i32::MAX), Some("57671680");
    /// Requests that may wait for the disk of a log dir at once, over all connections: fetches of consumers that catch up on
    /// records which have left memory, and searches by time. Each fetch answers what it has after some 10 ms or 1 MiB of such
    /// records, but not in the midst of a partition, of which it takes up to 1 MiB or one batch, nor of a piece of 1 MiB that it
    /// sends. A higher value reads faster from a disk that does many things at once; a lower one leaves more of the disk to the
    /// writers. An address that has had many of late leaves one of them to the others.
    catchup_reads_max: usize = "catchup.reads.max", Int(1, 1024), Some("4");
    /// Bytes behind the end of a log beyond which records that a consumer had to have read from the disk are dropped
    /// from the system's page cache once they were sent, so that they take no room from what consumers near the end
    /// read. Estimated from the size of the records that are read.
    catchup_distance_bytes: u64 = "catchup.distance.bytes", Long(0, i64::MAX), Some("268435456");
    /// Incremental fetch sessions that are remembered at most. A client beyond sends whole fetch requests.
    max_incremental_fetch_session_cache_slots: usize = "max.incremental.fetch.session.cache.slots", Int(0, i32::MAX), Some("1000");
}
