//! A server that follows a test's script, over a real socket.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use riverrun_client::ClusterOptions;
use riverrun_protocol::api_versions_response::ApiVersion;
use riverrun_protocol::find_coordinator_response::Coordinator;
use riverrun_protocol::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use riverrun_protocol::{
    ApiKey, ApiVersionsResponse, Decoder, Encode, FindCoordinatorResponse, InitProducerIdResponse,
    MetadataResponse, Request, RequestHeader, encode_response,
};
use riverrun_types::TopicId;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Id of the one topic, `t`.
pub(crate) const TOPIC_ID: TopicId = TopicId([7; 16]);
/// Its partitions.
pub(crate) const PARTITIONS: i32 = 2;

/// A received request.
pub(crate) struct Call<'a> {
    pub(crate) key: ApiKey,
    /// The client id of the request.
    pub(crate) client_id: &'a str,
    version: i16,
    correlation_id: i32,
    body: &'a [u8],
    address: SocketAddr,
    /// Number of earlier requests of this key.
    pub(crate) nth: usize,
}

/// The scripted reply.
pub(crate) enum Reply {
    /// These bytes, as they are.
    Bytes(Vec<u8>),
    /// These bytes after this time, in which nothing else is read.
    Later(Duration, Vec<u8>),
    /// No reply.
    Silence,
    /// No reply, and the connection is closed.
    Close,
    /// No reply, and later requests are not read.
    Stall,
    /// The reply of a well-behaved server of one node.
    Usual,
}

impl Reply {
    /// The same reply after a pause.
    pub(crate) fn after(self, pause: Duration) -> Self {
        match self {
            Self::Bytes(bytes) => Self::Later(pause, bytes),
            other => other,
        }
    }
}

impl Call<'_> {
    pub(crate) fn decode<'r, R: Request<'r>>(&'r self) -> R {
        assert_eq!(self.key, R::KEY);
        let mut decoder = Decoder::new(self.body);
        let request = R::decode(&mut decoder, self.version).expect("a request");
        decoder.finish().expect("nothing after it");
        request
    }

    pub(crate) fn answer(&self, body: &impl Encode) -> Reply {
        let frame = encode_response(self.key, self.version, self.correlation_id, body).expect("an answer");
        Reply::Bytes(frame.bytes.to_vec())
    }

    /// A frame with the right correlation id and nonsense after it.
    pub(crate) fn nonsense(&self) -> Reply {
        let mut bytes = 12_i32.to_be_bytes().to_vec();
        bytes.extend(self.correlation_id.to_be_bytes());
        bytes.extend([0xff; 8]);
        Reply::Bytes(bytes)
    }

    fn versions(&self, newest: impl Fn(ApiKey) -> i16) -> Reply {
        let range = |key: &ApiKey| ApiVersion {
            api_key: *key as i16,
            min_version: *key.versions().start(),
            max_version: newest(*key),
        };
        let api_keys = ApiKey::ALL.iter().map(range).collect();
        self.answer(&ApiVersionsResponse { api_keys, ..ApiVersionsResponse::default() })
    }

    /// All versions, but this request's only up to this one.
    pub(crate) fn versions_but(&self, limited: ApiKey, max: i16) -> Reply {
        self.versions(|key| if key == limited { max } else { *key.versions().end() })
    }

    fn usual(&self) -> Reply {
        match self.key {
            ApiKey::ApiVersions => self.versions(|key| *key.versions().end()),
            ApiKey::Metadata => self.answer(&self.metadata()),
            ApiKey::InitProducerId => self.answer(&InitProducerIdResponse {
                producer_id: 100 + i64::try_from(self.nth).unwrap(),
                ..InitProducerIdResponse::default()
            }),
            ApiKey::FindCoordinator => {
                let coordinator = Coordinator {
                    key: "g".into(),
                    node_id: 1,
                    host: self.address.ip().to_string().into(),
                    port: self.address.port().into(),
                    ..Coordinator::default()
                };
                let answer =
                    FindCoordinatorResponse { coordinators: vec![coordinator], ..Default::default() };
                self.answer(&answer)
            }
            other => panic!("the script says nothing of {other}"),
        }
    }

    fn metadata(&self) -> MetadataResponse<'static> {
        self.metadata_of_epoch(0)
    }

    /// The usual metadata, with leaders of this epoch.
    pub(crate) fn metadata_of_epoch(&self, leader_epoch: i32) -> MetadataResponse<'static> {
        let broker = MetadataResponseBroker {
            node_id: 1,
            host: self.address.ip().to_string().into(),
            port: self.address.port().into(),
            rack: None,
        };
        let partition = |partition_index| MetadataResponsePartition {
            partition_index,
            leader_id: 1,
            leader_epoch,
            replica_nodes: vec![1],
            isr_nodes: vec![1],
            ..MetadataResponsePartition::default()
        };
        let topic = MetadataResponseTopic {
            name: Some("t".into()),
            topic_id: TOPIC_ID,
            partitions: (0..PARTITIONS).map(partition).collect(),
            ..MetadataResponseTopic::default()
        };
        MetadataResponse {
            brokers: vec![broker],
            cluster_id: Some("scripted".into()),
            controller_id: 1,
            topics: vec![topic],
            ..MetadataResponse::default()
        }
    }
}

type Script = Box<dyn FnMut(&Call<'_>) -> Reply + Send>;

struct Play {
    script: Script,
    counts: HashMap<i16, usize>,
}

/// The server. Dropping it closes it.
pub(crate) struct ScriptedServer {
    address: SocketAddr,
    listening: JoinHandle<()>,
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl ScriptedServer {
    /// Plays this script; where that returns `Reply::Usual`, replies as a well-behaved server.
    pub(crate) async fn start(script: impl FnMut(&Call<'_>) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let play = Arc::new(Mutex::new(Play { script: Box::new(script), counts: HashMap::new() }));
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, address, Arc::clone(&play)));
            }
        });
        Self { address, listening }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Options that reach it, with short times.
    pub(crate) fn options(&self) -> ClusterOptions {
        let mut options = ClusterOptions::new(&self.address.to_string());
        options.request_timeout = Duration::from_secs(5);
        options.retry_timeout = Duration::from_secs(5);
        options.retry_backoff = Duration::from_millis(5);
        options
    }
}

async fn serve(mut stream: TcpStream, address: SocketAddr, play: Arc<Mutex<Play>>) {
    while let Ok(length) = stream.read_u32().await {
        let mut frame = vec![0; length as usize];
        if stream.read_exact(&mut frame).await.is_err() {
            return;
        }
        let reply = next_reply(&frame, address, &mut play.lock().expect("a script that did not panic"));
        let bytes = match reply {
            Reply::Bytes(bytes) => bytes,
            Reply::Later(pause, bytes) => {
                tokio::time::sleep(pause).await;
                bytes
            }
            Reply::Silence | Reply::Usual => continue,
            Reply::Close => return,
            Reply::Stall => std::future::pending().await,
        };
        if stream.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

fn next_reply(frame: &[u8], address: SocketAddr, play: &mut Play) -> Reply {
    let mut decoder = Decoder::new(frame);
    let header = RequestHeader::decode(&mut decoder).expect("a header");
    let body = &frame[frame.len() - decoder.remaining()..];
    let count = play.counts.entry(header.api_key).or_default();
    let call = Call {
        key: ApiKey::from_i16(header.api_key).expect("a known key"),
        client_id: header.client_id.unwrap_or_default(),
        version: header.api_version,
        correlation_id: header.correlation_id,
        body,
        address,
        nth: *count,
    };
    *count += 1;
    match (play.script)(&call) {
        Reply::Usual => call.usual(),
        reply => reply,
    }
}
