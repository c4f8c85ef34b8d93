//! Bytes that are no requests: the connection that sends them is closed or waited for, other clients do not notice,
//! and nothing panics.

use std::time::{Duration, Instant};

use riverrun_protocol::metadata_request::MetadataRequestTopic;
use riverrun_protocol::{ApiKey, ApiVersionsRequest, MetadataRequest};

use crate::support::{
    Client, assert_serves, batch, create_topic, fetch_request, framed, produce_request, request_bytes,
    server, server_with,
};

/// A request's header of version 1 with client id "t".
fn header(key: ApiKey, version: i16) -> Vec<u8> {
    let (key, version) = ((key as i16).to_be_bytes(), version.to_be_bytes());
    [&key[..], &version, &7_i32.to_be_bytes(), &1_i16.to_be_bytes(), b"t"].concat()
}

/// The same in version 2, which has tagged fields: none.
fn flexible_header(key: ApiKey, version: i16) -> Vec<u8> {
    [&header(key, version)[..], &[0]].concat()
}

/// Sends each frame on a connection of its own and expects that to be closed.
fn assert_each_closes(bodies: &[(&str, Vec<u8>)]) {
    let server = server();
    let mut bystander = Client::new(&server);
    for (mistake, body) in bodies {
        let mut client = Client::new(&server);
        client.write(&framed(body));
        client.expect_closed(mistake);
        assert_eq!(bystander.call(&MetadataRequest::default(), 12).brokers.len(), 1, "{mistake}");
    }
    server.stop().expect("nothing panicked");
}

#[test]
fn a_length_that_no_request_has_closes_the_connection() {
    let server = server();
    for length in [-1, 0, 7, i32::MIN, i32::MAX, 104_857_601] {
        let mut client = Client::new(&server);
        client.write(&length.to_be_bytes());
        client.expect_closed(&format!("a length of {length}"));
    }
    assert_serves(&server);
}

#[test]
fn a_frame_above_socket_request_max_bytes_closes_the_connection() {
    let server = server_with(&[("socket.request.max.bytes", "2048")]);
    let mut client = Client::new(&server);
    let names = vec![MetadataRequestTopic { name: Some("x".repeat(200).into()), ..Default::default() }; 20];
    let large = MetadataRequest { topics: Some(names), ..Default::default() };
    client.write(&request_bytes(&large, 9));
    client.expect_closed("a large frame");
    assert_serves(&server);
}

#[test]
fn an_unfinished_frame_is_waited_for_until_the_time_out() {
    let server = server_with(&[("socket.frame.timeout.ms", "300")]);
    let request = request_bytes(&ApiVersionsRequest::default(), 0);
    let mut honest = Client::new(&server);
    // A byte now and then does not help: the whole frame has one deadline.
    let mut slow = Client::new(&server);
    slow.write(&100_000_i32.to_be_bytes());
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(10) {
        if slow.try_write(&[0]).is_err() || !slow.is_quiet_for(Duration::from_millis(20)) {
            break;
        }
        assert_eq!(honest.call(&ApiVersionsRequest::default(), 0).error_code, 0);
    }
    assert!(since.elapsed() >= Duration::from_millis(300), "{:?}", since.elapsed());
    assert!(since.elapsed() < Duration::from_secs(10), "a slow frame is never done");
    // A frame that is finished in time is served, and idling between frames is no offence.
    let mut client = Client::new(&server);
    client.write(&request[..9]);
    std::thread::sleep(Duration::from_millis(50));
    client.write(&request[9..]);
    assert_eq!(client.receive::<ApiVersionsRequest<'_>>(0).1.error_code, 0);
    assert!(client.is_quiet_for(Duration::from_millis(600)), "idle connections stay");
    assert_eq!(client.call(&ApiVersionsRequest::default(), 0).error_code, 0);
}

#[test]
fn an_idle_connection_is_closed_and_others_are_not() {
    let server = server_with(&[("connections.max.idle.ms", "300")]);
    let mut idle = Client::new(&server);
    let mut busy = Client::new(&server);
    let mut parked = Client::new(&server);
    create_topic(&mut parked, "t", 1, &[]);
    let mut wait = fetch_request("t", 0, 0);
    wait.max_wait_ms = 1_200;
    parked.send(&wait, 12);
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(busy.call(&ApiVersionsRequest::default(), 0).error_code, 0);
    }
    idle.expect_closed("an idle connection");
    // A request that waits is not idle.
    assert_eq!(parked.receive::<riverrun_protocol::FetchRequest<'_>>(12).1.error_code, 0);
}

#[test]
fn a_request_cut_anywhere_is_waited_for_or_refused() {
    let server = server();
    create_topic(&mut Client::new(&server), "t", 1, &[]);
    let bytes = batch(&["x"]);
    let requests = [
        (ApiKey::Produce, request_bytes(&produce_request("t", 0, &bytes, -1), 12)),
        (ApiKey::Fetch, request_bytes(&fetch_request("t", 0, 0), 12)),
        (ApiKey::Metadata, request_bytes(&MetadataRequest::default(), 12)),
    ];
    for (key, request) in requests {
        for end in 4..request.len() {
            // The stream ends within the frame.
            let mut client = Client::new(&server);
            client.write(&request[..end]);
            client.finish();
            client.expect_closed(&format!("{key}, {end} bytes of it"));
            // The frame ends within the message.
            let mut client = Client::new(&server);
            client.write(&framed(&request[4..end]));
            client.expect_closed(&format!("{key} in a frame of {end} bytes"));
        }
    }
    assert_serves(&server);
}

#[test]
fn an_unknown_api_key_closes_the_connection() {
    let known = |key: &i16| ApiKey::from_i16(*key).is_some();
    let keys = (-2..=128).filter(|key| !known(key)).chain([500, i16::MAX, i16::MIN]);
    let unknown = |key: i16| {
        let mut body = header(ApiKey::Produce, 0);
        body[..2].copy_from_slice(&key.to_be_bytes());
        ("an unknown key", [&body[..], &[0; 16]].concat())
    };
    let bodies: Vec<_> = keys.map(unknown).collect();
    assert!(bodies.len() > 80, "{}", bodies.len());
    assert_each_closes(&bodies);
}

#[test]
fn arrays_that_lie_about_their_length_close_the_connection() {
    let classic = |count: i32| [&header(ApiKey::Metadata, 1)[..], &count.to_be_bytes(), &[0; 8]].concat();
    let compact = |count: &[u8]| [&flexible_header(ApiKey::Metadata, 12)[..], count, &[0; 8]].concat();
    assert_each_closes(&[
        ("2^31-1 elements", classic(i32::MAX)),
        ("-2 elements", classic(-2)),
        ("more elements than bytes", classic(9)),
        ("2^31 compact elements", compact(&[0x80, 0x80, 0x80, 0x80, 0x08])),
        ("more compact elements than bytes", compact(&[100])),
        ("an overlong count", compact(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x01])),
        ("a count of more than 32 bits", compact(&[0xff, 0xff, 0xff, 0xff, 0x7f])),
    ]);
}

#[test]
fn wrong_tags_nulls_and_trailing_bytes_close_the_connection() {
    // ApiVersions 3: software name and version as compact strings, then tagged fields.
    let software =
        |tail: &[u8]| [&flexible_header(ApiKey::ApiVersions, 3)[..], &[2, b'a', 2, b'1'], tail].concat();
    let mut in_header = header(ApiKey::ApiVersions, 3);
    in_header.extend([2, 5, 0, 5, 0, 2, b'a', 2, b'1', 0]);
    assert_each_closes(&[
        ("one tag twice", software(&[2, 9, 0, 9, 0])),
        ("tags in the wrong order", software(&[2, 9, 0, 8, 0])),
        ("more tags than bytes", software(&[0xff, 0xff, 0x03])),
        ("a tag longer than the frame", software(&[1, 9, 100])),
        ("a tag twice in the header", in_header),
        ("bytes after the request", software(&[0, 0])),
        ("a null name", [&flexible_header(ApiKey::ApiVersions, 3)[..], &[0, 2, b'1', 0]].concat()),
        (
            "a name that is no UTF-8",
            [&flexible_header(ApiKey::ApiVersions, 3)[..], &[2, 0xff, 2, b'1', 0]].concat(),
        ),
        ("a null topic name", [&header(ApiKey::Metadata, 1)[..], &[0, 0, 0, 1, 0xff, 0xff]].concat()),
        ("a string of -2 bytes", [&header(ApiKey::Metadata, 1)[..], &[0, 0, 0, 1, 0xff, 0xfe]].concat()),
    ]);
}

#[test]
fn other_protocols_close_the_connection() {
    let server = server();
    let hello = [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[0x5a; 300]].concat();
    let noise: Vec<u8> =
        (0..4_000_u32).map(|index| index.wrapping_mul(2_654_435_761).to_be_bytes()[1] | 0x40).collect();
    for (what, bytes) in [
        ("HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        ("TLS", hello),
        ("noise", noise),
        ("zeros", vec![0; 4_000]),
    ] {
        let mut client = Client::new(&server);
        // The server may close before it has read all.
        drop(client.try_write(&bytes));
        client.expect_closed(what);
    }
    assert_serves(&server);
}
