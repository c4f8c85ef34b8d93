//! The properties of journal files that the target checks.

use std::path::Path;

use riverrun_env::{OpenMode, sim::SimEnv};
use riverrun_journal::{Journal, JournalError, JournalOptions, RecoveredEntry};

use crate::peak_bytes_during;

const DIR: &str = "/journal";
/// Bytes that recovery holds whatever the input: windows of a file, zeros for a new one, and the simulated disk's copies of
/// both.
const FIXED_BYTES_MAX: usize = 32 << 20;
/// A sector of the simulated disk is kept in several versions.
const RATIO_MAX: usize = 64;
const ALIGNMENT: usize = 512;
/// Sizes of a file's header without its checksum, of a frame's header, of an entry's row; places of checksums.
const FILE_HEADER_BYTES: usize = 72;
const FRAME_HEADER_BYTES: usize = 56;
const ROW_BYTES: usize = 56;
const FRAME_CHECKED: usize = 8;

/// Takes `data` as a journal's only file and as a file of held entries, as it is and with its checksums mended.
pub fn check_journal(data: &[u8]) {
    check_files(&[("00000000.journal", data)]);
    check_files(&[("held-dir-00000000", data)]);
    let sealed = seal(data.to_vec());
    check_files(&[("00000000.journal", &sealed)]);
    check_files(&[("00000000.journal", &sealed), ("held-dir-00000001", data)]);
}

fn check_files(files: &[(&str, &[u8])]) {
    let input: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    let peak = peak_bytes_during(|| {
        let sim = SimEnv::new(1);
        let env = sim.env();
        env.fs.create_dir_all(Path::new(DIR)).expect("a directory");
        for (name, bytes) in files {
            let file = env.fs.open(&Path::new(DIR).join(name), OpenMode::CreateNew).expect("a file");
            file.write_all_at(bytes, 0).expect("written");
        }
        env.fs.open_volume(Path::new(DIR)).expect("a volume").sync().expect("synced");
        let Ok(first) = find(&sim) else { return };
        sim.fs.crash();
        let second = find(&sim).expect("what can be read once can be read again");
        let same = |entry: &RecoveredEntry| (entry.header, entry.payload.clone());
        assert!(first.iter().map(same).eq(second.iter().map(same)), "the same entries");
    });
    assert!(peak <= FIXED_BYTES_MAX + RATIO_MAX * input, "{peak} bytes allocated for {input}");
}

fn find(sim: &SimEnv) -> Result<Vec<RecoveredEntry>, JournalError> {
    let (_journal, mut replay) =
        Journal::open(&sim.env(), Path::new(DIR), JournalOptions::with_bytes(2 << 20))?;
    let mut found = Vec::new();
    while let Some(entries) = replay.next()? {
        found.extend(entries);
    }
    Ok(found)
}

/// Mends magics and checksums of the file's header and of whatever may be a frame in it.
fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() < FILE_HEADER_BYTES + 4 {
        return bytes;
    }
    bytes[..12].copy_from_slice(b"RRjournl\x00\x02\x00\x00");
    bytes[12..16].copy_from_slice(&(ALIGNMENT as u32).to_be_bytes());
    let id: [u8; 16] = bytes[16..32].try_into().expect("sixteen bytes");
    // A start and a size that a small file can have.
    bytes[32..48].fill(0);
    bytes[44..48].copy_from_slice(&(1_u32 << 20).to_be_bytes());
    bytes[48..56].fill(0);
    bytes[56..62].fill(0);
    bytes[64..72].fill(0);
    let checksum = crc32c::crc32c(&bytes[..FILE_HEADER_BYTES]);
    bytes[FILE_HEADER_BYTES..FILE_HEADER_BYTES + 4].copy_from_slice(&checksum.to_be_bytes());
    let mut at = ALIGNMENT;
    while at + FRAME_HEADER_BYTES <= bytes.len() {
        let count = usize::from(bytes[at + FRAME_HEADER_BYTES - 1] % 4);
        seal_frame(&mut bytes, at, id, count);
        at += ALIGNMENT;
    }
    bytes
}

fn seal_frame(bytes: &mut [u8], at: usize, id: [u8; 16], count: usize) {
    let end = at + FRAME_HEADER_BYTES + count * ROW_BYTES;
    if end > bytes.len() {
        return;
    }
    bytes[at..at + 4].copy_from_slice(b"RRfr");
    bytes[at + 8..at + 24].copy_from_slice(&id);
    bytes[at + 24..at + 32].copy_from_slice(&(at as u64).to_be_bytes());
    // The synced and the settled position of a note: some block before.
    for field in [at + 32, at + 40] {
        let claimed = usize::from(bytes[field + 7]) * ALIGNMENT % (at + 1);
        bytes[field..field + 8].copy_from_slice(&(claimed as u64).to_be_bytes());
    }
    bytes[at + 48..at + 52].copy_from_slice(&(ALIGNMENT as u32).to_be_bytes());
    bytes[at + 52..at + 56].copy_from_slice(&(count as u32).to_be_bytes());
    let mut payload_at = end;
    for row in (0..count).map(|row| at + FRAME_HEADER_BYTES + row * ROW_BYTES) {
        bytes[row + 20] = 1;
        let len = usize::from(bytes[row + 51] % 64)
            .min((at + ALIGNMENT).min(bytes.len()).saturating_sub(payload_at));
        bytes[row + 48..row + 52].copy_from_slice(&(len as u32).to_be_bytes());
        let crc = crc32c::crc32c(&bytes[payload_at..payload_at + len]);
        let crc = crc32c::crc32c_append(crc, &(row as u64).to_be_bytes());
        // One payload in eight stays damaged.
        if !bytes[row + 19].is_multiple_of(8) {
            bytes[row + 52..row + 56].copy_from_slice(&crc.to_be_bytes());
        }
        payload_at += len;
    }
    let checksum = crc32c::crc32c(&bytes[at + FRAME_CHECKED..end]);
    bytes[at + 4..at + 8].copy_from_slice(&checksum.to_be_bytes());
}
