//! Any bytes as a record batch: no panic, bounded memory, and what a broker accepts a consumer can read.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| riverrun_fuzz::check_batch(data));
