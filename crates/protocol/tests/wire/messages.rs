//! Single messages by hand: frames, splices, and values that a version cannot express.

use riverrun_protocol::fetch_response::{FetchableTopicResponse, PartitionData};
use riverrun_protocol::list_offsets_request::ListOffsetsTopic;
use riverrun_protocol::metadata_request::MetadataRequestTopic;
use riverrun_protocol::offset_fetch_request::OffsetFetchRequestGroup;
use riverrun_protocol::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, Decode, Decoder, Encode, EncodeError, Encoder,
    ErrorCode, FetchRequest, FetchResponse, ListOffsetsRequest, MetadataRequest, OffsetFetchRequest, Records,
    RequestHeader, Splice, decode_response, encode_request, encode_response,
};

/// The first request of a Java client: `ApiVersions` version 4, correlation id 0, with its software's name.
const JAVA_API_VERSIONS: &[u8] =
    b"\x00\x12\x00\x04\x00\x00\x00\x00\x00\x0aproducer-1\x00\x12apache-kafka-java\x064.3.1\x00";

fn encoded(message: &impl Encode, version: i16) -> Result<Vec<u8>, EncodeError> {
    let mut encoder = Encoder::new();
    message.encode(&mut encoder, version)?;
    Ok(encoder.into_parts().0.to_vec())
}

#[test]
fn the_first_request_of_a_java_client_is_read_field_by_field() {
    let mut decoder = Decoder::new(JAVA_API_VERSIONS);
    let header = RequestHeader::decode(&mut decoder).unwrap();
    assert_eq!(ApiKey::from_i16(header.api_key), Some(ApiKey::ApiVersions));
    assert_eq!(header.client_id, Some("producer-1"));
    let request = ApiVersionsRequest::decode(&mut decoder, header.api_version).unwrap();
    decoder.finish().unwrap();
    assert_eq!(request.client_software_name, "apache-kafka-java");
    assert_eq!(request.client_software_version, "4.3.1");

    let frame = encode_request(&request, 4, 0, Some("producer-1")).unwrap();
    assert_eq!(frame.bytes[..4], u32::try_from(JAVA_API_VERSIONS.len()).unwrap().to_be_bytes());
    assert_eq!(frame.bytes[4..], *JAVA_API_VERSIONS);
}

#[test]
fn unsupported_api_versions_is_answered_in_version_zero() {
    let answer = ApiVersionsResponse { error_code: ErrorCode::UNSUPPORTED_VERSION.0, ..Default::default() };
    let frame = encode_response(ApiKey::ApiVersions, 0, 7, &answer).unwrap();
    assert_eq!(frame.bytes[..], [0, 0, 0, 10, 0, 0, 0, 7, 0, 35, 0, 0, 0, 0]);
}

#[test]
fn external_records_count_in_the_frame_but_are_not_copied() {
    let partition = |partition_index, len| PartitionData {
        partition_index,
        records: Some(Records::External { len }),
        ..Default::default()
    };
    let topic =
        FetchableTopicResponse { partitions: vec![partition(0, 5), partition(1, 7)], ..Default::default() };
    let response = FetchResponse { responses: vec![topic], ..Default::default() };
    let frame = encode_response(ApiKey::Fetch, 18, 3, &response).unwrap();

    let mut whole = frame.bytes.to_vec();
    assert_eq!(frame.splices.iter().map(|splice| splice.len).collect::<Vec<_>>(), [5, 7]);
    for Splice { position, len } in frame.splices.iter().rev() {
        whole.splice(position..position, vec![0xab; *len]);
    }
    assert_eq!(whole[..4], u32::try_from(whole.len() - 4).unwrap().to_be_bytes());
    let (correlation_id, read) = decode_response::<FetchRequest<'_>>(&whole[4..], 18).unwrap();
    assert_eq!(correlation_id, 3);
    let lengths: Vec<_> = read.responses[0].partitions.iter().map(|p| p.records).collect();
    assert_eq!(lengths, [Some(Records::Bytes(&[0xab; 5])), Some(Records::Bytes(&[0xab; 7]))]);
}

#[test]
fn value_unknown_to_the_version_is_refused_unless_ignorable() {
    let request = ListOffsetsRequest { isolation_level: 1, ..Default::default() };
    assert_eq!(encoded(&request, 1), Err(EncodeError::AbsentField { field: "isolation_level", version: 1 }));
    let request = ListOffsetsRequest { timeout_ms: 9, topics: vec![], ..Default::default() };
    assert!(encoded(&request, 1).is_ok(), "the timeout is ignorable");
    let groups = vec![OffsetFetchRequestGroup::default()];
    let request = OffsetFetchRequest { groups, ..Default::default() };
    assert_eq!(encoded(&request, 7), Err(EncodeError::AbsentField { field: "groups", version: 7 }));
}

#[test]
fn null_is_refused_in_versions_without_it() {
    let all_topics = MetadataRequest { topics: None, ..Default::default() };
    assert_eq!(encoded(&all_topics, 0), Err(EncodeError::NullField { field: "topics", version: 0 }));
    assert_eq!(encoded(&all_topics, 1).unwrap()[..4], [0xff; 4]);
    let nameless = MetadataRequestTopic { name: None, ..Default::default() };
    let request = MetadataRequest { topics: Some(vec![nameless]), ..Default::default() };
    assert_eq!(encoded(&request, 9), Err(EncodeError::NullField { field: "name", version: 9 }));
}

#[test]
fn defaults_are_those_of_the_schema() {
    assert_eq!(FetchRequest::default().max_bytes, i32::MAX);
    assert_eq!(FetchRequest::default().replica_state.replica_id, -1);
    assert_eq!(MetadataRequest::default().topics, Some(vec![]));
    assert!(MetadataRequest::default().allow_auto_topic_creation);
    assert_eq!(ListOffsetsTopic::default().partitions, []);
}

#[test]
fn payloads_stay_out_of_debug_output() {
    let partition = PartitionData { records: Some(Records::Bytes(b"secret")), ..Default::default() };
    let text = format!("{partition:?}");
    assert!(text.contains("Records(6 bytes)"), "{text}");
}
