//! The command line from outside: the real binary, with a real server of it.

mod admin;
mod bench;
mod bench_ends;
mod bench_groups;
mod bench_specs;
mod common;
mod damage;
mod demo;
mod failures;
mod file_size;
mod files;
mod lost;
mod offline;
mod perf;
mod queue;
mod records;
mod serve;
mod server_log;
mod stderr;
