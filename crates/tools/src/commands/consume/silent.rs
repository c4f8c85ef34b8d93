//! Partitions that do not answer: since when, what is said of them, and when they are given up. The others are read
//! meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use riverrun_client::{ClientError, TopicPartition, Trouble};

use crate::exit::{Exit, Failure};
use crate::logging;

/// Time after which trouble is shown.
const TELL_AFTER: Duration = Duration::from_secs(2);
/// Partitions that an error names at most.
const NAMED_MAX: usize = 10;
const ADVICE: &str = "--timeout with more seconds, or look at the server's log";

/// The partitions in trouble, and those that were given up.
///
/// Invariants: all that is in `told` and `given_up` is in trouble; it leaves both when it answers again.
pub(super) struct Silent {
    /// How long something may not work; without a bound, nothing is given up.
    patience: Option<Duration>,
    told: BTreeSet<TopicPartition>,
    given_up: BTreeMap<TopicPartition, ClientError>,
    /// Whether the trouble of all partitions was shown.
    told_all: bool,
}

impl Silent {
    pub(super) fn new(patience: Option<Duration>) -> Self {
        Self { patience, told: BTreeSet::new(), given_up: BTreeMap::new(), told_all: false }
    }

    /// Takes in the trouble that there is now, and tells each only once. Fails when what keeps all partitions from being
    /// read has lasted for too long.
    pub(super) fn take(&mut self, troubles: Vec<(Option<TopicPartition>, Trouble)>) -> Result<(), Failure> {
        let mut of_all = None;
        let mut of_one = BTreeMap::new();
        for (partition, trouble) in troubles {
            match partition {
                // The server is there, and says that this partition is not, or has said so. Of one that has been silent for
                // long nobody learns for how long the server is away.
                Some(partition) if trouble.error.code().is_some() || self.told.contains(&partition) => {
                    of_one.insert(partition, trouble);
                }
                _ => of_all = longest(of_all, trouble),
            }
        }
        self.take_partitions(of_one);
        self.take_all(of_all)
    }

    fn tells(&self, trouble: &Trouble) -> bool {
        trouble.lasts() >= self.patience.map_or(TELL_AFTER, |patience| TELL_AFTER.min(patience))
    }

    fn gives_up(&self, trouble: &Trouble) -> bool {
        self.patience.is_some_and(|patience| trouble.lasts() >= patience)
    }

    fn take_partitions(&mut self, troubles: BTreeMap<TopicPartition, Trouble>) {
        for back in self.told.extract_if(.., |partition| !troubles.contains_key(partition)) {
            logging::note(&format!("{back} answers again"));
        }
        self.given_up.retain(|partition, _| troubles.contains_key(partition));
        for (partition, trouble) in troubles {
            if self.tells(&trouble) && self.told.insert(partition.clone()) {
                logging::note(&format!("{partition} does not answer, and is tried again: {}", trouble.error));
            }
            if self.gives_up(&trouble) {
                self.given_up.insert(partition, trouble.error);
            }
        }
    }

    fn take_all(&mut self, trouble: Option<Trouble>) -> Result<(), Failure> {
        let Some(trouble) = trouble.filter(|trouble| self.tells(trouble)) else {
            if std::mem::take(&mut self.told_all) {
                logging::note("reading goes on");
            }
            return Ok(());
        };
        if self.gives_up(&trouble) {
            let after = format!("given up after {} s", trouble.lasts().as_secs());
            return Err(Failure::from(trouble.error).about(after).advise(ADVICE));
        }
        if !std::mem::replace(&mut self.told_all, true) {
            logging::note(&format!("trying again: {}", trouble.error));
        }
        Ok(())
    }

    /// Whether it has not answered for too long.
    pub(super) fn has_given_up(&self, partition: &TopicPartition) -> bool {
        self.given_up.contains_key(partition)
    }

    /// The failure to report where the rest has been read.
    pub(super) fn failure(&self) -> Option<Failure> {
        let (_, error) = self.given_up.first_key_value()?;
        let names: Vec<_> = self.given_up.keys().take(NAMED_MAX).map(ToString::to_string).collect();
        let more = match self.given_up.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!(
            "{}{more}: no answer for {} s, and so not read to the end: {error}",
            names.join(", "),
            self.patience.unwrap_or_default().as_secs()
        );
        Some(Failure::new(Exit::Unreachable, text).advise(ADVICE))
    }
}

fn longest(one: Option<Trouble>, other: Trouble) -> Option<Trouble> {
    one.into_iter().chain([other]).max_by_key(Trouble::lasts)
}
