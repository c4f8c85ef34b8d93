//! Installing the programs of the suites, each from its own registry with that registry's ordinary client.
//!
//! Everything is kept in `target/clients`: a stamp beside each install holds the inputs (versions, sources) it was made
//! from, so that a second run installs nothing. A registry that cannot be reached fails the run by name; nothing is
//! skipped.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};

use super::exec;

/// Time after which a registry is taken not to answer.
const INSTALL_LIMIT: Duration = Duration::from_mins(8);

/// Debian's browser.
pub(crate) const BROWSER: &str = "chromium";

/// How the server is compiled: a profile of `Cargo.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Built sooner: for checks of correctness.
    Release,
    /// As shipped: for measurements.
    Dist,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Dist => "dist",
        }
    }

    /// Longest clean build of the server, on two slow cores.
    fn build_limit(self) -> Duration {
        match self {
            Self::Release => Duration::from_mins(15),
            Self::Dist => Duration::from_mins(30),
        }
    }
}

/// One thing to install. The order is the order of starting: the slowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kit {
    /// Our server, in the toolbox's profile.
    Server,
    /// Kafka's jars and the compiled Java program.
    Java,
    /// The compiled Go program.
    Go,
    /// A virtual environment with librdkafka's Python binding.
    Python,
    /// A directory with kafkajs and our Node program.
    Node,
    /// `kcat` on the path.
    Kcat,
    /// A browser, and a directory with its driver and our program for it.
    Browser,
    /// `mkfs.ext4` on the path.
    Ext4,
    /// `mkfs.xfs` on the path.
    Xfs,
    /// `strace` on the path.
    Strace,
}

/// Paths of the checkout and of all installed programs, and the profile of the server.
pub(crate) struct Toolbox {
    checkout: PathBuf,
    cache: PathBuf,
    profile: Profile,
}

impl Toolbox {
    /// `checkout` is the root of the repository.
    pub(crate) fn new(checkout: PathBuf, profile: Profile) -> Self {
        let cache = checkout.join("target/clients");
        Self { checkout, cache, profile }
    }

    /// Data and logs of one run of the server.
    pub(crate) fn run_dir(&self) -> PathBuf {
        self.cache.join("run")
    }

    /// Data and logs of the benchmarks, kept apart from the suites' so that both can run at once.
    pub(crate) fn bench_dir(&self) -> PathBuf {
        self.checkout.join("target/bench")
    }

    /// Our server's binary.
    pub(crate) fn server_binary(&self) -> PathBuf {
        self.checkout.join("target").join(self.profile.name()).join("riverrun")
    }

    /// A Java virtual machine with Kafka's jars and our classes, tuned for a short life.
    pub(crate) fn java(&self, heap: &str) -> Command {
        let mut class_path = OsString::from(self.java_dir().join("classes"));
        class_path.push(":");
        class_path.push(self.java_dir().join("lib/*"));
        let mut command = Command::new("java");
        command
            .args(["-Xshare:auto", &format!("-Xmx{heap}"), "-Djava.awt.headless=true"])
            .arg(format!("-Dlog4j2.configurationFile={}", self.sources("log4j2.properties").display()))
            .arg("-cp")
            .arg(class_path);
        command
    }

    /// The Go program.
    pub(crate) fn go_program(&self) -> PathBuf {
        self.cache.join("go/client")
    }

    /// The Python of the virtual environment.
    pub(crate) fn python(&self) -> PathBuf {
        self.cache.join("python/venv/bin/python")
    }

    /// The Node program, beside its modules.
    pub(crate) fn node_program(&self) -> PathBuf {
        self.cache.join("node/main.js")
    }

    /// The program that operates a page, beside its modules.
    pub(crate) fn browser_program(&self) -> PathBuf {
        self.cache.join("browser/main.js")
    }

    /// A file or directory of `xtask/clients`.
    pub(crate) fn sources(&self, name: &str) -> PathBuf {
        self.checkout.join("xtask/clients").join(name)
    }

    fn java_dir(&self) -> PathBuf {
        self.cache.join("java")
    }

    /// Installs all of `kits` side by side; the first failures are reported together.
    pub(crate) fn install(&self, kits: &BTreeSet<Kit>) -> anyhow::Result<()> {
        let failures: Vec<String> = thread::scope(|scope| {
            let started: Vec<_> = kits.iter().map(|kit| scope.spawn(|| self.install_timed(*kit))).collect();
            let ended = started.into_iter().map(thread::ScopedJoinHandle::join);
            let results = ended.map(|result| result.unwrap_or_else(|_| Err(anyhow!("an install panicked"))));
            results.filter_map(|result| result.err().map(|error| format!("{error:#}"))).collect()
        });
        if !failures.is_empty() {
            bail!("not all could be installed\n{}", failures.join("\n"));
        }
        Ok(())
    }

    fn install_timed(&self, kit: Kit) -> anyhow::Result<()> {
        let begun = Instant::now();
        match kit {
            Kit::Server => self.build_server()?,
            Kit::Java => self.install_java()?,
            Kit::Go => self.install_go()?,
            Kit::Python => self.install_python()?,
            Kit::Node => self.install_node()?,
            Kit::Kcat => install_from_debian("kcat", "kcat", "-V")?,
            Kit::Browser => self.install_browser()?,
            Kit::Ext4 => install_from_debian("e2fsprogs", "mkfs.ext4", "-V")?,
            Kit::Xfs => install_from_debian("xfsprogs", "mkfs.xfs", "-V")?,
            Kit::Strace => install_from_debian("strace", "strace", "--version")?,
        }
        println!("ready {:<44} {:>7.2} s", format!("{kit:?}").to_lowercase(), begun.elapsed().as_secs_f64());
        Ok(())
    }

    fn build_server(&self) -> anyhow::Result<()> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.current_dir(&self.checkout).args([
            "build",
            "--quiet",
            "--profile",
            self.profile.name(),
            "--package",
            "riverrun-cli",
        ]);
        exec::run_ok(&mut build, b"", self.profile.build_limit()).context("the server does not build")?;
        Ok(())
    }

    fn install_java(&self) -> anyhow::Result<()> {
        let (pom, dir) = (self.sources("kafka-pom.xml"), self.java_dir());
        once(&dir.join("lib"), &fs::read_to_string(&pom)?, |lib| {
            let mut copy = Command::new("mvn");
            copy.args(["--quiet", "--batch-mode", "--file"]).arg(&pom);
            copy.arg("dependency:copy-dependencies");
            copy.arg(format!("-DoutputDirectory={}", lib.display()));
            from_registry("Maven Central", "Kafka's jars", &mut copy)
        })?;
        let sources = files_of(&self.sources("java"), "java")?;
        once(&dir.join("classes"), &contents_of(&sources)?, |classes| {
            let mut compile = Command::new("javac");
            compile
                .args(["-Xlint:all,-processing", "-Werror", "--release", "17", "-cp"])
                .arg(dir.join("lib/*"));
            compile.arg("-d").arg(classes).args(&sources);
            exec::run_ok(&mut compile, b"", INSTALL_LIMIT).context("the Java program does not compile")?;
            Ok(())
        })
    }

    fn install_go(&self) -> anyhow::Result<()> {
        let source = self.sources("go");
        let mut download = Command::new("go");
        download.current_dir(&source).args(["mod", "download"]);
        from_registry("the Go module proxy", "franz-go", &mut download)?;
        let mut build = Command::new("go");
        build.current_dir(&source).args(["build", "-mod=readonly", "-buildvcs=false", "-o"]);
        exec::run_ok(build.arg(self.go_program()).arg("."), b"", INSTALL_LIMIT)
            .context("the Go program does not compile")?;
        Ok(())
    }

    fn install_python(&self) -> anyhow::Result<()> {
        let requirements = self.sources("python/requirements.txt");
        once(&self.cache.join("python/venv"), &fs::read_to_string(&requirements)?, |venv| {
            let mut create = Command::new("python3");
            exec::run_ok(create.args(["-m", "venv"]).arg(venv), b"", INSTALL_LIMIT)
                .context("python3 cannot make a virtual environment")?;
            let mut install = Command::new(venv.join("bin/python"));
            install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
            from_registry("PyPI", "confluent-kafka", install.arg("--requirement").arg(&requirements))
        })
    }

    fn install_node(&self) -> anyhow::Result<()> {
        self.install_modules("node", "kafkajs")
    }

    fn install_browser(&self) -> anyhow::Result<()> {
        install_from_debian("chromium", BROWSER, "--version")?;
        self.install_modules("browser", "playwright-core")
    }

    /// A Node program of `xtask/clients` with the modules that its lock file names.
    fn install_modules(&self, name: &str, what: &str) -> anyhow::Result<()> {
        let (dir, source) = (self.cache.join(name), self.sources(name));
        let locks = [source.join("package.json"), source.join("package-lock.json")];
        once(&dir, &contents_of(&locks)?, |dir| {
            copy_into(dir, &locks)?;
            let mut install = Command::new("npm");
            install.current_dir(dir).args([
                "ci",
                "--loglevel=error",
                "--no-audit",
                "--no-fund",
                "--ignore-scripts",
            ]);
            from_registry("the npm registry", what, &mut install)
        })?;
        copy_into(&dir, &files_of(&source, "js")?)
    }
}

/// Installs a package of Debian unless its program exists already.
fn install_from_debian(package: &str, program: &str, version_flag: &str) -> anyhow::Result<()> {
    if Command::new(program).arg(version_flag).output().is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    let update = ["update", "--quiet"].as_slice();
    let install = ["install", "--yes", "--quiet", "--no-install-recommends", package];
    for arguments in [update, &install] {
        let mut apt = Command::new("apt-get");
        apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        from_registry("the Debian mirror", package, &mut apt)?;
    }
    Ok(())
}

/// Makes `dir` with `make` unless it was made from the same `inputs` before. The stamp is written last, so that an
/// interrupted run starts over.
fn once(dir: &Path, inputs: &str, make: impl FnOnce(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let stamp = dir.with_extension("stamp");
    if fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == inputs) {
        return Ok(());
    }
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("could not clear {}", dir.display()))?;
    }
    fs::create_dir_all(dir).with_context(|| format!("could not make {}", dir.display()))?;
    make(dir)?;
    fs::write(&stamp, inputs).with_context(|| format!("could not write {}", stamp.display()))
}

fn from_registry(registry: &str, what: &str, command: &mut Command) -> anyhow::Result<()> {
    let message = || format!("{what} could not be fetched from {registry}; is it reachable from here?");
    exec::run_ok(command, b"", INSTALL_LIMIT).with_context(message)?;
    Ok(())
}

fn files_of(dir: &Path, extension: &str) -> anyhow::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("could not read {}", dir.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    let mut files: Vec<_> =
        paths.into_iter().filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    files.sort();
    Ok(files)
}

fn contents_of(files: &[PathBuf]) -> anyhow::Result<String> {
    let read = |file: &PathBuf| fs::read_to_string(file).with_context(|| format!("{}", file.display()));
    files.iter().map(read).collect()
}

fn copy_into(dir: &Path, files: &[PathBuf]) -> anyhow::Result<()> {
    for file in files {
        let name = file.file_name().context("a file to copy has no name")?;
        fs::copy(file, dir.join(name)).with_context(|| format!("could not copy {}", file.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn install_is_repeated_only_after_a_change_or_a_failure() {
        let parent = std::env::temp_dir().join(format!("xtask-once-{}", std::process::id()));
        let (dir, mut made) = (parent.join("kit"), 0);
        for inputs in ["1", "1", "2"] {
            once(&dir, inputs, |_| {
                made += 1;
                Ok(())
            })
            .unwrap();
        }
        assert_eq!(made, 2);
        once(&dir, "3", |_| bail!("no network")).unwrap_err();
        once(&dir, "3", |_| {
            made += 1;
            Ok(())
        })
        .unwrap();
        fs::remove_dir_all(&parent).unwrap();
        assert_eq!(made, 3);
    }

    #[test]
    fn a_registry_that_fails_is_named() {
        let error = from_registry("Example Registry", "a package", &mut Command::new("false")).unwrap_err();
        assert!(
            format!("{error:#}").contains("a package could not be fetched from Example Registry"),
            "{error:#}"
        );
    }
}
