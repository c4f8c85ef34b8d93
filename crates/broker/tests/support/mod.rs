//! A tiny blocking client of raw frames, and the functions that the server's tests share.
//!
//! The client sends any bytes and checks only what a test asserts, so that a test can be as rude as it likes. Every wait
//! has a bound: a test fails, it does not hang.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use riverrun_broker::{Server, ServerBuilder};
use riverrun_protocol::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use riverrun_protocol::fetch_request::{FetchPartition, FetchTopic};
use riverrun_protocol::fetch_response::PartitionData;
use riverrun_protocol::metadata_request::MetadataRequestTopic;
use riverrun_protocol::produce_request::{PartitionProduceData, TopicProduceData};
use riverrun_protocol::produce_response::PartitionProduceResponse;
use riverrun_protocol::{
    CreateTopicsRequest, ErrorCode, FetchRequest, FetchResponse, FindCoordinatorRequest, MetadataRequest,
    ProduceRequest, Records, Request, decode_response, encode_request,
};
use riverrun_records::{BatchBuilder, BatchOptions, Batches};
use riverrun_types::{TimestampMs, TopicId};

/// Longer than any answer takes, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// A time in the past that records bear unless a test says otherwise.
pub(crate) const SOME_TIME: TimestampMs = TimestampMs(1_700_000_000_000);

/// Versions that the functions below use; for Produce and Fetch the newest ones that name topics.
pub(crate) const PRODUCE_BY_NAME: i16 = 12;
pub(crate) const FETCH_BY_NAME: i16 = 12;
pub(crate) const CREATE_TOPICS: i16 = 7;

/// A server with defaults, in a directory that is removed with it.
pub(crate) fn server() -> Server {
    server_with(&[])
}

/// A server with a few options of its own.
pub(crate) fn server_with(options: &[(&str, &str)]) -> Server {
    configured(options).start().expect("the server starts")
}

pub(crate) fn configured(options: &[(&str, &str)]) -> ServerBuilder {
    let set = |builder: ServerBuilder, (key, value): &(&str, &str)| builder.set(key, value).expect(key);
    // Members of a test's group come at once.
    let builder = set(Server::builder(), &("group.initial.rebalance.delay.ms", "0"));
    let builder = set(builder, &("offsets.topic.num.partitions", "4"));
    // A connection that finds the backlog full takes a second, and some tests open hundreds at once.
    let builder = set(builder, &("socket.listen.backlog.size", "1024"));
    options.iter().fold(builder, set)
}

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    correlation_id: i32,
}

impl Client {
    pub(crate) fn new(server: &Server) -> Self {
        Self::connect(server.bootstrap())
    }

    pub(crate) fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("a socket option");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket option");
        Self { stream, correlation_id: 0 }
    }

    /// The same connection once more, for a thread that writes while another reads.
    pub(crate) fn again(&self) -> Self {
        let stream = self.stream.try_clone().expect("a socket");
        Self { stream, correlation_id: self.correlation_id }
    }

    /// Sends a request and gives the response.
    pub(crate) fn call<'q, R: Request<'q>>(&mut self, request: &R, version: i16) -> R::Response<'static> {
        let id = self.send(request, version);
        let (answered, response) = self.receive::<R>(version);
        assert_eq!(answered, id, "the response belongs to the request");
        response
    }

    /// Sends a request and gives its correlation id.
    pub(crate) fn send<'q, R: Request<'q>>(&mut self, request: &R, version: i16) -> i32 {
        self.correlation_id += 1;
        let frame = encode_request(request, version, self.correlation_id, Some("test"));
        let frame = frame.unwrap_or_else(|error| panic!("{} {version}: {error}", R::KEY));
        self.write(&frame.bytes);
        self.correlation_id
    }

    /// The next response, which must be one to `R`.
    pub(crate) fn receive<'q, R: Request<'q>>(&mut self, version: i16) -> (i32, R::Response<'static>) {
        self.receive_unless_closed::<R>(version)
            .unwrap_or_else(|| panic!("{} {version}: the server has closed the connection", R::KEY))
    }

    /// The next response, which must be one to `R`, or nothing from a server that has closed the connection.
    pub(crate) fn receive_unless_closed<'q, R: Request<'q>>(
        &mut self,
        version: i16,
    ) -> Option<(i32, R::Response<'static>)> {
        let frame = match self.read_frame() {
            Ok(frame) => frame,
            Err(error) if is_closed(&error) => return None,
            Err(error) => panic!("{} {version}: {error}", R::KEY),
        };
        // Responses borrow from their frame; those of a test live as long as its process.
        let frame: &'static [u8] = Vec::leak(frame);
        let decoded = decode_response::<R>(frame, version);
        Some(decoded.unwrap_or_else(|error| panic!("{} {version}: {error}", R::KEY)))
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.try_write(bytes).expect("the server reads");
    }

    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub(crate) fn read_frame(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(length)).expect("a length")];
        self.stream.read_exact(&mut frame)?;
        Ok(frame)
    }

    /// Ends the connection's sending half.
    pub(crate) fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("a socket");
    }

    /// Sets the longest wait of a read or a write.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.stream.set_read_timeout(Some(timeout)).expect("a socket option");
        self.stream.set_write_timeout(Some(timeout)).expect("a socket option");
    }

    /// Whether the server has sent nothing for `time` and left the connection open.
    pub(crate) fn is_quiet_for(&mut self, time: Duration) -> bool {
        self.set_timeout(time);
        let read = self.stream.read(&mut [0; 1]);
        self.set_timeout(PATIENCE);
        matches!(read, Err(error) if is_timeout(&error))
    }

    /// Waits for the server to close the connection without an answer.
    pub(crate) fn expect_closed(&mut self, why: &str) {
        match self.stream.read(&mut [0; 1]) {
            Ok(0) => {}
            // Bytes that the server did not read turn its close into a reset.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Ok(_) => panic!("{why}: answered, not closed"),
            Err(error) => panic!("{why}: not closed: {error}"),
        }
    }
}

pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// A frame of these bytes, valid or not.
pub(crate) fn framed(body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(body.len()).expect("a short body");
    [&length.to_be_bytes(), body].concat()
}

/// A request's frame, its length included.
pub(crate) fn request_bytes<'q, R: Request<'q>>(request: &R, version: i16) -> Vec<u8> {
    encode_request(request, version, 1, Some("test")).expect("encodes").bytes.to_vec()
}

/// Fails unless a new connection is served.
pub(crate) fn assert_serves(server: &Server) {
    let response = Client::new(server).call(&MetadataRequest::default(), 12);
    assert_eq!(response.brokers.len(), 1);
}

/// One uncompressed batch of values without keys.
pub(crate) fn batch(values: &[&str]) -> Vec<u8> {
    batch_with(BatchOptions::default(), values)
}

pub(crate) fn batch_with(options: BatchOptions, values: &[&str]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(options);
    for value in values {
        builder.append(SOME_TIME, None, Some(value.as_bytes()), &[]).expect("fits");
    }
    builder.build().expect("builds")
}

/// The values of all records in some batches, as text.
pub(crate) fn values(batches: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for batch in Batches::new(batches) {
        let batch = batch.expect("whole").verify().expect("sound");
        for record in &batch.records().expect("inflates") {
            let value = record.expect("a record").value.unwrap_or_default().to_vec();
            found.push(String::from_utf8(value).expect("text"));
        }
    }
    found
}

/// Whether a read found that the other end has closed.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

/// Makes a topic with configs; fails unless that works.
pub(crate) fn create_topic(client: &mut Client, name: &str, partitions: i32, configs: &[(&str, &str)]) {
    let code = try_create_topic(client, name, partitions, 1, configs);
    assert_eq!(code, ErrorCode::NONE, "create {name}");
}

pub(crate) fn try_create_topic(
    client: &mut Client,
    name: &str,
    num_partitions: i32,
    replication_factor: i16,
    configs: &[(&str, &str)],
) -> ErrorCode {
    let request = create_topic_request(name, num_partitions, replication_factor, configs);
    let response = client.call(&request, CREATE_TOPICS);
    ErrorCode(response.topics[0].error_code)
}

pub(crate) fn create_topic_request<'q>(
    name: &'q str,
    num_partitions: i32,
    replication_factor: i16,
    configs: &[(&str, &str)],
) -> CreateTopicsRequest<'q> {
    let config = |(name, value): &(&'static str, &'static str)| CreatableTopicConfig {
        name: (*name).into(),
        value: Some((*value).into()),
    };
    let configs: Vec<(&'static str, &'static str)> =
        configs.iter().map(|(name, value)| (leaked(name), leaked(value))).collect();
    let topic = CreatableTopic {
        name: name.into(),
        num_partitions,
        replication_factor,
        configs: configs.iter().map(config).collect(),
        ..Default::default()
    };
    CreateTopicsRequest { topics: vec![topic], ..Default::default() }
}

fn leaked(text: &str) -> &'static str {
    text.to_owned().leak()
}

/// The id of an existing topic.
pub(crate) fn topic_id(client: &mut Client, name: &str) -> TopicId {
    let topic = MetadataRequestTopic { name: Some(name.into()), ..Default::default() };
    let request =
        MetadataRequest { topics: Some(vec![topic]), allow_auto_topic_creation: false, ..Default::default() };
    client.call(&request, 12).topics[0].topic_id
}

/// Makes the topic of group offsets, as any consumer does first.
pub(crate) fn find_coordinator(client: &mut Client, group: &str) {
    let request = FindCoordinatorRequest { coordinator_keys: vec![group.into()], ..Default::default() };
    assert_eq!(client.call(&request, 4).coordinators[0].error_code, 0);
}

pub(crate) fn produce_request<'a>(
    topic: &'a str,
    index: i32,
    batches: &'a [u8],
    acks: i16,
) -> ProduceRequest<'a> {
    let partition = PartitionProduceData { index, records: Some(Records::Bytes(batches)) };
    let topic =
        TopicProduceData { name: topic.into(), partition_data: vec![partition], ..Default::default() };
    ProduceRequest { acks, timeout_ms: 30_000, topic_data: vec![topic], ..Default::default() }
}

/// A partition's answer to a batch.
pub(crate) fn try_produce(
    client: &mut Client,
    topic: &str,
    index: i32,
    batches: &[u8],
) -> PartitionProduceResponse<'static> {
    let mut response = client.call(&produce_request(topic, index, batches, -1), PRODUCE_BY_NAME);
    response.responses.remove(0).partition_responses.remove(0)
}

/// Produces, fails unless that works, and gives the base offset.
pub(crate) fn produce(client: &mut Client, topic: &str, index: i32, batches: &[u8]) -> i64 {
    let answer = try_produce(client, topic, index, batches);
    assert_eq!(ErrorCode(answer.error_code), ErrorCode::NONE, "{:?}", answer.error_message);
    answer.base_offset
}

/// A fetch of one partition outside of a session, that does not wait.
pub(crate) fn fetch_request(topic: &str, partition: i32, fetch_offset: i64) -> FetchRequest<'_> {
    let partition =
        FetchPartition { partition, fetch_offset, partition_max_bytes: 10 << 20, ..Default::default() };
    let topic = FetchTopic { topic: topic.into(), partitions: vec![partition], ..Default::default() };
    FetchRequest { min_bytes: 1, topics: vec![topic], ..Default::default() }
}

/// The only partition of a response.
pub(crate) fn only(mut response: FetchResponse<'static>) -> PartitionData<'static> {
    assert_eq!(ErrorCode(response.error_code), ErrorCode::NONE);
    assert_eq!(response.responses.len(), 1);
    response.responses.remove(0).partitions.remove(0)
}

pub(crate) fn fetch(client: &mut Client, topic: &str, index: i32, offset: i64) -> PartitionData<'static> {
    only(client.call(&fetch_request(topic, index, offset), FETCH_BY_NAME))
}

/// The bytes of the batches in a partition's answer.
pub(crate) fn records<'a>(data: &PartitionData<'a>) -> &'a [u8] {
    data.records.and_then(|records| records.as_bytes()).unwrap_or_default()
}

/// All records of a partition that readers may see from `offset` on. One fetch ends where a segment does.
pub(crate) fn read_all(client: &mut Client, topic: &str, index: i32, mut offset: i64) -> Vec<String> {
    let mut found = Vec::new();
    loop {
        let data = fetch(client, topic, index, offset);
        assert_eq!(ErrorCode(data.error_code), ErrorCode::NONE);
        let bytes = records(&data);
        found.extend(values(bytes));
        match Batches::new(bytes).last() {
            Some(last) => offset = last.expect("whole").verify().expect("sound").last_offset().0 + 1,
            None => return found,
        }
        if offset >= data.high_watermark {
            return found;
        }
    }
}
