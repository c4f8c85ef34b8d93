//! A server whose metadata comes from an older copy: it takes no new producer for an earlier one.

use std::fs;
use std::path::Path;

use riverrun_broker::Server;
use riverrun_protocol::{ErrorCode, InitProducerIdRequest};
use riverrun_records::{BatchOptions, ProducerStamp};
use riverrun_types::{ProducerEpoch, ProducerId};

use crate::lifecycle::copy;
use crate::support::{Client, batch_with, configured, create_topic, produce, read_all, server_with};

fn start(data: &Path) -> Server {
    server_with(&[("data.dir", data.to_str().expect("text"))])
}

/// Sends a record as the first of a new idempotent producer, whose id it gives.
fn send_as_new_producer(server: &Server, value: &str) -> ProducerId {
    let mut client = Client::new(server);
    let given = client.call(&InitProducerIdRequest { transactional_id: None, ..Default::default() }, 4);
    assert_eq!(ErrorCode(given.error_code), ErrorCode::NONE);
    let id = ProducerId(given.producer_id);
    let producer = ProducerStamp { id, epoch: ProducerEpoch(given.producer_epoch), base_sequence: 0 };
    produce(&mut client, "t", 0, &batch_with(BatchOptions { producer, ..Default::default() }, &[value]));
    id
}

#[test]
fn older_metadata_is_refused_until_its_loss_is_accepted() {
    let dir = tempfile::tempdir().expect("a directory");
    let [data, copied] = ["data", "copied"].map(|name| dir.path().join(name));
    let meta = data.join("meta");
    let server = start(&data);
    create_topic(&mut Client::new(&server), "t", 1, &[]);
    server.stop().expect("a clean stop");
    copy(&meta, &copied);
    let server = start(&data);
    let ProducerId(first) = send_as_new_producer(&server, "first");
    server.stop().expect("a clean stop");
    fs::remove_dir_all(&meta).expect("removed");
    copy(&copied, &meta);
    for _ in 0..2 {
        let refused = configured(&[("data.dir", data.to_str().expect("text"))]).start();
        let error = refused.expect_err("it is older").to_string();
        let mark = data.join("logs/metadata-mark");
        let told = [meta.to_str(), mark.to_str(), Some("is older than"), Some("accept-metadata-loss")];
        assert!(told.iter().all(|part| error.contains(part.expect("text"))), "{error}");
    }
    fs::write(meta.join("accept-metadata-loss"), "").expect("written");
    for value in ["second", "third"] {
        let server = start(&data);
        let ProducerId(id) = send_as_new_producer(&server, value);
        assert!(id > first, "{id} after {first}");
        server.stop().expect("a clean stop");
    }
    let server = start(&data);
    assert_eq!(read_all(&mut Client::new(&server), "t", 0, 0), ["first", "second", "third"]);
}
