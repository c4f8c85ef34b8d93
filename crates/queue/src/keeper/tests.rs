use super::*;
use crate::appender::Appender;
use crate::options::CreateOptions;
use crate::queue::Queue;
use crate::segment::{PREPARED_NAMES, STEP_BYTES, make_file};
use crate::spare::SPARE_NAMES;

#[test]
fn the_keeper_is_called_for_whatever_it_has_to_do() {
    const SEGMENT: u64 = 1 << 20;
    let hour = Some(Duration::from_hours(1));
    for (ahead_bytes, sync_interval, sync_bytes, step, little_step) in [
        (0, None, 0, SEGMENT / 2, SEGMENT / 2),
        (1 << 16, None, 0, 1 << 15, 128 << 10),
        (1 << 30, None, 0, SEGMENT / 2, 128 << 10),
        (0, hour, u64::MAX, SEGMENT / 2, SEGMENT / 2),
        (1 << 16, hour, 4000, 4000, 4000),
        (1 << 16, hour, u64::MAX, 1 << 15, 128 << 10),
        (0, hour, 4000, 4000, 4000),
        (1 << 16, hour, 0, 1, 1),
    ] {
        let duties = Duties { ahead_bytes, sync_interval, sync_bytes, retention: Retention::default() };
        let step_bytes = |manner| duties.step_bytes(SEGMENT, ahead_bytes, manner);
        assert_eq!(step_bytes(Manner::Portions), step, "{duties:?}");
        assert_eq!(step_bytes(Manner::Little), little_step, "{duties:?}");
    }
    let duties = Duties { ahead_bytes: 1 << 30, ..Duties::default() };
    let step_bytes = |manner| duties.step_bytes(1 << 30, 1 << 30, manner);
    assert_eq!([Manner::Large, Manner::Portions].map(step_bytes), [16 << 20, 512 << 10]);
}

#[test]
fn fast_appends_leave_work_to_the_keeper_on_two_cores() {
    for (lacks_cores, slow) in [(true, Manner::Little), (false, Manner::Portions)] {
        let orders = Orders { lacks_cores, ..Orders::default() };
        assert_eq!(orders.manner(), slow);
        orders.is_fast.store(true, Relaxed);
        assert_eq!(orders.manner(), Manner::Large);
    }
}

#[test]
fn appends_prepare_the_next_segment_in_steps_on_two_cores() {
    const SEGMENT: u64 = 8 << 20;
    let dir = tempfile::tempdir().expect("a directory");
    let (queue, core) = core(&dir, SEGMENT);
    let owner = Owner::attach(&core.control).expect("not many");
    let orders = Arc::new(Orders { lacks_cores: true, ..Orders::default() });
    let mut rounds = Rounds::new(&core, owner, orders);
    let duties = Duties { ahead_bytes: 1 << 20, ..Duties::default() };
    assert!(!rounds.work(&duties).expect("room"), "retention is looked after first, by the thread");
    rounds.kept_at = Some((Instant::now() + ROUND * 60, 0));
    let mut appender =
        queue.appender(AppendOptions { ahead_bytes: 0, ..AppendOptions::default() }).expect("there");
    let preparing = dir.path().join("segment.preparing");
    let mut made = Vec::new();
    while !rounds.is_ready {
        assert!(rounds.work(&duties).expect("room"));
        made.extend(std::fs::metadata(&preparing).map(|file| file.len()).ok());
        let end = core.published() + Manner::Little.step_bytes();
        while core.published() < end {
            appender.append(&[7; 1000]).expect("room");
        }
    }
    assert_eq!(made, (1..32).map(|step| step * (256 << 10)).collect::<Vec<u64>>());
    assert!(dir.path().join(PREPARED_NAMES[0]).exists());
    assert_eq!(rounds.orders.ready_until.load(Relaxed), SEGMENT);
}

#[test]
fn bytes_ahead_follow_the_rate_of_appends() {
    let begin = Instant::now();
    let mut pace = Pace::new(begin);
    let (mut now, mut position) = (begin, 0);
    let mut call = |(after_ms, appended_mib): (u64, u64)| {
        now += Duration::from_millis(after_ms);
        position += appended_mib << 20;
        pace.call(now, position, 20 << 20) >> 20
    };
    assert_eq!([(1, 0), (1, 1), (1, 1), (1, 2), (1, 4), (1, 8)].map(&mut call), [1, 2, 4, 8, 16, 20]);
    assert_eq!([(1, 1), (1, 1), (40, 1)].map(&mut call), [20, 20, 20], "too little to tell");
    assert_eq!([(60, 10), (60, 10), (190, 10)].map(&mut call), [20, 20, 20], "that is about the pace");
    assert_eq!([(1000, 1); 5].map(&mut call), [10, 5, 2, 1, 1]);
    assert_eq!(Pace::new(begin).call(begin, 0, 4096), 4096, "no more than asked for");
}

/// The core of a new queue without background threads.
fn core(dir: &tempfile::TempDir, segment_bytes: u64) -> (Queue, Arc<Core>) {
    let queue = Queue::create(dir.path(), CreateOptions { segment_bytes }).expect("made");
    let options = AppendOptions { ahead_bytes: 0, ..AppendOptions::default() };
    let core = Arc::clone(&queue.appender(options).expect("there").core);
    (queue, core)
}

#[test]
fn appends_are_fast_that_are_so_for_many_megabytes() {
    let begun = Instant::now();
    let after = |ms| begun + Duration::from_millis(ms);
    let mut speed = Speed::new(begun, 0);
    assert!(!speed.look(after(1), 8 << 20), "it may be catching up");
    assert!(!speed.look(after(50), 32 << 20));
    assert!(speed.look(after(60), 64 << 20));
    assert!(speed.look(after(500), 65 << 20), "the window is not full yet");
    assert!(!speed.look(after(600), 96 << 20));
    speed.leave_out(Duration::from_millis(70));
    assert!(speed.look(after(700), 128 << 20), "it did the background's work besides");
}

#[test]
fn an_appender_that_wants_syncs_has_them_from_its_first_call_on() {
    const SEGMENT: u64 = 1 << 20;
    let dir = tempfile::tempdir().expect("a directory");
    let (_queue, core) = core(&dir, SEGMENT);
    let keeper = Keeper::start(&core, false).expect("threads");
    let asynchronous = AppendOptions::default();
    keeper.serve(&asynchronous);
    keeper.call(100);
    assert_eq!(keeper.call_syncer_at.load(Relaxed), SEGMENT, "to sync it when it is full");
    let durability = Durability::SyncEvery { interval: Duration::from_hours(1), bytes: 4000 };
    keeper.serve(&AppendOptions { durability, ..asynchronous });
    keeper.call(200);
    assert_eq!(keeper.call_syncer_at.load(Relaxed), 4200);
}

#[test]
fn roll_finds_the_next_segment_ready_in_every_manner() {
    use std::os::unix::fs::MetadataExt as _;
    const SEGMENT: u64 = 8 << 20;
    for lacks_cores in [false, true] {
        let dir = tempfile::tempdir().expect("a directory");
        let (queue, core) = core(&dir, SEGMENT);
        let keeper = Arc::new(Keeper::start(&core, lacks_cores).expect("threads"));
        let mut appender = Appender::attach(Arc::clone(&core), Arc::clone(&keeper), AppendOptions::default())
            .expect("there");
        let inode = |path| std::fs::metadata(path).map(|found| found.ino());
        let mut records = 0;
        for end in (1..=3).map(|number| number * SEGMENT) {
            let deadline = Instant::now() + Duration::from_secs(20);
            let lacks = || lacks_cores && keeper.orders.ready_until.load(Relaxed) != end;
            let prepared = loop {
                if let Ok(inode) = inode(dir.path().join(PREPARED_NAMES[0]))
                    && !lacks()
                {
                    break inode;
                }
                assert!(Instant::now() < deadline, "{lacks_cores}: nothing is ready before {end}");
                std::thread::sleep(Duration::from_millis(1));
            };
            assert_eq!(keeper.call(core.published()) == end, lacks_cores, "called at the end only");
            while core.published() < end {
                appender.append(&[7; 1000]).expect("room");
                records += 1;
            }
            let base = core.head().expect("whole").segment_base;
            assert_eq!(inode(core.segments.path(base)).expect("there"), prepared);
        }
        assert_eq!(queue.verify().expect("whole"), records);
    }
}

#[test]
fn idle_keeper_releases_the_lock_after_clearing_a_file() {
    // Four or five portions, depending on the size of the first one.
    const SEGMENT: u64 = 32 << 20;
    let dir = tempfile::tempdir().expect("a directory");
    let (queue, core) = core(&dir, SEGMENT);
    let owner = Owner::attach(&core.control).expect("not many");
    let mut rounds = Rounds::new(&core, owner, Arc::default());
    make_file(&dir.path().join(SPARE_NAMES[0]), SEGMENT).expect("room");
    let duties = Duties { ahead_bytes: 1 << 20, ..Duties::default() };
    let round = |rounds: &mut Rounds| {
        rounds.round(&duties).expect("room");
        (rounds.clearing, rounds.pause(true))
    };
    assert_eq!(round(&mut rounds), (true, Duration::ZERO));
    assert_eq!(rounds.pause(false), PAUSE, "a failure is not retried at once");
    let options = AppendOptions { ahead_bytes: 0, ..AppendOptions::default() };
    queue.appender(options).expect("there").append(&[1; 1000]).expect("room");
    assert_eq!(rounds.pause(true), PAUSE, "the append needs the core more");
    rounds.looked_at = core.published();
    assert_eq!([round(&mut rounds), round(&mut rounds)], [(true, Duration::ZERO); 2]);
    assert!((0..2).any(|_| round(&mut rounds) == (false, ROUND)), "each round does a portion");
}

#[test]
fn portion_after_fast_appends_stays_bounded() {
    let dir = tempfile::tempdir().expect("a directory");
    let large = Manner::Large.portion(u64::MAX);
    let (_queue, core) = core(&dir, large + STEP_BYTES);
    let owner = Owner::attach(&core.control).expect("not many");
    let orders = Arc::new(Orders { is_fast: true.into(), ..Orders::default() });
    let mut rounds = Rounds::new(&core, owner, orders);
    make_file(&dir.path().join(SPARE_NAMES[0]), large + STEP_BYTES).expect("room");
    let duties = Duties { ahead_bytes: 1 << 20, ..Duties::default() };
    let cleared = [(); 2].map(|()| {
        rounds.round(&duties).expect("room");
        !rounds.clearing
    });
    assert_eq!(cleared, [false, true]);
}

#[test]
fn keeper_without_retention_lists_no_segments() {
    let dir = tempfile::tempdir().expect("a directory");
    let options = CreateOptions { segment_bytes: 4096 };
    let queue = Queue::create(dir.path(), options).expect("made");
    let appender =
        queue.appender(AppendOptions { ahead_bytes: 0, ..AppendOptions::default() }).expect("there");
    let owner = Owner::attach(&appender.core.control).expect("not many");
    let mut rounds = Rounds::new(&appender.core, owner, Arc::default());
    std::fs::rename(appender.core.segments.path(Offset(0)), dir.path().join("hidden")).expect("there");
    assert!(queue.status().is_err(), "listing the segments finds one missing");
    assert!(rounds.keep(&Retention::default(), false).is_ok());
    rounds.kept_at = None;
    let much = Retention { bytes: Some(1 << 30), ..Retention::default() };
    assert!(rounds.keep(&much, false).is_err());
}
