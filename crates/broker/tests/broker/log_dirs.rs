//! Log dirs that come into use and go out of it, as the configuration names them.

use std::path::Path;

use riverrun_broker::Server;
use riverrun_protocol::delete_topics_request::DeleteTopicState;
use riverrun_protocol::describe_log_dirs_response::DescribeLogDirsResult;
use riverrun_protocol::{DeleteTopicsRequest, DescribeLogDirsRequest};
use tempfile::TempDir;

use crate::admin_port::get;
use crate::lifecycle::copy;
use crate::support::{Client, batch, configured, create_topic, produce, read_all};

struct Place(TempDir);

impl Place {
    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("text").to_owned()
    }

    /// Starts with the log dirs of these names.
    fn start(&self, log_dirs: &[&str]) -> Result<Server, String> {
        let log_dirs: Vec<_> = log_dirs.iter().map(|name| self.path(name)).collect();
        let builder = configured(&[
            ("admin.listen", "127.0.0.1:0"),
            ("data.dir", &self.path("data")),
            ("log.dirs", &log_dirs.join(",")),
        ]);
        builder.start().map_err(|error| error.to_string())
    }
}

/// The names of the log dirs in `DescribeLogDirs`, and the number of partitions in each.
fn log_dirs(server: &Server) -> Vec<(String, usize)> {
    let dirs = Client::new(server).call(&DescribeLogDirsRequest { topics: None }, 5).results;
    let told = |dir: &DescribeLogDirsResult<'_>| {
        let name = Path::new(&*dir.log_dir).file_name().expect("a name");
        let count = dir.topics.iter().map(|topic| topic.partitions.len()).sum();
        (name.to_str().expect("text").to_owned(), count)
    };
    dirs.iter().map(told).collect()
}

fn named(dirs: &[(&str, usize)]) -> Vec<(String, usize)> {
    dirs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn a_log_dir_without_topics_may_be_left_out_and_come_back() {
    let place = Place(tempfile::tempdir().expect("a directory"));
    let start = |dirs: &[&str]| place.start(dirs).expect("starts");
    let server = start(&["one", "two"]);
    let mut client = Client::new(&server);
    for topic in ["gone", "kept"] {
        create_topic(&mut client, topic, 1, &[]);
        produce(&mut client, topic, 0, &batch(&[topic]));
    }
    assert_eq!(log_dirs(&server), named(&[("one", 1), ("two", 1)]));
    server.stop().expect("a clean stop");
    let error = place.start(&["two"]).expect_err("needed");
    assert!(error.contains(&place.path("one")) && error.contains("of gone: name it again"), "{error}");

    let server = start(&["one", "two"]);
    let state = DeleteTopicState { name: Some("gone".into()), ..Default::default() };
    let request = DeleteTopicsRequest { topics: vec![state], ..Default::default() };
    assert_eq!(Client::new(&server).call(&request, 6).responses[0].error_code, 0);
    server.stop().expect("a clean stop");

    let server = start(&["two"]);
    let mut client = Client::new(&server);
    assert_eq!(read_all(&mut client, "kept", 0, 0), ["kept"]);
    create_topic(&mut client, "more", 2, &[]);
    produce(&mut client, "more", 1, &batch(&["more"]));
    assert_eq!(log_dirs(&server), named(&[("two", 3)]));
    let admin = server.admin_address().expect("an admin port");
    assert_eq!(get(admin, "/health").1, "ok\n");
    assert!(!get(admin, "/metrics").1.contains(&place.path("one")));
    server.stop().expect("a clean stop");

    let server = start(&["one", "two"]);
    let mut client = Client::new(&server);
    create_topic(&mut client, "new", 1, &[]);
    produce(&mut client, "new", 0, &batch(&["new"]));
    assert_eq!(log_dirs(&server), named(&[("two", 3), ("one", 1)]));
    for (topic, partition) in [("kept", 0), ("more", 1), ("new", 0)] {
        assert_eq!(read_all(&mut client, topic, partition, 0), [topic]);
    }
}

#[test]
fn a_server_refuses_directories_of_another_cluster() {
    let place = Place(tempfile::tempdir().expect("a directory"));
    let server = place.start(&["one"]).expect("starts");
    let one = place.path("one");
    let refused = |options: &[(&str, &str)]| {
        let error = configured(options).start().expect_err("it is another's").to_string();
        assert!(error.contains(&one) && error.contains("cluster"), "{options:?}: {error}");
    };
    let (below, other) = (place.path("one/below"), place.path("other"));
    let refuse_all = || {
        refused(&[("data.dir", &one)]);
        refused(&[("data.dir", &below)]);
        refused(&[("data.dir", &other), ("journal.dirs", &one)]);
        refused(&[("data.dir", &other), ("log.dirs", &one)]);
    };
    refuse_all();
    server.stop().expect("a clean stop");
    refuse_all();
    for name in ["below", "meta", "logs", "journal"] {
        assert!(!Path::new(&one).join(name).exists(), "{name}");
    }
    place.start(&["one"]).expect("nothing has changed there").stop().expect("a clean stop");
}

#[test]
fn copied_metadata_is_refused_while_the_log_dirs_are_in_use() {
    let place = Place(tempfile::tempdir().expect("a directory"));
    let server = place.start(&["one"]).expect("starts");
    copy(Path::new(&place.path("data/meta")), Path::new(&place.path("other/meta")));
    let options = [("data.dir", place.path("other")), ("log.dirs", place.path("one"))];
    for _ in 0..2 {
        let options = options.each_ref().map(|(name, value)| (*name, value.as_str()));
        let error = configured(&options).start().expect_err("they are in use").to_string();
        assert!(
            error.contains(&place.path("one")) && error.contains("a running server of cluster"),
            "{error}"
        );
    }
    server.stop().expect("a clean stop");
    place.start(&["one"]).expect("no start was counted there").stop().expect("a clean stop");
}
