//! `riverrun log`, `riverrun config check|docs`, help: what works without a server.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::common::{Server, finish, riverrun, run};

/// A stopped server's data, with two records in the one partition of a topic; and that partition's directory.
fn stopped_data() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut server = Server::on(dir.path(), &[]);
    server.feed(&["produce", "secrets", "--key-separator", ":"], b"who:knows\nwho:cares\n").ended(0);
    assert_eq!(server.interrupt(), 0);
    let partition = partition_with_records(&dir.path().join("logs")).expect("the topic's partition");
    (dir, partition)
}

fn partition_with_records(logs: &Path) -> Option<PathBuf> {
    let topics = std::fs::read_dir(logs).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut partitions = topics.filter_map(|topic| Some(std::fs::read_dir(topic).ok()?.next()?.ok()?.path()));
    partitions.find(|partition| partition.join(format!("{:020}.log", 0)).is_file())
}

#[test]
fn a_dump_shows_payload_only_when_asked() {
    let (_dir, partition) = stopped_data();
    let path = partition.to_str().expect("text");
    let plain = run(&["log", "dump", path]).ended(0).text();
    assert!(plain.contains("offsets 0..1, 2 records"), "{plain}");
    let records = run(&["log", "dump", path, "--records"]).ended(0).text();
    assert!(records.contains("key 3 bytes, value 5 bytes"), "{records}");
    assert!(!plain.contains("knows") && !records.contains("knows"));
    let batches = run(&["log", "dump", path, "--payload", "--json"]).ended(0).json_lines();
    assert_eq!(batches[0]["records"][1]["value"], "cares");
    assert_eq!(batches[0]["last_offset"], 1);
    assert_eq!(run(&["log", "dump", path, "--max", "0", "--json"]).ended(0).text(), "");
}

#[test]
fn a_flipped_byte_is_found_and_named() {
    let (dir, partition) = stopped_data();
    let data = dir.path().to_str().expect("text");
    let good = run(&["log", "verify", data, "--json"]).ended(0).json();
    assert_eq!(good["findings"], 0);
    let file = partition.join(format!("{:020}.log", 0));
    let mut bytes = std::fs::read(&file).expect("readable");
    let last = bytes.len() - 2;
    bytes[last] ^= 1;
    std::fs::write(&file, &bytes).expect("writable");
    let bad = run(&["log", "verify", data]).ended(5);
    assert!(bad.text().contains("DAMAGED") && bad.text().contains("00000.log at byte 0"), "{}", bad.text());
    assert_eq!(std::fs::read(&file).expect("readable"), bytes, "verify changes nothing");
    run(&["log", "dump", partition.to_str().expect("text")]).ended(5);
}

#[test]
fn a_links_target_is_checked_and_a_broken_link_is_reported() {
    let (dir, partition) = stopped_data();
    let elsewhere = tempfile::tempdir().expect("a directory");
    let moved = elsewhere.path().join("moved");
    std::fs::rename(&partition, &moved).expect("moved");
    symlink(&moved, &partition).expect("linked");
    symlink(dir.path(), dir.path().join("logs/round")).expect("linked");
    let (data, linked) = (dir.path().to_str().expect("text"), partition.to_str().expect("text"));
    let count = |report: &serde_json::Value| report["partitions"].as_array().expect("a list").len();
    let good = run(&["log", "verify", data, "--json"]).ended(0).json();
    assert_eq!(good["findings"], 0);
    assert_eq!(run(&["log", "repair", data]).ended(0).text(), "nothing has to be cut\n");
    assert_eq!(count(&run(&["log", "verify", linked, "--json"]).ended(0).json()), 1);

    symlink("/no/such/path", dir.path().join("dead")).expect("linked");
    let dead = run(&["log", "verify", data, "--json"]).ended(3).json();
    assert_eq!((count(&dead), dead["problems"].as_array().expect("a list").len()), (count(&good), 1));
    for command in ["verify", "repair"] {
        let told = run(&["log", command, data]).ended(3);
        assert!(
            told.text().contains("not checked: ") && told.text().contains("dead, a link: "),
            "{}",
            told.text()
        );
    }

    let file = moved.join(format!("{:020}.log", 0));
    let mut bytes = std::fs::read(&file).expect("readable");
    bytes[30] ^= 1;
    std::fs::write(&file, &bytes).expect("writable");
    let bad = run(&["log", "verify", data]).ended(5);
    assert!(bad.text().contains("DAMAGED") && bad.text().contains("00000.log at byte 0"), "{}", bad.text());
    let repair = run(&["log", "repair", data]).ended(5);
    assert!(repair.text().contains(&format!("log repair {linked} --cut")), "{}", repair.text());
    run(&["log", "repair", linked, "--cut"]).ended(0);
    assert_eq!(std::fs::read(&file).expect("readable").len(), 0);
    std::fs::remove_file(dir.path().join("dead")).expect("removed");
    run(&["log", "verify", data]).ended(0);
}

#[test]
fn a_path_that_holds_no_log_is_not_found() {
    let dir = tempfile::tempdir().expect("a directory");
    let empty = dir.path().to_str().expect("text");
    for command in ["dump", "verify"] {
        run(&["log", command, empty]).ended(3);
        run(&["log", command, "/no/such/path"]).ended(3);
    }
}

#[test]
fn an_empty_file_is_a_log_only_by_its_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, "").expect("written");
        path.to_str().expect("text").to_owned()
    };
    run(&["log", "dump", &file("00000000000000000007.log")]).ended(0);
    for name in ["notes", "x.log", "00000000000000000007.index", "7.log"] {
        let refused = run(&["log", "dump", &file(name)]).ended(3);
        assert!(refused.stderr.contains("no log file"), "{}", refused.stderr);
        assert_eq!(refused.text(), "");
    }
}

#[test]
fn a_configuration_file_is_checked_without_starting() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("riverrun.toml");
    let path = file.to_str().expect("text");
    std::fs::write(&file, "[log.retention]\nhours = 24\n").expect("written");
    assert_eq!(run(&["config", "check", path, "--json"]).ended(0).json()["valid"], true);
    std::fs::write(&file, "num.partitions = 0\n").expect("written");
    let bad = run(&["config", "check", path]).ended(5);
    assert!(bad.stderr.contains("num.partitions"), "{}", bad.stderr);
    assert_eq!(run(&["config", "check", path, "--json"]).ended(5).json()["valid"], false);
    std::fs::write(&file, "num.partitions = 0\nnonsense = 1\nlisteners = 'x'\n").expect("written");
    let bad = run(&["config", "check", path]).ended(5);
    for part in ["num.partitions", "nonsense", "listeners"] {
        assert!(bad.stderr.contains(part), "{part} in {}", bad.stderr);
    }
    let told = run(&["config", "check", path, "--json"]).ended(5).json();
    assert_eq!(told["errors"].as_array().map(Vec::len), Some(3), "{told}");
    run(&["config", "check", "/no/such/file"]).ended(3);
}

#[test]
fn help_and_reference_answer_without_a_server() {
    let help = run(&["--help"]).ended(0).text();
    for part in ["serve", "topic", "produce", "consume", "group", "config", "log", "demo", "Exit codes:"] {
        assert!(help.contains(part), "{part} in {help}");
    }
    assert!(run(&["config", "docs"]).ended(0).text().contains("### `log.retention.ms`"));
    assert!(run(&["--version"]).ended(0).text().starts_with("riverrun "));
    run(&[]).ended(2);
    run(&["nonsense"]).ended(2);
    assert!(run(&["topic", "create"]).ended(2).stderr.contains("<NAME>"));
    assert!(run(&["group", "reset", "g", "--to-latest"]).ended(2).stderr.contains("--all-topics"));
}

#[test]
fn a_usage_error_names_no_flag_that_the_environment_has_set() {
    for mistake in [&["topic", "create"][..], &["consume"], &["group", "describe"]] {
        let without = run(mistake).ended(2).stderr;
        let mut command = riverrun(mistake);
        command.env("RIVERRUN_BOOTSTRAP", "127.0.0.1:1").env("RIVERRUN_LOG", "warn");
        let with = finish(command.spawn().expect("the binary runs"), b"").ended(2).stderr;
        assert_eq!(with, without);
    }
}
