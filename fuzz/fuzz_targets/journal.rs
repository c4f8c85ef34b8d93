//! Any bytes as a journal's file: no panic, bounded memory, and what is found once is found again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| riverrun_fuzz::check_journal(data));
