//! The states that a power cut may leave, against references that are too small to be wrong; and their purpose: a
//! replacement of a file is old or new in all of them, and planted bugs are found.

#![expect(clippy::unwrap_used, reason = "a test asserts with it, and so do its helpers")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use riverrun_env::sim::{PlantedBug, SimFileSystem, SimRandom};
use riverrun_env::{ChangeError, File, FileSystem, OpenMode, Random, atomic_replace, read_whole};

const SECTOR: usize = 512;
/// More states than any test has that examines all of them.
const ALL: usize = 100_000;

/// All files below the root with their bytes.
type Tree = BTreeMap<PathBuf, Vec<u8>>;

fn tree(fs: &SimFileSystem) -> Tree {
    let mut found = Tree::new();
    let mut open = vec![PathBuf::from("/")];
    while let Some(dir) = open.pop() {
        for entry in fs.read_dir(&dir).unwrap() {
            let path = dir.join(entry.name);
            if entry.is_dir {
                open.push(path);
            } else {
                let bytes = read_whole(fs, &path, 1 << 20).unwrap();
                found.insert(path, bytes);
            }
        }
    }
    found
}

/// All states, which must differ from each other.
fn states(fs: &SimFileSystem) -> BTreeSet<Tree> {
    let states = fs.crash_states(ALL);
    assert!(states.is_exhaustive());
    let count = states.len();
    let trees: BTreeSet<Tree> = states.map(|state| tree(&state)).collect();
    assert_eq!(trees.len(), count, "no state twice");
    trees
}

fn create(fs: &SimFileSystem, path: &str) -> Arc<dyn File> {
    fs.open(Path::new(path), OpenMode::CreateNew).unwrap()
}

/// A file with these bytes, all of it durable.
fn durable_file(fs: &SimFileSystem, path: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = create(fs, path);
    file.write_all_at(bytes, 0).unwrap();
    file.sync_all().unwrap();
    fs.sync_dir("/".as_ref()).unwrap();
    file
}

/// A number below `bound`.
fn below(random: &SimRandom, bound: u64) -> usize {
    usize::try_from(random.next_u64() % bound).unwrap()
}

/// Contents that a file may have after `steps`, by definition: each write's sectors are there or not in any
/// combination, the later over the earlier, and the size is one that the file had on the way. A step is a write of
/// whole sectors, or none: the file is made empty.
fn reference_contents(durable: &[u8], steps: &[Option<(usize, Vec<u8>)>]) -> BTreeSet<Vec<u8>> {
    let mut lens = BTreeSet::from([durable.len()]);
    let mut len = durable.len();
    let mut sectors = Vec::new();
    for step in steps {
        let Some((position, bytes)) = step else {
            len = 0;
            lens.insert(0);
            continue;
        };
        let end = position + bytes.len();
        lens.extend((len + 1..=end).filter(|len| len % SECTOR == 0));
        // Bytes between the end and a write beyond it become zeros.
        sectors.extend((len..*position).step_by(SECTOR).map(|at| (at, &[0; SECTOR][..])));
        len = len.max(end);
        sectors.extend(bytes.chunks(SECTOR).enumerate().map(|(at, bytes)| (position + at * SECTOR, bytes)));
    }
    let mut contents = BTreeSet::new();
    for kept in 0..1_u32 << sectors.len() {
        let mut bytes = durable.to_vec();
        bytes.resize(8 * SECTOR, 0);
        for (index, (position, sector)) in sectors.iter().enumerate() {
            if kept & (1 << index) != 0 {
                bytes[*position..position + SECTOR].copy_from_slice(sector);
            }
        }
        contents.extend(lens.iter().map(|len| bytes[..*len].to_vec()));
    }
    contents
}

#[test]
fn the_states_of_a_file_are_those_of_its_definition() {
    for seed in 0..60 {
        let random = SimRandom::new(seed);
        let durable = vec![0xdd; SECTOR * below(&random, 4)];
        let steps: Vec<_> = (1..=3_u8)
            .map(|fill| {
                let is_write = below(&random, 5) > 0;
                is_write.then(|| (SECTOR * below(&random, 2), vec![fill; SECTOR * (1 + below(&random, 3))]))
            })
            .collect();
        let fs = SimFileSystem::new(seed);
        let file = durable_file(&fs, "/f", &durable);
        for step in &steps {
            match step {
                Some((position, bytes)) => file.write_all_at(bytes, *position as u64).unwrap(),
                None => file.set_len(0).unwrap(),
            }
        }
        let found: BTreeSet<_> =
            states(&fs).into_iter().map(|mut tree| tree.remove(Path::new("/f")).unwrap()).collect();
        assert_eq!(found, reference_contents(&durable, &steps), "seed {seed}");
    }
}

#[test]
fn writes_that_share_a_sector_are_there_in_their_order() {
    let fs = SimFileSystem::new(1);
    let file = durable_file(&fs, "/f", b"......");
    file.write_all_at(b"a", 0).unwrap();
    file.write_all_at(b"b", 1).unwrap();
    file.write_all_at(b"c", 0).unwrap();
    let found: BTreeSet<_> = states(&fs).into_iter().flat_map(Tree::into_values).collect();
    let expected = ["......", "a.....", "ab....", "cb...."].map(|text| text.as_bytes().to_vec());
    assert_eq!(found, expected.into());
}

#[test]
fn synced_bytes_leave_no_choice_to_a_power_cut() {
    let fs = SimFileSystem::new(1);
    let file = durable_file(&fs, "/f", b"old");
    file.write_all_at(b"new", 0).unwrap();
    assert_eq!(states(&fs).len(), 2);
    file.sync_data().unwrap();
    assert_eq!(states(&fs), [Tree::from([("/f".into(), b"new".to_vec())])].into());
}

/// A change of a directory; files are known by their content.
#[derive(Clone, Debug)]
enum Change {
    Create(String),
    Remove(String),
    Rename(String, String),
}

impl Change {
    fn names(&self) -> Vec<&String> {
        match self {
            Self::Create(name) | Self::Remove(name) => vec![name],
            Self::Rename(from, to) => vec![from, to],
        }
    }

    /// A change that is possible with these names in the directory.
    fn random(random: &SimRandom, present: &BTreeSet<String>) -> Self {
        let name = format!("/{}", ["a", "b", "c"][below(random, 3)]);
        let other = format!("/{}", ["a", "b", "c"][below(random, 3)]);
        match (present.contains(&name), below(random, 2)) {
            (false, _) => Self::Create(name),
            (true, 0) => Self::Remove(name),
            (true, _) if name == other => Self::Remove(name),
            (true, _) => Self::Rename(name, other),
        }
    }

    /// Carries the change out on a map from names to contents. A file that is made is known by its number.
    fn apply(&self, number: usize, files: &mut Tree) {
        match self {
            Self::Create(name) => _ = files.insert(name.into(), vec![u8::try_from(number).unwrap()]),
            Self::Remove(name) => _ = files.remove(Path::new(name)),
            Self::Rename(from, to) => {
                if let Some(bytes) = files.remove(Path::new(from)) {
                    files.insert(to.into(), bytes);
                }
            }
        }
    }
}

/// The possible remains of the changes, by definition: any subset in which none is without an earlier one of its
/// names.
fn reference_trees(durable: &Tree, changes: &[Change]) -> BTreeSet<Tree> {
    let mut trees = BTreeSet::new();
    'subsets: for kept in 0..1_u32 << changes.len() {
        let mut files = durable.clone();
        let mut lost: BTreeSet<&String> = BTreeSet::new();
        for (number, change) in changes.iter().enumerate() {
            if kept & (1 << number) == 0 {
                lost.extend(change.names());
            } else if change.names().iter().any(|name| lost.contains(name)) {
                continue 'subsets;
            } else {
                change.apply(number, &mut files);
            }
        }
        trees.insert(files);
    }
    trees
}

#[test]
fn the_states_of_a_directory_are_those_of_its_definition() {
    for seed in 0..200 {
        let random = SimRandom::new(seed);
        let fs = SimFileSystem::new(seed);
        durable_file(&fs, "/a", b"first");
        let durable = tree(&fs);
        let mut live = durable.clone();
        let mut changes = Vec::new();
        for number in 0..6 {
            let present = live.keys().map(|path| path.to_str().unwrap().to_owned()).collect();
            let change = Change::random(&random, &present);
            match &change {
                Change::Create(name) => {
                    let file = create(&fs, name);
                    file.write_all_at(&[u8::try_from(number).unwrap()], 0).unwrap();
                    file.sync_all().unwrap();
                }
                Change::Remove(name) => fs.remove_file(name.as_ref()).unwrap(),
                Change::Rename(from, to) => fs.rename(from.as_ref(), to.as_ref()).unwrap(),
            }
            change.apply(number, &mut live);
            changes.push(change);
        }
        assert_eq!(states(&fs), reference_trees(&durable, &changes), "seed {seed}: {changes:?}");
    }
}

#[test]
fn a_directory_that_is_lost_takes_what_was_made_in_it() {
    let fs = SimFileSystem::new(1);
    fs.create_dir_all("/d/e".as_ref()).unwrap();
    create(&fs, "/d/e/f").sync_all().unwrap();
    let file = PathBuf::from("/d/e/f");
    let dirs = |state: &SimFileSystem| ["/d", "/d/e"].map(|path| state.exists(path.as_ref()).unwrap());
    let found: Vec<_> =
        fs.crash_states(ALL).map(|state| (dirs(&state), tree(&state).contains_key(&file))).collect();
    let expected = [([false; 2], false), ([true, false], false), ([true; 2], false), ([true; 2], true)];
    assert_eq!(found, expected);
}

#[test]
fn files_and_directories_come_through_in_any_combination() {
    let fs = SimFileSystem::new(1);
    let first = durable_file(&fs, "/a", b"1");
    let second = durable_file(&fs, "/b", b"1");
    first.write_all_at(b"2", 0).unwrap();
    second.write_all_at(b"2", 0).unwrap();
    create(&fs, "/c").write_all_at(b"2", 0).unwrap();
    // Two files, old or new; a third that is not there, empty, of zeros or whole.
    assert_eq!(states(&fs).len(), 2 * 2 * 4);
    fs.remove_file("/a".as_ref()).unwrap();
    assert_eq!(states(&fs).len(), 3 * 2 * 4);
}

#[test]
fn large_state_space_is_sampled_with_both_extremes() {
    let fs = SimFileSystem::new(1);
    let file = durable_file(&fs, "/f", &[1; 30 * SECTOR]);
    file.write_all_at(&[2; 30 * SECTOR], 0).unwrap();
    assert!(!fs.crash_states(1000).is_exhaustive());
    let sample = || fs.crash_states(50).map(|state| read_whole(&state, "/f".as_ref(), 1 << 20).unwrap());
    let found: Vec<_> = sample().collect();
    assert_eq!(found, sample().collect::<Vec<_>>());
    assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 50);
    assert!(found.contains(&vec![1; 30 * SECTOR]) && found.contains(&vec![2; 30 * SECTOR]));
    assert_eq!(fs.crash_states(0).count(), 0);
}

#[test]
fn each_state_is_a_disk_of_its_own() {
    let fs = SimFileSystem::new(1);
    let file = durable_file(&fs, "/f", b"old");
    let _lock = fs.lock("/lock".as_ref()).unwrap();
    file.write_all_at(b"new", 0).unwrap();
    fs.stop_after(0);
    for state in fs.crash_states(ALL) {
        let before = tree(&state);
        let file = state.open("/f".as_ref(), OpenMode::ReadWrite).unwrap();
        file.write_all_at(b"!!!", 0).unwrap();
        file.sync_data().unwrap();
        state.crash();
        assert_ne!(tree(&state), before);
        assert!(state.lock("/lock".as_ref()).is_ok(), "its holder is dead");
    }
    fs.kill();
    assert_eq!(read_whole(&fs, "/f".as_ref(), 10).unwrap(), b"new");
}

const OLD: &[u8] = &[1; 1300];
const NEW: &[u8] = &[2; 1100];

/// A disk with the old file on it, on which a replacement was begun after `prepare` and stopped after `steps`
/// operations; with it whether the replacement returned well.
fn replaced(steps: u64, prepare: impl Fn(&SimFileSystem)) -> (SimFileSystem, bool) {
    let fs = SimFileSystem::new(steps);
    fs.create_dir_all("/d".as_ref()).unwrap();
    fs.sync_dir("/".as_ref()).unwrap();
    atomic_replace(&fs, "/d/f".as_ref(), OLD).unwrap();
    fs.stop_after(steps);
    prepare(&fs);
    let is_finished = atomic_replace(&fs, "/d/f".as_ref(), NEW).is_ok();
    (fs, is_finished)
}

/// Operations of one replacement: make, cut, write, sync, rename, sync.
const STEPS: u64 = 6;

/// Stops the replacement after each operation in turn and examines all states. Returns how many of them had the old
/// bytes and how many the new ones, or the fault of the first bad one.
fn check_replacement(prepare: impl Fn(&SimFileSystem)) -> Result<[usize; 2], String> {
    let mut seen = [0, 0];
    for steps in 0..=STEPS {
        let (fs, is_finished) = replaced(steps, &prepare);
        let states = fs.crash_states(ALL);
        assert!(states.is_exhaustive());
        for state in states {
            match read_whole(&state, "/d/f".as_ref(), 1 << 20) {
                Ok(bytes) if bytes == NEW => seen[1] += 1,
                Ok(bytes) if bytes == OLD && !is_finished => seen[0] += 1,
                found => return Err(format!("step {steps}, finished {is_finished}: {found:?}")),
            }
            atomic_replace(&state, "/d/f".as_ref(), b"next").expect("nothing is in its way");
            state.crash();
            assert_eq!(read_whole(&state, "/d/f".as_ref(), 10).unwrap(), b"next");
        }
    }
    Ok(seen)
}

#[test]
fn a_replacement_whose_name_finds_no_space_is_undone() {
    let (fs, is_finished) = replaced(10 * STEPS, |fs| fs.refuse_renames(true));
    assert!(!is_finished);
    let error = atomic_replace(&fs, "/d/f".as_ref(), NEW).unwrap_err();
    assert!(matches!(error, ChangeError::Undone(_)), "{error}");
    assert_eq!(read_whole(&fs, "/d/f".as_ref(), 1 << 20).unwrap(), OLD);
    fs.refuse_renames(false);
    atomic_replace(&fs, "/d/f".as_ref(), NEW).unwrap();
    assert_eq!(read_whole(&fs, "/d/f".as_ref(), 1 << 20).unwrap(), NEW);
}

#[test]
fn a_replacement_is_old_or_new_in_every_state_at_every_step() {
    let (fs, is_finished) = replaced(STEPS, |_| {});
    assert!(is_finished && !replaced(STEPS - 1, |_| {}).1, "so many operations it is");
    assert_eq!(states(&fs).len(), 1);
    let [old, new] = check_replacement(|_| {}).unwrap();
    assert!(old > 20 && new > 1, "{old} states held the old bytes, {new} the new ones");
    for failing in 0..2 {
        check_replacement(|fs| fs.fail_sync_after(failing)).unwrap();
    }
    check_replacement(|fs| fs.fail_write_after(0)).unwrap();
}

#[test]
fn a_replacement_with_a_planted_bug_is_found_out() {
    check_replacement(|fs| fs.plant(PlantedBug::SkippedDirectorySync)).unwrap_err();
    check_replacement(|fs| {
        fs.plant(PlantedBug::IgnoredShortWrite);
        fs.fail_write_after(0);
    })
    .unwrap_err();
    for sync in 0..2 {
        check_replacement(|fs| {
            fs.plant(PlantedBug::RepeatedSync);
            fs.fail_sync_after(sync);
        })
        .unwrap_err();
    }
}
