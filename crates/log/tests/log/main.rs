//! The log through its public interface: its functions, the records that survive each crash, and the damage that it
//! finds.

#![expect(clippy::unwrap_used, reason = "a test asserts with it, and so do its helpers")]

mod appends;
mod aside;
mod away;
mod bounds;
mod compactions;
mod crash_states;
mod crashes;
mod cuts;
mod damage;
mod devices;
mod dirs;
mod epochs;
mod extremes;
mod failures;
mod flips;
mod forged;
mod front;
mod hanging;
mod headers;
mod journal;
mod level_crashes;
mod machine;
mod moved_dirs;
mod no_space;
mod pair;
mod planted;
mod producers;
mod reads;
mod real;
mod repair;
mod scrub;
mod shortages;
mod starts;
mod storms;
mod threads;
mod turns;
mod unknown;
mod unreadable;
mod untimed;
mod unwritable;
mod vanished;
mod waits;
mod write_cache;
