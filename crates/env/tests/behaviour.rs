//! One table of behaviours that the real and the simulated file system both have to show.

use std::io::{self, ErrorKind, IoSlice};
use std::os::unix::fs::symlink;
use std::path::Path;

use riverrun_env::sim::SimFileSystem;
use riverrun_env::{
    AlignedBuffer, FileSystem, OpenMode, RealFileSystem, atomic_replace, is_device_error, is_odd_file,
    is_shortage, read_whole,
};

type Check = fn(&dyn FileSystem, &Path) -> io::Result<()>;

/// Name and check of each behaviour; a check gets an empty directory of its own.
const BEHAVIOURS: &[(&str, Check)] = &[
    ("bytes written at a position are read there", write_then_read),
    ("a gap reads as zeros", gap_is_zero),
    ("gathered slices follow each other", gathered_write),
    ("reading past the end gives less, and exact reads fail", read_past_end),
    ("a cut file that grows again holds zeros", cut_and_grow),
    ("open modes differ in what they make and refuse", open_modes),
    ("a handle for reading refuses writes", read_only),
    ("a missing directory is an error", missing_directory),
    ("a directory lists its entries with sizes", listing),
    ("a rename replaces a file and moves a directory", renames),
    ("a removed file stays readable through its handle", removed_file),
    ("a directory goes with all in it", removed_directory),
    ("a lock has one holder and ends with it", locking),
    ("an atomic replacement leaves no other file", replacement),
    ("a file above its bound is not read", bounded_read),
    ("a durable write is read like any other", durable_write),
    ("a file past the page cache takes aligned blocks only", direct),
    ("a file is known by its identity, whatever its name", identities),
    ("a directory is known by its identity, and makes others in itself", removed_and_made_directory),
    ("a directory is no file, and a file no directory", odd_files),
    ("syncs of files, directories and volumes succeed", syncs),
];

#[test]
fn real_and_simulated_files_behave_alike() {
    for (name, check) in BEHAVIOURS {
        let directory = tempfile::tempdir().unwrap();
        check(&RealFileSystem, directory.path()).unwrap_or_else(|error| panic!("real: {name}: {error}"));
        let sim = SimFileSystem::new(1);
        let path = Path::new("/some/dir");
        sim.create_dir_all(path).unwrap();
        check(&sim, path).unwrap_or_else(|error| panic!("simulated: {name}: {error}"));
    }
}

/// The simulated file system has no links.
#[test]
fn a_link_is_listed_as_what_it_leads_to() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::create_dir(at("dir")).unwrap();
    std::fs::write(at("file"), [7; 1000]).unwrap();
    for (to, link) in
        [("dir", "dir link"), ("file", "file link"), ("nothing", "dead link"), ("round", "round")]
    {
        symlink(at(to), at(link)).unwrap();
    }
    let mut entries = RealFileSystem.read_dir(directory.path()).unwrap();
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    let listed: Vec<_> = entries.iter().map(|entry| (entry.name.to_str().unwrap(), entry.is_dir)).collect();
    let expected = [
        ("dead link", false),
        ("dir", true),
        ("dir link", true),
        ("file", false),
        ("file link", false),
        ("round", false),
    ];
    assert_eq!(listed, expected);
    assert_eq!([1, 2, 3, 4].map(|index: usize| entries[index].len), [0, 0, 1000, 1000]);
}

fn kind<T>(result: io::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

fn write_then_read(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    let file = fs.open(&dir.join("f"), OpenMode::CreateNew)?;
    file.write_all_at(b"hello world", 0)?;
    file.write_all_at(b"W", 6)?;
    let mut buffer = [0; 5];
    file.read_exact_at(&mut buffer, 6)?;
    assert_eq!(&buffer, b"World");
    assert_eq!((file.len()?, file.is_empty()?), (11, false));
    Ok(())
}

fn gap_is_zero(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    let file = fs.open(&dir.join("f"), OpenMode::CreateNew)?;
    assert!(file.is_empty()?);
    file.write_all_at(b"x", 3)?;
    assert_eq!(read_whole(fs, &dir.join("f"), 10)?, b"\0\0\0x");
    Ok(())
}

fn gathered_write(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    let file = fs.open(&dir.join("f"), OpenMode::CreateNew)?;
    let mut slices = [IoSlice::new(b""), IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cde")];
    file.write_vectored_all_at(&mut slices, 1)?;
    file.write_vectored_all_at(&mut [IoSlice::new(b"")], 9)?;
    assert_eq!(read_whole(fs, &dir.join("f"), 10)?, b"\0abcde");
    Ok(())
}

fn read_past_end(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    let file = fs.open(&dir.join("f"), OpenMode::CreateNew)?;
    file.write_all_at(b"abc", 0)?;
    let mut buffer = [0; 8];
    assert_eq!(file.read_at(&mut buffer, 1)?, 2);
    assert_eq!(file.read_at(&mut buffer, 100)?, 0);
    assert_eq!(kind(file.read_exact_at(&mut buffer, 1)), Some(ErrorKind::UnexpectedEof));
    Ok(())
}

fn cut_and_grow(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    let file = fs.open(&dir.join("f"), OpenMode::CreateNew)?;
    file.write_all_at(b"abcdef", 0)?;
    file.set_len(2)?;
    file.set_len(4)?;
    assert_eq!(read_whole(fs, &dir.join("f"), 10)?, b"ab\0\0");
    Ok(())
}

fn open_modes(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    let path = dir.join("f");
    assert_eq!(kind(fs.open(&path, OpenMode::Read)), Some(ErrorKind::NotFound));
    assert_eq!(kind(fs.open(&path, OpenMode::ReadWrite)), Some(ErrorKind::NotFound));
    fs.open(&path, OpenMode::CreateOrOpen)?.write_all_at(b"kept", 0)?;
    assert_eq!(kind(fs.open(&path, OpenMode::CreateNew)), Some(ErrorKind::AlreadyExists));
    assert_eq!(fs.open(&path, OpenMode::CreateOrOpen)?.len()?, 4);
    assert_eq!(fs.open(&path, OpenMode::ReadWrite)?.len()?, 4);
    Ok(())
}

fn read_only(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    fs.open(&dir.join("f"), OpenMode::CreateNew)?.write_all_at(b"abc", 0)?;
    let file = fs.open(&dir.join("f"), OpenMode::Read)?;
    assert!(file.write_all_at(b"x", 0).is_err());
    assert!(file.set_len(0).is_err());
    assert_eq!(file.len()?, 3);
    Ok(())
}

fn missing_directory(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    let path = dir.join("none").join("f");
    assert_eq!(kind(fs.open(&path, OpenMode::CreateNew)), Some(ErrorKind::NotFound));
    assert_eq!(kind(fs.read_dir(&dir.join("none"))), Some(ErrorKind::NotFound));
    assert_eq!(kind(fs.rename(&dir.join("a"), &dir.join("b"))), Some(ErrorKind::NotFound));
    assert_eq!(kind(fs.remove_file(&path)), Some(ErrorKind::NotFound));
    assert!(!fs.exists(&path)?);
    Ok(())
}

fn listing(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    fs.create_dir_all(&dir.join("a").join("b"))?;
    fs.create_dir_all(&dir.join("a"))?;
    fs.open(&dir.join("f"), OpenMode::CreateNew)?.write_all_at(b"abc", 0)?;
    let mut entries = fs.read_dir(dir)?;
    entries.sort_by(|left, right| left.name.cmp(&right.name));
    let seen: Vec<_> =
        entries.iter().map(|e| (e.name.to_str().expect("a plain name"), e.is_dir, e.len)).collect();
    assert_eq!(seen, [("a", true, 0), ("f", false, 3)]);
    assert!(fs.exists(&dir.join("a").join("b"))?);
    Ok(())
}

fn renames(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    fs.open(&dir.join("old"), OpenMode::CreateNew)?.write_all_at(b"old", 0)?;
    fs.open(&dir.join("new"), OpenMode::CreateNew)?.write_all_at(b"new!", 0)?;
    fs.rename(&dir.join("new"), &dir.join("old"))?;
    assert_eq!(read_whole(fs, &dir.join("old"), 10)?, b"new!");
    assert!(!fs.exists(&dir.join("new"))?);
    fs.create_dir_all(&dir.join("d").join("e"))?;
    fs.rename(&dir.join("d"), &dir.join("moved"))?;
    assert!(fs.exists(&dir.join("moved").join("e"))?);
    Ok(())
}

fn removed_file(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    let file = fs.open(&dir.join("f"), OpenMode::CreateNew)?;
    file.write_all_at(b"abc", 0)?;
    fs.remove_file(&dir.join("f"))?;
    assert!(!fs.exists(&dir.join("f"))?);
    let mut buffer = [0; 3];
    file.read_exact_at(&mut buffer, 0)?;
    assert_eq!(&buffer, b"abc");
    Ok(())
}

fn removed_directory(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    fs.create_dir_all(&dir.join("a").join("b"))?;
    fs.open(&dir.join("a").join("b").join("f"), OpenMode::CreateNew)?;
    fs.open(&dir.join("a").join("g"), OpenMode::CreateNew)?;
    assert_eq!(kind(fs.remove_dir(&dir.join("a"))), Some(ErrorKind::DirectoryNotEmpty));
    fs.create_dir_all(&dir.join("empty"))?;
    fs.remove_dir(&dir.join("empty"))?;
    assert_eq!(kind(fs.remove_dir(&dir.join("empty"))), Some(ErrorKind::NotFound));
    fs.remove_dir_all(&dir.join("a"))?;
    assert!(!fs.exists(&dir.join("a"))?);
    assert!(fs.read_dir(dir)?.is_empty());
    Ok(())
}

fn locking(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    let path = dir.join("lock");
    let held = fs.lock(&path)?;
    assert_eq!(kind(fs.lock(&path)), Some(ErrorKind::WouldBlock));
    drop(held);
    fs.lock(&path).map(|_| ())
}

fn replacement(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    let path = dir.join("f");
    atomic_replace(fs, &path, b"a longer first version")?;
    atomic_replace(fs, &path, b"second")?;
    assert_eq!(read_whole(fs, &path, 100)?, b"second");
    assert_eq!(fs.read_dir(dir)?.len(), 1);
    Ok(())
}

fn bounded_read(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    fs.open(&dir.join("f"), OpenMode::CreateNew)?.write_all_at(b"abc", 0)?;
    assert_eq!(kind(read_whole(fs, &dir.join("f"), 2)), Some(ErrorKind::InvalidData));
    Ok(())
}

fn durable_write(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    let file = fs.open(&dir.join("f"), OpenMode::CreateNew)?;
    file.write_durable_at(b"hello world", 0)?;
    file.write_durable_at(b"W", 6)?;
    file.write_durable_at(b"", 100)?;
    assert_eq!(read_whole(fs, &dir.join("f"), 100)?, b"hello World");
    let read_only = fs.open(&dir.join("f"), OpenMode::Read)?;
    assert!(read_only.write_durable_at(b"x", 0).is_err());
    Ok(())
}

/// Blocks of 4096 bytes suit every device.
fn direct(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    const BLOCK: usize = 4096;
    let path = dir.join("f");
    assert_eq!(kind(fs.open_direct(&path)), Some(ErrorKind::NotFound));
    fs.open(&path, OpenMode::CreateNew)?.write_all_at(&[1; 2 * BLOCK], 0)?;
    let file = match fs.open_direct(&path) {
        // The directory for temporary files may be one without it.
        Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
        result => result?,
    };
    let mut block = AlignedBuffer::zeroed(BLOCK, BLOCK);
    file.read_exact_at(&mut block, BLOCK as u64)?;
    assert_eq!(*block, [1; BLOCK]);
    block.fill(2);
    file.write_durable_at(&block, 2 * BLOCK as u64)?;
    file.write_all_at(&block, 0)?;
    file.sync_data()?;
    match kind(file.write_durable_at(&block, 100)) {
        Some(ErrorKind::InvalidInput) => {}
        // Memory, as tmpfs since Linux 6.6, has no blocks.
        None => return Ok(()),
        other => panic!("{other:?}"),
    }
    assert_eq!(kind(file.write_durable_at(&block[..100], 0)), Some(ErrorKind::InvalidInput));
    let expected = [[2; BLOCK], [1; BLOCK], [2; BLOCK]].concat();
    assert_eq!(read_whole(fs, &path, 4 * BLOCK as u64)?, expected);
    assert_eq!(file.read_at(&mut block, 3 * BLOCK as u64)?, 0);
    Ok(())
}

fn syncs(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    let file = fs.open(&dir.join("f"), OpenMode::CreateNew)?;
    file.write_all_at(b"abc", 0)?;
    file.begin_write_back(0, 3)?;
    file.begin_write_back(4096, 4096)?;
    file.finish_write_back(0, 8192)?;
    file.sync_data()?;
    file.sync_all()?;
    file.advise_dont_need(0, 0)?;
    file.advise_dont_need(0, 3)?;
    fs.sync_dir(dir)?;
    fs.open_volume(dir)?.sync()?;
    assert!(fs.available_bytes(dir)? > 0);
    assert!(fs.total_bytes(dir)? >= fs.available_bytes(dir)?);
    Ok(())
}

fn identities(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    let (path, other) = (dir.join("f"), dir.join("g"));
    let file = fs.open(&path, OpenMode::CreateNew)?;
    file.write_all_at(b"abc", 0)?;
    let stat = fs.stat(&path)?;
    assert_eq!((stat, stat.is_dir, stat.links, stat.len), (file.stat()?, false, 1, 3));
    fs.rename(&path, &other)?;
    assert_eq!((kind(fs.stat(&path)), fs.stat(&other)?), (Some(ErrorKind::NotFound), stat));
    fs.open(&path, OpenMode::CreateNew)?;
    assert_ne!(fs.stat(&path)?.identity, stat.identity);
    fs.rename(&path, &other)?;
    assert_eq!((file.stat()?.links, file.stat()?.identity), (0, stat.identity));
    assert_ne!(fs.stat(&other)?.identity, stat.identity);
    Ok(())
}

fn removed_and_made_directory(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    let path = dir.join("d");
    assert_eq!(kind(fs.create_dir(&path.join("e"))), Some(ErrorKind::NotFound));
    fs.create_dir(&path)?;
    fs.create_dir(&path)?;
    let opened = fs.open_dir(&path)?;
    let stat = fs.stat(&path)?;
    assert!(stat.is_dir && stat.links > 0);
    opened.create_dir("e".as_ref())?;
    opened.create_dir("e".as_ref())?;
    assert!(fs.stat(&path.join("e"))?.is_dir);
    fs.rename(&path, &dir.join("moved"))?;
    opened.create_dir("f".as_ref())?;
    assert_eq!((fs.exists(&dir.join("moved").join("f"))?, fs.exists(&path)?), (true, false));
    fs.remove_dir_all(&dir.join("moved"))?;
    fs.create_dir(&path)?;
    assert_eq!((opened.stat()?.identity, opened.stat()?.links), (stat.identity, 0));
    assert_ne!(fs.stat(&path)?.identity, stat.identity);
    assert_eq!(kind(opened.create_dir("e".as_ref())), Some(ErrorKind::NotFound));
    Ok(())
}

fn odd_files(fs: &dyn FileSystem, dir: &Path) -> io::Result<()> {
    let (file, directory) = (dir.join("f"), dir.join("d"));
    fs.open(&file, OpenMode::CreateNew)?;
    fs.create_dir(&directory)?;
    for mode in [OpenMode::Read, OpenMode::ReadWrite, OpenMode::CreateOrOpen] {
        assert_eq!(kind(fs.open(&directory, mode)), Some(ErrorKind::IsADirectory), "{mode:?}");
    }
    assert_eq!(kind(fs.open_direct(&directory)), Some(ErrorKind::IsADirectory));
    assert_eq!(kind(fs.lock(&directory)), Some(ErrorKind::IsADirectory));
    assert_eq!(kind(fs.open_dir(&file)), Some(ErrorKind::NotADirectory));
    assert_eq!(kind(fs.open_volume(&file)), Some(ErrorKind::NotADirectory));
    Ok(())
}

/// A path that leads to no file is refused by its kind, without waiting for its other end. Simulated files are files
/// or directories.
#[test]
fn a_fifo_a_socket_a_device_and_a_link_are_no_files() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let fifo = std::process::Command::new("mkfifo").arg(at("fifo")).status().unwrap();
    assert!(fifo.success());
    let _listener = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    std::fs::write(at("file"), "somebody else's").unwrap();
    symlink(at("file"), at("link")).unwrap();
    let odd = [("fifo", "a FIFO"), ("socket", "a socket"), ("/dev/zero", "a device"), ("link", "a link")];
    for (name, what) in odd {
        let path = at(name);
        let refused = |error: io::Error| {
            assert!(
                is_odd_file(&error) && !is_shortage(&error) && !is_device_error(&error),
                "{name}: {error}"
            );
            assert_eq!(error.to_string(), format!("it is {what}, where a file is expected"));
        };
        for mode in [OpenMode::Read, OpenMode::ReadWrite, OpenMode::CreateOrOpen] {
            refused(RealFileSystem.open(&path, mode).unwrap_err());
        }
        refused(RealFileSystem.open_direct(&path).unwrap_err());
        refused(RealFileSystem.lock(&path).unwrap_err());
        refused(read_whole(&RealFileSystem, &path, 100).unwrap_err());
        assert_eq!(kind(RealFileSystem.open_dir(&path)), Some(ErrorKind::NotADirectory));
        assert_eq!(kind(RealFileSystem.read_dir(&path)), Some(ErrorKind::NotADirectory));
    }
}
