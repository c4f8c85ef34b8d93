//! Any bytes as a gzip stream: no panic, and no more memory than the bound on inflated bytes allows.
#![no_main]

use libfuzzer_sys::fuzz_target;
use riverrun_records::Compression;

fuzz_target!(|data: &[u8]| riverrun_fuzz::check_stream(Compression::Gzip, data));
