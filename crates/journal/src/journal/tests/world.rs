//! A journal on a machine of a simulated world, which steps its two workers.

use riverrun_env::sim::World;

use super::*;

/// Returns, for a run of `seed`, the number of entries acked before the power was cut, and the world's trace.
fn run(seed: u64) -> (usize, u64) {
    let world = World::new(seed);
    let node = world.node("a");
    let acked = Arc::new(Acked::default());
    let (journal, _) =
        Journal::open(&node.env().env, Path::new(DIR), options(SyncMethod::DirectDsync, 3)).unwrap();
    for number in 0..8 {
        journal.submit(submission_of(number, &acked)).unwrap();
        assert!(acked.0.lock().len() as u64 <= number, "it was not stepped since");
        let steps = world.steps() + seed % 7;
        world.run_until(Duration::from_millis(1), || world.steps() >= steps);
    }
    node.cut_power();
    drop(journal);
    let acked = acked.0.lock().clone();
    assert!(acked.iter().copied().eq(0..acked.len() as u64), "seed {seed}: in the order of submission");
    let (journal, mut replay) =
        Journal::open(&node.env().env, Path::new(DIR), options(SyncMethod::DirectDsync, 3)).unwrap();
    let mut found = 0;
    while let Some(entries) = replay.next().unwrap() {
        found += entries.len();
    }
    assert!((acked.len()..=8).contains(&found), "seed {seed}: {found} of {}", acked.len());
    journal.close().unwrap();
    (acked.len(), world.trace())
}

#[test]
fn a_journal_is_stepped_by_its_world_and_keeps_what_it_acked() {
    let counts: Vec<usize> = (0..40)
        .map(|seed| {
            let first = run(seed);
            assert_eq!(first, run(seed), "seed {seed} twice");
            first.0
        })
        .collect();
    assert!(counts.contains(&0) && counts.contains(&8), "{counts:?}");
}
