//! A thread of the server that dies: the server stops by itself, says which, and has acked nothing that is not there.

use std::time::Instant;

use riverrun_broker::{Server, StopError};
use riverrun_env::Env;
use riverrun_env::sim::SimEnv;

use crate::support::{Client, PATIENCE, batch, configured, create_topic, produce, produce_request, read_all};

fn on(sim: &SimEnv, options: &[(&str, &str)]) -> Server {
    let env = Env { fs: sim.env().fs, ..Env::real() };
    let options = [&[("data.dir", "/data")], options].concat();
    configured(&options).env(env).start().expect("the server starts")
}

/// Waits until the server stops by itself, and gives the reason.
fn died(server: Server) -> String {
    let begun = Instant::now();
    while !server.is_stopping() {
        assert!(begun.elapsed() < PATIENCE, "it goes on");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let error = server.stop().expect_err("not on request");
    let StopError::ThreadDied(reason) = error else { panic!("{error}") };
    reason
}

#[test]
fn a_panicked_journal_thread_acks_nothing_and_ends_the_server() {
    let sim = SimEnv::new(1);
    let server = on(&sim, &[]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[("durability", "1")]);
    assert_eq!(produce(&mut client, "t", 0, &batch(&["a"])), 0);
    sim.fs.during_next_sync(|| panic!("planted"));
    client.send(&produce_request("t", 0, &batch(&["b"]), -1), 12);
    let answer = client.read_frame();
    let reason = died(server);
    assert!(reason.contains("the thread journal /data/journal has died"), "{reason}");
    // The connection was closed, or got an error. Before an error code stand tags, one topic of one letter, partition 0.
    let no_error = [0, 2, 2, b't', 2, 0, 0, 0, 0, 0, 0];
    let acked = answer.is_ok_and(|answer| answer[4..].starts_with(&no_error));
    assert!(!acked, "nobody had synced it");
    let server = on(&sim, &[]);
    assert_eq!(read_all(&mut Client::new(&server), "t", 0, 0)[0], "a");
    server.stop().expect("a clean stop");
}

#[test]
fn a_job_that_panics_ends_the_server_and_nothing_acked_is_lost() {
    let sim = SimEnv::new(2);
    let server = on(&sim, &[("log.flush.offset.checkpoint.interval.ms", "100")]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[("durability", "4")]);
    sim.fs.during_next_sync(|| panic!("planted"));
    assert_eq!(produce(&mut client, "t", 0, &batch(&["a"])), 0);
    let reason = died(server);
    assert_eq!(reason, "the thread checkpoint /data/logs has died: it panicked: planted");
    let server = on(&sim, &[]);
    assert_eq!(read_all(&mut Client::new(&server), "t", 0, 0), ["a"]);
    server.stop().expect("a clean stop");
}
