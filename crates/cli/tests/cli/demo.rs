//! `riverrun demo`: its own checks hold, and its exit code follows them.

use crate::common::run;

#[test]
fn the_demo_checks_itself_and_says_so_in_json() {
    let ended = run(&["demo", "--rows", "6000", "--partitions", "5", "--json"]).ended(0);
    let report = ended.json();
    let checks = report["checks"].as_array().expect("checks");
    assert!(checks.len() >= 6, "{report}");
    assert!(checks.iter().all(|check| check["ok"] == true), "{report}");
    assert_eq!(report["durability"], 1);
    assert!(report["profile"].as_str().is_some_and(|profile| !profile.is_empty()), "{report}");
    assert_eq!(report["member_records"].as_array().expect("three").len(), 3);
    let read: u64 = report["member_records"]
        .as_array()
        .expect("three")
        .iter()
        .filter_map(serde_json::Value::as_u64)
        .sum();
    assert_eq!(read, 6000);
    for name in ["ack_latency", "end_to_end_latency"] {
        assert_eq!(report[name]["records"], 1000, "{report}");
    }
}

#[test]
fn one_row_in_one_partition_is_enough_for_a_demo() {
    let text = run(&["demo", "--rows", "1", "--partitions", "1"]).ended(0).text();
    assert!(text.contains("every row arrived exactly once"), "{text}");
    assert!(text.contains("  build       profile "), "{text}");
    assert!(!text.contains("FAIL"), "{text}");
}

#[test]
fn kept_data_of_a_demo_passes_verify() {
    let report = run(&["demo", "--rows", "600", "--keep", "--json"]).ended(0).json();
    let data = report["data"].as_str().expect("a directory");
    let verified = run(&["log", "verify", data, "--json"]).ended(0).json();
    std::fs::remove_dir_all(data).expect("it was kept");
    assert_eq!(verified["findings"], 0);
    let records = verified["partitions"].as_array().expect("partitions").iter();
    assert!(records.filter_map(|partition| partition["records"].as_u64()).sum::<u64>() >= 600, "{verified}");
}

#[test]
fn rows_of_a_demo_beyond_its_data_are_a_usage_error() {
    run(&["demo", "--rows", "60001"]).ended(2);
    run(&["demo", "--rows", "0"]).ended(2);
}
