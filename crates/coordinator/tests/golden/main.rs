//! Golden files: scripts of requests in `testdata/*.txt` with the shard's answers.
//!
//! A script is prose (lines that begin with `#`), and blocks: commands, one per line, then `----`, then the output up
//! to an empty line. The commands are described at [`world::World::run`]. `RIVERRUN_REWRITE_GOLDEN=1 cargo test -p
//! riverrun-coordinator --test golden` writes the present answers into the files, to be read as a diff.
//!
//! After each script, all of its records are replayed into a fresh shard, as they came and compacted, which must show
//! the same as the one that lived.

#![expect(clippy::unwrap_used, reason = "a script that cannot be read fails its test")]
#![expect(clippy::disallowed_methods, reason = "scripts are files, and rewritten in place")]

mod consumer;
mod replayed;
mod show;
mod topics;
mod world;

use std::fmt::Write as _;
use std::path::Path;

use world::World;

/// One piece of a script.
enum Piece {
    /// A comment or an empty line, kept as it is.
    Prose(String),
    /// Commands and what they must print.
    Block { line: usize, commands: Vec<String>, expected: String },
}

/// Parses a script.
fn parse(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            pieces.push(Piece::Prose(line.to_owned()));
            continue;
        }
        let mut commands = vec![line.to_owned()];
        commands.extend(lines.by_ref().map(|(_, line)| line.to_owned()).take_while(|line| line != "----"));
        let mut expected = String::new();
        for (_, line) in lines.by_ref().take_while(|(_, line)| !line.is_empty()) {
            writeln!(expected, "{line}").unwrap();
        }
        pieces.push(Piece::Block { line: index + 1, commands, expected });
    }
    pieces
}

/// Runs a script; returns it with the present output, and the lines where that differs.
fn play(text: &str) -> (String, Vec<String>) {
    let mut world = World::new();
    let mut now = String::new();
    let mut differences = Vec::new();
    for piece in parse(text) {
        match piece {
            Piece::Prose(line) => writeln!(now, "{line}").unwrap(),
            Piece::Block { line, commands, expected } => {
                let mut printed = String::new();
                for command in &commands {
                    printed.push_str(&world.run(command));
                }
                if printed != expected {
                    differences.push(format!("line {line}: expected\n{expected}but it printed\n{printed}"));
                }
                writeln!(now, "{}\n----\n{printed}", commands.join("\n")).unwrap();
            }
        }
    }
    replayed::check(&world);
    (now, differences)
}

fn check_script(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let (now, differences) = play(&text);
    if std::env::var_os("RIVERRUN_REWRITE_GOLDEN").is_some() {
        std::fs::write(&path, now.trim_end().to_owned() + "\n").unwrap();
        return;
    }
    assert!(differences.is_empty(), "{name}\n{}", differences.join("\n"));
}

macro_rules! scripts {
    ($($test:ident: $file:literal;)*) => {
        $(#[test]
        fn $test() {
            check_script($file);
        })*

        #[test]
        fn every_script_is_played() {
            let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
            let mut found: Vec<_> = std::fs::read_dir(dir).unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .filter(|name| name.ends_with(".txt"))
                .collect();
            found.sort();
            let mut listed = vec![$($file),*];
            listed.sort_unstable();
            assert_eq!(found, listed);
        }
    };
}

scripts! {
    members_join_sync_heartbeat_and_leave: "classic_basic.txt";
    ids_come_first_and_the_first_rebalance_waits: "classic_initial_delay.txt";
    static_members_keep_their_place_and_fence: "classic_static.txt";
    silence_and_slowness_cost_membership: "classic_timeouts.txt";
    protocols_have_to_agree: "classic_protocols.txt";
    groups_have_bounds: "classic_bounds.txt";
    all_groups_together_have_one: "memory.txt";
    offsets_are_committed_fetched_and_deleted: "offsets.txt";
    offsets_expire_as_in_kafka: "offsets_expiry.txt";
    groups_are_described_listed_and_deleted: "admin.txt";
    a_restart_in_the_middle_loses_no_group: "reload.txt";
    a_classic_group_becomes_a_consumer_group: "upgrade.txt";
    a_consumer_group_becomes_a_classic_group: "downgrade.txt";
    static_members_change_protocol_in_their_place: "migration_static.txt";
    both_kinds_of_client_leave_each_other_alone: "mixed_clients.txt";
    consumers_join_rebalance_and_leave: "consumer_basic.txt";
    heartbeats_that_make_no_sense_are_refused: "consumer_refusals.txt";
    epochs_fence_and_lost_responses_are_repeated: "consumer_epochs.txt";
    static_consumers_keep_their_place_and_fence: "consumer_static.txt";
    silent_and_slow_consumers_are_removed: "consumer_timeouts.txt";
    topics_are_subscribed_to_by_regular_expression: "consumer_regex.txt";
    changed_topics_start_a_rebalance: "consumer_topics.txt";
    members_choose_the_assignor: "consumer_assignors.txt";
    consumer_groups_are_described_and_deleted: "consumer_admin.txt";
}
