//! Log dirs that take no new partitions (KIP-1066): by the server's configuration, and by configs set while it runs.

use riverrun_broker::Server;
use riverrun_protocol::alter_configs_request::{
    AlterConfigsResource as ReplacedResource, AlterableConfig as ReplacedConfig,
};
use riverrun_protocol::describe_configs_request::DescribeConfigsResource;
use riverrun_protocol::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use riverrun_protocol::{
    AlterConfigsRequest, DescribeConfigsRequest, DescribeLogDirsRequest, ErrorCode,
    IncrementalAlterConfigsRequest,
};
use tempfile::TempDir;

use crate::admin_port::get;
use crate::support::{Client, batch, create_topic, produce, read_all, server_with, try_create_topic};

const BROKER: i8 = 4;

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// Paths of the two log dirs.
struct Place {
    directory: TempDir,
    one: String,
    two: String,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name).to_str().expect("text").to_owned();
        Self { one: path("one"), two: path("two"), directory }
    }

    fn start(&self, cordoned: &str) -> Server {
        let data = self.directory.path().join("data");
        server_with(&[
            ("admin.listen", "127.0.0.1:0"),
            ("data.dir", data.to_str().expect("text")),
            ("log.dirs", &format!("{},{}", self.one, self.two)),
            ("cordoned.log.dirs", cordoned),
        ])
    }
}

/// The log dirs with the number of partitions in each, and whether it is cordoned.
fn log_dirs(client: &mut Client) -> Vec<(String, usize, bool)> {
    let dirs = client.call(&DescribeLogDirsRequest { topics: None }, 5).results;
    let count = |dir: &riverrun_protocol::describe_log_dirs_response::DescribeLogDirsResult<'_>| {
        dir.topics.iter().map(|topic| topic.partitions.len()).sum()
    };
    dirs.iter().map(|dir| (dir.log_dir.to_string(), count(dir), dir.is_cordoned)).collect()
}

fn cordoned(client: &mut Client) -> Vec<bool> {
    log_dirs(client).into_iter().map(|(_, _, is_cordoned)| is_cordoned).collect()
}

fn alter(client: &mut Client, broker: &str, operation: i8, value: &str, validate_only: bool) -> ErrorCode {
    let value = (operation != DELETE).then(|| value.into());
    let config = AlterableConfig { name: "cordoned.log.dirs".into(), config_operation: operation, value };
    let resource =
        AlterConfigsResource { resource_type: BROKER, resource_name: broker.into(), configs: vec![config] };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only };
    ErrorCode(client.call(&request, 1).responses[0].error_code)
}

/// `AlterConfigs`, the request of older clients: it replaces all configs that were set.
fn replace(client: &mut Client, configs: &[(&'static str, &'static str)]) -> ErrorCode {
    let config = |(name, value): &(&'static str, &'static str)| ReplacedConfig {
        name: (*name).into(),
        value: Some((*value).into()),
    };
    let configs = configs.iter().map(config).collect();
    let resource = ReplacedResource { resource_type: BROKER, resource_name: "1".into(), configs };
    let request = AlterConfigsRequest { resources: vec![resource], validate_only: false };
    ErrorCode(client.call(&request, 2).responses[0].error_code)
}

/// The value of `cordoned.log.dirs` and where it comes from, and its fallbacks likewise.
fn described(client: &mut Client) -> Vec<(String, i8)> {
    let resource = DescribeConfigsResource {
        resource_type: BROKER,
        resource_name: "1".into(),
        configuration_keys: Some(vec!["cordoned.log.dirs".into()]),
    };
    let request =
        DescribeConfigsRequest { resources: vec![resource], include_synonyms: true, ..Default::default() };
    let result = client.call(&request, 4).results.remove(0);
    let entry = &result.configs[0];
    assert!(!entry.read_only);
    let all = entry.synonyms.iter().map(|synonym| (synonym.value.as_deref(), synonym.source));
    assert_eq!(all.clone().next(), Some((entry.value.as_deref(), entry.config_source)));
    all.map(|(value, source)| (value.unwrap_or_default().to_owned(), source)).collect()
}

#[test]
fn a_cordoned_log_dir_keeps_its_partitions_and_gets_no_new_ones() {
    let place = Place::new();
    let (one, two) = (&place.one, &place.two);
    let server = place.start("");
    let mut client = Client::new(&server);
    create_topic(&mut client, "t", 2, &[]);
    produce(&mut client, "t", 0, &batch(&["a"]));
    produce(&mut client, "t", 1, &batch(&["b"]));
    assert_eq!(log_dirs(&mut client), [(one.clone(), 1, false), (two.clone(), 1, false)]);
    server.stop().expect("a clean stop");
    let server = place.start(one);
    let mut client = Client::new(&server);
    create_topic(&mut client, "u", 4, &[]);
    assert_eq!(log_dirs(&mut client), [(one.clone(), 1, true), (two.clone(), 5, false)]);
    let (status, body) = get(server.admin_address().expect("an admin port"), "/health");
    let note = format!("ok\nlog dir {one} is cordoned: it gets no new partitions\n");
    assert!(status.contains("200") && body == note, "{status} {body}");
    produce(&mut client, "t", 0, &batch(&["c"]));
    assert_eq!(read_all(&mut client, "t", 0, 0), ["a", "c"]);
    assert_eq!(read_all(&mut client, "t", 1, 0), ["b"]);
    server.stop().expect("a clean stop");
    let server = place.start("*");
    let mut client = Client::new(&server);
    assert_eq!(try_create_topic(&mut client, "v", 1, 1, &[]), ErrorCode::INVALID_REPLICATION_FACTOR);
    assert_eq!(read_all(&mut client, "t", 0, 0), ["a", "c"]);
}

#[test]
fn a_log_dir_is_cordoned_while_the_server_runs_and_after_it() {
    let place = Place::new();
    let (one, two) = (&place.one, &place.two);
    let server = place.start(two);
    let mut client = Client::new(&server);
    assert_eq!(described(&mut client), [(two.clone(), 4), (String::new(), 5)]);
    assert_eq!(alter(&mut client, "1", SET, one, true), ErrorCode::NONE);
    assert_eq!(cordoned(&mut client), [false, true], "only tried");
    assert_eq!(alter(&mut client, "1", SET, one, false), ErrorCode::NONE);
    create_topic(&mut client, "t", 3, &[]);
    assert_eq!(log_dirs(&mut client), [(one.clone(), 0, true), (two.clone(), 3, false)]);
    let (_, body) = get(server.admin_address().expect("an admin port"), "/metrics");
    let metric = format!("riverrun_log_dir_cordoned{{dir=\"{one}\"}} 1");
    assert!(body.contains(&metric), "{body}");
    assert_eq!(alter(&mut client, "1", APPEND, two, false), ErrorCode::NONE);
    assert_eq!(try_create_topic(&mut client, "u", 1, 1, &[]), ErrorCode::INVALID_REPLICATION_FACTOR);
    assert_eq!(alter(&mut client, "1", SUBTRACT, one, false), ErrorCode::NONE);
    assert_eq!(cordoned(&mut client), [false, true]);
    server.stop().expect("a clean stop");
    let server = place.start(one);
    let mut client = Client::new(&server);
    assert_eq!(described(&mut client), [(two.clone(), 2), (one.clone(), 4), (String::new(), 5)]);
    create_topic(&mut client, "u", 2, &[]);
    assert_eq!(log_dirs(&mut client), [(one.clone(), 2, false), (two.clone(), 3, true)]);
    assert_eq!(alter(&mut client, "1", DELETE, "", false), ErrorCode::NONE);
    assert_eq!(cordoned(&mut client), [true, false], "as the configuration has it");
    assert_eq!(described(&mut client), [(one.clone(), 4), (String::new(), 5)]);
    assert_eq!(replace(&mut client, &[("cordoned.log.dirs", "*")]), ErrorCode::NONE);
    assert_eq!(cordoned(&mut client), [true, true]);
    assert_eq!(replace(&mut client, &[]), ErrorCode::NONE);
    assert_eq!(cordoned(&mut client), [true, false], "what is left out goes back");
}

#[test]
fn a_refused_cordon_changes_nothing() {
    let place = Place::new();
    let server = place.start("");
    let mut client = Client::new(&server);
    let (one, elsewhere) = (&place.one, format!("{}/elsewhere", place.one));
    assert_eq!(alter(&mut client, "1", SET, one, false), ErrorCode::NONE);
    for (broker, operation, value) in [
        ("1", SET, elsewhere.as_str()),
        ("1", APPEND, &elsewhere),
        ("1", SET, &format!("*,{one}")),
        ("", SET, one),
        ("2", SET, one),
    ] {
        let code = alter(&mut client, broker, operation, value, false);
        assert_eq!(code, ErrorCode::INVALID_REQUEST, "{broker} {operation} {value}");
    }
    for configs in [[("cordoned.log.dirs", "/nowhere")], [("log.cleaner.threads", "2")]] {
        assert_eq!(replace(&mut client, &configs), ErrorCode::INVALID_REQUEST, "{configs:?}");
    }
    assert_eq!(cordoned(&mut client), [true, false]);
}
