//! The durability levels at which our server is measured, and their names beside every figure.

use clap::ValueEnum;

use crate::clients::server::ServerKind;

/// The failure that an acked record of our server survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Level {
    /// A crash of the process: Kafka's promise by default, which leaves syncing to the system
    #[value(name = "4")]
    PageCache,
    /// Loss of power, where Kafka stays at its default
    #[value(name = "1")]
    Synced,
}

impl Level {
    /// Its number in the server's options.
    pub(super) fn number(self) -> &'static str {
        match self {
            Self::PageCache => "4",
            Self::Synced => "1",
        }
    }

    /// The setting that gives a server of ours this level.
    pub(super) fn setting(self) -> String {
        format!("default.durability={}", self.number())
    }

    /// The configs that give a topic of ours this level.
    pub(super) fn topic_configs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::PageCache => &[("durability", "4")],
            Self::Synced => &[("durability", "1")],
        }
    }

    /// Its name, printed beside every figure of ours.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::PageCache => "4 page cache",
            Self::Synced => "1 synced",
        }
    }

    /// The name beside a figure of either server, with Kafka at its default, because levels are not Kafka's.
    pub(super) fn beside(self, server: ServerKind) -> &'static str {
        match server {
            ServerKind::Riverrun => self.name(),
            ServerKind::Kafka => KAFKA_DEFAULT,
        }
    }
}

/// The promise of Kafka's default.
pub(super) const KAFKA_DEFAULT: &str = "page cache";
