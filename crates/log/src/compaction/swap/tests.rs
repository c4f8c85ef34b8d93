use std::collections::BTreeMap;

use riverrun_env::sim::{PlantedBug, SimEnv};
use riverrun_env::{OpenMode, read_whole};

use super::*;

const DIR: &str = "/logs/t/0";
const RANGE: Range<Offset> = Offset(10)..Offset(40);
/// Base offsets of the segments; those of 10, 20 and 30 are replaced.
const BASES: [i64; 5] = [0, 10, 20, 30, 40];

fn write(fs: &dyn FileSystem, path: &Path, text: &str) -> io::Result<()> {
    let file = fs.open(path, OpenMode::CreateNew)?;
    file.write_all_at(text.as_bytes(), 0)?;
    file.sync_all()
}

fn install(fs: &dyn FileSystem, dir: &Path, range: Range<Offset>) -> io::Result<()> {
    Swap::commit(fs, dir, range)?.finish(fs)
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
fn unfinished_files_are_removed() {
    let sim = prepare(1, "cleaned");
    assert!(recover(&*sim.fs, Path::new(DIR)).unwrap());
    assert_eq!(contents(&sim), old());

    let sim = prepare(1, "cleaned");
    for _ in 0..2 {
        discard(&*sim.fs, Path::new(DIR), &RANGE).unwrap();
        assert_eq!(contents(&sim), old());
    }
}

/// Each call of an install is refused in turn, as for want of memory, in a process that goes on.
#[test]
fn shortage_at_any_call_leaves_old_segments_or_a_swap_to_finish() {
    let dir = Path::new(DIR);
    let whole = prepare(1, "cleaned");
    let before = whole.fs.calls();
    install(&*whole.fs, dir, RANGE).unwrap();
    let mut outcomes = [0, 0];
    for call in 0..whole.fs.calls() - before {
        let sim = prepare(1, "cleaned");
        sim.fs.fail_call_after(call, io::ErrorKind::OutOfMemory);
        let expected = match Swap::commit(&*sim.fs, dir, RANGE) {
            Err(_) => old(),
            Ok(swap) => {
                swap.finish(&*sim.fs).unwrap_err();
                discard(&*sim.fs, dir, &RANGE).unwrap();
                swap.finish(&*sim.fs).unwrap();
                new("cleaned")
            }
        };
        discard(&*sim.fs, dir, &RANGE).unwrap();
        assert_eq!(contents(&sim), expected, "call {call}");
        outcomes[usize::from(expected == new("cleaned"))] += 1;
        sim.fs.crash();
        recover(&*sim.fs, dir).unwrap();
        assert_eq!(contents(&sim), expected, "call {call}, after a power cut");
    }
    assert_eq!(outcomes, [4, 6], "before the point of no return and after it");
}

#[test]
fn a_swap_needs_no_descriptor_after_the_point_of_no_return() {
    let sim = prepare(1, "cleaned");
    let swap = Swap::commit(&*sim.fs, Path::new(DIR), RANGE).unwrap();
    sim.fs.exhaust_descriptors(true);
    swap.finish(&*sim.fs).unwrap();
    sim.fs.exhaust_descriptors(false);
    assert_eq!(contents(&sim), new("cleaned"));
}

#[test]
fn a_swap_that_was_overtaken_is_refused_and_nothing_is_changed() {
    let rename = |sim: &SimEnv, from: Range<i64>, to: Range<i64>| {
        for kind in [LOG, INDEX] {
            let path = |range: Range<i64>| {
                swap_path(Path::new(DIR), &(Offset(range.start)..Offset(range.end)), kind)
            };
            sim.fs.rename(&path(from.clone()), &path(to.clone())).unwrap();
        }
    };
    for (stale, named) in [
        (10..35, "00000000000000000010-00000000000000000035.log.swap"),
        (10..20, "00000000000000000010-00000000000000000020.log.swap"),
        (0..20, "00000000000000000000-00000000000000000020.log.swap"),
    ] {
        let sim = prepare(1, "cleaned");
        drop(Swap::commit(&*sim.fs, Path::new(DIR), RANGE).unwrap());
        rename(&sim, 10..40, stale.clone());
        if stale != (10..35) {
            write(&*sim.fs, &cleaned_log(Path::new(DIR), RANGE.start), "newer").unwrap();
            write(&*sim.fs, &cleaned_index(Path::new(DIR), RANGE.start), "newer index").unwrap();
            drop(Swap::commit(&*sim.fs, Path::new(DIR), RANGE).unwrap());
        }
        let before = contents(&sim);
        let error = recover(&*sim.fs, Path::new(DIR)).unwrap_err();
        assert!(matches!(&error, LogError::Corrupt { path, .. } if path.ends_with(named)), "{error}");
        assert_eq!(contents(&sim), before);
    }
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
            assert!(is_new || installed.is_err(), "stops {stop} and {stop_again}: installed segments stay");
            outcomes[usize::from(is_new)] += 1;
        }
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "both outcomes occur: {outcomes:?}");
}

#[test]
fn kill_at_any_operation_leaves_the_old_segments_or_the_new_one() {
    for cleaned in ["cleaned", ""] {
        kill_everywhere(cleaned);
    }
}

/// A kill leaves names that no sync has covered, and the power may fail while the next start goes on from them.
#[test]
fn power_cut_after_a_kill_leaves_old_segments_or_the_new_one() {
    for (stop, stop_again) in (0..=13).flat_map(|stop| (0..=13).map(move |again| (stop, again))) {
        let sim = prepare(1, "cleaned");
        sim.fs.stop_after(stop);
        let is_installed = install(&*sim.fs, Path::new(DIR), RANGE).is_ok();
        sim.fs.kill();
        sim.fs.stop_after(stop_again);
        let is_recovered = recover(&*sim.fs, Path::new(DIR)).is_ok();
        for state in states(&sim) {
            let is_new = recovered(&state, "cleaned")
                .unwrap_or_else(|found| panic!("stops {stop} and {stop_again}: {found}"));
            assert!(is_new || !is_installed, "stops {stop} and {stop_again}: an installed segment is gone");
        }
        assert!(is_recovered || stop_again < 13, "the recovery is stopped everywhere");
    }
}

/// More states than a power cut may leave at any moment here.
const ALL: usize = 10_000;

/// The states that a power cut may leave.
fn states(sim: &SimEnv) -> impl Iterator<Item = SimEnv> {
    assert!(sim.fs.crash_states(ALL).is_exhaustive());
    sim.crash_states(ALL)
}

/// Recovers; returns whether the new segment is there, or the unexpected files.
fn recovered(sim: &SimEnv, cleaned: &str) -> Result<bool, String> {
    recover(&*sim.fs, Path::new(DIR)).map_err(|error| error.to_string())?;
    let found = contents(sim);
    let is_new = found == new(cleaned);
    if is_new || found == old() { Ok(is_new) } else { Err(format!("{found:#?}")) }
}

/// Cuts the power at each operation of an install, and then again at each operation of the recovery, and recovers all
/// states: returns how many have the old segments and how many the new one, or the fault of the first bad one.
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
                        return Err(format!("stops {stop} and {stop_again}: an installed segment is gone"));
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
fn every_state_of_a_power_cut_has_old_segments_or_the_new_one() {
    for cleaned in ["cleaned", ""] {
        let [old, new] = check_all_states(cleaned, None).unwrap();
        assert!(old > 10 && new > 10, "both outcomes occur: {old} and {new}");
    }
}

#[test]
fn swap_without_syncs_of_its_directory_is_found_out() {
    check_all_states("cleaned", Some(PlantedBug::SkippedDirectorySync)).unwrap_err();
}

#[test]
fn files_of_others_are_left_alone() {
    let sim = prepare(1, "cleaned");
    let dir = Path::new(DIR);
    for name in ["00000000000000000020.state", "20.log", "00000000000000000020-x.log.swap", "notes"] {
        write(&*sim.fs, &dir.join(name), "mine").unwrap();
    }
    install(&*sim.fs, dir, RANGE).unwrap();
    recover(&*sim.fs, dir).unwrap();
    let mine = contents(&sim).values().filter(|text| *text == "mine").count();
    assert_eq!(mine, 4);
}
