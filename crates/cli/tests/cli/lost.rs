//! `riverrun log verify` where whole directories of a server are gone, lie elsewhere, or may only be read.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::common::{Finished, Server, finish, riverrun, run};

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

fn verify(paths: &[&Path]) -> Finished {
    let paths: Vec<_> = paths.iter().map(|path| text(path)).collect();
    run(&[&["log", "verify"], &paths[..]].concat())
}

fn refused(data: &Path, flags: &[&str]) -> String {
    let basic = ["serve", "--data", text(data), "--listen", "127.0.0.1:0"];
    let ended = run(&[&basic[..], flags].concat());
    assert_ne!(ended.code, 0);
    ended.stderr
}

/// A server with a record, which was stopped in order or killed.
fn used(data: &Path, flags: &[&str], is_killed: bool) {
    let mut server = Server::on(data, flags);
    server.feed(&["produce", "t"], b"x\n").ended(0);
    if is_killed {
        server.child.kill().expect("ours");
        server.child.wait().expect("ours");
    } else {
        assert_eq!(server.interrupt(), 0);
    }
}

#[test]
fn a_journal_that_is_gone_is_missed_after_a_kill_only() {
    for is_killed in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let (data, away) = (dir.path().join("data"), dir.path().join("away"));
        let journal = data.join("journal");
        used(&data, &[], is_killed);
        verify(&[&data]).ended(0);
        std::fs::rename(&journal, &away).expect("renamed");
        for is_made in [false, true] {
            if is_made {
                std::fs::create_dir(&journal).expect("made");
            }
            let told = verify(&[&data]).ended(if is_killed { 5 } else { 0 }).text();
            let line =
                format!("{} at byte 0: a start is refused: the server did not stop cleanly", text(&journal));
            assert_eq!(told.contains(&line), is_killed, "{told}");
        }
        if is_killed {
            assert!(refused(&data, &[]).contains("the server did not stop cleanly"));
            verify(&[&data, &away]).ended(0);
        }
    }
}

#[test]
fn a_data_directory_without_metadata_is_damaged() {
    let dir = tempfile::tempdir().expect("a directory");
    let (data, away) = (dir.path().join("data"), dir.path().join("away"));
    let meta = data.join("meta");
    used(&data, &[], false);
    std::fs::rename(&meta, &away).expect("renamed");
    let told = verify(&[&data]).ended(5).text();
    let line = format!("{} at byte 0: it is missing: a start is refused: ", text(&meta));
    assert!(told.contains(&line) && told.contains("but there is no metadata in"), "{told}");
    verify(&[&data.join("logs")]).ended(0);
    verify(&[&data, &away]).ended(0);
    let refused = refused(&data, &[]);
    assert!(refused.contains("but there is no metadata in"), "{refused}");
    std::fs::rename(&away, &meta).expect("back, where nothing was made meanwhile");
    for name in ["snapshot", "snapshot-copy"] {
        std::fs::remove_file(meta.join(name)).expect("removed");
    }
    let told = verify(&[&data]).ended(5).text();
    assert!(told.contains("meta/snapshot at byte 0: it is missing"), "{told}");
}

#[test]
fn directories_outside_of_the_paths_are_listed_as_unchecked() {
    let dir = tempfile::tempdir().expect("a directory");
    let [data, logs, journal] = ["data", "logs", "journal"].map(|name| dir.path().join(name));
    let dirs = [format!("log.dirs={}", text(&logs)), format!("journal.dirs={}", text(&journal))];
    let flags = ["--set", &dirs[0], "--set", &dirs[1]];
    used(&data, &flags, true);
    let told = verify(&[&data]).ended(1);
    for (path, kind) in [(&logs, "log dir"), (&journal, "journal")] {
        let line = format!("not checked: {}, a {kind} that {} names", text(path), text(&data.join("meta")));
        assert!(told.text().contains(&line), "{}", told.text());
    }
    let report = run(&["log", "verify", text(&data), "--json"]).ended(1).json();
    let unchecked = |directory: &&serde_json::Value| directory["is_checked"] == false;
    assert_eq!(
        report["directories"].as_array().expect("a list").iter().filter(unchecked).count(),
        2,
        "{report}"
    );
    assert_eq!(report["problems"].as_array().expect("a list").len(), 2, "{report}");
    verify(&[&data, &logs, &journal]).ended(0);
    let away = dir.path().join("away");
    std::fs::rename(&logs, &away).expect("renamed");
    let told = verify(&[&data, &journal]).ended(5).text();
    let line =
        format!("{} at byte 0: a start is refused: it is missing, but 1 partitions lie in it", text(&logs));
    assert!(told.contains(&line), "{told}");
    assert!(refused(&data, &flags).contains("it is missing, but 1 partitions lie in it"));
    verify(&[&data, &journal, &away]).ended(0);
}

/// Lets everybody read what lies at `path` and below, and nobody write.
fn make_read_only(path: &Path) {
    let mode = if path.is_dir() { 0o555 } else { 0o444 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
    if path.is_dir() {
        for entry in std::fs::read_dir(path).expect("readable") {
            make_read_only(&entry.expect("an entry").path());
        }
    }
}

/// The command, as a user who has no rights but those that files give to all.
fn as_nobody(program: &Path, args: &[&str]) -> Command {
    let mut command = riverrun(args);
    if rustix::process::geteuid().is_root() {
        let mut nobody = Command::new(program);
        nobody.args(args).stdin(std::process::Stdio::null()).uid(65_534).gid(65_534);
        nobody.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        command = nobody;
    }
    command
}

#[test]
fn the_right_to_read_is_enough_to_verify() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).expect("ours");
    let (data, program) = (dir.path().join("data"), dir.path().join("riverrun"));
    std::fs::copy(env!("CARGO_BIN_EXE_riverrun"), &program).expect("copied");
    used(&data, &[], true);
    make_read_only(&data);
    let verify = as_nobody(&program, &["log", "verify", text(&data)]).spawn().expect("the binary runs");
    let told = finish(verify, b"").ended(0).text();
    assert!(!told.contains("not checked") && !told.contains("cannot be told"), "{told}");
    let lock = data.join("meta/lock");
    std::fs::set_permissions(&lock, std::fs::Permissions::from_mode(0o0)).expect("ours");
    let verify = as_nobody(&program, &["log", "verify", text(&data)]).spawn().expect("the binary runs");
    let told = finish(verify, b"").ended(0).text();
    assert!(
        told.contains("it cannot be told whether a server is using it: ") && told.contains(text(&lock)),
        "{told}"
    );
    Command::new("chmod").args(["-R", "u+rwX", text(&data)]).status().expect("run");
}

#[test]
fn verify_finds_a_fifo_in_place_of_a_plain_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    used(&data, &[], false);
    for name in ["meta/lock", "logs/lock", "logs/device-check", "journal/lock", "meta/mounted-topics"] {
        let (path, away) = (data.join(name), dir.path().join("away"));
        let was_there = path.exists();
        if was_there {
            std::fs::rename(&path, &away).expect("renamed");
        }
        assert!(Command::new("mkfifo").arg(&path).status().expect("run").success());
        let told = verify(&[&data]).ended(5).text();
        let line = format!("{} at byte 0: it is a FIFO, where a file is expected", text(&path));
        assert!(told.contains(&line), "{told}");
        assert!(refused(&data, &[]).contains("it is a FIFO, where a file is expected"), "{name}");
        std::fs::remove_file(&path).expect("removed");
        if was_there {
            std::fs::rename(&away, &path).expect("back");
        }
    }
    verify(&[&data]).ended(0);
}

#[test]
fn a_new_data_directory_is_logged_or_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let create = |value: &str| format!("data.dir.create={value}");
    let not = run(&["serve", "--data", text(&data), "--set", &create("false")]).ended(3).stderr;
    assert!(not.contains("no metadata is in") && not.contains("mount the disk"), "{not}");
    assert!(!data.exists());
    let logged = |flags: &[&str]| {
        let mut server = Server::on(&data, flags);
        assert_eq!(server.interrupt(), 0);
        server.logged()
    };
    let first = logged(&[]);
    let warns = |logged: &str| logged.contains("WARN") && logged.contains("if a disk should be mounted here");
    assert!(warns(&first) && first.contains(text(&data)) && first.contains("cluster="), "{first}");
    let again = logged(&["--set", &create("false")]);
    assert!(!warns(&again), "{again}");
    std::fs::remove_dir_all(&data).expect("removed");
    let meant = logged(&["--set", &create("true")]);
    assert!(!warns(&meant), "{meant}");
}

#[test]
fn a_repair_names_the_log_dirs_that_lie_elsewhere() {
    let dir = tempfile::tempdir().expect("a directory");
    let (data, logs) = (dir.path().join("data"), dir.path().join("logs"));
    let dirs = format!("log.dirs={}", text(&logs));
    used(&data, &["--set", &dirs], false);
    let told = run(&["log", "repair", text(&data)]).ended(1).text();
    let line = format!("not checked: {}, a log dir that {} names: ", text(&logs), text(&data.join("meta")));
    assert!(told.contains(&line), "{told}");
    assert!(told.contains(&format!("riverrun log repair {}", text(&logs))), "{told}");
    assert_eq!(run(&["log", "repair", text(&logs)]).ended(0).text(), "nothing has to be cut\n");
}
