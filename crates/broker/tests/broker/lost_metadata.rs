//! A server that has lost a part of its metadata, and everything else that it keeps beside the records: what is damaged
//! is either made good or named with the way out, and a start makes nothing worse.

use std::fs;
use std::path::{Path, PathBuf};

use riverrun_broker::Server;

use crate::admin_port::get;
use crate::lifecycle::{commit, committed, copy};
use crate::support::{
    Client, batch, configured, create_topic, find_coordinator, produce, read_all, server_with,
};

/// The log of the metadata of a server that runs or was killed.
fn metadata_log(data: &Path) -> PathBuf {
    let mut paths =
        fs::read_dir(data.join("meta")).expect("readable").map(|entry| entry.expect("an entry").path());
    let is_log =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log-"));
    paths.find(is_log).expect("a log")
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
/// whose metadata lost its end then, at the end of a change: nothing in the log itself shows it.
fn cut_after_a_kill(dir: &Path) -> PathBuf {
    let (running, killed) = (dir.join("running"), dir.join("killed"));
    let server = start(&running);
    let mut client = Client::new(&server);
    create_topic(&mut client, "kept", 1, &[("durability", "4")]);
    find_coordinator(&mut client, "g");
    let before = fs::read(metadata_log(&running)).expect("readable");
    create_topic(&mut client, "lost", 1, &[("durability", "4")]);
    for topic in ["kept", "lost"] {
        produce(&mut client, topic, 0, &batch(&[topic]));
        commit(&mut client, "g", topic, 1);
    }
    copy(&running, &killed);
    fs::write(metadata_log(&killed), before).expect("writable");
    killed
}

#[test]
fn a_server_that_has_lost_topics_does_not_start_until_its_owner_says_so_and_keeps_offsets_and_records() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = cut_after_a_kill(dir.path());
    for _ in 0..2 {
        let error = refused(&data);
        assert!(error.contains("does not know the topics of 1 directories"), "{error}");
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
fn metadata_that_is_cut_after_a_stop_in_order_comes_from_its_copy_or_stops_the_start() {
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
