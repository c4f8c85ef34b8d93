use std::collections::BTreeMap;

use riverrun_env::sim::{PlantedBug, SimEnv};
use riverrun_env::{OpenMode, read_whole};

use super::*;

const DIR: &str = "/logs/t/0";
const RANGE: Range<Offset> = Offset(10)..Offset(40);
/// Base offsets of the segments that are there; those of 10, 20 and 30 are replaced.
const BASES: [i64; 5] = [0, 10, 20, 30, 40];

fn write(fs: &dyn FileSystem, path: &Path, text: &str) -> io::Result<()> {
    let file = fs.open(path, OpenMode::CreateNew)?;
    file.write_all_at(text.as_bytes(), 0)?;
    file.sync_all()
}

/// Segments with known contents, all durable, and a cleaned segment that is complete but has no durable name.
fn prepare(seed: u64, cleaned: &str) -> SimEnv {
    let sim = SimEnv::new(seed);
    let (fs, dir) = (&*sim.fs, Path::new(DIR));
    fs.create_dir_all(dir).unwrap();
    for base in BASES {
        write(fs, &final_path(dir, Offset(base), LOG), &format!("log {base}")).unwrap();
        write(fs, &final_path(dir, Offset(base), INDEX), &format!("index {base}")).unwrap();
    }
    for dir in ["/", "/logs", "/logs/t", DIR] {
        fs.sync_dir(Path::new(dir)).unwrap();
    }
    write(fs, &cleaned_log(dir, RANGE.start), cleaned).unwrap();
    write(fs, &cleaned_index(dir, RANGE.start), "new index").unwrap();
    sim
}

fn contents(sim: &SimEnv) -> BTreeMap<String, String> {
    let fs = &*sim.fs;
    let text = |name: &String| {
        let bytes = read_whole(fs, &Path::new(DIR).join(name), 1000).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    names(fs, Path::new(DIR)).unwrap().into_iter().map(|name| (name.clone(), text(&name))).collect()
}

fn expected(segments: &[(i64, &str, &str)]) -> BTreeMap<String, String> {
    let files = |(base, log, index): &(i64, &str, &str)| {
        [(format!("{base:020}.log"), (*log).to_owned()), (format!("{base:020}.index"), (*index).to_owned())]
    };
    segments.iter().flat_map(files).collect()
}

fn old() -> BTreeMap<String, String> {
    expected(&[
        (0, "log 0", "index 0"),
        (10, "log 10", "index 10"),
        (20, "log 20", "index 20"),
        (30, "log 30", "index 30"),
        (40, "log 40", "index 40"),
    ])
}

fn new(cleaned: &str) -> BTreeMap<String, String> {
    expected(&[(0, "log 0", "index 0"), (10, cleaned, "new index"), (40, "log 40", "index 40")])
}

#[test]
fn the_cleaned_segment_takes_the_place_of_the_group() {
    for cleaned in ["cleaned", ""] {
        let sim = prepare(1, cleaned);
        install(&*sim.fs, Path::new(DIR), RANGE).unwrap();
        assert_eq!(contents(&sim), new(cleaned));
        sim.fs.crash();
        assert_eq!(contents(&sim), new(cleaned), "durable when it returns");
        assert!(!recover(&*sim.fs, Path::new(DIR)).unwrap(), "nothing is left to do");
    }
}

#[test]
fn what_was_not_finished_is_removed() {
    let sim = prepare(1, "cleaned");
    assert!(recover(&*sim.fs, Path::new(DIR)).unwrap());
    assert_eq!(contents(&sim), old());

    let sim = prepare(1, "cleaned");
    discard(&*sim.fs, Path::new(DIR), RANGE.start).unwrap();
    assert_eq!(contents(&sim), old());
    discard(&*sim.fs, Path::new(DIR), RANGE.start).unwrap();
}

/// Kills the process at each operation of an install, and then again at each operation of the recovery.
fn kill_everywhere(cleaned: &str) {
    let whole = prepare(1, cleaned);
    let before = whole.fs.operations();
    install(&*whole.fs, Path::new(DIR), RANGE).unwrap();
    let operations = whole.fs.operations() - before;
    let mut outcomes = [0, 0];
    for stop in 0..=operations {
        for stop_again in 0..=operations {
            let sim = prepare(1, cleaned);
            sim.fs.stop_after(stop);
            let installed = install(&*sim.fs, Path::new(DIR), RANGE);
            sim.fs.kill();
            sim.fs.stop_after(stop_again);
            let _ = recover(&*sim.fs, Path::new(DIR));
            sim.fs.kill();
            recover(&*sim.fs, Path::new(DIR)).unwrap();
            let found = contents(&sim);
            let is_new = found == new(cleaned);
            assert!(is_new || found == old(), "stops {stop} and {stop_again}: {found:#?}");
            assert!(is_new || installed.is_err(), "stops {stop} and {stop_again}: what was installed stays");
            outcomes[usize::from(is_new)] += 1;
        }
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "both outcomes occur: {outcomes:?}");
}

#[test]
fn a_kill_at_any_operation_leaves_the_old_segments_or_the_new_one() {
    for cleaned in ["cleaned", ""] {
        kill_everywhere(cleaned);
    }
}

/// More than a power cut may leave at any moment here.
const ALL: usize = 10_000;

/// The states that a power cut may leave.
fn states(sim: &SimEnv) -> impl Iterator<Item = SimEnv> {
    assert!(sim.fs.crash_states(ALL).is_exhaustive());
    sim.crash_states(ALL)
}

/// Recovers; whether the new segment is there, or what else is there than the old ones or it.
fn recovered(sim: &SimEnv, cleaned: &str) -> Result<bool, String> {
    recover(&*sim.fs, Path::new(DIR)).map_err(|error| error.to_string())?;
    let found = contents(sim);
    let is_new = found == new(cleaned);
    if is_new || found == old() { Ok(is_new) } else { Err(format!("{found:#?}")) }
}

/// Cuts the power at each operation of an install, and then again at each operation of the recovery, and looks at all
/// states: how many recover to the old segments and how many to the new one, or what is wrong with the first bad one.
fn check_all_states(cleaned: &str, bug: Option<PlantedBug>) -> Result<[usize; 2], String> {
    let mut outcomes = [0, 0];
    for stop in 0.. {
        let sim = prepare(1, cleaned);
        if let Some(bug) = bug {
            sim.fs.plant(bug);
        }
        sim.fs.stop_after(stop);
        let is_installed = install(&*sim.fs, Path::new(DIR), RANGE).is_ok();
        for state in states(&sim) {
            for stop_again in 0.. {
                let state = states(&state).next().expect("nothing is pending, so there is one");
                state.fs.stop_after(stop_again);
                let is_recovered = recover(&*state.fs, Path::new(DIR)).is_ok();
                for state in states(&state) {
                    let is_new = recovered(&state, cleaned)
                        .map_err(|found| format!("stops {stop} and {stop_again}: {found}"))?;
                    if is_installed && !is_new {
                        return Err(format!("stops {stop} and {stop_again}: what was installed is gone"));
                    }
                    outcomes[usize::from(is_new)] += 1;
                }
                if is_recovered {
                    break;
                }
            }
        }
        if is_installed {
            break;
        }
    }
    Ok(outcomes)
}

#[test]
fn every_state_that_a_power_cut_may_leave_recovers_to_the_old_segments_or_the_new_one() {
    for cleaned in ["cleaned", ""] {
        let [old, new] = check_all_states(cleaned, None).unwrap();
        assert!(old > 10 && new > 10, "both outcomes occur: {old} and {new}");
    }
}

#[test]
fn a_swap_that_left_out_the_syncs_of_its_directory_would_be_found_out() {
    check_all_states("cleaned", Some(PlantedBug::SkippedDirectorySync)).unwrap_err();
}

#[test]
fn files_of_others_are_left_alone() {
    let sim = prepare(1, "cleaned");
    let dir = Path::new(DIR);
    for name in ["00000000000000000020.producers", "20.log", "00000000000000000020-x.log.swap", "notes"] {
        write(&*sim.fs, &dir.join(name), "mine").unwrap();
    }
    install(&*sim.fs, dir, RANGE).unwrap();
    recover(&*sim.fs, dir).unwrap();
    let mine = contents(&sim).values().filter(|text| *text == "mine").count();
    assert_eq!(mine, 4);
}
