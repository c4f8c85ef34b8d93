//! Mistakes that are made on purpose, to show that the checks find them: each of these must lose an acked record, in
//! some of the runs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::{DirEntry, Directory, Env, File, FileSystem, LockGuard, OpenMode, Stat, Volume};
use riverrun_log::{LogStore, Place};
use riverrun_types::LeaderEpoch;

use crate::machine::{DIR, Machine, numbers};

/// A request that the file system ignores, as if the code above it had not made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    /// A checkpoint is written without syncing the segments first.
    VolumeSync,
    /// Recovery believes the bytes that the page cache shows.
    DontNeed,
}

/// The simulated file system without some of it.
#[derive(Debug)]
struct LeftOut {
    inner: Arc<dyn FileSystem>,
    left: Left,
}

#[derive(Debug)]
struct NoVolume;

impl Volume for NoVolume {
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn tells_of_lost_writes(&self) -> bool {
        true
    }

    fn holds(&self, _path: &Path) -> io::Result<bool> {
        Ok(true)
    }
}

#[derive(Debug)]
struct Cached(Arc<dyn File>);

impl File for Cached {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.0.read_at(buffer, position)
    }

    fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        self.0.read_exact_at(buffer, position)
    }

    fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, position)
    }

    fn write_vectored_all_at(&self, slices: &mut [io::IoSlice<'_>], position: u64) -> io::Result<()> {
        self.0.write_vectored_all_at(slices, position)
    }

    fn write_durable_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        self.0.write_durable_at(bytes, position)
    }

    fn stat(&self) -> io::Result<Stat> {
        self.0.stat()
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn advise_dont_need(&self, _position: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn raw_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.0.raw_fd()
    }
}

impl FileSystem for LeftOut {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.inner.open(path, mode)?;
        Ok(if self.left == Left::DontNeed { Arc::new(Cached(file)) } else { file })
    }

    fn open_direct(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.inner.open_direct(path)
    }

    fn open_volume(&self, path: &Path) -> io::Result<Arc<dyn Volume>> {
        if self.left == Left::VolumeSync { Ok(Arc::new(NoVolume)) } else { self.inner.open_volume(path) }
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir_all(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.inner.stat(path)
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner.read_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner.remove_dir_all(path)
    }

    fn open_dir(&self, path: &Path) -> io::Result<Box<dyn Directory>> {
        self.inner.open_dir(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.inner.exists(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockGuard>> {
        self.inner.lock(path)
    }

    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        self.inner.available_bytes(path)
    }

    fn total_bytes(&self, path: &Path) -> io::Result<u64> {
        self.inner.total_bytes(path)
    }
}

/// Starts the machine's store on a file system that ignores `left`; `is_believing`: the journal's entries are not
/// written anew, because the segments show them.
fn start(machine: &mut Machine, left: Left, is_believing: bool) {
    let env = Env { fs: Arc::new(LeftOut { inner: machine.sim.env().fs, left }), ..machine.sim.env() };
    machine.epoch += 1;
    let store = LogStore::open(&env, &[PathBuf::from(DIR)], machine.options.clone()).unwrap();
    let place = |_| if is_believing { Place::Deleted } else { Place::In(0, machine.config.clone()) };
    store.recover(|_| LeaderEpoch(machine.epoch), place).unwrap();
    machine.store = Some(store);
}

/// Runs a life that acks ten records and ends with a power cut; returns whether all ten are there then, in each of some
/// runs.
fn survives(life: impl Fn(&mut Machine)) -> bool {
    (0..20).all(|seed| {
        let mut machine = Machine::synced(seed, &Machine::small_segments());
        machine.store.take().unwrap().close().unwrap();
        life(&mut machine);
        machine.sim.fs.crash();
        machine.store = None;
        machine.start().is_ok() && machine.records().is_ok_and(|records| records == numbers(0, 10))
    })
}

#[test]
fn a_checkpoint_before_the_sync_of_the_segments_is_found() {
    let life = |left| {
        survives(move |machine| {
            start(machine, left, false);
            machine.append_numbers(0, 10);
            machine.store().checkpoint().unwrap();
        })
    };
    assert!(life(Left::Nothing));
    assert!(!life(Left::VolumeSync));
}

#[test]
fn a_journal_that_is_used_again_before_the_checkpoint_is_found() {
    let life = |is_early: bool| {
        survives(move |machine| {
            start(machine, Left::Nothing, false);
            machine.append_numbers(0, 9);
            machine.store().settle().unwrap();
            for journal in machine.store().journals().filter(|_| is_early) {
                journal.settle_to(journal.delivered());
            }
            // Its frame states the settled position.
            machine.append_numbers(9, 10);
        })
    };
    assert!(life(false));
    assert!(!life(true));
}

#[test]
fn journal_used_again_before_its_replay_is_settled_is_found() {
    let life = |is_early: bool| {
        survives(move |machine| {
            start(machine, Left::Nothing, false);
            machine.append_numbers(0, 9);
            machine.sim.fs.kill();
            machine.store = None;
            start(machine, Left::Nothing, false);
            if !is_early {
                machine.store().checkpoint().unwrap();
            }
            for journal in machine.store().journals() {
                journal.settle_to(journal.delivered());
            }
            // Its frame states the settled position.
            machine.append_numbers(9, 10);
        })
    };
    assert!(life(false));
    assert!(!life(true));
}

#[test]
fn recovery_that_believes_unsynced_segments_is_found() {
    let life = |left: Left, is_believing: bool| {
        survives(move |machine| {
            start(machine, Left::Nothing, false);
            machine.append_numbers(0, 10);
            machine.store().settle().unwrap();
            // The pages count as written from now on.
            machine.sim.fs.fail_sync_after(0);
            assert!(machine.store().checkpoint().is_err());
            machine.sim.fs.kill();
            machine.store = None;
            start(machine, left, is_believing);
            assert_eq!(
                machine.log().log_end_offset().unwrap().0 == 10,
                left == Left::DontNeed || !is_believing
            );
            machine.store().checkpoint().unwrap();
        })
    };
    assert!(life(Left::Nothing, false));
    assert!(life(Left::DontNeed, false), "entries that are written anew do not depend on old bytes");
    assert!(!life(Left::DontNeed, true), "the page cache is believed");
}
