//! The log against a simple model: random appends with and without keys, idempotent producers that retry, several
//! codecs, rolls, retention, compaction, deletion of records, clean restarts, kills and power cuts, on a simulated
//! machine.
//!
//! Everything in a run follows from its seed. A failure prints the seed; `RIVERRUN_MODEL_SEED=<seed>` runs it alone.
//! `RIVERRUN_MODEL_RUNS=<n>` sets the budget.

#![expect(clippy::unwrap_used, reason = "a test asserts with it, and so do its helpers")]

mod oracle;
mod world;

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use world::World;

const RUNS_DEFAULT: u64 = 60;
const STEPS: u32 = 150;

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

fn run(seed: u64) {
    let mut world = World::new(seed);
    let mut done = 0;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        while done < STEPS {
            world.step();
            done += 1;
        }
        world.finish();
    }));
    if let Err(panic) = outcome {
        eprintln!("{}", world.history());
        eprintln!("step {done} of the run with RIVERRUN_MODEL_SEED={seed} failed: {world:?}");
        resume_unwind(panic);
    }
}

#[test]
fn the_log_holds_what_the_model_holds() {
    if let Some(seed) = number("RIVERRUN_MODEL_SEED") {
        run(seed);
        return;
    }
    for seed in 1..=number("RIVERRUN_MODEL_RUNS").unwrap_or(RUNS_DEFAULT) {
        run(seed);
    }
}
