//! Every number at its bounds, and the generated client names.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use riverrun_client::{
    Admin, ClientError, ClusterOptions, Consumer, ConsumerOptions, Kind, OptionDef, Producer,
    ProducerOptions, ProducerRecord, StartAt,
};
use riverrun_types::Offset;
use tokio::time::timeout;

use crate::consumer::{BEGIN, END, partition, server};
use crate::producer::log_server;

/// Much longer than any step here takes.
const PATIENCE: Duration = Duration::from_mins(2);

/// Each number's bounds.
fn bounds(tables: &[&'static [OptionDef]]) -> Vec<(&'static str, i64)> {
    let of_one = |definition: &'static OptionDef| match definition.kind {
        Kind::Int(min, max) | Kind::OneOrInt(_, min, max) | Kind::Millis(min, max) => {
            [Some((definition.name, min)), Some((definition.name, max))]
        }
        _ => [None, None],
    };
    tables.iter().flat_map(|table| table.iter()).flat_map(of_one).flatten().collect()
}

async fn send_one(options: ProducerOptions) -> Result<(), ClientError> {
    let producer = Producer::new(options).await?;
    let delivery =
        producer.send(ProducerRecord { partition: Some(0), ..ProducerRecord::new("t", "v") }).await;
    producer.flush().await;
    let placed = match delivery {
        Ok(delivery) => delivery.await.map(drop),
        Err(error) => Err(error),
    };
    producer.close().await;
    placed
}

#[tokio::test]
async fn producer_works_or_refuses_at_every_numeric_bound() {
    let server = log_server().await;
    for (name, value) in bounds(&[ClusterOptions::DEFINITIONS, ProducerOptions::DEFINITIONS]) {
        let mut options = ProducerOptions::new(server.options());
        options.delivery_timeout = Duration::from_secs(5);
        options.set(name, &value.to_string()).unwrap();
        let sent =
            timeout(PATIENCE, send_one(options)).await.unwrap_or_else(|_| panic!("{name}={value} hangs"));
        match (name, value) {
            ("max.request.size" | "buffer.memory", 0) => {
                let Err(ClientError::RecordTooLarge { option, limit: 0, .. }) = sent else {
                    panic!("{sent:?}")
                };
                assert_eq!(option, name);
            }
            ("retries", 0) => assert!(sent.unwrap_err().to_string().contains("retries")),
            // A time-out that is too short for a slow machine may be long enough for a fast one.
            (_, 0 | 1) if name.contains("timeout") || name == "max.block.ms" => {
                assert!(!matches!(sent, Err(ClientError::Invalid(_))), "{name}={value}: {sent:?}");
            }
            _ => assert!(sent.is_ok(), "{name}={value}: {sent:?}"),
        }
    }
}

async fn read_all(options: ConsumerOptions) -> Result<(), ClientError> {
    let mut consumer = Consumer::new(options).await?;
    consumer.assign(vec![(partition(0), StartAt::Offset(Offset(BEGIN)))]).await?;
    while consumer.position(&partition(0)) != Some(Offset(END)) {
        consumer.poll(Duration::from_millis(50)).await?;
    }
    consumer.close().await
}

#[tokio::test]
async fn a_consumer_works_with_every_number_at_its_bounds() {
    let server = server(|_| None).await;
    for (name, value) in bounds(&[ClusterOptions::DEFINITIONS, ConsumerOptions::DEFINITIONS]) {
        let mut options = ConsumerOptions::new(server.options());
        options.set(name, &value.to_string()).unwrap();
        // With a millisecond for each answer there may never be one.
        let hurried =
            value == 1 && matches!(name, "request.timeout.ms" | "socket.connection.setup.timeout.ms");
        let patience = if hurried { Duration::from_secs(1) } else { PATIENCE };
        match timeout(patience, read_all(options)).await {
            Ok(read) => assert!(read.is_ok() || hurried, "{name}={value}: {read:?}"),
            Err(_) => assert!(hurried, "{name}={value} hangs"),
        }
    }
}

#[tokio::test]
async fn clients_without_an_id_are_named_as_kafkas_are() {
    let names = Arc::new(Mutex::new(BTreeSet::new()));
    let heard = Arc::clone(&names);
    let server = server(move |call| {
        heard.lock().unwrap().insert(call.client_id.to_owned());
        None
    })
    .await;
    for _ in 0..2 {
        Producer::new(ProducerOptions::new(server.options())).await.unwrap();
    }
    let grouped = ConsumerOptions { group: Some("g".to_owned()), ..ConsumerOptions::new(server.options()) };
    Consumer::new(grouped).await.unwrap();
    let admin = Admin::new(server.options()).await.unwrap();
    let ours = ClusterOptions { client_id: "me".to_owned(), ..server.options() };
    Admin::new(ours).await.unwrap();
    let names = names.lock().unwrap();
    let count = |prefix: &str| {
        let numbers = names.iter().filter_map(|name| name.strip_prefix(prefix)?.parse::<u64>().ok());
        numbers.count()
    };
    // Other tests of this process use numbers, too.
    assert_eq!((count("producer-"), count("consumer-g-"), count("adminclient-")), (2, 1, 1), "{names:?}");
    assert!(names.contains("me") && names.len() == 5, "{names:?}");
    assert!(names.contains(&admin.cluster().options().client_id));
}
