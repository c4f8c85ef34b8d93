//! The HTTP port: health, and metrics under their documented names.

use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use riverrun_env::{Clock, Env, RealClock};
use riverrun_protocol::OffsetCommitRequest;
use riverrun_protocol::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use riverrun_types::TimestampMs;
use socket2::{Domain, Socket, Type};

use crate::support::{
    Client, PATIENCE, batch, create_topic, find_coordinator, produce, read_all, server_with,
};

/// Status line and body of a GET.
pub(crate) fn get(address: SocketAddr, path: &str) -> (String, String) {
    let (head, body) = get_with(address, path, "");
    (head.lines().next().expect("a status").to_owned(), body)
}

/// Head and body of a GET with these headers, each with its line end.
pub(crate) fn get_with(address: SocketAddr, path: &str, headers: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("the port is open");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n")
        .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}

#[test]
fn a_request_for_a_host_that_is_not_known_is_refused() {
    let server = server_with(&[("admin.listen", "127.0.0.1:0"), ("admin.hosts", "metrics.example.org")]);
    let address = server.admin_address().expect("an admin port");
    for (host, status) in [("localhost", "200"), ("metrics.example.org:80", "200"), ("evil.example", "421")] {
        for path in ["/health", "/metrics"] {
            let mut stream = TcpStream::connect(address).expect("the port is open");
            stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
            write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("answered");
            assert_eq!(answer.split(' ').nth(1), Some(status), "{host} {path}");
        }
    }
}

#[test]
fn health_is_text_for_people_and_json_for_programs() {
    let server = server_with(&[("admin.listen", "127.0.0.1:0")]);
    let address = server.admin_address().expect("an admin port");
    assert_eq!(get(address, "/health"), ("HTTP/1.1 200 OK".to_owned(), "ok\n".to_owned()));
    let (head, body) = get_with(address, "/health", "Accept: application/json\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("content-type: application/json"), "{head}");
    assert_eq!(body, r#"{"status":"ok","findings":[]}"#);
}

#[test]
fn connections_that_do_not_ask_keep_nobody_from_the_admin_port() {
    let server = server_with(&[("admin.listen", "127.0.0.1:0")]);
    let address = server.admin_address().expect("an admin port");
    let slow: Vec<_> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(address).expect("the port is open");
            stream.write_all(b"GET / HTTP/1.1\r\nA: ").expect("sent");
            stream
        })
        .collect();
    assert!(get(address, "/health").0.contains("200"));
    let since = Instant::now();
    server.stop().expect("a clean stop");
    assert!(since.elapsed() < Duration::from_secs(4), "{:?}", since.elapsed());
    drop(slow);
}

/// A connection from this address, if the server accepts it.
fn connect_from(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

/// Opens as many connections as the port has places and sends `sent` on each; replaces those that are closed.
fn crowd(to: SocketAddr, sent: &[u8], is_over: &AtomicBool) {
    let open = || {
        let mut stream = connect_from(Ipv4Addr::new(127, 0, 0, 2), to).ok()?;
        stream.set_nonblocking(true).ok()?;
        stream.write_all(sent).ok()?;
        Some(stream)
    };
    let is_open = |stream: &mut TcpStream| {
        let read = stream.read(&mut [0; 512]);
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    };
    let mut streams: Vec<Option<TcpStream>> = (0..20).map(|_| None).collect();
    while !is_over.load(Ordering::SeqCst) {
        for stream in &mut streams {
            if !stream.as_mut().is_some_and(is_open) {
                *stream = open();
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_crowd_of_one_source_keeps_no_other_from_the_admin_port() {
    let server = server_with(&[("admin.listen", "127.0.0.1:0")]);
    let address = server.admin_address().expect("an admin port");
    let asks = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\nGET");
    for sent in [&b"\r\n\r\n"[..], b"GET /\r\n\r\n", asks.as_bytes(), b""] {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| crowd(address, sent, &is_over));
            let looks = (0..30).map(|look| {
                let path = if look % 2 == 0 { "/health" } else { "/metrics" };
                thread::sleep(Duration::from_millis(10));
                std::panic::catch_unwind(|| get(address, path).0.contains("200")).unwrap_or(false)
            });
            let answered = looks.filter(|is_answered| *is_answered).count();
            is_over.store(true, Ordering::SeqCst);
            assert_eq!(answered, 30, "{}", sent.escape_ascii());
        });
    }
    server.stop().expect("a clean stop");
}

/// A clock that can stand still for the threads of the network: what they then work on takes forever.
struct HoldsUpNetwork {
    real: RealClock,
    is_on: AtomicBool,
}

impl Clock for HoldsUpNetwork {
    fn wall(&self) -> TimestampMs {
        self.real.wall()
    }

    fn monotonic(&self) -> Duration {
        let is_of_network = || thread::current().name() == Some("riverrun-worker");
        while self.is_on.load(Ordering::SeqCst) && is_of_network() {
            thread::sleep(Duration::from_millis(1));
        }
        self.real.monotonic()
    }
}

#[test]
fn the_admin_port_answers_while_all_network_threads_are_busy() {
    let clock = Arc::new(HoldsUpNetwork { real: RealClock::new(), is_on: AtomicBool::new(false) });
    let env = Env { clock: Arc::clone(&clock) as _, ..Env::real() };
    let builder = riverrun_broker::Server::builder().env(env);
    let options = [("admin.listen", "127.0.0.1:0"), ("num.network.threads", "1")];
    let builder =
        options.into_iter().fold(builder, |builder, (key, value)| builder.set(key, value).expect("valid"));
    let server = builder.start().expect("started");
    let address = server.admin_address().expect("an admin port");
    let mut client = Client::new(&server);
    clock.is_on.store(true, Ordering::SeqCst);
    let asking = thread::spawn(move || create_topic(&mut client, "t", 1, &[]));
    let until = Instant::now() + PATIENCE;
    while !get(address, "/health").1.contains("the network's threads are busy") {
        assert!(Instant::now() < until, "nobody tells");
        thread::sleep(Duration::from_millis(50));
    }
    assert!(get(address, "/metrics").1.contains("riverrun_waiting_seconds{what=\"network_threads\"}"));
    clock.is_on.store(false, Ordering::SeqCst);
    asking.join().expect("answered");
    server.stop().expect("a clean stop");
}

#[test]
fn health_and_metrics_are_served() {
    let server = server_with(&[("admin.listen", "127.0.0.1:0")]);
    let address = server.admin_address().expect("an admin port");
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    produce(&mut client, "t", 0, &batch(&["a", "b", "c"]));
    assert_eq!(read_all(&mut client, "t", 0, 0).len(), 3);
    commit(&mut client);
    let (status, body) = get(address, "/health");
    assert!(status.contains("200"), "{status}");
    assert!(body.contains("ok"), "{body}");
    let (status, text) = get(address, "/metrics");
    assert!(status.contains("200"), "{status}");
    for line in [
        "riverrun_high_watermark{topic=\"t\",partition=\"0\"} 3",
        "riverrun_log_start_offset{topic=\"t\",partition=\"0\"} 0",
        "riverrun_durability_level{topic=\"t\",partition=\"0\"} 1",
        "riverrun_group_lag{group=\"g\",topic=\"t\",partition=\"0\"} 2",
        "riverrun_connections_open 1",
        "riverrun_request_duration_seconds_count{api=\"Produce\"} 1",
        "riverrun_request_duration_seconds_count{api=\"Fetch\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
    assert_eq!(get(address, "/nothing").0.split(' ').nth(1), Some("404"));
    server.stop().expect("a clean stop");
    assert!(TcpStream::connect(address).is_err(), "the port is closed with the server");
}

/// Commits one offset for the group `g`, of the topic `t`.
pub(crate) fn commit(client: &mut Client) {
    find_coordinator(client, "g");
    let partition = OffsetCommitRequestPartition { committed_offset: 1, ..Default::default() };
    let topics = vec![OffsetCommitRequestTopic {
        name: "t".into(),
        partitions: vec![partition],
        ..Default::default()
    }];
    let request = OffsetCommitRequest { group_id: "g".into(), topics, ..Default::default() };
    assert_eq!(client.call(&request, 9).topics[0].partitions[0].error_code, 0);
}

#[test]
fn lag_is_shown_after_a_restart_before_any_group_request() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = [("admin.listen", "127.0.0.1:0"), ("data.dir", directory.path().to_str().expect("text"))];
    let server = server_with(&options);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    produce(&mut client, "t", 0, &batch(&["a", "b", "c"]));
    commit(&mut client);
    server.stop().expect("a clean stop");
    let server = server_with(&options);
    let address = server.admin_address().expect("an admin port");
    let until = Instant::now() + PATIENCE;
    while !get(address, "/metrics")
        .1
        .contains("riverrun_group_lag{group=\"g\",topic=\"t\",partition=\"0\"} 2")
    {
        assert!(Instant::now() < until, "the groups were never loaded");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn every_metric_is_described_once_and_nothing_is_there_twice() {
    let server = server_with(&[("admin.listen", "127.0.0.1:0")]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 2, &[]);
    produce(&mut client, "t", 0, &batch(&["a"]));
    produce(&mut client, "t", 1, &batch(&["a"]));
    let accept =
        "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3\r\n";
    let (head, text) = get_with(server.admin_address().expect("an admin port"), "/metrics", accept);
    assert!(
        head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{head}"
    );
    let described: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next()).collect();
    let names: BTreeSet<&str> = described.iter().copied().collect();
    assert_eq!(described.len(), names.len(), "{described:?}");
    let open_ended = text
        .lines()
        .find(|line| line.starts_with("# HELP ") && (!line.ends_with('.') || line.ends_with("..")));
    assert_eq!(open_ended, None, "a description is a sentence");
    let write = text.lines().find(|line| line.starts_with("# HELP riverrun_journal_write_seconds "));
    assert!(write.is_some_and(|help| help.contains("unless one call writes and syncs it")), "{write:?}");
    let series: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, _)| name)
        .collect();
    let distinct: BTreeSet<&str> = series.iter().copied().collect();
    assert_eq!(series.len(), distinct.len());
    assert!(text.ends_with("# EOF\n"));
    // No quantile can be computed without that bucket.
    let in_all = text.matches("le=\"+Inf\"").count();
    let histograms =
        series.iter().filter(|series| series.split('{').next().unwrap_or("").ends_with("_count"));
    assert_eq!(in_all, histograms.count());
}

#[test]
fn metrics_are_in_the_classic_format_by_default() {
    let server = server_with(&[("admin.listen", "127.0.0.1:0")]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    produce(&mut client, "t", 0, &batch(&["a"]));
    for headers in ["", "Accept: */*\r\n", "Accept: text/plain;version=0.0.4\r\n"] {
        let (head, text) = get_with(server.admin_address().expect("an admin port"), "/metrics", headers);
        assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
        let mut described = BTreeSet::new();
        for line in text.lines() {
            if let Some(family) = line.strip_prefix("# TYPE ") {
                let (name, kind) = family.split_once(' ').expect("a name and a type");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                described.insert(name);
            } else if !line.starts_with('#') {
                let name = line.split(['{', ' ']).next().expect("a name");
                let parts = ["", "_bucket", "_sum", "_count"];
                let family = parts.iter().find_map(|part| described.get(name.strip_suffix(part)?));
                assert!(family.is_some(), "{name} was not described");
            }
        }
        assert!(described.contains("process_cpu_seconds_total"), "{described:?}");
    }
}
