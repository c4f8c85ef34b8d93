//! Files that answers hold open until their clients have taken the records in them.
//!
//! Owns the count of those files, and of the sources for which they are held. An answer that was not taken keeps its files
//! open whatever the log store closes, so they have a part of the descriptors of their own. A source may hold as many as it
//! leaves free: the first one at most a half, and each other one at most a half of the rest. Guarantees that no more files
//! are held than there are descriptors for. A fetch that may hold no further file copies its records instead.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use riverrun_env::File;

use crate::flow::source::Source;

/// The files that the answers of a server hold.
#[derive(Debug)]
pub(crate) struct HeldFiles {
    held: Mutex<Held>,
}

/// Invariants: `files` and `of_source` count the same holds, those that are alive, and have no zeros. `distinct` has for
/// each source the number of its files in `of_source`.
#[derive(Debug, Default)]
struct Held {
    files_max: usize,
    files: HashMap<FileId, usize>,
    of_source: HashMap<(Source, FileId), usize>,
    distinct: HashMap<Source, usize>,
}

/// An open file, by the address of its handle, which the hold that counts it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FileId(usize);

impl FileId {
    fn of(file: &Arc<dyn File>) -> Self {
        Self(Arc::as_ptr(file).addr())
    }
}

/// A file that an answer holds; it is counted until this is dropped.
pub(crate) struct HeldFile {
    files: Arc<HeldFiles>,
    source: Source,
    file: Arc<dyn File>,
}

impl HeldFiles {
    /// For up to `files_max` files.
    pub(crate) fn new(files_max: usize) -> Arc<Self> {
        Arc::new(Self { held: Mutex::new(Held { files_max, ..Held::default() }) })
    }

    /// From now on only so many files may be held.
    #[cfg(test)]
    pub(crate) fn restrict_to(&self, files_max: usize) {
        self.held.lock().files_max = files_max;
    }

    /// Files that are held now.
    pub(crate) fn count(&self) -> usize {
        self.held.lock().files.len()
    }

    /// Holds the file for an answer to this source, if that may hold one more. One that it holds already costs nothing.
    pub(crate) fn hold(self: &Arc<Self>, source: Source, file: &Arc<dyn File>) -> Option<HeldFile> {
        let id = FileId::of(file);
        let mut held = self.held.lock();
        if !held.of_source.contains_key(&(source, id)) {
            let its_own = held.distinct.get(&source).copied().unwrap_or_default() + 1;
            let all = held.files.len() + usize::from(!held.files.contains_key(&id));
            // The file that is asked for is one of its own and one of all, and no more than one.
            if its_own + all > held.files_max.saturating_add(1) {
                return None;
            }
            held.distinct.insert(source, its_own);
        }
        *held.files.entry(id).or_default() += 1;
        *held.of_source.entry((source, id)).or_default() += 1;
        Some(HeldFile { files: Arc::clone(self), source, file: Arc::clone(file) })
    }
}

impl HeldFile {
    /// The file.
    pub(crate) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        let id = FileId::of(&self.file);
        let mut held = self.files.held.lock();
        take_one(&mut held.files, &id);
        if take_one(&mut held.of_source, &(self.source, id)) {
            take_one(&mut held.distinct, &self.source);
        }
    }
}

/// Counts one less; whether that was the last.
fn take_one<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: &K) -> bool {
    let Some(count) = counts.get_mut(key) else { return false };
    *count -= 1;
    let is_last = *count == 0;
    if is_last {
        counts.remove(key);
    }
    is_last
}

impl fmt::Debug for HeldFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeldFile").field(&self.source).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use riverrun_env::sim::SimEnv;
    use riverrun_env::{FileSystem, OpenMode};

    use super::*;

    fn files(count: usize) -> Vec<Arc<dyn File>> {
        let sim = SimEnv::new(1);
        let open = |_| sim.fs.open(Path::new("/file"), OpenMode::CreateOrOpen).expect("opened");
        (0..count).map(open).collect()
    }

    fn source(last: u8) -> Source {
        Source::of([192, 0, 2, last].into())
    }

    #[test]
    fn a_source_holds_as_many_files_as_it_leaves_free() {
        let (held, files) = (HeldFiles::new(16), files(40));
        let fill = |last: u8, from: usize| -> Vec<_> {
            files[from..].iter().map_while(|file| held.hold(source(last), file)).collect()
        };
        let first = fill(1, 0);
        let second = fill(2, 20);
        assert_eq!((first.len(), second.len(), held.count()), (8, 4, 12));
        drop(first);
        let third = fill(3, 0);
        assert_eq!((third.len(), held.count()), (6, 10), "what was held is free");
        drop((second, third));
        assert_eq!(held.count(), 0);
        let held = held.held.lock();
        assert!(held.of_source.is_empty() && held.distinct.is_empty(), "{held:?}");
    }

    #[test]
    fn a_file_that_many_answers_hold_is_one() {
        let (held, files) = (HeldFiles::new(4), files(3));
        let mut holds: Vec<_> = (0..100).filter_map(|_| held.hold(source(1), &files[0])).collect();
        assert_eq!((holds.len(), held.count()), (100, 1));
        holds.extend(held.hold(source(1), &files[1]));
        assert!(held.hold(source(1), &files[2]).is_none(), "half of all is for others");
        holds.extend(held.hold(source(2), &files[0]));
        assert_eq!((holds.len(), held.count()), (102, 2));
        holds.truncate(1);
        assert_eq!(held.count(), 1, "one answer is left that holds it");
    }
}
