//! Segments that retention removes, used again: their memory is there, and mapped.
//!
//! Owns `segment.spare-<n>`, files of removed segments until they are full of zeros and `segment.prepared-<n>`. New
//! pages of a file in memory cost more than all else of an append together, and these cost nearly nothing.
//!
//! Guarantees that no byte of a spare file is read by anybody: who reads a segment holds a lock of its file, and
//! a file of which one is held is removed as any other. So whoever has a segment's bytes keeps them. Does so only
//! where files lie in memory (tmpfs): on a disk, a cut of power could leave old bytes under a new name, or zeros
//! under the old one.

#![expect(unsafe_code, reason = "stores zeros into a mapped file that nobody uses")]

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

/// Names of segments' files that are to be used again, and not of zeros yet: as many as retention may let go at
/// once while nobody has time for them.
pub(crate) const SPARE_NAMES: [&str; 3] = ["segment.spare-1", "segment.spare-2", "segment.spare-3"];

impl Segments {
    /// Takes its name from the segment that begins with `base`, to use the file again, and returns its inode.
    /// None, and nothing is done, if somebody has it open, if it is not whole, if enough are there already, or where
    /// that is not done.
    /// For the holder of the lock of [`PREPARE_BYTE`](crate::layout::PREPARE_BYTE).
    pub(crate) fn make_spare(&self, base: Offset) -> Result<Option<u64>, QueueError> {
        let path = self.path(base);
        // What cannot be opened, or has another size, is to be removed as any other.
        let Ok(file) = Access::Write.open(&path) else { return Ok(None) };
        if !sys::is_in_memory(&file) || file.metadata().at("look at", &path)?.len() != self.segment_bytes() {
            return Ok(None);
        }
        let Some(spare) = self.free_name(SPARE_NAMES) else { return Ok(None) };
        let ready = PREPARED_NAMES.into_iter().chain(SPARE_NAMES);
        if ready.filter(|name| self.dir().join(name).exists()).count() >= SPARE_NAMES.len() {
            return Ok(None);
        }
        // Held until the file has its new name: who opened it before finds by that that it is gone.
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

    /// Keeps the mapping of a file that is spare now, unless somebody else still has it.
    pub(crate) fn keep_mapping(&self, inode: u64, segment: Arc<Segment>) {
        if let Some(segment) = Arc::into_inner(segment) {
            self.prepared().push(Prepared { inode, map: segment.map, present: 0, cleared: 0 });
        }
    }

    /// Makes spare files ones of zeros, all of them present, and prepared ones, as many as it can and up to `portion`
    /// bytes of them. Returns whether none is left. For the holder of the lock of
    /// [`PREPARE_BYTE`](crate::layout::PREPARE_BYTE), who says whether he has `kept` it since the last call, without
    /// which what is cleared may have been used, and who is called now and then meanwhile.
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

    /// The first of these names that no file has.
    fn free_name(&self, names: [&str; 3]) -> Option<PathBuf> {
        names.into_iter().map(|name| self.dir().join(name)).find(|path| !path.exists())
    }

    /// Goes on with a spare file, and takes what it does from `portion`. False if there is more to do.
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
            // Somebody has cut it: it is no segment any more.
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
            // SAFETY: a file of this name is nobody's but of who holds the lock, and nothing else borrows from
            // the mapping, which is in nobody's hands yet.
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
            // From its new name on anybody may use it, and retention may bring it back: full of what that was.
            (spare.present, spare.cleared) = (bytes, 0);
        }
        // Before an append can take the file, which looks for the mapping then.
        self.prepared().push(spare);
        if whole {
            std::fs::rename(path, prepared).at("rename", path)?;
        }
        Ok(whole)
    }

    /// Lets go of the mappings of files that others have used, or removed.
    pub(crate) fn forget_used(&self) {
        let names = SPARE_NAMES.into_iter().chain(PREPARED_NAMES);
        let found = names.filter_map(|name| std::fs::metadata(self.dir().join(name)).ok());
        let inodes: Vec<u64> = found.map(|metadata| metadata.ino()).collect();
        // To unmap takes milliseconds, and a roll may wait for the lock: so it has been let go of by then.
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

    /// A directory whose files lie in memory; none on a machine that has none, which no runner of ours may be.
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
    fn a_segment_that_nobody_has_becomes_the_next_one_full_of_zeros() {
        let Some(dir) = dir_in_memory() else { return };
        for keeps_mapping in [true, false] {
            let segments = segments(&dir, Access::Write);
            make_file(&segments.path(Offset(7)), BYTES).expect("room");
            let segment = segments.expect(Offset(7), 0).expect("there");
            // SAFETY: nobody else has the mapping.
            unsafe { segment.map.slice_mut(0, BYTES as usize) }.fill(0xff);
            let before = inode(segments.path(Offset(7)));
            let spare = segments.make_spare(Offset(7)).expect("renamed").expect("in memory, and nobody's");
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
            // SAFETY: nobody else has the mapping.
            assert!(unsafe { next.map.slice(0, BYTES as usize) }.iter().all(|byte| *byte == 0));
            std::fs::remove_file(segments.path(Offset(9))).expect("removed");
        }
    }

    #[test]
    fn what_is_cleared_in_portions_is_cleared_anew_if_others_may_have_used_it() {
        const SPARE_BYTES: u64 = 3 * STEP_BYTES;
        let Some(dir) = dir_in_memory() else { return };
        let segments = Segments::new(dir.path(), SPARE_BYTES, Access::Write);
        let file = make_file(&segments.path(Offset(7)), SPARE_BYTES).expect("room");
        segments.make_spare(Offset(7)).expect("renamed").expect("in memory, and nobody's");
        let portion = |kept| segments.renew_spares(kept, STEP_BYTES, &mut || ()).expect("cleared");
        assert!(!portion(false) && !portion(true), "two thirds");
        std::os::unix::fs::FileExt::write_all_at(&file, &[7], 5).expect("as another's segment");
        assert!(!portion(false) && !portion(true), "two thirds, from the beginning");
        assert!(portion(true) && portion(true), "all, and nothing more");
        let next = segments.get_or_make(Offset(9), 1).expect("made");
        assert_eq!(next.present, SPARE_BYTES);
        // SAFETY: nobody else has the mapping.
        assert!(unsafe { next.map.slice(0, SPARE_BYTES as usize) }.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_file_that_others_used_and_retention_brought_back_is_cleared_anew() {
        let Some(dir) = dir_in_memory() else { return };
        let segments = segments(&dir, Access::Write);
        let renew = |kept| segments.renew_spares(kept, u64::MAX, &mut || ()).expect("cleared");
        make_file(&segments.path(Offset(7)), BYTES).expect("room");
        segments.make_spare(Offset(7)).expect("renamed").expect("in memory, and nobody's");
        assert!(renew(false));
        // As another process does, while this one keeps the lock for another file.
        let (prepared, used) = (dir.path().join(PREPARED_NAMES[0]), segments.path(Offset(8)));
        std::fs::rename(&prepared, &used).expect("ready");
        let file = Access::Write.open(&used).expect("there");
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; BYTES as usize], 0).expect("room");
        segments.make_spare(Offset(8)).expect("renamed").expect("in memory, and nobody's");
        assert!(renew(true));
        assert!(std::fs::read(&prepared).expect("ready").iter().all(|byte| *byte == 0));
    }

    #[test]
    fn the_mapping_of_a_file_is_there_before_an_append_can_take_the_file() {
        let Some(dir) = dir_in_memory() else { return };
        let segments = segments(&dir, Access::Write);
        make_file(&dir.path().join(SPARE_NAMES[0]), BYTES).expect("room");
        let mut take_name = || std::fs::create_dir(dir.path().join(PREPARED_NAMES[0])).expect("room");
        assert!(segments.renew_spares(false, u64::MAX, &mut take_name).is_err(), "the name is taken");
        assert_eq!(segments.prepared().len(), 1);
    }

    #[test]
    fn a_segment_that_somebody_reads_keeps_its_bytes() {
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
