//! Segments that retention removes, reused: their memory is allocated and mapped.
//!
//! Owns `segment.spare-<n>`, files of removed segments until they are full of zeros and `segment.prepared-<n>`. New
//! pages of a file in memory cost more than all other parts of an append together, and reused ones cost nearly
//! nothing.
//!
//! Guarantees that no process reads a byte of a spare file: a reader of a segment holds a lock of its file, and a
//! locked file is removed instead of reused. A reader thus keeps the bytes of its segment. Files are reused only
//! where they lie in memory (tmpfs): on a disk, a power cut could leave old bytes under a new name, or zeros under
//! the old one.

#![expect(unsafe_code, reason = "stores zeros into a mapped file that no reader uses")]

use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_types::Offset;

use crate::error::{At as _, QueueError};
use crate::layout::{PAGE_BYTES, VIEW_BYTE};
use crate::mapping::{Access, Mapping};
use crate::segment::{PREPARED_NAMES, Prepared, STEP_BYTES, Segment, Segments};
use crate::sys::{self, LockKind};

/// Names of segments' files that are to be reused and still hold old bytes: as many as retention may remove at once
/// before the keeper clears one.
pub(crate) const SPARE_NAMES: [&str; 3] = ["segment.spare-1", "segment.spare-2", "segment.spare-3"];

impl Segments {
    /// Renames the file of the segment that begins with `base` to a spare one, and returns its inode. Returns `None`,
    /// and does nothing, if the file is open for reading, if it is not whole, if there are enough spare ones, or if
    /// it does not lie in memory. Requires the lock of [`PREPARE_BYTE`](crate::layout::PREPARE_BYTE).
    pub(crate) fn make_spare(&self, base: Offset) -> Result<Option<u64>, QueueError> {
        let path = self.path(base);
        // A file that cannot be opened, or has another size, is removed as any other.
        let Ok(file) = Access::Write.open(&path) else { return Ok(None) };
        if !sys::is_in_memory(&file) || file.metadata().at("look at", &path)?.len() != self.segment_bytes() {
            return Ok(None);
        }
        let Some(spare) = self.free_name(SPARE_NAMES) else { return Ok(None) };
        let ready = PREPARED_NAMES.into_iter().chain(SPARE_NAMES);
        if ready.filter(|name| self.dir().join(name).exists()).count() >= SPARE_NAMES.len() {
            return Ok(None);
        }
        // Locked until the file has its new name, by which a process that opened it before recognises that it is
        // gone.
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(None),
            locked => locked.map_err(std::io::Error::from).at("lock", &path)?,
        }
        if !sys::try_lock_byte(&file, VIEW_BYTE, LockKind::Exclusive).at("lock", &path)? {
            return Ok(None);
        }
        let inode = file.metadata().at("look at", &path)?.ino();
        std::fs::rename(&path, &spare).at("rename", &path)?;
        Ok(Some(inode))
    }

    /// Keeps the mapping of a file that is spare now, unless it has other users.
    pub(crate) fn keep_mapping(&self, inode: u64, segment: Arc<Segment>) {
        if let Some(segment) = Arc::into_inner(segment) {
            self.prepared().push(Prepared { inode, map: segment.map, present: 0, cleared: 0 });
        }
    }

    /// Clears spare files and makes prepared ones of them, with all pages present: as many as it can, up to `portion`
    /// bytes. Returns whether no spare file is left. Requires the lock of
    /// [`PREPARE_BYTE`](crate::layout::PREPARE_BYTE); `kept` says whether the caller has held it since the last call,
    /// without which a cleared range may have been used again. Calls `between` after every step.
    pub(crate) fn renew_spares(
        &self,
        kept: bool,
        portion: u64,
        between: &mut impl FnMut(),
    ) -> Result<bool, QueueError> {
        self.forget_used();
        if !kept {
            self.prepared().iter_mut().for_each(|prepared| prepared.cleared = 0);
        }
        self.renew_all(portion, between)
    }

    fn renew_all(&self, mut portion: u64, between: &mut impl FnMut()) -> Result<bool, QueueError> {
        for name in SPARE_NAMES {
            let path = self.dir().join(name);
            let Some(prepared) = self.free_name(PREPARED_NAMES) else { break };
            let file = match Access::Write.open(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                opened => opened.at("open", &path)?,
            };
            if !self.renew(&path, &file, &prepared, &mut portion, between)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The first of these names without a file.
    fn free_name(&self, names: [&str; 3]) -> Option<PathBuf> {
        names.into_iter().map(|name| self.dir().join(name)).find(|path| !path.exists())
    }

    /// Continues to clear a spare file, and subtracts the cleared bytes from `portion`. False if there is more to do.
    fn renew(
        &self,
        path: &Path,
        file: &File,
        prepared: &Path,
        portion: &mut u64,
        between: &mut impl FnMut(),
    ) -> Result<bool, QueueError> {
        let (bytes, metadata) = (self.segment_bytes(), file.metadata().at("look at", path)?);
        if metadata.len() != bytes {
            // The file was truncated by another program: it is no segment any more.
            return std::fs::remove_file(path).at("remove", path).map(|()| true);
        }
        let mut spare = if let Some(begun) = self.take_prepared(metadata.ino()) {
            begun
        } else {
            let map = Mapping::new(file, bytes as usize, Access::Write).at("map", path)?;
            Prepared { inode: metadata.ino(), map, present: 0, cleared: 0 }
        };
        while spare.cleared < bytes && *portion > 0 {
            let step = STEP_BYTES.min(*portion).next_multiple_of(PAGE_BYTES as u64);
            let (begin, len) = (spare.cleared as usize, step.min(bytes - spare.cleared) as usize);
            spare.map.populate_old(begin, len);
            // SAFETY: only the holder of the lock uses a file of this name, and the mapping is not shared and has no
            // other borrow.
            unsafe { spare.map.slice_mut(begin, len) }.fill(0);
            spare.cleared += len as u64;
            *portion = portion.saturating_sub(len as u64);
            between();
        }
        if spare.map.is_torn() {
            return std::fs::remove_file(path).at("remove", path).map(|()| true);
        }
        let whole = spare.cleared == bytes;
        if whole {
            // Under its new name any process may use the file, and retention may make it spare again, full of other
            // bytes.
            (spare.present, spare.cleared) = (bytes, 0);
        }
        // Before the rename: an append that takes the file looks for the mapping.
        self.prepared().push(spare);
        if whole {
            std::fs::rename(path, prepared).at("rename", path)?;
        }
        Ok(whole)
    }

    /// Drops the mappings of files that other processes have used or removed.
    pub(crate) fn forget_used(&self) {
        let names = SPARE_NAMES.into_iter().chain(PREPARED_NAMES);
        let found = names.filter_map(|name| std::fs::metadata(self.dir().join(name)).ok());
        let inodes: Vec<u64> = found.map(|metadata| metadata.ino()).collect();
        // Unmapping takes milliseconds, and a roll may wait for the lock: so the lock is released before.
        let used: Vec<Prepared> =
            self.prepared().extract_if(.., |prepared| !inodes.contains(&prepared.inode)).collect();
        drop(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::make_file;

    const BYTES: u64 = 3 * 4096;

    /// A directory on tmpfs; `None` on a machine without one, which no test machine of ours may be.
    fn dir_in_memory() -> Option<tempfile::TempDir> {
        let dir = tempfile::tempdir_in("/dev/shm").ok();
        let dir = dir.filter(|dir| File::open(dir.path()).is_ok_and(|dir| sys::is_in_memory(&dir)));
        if dir.is_none() {
            assert!(std::env::var_os("CI").is_none(), "/dev/shm is needed");
            eprintln!("skipped: no files lie in memory here");
        }
        dir
    }

    fn segments(dir: &tempfile::TempDir, access: Access) -> Segments {
        Segments::new(dir.path(), BYTES, access)
    }

    fn inode(path: PathBuf) -> u64 {
        std::fs::metadata(path).expect("a file").ino()
    }

    #[test]
    fn unused_segment_becomes_the_next_one_full_of_zeros() {
        let Some(dir) = dir_in_memory() else { return };
        for keeps_mapping in [true, false] {
            let segments = segments(&dir, Access::Write);
            make_file(&segments.path(Offset(7)), BYTES).expect("room");
            let segment = segments.expect(Offset(7), 0).expect("there");
            // SAFETY: no other code has the mapping.
            unsafe { segment.map.slice_mut(0, BYTES as usize) }.fill(0xff);
            let before = inode(segments.path(Offset(7)));
            let spare = segments.make_spare(Offset(7)).expect("renamed").expect("in memory, and unused");
            assert_eq!(spare, before);
            if keeps_mapping {
                segments.keep_mapping(spare, segment);
            }
            let mut calls = 0;
            segments.renew_spares(false, u64::MAX, &mut || calls += 1).expect("cleared");
            assert!(segments.prepare(BYTES, 0, || ()).expect("prepared"));
            assert!(calls > 0, "others are served meanwhile");
            let next = segments.get_or_make(Offset(9), 1).expect("made");
            assert_eq!((inode(segments.path(Offset(9))), next.present), (before, BYTES));
            // SAFETY: no other code has the mapping.
            assert!(unsafe { next.map.slice(0, BYTES as usize) }.iter().all(|byte| *byte == 0));
            std::fs::remove_file(segments.path(Offset(9))).expect("removed");
        }
    }

    #[test]
    fn partly_cleared_file_is_cleared_anew_without_the_lock() {
        const SPARE_BYTES: u64 = 3 * STEP_BYTES;
        let Some(dir) = dir_in_memory() else { return };
        let segments = Segments::new(dir.path(), SPARE_BYTES, Access::Write);
        let file = make_file(&segments.path(Offset(7)), SPARE_BYTES).expect("room");
        segments.make_spare(Offset(7)).expect("renamed").expect("in memory, and unused");
        let portion = |kept| segments.renew_spares(kept, STEP_BYTES, &mut || ()).expect("cleared");
        assert!(!portion(false) && !portion(true), "two thirds");
        std::os::unix::fs::FileExt::write_all_at(&file, &[7], 5).expect("as another's segment");
        assert!(!portion(false) && !portion(true), "two thirds, from the beginning");
        assert!(portion(true) && portion(true), "all, and nothing more");
        let next = segments.get_or_make(Offset(9), 1).expect("made");
        assert_eq!(next.present, SPARE_BYTES);
        // SAFETY: no other code has the mapping.
        assert!(unsafe { next.map.slice(0, SPARE_BYTES as usize) }.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn file_that_others_used_again_is_cleared_anew() {
        let Some(dir) = dir_in_memory() else { return };
        let segments = segments(&dir, Access::Write);
        let renew = |kept| segments.renew_spares(kept, u64::MAX, &mut || ()).expect("cleared");
        make_file(&segments.path(Offset(7)), BYTES).expect("room");
        segments.make_spare(Offset(7)).expect("renamed").expect("in memory, and unused");
        assert!(renew(false));
        // As another process does, while this one keeps the lock for another file.
        let (prepared, used) = (dir.path().join(PREPARED_NAMES[0]), segments.path(Offset(8)));
        std::fs::rename(&prepared, &used).expect("ready");
        let file = Access::Write.open(&used).expect("there");
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; BYTES as usize], 0).expect("room");
        segments.make_spare(Offset(8)).expect("renamed").expect("in memory, and unused");
        assert!(renew(true));
        assert!(std::fs::read(&prepared).expect("ready").iter().all(|byte| *byte == 0));
    }

    #[test]
    fn mapping_is_listed_before_an_append_can_take_the_file() {
        let Some(dir) = dir_in_memory() else { return };
        let segments = segments(&dir, Access::Write);
        make_file(&dir.path().join(SPARE_NAMES[0]), BYTES).expect("room");
        let mut take_name = || std::fs::create_dir(dir.path().join(PREPARED_NAMES[0])).expect("room");
        assert!(segments.renew_spares(false, u64::MAX, &mut take_name).is_err(), "the name is taken");
        assert_eq!(segments.prepared().len(), 1);
    }

    #[test]
    fn segment_with_a_reader_keeps_its_bytes() {
        let Some(dir) = dir_in_memory() else { return };
        let (segments, views) = (segments(&dir, Access::Write), segments(&dir, Access::Read));
        make_file(&segments.path(Offset(7)), BYTES).expect("room");
        for reads in [&segments, &views] {
            let reader = reads.get_to_read(Offset(7), 0).expect("opened").expect("there");
            assert_eq!(segments.make_spare(Offset(7)).expect("looked at"), None);
            drop(reader);
        }
        let opened = std::fs::File::open(segments.path(Offset(7))).expect("there");
        assert!(segments.make_spare(Offset(7)).expect("renamed").is_some());
        assert!(!crate::segment::is_named(&opened, &segments.path(Offset(7))).expect("looked at"));
        for reads in [&segments, &views] {
            assert!(reads.get_to_read(Offset(7), 0).expect("looked at").is_none());
        }
    }

    #[test]
    fn a_segment_that_was_cut_is_no_spare_file_and_no_error() {
        let Some(dir) = dir_in_memory() else { return };
        let segments = segments(&dir, Access::Write);
        make_file(&segments.path(Offset(7)), BYTES - 1).expect("room");
        std::fs::create_dir(segments.path(Offset(8))).expect("room");
        for base in 7..=9 {
            assert_eq!(segments.make_spare(Offset(base)).expect("looked at"), None);
        }
    }

    #[test]
    fn few_spare_files_are_enough_and_one_that_was_cut_is_none() {
        let Some(dir) = dir_in_memory() else { return };
        let segments = segments(&dir, Access::Write);
        for base in 1..=4 {
            make_file(&segments.path(Offset(base)), BYTES).expect("room");
            assert_eq!(segments.make_spare(Offset(base)).expect("looked at").is_some(), base < 4);
        }
        for name in &SPARE_NAMES[1..] {
            std::fs::remove_file(dir.path().join(name)).expect("removed");
        }
        let spare = dir.path().join(SPARE_NAMES[0]);
        std::fs::OpenOptions::new()
            .write(true)
            .open(&spare)
            .and_then(|file| file.set_len(4096))
            .expect("cut");
        segments.renew_spares(false, u64::MAX, &mut || ()).expect("removed");
        segments.prepare(BYTES, 0, || ()).expect("prepared");
        assert!(!spare.exists());
        let prepared = std::fs::metadata(dir.path().join(PREPARED_NAMES[0])).expect("made anew");
        assert_eq!(prepared.len(), BYTES);
    }
}
