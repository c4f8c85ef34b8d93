//! Directories that are taken away under a running server: noticed within a checkpoint's interval and shown by health;
//! nothing is acked after that.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use riverrun_broker::Server;
use riverrun_protocol::ErrorCode;

use crate::admin_port::get;
use crate::support::{
    Client, PATIENCE, batch, configured, create_topic, produce, server_with, topic_id, try_produce,
};

/// How often the server looks.
const INTERVAL_MS: &str = "100";

fn options<'a>(data: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let always = [
        ("data.dir", data),
        ("admin.listen", "127.0.0.1:0"),
        ("log.flush.offset.checkpoint.interval.ms", INTERVAL_MS),
    ];
    always.into_iter().chain(more.iter().copied()).collect()
}

fn troubles(server: &Server) -> String {
    get(server.admin_address().expect("an admin port"), "/health").1
}

fn wait_until(what: &str, is_done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_done() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn topic_dir(client: &mut Client, logs: &Path, topic: &str) -> PathBuf {
    let id = format!("{:032x}", u128::from_be_bytes(topic_id(client, topic).0));
    let parts = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]];
    logs.join(parts.join("-"))
}

#[test]
fn a_removed_partition_or_topic_is_noticed_and_others_go_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = server_with(&options(directory.path().to_str().expect("text"), &[]));
    let mut client = Client::new(&server);
    for (topic, level) in [("synced", "1"), ("cached", "4"), ("other", "1")] {
        create_topic(&mut client, topic, 2, &[("durability", level)]);
        for partition in 0..2 {
            produce(&mut client, topic, partition, &batch(&["value"]));
        }
    }
    let logs = directory.path().join("logs");
    let partition = topic_dir(&mut client, &logs, "synced").join("0");
    wait_until("it is settled", || partition.exists());
    fs::remove_dir_all(&partition).expect("removed");
    let cached = topic_dir(&mut client, &logs, "cached");
    fs::remove_dir_all(&cached).expect("removed");
    for (topic, partition) in [("synced", 0), ("cached", 0), ("cached", 1)] {
        wait_until(topic, || {
            troubles(&server).contains(&format!("partition {topic}-{partition} is offline"))
        });
        let answer = try_produce(&mut client, topic, partition, &batch(&["lost"]));
        assert_eq!(ErrorCode(answer.error_code), ErrorCode::KAFKA_STORAGE_ERROR, "{topic}-{partition}");
    }
    assert!(troubles(&server).contains("was removed under the running server"), "{}", troubles(&server));
    assert!(!cached.exists(), "nothing is made in its place");
    for (topic, partition) in [("synced", 1), ("other", 0), ("other", 1)] {
        produce(&mut client, topic, partition, &batch(&["value"]));
    }
}

#[test]
fn a_log_dir_that_is_covered_fails_and_the_other_one_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let [one, two] = ["one", "two"].map(|name| directory.path().join(name));
    let dirs = format!("{},{}", one.display(), two.display());
    let more = [("log.dirs", dirs.as_str())];
    let server = server_with(&options(directory.path().to_str().expect("text"), &more));
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 2, &[]);
    for partition in 0..2 {
        produce(&mut client, "t", partition, &batch(&["value"]));
    }
    fs::rename(&one, directory.path().join("away")).expect("renamed");
    fs::create_dir(&one).expect("made");
    let failed = format!("log dir {} has failed", one.display());
    wait_until(&failed, || troubles(&server).contains(&failed));
    create_topic(&mut client, "new", 2, &[]);
    let codes: Vec<_> = (0..2)
        .map(|partition| ErrorCode(try_produce(&mut client, "t", partition, &batch(&["more"])).error_code))
        .collect();
    assert!(codes.contains(&ErrorCode::KAFKA_STORAGE_ERROR) && codes.contains(&ErrorCode::NONE), "{codes:?}");
    for partition in 0..2 {
        produce(&mut client, "new", partition, &batch(&["value"]));
    }
    assert!(!server.is_stopping());
    drop(client);
    server.stop().expect("the other one stops in order");
    assert_eq!(fs::read_dir(&one).expect("there").count(), 0, "nothing is written where it lay");
}

#[test]
fn a_server_whose_journal_s_header_is_written_over_stops() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path();
    let set = options(data.to_str().expect("text"), &[]);
    let server = configured(&set).start().expect("the server starts");
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    produce(&mut client, "t", 0, &batch(&["value"]));
    let path = data.join("journal/00000000.journal");
    let file = fs::OpenOptions::new().write(true).open(&path).expect("the journal has it");
    file.write_all_at(&[7; 4096], 0).expect("written");
    wait_until("it is not noticed", || server.is_stopping());
    drop(client);
    let reason = server.stop().expect_err("it stopped by itself").to_string();
    assert!(reason.contains("00000000.journal was written over under the running server"), "{reason}");
}

#[test]
fn a_server_without_its_logs_its_metadata_or_its_journal_stops() {
    for name in ["logs", "meta", "journal"] {
        let directory = tempfile::tempdir().expect("a directory");
        let data = directory.path();
        let set = options(data.to_str().expect("text"), &[]);
        let server = configured(&set).start().expect("the server starts");
        let mut client = Client::new(&server);
        create_topic(&mut client, "t", 1, &[]);
        produce(&mut client, "t", 0, &batch(&["value"]));
        fs::rename(data.join(name), data.join("away")).expect("renamed");
        wait_until(name, || server.is_stopping());
        drop(client);
        let reason = server.stop().expect_err("it stopped by itself").to_string();
        assert!(reason.contains("was taken away under the running server"), "{name}: {reason}");
        assert!(!data.join(name).exists(), "nothing is made in its place");
        fs::rename(data.join("away"), data.join(name)).expect("renamed");
        let server = configured(&set).start().expect("it is back");
        let mut client = Client::new(&server);
        assert_eq!(produce(&mut client, "t", 0, &batch(&["another"])), 1, "{name}: nothing was lost");
    }
}
