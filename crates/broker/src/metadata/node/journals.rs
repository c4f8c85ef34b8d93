//! The list of journals that hold records of this server: `<data>/meta/journals`, a small file that is replaced atomically.
//!
//! An acked record may lie in a journal only, until it is settled; the number and order of the journals decide in which.
//! So the file lists them, and says whether all that they held was settled when the server stopped. Unless it was, a
//! start is refused with other journals, and without one whose disk is not mounted or that was emptied. Journals are known
//! by their ids: a data directory may be moved or copied as it is. The file is kept twice; that all is settled is believed
//! from the file only, because the copy may be older. An owner who has lost a journal for good accepts that by a file
//! [`ACCEPT_LOSS_FILE`] beside the list.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use riverrun_env::{ChangeError, DirEntry, Env};
use riverrun_journal::{JournalError, JournalId, id_in};
use serde::{Deserialize, Serialize};

use super::log_dirs::ACCEPT_LOSS_FILE;
use super::unseen::{NamedKind, UnseenDir, Whereabouts, is_among};
use crate::metadata::copies::{self, Behind};
use crate::metadata::error::MetadataError;
use crate::metadata::frames::{FrameError, first_line, read_frames, write_frame};
use crate::metadata::records::to_json;

const FILE: &str = "journals";
const WHAT: &str = "list of journals";
/// Ending of a journal's files.
const JOURNAL_SUFFIX: &str = ".journal";
/// In a journal's directory: locked by the server that uses it.
const LOCK_FILE: &str = "lock";
/// Upper bound of the list in bytes.
const BYTES_MAX: u64 = 1024 * 1024;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    dir: PathBuf,
    /// The journal's id, once records were written to it.
    id: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    /// Whether the server stopped with every record in the segments and nowhere else.
    is_settled: bool,
    journals: Vec<Known>,
}

/// Files of a journal that is not in use any more.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    dir: PathBuf,
    files: usize,
    bytes: u64,
}

/// The list in use.
///
/// Invariants: `content` is the synced content of the file. It names the journals that are in use, and says that they are
/// not settled from [`Self::begin`] to [`Self::note_settled`]. The file and its copy are written with `content` locked.
#[derive(Debug)]
pub(crate) struct JournalRegistry {
    env: Env,
    path: PathBuf,
    content: Mutex<Content>,
    /// The copy of the last content, while there is no room for it.
    behind: Mutex<Option<Behind>>,
    /// The file cannot be read: it is written anew even if `content` stays.
    is_damaged: bool,
    accepts_loss: bool,
}

impl JournalRegistry {
    /// Reads the list in `dir`, the metadata's.
    pub(crate) fn open(env: &Env, dir: &Path) -> Result<Self, MetadataError> {
        let path = dir.join(FILE);
        let accept = dir.join(ACCEPT_LOSS_FILE);
        let accepts_loss = env.fs.exists(&accept).map_err(MetadataError::io("look at", accept))?;
        let (content, is_damaged) = match copies::read(env, &path, BYTES_MAX, parse) {
            // A server that never had a journal.
            Ok(None) => (Content::default(), false),
            Ok(Some(copies::Read { value, flaw: None })) => (value, false),
            Ok(Some(copies::Read { value, .. })) => (Content { is_settled: false, ..value }, true),
            Err(flaw) if accepts_loss => {
                tracing::error!(error = %flaw, "the list of journals cannot be read, and its owner accepts the loss");
                (Content::default(), true)
            }
            Err(flaw) => return Err(without_list(dir, flaw)),
        };
        let (content, behind) = (Mutex::new(content), Mutex::default());
        Ok(Self { env: env.clone(), path, content, behind, is_damaged, accepts_loss })
    }

    /// The ids of the journals in these directories in which everything was settled when the server stopped, and that no
    /// server has used since; `None` for the others. Only before [`Self::begin`].
    pub(crate) fn settled(&self, dirs: &[PathBuf]) -> Vec<Option<JournalId>> {
        let content = self.content.lock();
        let id = |dir: &PathBuf| {
            let known = content.journals.iter().find(|known| known.dir == *dir && content.is_settled)?;
            JournalId::parse(known.id.as_deref()?)
        };
        dirs.iter().map(id).collect()
    }

    /// The way out if one of the journals cannot be opened, and the loss that it brings. Only before [`Self::begin`].
    pub(crate) fn way_out(&self) -> String {
        let content = self.content.lock();
        let others = "Bring its disk back and start again; or name another, empty directory in its place in journal.dirs";
        if content.is_settled || content.journals.iter().all(|known| known.id.is_none()) {
            return format!("{others}: nothing is lost by that, as no acked record is in the journals only");
        }
        format!(
            "{others}, make a file {ACCEPT_LOSS_FILE} in {} and start: acked records that are in that journal only are \
             lost then",
            self.dir().display()
        )
    }

    /// Writes down that these journals are in use, durably. `ids` are those of the journals that hold or have held records.
    /// Refuses them while records may lie in others, or in the same in another order.
    pub(crate) fn begin(&self, dirs: &[PathBuf], ids: &[Option<String>]) -> Result<(), MetadataError> {
        let mut content = self.content.lock();
        let journals: Vec<Known> =
            dirs.iter().zip(ids).map(|(dir, id)| Known { dir: dir.clone(), id: id.clone() }).collect();
        if let Some(reason) = content.refusal(&journals, self.dir()) {
            if !self.accepts_loss {
                return Err(MetadataError::Journals(reason));
            }
            tracing::warn!(
                reason,
                "records that are in those journals only are given up, as the owner wishes"
            );
        }
        for Left { dir, files, bytes } in self.left_behind(&content, &journals) {
            tracing::warn!(
                dir = %dir.display(), files, bytes,
                "the journal was moved, and nothing in its old files is needed: delete them, unless a copy of this server uses them"
            );
        }
        let begun = Content { is_settled: false, journals };
        if *content != begun || self.is_damaged {
            self.replace(&mut content, begun).map_err(|error| self.not_written(error))?;
        }
        if self.accepts_loss {
            let accept = self.dir().join(ACCEPT_LOSS_FILE);
            self.env.fs.remove_file(&accept).map_err(MetadataError::io("remove", accept))?;
        }
        Ok(())
    }

    /// The files of journals that were in use up to a stop in order and are not any more. Journals that another server uses,
    /// perhaps a copy of this one, are left out.
    fn left_behind(&self, before: &Content, now: &[Known]) -> Vec<Left> {
        let is_gone = |known: &&Known| {
            let is_same = |journal: &Known| journal.dir == known.dir || journal.id == known.id;
            known.id.is_some() && !now.iter().any(is_same)
        };
        let gone = before.journals.iter().filter(|_| before.is_settled).filter(is_gone);
        gone.filter_map(|known| self.left_in(&known.dir)).collect()
    }

    /// The files of the journal in `dir`, unless a server uses them. Errors are ignored.
    fn left_in(&self, dir: &Path) -> Option<Left> {
        let entries = self.env.fs.read_dir(dir).ok()?;
        let is_file = |entry: &&DirEntry| entry.name.to_string_lossy().ends_with(JOURNAL_SUFFIX);
        let files: Vec<&DirEntry> = entries.iter().filter(is_file).collect();
        let _free = self.env.fs.lock(&dir.join(LOCK_FILE)).ok()?;
        let bytes = files.iter().map(|file| file.len).sum();
        (!files.is_empty()).then(|| Left { dir: dir.to_owned(), files: files.len(), bytes })
    }

    /// Writes down that a journal holds records now, unless the list says so. Called before the first of them is acked. A lack
    /// of space changes nothing, and the call may be repeated.
    pub(crate) fn note_used(&self, index: usize, id: &str) -> Result<(), JournalError> {
        let mut content = self.content.lock();
        if content.journals.get(index).is_none_or(|known| known.id.as_deref() == Some(id)) {
            return Ok(());
        }
        let mut noted = content.clone();
        noted.journals[index].id = Some(id.to_owned());
        let path = self.path.clone();
        self.replace(&mut content, noted).map_err(|error| match error {
            ChangeError::Undone(source) => JournalError::Io { path, source: Arc::new(source) },
            ChangeError::Unknown(source) => JournalError::Write { path, source: Arc::new(source) },
        })
    }

    /// Writes down that every record is in the segments, so that the next start may have other journals.
    pub(crate) fn note_settled(&self) -> Result<(), MetadataError> {
        let mut content = self.content.lock();
        let settled = Content { is_settled: true, ..content.clone() };
        self.replace(&mut content, settled).map_err(|error| self.not_written(error))
    }

    fn dir(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    fn not_written(&self, error: ChangeError) -> MetadataError {
        MetadataError::io("write", &self.path)(error.into())
    }

    fn replace(&self, content: &mut Content, new: Content) -> Result<(), ChangeError> {
        let mut bytes = first_line(WHAT).into_bytes();
        write_frame(&mut bytes, 0, &to_json(&new));
        *self.behind.lock() = copies::replace(&self.env, &self.path, bytes)?;
        *content = new;
        Ok(())
    }

    /// Tries again to write a copy of the list that found no room. Blocks for the disk. After an error it is not known what
    /// the disk holds.
    pub(crate) fn write_copy(&self) -> Result<(), MetadataError> {
        let _content = self.content.lock();
        let Some(behind) = self.behind.lock().take() else { return Ok(()) };
        let copy = copies::copy_of(&self.path);
        let tried = behind.retry(&self.env);
        *self.behind.lock() = tried.map_err(|error| MetadataError::io("write", copy)(error.into()))?;
        Ok(())
    }

    /// Why the copy of the list is older than the list, if it is.
    pub(crate) fn copy_trouble(&self) -> Option<String> {
        self.behind.lock().as_ref().map(Behind::trouble)
    }
}

/// The flaws of the list in `dir`, if there is one.
pub(crate) fn verify(env: &Env, dir: &Path) -> Vec<MetadataError> {
    copies::verify(env, &dir.join(FILE), BYTES_MAX, parse).1
}

/// The journals with records that the list in `dir` names and that are none of `seen`.
pub(crate) fn unseen(env: &Env, dir: &Path, seen: &[PathBuf]) -> Vec<UnseenDir> {
    let (content, flaws) = copies::verify(env, &dir.join(FILE), BYTES_MAX, parse);
    let Some(mut content) = content else { return Vec::new() };
    content.is_settled &= flaws.is_empty();
    let ids: Vec<_> = seen.iter().filter_map(|path| id_in(env, path).ok().flatten()).collect();
    let whereabouts = |(at, known): (usize, &Known)| {
        let id = JournalId::parse(known.id.as_deref()?).filter(|id| !ids.contains(id))?;
        let place = content.whereabouts(env, at, id, is_among(env, &known.dir, seen), dir)?;
        Some(UnseenDir { path: known.dir.clone(), kind: NamedKind::Journal, place })
    };
    content.journals.iter().enumerate().filter_map(whereabouts).collect()
}

fn without_list(meta: &Path, flaw: MetadataError) -> MetadataError {
    if !matches!(&flaw, MetadataError::File { source, .. } if !matches!(source, FrameError::NewerFormat(_))) {
        return flaw;
    }
    let way_out = format!(
        "Restore it from a copy; or, if journal.dirs is what it was at the last start and all of it is there, make a \
         file {ACCEPT_LOSS_FILE} in {} and start again",
        meta.display()
    );
    MetadataError::Lost { source: Box::new(flaw), way_out }
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Content, MetadataError> {
    let file_error = |source| MetadataError::File { path: path.to_owned(), source };
    let frames = read_frames(WHAT, bytes).map_err(file_error)?;
    let cut = || file_error(FrameError::Damaged { position: frames.end, reason: "it is cut" });
    let payload = frames.payloads.first().ok_or_else(cut)?;
    serde_json::from_slice(payload)
        .map_err(|error| MetadataError::Content { path: path.to_owned(), reason: error.to_string() })
}

impl Content {
    /// The place of journal number `at`, which has this `id`. `None`: no start misses it; or it `is_seen`, and the
    /// findings of its directory say all.
    fn whereabouts(
        &self,
        env: &Env,
        at: usize,
        id: JournalId,
        is_seen: bool,
        meta: &Path,
    ) -> Option<Whereabouts> {
        match id_in(env, &self.journals[at].dir) {
            Ok(Some(found)) if found == id => return Some(Whereabouts::Elsewhere),
            // Headers that cannot be read are findings of their own.
            Ok(None) if is_seen => return None,
            Ok(_) => {}
            Err(JournalError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Some(Whereabouts::Unknown(error.to_string())),
        }
        let mut now = self.journals.clone();
        now[at].id = None;
        self.refusal(&now, meta).map(|reason| Whereabouts::Gone(format!("a start is refused: {reason}")))
    }

    /// Why these journals cannot be used now, with the way out.
    fn refusal(&self, now: &[Known], meta: &Path) -> Option<String> {
        let is_missed = |(at, known): (usize, &Known)| {
            known.id.is_some() && now.get(at).is_none_or(|journal| journal.id != known.id)
        };
        let holds_records = self.journals.iter().any(|known| known.id.is_some());
        let missed = self.journals.iter().enumerate().any(is_missed);
        let is_other = holds_records && self.journals.len() != now.len();
        if self.is_settled || !(missed || is_other) {
            return None;
        }
        let dirs = |journals: &[Known]| {
            journals.iter().map(|journal| journal.dir.display().to_string()).collect::<Vec<_>>().join(",")
        };
        let (before, after) = (dirs(&self.journals), dirs(now));
        let what = if before == after {
            "but it is not there any more. Is its disk mounted?".to_owned()
        } else {
            format!(
                "but now journal.dirs is {after}. Start once with {before} and stop cleanly; then it may change."
            )
        };
        Some(format!(
            "the server did not stop cleanly, and a journal in {before} may hold acked records that are nowhere else, \
             {what} If they are lost for good, make a file {ACCEPT_LOSS_FILE} in {} and start again",
            meta.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use riverrun_env::sim::SimEnv;
    use riverrun_env::{FileSystem as _, OpenMode, read_whole};

    use super::*;

    fn open(sim: &SimEnv) -> Result<JournalRegistry, MetadataError> {
        sim.fs.create_dir_all("/meta".as_ref()).expect("made");
        JournalRegistry::open(&sim.env(), "/meta".as_ref())
    }

    /// Starts with journals, each given as its directory and its id, if it holds records.
    fn begin(sim: &SimEnv, journals: &[(&str, Option<&str>)]) -> Result<JournalRegistry, String> {
        let registry = open(sim).map_err(|error| error.to_string())?;
        let (dirs, ids): (Vec<_>, Vec<_>) =
            journals.iter().map(|(dir, id)| (PathBuf::from(dir), id.map(str::to_owned))).unzip();
        registry.begin(&dirs, &ids).map_err(|error| error.to_string())?;
        Ok(registry)
    }

    #[test]
    fn journals_with_records_may_change_only_after_a_clean_stop() {
        let sim = SimEnv::new(1);
        begin(&sim, &[("/a", None)]).expect("new").note_used(0, "j1").expect("written");
        sim.fs.crash();
        let others: [&[(&str, Option<&str>)]; 3] =
            [&[("/b", None)], &[("/b", Some("j2"))], &[("/a", Some("j1")), ("/b", None)]];
        for other in others {
            let error = begin(&sim, other).expect_err("not settled");
            assert!(error.contains("Start once with /a") && error.contains("accept-loss"), "{error}");
        }
        begin(&sim, &[("/a", Some("j1"))]).expect("the same").note_settled().expect("written");
        sim.fs.crash();
        begin(&sim, &[("/b", None), ("/c", None)]).expect("settled");
    }

    #[test]
    fn journal_is_settled_from_a_stop_in_order_to_the_next_start() {
        let sim = SimEnv::new(1);
        let (id, dirs) = (JournalId([7; 16]), ["/a", "/b"].map(PathBuf::from));
        let text = id.to_string();
        let journals = [("/a", None), ("/b", Some(&*text))];
        let registry = begin(&sim, &journals).expect("new");
        assert_eq!(open(&sim).expect("read").settled(&dirs), [None, None], "in use");
        registry.note_settled().expect("written");
        let [one, other] = dirs.clone();
        assert_eq!(open(&sim).expect("read").settled(&dirs), [None, Some(id)]);
        assert_eq!(open(&sim).expect("read").settled(&[other, one]), [Some(id), None]);
        sim.fs.remove_file("/meta/journals".as_ref()).expect("removed");
        assert_eq!(open(&sim).expect("read").settled(&dirs), [None, None], "the copy may be older");
        begin(&sim, &journals).expect("the same");
        assert_eq!(open(&sim).expect("read").settled(&dirs), [None, None], "used again");
    }

    #[test]
    fn journal_may_move_but_not_vanish_nor_change_its_order() {
        let sim = SimEnv::new(1);
        begin(&sim, &[("/a", Some("j1")), ("/b", Some("j2"))]).expect("new");
        sim.fs.crash();
        begin(&sim, &[("/c/a", Some("j1")), ("/c/b", Some("j2"))]).expect("moved");
        let error = begin(&sim, &[("/c/a", None), ("/c/b", Some("j2"))]).expect_err("gone");
        assert!(error.contains("/c/a") && error.contains("mounted"), "{error}");
        assert!(begin(&sim, &[("/c/b", Some("j2")), ("/c/a", Some("j1"))]).is_err(), "another order");
    }

    #[test]
    fn unneeded_files_of_a_moved_journal_are_reported() {
        let sim = SimEnv::new(1);
        let registry = begin(&sim, &[("/a", Some("j1"))]).expect("new");
        for file in ["/a/00000000.journal", "/a/lock"] {
            sim.fs.create_dir_all("/a".as_ref()).expect("made");
            let file = sim.fs.open(file.as_ref(), OpenMode::CreateNew).expect("made");
            file.write_all_at(&[0; 100], 0).expect("written");
        }
        let known = |dir: &str, id: Option<&str>| Known { dir: dir.into(), id: id.map(str::to_owned) };
        let left = |now: Known| registry.left_behind(&registry.content.lock(), &[now]);
        assert_eq!(left(known("/b", None)), [], "it may hold records");
        registry.note_settled().expect("written");
        let files = Left { dir: "/a".into(), files: 1, bytes: 100 };
        assert_eq!(left(known("/b", None)), [files]);
        assert_eq!(
            left(known("/b", Some("j1"))),
            [],
            "the files were moved; the old ones are somebody else's"
        );
        assert_eq!(left(known("/a", Some("j1"))), [], "in use");
        let _other = sim.fs.lock("/a/lock".as_ref()).expect("free");
        assert_eq!(left(known("/b", None)), [], "another server has them");
    }

    #[test]
    fn journals_that_hold_nothing_may_change() {
        let sim = SimEnv::new(1);
        begin(&sim, &[("/a", None)]).expect("new");
        sim.fs.crash();
        begin(&sim, &[("/b", None), ("/c", None)]).expect("nothing was in it");
    }

    #[test]
    fn a_loss_is_accepted_once() {
        let sim = SimEnv::new(1);
        begin(&sim, &[("/a", Some("j1"))]).expect("new");
        sim.fs.open("/meta/accept-loss".as_ref(), OpenMode::CreateNew).expect("made");
        begin(&sim, &[("/a", Some("j2"))]).expect("accepted");
        assert!(!sim.fs.exists("/meta/accept-loss".as_ref()).expect("known"));
        assert!(begin(&sim, &[("/a", None)]).is_err(), "the next one is not");
    }

    fn put(sim: &SimEnv, path: &Path, bytes: &[u8]) {
        let file = sim.fs.open(path, OpenMode::ReadWrite).expect("there");
        file.set_len(0).and_then(|()| file.write_all_at(bytes, 0)).expect("written");
    }

    fn flaws(sim: &SimEnv) -> Vec<MetadataError> {
        verify(&sim.env(), "/meta".as_ref())
    }

    #[test]
    fn damaged_byte_of_a_list_is_found_and_the_other_list_is_used() {
        let path: &Path = "/meta/journals".as_ref();
        let copy = copies::copy_of(path);
        let used = || {
            let sim = SimEnv::new(1);
            begin(&sim, &[("/a", Some("j1"))]).expect("new");
            sim
        };
        let good = read_whole(&*used().env().fs, path, BYTES_MAX).expect("readable");
        let flipped = (0..good.len()).map(|at| {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            bad
        });
        let cut = (0..good.len()).map(|len| good[..len].to_vec());
        for (number, bad) in flipped.chain(cut).enumerate() {
            let sim = used();
            put(&sim, path, &bad);
            assert_eq!(flaws(&sim).len(), 1, "damage {number}");
            match begin(&sim, &[("/a", Some("j1"))]) {
                Ok(_) => assert!(flaws(&sim).is_empty(), "damage {number}: it is written anew"),
                Err(error) => assert!(error.contains("newer program"), "damage {number}: {error}"),
            }
            put(&sim, path, &bad);
            put(&sim, &copy, &bad);
            assert_eq!(flaws(&sim).len(), 2, "damage {number}");
            let error = begin(&sim, &[("/a", Some("j1"))]).expect_err("nobody knows");
            let tells = error.contains("accept-loss") && error.contains("/meta/journals");
            assert!(tells || error.contains("newer program"), "damage {number}: {error}");
            sim.fs.open("/meta/accept-loss".as_ref(), OpenMode::CreateNew).expect("made");
            begin(&sim, &[("/a", Some("j1"))]).expect("accepted");
            assert!(flaws(&sim).is_empty(), "damage {number}: it is written anew");
        }
    }

    #[test]
    fn old_copy_of_the_list_is_reported_until_it_is_written() {
        let sim = SimEnv::new(1);
        let registry = begin(&sim, &[("/a", None)]).expect("new");
        sim.fs.refuse_renames_after(1);
        registry.note_used(0, "j1").expect("the list itself is written");
        let told = registry.copy_trouble().expect("it is old");
        assert!(told.contains("/meta/journals-copy"), "{told}");
        registry.write_copy().expect("nothing has failed");
        assert!(registry.copy_trouble().is_some(), "there is no room yet");
        sim.fs.refuse_renames(false);
        registry.write_copy().expect("written");
        assert_eq!(registry.copy_trouble(), None);
        sim.fs.crash();
        sim.fs.remove_file("/meta/journals".as_ref()).expect("removed");
        assert!(begin(&sim, &[("/b", None)]).is_err(), "the copy knows of the journal, too");
    }

    #[test]
    fn copy_of_a_missing_list_keeps_journals_as_not_settled() {
        let sim = SimEnv::new(1);
        begin(&sim, &[("/a", Some("j1"))]).expect("new");
        sim.fs.remove_file("/meta/journals".as_ref()).expect("removed");
        assert!(begin(&sim, &[("/b", None)]).is_err());
        begin(&sim, &[("/a", Some("j1"))]).expect("the same").note_settled().expect("written");
        sim.fs.remove_file("/meta/journals".as_ref()).expect("removed");
        assert!(begin(&sim, &[("/b", None)]).is_err(), "the copy may be older than the file was");
    }
}
