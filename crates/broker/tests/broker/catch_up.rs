//! Consumers that read records from the disk: they get them as written, also during writes, and the records leave memory
//! again once they are read.

use std::fs::File;
use std::io::IoSliceMut;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use riverrun_broker::Server;
use riverrun_protocol::FetchResponse;
use riverrun_protocol::fetch_request::FetchPartition;
use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};

use crate::support::{
    Client, FETCH_BY_NAME, PATIENCE, batch, configured, create_topic, fetch, fetch_request, produce, records,
    values,
};

const BATCHES: usize = 40;
const VALUE_BYTES: usize = 900_000;

/// Two or three segments, in a directory of its own, where everything is older than the last MiB.
fn cold_server(data: &Path) -> Server {
    configured(&[
        ("default.durability", "4"),
        ("catchup.distance.bytes", "1048576"),
        ("catchup.reads.max", "2"),
    ])
    .data_dir(data)
    .expect("a path")
    .start()
    .expect("starts")
}

fn value(index: usize) -> String {
    let mut text = format!("value {index} ").repeat(VALUE_BYTES / 8);
    text.truncate(VALUE_BYTES);
    text
}

fn fill(client: &mut Client) {
    create_topic(client, "t", 1, &[("segment.bytes", "25165824")]);
    for index in 0..BATCHES {
        produce(client, "t", 0, &batch(&[&value(index)]));
    }
}

/// The segment files with records in them, oldest first.
fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry")) {
        let path = entry.path();
        if path.is_dir() {
            found.extend(segments(&path));
        } else if path.extension().is_some_and(|ending| ending == "log")
            && entry.metadata().expect("readable").len() > VALUE_BYTES as u64
        {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn forget_pages(path: &Path) {
    let file = File::open(path).expect("opens");
    file.sync_all().expect("syncs");
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).expect("advice");
}

fn is_in_memory(path: &Path, position: u64) -> bool {
    let file = File::open(path).expect("opens");
    let mut byte = [0];
    let probed =
        rustix::io::preadv2(&file, &mut [IoSliceMut::new(&mut byte)], position, ReadWriteFlags::NOWAIT);
    !matches!(probed, Err(Errno::AGAIN))
}

/// Reads the first `BATCHES` records as a consumer would, response by response.
fn assert_reads_all(client: &mut Client) {
    let mut next = 0;
    while next < BATCHES {
        let data = fetch(client, "t", 0, i64::try_from(next).expect("few"));
        assert_eq!(data.error_code, 0);
        let found = values(records(&data));
        assert!(!found.is_empty(), "there is more at {next}");
        for found in found.into_iter().take(BATCHES - next) {
            assert!(found == value(next), "record {next} is not what was written");
            next += 1;
        }
    }
}

#[test]
fn records_read_from_the_disk_are_right_and_leave_memory() {
    let data = tempfile::tempdir().expect("a directory");
    let server = cold_server(data.path());
    let mut client = Client::new(&server);
    fill(&mut client);
    let files = segments(data.path());
    assert!(files.len() >= 2, "{files:?}");
    for path in &files {
        forget_pages(path);
    }
    // Some file systems, such as those in memory, keep their pages whatever the advice.
    let can_forget = !is_in_memory(&files[0], 0);
    assert_reads_all(&mut client);
    let since = Instant::now();
    while can_forget && is_in_memory(&files[0], 4 << 20) {
        assert!(since.elapsed() < PATIENCE, "the first segment is still in memory");
        thread::sleep(Duration::from_millis(10));
    }
    assert_reads_all(&mut client);
    server.stop().expect("stops");
}

#[test]
fn records_found_at_a_start_leave_memory_once_read() {
    let data = tempfile::tempdir().expect("a directory");
    let server = cold_server(data.path());
    fill(&mut Client::new(&server));
    server.stop().expect("stops");
    let server = cold_server(data.path());
    let mut client = Client::new(&server);
    let files = segments(data.path());
    for path in &files {
        forget_pages(path);
    }
    let can_forget = !is_in_memory(&files[0], 0);
    // The server reads the records to prove them before they are sent: they must not look as if they were cached before that.
    assert_reads_all(&mut client);
    let since = Instant::now();
    while can_forget && is_in_memory(&files[0], 4 << 20) {
        assert!(since.elapsed() < PATIENCE, "the first segment is still in memory");
        thread::sleep(Duration::from_millis(10));
    }
    server.stop().expect("stops");
}

#[test]
fn a_fetch_of_many_cold_partitions_takes_few_at_a_time() {
    const PARTITIONS: i32 = 6;
    let data = tempfile::tempdir().expect("a directory");
    let server = cold_server(data.path());
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", PARTITIONS, &[]);
    for index in 0..PARTITIONS {
        produce(&mut client, "t", index, &batch(&[&value(0)]));
    }
    server.stop().expect("stops");
    let server = cold_server(data.path());
    let mut client = Client::new(&server);
    for path in segments(data.path()) {
        forget_pages(&path);
    }
    let mut left: Vec<i32> = (0..PARTITIONS).collect();
    while !left.is_empty() {
        let mut request = fetch_request("t", left[0], 0);
        request.max_wait_ms = 300_000;
        // There is less than the fetch waits for; but two partitions fit into the bytes that a pass may prove.
        request.min_bytes = if left.len() > 2 { i32::MAX } else { 1 };
        let first = request.topics[0].partitions[0].clone();
        let of = |partition: &i32| FetchPartition { partition: *partition, ..first.clone() };
        request.topics[0].partitions = left.iter().map(of).collect();
        let mut response: FetchResponse<'_> = client.call(&request, FETCH_BY_NAME);
        let answers = response.responses.remove(0).partitions;
        assert_eq!(answers.len(), left.len());
        for answer in &answers {
            let found = (answer.high_watermark, answer.log_start_offset);
            // Nothing is known of a log that the fetch leaves out before anybody opened it.
            let is_left = records(answer).is_empty() && found == (-1, -1);
            let partition = answer.partition_index;
            assert!(answer.error_code == 0 && (found == (1, 0) || is_left), "{partition}: {found:?}");
        }
        let mut found: Vec<i32> = Vec::new();
        for answer in answers.iter().filter(|answer| !records(answer).is_empty()) {
            assert!(values(records(answer)) == [value(0)]);
            found.push(answer.partition_index);
        }
        // Each is nearly 1 MiB: the second is the last, or the first if the disk took its time.
        assert!((1..=2).contains(&found.len()), "{found:?} at once");
        left.retain(|partition| !found.contains(partition));
    }
    server.stop().expect("stops");
}

#[test]
fn records_that_are_in_memory_stay_there() {
    let data = tempfile::tempdir().expect("a directory");
    let server = cold_server(data.path());
    let mut client = Client::new(&server);
    fill(&mut client);
    assert_reads_all(&mut client);
    thread::sleep(Duration::from_millis(100));
    assert!(is_in_memory(&segments(data.path())[0], 4 << 20));
    server.stop().expect("stops");
}

#[test]
fn readers_far_behind_and_a_writer_do_not_wait_for_each_other() {
    let data = tempfile::tempdir().expect("a directory");
    let server = cold_server(data.path());
    let mut writer = Client::new(&server);
    fill(&mut writer);
    for path in segments(data.path()) {
        forget_pages(&path);
    }
    thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let mut client = Client::new(&server);
                scope.spawn(move || assert_reads_all(&mut client))
            })
            .collect();
        let mut written = 0;
        while written < 20 || readers.iter().any(|reader| !reader.is_finished()) {
            produce(&mut writer, "t", 0, &batch(&["new"]));
            written += 1;
        }
    });
    server.stop().expect("stops");
}
