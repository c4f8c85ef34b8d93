//! `riverrun log verify` and `log repair` on the files of a real server that were damaged.

use std::path::{Path, PathBuf};

use crate::common::{Server, run};

const RECORDS: usize = 4;

/// A stopped server's data, with four records in as many batches of one partition; and that partition's `.log`.
fn stopped_data() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut server = Server::on(dir.path(), &[]);
    for number in 0..RECORDS {
        server.feed(&["produce", "numbers"], format!("record {number}\n").as_bytes()).ended(0);
    }
    assert_eq!(server.interrupt(), 0);
    let log = segment(dir.path());
    (dir, log)
}

/// The only segment of a server's data that holds records.
fn segment(data: &Path) -> PathBuf {
    let log = files(&data.join("logs"))
        .into_iter()
        .find(|path| path.extension().is_some_and(|extension| extension == "log") && len(path) > 0);
    log.expect("the topic's segment")
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn len(path: &Path) -> u64 {
    path.metadata().expect("a file").len()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

fn flip(path: &Path, position: usize) {
    let mut bytes = std::fs::read(path).expect("readable");
    bytes[position] ^= 1;
    std::fs::write(path, bytes).expect("writable");
}

/// The position of each batch.
fn positions(log: &Path) -> Vec<usize> {
    let batches = run(&["log", "dump", text(log), "--json"]).ended(0).json_lines();
    let position = |batch: &serde_json::Value| batch["position"].as_u64().expect("a number");
    batches.iter().map(|batch| usize::try_from(position(batch)).expect("small")).collect()
}

#[test]
fn every_file_of_a_server_is_checked_and_the_damaged_one_named() {
    let (dir, _) = stopped_data();
    let good = run(&["log", "verify", text(dir.path()), "--json"]).ended(0).json();
    assert_eq!((&good["findings"], &good["damage"]), (&0.into(), &0.into()), "{good}");
    for path in files(dir.path()) {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        // A file that nobody reads cannot be found damaged.
        if len(&path) == 0 || ["lock", "device-check"].contains(&name.as_str()) {
            continue;
        }
        flip(&path, 0);
        let bad = run(&["log", "verify", text(dir.path())]);
        assert_eq!(bad.code, 5, "{} {}", path.display(), bad.text());
        assert!(bad.text().contains(&format!("{name} at byte 0: ")), "{name}: {}", bad.text());
        assert!(bad.text().contains("DAMAGED"), "{name}: {}", bad.text());
        flip(&path, 0);
    }
    run(&["log", "verify", text(dir.path())]).ended(0);
}

#[test]
fn metadata_that_lacks_a_topic_or_its_snapshot_is_found() {
    let (dir, log) = stopped_data();
    let topic = log.parent().and_then(Path::parent).expect("a topic's directory");
    let unknown = topic.with_file_name("3f2a9c1e-0b7d-4e55-8c3a-5d1f6e7a8b90");
    std::fs::create_dir_all(unknown.join("0")).expect("made");
    let bad = run(&["log", "verify", text(dir.path())]).ended(5).text();
    let line = format!("{} at byte 0: a topic that the metadata does not know", text(&unknown));
    assert!(bad.contains(&line), "{bad}");
    std::fs::remove_dir_all(&unknown).expect("removed");
    run(&["log", "verify", text(dir.path())]).ended(0);
    std::fs::remove_file(dir.path().join("meta/snapshot")).expect("removed");
    let bad = run(&["log", "verify", text(dir.path())]).ended(5).text();
    assert!(bad.contains("meta/snapshot at byte 0: it is missing"), "{bad}");
}

#[test]
fn an_offline_partition_is_described_with_reason_and_directory() {
    let (dir, log) = stopped_data();
    // A field of the first batch that the index answers for.
    flip(&log, 7);
    let mut server = Server::on(dir.path(), &[]);
    // The first read finds the damage.
    let read = server.run(&["consume", "numbers", "--timeout", "2"]);
    assert!(read.code != 0 && read.stderr.contains("cannot use the files"), "{} {}", read.code, read.stderr);
    let fed = server.feed(&["produce", "numbers", "--timeout", "1"], b"more\n");
    assert!(fed.code != 0 && fed.stderr.contains("cannot use the files"), "{} {}", fed.code, fed.stderr);
    let told = server.run(&["topic", "describe", "numbers", "--timeout", "2"]).ended(0).text();
    let uuid = log.parent().and_then(Path::parent).and_then(Path::file_name).expect("a topic's directory");
    assert!(told.contains(uuid.to_str().expect("text")), "{told}");
    assert!(told.contains("does not answer") && told.contains("KAFKA_STORAGE_ERROR"), "{told}");
    assert!(told.contains("from first to last, without 1 partition"), "{told}");
    assert_eq!(server.interrupt(), 0);
}

#[test]
fn a_closed_log_dirs_partitions_are_offline_without_a_size() {
    let dir = tempfile::tempdir().expect("a directory");
    let [one, two] = ["one", "two"].map(|name| dir.path().join(name));
    let dirs = format!("log.dirs={},{}", text(&one), text(&two));
    let mut server = Server::on(dir.path(), &["--set", &dirs]);
    server.run(&["topic", "create", "t", "--partitions", "2"]).ended(0);
    assert_eq!(server.interrupt(), 0);
    let aside = dir.path().join("aside");
    std::fs::rename(&two, &aside).expect("renamed");
    std::fs::write(&two, "no directory").expect("written");
    let mut server = Server::on(dir.path(), &["--set", &dirs]);
    let told = server.run(&["topic", "describe", "t", "--timeout", "2", "--json"]).ended(0).json();
    let partitions = told[0]["partitions"].as_array().expect("partitions").clone();
    let offline: Vec<_> = partitions.iter().filter(|partition| !partition["error"].is_null()).collect();
    assert!(
        offline.len() == 1 && offline[0]["size_bytes"].is_null() && offline[0]["leader"].is_null(),
        "{told}"
    );
    assert_eq!(partitions.iter().filter(|partition| partition["size_bytes"] == 0).count(), 1, "{told}");
    assert_eq!(server.interrupt(), 0);
    std::fs::remove_file(&two).and_then(|()| std::fs::rename(&aside, &two)).expect("back");
    let mut server = Server::on(dir.path(), &["--set", &dirs]);
    let told = server.run(&["topic", "describe", "t", "--json"]).ended(0).json();
    assert!(
        told[0]["partitions"].as_array().expect("partitions").iter().all(|p| p["error"].is_null()),
        "{told}"
    );
    assert_eq!(server.interrupt(), 0);
}

#[test]
fn verify_lists_entries_put_aside_as_no_damage() {
    let dir = tempfile::tempdir().expect("a directory");
    let [one, two] = ["one", "two"].map(|name| dir.path().join(name));
    let dirs = format!("log.dirs={},{}", text(&one), text(&two));
    let start = || Server::on(dir.path(), &["--set", &dirs]);
    let mut server = start();
    server.run(&["topic", "create", "t", "--partitions", "2"]).ended(0);
    let feed = |server: &Server| {
        for partition in ["0", "1"] {
            server.feed(&["produce", "t", "--partition", partition], b"record\n").ended(0);
        }
    };
    feed(&server);
    assert_eq!(server.interrupt(), 0);
    let server = start();
    feed(&server);
    // Killed: what was appended last is in the journal only.
    drop(server);
    let away = dir.path().join("away");
    std::fs::rename(&two, &away).and_then(|()| std::fs::write(&two, "no directory")).expect("replaced");
    assert_eq!(start().interrupt(), 0);
    std::fs::remove_file(&two).and_then(|()| std::fs::rename(&away, &two)).expect("back");

    let told = run(&["log", "verify", text(dir.path()), "--json"]).ended(0).json();
    let partitions = told["partitions"].as_array().expect("partitions");
    let findings: Vec<_> =
        partitions.iter().flat_map(|partition| partition["findings"].as_array().expect("findings")).collect();
    assert_eq!((findings.len(), &told["damage"]), (1, &0.into()), "{told}");
    assert_eq!(findings[0]["weight"], "aside", "{told}");
    let what = findings[0]["what"].as_str().expect("text");
    assert!(what.starts_with("1 entry of partition ") && what.contains("from offset 1 up to 2"), "{what}");
    let shown = run(&["log", "verify", text(dir.path())]).ended(0).text();
    assert!(shown.contains("good, more aside") && shown.contains("[aside]"), "{shown}");
    // Its partition is not among these paths.
    let journal = dir.path().join("journal");
    let told = run(&["log", "verify", text(&journal), "--json"]).ended(0).json();
    assert_eq!(told["directories"][0]["findings"][0]["weight"], "aside", "{told}");

    let mut server = start();
    assert_eq!(server.run(&["consume", "t"]).ended(0).text(), "record\n".repeat(4));
    assert_eq!(server.interrupt(), 0);
    let told = run(&["log", "verify", text(dir.path()), "--json"]).ended(0).json();
    assert_eq!(told["findings"], 0, "{told}");
}

#[test]
fn group_offsets_in_a_closed_log_dir_are_few_log_lines() {
    let dir = tempfile::tempdir().expect("a directory");
    let [one, two] = ["one", "two"].map(|name| dir.path().join(name));
    let dirs = format!("log.dirs={},{}", text(&one), text(&two));
    let mut server = Server::on(dir.path(), &["--set", &dirs]);
    server.feed(&["produce", "t"], b"record\n").ended(0);
    server.run(&["consume", "t", "--group", "g"]).ended(0);
    assert_eq!(server.interrupt(), 0);
    let aside = dir.path().join("aside");
    std::fs::rename(&two, &aside).and_then(|()| std::fs::write(&two, "no directory")).expect("replaced");
    let mut server = Server::on(dir.path(), &["--set", &dirs]);
    // Looks at every group, and waits for their loading.
    server.run(&["group", "list", "--timeout", "2"]);
    assert_eq!(server.interrupt(), 0);
    let logged = server.logged();
    let told =
        logged.lines().filter(|line| line.contains("ERROR") && line.contains("groups take no changes"));
    // A slow machine takes as long as the pause between two lines.
    assert!((1..=3).contains(&told.count()), "{logged}");
}

#[test]
fn all_paths_are_checked_whatever_is_wrong_with_the_first() {
    let (dir, log) = stopped_data();
    let empty = tempfile::tempdir().expect("a directory");
    let paths = ["log", "verify", "/no/such/path", text(empty.path()), text(dir.path())];
    let good = run(&paths).ended(3);
    assert!(good.text().contains("good") && good.text().contains("not checked: "), "{}", good.text());
    let json = run(&[&paths[..], &["--json"]].concat()).ended(3).json();
    assert_eq!(json["problems"].as_array().map(Vec::len), Some(2), "{json}");
    assert!(json["partitions"].as_array().is_some_and(|partitions| !partitions.is_empty()), "{json}");
    flip(&log, 30);
    let bad = run(&paths).ended(5);
    assert!(bad.text().contains("00000.log at byte 0"), "damage is more than a missing path: {}", bad.text());
}

#[test]
fn a_damaged_tail_is_shown_then_cut_and_the_rest_is_served() {
    let (dir, log) = stopped_data();
    let partition = log.parent().expect("a directory");
    run(&["log", "repair", text(dir.path())]).ended(0);
    let last = *positions(&log).last().expect("batches");
    flip(&log, last + 65);
    let damaged = std::fs::read(&log).expect("readable");
    let shown = run(&["log", "repair", text(dir.path())]).ended(5).text();
    assert!(shown.contains(&format!("00000.log at byte {last}")) && shown.contains("--cut"), "{shown}");
    assert_eq!(std::fs::read(&log).expect("readable"), damaged, "without --cut nothing is changed");
    run(&["log", "repair", text(dir.path()), "--cut"]).ended(2);

    let done = run(&["log", "repair", text(partition), "--cut", "--json"]).ended(0).json();
    let done = &done["partitions"][0];
    assert_eq!((&done["is_done"], &done["cut"]["log_end_offset"]), (&true.into(), &3.into()), "{done}");
    let copy = done["backups"][0].as_str().expect("a path");
    assert_eq!(std::fs::read(copy).expect("readable"), damaged[last..], "what was cut is kept");
    run(&["log", "verify", text(dir.path())]).ended(0);

    let mut server = Server::on(dir.path(), &[]);
    let left = server.run(&["consume", "numbers"]).ended(0).text();
    assert_eq!(left, "record 0\nrecord 1\nrecord 2\n");
    server.feed(&["produce", "numbers"], b"more\n").ended(0);
    assert!(server.run(&["consume", "numbers"]).ended(0).text().ends_with("record 2\nmore\n"));
    assert_eq!(server.interrupt(), 0);
}

#[test]
fn a_batch_only_its_reader_finds_damaged_can_be_left_out() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut server = Server::on(dir.path(), &[]);
    // So long that the index has the place of each: a reader that goes on behind the damage does not read it.
    let lines: Vec<_> = ["a", "b", "c", "d"].map(|letter| format!("{}\n", letter.repeat(10_000))).to_vec();
    for line in &lines {
        server.feed(&["produce", "letters"], line.as_bytes()).ended(0);
    }
    assert_eq!(server.interrupt(), 0);
    let log = segment(dir.path());
    let mut server = Server::on(dir.path(), &[]);
    assert_eq!(server.run(&["consume", "letters"]).ended(0).text(), lines.concat());
    // In a record's value, and after the server has looked at it: from then on it sends what lies in the file.
    flip(&log, positions(&log)[1] + 5000);
    let read = server.run(&["consume", "letters"]).ended(5);
    assert_eq!(read.text(), lines[0], "what is before it is printed");
    let told = "error: letters-0 cannot be read at offset 1: corrupt batch: ";
    assert!(read.stderr.starts_with(told), "{}", read.stderr);
    let advice = read.stderr.lines().find(|line| line.starts_with("  try: ")).expect("advice");
    let behind = ["consume", "letters", "--partition", "0", "--from", "2"];
    assert!(advice.contains("log verify") && advice.contains(&behind.join(" ")), "{advice}");
    assert_eq!(server.run(&behind).ended(0).text(), lines[2..].concat());

    let grouped = ["consume", "letters", "--group", "g"];
    server.run(&grouped).ended(5);
    let reset = ["group", "reset", "g", "--topic", "letters:0", "--to-offset", "2", "--execute"];
    assert!(advice.contains(&reset[3..].join(" ")), "{advice}");
    server.run(&reset).ended(0);
    assert_eq!(server.run(&grouped).ended(0).text(), lines[2..].concat());
    assert_eq!(server.interrupt(), 0);
}

#[test]
fn intact_records_are_cut_only_if_their_number_is_given() {
    let (dir, log) = stopped_data();
    let partition = text(log.parent().expect("a directory")).to_owned();
    flip(&log, positions(&log)[1] + 65);
    let refused = run(&["log", "repair", &partition, "--cut"]).ended(5);
    assert!(refused.stderr.contains("--discard-intact 2"), "{}", refused.stderr);
    run(&["log", "repair", &partition, "--cut", "--discard-intact", "1"]).ended(2);
    let backup = dir.path().join("kept");
    let cut = ["log", "repair", &partition, "--cut", "--discard-intact", "2", "--backup", text(&backup)];
    let done = run(&cut).ended(0).text();
    assert!(done.contains("2 intact records") && done.contains("ends at offset 1"), "{done}");
    assert_eq!(files(&backup).len(), 1);
    let server = Server::on(dir.path(), &[]);
    assert_eq!(server.run(&["consume", "numbers"]).ended(0).text(), "record 0\n");
}

#[test]
fn a_partition_that_no_cut_mends_holds_back_no_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut server = Server::on(dir.path(), &[]);
    for topic in ["first", "second", "third"] {
        server.feed(&["produce", topic], b"one\n").ended(0);
        server.feed(&["produce", topic], b"two\n").ended(0);
    }
    assert_eq!(server.interrupt(), 0);
    let logs: Vec<_> =
        files(dir.path()).into_iter().filter(|path| path.ends_with("00000000000000000000.log")).collect();
    let [first, second, third] = &logs[..] else { panic!("{logs:?}") };
    flip(first, positions(first)[1] + 65);
    std::fs::remove_file(second).expect("there");
    flip(third, positions(third)[1] + 65);
    let listed = run(&["log", "repair", text(dir.path()), "--json"]).ended(5).json();
    let cuts: Vec<_> =
        listed["partitions"].as_array().expect("a list").iter().map(|one| &one["cut"]["file"]).collect();
    assert_eq!(cuts, [text(first), text(third)]);
    let [problem] = &listed["problems"].as_array().expect("a list")[..] else { panic!("{listed}") };
    assert!(text(second).starts_with(problem["path"].as_str().expect("a path")), "{listed}");
    let told = problem["what"].as_str().expect("a text");
    assert!(told.contains("the beginning of the log is missing"), "{told}");
    for log in [first, third] {
        run(&["log", "repair", text(log.parent().expect("a directory")), "--cut"]).ended(0);
    }
    let left = run(&["log", "repair", text(dir.path())]).ended(5);
    assert!(
        left.text().contains("not checked: ") && left.stderr.contains("restore the missing files"),
        "{}",
        left.stderr
    );
}

#[test]
fn a_running_server_is_not_repaired_even_without_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut server = Server::on(dir.path(), &[]);
    run(&["log", "repair", server.data()]).ended(6);
    assert_eq!(server.interrupt(), 0);
    run(&["log", "repair", text(dir.path())]).ended(0);
}

#[test]
fn a_log_dir_in_use_is_not_repaired() {
    let dir = tempfile::tempdir().expect("a directory");
    // So that its records are in files at once.
    let mut server = Server::on(dir.path(), &["--set", "default.durability=4"]);
    server.feed(&["produce", "numbers"], b"one\n").ended(0);
    let refused = run(&["log", "repair", server.data()]).ended(6);
    assert!(refused.stderr.contains("stop the server"), "{}", refused.stderr);
    assert_eq!(server.interrupt(), 0);
}

#[test]
fn verify_passes_over_the_holes_of_a_sparse_file() {
    let (dir, log) = stopped_data();
    let file = std::fs::OpenOptions::new().write(true).open(&log).expect("writable");
    file.set_len(1 << 40).expect("a sparse file");
    // Zeros behind what the checkpoint covers are cut off by the next start.
    let verified = run(&["log", "verify", text(dir.path()), "--json"]).ended(0).text();
    assert!(verified.contains(text(&log)) && verified.contains("torn-tail"), "{verified}");
}

#[test]
fn a_fifo_in_place_of_a_file_is_refused_by_name() {
    let (dir, log) = stopped_data();
    let make_fifo = |path: &Path| {
        let made = std::process::Command::new("mkfifo").arg(path).status().expect("run");
        assert!(made.success());
    };
    let config = dir.path().join("config");
    make_fifo(&config);
    for args in [&["config", "check", text(&config)][..], &["serve", "--config", text(&config)]] {
        let failed = run(args).ended(2).stderr;
        assert!(failed.contains("it is a FIFO, where a file is expected"), "{failed}");
    }
    let journal =
        files(&dir.path().join("journal")).into_iter().max_by_key(|file| len(file)).expect("a file");
    for path in [log, journal.clone(), dir.path().join("logs/checkpoint"), dir.path().join("meta/snapshot")] {
        let away = dir.path().join("away");
        std::fs::rename(&path, &away).expect("renamed");
        make_fifo(&path);
        let told = run(&["log", "verify", text(dir.path()), "--json"]).text();
        assert!(told.contains("it is a FIFO, where a file is expected"), "{}: {told}", path.display());
        if path == journal {
            let refused = run(&["serve", "--data", text(dir.path()), "--listen", "127.0.0.1:0"]).stderr;
            assert!(refused.contains("it is a FIFO, where a file is expected"), "{refused}");
        }
        std::fs::rename(&away, &path).expect("renamed");
    }
}

#[test]
fn verify_names_directories_that_a_server_has_in_use() {
    let (dir, log) = stopped_data();
    let mut server = Server::on(dir.path(), &[]);
    let partition = text(log.parent().expect("a directory"));
    for path in [text(dir.path()), partition] {
        let told = run(&["log", "verify", path, "--json"]).ended(0).json();
        let in_use: Vec<_> =
            told["in_use"].as_array().expect("a list").iter().map(|dir| dir.as_str()).collect();
        assert!(in_use.contains(&dir.path().join("logs").to_str()), "{path}: {told}");
        let shown = run(&["log", "verify", path]).ended(0).text();
        assert!(shown.contains("in use by a server"), "{shown}");
    }
    assert_eq!(server.interrupt(), 0);
    let told = run(&["log", "verify", text(dir.path()), "--json"]).ended(0).json();
    assert_eq!(told["in_use"], serde_json::json!([]));
}

/// After a kill the checkpoint may know topics that were deleted since; the metadata tells these from what is lost.
#[test]
fn a_lost_partition_is_missed_unless_its_topic_was_deleted() {
    for is_deleted in [false, true] {
        let (dir, log) = stopped_data();
        let data = dir.path().to_str().expect("text");
        let mut server = Server::on(dir.path(), &[]);
        if is_deleted {
            server.run(&["topic", "delete", "numbers"]).ended(0);
        }
        server.child.kill().expect("ours");
        server.child.wait().expect("ours");
        let partition = log.parent().expect("a directory");
        if partition.exists() {
            std::fs::remove_dir_all(partition).expect("removed");
        }
        let report = run(&["log", "verify", data]).ended(if is_deleted { 0 } else { 5 });
        let is_missed = report.text().contains("missing, where offsets up to");
        assert_eq!(is_missed, !is_deleted, "{}", report.text());
    }
}
