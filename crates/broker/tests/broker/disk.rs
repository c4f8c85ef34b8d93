//! Every file of a data directory, spoiled in every way: the damage is found, no reader gets bytes that were not
//! written, partitions beside the file go on, and with complete files restored everything is back.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use riverrun_broker::Server;
use riverrun_protocol::offset_fetch_request::OffsetFetchRequestGroup;
use riverrun_protocol::{ErrorCode, OffsetFetchRequest};
use riverrun_records::{Batches, UnverifiedBatch};

use crate::lifecycle::commit;
use crate::support::{
    Client, batch, configured, create_topic, fetch, find_coordinator, produce, records, values,
};

/// Topic, partition, and how long the values of its records are.
const PARTITIONS: [(&str, i32, usize); 3] = [("synced", 0, 600_000), ("synced", 1, 100), ("cached", 0, 100)];
/// Records of each partition when the older copy was made, after the stop in order, and when the server was killed.
const PRODUCED: [usize; 3] = [1, 3, 5];
/// A partition whose records are acked before they are synced: a kill and damage together may take the last ones.
const UNSYNCED: &str = "cached-0";
const GROUP: &str = "g";

/// Spoils the bytes of a file in one way; none if that would change nothing.
type Spoil = fn(&Case<'_>, Vec<u8>) -> Option<Vec<u8>>;

/// Ways in which one file that is no segment is spoiled.
const OTHERS_WAYS: usize = 2;
/// Held by the one test that runs: each start syncs, and other tests need the disk, too.
static ALONE: Mutex<()> = Mutex::new(());

const SPOILS: [(&str, Spoil); 5] = [
    ("flipped", |case, mut bytes| {
        // Another place in each file: the beginning, the midst, the end.
        let at = [0, bytes.len() / 2, bytes.len().checked_sub(1)?][case.number % 3];
        *bytes.get_mut(at)? ^= 0x10;
        Some(bytes)
    }),
    ("cut", |_, bytes| (!bytes.is_empty()).then(|| bytes[..bytes.len() / 2].to_vec())),
    ("emptied", |_, bytes| (!bytes.is_empty()).then(Vec::new)),
    ("swapped", |case, _| fs::read(case.original.join(other_partition(case.file)?)).ok()),
    ("old", |case, bytes| fs::read(case.older.join(case.file)).ok().filter(|old| *old != bytes)),
];

/// Said of a partition whose reads the server refuses.
const OFFLINE: &str = "is offline";
/// Said of a partition whose damaged bytes are handed out: the server proves what it reads, so that readers need not.
const SERVED: &str = "is served damaged";

/// Differences from the state before: partition or group, and what is the matter; or why the server does not start.
type Seen = Result<Vec<(String, String)>, String>;

/// Files of a directory that are spoiled together, and their spoiled bytes.
struct Spoiled {
    what: String,
    files: Vec<(PathBuf, Vec<u8>)>,
}

/// One file, to be spoiled in a copy of a directory.
struct Case<'a> {
    original: &'a Path,
    older: &'a Path,
    file: &'a Path,
    number: usize,
}

/// The same file of the other partition of its topic.
fn other_partition(file: &Path) -> Option<PathBuf> {
    let (directory, name) = (file.parent()?, file.file_name()?);
    let other = match directory.file_name()?.to_str()? {
        "0" => "1",
        "1" => "0",
        _ => return None,
    };
    Some(directory.with_file_name(other).join(name))
}

fn builder(data: &Path) -> riverrun_broker::ServerBuilder {
    configured(&[
        ("data.dir", data.to_str().expect("text")),
        ("journal.bytes", "8388608"),
        ("offsets.topic.num.partitions", "1"),
    ])
}

/// The value of a record, which no other record has.
fn value(topic: &str, index: i32, number: usize, len: usize) -> String {
    // Zeros, which a copy leaves out.
    format!("{topic} {index} {number} {}", "\0".repeat(len))
}

fn produce_round(client: &mut Client, numbers: std::ops::Range<usize>) {
    for (topic, index, len) in PARTITIONS {
        for number in numbers.clone() {
            produce(client, topic, index, &batch(&[&value(topic, index, number, len)]));
        }
    }
    let committed = i64::try_from(numbers.end).expect("small");
    assert_eq!(commit(client, GROUP, "synced", committed), ErrorCode::NONE);
}

/// A directory as it was left by a server.
struct Left {
    path: PathBuf,
    produced: usize,
    /// An earlier copy of the directory.
    older: PathBuf,
    /// Nothing was on its way from the journal, so that its files are complete copies.
    is_settled: bool,
}

/// A directory after a stop in order, and how it was after a kill later.
fn directories(root: &Path) -> [Left; 2] {
    let [older, stopped, killed] = ["older", "stopped", "killed"].map(|name| root.join(name));
    let data = root.join("data");
    let mut produced = 0;
    for (kept, next) in [&older, &stopped, &killed].into_iter().zip(PRODUCED) {
        let server = builder(&data).start().expect("starts");
        let mut client = Client::new(&server);
        if produced == 0 {
            create_topic(&mut client, "synced", 2, &[("segment.bytes", "1048576"), ("durability", "1")]);
            create_topic(&mut client, "cached", 1, &[("durability", "4")]);
            find_coordinator(&mut client, GROUP);
        }
        produce_round(&mut client, produced..next);
        produced = next;
        if *kept == killed {
            copy(&data, kept);
        } else {
            server.stop().expect("a clean stop");
            copy(&data, kept);
        }
    }
    let [_, first, second] = PRODUCED;
    [
        Left { path: stopped.clone(), produced: first, older, is_settled: true },
        Left { path: killed, produced: second, older: stopped, is_settled: false },
    ]
}

/// Copies a directory, with holes where there are only zeros: there are many copies, and other tests sync the same disk.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("readable") {
        let (source, target) =
            entry.map(|entry| (entry.path(), to.join(entry.file_name()))).expect("readable");
        if source.is_dir() {
            copy(&source, &target);
        } else {
            copy_file(&source, &target);
        }
    }
}

fn copy_file(source: &Path, target: &Path) {
    const BLOCK: usize = 4096;
    let bytes = fs::read(source).expect("readable");
    let copy = File::create(target).expect("made");
    copy.set_len(bytes.len() as u64).expect("long enough");
    for (index, block) in
        bytes.chunks(BLOCK).enumerate().filter(|(_, block)| block.iter().any(|&byte| byte != 0))
    {
        copy.write_all_at(block, (index * BLOCK) as u64).expect("written");
    }
}

fn files(root: &Path, below: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root.join(below)).expect("readable") {
        let path = below.join(entry.expect("readable").file_name());
        if root.join(&path).is_dir() {
            files(root, &path, found);
        } else {
            found.push(path);
        }
    }
}

/// All that can be read of a partition, or why that ends.
fn read(client: &mut Client, topic: &str, index: i32) -> Result<Vec<String>, String> {
    let (mut found, mut offset) = (Vec::new(), 0);
    loop {
        let data = fetch(client, topic, index, offset);
        match ErrorCode(data.error_code) {
            ErrorCode::NONE => {}
            ErrorCode::KAFKA_STORAGE_ERROR => return Err(OFFLINE.to_owned()),
            error => return Err(error.to_string()),
        }
        let bytes = records(&data);
        let is_sound =
            |batch: Result<UnverifiedBatch<'_>, _>| batch.is_ok_and(|batch| batch.verify().is_ok());
        if !Batches::new(bytes).all(is_sound) {
            return Err(SERVED.to_owned());
        }
        found.extend(values(bytes));
        match Batches::new(bytes).last() {
            Some(last) => offset = last.expect("whole").verify().expect("sound").last_offset().0 + 1,
            None => return Ok(found),
        }
    }
}

fn committed(client: &mut Client) -> Result<i64, ErrorCode> {
    let group = OffsetFetchRequestGroup { group_id: GROUP.into(), topics: None, ..Default::default() };
    let response = client.call(&OffsetFetchRequest { groups: vec![group], ..Default::default() }, 9);
    let group = &response.groups[0];
    match ErrorCode(group.error_code) {
        ErrorCode::NONE => Ok(group.topics.first().map_or(-1, |topic| topic.partitions[0].committed_offset)),
        error => Err(error),
    }
}

/// Partitions and groups that differ from their state after so many acked records.
fn missing(server: &Server, produced: usize) -> Vec<(String, String)> {
    let mut client = Client::new(server);
    let mut missing = Vec::new();
    for (topic, index, len) in PARTITIONS {
        let wanted: Vec<_> = (0..produced).map(|number| value(topic, index, number, len)).collect();
        let why = match read(&mut client, topic, index) {
            Ok(found) if found == wanted => continue,
            Ok(found) if wanted.starts_with(&found) => format!("has {} records", found.len()),
            Ok(_) => "has others".to_owned(),
            Err(why) => why,
        };
        missing.push((format!("{topic}-{index}"), why));
    }
    let why = match committed(&mut client) {
        Ok(offset) if offset == i64::try_from(produced).expect("small") => return missing,
        Err(ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE) => OFFLINE.to_owned(),
        other => format!("{other:?}"),
    };
    missing.push((GROUP.to_owned(), why));
    missing
}

impl Left {
    /// Starts on a copy, looks, and stops.
    fn look(&self, data: &Path) -> Seen {
        let server = builder(data).start().map_err(|error| error.to_string())?;
        let missing = missing(&server, self.produced);
        server.stop().expect("a clean stop");
        Ok(missing)
    }

    /// Differences that a server finds in a copy with spoiled files. With complete files restored there must be none.
    fn look_at(&self, data: &Path, spoiled: &Spoiled) -> Seen {
        copy(&self.path, data);
        for (file, bytes) in &spoiled.files {
            fs::write(data.join(file), bytes).expect("writable");
        }
        let seen = self.look(data);
        let is_restorable = seen.is_err() || self.is_settled;
        if seen != Ok(Vec::new()) && is_restorable {
            for (file, _) in &spoiled.files {
                copy_file(&self.path.join(file), &data.join(file));
            }
            assert_eq!(self.look(data), Ok(Vec::new()), "{}: restored after {seen:?}", spoiled.what);
        }
        fs::remove_dir_all(data).expect("removed");
        seen
    }

    /// Looks at every third case, or as the environment says, a few at a time: they wait for the disk.
    fn look_at_all<'a>(&self, cases: &'a [Spoiled]) -> Vec<(&'a Spoiled, Seen)> {
        const THREADS: usize = 2;
        let every: usize =
            std::env::var("RIVERRUN_SPOIL_EVERY").map_or(3, |every| every.parse().expect("a number"));
        let part = |thread: usize| {
            let data = self.path.with_file_name(format!("spoiled-{thread}"));
            let cases = cases.iter().step_by(every).skip(thread).step_by(THREADS);
            cases.map(|case| (case, self.look_at(&data, case))).collect::<Vec<_>>()
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || part(thread))).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("looked")).collect()
        })
    }

    /// Every segment in every way, and every other file in some, so that all ways come up.
    fn every_case(&self) -> Vec<Spoiled> {
        let mut cases = Vec::new();
        for (number, file) in all_files(&self.path, "").iter().enumerate() {
            let case = Case { original: &self.path, older: &self.older, file, number };
            let ways = if is_segment(file) { SPOILS.len() } else { OTHERS_WAYS };
            for (how, spoil) in
                SPOILS.into_iter().cycle().skip(OTHERS_WAYS * number % SPOILS.len()).take(ways)
            {
                let bytes = fs::read(self.path.join(file)).expect("readable");
                if let Some(bytes) = spoil(&case, bytes) {
                    let what = format!("{} {how}", file.display());
                    cases.push(Spoiled { what, files: vec![(file.clone(), bytes)] });
                }
            }
        }
        cases
    }
}

/// Fails unless the server has found the damage of a segment's file, and only its partition has it. Gives whose it is.
#[track_caller]
fn assert_found(what: &str, seen: &Seen) -> String {
    let seen = seen.as_ref().unwrap_or_else(|error| panic!("{what}: the server does not start: {error}"));
    let [(whose, why)] = &seen[..] else { panic!("{what}: {seen:?}") };
    assert_eq!(why, OFFLINE, "{what}: {whose}");
    whose.clone()
}

fn is_segment(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "log")
}

/// Every file of a directory below `below`.
fn all_files(root: &Path, below: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    files(root, Path::new(below), &mut all);
    all.sort();
    all
}

/// Only files that the whole server needs may stop the start, and the error names them.
#[track_caller]
fn assert_may_stop_the_start(what: &str, file: &Path, error: &str, root: &Path) {
    let is_common = file.starts_with("meta") || file.starts_with("journal") || file.ends_with("directory.id");
    let place = root.join("spoiled");
    assert!(is_common && error.contains(place.to_str().expect("text")), "{what}: {error}");
}

#[test]
fn a_spoiled_file_is_found_and_loses_no_other_partition() {
    let _alone = ALONE.lock();
    let root = tempfile::tempdir().expect("a directory");
    let [stopped, _] = directories(root.path());
    let cases = stopped.every_case();
    let mut owners = BTreeMap::new();
    for (Spoiled { what, files }, seen) in stopped.look_at_all(&cases) {
        let file = &files[0].0;
        if is_segment(file) {
            let found = assert_found(what, &seen);
            let owner = owners.entry(file.parent()).or_insert_with(|| found.clone());
            assert_eq!(found, *owner, "{what}");
        } else if let Err(error) = &seen {
            assert_may_stop_the_start(what, file, error, root.path());
        } else {
            assert_eq!(seen, Ok(Vec::new()), "{what}");
        }
    }
    assert_eq!(owners.len(), 4, "{owners:?}");
}

#[test]
fn a_file_spoiled_after_a_kill_is_found_or_journaled() {
    let _alone = ALONE.lock();
    let root = tempfile::tempdir().expect("a directory");
    let [_, killed] = directories(root.path());
    let cases = killed.every_case();
    for (Spoiled { what, files }, seen) in killed.look_at_all(&cases) {
        let file = &files[0].0;
        let is_segment = is_segment(file);
        match &seen {
            Ok(missing) if missing.is_empty() => {}
            Ok(missing) if is_segment && missing[0].0 == UNSYNCED => {
                let is_wrong = ["has others", SERVED].contains(&missing[0].1.as_str());
                assert!(missing.len() == 1 && !is_wrong, "{what}: {missing:?}");
            }
            Ok(_) if is_segment || file.starts_with("journal") => {
                assert_found(what, &seen);
            }
            Ok(missing) => panic!("{what}: {missing:?}"),
            Err(error) => assert_may_stop_the_start(what, file, error, root.path()),
        }
    }
}

/// A segment and its index.
fn with_index(root: &Path, segment: &Path) -> Option<[Vec<u8>; 2]> {
    Some([fs::read(root.join(segment)).ok()?, fs::read(root.join(segment).with_extension("index")).ok()?])
}

#[test]
fn a_segment_misplaced_with_its_index_is_found() {
    let _alone = ALONE.lock();
    let root = tempfile::tempdir().expect("a directory");
    let [stopped, _] = directories(root.path());
    let mut cases = Vec::new();
    for segment in all_files(&stopped.path, "logs").into_iter().filter(|file| is_segment(file)) {
        let now = with_index(&stopped.path, &segment);
        let others = other_partition(&segment).and_then(|other| with_index(&stopped.path, &other));
        let old = with_index(&stopped.older, &segment).filter(|old| Some(old) != now.as_ref());
        for (how, pair) in [("swapped", others), ("old", old)] {
            let Some([log_bytes, index_bytes]) = pair else { continue };
            let what = format!("{} and its index {how}", segment.display());
            let index = segment.with_extension("index");
            cases.push(Spoiled { what, files: vec![(segment.clone(), log_bytes), (index, index_bytes)] });
        }
    }
    assert!(cases.len() >= 4, "{}", cases.len());
    for (case, seen) in stopped.look_at_all(&cases) {
        assert_found(&case.what, &seen);
    }
}
