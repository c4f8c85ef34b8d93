//! A server that has lost a part of its metadata, or of the other files beside the records: each damaged file is
//! mended or named with the way out, and a start makes nothing worse.

use std::fs;
use std::path::{Path, PathBuf};

use riverrun_broker::Server;
use riverrun_protocol::create_partitions_request::CreatePartitionsTopic;
use riverrun_protocol::{CreatePartitionsRequest, ErrorCode};

use crate::admin_port::get;
use crate::lifecycle::{commit, committed, copy};
use crate::support::{
    Client, batch, configured, create_topic, fetch, find_coordinator, produce, read_all, records,
    server_with, values,
};

/// The two logs of the metadata of a server that runs or was killed.
fn metadata_logs(data: &Path) -> Vec<PathBuf> {
    let paths =
        fs::read_dir(data.join("meta")).expect("readable").map(|entry| entry.expect("an entry").path());
    let is_log =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log-"));
    let logs: Vec<_> = paths.filter(is_log).collect();
    assert_eq!(logs.len(), 2, "{logs:?}");
    logs
}

fn start(data: &Path) -> Server {
    server_with(&[("data.dir", data.to_str().expect("text")), ("admin.listen", "127.0.0.1:0")])
}

fn health(server: &Server) -> (String, String) {
    get(server.admin_address().expect("an admin port"), "/health")
}

fn refused(data: &Path) -> String {
    configured(&[("data.dir", data.to_str().expect("text"))]).start().expect_err("refused").to_string()
}

/// The data of a server that was killed with the topics `kept` and `lost`, in each of which a group has committed, and
/// whose metadata lost its end then, at the end of a change: nothing in the logs themselves shows it.
fn cut_after_a_kill(dir: &Path) -> PathBuf {
    let (running, killed) = (dir.join("running"), dir.join("killed"));
    let server = start(&running);
    let mut client = Client::new(&server);
    create_topic(&mut client, "kept", 1, &[("durability", "4")]);
    find_coordinator(&mut client, "g");
    let before = fs::read(&metadata_logs(&running)[0]).expect("readable");
    create_topic(&mut client, "lost", 1, &[("durability", "4")]);
    for topic in ["kept", "lost"] {
        produce(&mut client, topic, 0, &batch(&[topic]));
        commit(&mut client, "g", topic, 1);
    }
    copy(&running, &killed);
    for log in metadata_logs(&killed) {
        fs::write(log, &before).expect("writable");
    }
    killed
}

#[test]
fn lost_topics_stop_the_start_until_the_loss_is_accepted() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = cut_after_a_kill(dir.path());
    for _ in 0..2 {
        let error = refused(&data);
        assert!(error.contains("does not know the topics or partitions of 1 directories"), "{error}");
        assert!(error.contains("accept-metadata-loss") && error.contains("Restore it"), "{error}");
    }
    fs::write(data.join("meta/accept-metadata-loss"), "").expect("written");
    for _ in 0..2 {
        let server = start(&data);
        let mut client = Client::new(&server);
        assert_eq!(read_all(&mut client, "kept", 0, 0), ["kept"]);
        let both = [("kept".to_owned(), 1), ("lost".to_owned(), 1)];
        assert_eq!(committed(&mut client, "g"), both);
        let (status, body) = health(&server);
        assert!(
            status.contains("200") && body.contains("1 topics that the metadata has lost"),
            "{status} {body}"
        );
        server.stop().expect("a clean stop");
    }
    let aside: Vec<_> = fs::read_dir(data.join("logs"))
        .expect("readable")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("lost-")))
        .collect();
    assert!(aside.len() == 1 && aside[0].join("0/00000000000000000000.log").exists(), "{aside:?}");
    fs::remove_dir_all(&aside[0]).expect("removed");
    let server = start(&data);
    assert_eq!(committed(&mut Client::new(&server), "g"), [("kept".to_owned(), 1)], "of no topic any more");
    assert_eq!(health(&server).1, "ok\n");
}

#[test]
fn partitions_added_after_the_metadata_copy_come_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let [data, older] = ["data", "older"].map(|name| dir.path().join(name));
    let server = start(&data);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    produce(&mut client, "t", 0, &batch(&["0"]));
    copy(&data.join("meta"), &older);
    let topic = CreatePartitionsTopic { name: "t".into(), count: 4, assignments: None };
    let grown = client.call(&CreatePartitionsRequest { topics: vec![topic], ..Default::default() }, 3);
    assert_eq!(grown.results[0].error_code, 0);
    produce(&mut client, "t", 2, &batch(&["2"]));
    server.stop().expect("a clean stop");
    fs::remove_dir_all(data.join("meta")).expect("removed");
    copy(&older, &data.join("meta"));
    let error = refused(&data);
    assert!(error.contains("and 0 added partitions") && error.contains("and 3 added partitions"), "{error}");
    fs::write(data.join("meta/accept-metadata-loss"), "").expect("written");
    for value in ["more", "and more"] {
        let server = start(&data);
        let mut client = Client::new(&server);
        assert_eq!(read_all(&mut client, "t", 0, 0), ["0"]);
        assert_eq!(read_all(&mut client, "t", 1, 0), [""; 0]);
        produce(&mut client, "t", 2, &batch(&[value]));
        assert_eq!(health(&server).1, "ok\n");
        server.stop().expect("a clean stop");
    }
    let server = start(&data);
    assert_eq!(read_all(&mut Client::new(&server), "t", 2, 0), ["2", "more", "and more"]);
}

#[test]
fn cut_metadata_comes_from_its_copy_or_stops_the_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let server = start(&data);
    let mut client = Client::new(&server);
    for topic in ["a", "b"] {
        create_topic(&mut client, topic, 1, &[]);
        produce(&mut client, topic, 0, &batch(&[topic]));
    }
    server.stop().expect("a clean stop");
    let cut = |name: &str| {
        let path = data.join("meta").join(name);
        let bytes = fs::read(&path).expect("readable");
        fs::write(&path, &bytes[..bytes.len() / 2]).expect("writable");
    };
    cut("snapshot");
    let server = start(&data);
    let mut client = Client::new(&server);
    assert_eq!(
        (read_all(&mut client, "a", 0, 0), read_all(&mut client, "b", 0, 0)),
        (vec!["a".to_owned()], vec!["b".to_owned()])
    );
    server.stop().expect("a clean stop");
    cut("snapshot");
    cut("snapshot-copy");
    let error = refused(&data);
    assert!(error.contains("snapshot") && error.contains("Restore") && error.contains("meta"), "{error}");
}

/// Every file below, with its path from there.
fn files(dir: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![dir.to_path_buf()]);
    while let Some(at) = open.pop() {
        for path in fs::read_dir(at).expect("readable").map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                open.push(path);
            } else {
                found.push(path.strip_prefix(dir).expect("below").to_path_buf());
            }
        }
    }
    found.sort();
    found
}

/// The start of a server one of whose files is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The server starts, and everything is there.
    Unharmed,
    /// No start until a file of this name in `meta` says that the owner accepts the loss.
    UntilAccepted(&'static str),
    /// No start; the message gives the way out.
    Refused,
}

/// The rows of docs/damage.md for files beside segments and their indexes.
fn expected(file: &str, damage: &str, was_killed: bool) -> Outcome {
    match (file, damage) {
        ("journal/00000000.journal", "missing") if was_killed => Outcome::UntilAccepted("accept-loss"),
        ("journal/00000000.journal", "empty") => Outcome::Refused,
        _ => Outcome::Unharmed,
    }
}

type Damage = (&'static str, fn(&mut Vec<u8>));

const DAMAGES: [Damage; 3] = [
    ("empty", |bytes| bytes.clear()),
    ("half", |bytes| bytes.truncate(bytes.len() / 2)),
    ("flipped", |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    }),
];

/// Whether both topics have all of their records.
fn reads_all(server: &Server) -> bool {
    let mut client = Client::new(server);
    ["a", "s"].iter().all(|topic| {
        let data = fetch(&mut client, topic, 0, 0);
        data.error_code == 0 && values(records(&data)) == [*topic, *topic]
    })
}

/// A server with topics of two levels and a group, stopped in order or killed, and each of its files in turn missing, or
/// emptied, cut or flipped.
#[test]
fn damaged_files_beside_segments_are_mended_or_explained() {
    let dir = tempfile::tempdir().expect("a directory");
    let [data, stopped, killed] = ["data", "stopped", "killed"].map(|name| dir.path().join(name));
    let start = || {
        let options = [("data.dir", data.to_str().expect("text")), ("journal.bytes", "8388608")];
        configured(&options).start().map_err(|error| error.to_string())
    };
    let server = start().expect("starts");
    let mut client = Client::new(&server);
    for (topic, level) in [("a", "4"), ("s", "1")] {
        create_topic(&mut client, topic, 1, &[("durability", level)]);
        produce(&mut client, topic, 0, &batch(&[topic]));
        produce(&mut client, topic, 0, &batch(&[topic]));
    }
    find_coordinator(&mut client, "g");
    assert_eq!(commit(&mut client, "g", "a", 1), ErrorCode::NONE);
    copy(&data, &killed);
    server.stop().expect("a clean stop");
    copy(&data, &stopped);
    for (state, was_killed) in [(&stopped, false), (&killed, true)] {
        let is_beside =
            |file: &&PathBuf| !matches!(file.extension().and_then(|e| e.to_str()), Some("log" | "index"));
        for file in files(state).iter().filter(is_beside) {
            let name = file.to_str().expect("text");
            let missing: Damage = ("missing", |_| ());
            // Other damage after a stop in order is looked at elsewhere.
            let others = DAMAGES.iter().filter(|_| was_killed);
            for (damage, act) in others.copied().chain([missing]) {
                let case = format!("{damage} {name}, killed: {was_killed}");
                fs::remove_dir_all(&data).expect("removed");
                copy(state, &data);
                let mut bytes = fs::read(data.join(file)).expect("readable");
                fs::remove_file(data.join(file)).expect("removed");
                if !bytes.is_empty() && damage != "missing" {
                    act(&mut bytes);
                    fs::write(data.join(file), bytes).expect("writable");
                }
                check(&case, &data, start, expected(name, damage, was_killed));
            }
        }
    }
}

fn check(case: &str, data: &Path, start: impl Fn() -> Result<Server, String>, expected: Outcome) {
    let error = match start() {
        Ok(server) => {
            assert_eq!(expected, Outcome::Unharmed, "{case}: it started");
            assert!(reads_all(&server), "{case}: not all is there");
            return;
        }
        Err(error) => error,
    };
    assert_ne!(expected, Outcome::Unharmed, "{case}: {error}");
    assert!(error.contains("estore") || error.contains("Is its disk mounted?"), "{case}: {error}");
    if let Outcome::UntilAccepted(file) = expected {
        assert!(
            error.contains(file) && error.contains(data.join("meta").to_str().expect("text")),
            "{case}: {error}"
        );
        fs::write(data.join("meta").join(file), "").expect("writable");
        start().unwrap_or_else(|error| panic!("{case}, accepted: {error}"));
        start().unwrap_or_else(|error| panic!("{case}, once more: {error}"));
    }
}
