//! Leader epochs of partitions over lives of the metadata: whatever the order of changes to topics, starts, snapshots, stops
//! and losses, a partition's epoch rises with each start and never goes back.

use std::collections::BTreeMap;

use riverrun_types::PartitionId;

use super::*;
use crate::metadata::testing::partition_path;

const NAMES: [&str; 3] = ["a", "b", "c"];
const LIVES: u64 = 60;
const STEPS: usize = 40;

fn epoch(image: &Image, name: &str, index: i32) -> i32 {
    image.cluster.leader_epoch(image.cluster.topic(name).expect("there"), index).0
}

fn grow(store: &Store, name: &str, total: i32) {
    store.change(|draft| draft.grow_topic(name, total)).expect("changed").expect("grown");
}

/// A server's metadata, and the epochs that its partitions were led in.
struct Machine {
    sim: SimEnv,
    store: Option<Store>,
    /// The largest epoch that each partition ever had.
    led_in: BTreeMap<PartitionId, i32>,
    /// Copies of the metadata to which it may be put back.
    copies: Vec<Vec<(PathBuf, Vec<u8>)>>,
    has_lost: bool,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let sim = SimEnv::new(seed);
        let store = Some(open(&sim.env()));
        Self { sim, store, led_in: BTreeMap::new(), copies: Vec::new(), has_lost: false }
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("it runs")
    }

    fn random(&self, count: usize) -> usize {
        usize::try_from(self.sim.env().random.next_u64() % count as u64).expect("a small number")
    }

    fn step(&mut self) {
        let (name, image) = (NAMES[self.random(NAMES.len())], self.store().image());
        let partitions = image.cluster.topic(name).map(|topic| (topic.id, topic.partition_count()));
        match (self.random(8), partitions) {
            (0..=1, None) => create(self.store(), name, 2).expect("made"),
            (0..=1, Some((_, count))) => grow(self.store(), name, count + 2),
            (2, Some((id, _))) => {
                self.store().change(|draft| draft.delete_topic(id).expect("there")).expect("changed");
            }
            (3, _) => self.store().snapshot(&mut self.store().writer.lock(), &self.store().image()),
            (4, _) => self.copies.push(self.copy()),
            (5, _) if !self.copies.is_empty() => self.lose(),
            (6, _) => {
                self.store().close().expect("closed");
                self.start();
            }
            (7, _) => self.start(),
            _ => {}
        }
        self.check(false);
    }

    fn start(&mut self) {
        self.store = None;
        self.sim.fs.crash();
        self.store = Some(open(&self.sim.env()));
        self.check(true);
    }

    fn copy(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let env = self.sim.env();
        let read = |path: PathBuf| {
            let bytes = read_whole(&*env.fs, &path, 1 << 20).expect("readable");
            (path, bytes)
        };
        files(&env).into_iter().map(read).collect()
    }

    /// Puts an older copy of the metadata back. Some of the partitions that it does not know have files, and are taken back.
    fn lose(&mut self) {
        let (env, copy) = (self.sim.env(), self.copies[self.random(self.copies.len())].clone());
        let image = self.store().image();
        for topic in image.cluster.topics() {
            for index in (0..topic.partition_count()).filter(|_| self.random(2) == 0) {
                let path = partition_path("/data/logs", topic.id, &index.to_string());
                env.fs.create_dir_all(&path).expect("made");
            }
        }
        self.store = None;
        env.fs.remove_dir_all(&options().dir).expect("removed");
        env.fs.create_dir_all(&options().dir).expect("made");
        let accept = (options().dir.join(ACCEPT_METADATA_LOSS_FILE), Vec::new());
        for (path, bytes) in copy.into_iter().chain([accept]) {
            let file = env.fs.open(&path, OpenMode::CreateNew).expect("made");
            file.write_all_at(&bytes, 0).expect("written");
        }
        self.store = Some(open(&env));
        self.has_lost = true;
        self.copies.clear();
        self.check(true);
    }

    /// Compares all epochs with those before.
    fn check(&mut self, has_started: bool) {
        let image = self.store().image();
        for topic in image.cluster.topics() {
            let is_new = !self.led_in.contains_key(&PartitionId { topic: topic.id, index: 0 });
            for index in 0..topic.partition_count() {
                let id = PartitionId { topic: topic.id, index };
                let LeaderEpoch(epoch) = image.cluster.leader_epoch(topic, index);
                match self.led_in.insert(id, epoch) {
                    Some(before) if has_started => assert!(epoch > before, "{id}: {epoch} after {before}"),
                    // A partition that was lost, and comes again without its files.
                    Some(before) => assert!(epoch >= before, "{id}: {epoch} after {before}"),
                    None => assert!(epoch == 0 || (self.has_lost && !is_new), "{id} begins at {epoch}"),
                }
            }
            assert_eq!(image.cluster.leader_epoch(topic, topic.partition_count()), LeaderEpoch::UNKNOWN);
        }
    }
}

#[test]
fn an_epoch_rises_with_each_start_and_never_goes_back() {
    let mut losses = 0;
    for seed in 0..LIVES {
        let mut machine = Machine::new(seed);
        (0..STEPS).for_each(|_| machine.step());
        losses += u64::from(machine.has_lost);
    }
    assert!(losses > LIVES / 4, "{losses} lives with a loss");
}

#[test]
fn each_partition_has_counted_the_starts_since_it_came_to_be() {
    let env = SimEnv::new(1).env();
    let store = open(&env);
    create(&store, "old", 1).expect("made");
    drop(store);
    let store = open(&env);
    grow(&store, "old", 2);
    grow(&store, "old", 4);
    create(&store, "new", 1).expect("made");
    assert_eq!([0, 1, 3].map(|index| epoch(&store.image(), "old", index)), [1, 0, 0]);
    assert_eq!(epoch(&store.image(), "new", 0), 0);
    store.snapshot(&mut store.writer.lock(), &store.image());
    drop(store);
    let store = open(&env);
    assert_eq!([0, 1, 3].map(|index| epoch(&store.image(), "old", index)), [2, 1, 1]);
    let id = store.image().cluster.topic("old").expect("there").id;
    store.change(|draft| draft.delete_topic(id).expect("deleted")).expect("changed");
    create(&store, "old", 2).expect("made anew");
    assert_eq!([0, 1].map(|index| epoch(&store.image(), "old", index)), [0, 0], "another topic");
    assert_eq!(store.image().cluster.added_partitions(), 3);
}
