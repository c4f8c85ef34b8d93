//! The machine that a figure was measured on, so that the figure can be compared with the machine's limits.
//!
//! Owns the record that every result carries: processor, kernel, file system, the kernel's `vm.*` settings, short
//! measurements of the disk ([`disk`]) and of the loopback interface ([`loopback`]), versions, and the durability level
//! wanted and reached ([`durability`]). A fact that cannot be found out is left out, also one of a server on another
//! machine; nothing is guessed.

pub mod disk;
pub mod durability;
mod locality;
pub mod loopback;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use serde::Serialize;

pub use self::disk::DiskFigures;
pub use self::durability::TopicDurability;
pub use self::locality::is_here;
pub use self::loopback::LoopbackFigures;

/// The settings that decide when written pages go to the disk, and how memory is used.
const VM_SETTINGS: [&str; 9] = [
    "dirty_background_bytes",
    "dirty_background_ratio",
    "dirty_bytes",
    "dirty_expire_centisecs",
    "dirty_ratio",
    "dirty_writeback_centisecs",
    "max_map_count",
    "overcommit_memory",
    "swappiness",
];

/// A machine with a higher load average before the runs was not idle.
const IDLE_LOAD: f64 = 0.5;

/// The machine, and the best of its parts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Environment {
    /// Processors that the measuring process may use.
    pub cores: usize,
    /// The processor's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// Memory of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Name and release of the operating system's kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Processes that ran or waited to run, on average over the minute before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_average: Option<f64>,
    /// The kernel's `vm.*` settings, by name.
    pub vm: BTreeMap<String, String>,
    /// The kernel's setting for transparent huge pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transparent_hugepage: Option<String>,
    /// File system of the servers' data, if their directory was named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_system: Option<FileSystem>,
    /// Measurement of the disk under that directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskFigures>,
    /// The system's default congestion control, which decides whether a TCP connection is paced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_congestion_control: Option<String>,
    /// Measurement of TCP over the loopback interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loopback: Option<LoopbackFigures>,
    /// The client that measures.
    pub client: String,
    /// The servers that were measured.
    pub servers: Vec<ServerRecord>,
}

/// A server that was measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ServerRecord {
    /// Its name in the result.
    pub name: String,
    /// Its bootstrap addresses.
    pub bootstrap: String,
    /// Program and version; `None` if not named and not found out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub software: Option<String>,
    /// Whether the server's process was named to the runner.
    #[serde(skip)]
    pub is_watched: bool,
    /// Whether it runs on another machine than the one of this record.
    #[serde(rename = "elsewhere", skip_serializing_if = "std::ops::Not::not")]
    pub is_elsewhere: bool,
    /// Durability of the records, wanted and reached, by topic.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub durability: BTreeMap<String, TopicDurability>,
}

/// The file system that a directory lies on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FileSystem {
    /// The directory.
    pub directory: String,
    /// Mount point of its file system.
    pub mounted_at: String,
    /// Its type: `ext4`, `xfs`, `tmpfs` and so on.
    pub kind: String,
    /// The device or other source of the file system.
    pub source: String,
    /// Mount options.
    pub options: String,
}

impl Environment {
    /// Warnings for a reader of the figures: facts that this record lacks, and that the machine was busy.
    pub fn notes(&self) -> impl Iterator<Item = &str> {
        let is_elsewhere = self.servers.iter().any(|server| server.is_elsewhere);
        let unknown = |watched| {
            let of = move |server: &ServerRecord| server.software.is_none() && server.is_watched == watched;
            !is_elsewhere && self.servers.iter().any(of)
        };
        let (unnamed, strange, no_disk) =
            (unknown(false), unknown(true), self.disk.is_none() && !is_elsewhere);
        let elsewhere = "the server is on another machine: the machine described here is the client's; the server's disk and version, and its share of loopback TCP, are not known";
        let disk = "the servers' disk was not measured: --data-dir says where their data is";
        let software = "the server's version is not known: name its process, as NAME=HOST:PORT@PID";
        let program = "the server's version is not known: its process has no library of Apache Kafka open, and does not answer --version as riverrun does";
        let is_busy = self.load_average.is_some_and(|load| load > IDLE_LOAD);
        let busy = "the machine was busy in the minute before: see its load average";
        let notes = [
            (is_elsewhere, elsewhere),
            (no_disk, disk),
            (unnamed, software),
            (strange, program),
            (is_busy, busy),
        ];
        notes.into_iter().filter_map(|(applies, note)| applies.then_some(note))
    }

    /// The part of the record that describes a run on this server. `is_load_here`: this machine produces the load.
    #[must_use]
    pub fn of_run(&self, server: ServerRecord, is_load_here: bool) -> Self {
        let is_server_here = !server.is_elsewhere;
        Self {
            file_system: self.file_system.clone().filter(|_| is_server_here),
            disk: self.disk.filter(|_| is_server_here),
            loopback: self.loopback.filter(|_| is_server_here && is_load_here),
            servers: vec![server],
            ..self.clone()
        }
    }

    /// Collects the facts that need no measurement; `data_dir` is the directory of the servers' data.
    pub fn look(data_dir: Option<&Path>) -> Self {
        let kernel_name = |file: &str| read(&format!("/proc/sys/kernel/{file}"));
        let memory = field_of("/proc/meminfo", "MemTotal");
        let memory_kib = memory.and_then(|text| text.strip_suffix("kB")?.trim().parse::<u64>().ok());
        let load = read("/proc/loadavg");
        Self {
            cores: std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
            cpu_model: cpu_model(),
            memory_bytes: memory_kib.map(|kib| kib * 1024),
            kernel: kernel_name("ostype")
                .zip(kernel_name("osrelease"))
                .map(|(name, release)| format!("{name} {release}")),
            load_average: load.and_then(|text| text.split_whitespace().next()?.parse().ok()),
            vm: vm_settings(),
            transparent_hugepage: read("/sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| chosen(&text)),
            tcp_congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            file_system: data_dir.and_then(FileSystem::of),
            client: format!("riverrun-client {}", env!("CARGO_PKG_VERSION")),
            ..Self::default()
        }
    }
}

impl FileSystem {
    /// The file system of a directory that exists; `None` if the system does not name it.
    pub fn of(directory: &Path) -> Option<Self> {
        let directory = directory.canonicalize().ok()?;
        Self::find(&read("/proc/self/mountinfo")?, &directory)
    }

    /// The innermost mount; of two at one mount point the later hides the earlier.
    fn find(mounts: &str, directory: &Path) -> Option<Self> {
        let mut found: Option<Self> = None;
        for line in mounts.lines() {
            let Some(mount) = parse_mount(line, directory) else { continue };
            if found.as_ref().is_none_or(|best| best.mounted_at.len() <= mount.mounted_at.len()) {
                found = Some(mount);
            }
        }
        found
    }
}

/// A line of `mountinfo`: id, parent, device, root, mount point, options, tags, `-`, type, source, its options.
fn parse_mount(line: &str, directory: &Path) -> Option<FileSystem> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(4);
    let (mounted_at, options) = (unescape(before.next()?), before.next()?);
    let mut after = after.split(' ');
    let (kind, source, own_options) = (after.next()?, unescape(after.next()?), after.next().unwrap_or(""));
    directory.starts_with(&mounted_at).then(|| FileSystem {
        directory: directory.display().to_string(),
        mounted_at,
        kind: kind.to_owned(),
        source,
        options: format!("{options},{own_options}"),
    })
}

/// Blanks and backslashes in a path are written in octal.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

fn vm_settings() -> BTreeMap<String, String> {
    let setting = |name: &&str| Some(((*name).to_owned(), read(&format!("/proc/sys/vm/{name}"))?));
    VM_SETTINGS.iter().filter_map(setting).collect()
}

/// A processor without a name, as is common on other architectures, is named by the parts of its id.
fn cpu_model() -> Option<String> {
    field_of("/proc/cpuinfo", "model name").or_else(|| {
        let implementer = field_of("/proc/cpuinfo", "CPU implementer")?;
        let part = field_of("/proc/cpuinfo", "CPU part")?;
        Some(format!("{} implementer {implementer} part {part}", std::env::consts::ARCH))
    })
}

fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The value of the first `name : value` line of a file.
fn field_of(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let (_, value) = text.lines().find_map(|line| line.strip_prefix(name)?.split_once(':'))?;
    Some(value.trim().to_owned())
}

/// The word in brackets, as in `always [madvise] never`.
fn chosen(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// For people, one fact a line.
impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = || "unknown".to_owned();
        let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
        let cpu = self.cpu_model.clone().unwrap_or_else(unknown);
        let memory = self.memory_bytes.map_or_else(unknown, gib);
        writeln!(f, "machine      {} cores, {cpu}, memory {memory}", self.cores)?;
        let load = self.load_average.map_or_else(unknown, |load| format!("{load:.2}"));
        let kernel = self.kernel.clone().unwrap_or_else(unknown);
        writeln!(f, "kernel       {kernel}, load average {load}")?;
        if let Some(FileSystem { kind, source, options, .. }) = &self.file_system {
            writeln!(f, "file system  {kind} on {source} ({options})")?;
        }
        if let Some(disk) = &self.disk {
            writeln!(f, "disk         {disk}")?;
        }
        if let Some(loopback) = &self.loopback {
            writeln!(f, "loopback     {loopback}")?;
        }
        let vm: Vec<_> = self.vm.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if let Some(control) = &self.tcp_congestion_control {
            writeln!(f, "tcp          congestion control {control}")?;
        }
        writeln!(f, "vm           {}", vm.join(" "))?;
        writeln!(f, "client       {}", self.client)?;
        for ServerRecord { name, bootstrap, software, .. } in &self.servers {
            writeln!(f, "server       {name}: {} at {bootstrap}", software.as_deref().unwrap_or("unknown"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 22 0:25 / /data rw - tmpfs tmpfs rw,size=1k
31 22 8:17 /sub /data rw,noatime - xfs /dev/sdb1 rw,attr2
32 22 8:33 / /data\\040two rw - ext4 /dev/sdc1 rw
33 22 8:33 / /datax rw - btrfs /dev/sdd1 rw";

    #[test]
    fn innermost_and_latest_mount_is_found() {
        let find = |path: &str| FileSystem::find(MOUNTS, Path::new(path)).expect("a mount");
        let found = find("/data/logs");
        let expected = FileSystem {
            directory: "/data/logs".into(),
            mounted_at: "/data".into(),
            kind: "xfs".into(),
            source: "/dev/sdb1".into(),
            options: "rw,noatime,rw,attr2".into(),
        };
        assert_eq!(found, expected);
        assert_eq!(find("/data two/x").source, "/dev/sdc1");
        assert_eq!((find("/dataxy").kind, find("/datax").kind), ("ext4".into(), "btrfs".into()));
    }

    #[test]
    fn the_chosen_word_stands_in_brackets() {
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(chosen("always"), None);
    }

    #[test]
    fn notes_name_an_unknown_disk_and_server() {
        let server = |software: Option<&str>| ServerRecord {
            software: software.map(str::to_owned),
            ..ServerRecord::default()
        };
        let disk = DiskFigures {
            sequential_bytes: 1,
            sequential_bytes_per_s: 1.0,
            page_cache_bytes_per_s: 1.0,
            sync_4k: riverrun_measure::histogram::LatencySummary::default(),
        };
        let told = |disk, software| {
            let environment = Environment { disk, servers: vec![server(software)], ..Environment::default() };
            environment.notes().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(told(Some(disk), Some("s 1")), Vec::<String>::new());
        let (of_disk, of_software) = (told(None, Some("s 1")), told(Some(disk), None));
        assert!(of_disk.len() == 1 && of_disk[0].contains("--data-dir"), "{of_disk:?}");
        assert!(of_software.len() == 1 && of_software[0].contains("@PID"), "{of_software:?}");
        assert_eq!(told(None, None), [of_disk, of_software].concat());
    }

    #[test]
    fn record_of_a_remote_server_leaves_out_this_machine() {
        let disk = DiskFigures {
            sequential_bytes: 1,
            sequential_bytes_per_s: 1.0,
            page_cache_bytes_per_s: 1.0,
            sync_4k: riverrun_measure::histogram::LatencySummary::default(),
        };
        let loopback = LoopbackFigures { bytes_per_s: 1.0, unpaced_bytes_per_s: None };
        let all = Environment {
            file_system: Some(FileSystem::default()),
            disk: Some(disk),
            loopback: Some(loopback),
            ..Environment::default()
        };
        let of_run = |is_elsewhere, is_load_here| {
            let server = ServerRecord { is_elsewhere, ..ServerRecord::default() };
            let found = all.of_run(server, is_load_here);
            let notes: Vec<_> = found.notes().map(str::to_owned).collect();
            ((found.file_system.is_some(), found.disk.is_some(), found.loopback.is_some()), notes)
        };
        assert_eq!(of_run(false, true).0, (true, true, true));
        assert_eq!(of_run(false, false).0, (true, true, false), "the load came from another machine");
        let (told, notes) = of_run(true, true);
        assert_eq!(told, (false, false, false));
        assert!(notes.len() == 1 && notes[0].starts_with("the server is on another machine"), "{notes:?}");
    }

    #[test]
    fn a_machine_that_was_busy_before_is_noted() {
        let busy = |load_average| {
            let environment = Environment { load_average, ..Environment::default() };
            environment.notes().any(|note| note.contains("busy"))
        };
        assert_eq!([None, Some(0.3), Some(2.5)].map(busy), [false, false, true]);
    }

    #[test]
    fn a_note_says_why_a_server_s_version_is_not_known() {
        let told = |software: Option<&str>, is_watched| {
            let server =
                ServerRecord { software: software.map(str::to_owned), is_watched, ..ServerRecord::default() };
            let environment = Environment { servers: vec![server], ..Environment::default() };
            environment.notes().filter(|note| note.contains("version")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(told(None, false)[0].contains("NAME=HOST:PORT@PID"));
        let watched = told(None, true);
        assert!(watched.len() == 1 && watched[0].contains("does not answer --version"), "{watched:?}");
        assert!(told(Some("x"), true).is_empty());
    }

    #[test]
    fn look_finds_the_facts_of_this_machine() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::look(Some(dir.path()));
        assert!(environment.cores > 0 && environment.kernel.is_some());
        assert!(environment.memory_bytes.is_some_and(|bytes| bytes > 1 << 20));
        assert!(environment.vm.contains_key("swappiness"), "{:?}", environment.vm);
        assert!(environment.file_system.as_ref().is_some_and(|found| !found.kind.is_empty()));
        let json = serde_json::to_value(&environment).unwrap();
        assert_eq!(json.get("disk"), None, "a figure that was not measured is left out");
        assert!(environment.to_string().contains("swappiness="), "{environment}");
    }
}
