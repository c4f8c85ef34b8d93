//! The first entry of a journal's life: what has to exist before it is written.

use riverrun_env::{RealWorkers, Work, Worker, Workers};
use riverrun_types::{ErrorKind, Position};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn refused(kind: io::ErrorKind) -> JournalError {
    JournalError::io(Path::new("/meta"), kind.into())
}

#[test]
fn first_use_waits_for_space_to_be_noted() {
    let sim = SimEnv::new(1);
    let mut played = Played::open(&sim, options(SyncMethod::DirectDsync, 3)).unwrap();
    let is_full = Arc::new(AtomicBool::new(true));
    let (noted, told) = (is_full.clone(), played.journal.id());
    played.journal.on_first_use(Box::new(move |id| {
        assert_eq!(id, told);
        if noted.load(Ordering::Relaxed) { Err(refused(io::ErrorKind::StorageFull)) } else { Ok(()) }
    }));
    for _ in 0..3 {
        assert!(matches!(played.store(), Step::Sleep(Some(_))));
        assert!(played.journal.failure().is_none());
        assert!(played.journal.shortage().unwrap().to_string().contains("/meta"));
        assert_eq!(played.journal.waiting_bytes(), ENTRY_BYTES as u64, "later entries would be refused");
    }
    // A note that may have been lost is found again: the file has its name already.
    for state in sim.crash_states(8) {
        let (journal, _) = Journal::open(&state.env(), Path::new(DIR), played.journal.options).unwrap();
        assert_eq!(journal.id(), played.journal.id());
        assert!(journal.delivered() > Position(0));
    }
    is_full.store(false, Ordering::Relaxed);
    assert_eq!(played.writer.step(), Step::Again);
    assert!(played.journal.shortage().is_none() && played.journal.waiting_bytes() == 0);
    is_full.store(true, Ordering::Relaxed);
    while played.writer.step() == Step::Again {}
    assert_eq!(played.acked(), 3, "it is noted once");
}

#[test]
fn first_use_that_cannot_be_noted_fails_the_journal() {
    let sim = SimEnv::new(1);
    let mut played = Played::open(&sim, options(SyncMethod::DirectDsync, 3)).unwrap();
    played.journal.on_first_use(Box::new(|_| Err(refused(io::ErrorKind::PermissionDenied))));
    assert_eq!(played.store(), Step::Done);
    assert_eq!((played.acked(), played.journal.failure().unwrap().kind()), (0, ErrorKind::GiveUp));
}

#[test]
fn journal_waiting_for_its_first_use_can_be_closed() {
    let sim = SimEnv::new(1);
    let mut played = Played::open(&sim, options(SyncMethod::DirectDsync, 3)).unwrap();
    played.journal.on_first_use(Box::new(|_| Err(refused(io::ErrorKind::StorageFull))));
    assert!(matches!(played.store(), Step::Sleep(Some(_))));
    played.journal.shared.queue.lock().is_closing = true;
    assert_eq!(played.writer.step(), Step::Done);
    assert_eq!(Arc::strong_count(&played.acked), 1, "the waiting entry is refused");
}

/// A system that has no thread for the first request.
#[derive(Default)]
struct OneRefused(AtomicBool);

impl Workers for OneRefused {
    fn start(&self, name: &str, work: Box<dyn Work>) -> io::Result<Box<dyn Worker>> {
        if self.0.swap(true, Ordering::SeqCst) {
            RealWorkers.start(name, work)
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        }
    }
}

#[test]
fn journal_without_thread_reports_it_and_tries_again() {
    let env = Env { workers: Arc::new(OneRefused::default()), ..SimEnv::new(1).env() };
    let options = options(SyncMethod::DirectDsync, 3);
    let (journal, _) = Journal::open(&env, Path::new(DIR), options).unwrap();
    let acked = Arc::new(Acked::default());
    let refused = journal.submit(submission_of(0, &acked)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Retry, "{refused}");
    assert!(journal.shortage().unwrap().to_string().contains("no thread"));
    journal.submit_unless_short(submission_of(0, &acked)).unwrap();
    assert!(journal.shortage().is_none());
    journal.close().unwrap();
    assert_eq!(*acked.0.lock(), [0]);
}
