//! Levels of durability over real sockets: what an ack promises, also when the level changes or the disk fails, and
//! the waits of producers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use riverrun_broker::{Server, StopError};
use riverrun_env::sim::SimEnv;
use riverrun_env::{Env, FileSystem as _, OpenMode};
use riverrun_protocol::delete_topics_request::DeleteTopicState;
use riverrun_protocol::describe_configs_request::DescribeConfigsResource;
use riverrun_protocol::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use riverrun_protocol::metadata_request::MetadataRequestTopic;
use riverrun_protocol::{
    CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest, DescribeLogDirsRequest, ErrorCode,
    IncrementalAlterConfigsRequest, MetadataRequest, ProduceRequest,
};
use riverrun_records::{BatchOptions, ProducerStamp};
use riverrun_types::{ProducerEpoch, ProducerId};

use crate::admin_port::get;
use crate::support::{
    CREATE_TOPICS, Client, PATIENCE, PRODUCE_BY_NAME, batch, batch_with, configured, create_topic,
    create_topic_request, fetch_request, only, produce, produce_request, read_all, server_with,
    try_create_topic, try_produce,
};

const TOPIC: i8 = 2;

/// A server on simulated files that keeps real time.
fn simulated(sim: &SimEnv, options: &[(&str, &str)]) -> Server {
    let env = Env { fs: sim.env().fs, ..Env::real() };
    let options = [&[("data.dir", "/data")], options].concat();
    configured(&options).env(env).start().expect("the server starts")
}

fn set_config(client: &mut Client, topic: &str, name: &str, value: &str) {
    let config = AlterableConfig { name: name.into(), config_operation: 0, value: Some(value.into()) };
    let resource =
        AlterConfigsResource { resource_type: TOPIC, resource_name: topic.into(), configs: vec![config] };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
    assert_eq!(ErrorCode(client.call(&request, 1).responses[0].error_code), ErrorCode::NONE);
}

/// A topic's configs in the answer to a request for these names; all if there are none.
fn configs(client: &mut Client, topic: &str, names: &[&'static str]) -> Vec<(String, String)> {
    let resource = DescribeConfigsResource {
        resource_type: TOPIC,
        resource_name: topic.into(),
        configuration_keys: (!names.is_empty()).then(|| names.iter().map(|name| (*name).into()).collect()),
    };
    let topic = topic.to_owned();
    let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
    let result = client.call(&request, 4).results.remove(0);
    assert_eq!(ErrorCode(result.error_code), ErrorCode::NONE, "{topic}");
    let value = |value: Option<riverrun_protocol::Str<'_>>| value.unwrap_or_default().into_owned();
    result.configs.into_iter().map(|config| (config.name.into_owned(), value(config.value))).collect()
}

fn level_reached(client: &mut Client, topic: &str) -> String {
    configs(client, topic, &["durability.reached"]).remove(0).1
}

fn wait_for_level(client: &mut Client, topic: &str, level: &str) {
    let begun = Instant::now();
    while level_reached(client, topic) != level {
        assert!(begun.elapsed() < PATIENCE, "level {level} is not reached");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn log_dir_errors(client: &mut Client) -> Vec<ErrorCode> {
    let dirs = client.call(&DescribeLogDirsRequest { topics: None }, 4).results;
    dirs.iter().map(|dir| ErrorCode(dir.error_code)).collect()
}

/// Everything in a partition, over as many fetches as it takes.
fn read_whole(client: &mut Client, topic: &str, count: usize) -> Vec<String> {
    let mut found = Vec::new();
    let begun = Instant::now();
    while found.len() < count {
        let offset = i64::try_from(found.len()).expect("few");
        found.extend(read_all(client, topic, 0, offset));
        assert!(begun.elapsed() < PATIENCE, "{} of {count}", found.len());
    }
    found
}

#[test]
fn records_acked_at_level_1_survive_a_power_cut() {
    let sim = SimEnv::new(7);
    let server = simulated(&sim, &[]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "safe", 2, &[("durability", "1")]);
    create_topic(&mut client, "fast", 1, &[("durability", "4")]);
    for round in 0..20 {
        produce(&mut client, "safe", 0, &batch(&[&format!("a{round}")]));
        produce(&mut client, "safe", 1, &batch(&[&format!("b{round}")]));
        produce(&mut client, "fast", 0, &batch(&["x"]));
    }
    let expected = |name: &str| -> Vec<String> { (0..20).map(|round| format!("{name}{round}")).collect() };
    assert_eq!(read_all(&mut client, "safe", 0, 0), expected("a"));
    // Writes of the server from here on are not on this disk.
    let mut cut: Vec<SimEnv> = sim.crash_states(3).collect();
    assert!(cut.len() >= 2, "{}", cut.len());
    server.stop().expect("stops");
    for sim in &mut cut {
        let server = simulated(sim, &[]);
        let mut client = Client::new(&server);
        assert_eq!(read_all(&mut client, "safe", 0, 0), expected("a"));
        assert_eq!(read_all(&mut client, "safe", 1, 0), expected("b"));
        let kept = read_all(&mut client, "fast", 0, 0);
        assert!(kept.len() <= 20 && kept.iter().all(|value| value == "x"), "{kept:?}");
        assert_eq!(produce(&mut client, "safe", 0, &batch(&["next"])), 20);
        server.stop().expect("a clean stop");
    }
}

/// Produces numbered records over one pipelined connection until `stop` is set; gives how many were acked. Fails if a
/// record is refused or gets another offset than its number.
fn pour(server: &Server, topic: &'static str, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<usize> {
    const AHEAD: usize = 20;
    let (mut client, stop) = (Client::new(server), Arc::clone(stop));
    std::thread::spawn(move || {
        let (mut sent, mut acked) = (0_usize, 0_usize);
        loop {
            while sent < acked + AHEAD && !stop.load(Ordering::SeqCst) {
                let bytes = batch(&[&sent.to_string()]);
                client.send(&produce_request(topic, 0, &bytes, -1), 9);
                sent += 1;
            }
            if sent == acked {
                return acked;
            }
            let (_, response) = client.receive::<ProduceRequest<'_>>(9);
            let answer = &response.responses[0].partition_responses[0];
            assert_eq!(ErrorCode(answer.error_code), ErrorCode::NONE, "{:?}", answer.error_message);
            assert_eq!(answer.base_offset, i64::try_from(acked).expect("few"));
            acked += 1;
        }
    })
}

#[test]
fn a_topics_level_changes_under_load_without_loss_or_reordering() {
    let server = server_with(&[]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[("durability", "4")]);
    let stop = Arc::new(AtomicBool::new(false));
    let pouring = pour(&server, "t", &stop);
    for level in ["1", "4", "3", "2", "1"] {
        set_config(&mut client, "t", "durability", level);
        wait_for_level(&mut client, "t", level);
        let end = |client: &mut Client| only(client.call(&fetch_request("t", 0, 0), 12)).high_watermark;
        let (begun, before) = (Instant::now(), end(&mut client));
        while end(&mut client) < before + 50 {
            assert!(begun.elapsed() < PATIENCE, "nothing is visible at level {level}");
        }
    }
    stop.store(true, Ordering::SeqCst);
    let acked = pouring.join().expect("every record is acked in its place");
    let expected: Vec<String> = (0..acked).map(|number| number.to_string()).collect();
    assert_eq!(read_whole(&mut client, "t", acked), expected);
}

#[test]
fn flush_messages_syncs_a_topic_and_must_not_contradict_it() {
    let server = server_with(&[("default.durability", "4")]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "synced", 1, &[("flush.messages", "1"), ("flush.ms", "0")]);
    produce(&mut client, "synced", 0, &batch(&["a"]));
    let names = ["durability.wanted", "durability.reached", "durability.unsynced.records"];
    let told = configs(&mut client, "synced", &names);
    let told: Vec<_> = told.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        told,
        [("durability.wanted", "3"), ("durability.reached", "3"), ("durability.unsynced.records", "0")]
    );
    // A request for all configs gets configs, and nothing else.
    let all = configs(&mut client, "synced", &[]);
    assert!(all.iter().all(|(name, _)| !name.starts_with("durability.")), "{all:?}");
    let contradiction = [("flush.messages", "1"), ("durability", "2")];
    assert_eq!(try_create_topic(&mut client, "no", 1, 1, &contradiction), ErrorCode::INVALID_CONFIG);
}

#[test]
fn a_failed_journal_fails_synced_topics_and_no_others() {
    let sim = SimEnv::new(3);
    let server = simulated(&sim, &[("admin.listen", "127.0.0.1:0")]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "safe", 1, &[("durability", "1")]);
    create_topic(&mut client, "fast", 1, &[("durability", "4")]);
    produce(&mut client, "safe", 0, &batch(&["a"]));
    produce(&mut client, "fast", 0, &batch(&["a"]));
    sim.fs.fail_sync_after(0);
    for _ in 0..2 {
        let answer = try_produce(&mut client, "safe", 0, &batch(&["b"]));
        assert_eq!(ErrorCode(answer.error_code), ErrorCode::KAFKA_STORAGE_ERROR);
        assert!(answer.error_message.is_some_and(|message| !message.is_empty()));
    }
    assert_eq!(produce(&mut client, "fast", 0, &batch(&["b"])), 1);
    assert_eq!(read_all(&mut client, "safe", 0, 0), ["a"], "what is not acked is not seen");
    assert_eq!(read_all(&mut client, "fast", 0, 0), ["a", "b"]);
    let (status, body) = get(server.admin_address().expect("an admin port"), "/health");
    assert!(status.contains("503") && body.contains("/data/journal"), "{status} {body}");
    // The server cannot say that all is settled, so the next start looks at the disk.
    server.stop().expect_err("not a clean stop");
    sim.fs.crash();
    let server = simulated(&sim, &[]);
    let mut client = Client::new(&server);
    let kept = read_all(&mut client, "safe", 0, 0);
    assert!(kept[0] == "a" && kept[1..].iter().all(|value| value == "b"), "{kept:?}");
    produce(&mut client, "safe", 0, &batch(&["c"]));
    server.stop().expect("a clean stop");
}

#[test]
fn a_batch_lost_with_the_journal_is_refused_each_time() {
    let sim = SimEnv::new(13);
    let server = simulated(&sim, &[]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "safe", 1, &[]);
    let numbered = |base_sequence| {
        let producer = ProducerStamp { id: ProducerId(7), epoch: ProducerEpoch(0), base_sequence };
        batch_with(BatchOptions { producer, ..Default::default() }, &["a"])
    };
    assert_eq!(produce(&mut client, "safe", 0, &numbered(0)), 0);
    sim.fs.fail_sync_after(0);
    client.set_timeout(Duration::from_secs(5));
    for _ in 0..3 {
        let answer = try_produce(&mut client, "safe", 0, &numbered(1));
        assert_eq!(ErrorCode(answer.error_code), ErrorCode::KAFKA_STORAGE_ERROR);
        assert!(answer.error_message.is_some_and(|message| message.contains("/data/journal")));
    }
    assert_eq!(produce(&mut client, "safe", 0, &numbered(0)), 0, "what was acked is known still");
}

#[test]
fn a_failed_log_dir_is_still_read_and_takes_no_writes() {
    let sim = SimEnv::new(4);
    let options = [("log.dirs", "/one,/two"), ("admin.listen", "127.0.0.1:0")];
    let server = simulated(&sim, &options);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 2, &[("durability", "4")]);
    produce(&mut client, "t", 0, &batch(&["a"]));
    produce(&mut client, "t", 1, &batch(&["b"]));
    sim.fs.fail_write_after(0);
    let failed = |client: &mut Client, index| {
        ErrorCode(try_produce(client, "t", index, &batch(&["c"])).error_code)
            == ErrorCode::KAFKA_STORAGE_ERROR
    };
    assert!(failed(&mut client, 0));
    assert!(failed(&mut client, 0), "until a restart");
    assert_eq!(produce(&mut client, "t", 1, &batch(&["c"])), 1);
    let dirs = client.call(&DescribeLogDirsRequest { topics: None }, 4).results;
    let codes: Vec<_> = dirs.iter().map(|dir| (&*dir.log_dir, ErrorCode(dir.error_code))).collect();
    assert_eq!(codes, [("/one", ErrorCode::KAFKA_STORAGE_ERROR), ("/two", ErrorCode::NONE)]);
    let wanted = MetadataRequestTopic { name: Some("t".into()), ..Default::default() };
    let metadata = client.call(&MetadataRequest { topics: Some(vec![wanted]), ..Default::default() }, 12);
    let leaders = metadata.topics[0].partitions.iter().map(|partition| partition.leader_id);
    assert_eq!(leaders.collect::<Vec<_>>(), [1, 1], "who reads needs a leader");
    assert_eq!(read_all(&mut client, "t", 0, 0), ["a"]);
    assert_eq!(read_all(&mut client, "t", 1, 0), ["b", "c"]);
    create_topic(&mut client, "u", 3, &[]);
    for index in 0..3 {
        produce(&mut client, "u", index, &batch(&["d"]));
    }
    let (status, body) = get(server.admin_address().expect("an admin port"), "/health");
    assert!(status.contains("503") && body.contains("/one"), "{status} {body}");
    assert_eq!(body.lines().count(), 1, "its partitions are not told of one by one: {body}");
}

fn wait_until_it_stops(server: &Server) {
    let begun = Instant::now();
    while !server.is_stopping() {
        assert!(begun.elapsed() < PATIENCE, "it goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_server_whose_last_log_dir_fails_stops_and_says_why() {
    let sim = SimEnv::new(11);
    let options = [("log.dirs", "/one,/two")];
    let server = simulated(&sim, &options);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 2, &[("durability", "4")]);
    for index in 0..2 {
        produce(&mut client, "t", index, &batch(&["a"]));
        assert!(!server.is_stopping(), "a log dir is left");
        sim.fs.fail_write_after(0);
        client.send(&produce_request("t", index, &batch(&["b"]), -1), PRODUCE_BY_NAME);
        // With its last log dir the server stops, perhaps before it has answered.
        let Some((_, response)) = client.receive_unless_closed::<ProduceRequest<'_>>(PRODUCE_BY_NAME) else {
            assert_eq!(index, 1, "a log dir is left");
            continue;
        };
        let answer = &response.responses[0].partition_responses[0];
        assert_eq!(ErrorCode(answer.error_code), ErrorCode::KAFKA_STORAGE_ERROR);
    }
    wait_until_it_stops(&server);
    let error = server.stop().expect_err("not on request");
    let StopError::StorageFailed(reason) = &error else { panic!("{error}") };
    assert!(reason.contains("/one") && reason.contains("/two"), "{reason}");
    let server = simulated(&sim, &options);
    let mut client = Client::new(&server);
    for index in 0..2 {
        assert_eq!(read_all(&mut client, "t", index, 0), ["a"], "what was acked is there");
    }
    server.stop().expect("a clean stop");
}

#[test]
fn a_server_whose_metadata_fails_stops_and_says_why() {
    let sim = SimEnv::new(12);
    let server = simulated(&sim, &[]);
    let mut client = Client::new(&server);
    sim.fs.fail_sync_after(0);
    client.send(&create_topic_request("t", 1, 1, &[]), CREATE_TOPICS);
    // The server may stop before it has answered.
    if let Some((_, response)) = client.receive_unless_closed::<CreateTopicsRequest<'_>>(CREATE_TOPICS) {
        assert_ne!(ErrorCode(response.topics[0].error_code), ErrorCode::NONE);
    }
    wait_until_it_stops(&server);
    let error = server.stop().expect_err("not on request");
    assert!(error.to_string().contains("/data/meta"), "{error}");
}

#[test]
fn a_server_starts_without_a_log_dir_that_is_no_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("text").to_owned();
    let dirs = format!("{},{}", path("one"), path("two"));
    let start = || server_with(&[("data.dir", &path("data")), ("log.dirs", &dirs)]);
    let server = start();
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 2, &[]);
    produce(&mut client, "t", 0, &batch(&["a"]));
    produce(&mut client, "t", 1, &batch(&["b"]));
    server.stop().expect("a clean stop");
    // A file in its place is as little a directory as a disk that is gone.
    std::fs::rename(path("one"), path("away")).expect("moved");
    std::fs::write(path("one"), "").expect("written");
    let server = start();
    let mut client = Client::new(&server);
    let answer = try_produce(&mut client, "t", 0, &batch(&["c"]));
    assert_eq!(ErrorCode(answer.error_code), ErrorCode::KAFKA_STORAGE_ERROR);
    assert_eq!(produce(&mut client, "t", 1, &batch(&["c"])), 1);
    assert_eq!(log_dir_errors(&mut client), [ErrorCode::KAFKA_STORAGE_ERROR, ErrorCode::NONE]);
    server.stop().expect("the rest is closed in order");
    std::fs::remove_file(path("one")).expect("removed");
    std::fs::rename(path("away"), path("one")).expect("moved back");
    let server = start();
    let mut client = Client::new(&server);
    assert_eq!(read_all(&mut client, "t", 0, 0), ["a"]);
    assert_eq!(read_all(&mut client, "t", 1, 0), ["b", "c"]);
}

#[test]
fn an_unmounted_log_dir_is_offline_and_stays_empty() {
    for was_killed in [false, true] {
        let sim = SimEnv::new(21);
        let options = [("log.dirs", "/one,/two"), ("admin.listen", "127.0.0.1:0")];
        let server = simulated(&sim, &options);
        let mut client = Client::new(&server);
        create_topic(&mut client, "t", 2, &[("durability", "1")]);
        create_topic(&mut client, "doomed", 2, &[("durability", "4")]);
        for topic in ["t", "doomed"] {
            produce(&mut client, topic, 0, &batch(&["a"]));
            produce(&mut client, topic, 1, &batch(&["b"]));
        }
        if was_killed {
            sim.fs.kill();
        }
        assert_eq!(server.stop().is_err(), was_killed);
        let (one, away) = ("/one".as_ref(), "/away".as_ref());
        sim.fs.rename(one, away).and_then(|()| sim.fs.create_dir_all(one)).expect("unmounted");
        let server = simulated(&sim, &options);
        let mut client = Client::new(&server);
        let answer = try_produce(&mut client, "t", 0, &batch(&["c"]));
        assert_eq!(ErrorCode(answer.error_code), ErrorCode::KAFKA_STORAGE_ERROR);
        assert_eq!(produce(&mut client, "t", 1, &batch(&["c"])), 1);
        assert_eq!(log_dir_errors(&mut client), [ErrorCode::KAFKA_STORAGE_ERROR, ErrorCode::NONE]);
        let admin = server.admin_address().expect("an admin port");
        let (status, body) = get(admin, "/health");
        let told = "log dir /one has failed: it is empty, but 2 partitions lie in it";
        assert!(status.contains("503") && body.contains(told) && body.contains("accept-loss"), "{body}");
        assert!(get(admin, "/metrics").1.contains("riverrun_log_dir_failed{dir=\"/one\"} 1"));
        let topics = vec![DeleteTopicState { name: Some("doomed".into()), ..Default::default() }];
        let deleted = client.call(&DeleteTopicsRequest { topics, ..Default::default() }, 6);
        assert_eq!(ErrorCode(deleted.responses[0].error_code), ErrorCode::NONE);
        create_topic(&mut client, "new", 2, &[]);
        produce(&mut client, "new", 0, &batch(&["d"]));
        produce(&mut client, "new", 1, &batch(&["d"]));
        server.stop().expect("the rest is closed in order");
        assert_eq!(sim.fs.read_dir(one).expect("readable").len(), 0, "killed before: {was_killed}");
        sim.fs.remove_dir(one).and_then(|()| sim.fs.rename(away, one)).expect("mounted");
        let server = simulated(&sim, &options);
        let mut client = Client::new(&server);
        assert_eq!(log_dir_errors(&mut client), [ErrorCode::NONE; 2]);
        assert_eq!(read_all(&mut client, "t", 0, 0), ["a"], "killed before: {was_killed}");
        assert_eq!(read_all(&mut client, "t", 1, 0), ["b", "c"]);
        assert_eq!(produce(&mut client, "t", 0, &batch(&["c"])), 1);
        server.stop().expect("a clean stop");
    }
}

#[test]
fn a_full_log_dir_refuses_producers_until_there_is_room() {
    let sim = SimEnv::new(5);
    let server = simulated(&sim, &[("log.dir.reserve.bytes", "1000000"), ("admin.listen", "127.0.0.1:0")]);
    let mut client = Client::new(&server);
    // The records of these tests are old, and retention makes room.
    create_topic(&mut client, "t", 1, &[("durability", "4"), ("retention.ms", "-1")]);
    produce(&mut client, "t", 0, &batch(&["a"]));
    crate::support::find_coordinator(&mut client, "g");
    sim.fs.set_space(Some(900_000));
    let begun = Instant::now();
    let refused = loop {
        let answer = try_produce(&mut client, "t", 0, &batch(&["b"]));
        if answer.error_code != 0 {
            break answer;
        }
        assert!(begun.elapsed() < PATIENCE, "the reserve is not kept");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(ErrorCode(refused.error_code), ErrorCode::KAFKA_STORAGE_ERROR);
    assert!(refused.error_message.is_some_and(|message| message.contains("/data/logs")));
    assert_eq!(read_all(&mut client, "t", 0, 0)[0], "a", "readers go on");
    assert_eq!(crate::lifecycle::commit(&mut client, "g", "t", 1), ErrorCode::NONE, "group offsets go on");
    let (status, body) = get(server.admin_address().expect("an admin port"), "/health");
    assert!(status.contains("503") && body.contains("/data/logs"), "{status} {body}");
    sim.fs.set_space(None);
    let begun = Instant::now();
    while try_produce(&mut client, "t", 0, &batch(&["c"])).error_code != 0 {
        assert!(begun.elapsed() < PATIENCE, "it is not taken again");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.stop().expect("a clean stop");
}

#[test]
fn a_full_write_cache_delays_producers_and_no_consumers() {
    let server = server_with(&[("write.cache.bytes", "8388608"), ("journal.bytes", "67108864")]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[("durability", "1")]);
    let large = batch(&["x".repeat(900_000).as_str()]);
    let producers: Vec<_> = (0..4)
        .map(|_| {
            let (mut client, large) = (Client::new(&server), large.clone());
            std::thread::spawn(move || {
                for _ in 0..12 {
                    produce(&mut client, "t", 0, &large);
                }
            })
        })
        .collect();
    let mut reader = Client::new(&server);
    let begun = Instant::now();
    while producers.iter().any(|producer| !producer.is_finished()) {
        let mut request = fetch_request("t", 0, 0);
        request.max_wait_ms = 10;
        let data = only(reader.call(&request, 12));
        assert_eq!(ErrorCode(data.error_code), ErrorCode::NONE);
        assert!(begun.elapsed() < PATIENCE, "producers are stuck");
    }
    for producer in producers {
        producer.join().expect("all is taken");
    }
    let end = only(reader.call(&fetch_request("t", 0, 0), 12)).high_watermark;
    assert_eq!(end, 48);
}

#[test]
fn a_batch_not_durable_in_time_times_out_and_stays() {
    let sim = SimEnv::new(9);
    let server = simulated(&sim, &[("admin.listen", "127.0.0.1:0")]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[("durability", "1")]);
    produce(&mut client, "t", 0, &batch(&["a"]));
    let (entered, has_entered) = std::sync::mpsc::sync_channel(1);
    let (go_on, may_go_on) = std::sync::mpsc::sync_channel::<()>(1);
    sim.fs.during_next_sync(move || {
        entered.send(()).expect("somebody waits");
        let _ = may_go_on.recv_timeout(PATIENCE);
    });
    let bytes = batch(&["b"]);
    let mut request = produce_request("t", 0, &bytes, -1);
    request.timeout_ms = 50;
    client.send(&request, 9);
    has_entered.recv_timeout(PATIENCE).expect("it is synced");
    let (_, response) = client.receive::<ProduceRequest<'_>>(9);
    let answer = &response.responses[0].partition_responses[0];
    assert_eq!(ErrorCode(answer.error_code), ErrorCode::REQUEST_TIMED_OUT);
    assert_eq!(read_all(&mut client, "t", 0, 0), ["a"], "nobody sees it before it is synced");
    // Health names the journal that producers wait for, although nothing has failed.
    let health = || get(server.admin_address().expect("an admin port"), "/health");
    let begun = Instant::now();
    while !health().1.contains("producers wait for the journal in /data/journal: its disk takes no writes") {
        assert!(begun.elapsed() < PATIENCE, "{:?}", health());
        std::thread::sleep(Duration::from_millis(20));
    }
    go_on.send(()).expect("the sync waits");
    assert_eq!(read_whole(&mut client, "t", 2), ["a", "b"]);
    assert_eq!(produce(&mut client, "t", 0, &batch(&["c"])), 2);
    while health().1 != "ok\n" {
        assert!(begun.elapsed() < PATIENCE, "{:?}", health());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn group_members_are_not_kept_waiting_by_a_journal_without_room() {
    let sim = SimEnv::new(17);
    let server = simulated(&sim, &[("admin.listen", "127.0.0.1:0")]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[("durability", "4")]);
    crate::support::find_coordinator(&mut client, "g");
    assert_eq!(crate::lifecycle::commit(&mut client, "g", "t", 1), ErrorCode::NONE);
    // The journal's volume is full, and that of the log dir is not.
    sim.fs.fill_device(Some("/data/journal".as_ref()));
    // Commits go on while there is room in the file that was made before.
    let begun = Instant::now();
    let refused = loop {
        match crate::lifecycle::commit(&mut client, "g", "t", 1) {
            ErrorCode::NONE => assert!(begun.elapsed() < PATIENCE, "the journal finds room"),
            refused => break refused,
        }
    };
    assert_eq!(refused, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    let (status, body) = get(server.admin_address().expect("an admin port"), "/health");
    assert!(status.contains("503") && body.contains("a journal waits: /data/journal"), "{status} {body}");
    assert_eq!(read_all(&mut client, "t", 0, 0), Vec::<String>::new(), "the connection is served");
    sim.fs.fill_device(None);
    let begun = Instant::now();
    while crate::lifecycle::commit(&mut client, "g", "t", 2) != ErrorCode::NONE {
        assert!(begun.elapsed() < PATIENCE, "it is not taken again");
    }
    // The watchdog looks from time to time.
    let begun = Instant::now();
    while get(server.admin_address().expect("an admin port"), "/health").1.contains("journal") {
        assert!(begun.elapsed() < PATIENCE, "health is not told that it goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.stop().expect("a clean stop");
}

/// Produces a batch until the journal refuses it; gives how many were taken before, acked or not.
fn produce_until_refused(client: &mut Client, topic: &str, batch: &[u8]) -> usize {
    let begun = Instant::now();
    for taken in 0.. {
        let mut request = produce_request(topic, 0, batch, -1);
        request.timeout_ms = 100;
        let answer = client.call(&request, 9).responses.remove(0).partition_responses.remove(0);
        match ErrorCode(answer.error_code) {
            // A request that comes before the lack of space is known waits until its time is up.
            ErrorCode::NONE | ErrorCode::REQUEST_TIMED_OUT => {}
            refused => {
                assert_eq!(refused, ErrorCode::KAFKA_STORAGE_ERROR, "{:?}", answer.error_message);
                return taken;
            }
        }
        assert!(begun.elapsed() < PATIENCE, "the journal finds room");
    }
    unreachable!("it is refused or fails")
}

#[test]
fn producers_are_refused_while_a_journal_has_no_space() {
    let sim = SimEnv::new(23);
    let server = simulated(&sim, &[("admin.listen", "127.0.0.1:0")]);
    let mut client = Client::new(&server);
    // The records are old, and what is in segments would be deleted.
    create_topic(&mut client, "t", 1, &[("durability", "1"), ("retention.ms", "-1")]);
    create_topic(&mut client, "past", 1, &[("durability", "4")]);
    let bytes = batch(&["x".repeat(50_000).as_str()]);
    produce(&mut client, "t", 0, &bytes);
    // The journal's volume is full, and that of the log dir is not.
    sim.fs.fill_device(Some("/data/journal".as_ref()));
    let taken = 1 + produce_until_refused(&mut client, "t", &bytes);
    let refused = try_produce(&mut client, "t", 0, &bytes);
    assert_eq!(ErrorCode(refused.error_code), ErrorCode::KAFKA_STORAGE_ERROR, "at once, also the next one");
    let admin = server.admin_address().expect("an admin port");
    let (status, body) = get(admin, "/health");
    assert!(status.contains("503") && body.contains("a journal waits: /data/journal"), "{status} {body}");
    let (_, metrics) = get(admin, "/metrics");
    let waits = metrics
        .lines()
        .find(|line| line.starts_with("riverrun_journal_waiting") && line.contains("for=\"system\""));
    assert!(waits.is_some_and(|line| line.ends_with(" 1")), "{waits:?}");
    assert_eq!(produce(&mut client, "past", 0, &batch(&["y"])), 0, "what goes past the journal is taken");
    sim.fs.fill_device(None);
    assert_eq!(read_whole(&mut client, "t", taken).len(), taken, "what waited is stored");
    let begun = Instant::now();
    let answer = loop {
        let answer = try_produce(&mut client, "t", 0, &bytes);
        if ErrorCode(answer.error_code) == ErrorCode::NONE {
            break answer;
        }
        assert!(begun.elapsed() < PATIENCE, "it is not taken again: {:?}", answer.error_message);
    };
    assert_eq!(answer.base_offset, i64::try_from(taken).expect("few"), "what was refused is not there");
    server.stop().expect("a clean stop");
}

#[test]
fn group_offsets_are_committed_in_the_reserve() {
    let sim = SimEnv::new(19);
    let server = simulated(&sim, &[("log.dir.reserve.bytes", "4194304")]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[("durability", "4")]);
    crate::support::find_coordinator(&mut client, "g");
    assert_eq!(crate::lifecycle::commit(&mut client, "g", "t", 1), ErrorCode::NONE);
    sim.fs.set_space(Some(4_000_000));
    // Each commit takes a block of the journal: together more than there is.
    for number in 0..1500 {
        let committed = crate::lifecycle::commit(&mut client, "g", "t", number);
        assert_eq!(committed, ErrorCode::NONE, "commit {number}");
    }
    let left = riverrun_env::FileSystem::available_bytes(&*sim.fs, "/data".as_ref()).expect("known");
    assert!(left > 2_000_000, "{left} bytes are left");
    server.stop().expect("a clean stop");
}

#[test]
fn log_dirs_are_told_by_paths_that_mean_the_same_everywhere() {
    let dir = tempfile::tempdir().expect("a directory");
    let here = std::env::current_dir().expect("a directory");
    let up: std::path::PathBuf = here.components().skip(1).map(|_| "..").collect();
    let relative = up.join(dir.path().strip_prefix("/").expect("absolute"));
    let server = server_with(&[("data.dir", relative.to_str().expect("text"))]);
    let dirs = Client::new(&server).call(&DescribeLogDirsRequest { topics: None }, 4).results;
    assert_eq!(&*dirs[0].log_dir, here.join(relative).join("logs").to_str().expect("text"));
}

#[test]
fn journals_may_change_unless_they_hold_records() {
    let (first, killed) =
        (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let at = |directory: &tempfile::TempDir, name: &str| {
        directory.path().join(name).to_str().expect("text").to_owned()
    };
    let server = server_with(&[("data.dir", &at(&first, "data")), ("journal.dirs", &at(&first, "journal"))]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[("durability", "1")]);
    produce(&mut client, "t", 0, &batch(&["a"]));
    // Killed right after its first ack, it has written down that its journal is in use.
    crate::lifecycle::copy(first.path(), killed.path());
    server.stop().expect("a clean stop");
    let moved = [("data.dir", at(&killed, "data")), ("journal.dirs", at(&killed, "elsewhere"))];
    let moved = moved.each_ref().map(|(name, value)| (*name, value.as_str()));
    let refused = configured(&moved).start().expect_err("its records are nowhere else").to_string();
    assert!(refused.contains("journal") && refused.contains("accept-loss"), "{refused}");
    // With its journal beside it a killed server goes on wherever it lies.
    let server =
        server_with(&[("data.dir", &at(&killed, "data")), ("journal.dirs", &at(&killed, "journal"))]);
    assert_eq!(read_all(&mut Client::new(&server), "t", 0, 0), ["a"]);
    server.stop().expect("a clean stop");
    let server = server_with(&moved);
    assert_eq!(read_all(&mut Client::new(&server), "t", 0, 0), ["a"]);
}

#[test]
fn journals_with_records_of_an_absent_log_dir_may_not_change() {
    let sim = SimEnv::new(17);
    let options = [("log.dirs", "/one,/two")];
    let server = simulated(&sim, &options);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 2, &[("durability", "1")]);
    produce(&mut client, "t", 0, &batch(&["a"]));
    produce(&mut client, "t", 1, &batch(&["b"]));
    sim.fs.kill();
    server.stop().expect_err("it was killed");
    let (one, away) = ("/one".as_ref(), "/away".as_ref());
    sim.fs.rename(one, away).expect("moved");
    sim.fs.open(one, OpenMode::CreateNew).expect("made");
    let server = simulated(&sim, &options);
    assert_eq!(read_all(&mut Client::new(&server), "t", 1, 0), ["b"]);
    server.stop().expect("a clean stop");
    let env = Env { fs: sim.env().fs, ..Env::real() };
    let moved = [("data.dir", "/data"), ("log.dirs", "/one,/two"), ("journal.dirs", "/elsewhere")];
    let refused = configured(&moved).env(env).start().expect_err("records are in the other journal only");
    assert!(refused.to_string().contains("journal"), "{refused}");
    sim.fs.remove_file(one).expect("removed");
    sim.fs.rename(away, one).expect("moved back");
    let server = simulated(&sim, &options);
    assert_eq!(read_all(&mut Client::new(&server), "t", 0, 0), ["a"]);
}

#[test]
fn the_journals_work_is_shown_in_the_metrics() {
    let server = server_with(&[("admin.listen", "127.0.0.1:0")]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[("durability", "1")]);
    for _ in 0..5 {
        produce(&mut client, "t", 0, &batch(&["a"]));
    }
    let (_, text) = get(server.admin_address().expect("an admin port"), "/metrics");
    let sum = |name: &str| -> f64 {
        let samples = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{') || rest.starts_with(' '))
        });
        samples.map(|line| line.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number")).sum()
    };
    assert!(sum("riverrun_journal_entries_total") >= 5.0, "{text}");
    let groups = sum("riverrun_journal_groups_total");
    assert!(groups >= 1.0);
    for name in ["queue", "write", "sync"] {
        let counted = sum(&format!("riverrun_journal_{name}_seconds_count"));
        assert!(counted >= 1.0, "{name}: {counted}");
    }
    assert!(sum("riverrun_journal_written_bytes_total") >= groups * 4096.0);
    assert!(text.contains("riverrun_durability_level{topic=\"t\",partition=\"0\"} 1"), "{text}");
    assert!(text.contains("riverrun_unsynced_records{topic=\"t\",partition=\"0\"} 0"), "{text}");
}

#[test]
fn records_synced_by_the_journal_do_not_count_as_unsynced() {
    let options = [("journal.async.write", "true"), ("admin.listen", "127.0.0.1:0")];
    let server = server_with(&options);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[("durability", "4")]);
    let unsynced = || {
        let (_, text) = get(server.admin_address().expect("an admin port"), "/metrics");
        let series = "riverrun_unsynced_records{topic=\"t\",partition=\"0\"} ";
        let value = text.lines().find_map(|line| line.strip_prefix(series)).expect("shown").to_owned();
        value.parse::<i64>().expect("a number")
    };
    produce(&mut client, "t", 0, &batch(&["a", "b"]));
    let begun = Instant::now();
    // Long before the settler brings records into their segment.
    while unsynced() != 0 {
        assert!(begun.elapsed() < Duration::from_secs(5), "the journal syncs every second");
        std::thread::sleep(Duration::from_millis(20));
    }
    let told = configs(&mut client, "t", &["durability.unsynced.records"]).remove(0).1;
    assert_eq!(told, "0");
}

#[test]
fn commits_that_come_together_are_synced_together() {
    const COMMITS: i64 = 200;
    let sim = SimEnv::new(11);
    let server = simulated(&sim, &[("offsets.topic.num.partitions", "1")]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 1, &[]);
    crate::support::find_coordinator(&mut client, "g");
    assert_eq!(crate::lifecycle::commit(&mut client, "g", "t", 0), ErrorCode::NONE);
    let before = sim.fs.syncs();
    for offset in 1..=COMMITS {
        client.send(&crate::lifecycle::commit_request("g", "t", offset), 9);
    }
    for _ in 1..=COMMITS {
        let (_, response) = client.receive::<riverrun_protocol::OffsetCommitRequest<'_>>(9);
        assert_eq!(ErrorCode(response.topics[0].partitions[0].error_code), ErrorCode::NONE);
    }
    let syncs = sim.fs.syncs() - before;
    assert!(i64::try_from(syncs).expect("few") < COMMITS, "{syncs} syncs");
    assert_eq!(crate::lifecycle::committed(&mut client, "g"), [("t".to_owned(), COMMITS)]);
}

#[test]
fn a_stop_while_a_disk_hangs_takes_seconds_and_loses_no_acks() {
    let sim = SimEnv::new(11);
    let server = simulated(&sim, &[]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "safe", 1, &[("durability", "1")]);
    let values: Vec<String> = (0..20).map(|round| format!("value {round}")).collect();
    for value in &values {
        produce(&mut client, "safe", 0, &batch(&[value]));
    }
    let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    // The next sync is that of the last checkpoint.
    sim.fs.during_next_sync(move || {
        tell.send(()).expect("the test waits");
        let _gone = released.recv();
    });
    let begun = Instant::now();
    let stopped = server.stop();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    told.recv_timeout(PATIENCE).expect("a sync was under way");
    assert!(stopped.is_err_and(|error| error.to_string().contains("a disk does not answer")));
    // The process would have ended here.
    let mut cut: Vec<SimEnv> = sim.crash_states(3).collect();
    drop(release);
    for sim in &mut cut {
        let server = simulated(sim, &[]);
        let mut client = Client::new(&server);
        assert_eq!(read_whole(&mut client, "safe", values.len()), values);
        server.stop().expect("a clean stop");
    }
}
