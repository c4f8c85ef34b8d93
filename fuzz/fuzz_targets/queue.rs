//! Any damage to the files of an embedded queue: an error or records, and no panic, signal or hang.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| riverrun_fuzz::check_queue(data));
