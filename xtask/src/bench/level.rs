//! The durability levels at which our server is measured, and how each is named beside every figure.

use clap::ValueEnum;

use crate::clients::server::ServerKind;

/// What an acked record of our server survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Level {
    /// A crash of the process: what Kafka promises by default, which leaves syncing to the system
    #[value(name = "4")]
    PageCache,
    /// Loss of power, where Kafka stays at its default
    #[value(name = "1")]
    Synced,
}

impl Level {
    /// As the server's options have it.
    pub(super) fn number(self) -> &'static str {
        match self {
            Self::PageCache => "4",
            Self::Synced => "1",
        }
    }

    /// What makes a server of ours one of this level.
    pub(super) fn setting(self) -> String {
        format!("default.durability={}", self.number())
    }

    /// What makes a topic of ours one of this level.
    pub(super) fn topic_configs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::PageCache => &[("durability", "4")],
            Self::Synced => &[("durability", "1")],
        }
    }

    /// What is printed beside every figure of ours.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::PageCache => "4 page cache",
            Self::Synced => "1 synced",
        }
    }

    /// The same beside a figure of either server, where ours has this level and Kafka its default: levels are not Kafka's.
    pub(super) fn beside(self, server: ServerKind) -> &'static str {
        match server {
            ServerKind::Riverrun => self.name(),
            ServerKind::Kafka => KAFKA_DEFAULT,
        }
    }
}

/// What Kafka's default promises.
pub(super) const KAFKA_DEFAULT: &str = "page cache";
