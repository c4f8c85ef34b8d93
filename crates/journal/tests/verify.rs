//! Verification reports every fault that a start would report, and more, and changes nothing.

#![expect(clippy::unwrap_used, reason = "a test asserts with it, and so do its helpers")]

mod common;

use std::path::{Path, PathBuf};

use common::{DIR, History, open, smallest_options};
use riverrun_env::sim::SimEnv;
use riverrun_env::{Env, FileSystem, OpenMode, read_whole};
use riverrun_journal::{JournalFinding, JournalOptions, SyncMethod, Wants, verify};

/// Entries of a small journal; the last is the only one that a crash may have torn.
const SIZES: [usize; 5] = [60, 5, 90, 600, 30];
/// Bytes that are damaged: header and frames.
const FRONT_BYTES: usize = 3700;

/// Magic, id of the journal and position at the beginning of a frame.
const FRAME_NAME_BYTES: usize = 4 + 16 + 8;

fn options() -> JournalOptions {
    JournalOptions { alignment: 512, ..smallest_options(SyncMethod::DirectDsync) }
}

/// The bytes of the one file of a journal whose process was killed.
fn small() -> (PathBuf, Vec<u8>) {
    let sim = SimEnv::new(1);
    let history = History::default();
    let (journal, ..) = open(&sim.env(), options()).unwrap();
    for bytes in SIZES {
        history.store(&journal, bytes, Wants::Sync).unwrap();
    }
    drop(journal);
    let names = sim.fs.read_dir(Path::new(DIR)).unwrap();
    let name = names.iter().find(|entry| entry.name.to_str().unwrap().ends_with(".journal")).unwrap();
    let path = Path::new(DIR).join(&name.name);
    let bytes = read_whole(&*sim.fs, &path, 1 << 30).unwrap();
    assert!(bytes.len() > FRONT_BYTES);
    (path, bytes)
}

fn with(path: &Path, bytes: &[u8]) -> Env {
    let env = SimEnv::new(2).env();
    env.fs.create_dir_all(Path::new(DIR)).unwrap();
    env.fs.open(path, OpenMode::CreateNew).unwrap().write_all_at(bytes, 0).unwrap();
    env.fs.open_volume(Path::new(DIR)).unwrap().sync().unwrap();
    env
}

fn found(env: &Env, path: &Path, what: &str) -> Vec<JournalFinding> {
    let findings = verify(env, Path::new(DIR)).unwrap();
    assert!(findings.iter().all(|finding| finding.path == path), "{what}: {findings:?}");
    findings
}

#[test]
fn an_intact_journal_has_no_findings() {
    let (path, bytes) = small();
    let env = with(&path, &bytes);
    assert_eq!(found(&env, &path, "intact"), []);
    assert_eq!(read_whole(&*env.fs, &path, 1 << 30).unwrap(), bytes);
}

#[test]
fn damage_unseen_by_verification_is_harmless_to_a_start() {
    let (path, bytes) = small();
    let flipped = (0..FRONT_BYTES).map(|position| {
        let mut flipped = bytes.clone();
        flipped[position] ^= 1 << (position % 8);
        (format!("byte {position}"), flipped)
    });
    let cut = (0..FRONT_BYTES).map(|len| (format!("cut at {len}"), bytes[..len].to_vec()));
    let (mut seen, mut unseen, mut untold) = (0, 0, 0);
    for (what, damaged) in flipped.chain(cut) {
        let env = with(&path, &damaged);
        let findings = found(&env, &path, &what);
        let started = open(&env, options()).map(|(_journal, entries, damaged)| (entries.len(), damaged));
        match started {
            Ok((count, 0)) if count == SIZES.len() => unseen += 1,
            // The last group: whether it was synced is unknown.
            Ok((count, 0)) => {
                assert!(count == SIZES.len() - 1, "{what}: {count} entries");
                let is_told = findings.iter().any(|finding| finding.is_torn_tail);
                untold += usize::from(!is_told && what.starts_with("byte"));
            }
            Ok(_) | Err(_) => {
                let is_damage = |finding: &JournalFinding| !finding.is_torn_tail && !finding.is_settled;
                assert!(findings.iter().any(is_damage), "{what}: {findings:?}");
                seen += 1;
            }
        }
    }
    assert!(seen > 1000 && unseen > 1000, "{seen} seen, {unseen} harmless");
    // The bytes by which a frame of this journal and place is recognised at all.
    assert!(untold <= FRAME_NAME_BYTES, "{untold} bytes of the last group are damaged unnoticed");
}

#[test]
fn a_file_with_another_header_is_named() {
    let (path, bytes) = small();
    let env = with(&path, &bytes);
    let other = Path::new(DIR).join("00000099.journal");
    let mut foreign = bytes;
    foreign[20] ^= 1;
    env.fs.open(&other, OpenMode::CreateNew).unwrap().write_all_at(&foreign, 0).unwrap();
    let findings = verify(&env, Path::new(DIR)).unwrap();
    assert!(findings.iter().any(|finding| finding.path == other), "{findings:?}");
}
