//! Scans of files with any content: their results, against a model that tries every position, and how much they read.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use riverrun_env::sim::SimRandom;
use riverrun_env::{Identity, Random, Stat};
use riverrun_records::layout::{
    ATTRIBUTES, BASE_OFFSET, BASE_TIMESTAMP, CRC, HEADER_BYTES, LAST_OFFSET_DELTA, LEADER_EPOCH, LENGTH,
    LENGTH_END, MAGIC,
};

use super::search::Limits;
use super::*;

/// The segment's base offset.
pub(crate) const BASE: i64 = 1000;

/// A file in memory that is only read. Behind its bytes it holds zeros.
#[derive(Debug)]
pub(crate) struct BytesFile {
    bytes: Vec<u8>,
    len: u64,
    read: AtomicU64,
    read_max: u64,
}

impl BytesFile {
    /// A file of these bytes, of which no more than `read_max` are read in all, repeated reads counted.
    pub(crate) fn new(bytes: Vec<u8>, read_max: usize) -> Self {
        let len = bytes.len() as u64;
        Self { bytes, len, read: AtomicU64::new(0), read_max: read_max as u64 }
    }

    /// The file with zeros behind its bytes up to this length.
    pub(crate) fn with_len(self, len: u64) -> Self {
        Self { len, ..self }
    }

    /// Bytes that were read so far.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}

impl File for BytesFile {
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let left = usize::try_from(self.len.saturating_sub(position)).unwrap();
        let len = left.min(buffer.len());
        self.read_exact_at(&mut buffer[..len], position).map(|()| len)
    }

    fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> io::Result<()> {
        let len = buffer.len() as u64;
        if self.read.fetch_add(len, Ordering::Relaxed) + len > self.read_max {
            return Err(io::Error::other("more is read than may be"));
        }
        if position + len > self.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let held = self.bytes.get(usize::try_from(position).unwrap()..).unwrap_or_default();
        let held = &held[..held.len().min(buffer.len())];
        buffer[..held.len()].copy_from_slice(held);
        buffer[held.len()..].fill(0);
        Ok(())
    }

    fn write_all_at(&self, _bytes: &[u8], _position: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn write_vectored_all_at(&self, _slices: &mut [IoSlice<'_>], _position: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn write_durable_at(&self, _bytes: &[u8], _position: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn stat(&self) -> io::Result<Stat> {
        let identity = Identity { device: 0, inode: 0 };
        Ok(Stat {
            identity,
            is_dir: false,
            links: 1,
            len: self.len,
            modified: riverrun_types::TimestampMs::NONE,
        })
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn advise_dont_need(&self, _position: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn raw_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The header of a batch of `size` bytes, without its CRC.
pub(crate) fn header(base_offset: i64, size: usize) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    let length = i32::try_from(size - LENGTH_END).unwrap();
    bytes[BASE_OFFSET..LENGTH].copy_from_slice(&base_offset.to_be_bytes());
    bytes[LENGTH..LENGTH_END].copy_from_slice(&length.to_be_bytes());
    bytes[MAGIC] = 2;
    bytes
}

/// An intact batch of one record, as far as a scan looks.
pub(crate) fn batch(base_offset: i64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = header(base_offset, HEADER_BYTES + payload.len()).to_vec();
    bytes.extend_from_slice(payload);
    seal(&mut bytes);
    bytes
}

/// Gives a batch its CRC.
fn seal(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[ATTRIBUTES..]);
    batch[CRC..ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
}

/// A step of a scan's result.
#[derive(Debug, PartialEq)]
enum Told {
    Batch { position: u64, base_offset: i64 },
    Damage { position: u64 },
    Found { position: u64, base_offset: i64 },
    Nothing { position: u64 },
}

/// A scan that tries every position.
struct Model<'b> {
    bytes: &'b [u8],
    position: usize,
    expected: i64,
}

impl Model<'_> {
    fn intact_at(&self, position: usize) -> Option<BatchHeader> {
        let header = BatchHeader::parse(&self.bytes[position..]).ok()?;
        let batch = self.bytes[position..].get(..header.size_bytes())?;
        let (base, last) = (header.base_offset().0, header.last_offset().0);
        let fits = self.expected <= base && base <= last && last - BASE < OFFSET_SPAN_MAX;
        let is_whole = crc32c::crc32c(&batch[ATTRIBUTES..]) == header.crc();
        (fits && is_whole && header.leader_epoch().0 >= 0).then_some(header)
    }

    fn tell(mut self) -> Vec<Told> {
        let mut told = Vec::new();
        let end = self.bytes.len();
        while self.position < end {
            let position = self.position as u64;
            if let Some(header) = self.intact_at(self.position) {
                told.push(Told::Batch { position, base_offset: header.base_offset().0 });
                self.position += header.size_bytes();
                self.expected = header.next_offset().0;
                continue;
            }
            told.push(Told::Damage { position });
            let next = (self.position + 1..end).find_map(|at| Some((at, self.intact_at(at)?)));
            let Some((at, header)) = next else {
                told.push(Told::Nothing { position: end as u64 });
                return told;
            };
            (self.position, self.expected) = (at, header.base_offset().0);
            told.push(Told::Found { position: at as u64, base_offset: self.expected });
        }
        told
    }
}

/// The result of a scan whose search has these limits.
fn told_by(file: &BytesFile, mut limits: Option<Limits>) -> Vec<Told> {
    let mut scan = BatchScan::new(file, Offset(BASE), Offset(BASE), 0, file.bytes.len() as u64);
    let mut told = Vec::new();
    loop {
        match scan.next_batch() {
            Ok(None) => return told,
            Ok(Some(ScannedBatch { position, header, .. })) => {
                told.push(Told::Batch { position, base_offset: header.base_offset().0 });
            }
            Err(ScanStop::Io(error)) => panic!("{error}"),
            Err(ScanStop::Damage { position, .. }) => {
                told.push(Told::Damage { position });
                if let Some(limits) = limits.take() {
                    scan.search = Some(Search::with_limits(scan.bounds, position + 1, limits));
                }
                let is_found = scan.skip_damage().unwrap();
                let (position, base_offset) = (scan.position(), scan.expected().0);
                let found = Told::Found { position, base_offset };
                told.push(if is_found { found } else { Told::Nothing { position } });
            }
        }
    }
}

/// Chance, by a seed.
struct Chance(SimRandom);

impl Chance {
    fn below(&self, bound: usize) -> usize {
        usize::try_from(self.0.next_u64() % bound as u64).unwrap()
    }

    /// Bytes among which those of headers are frequent.
    fn bytes(&self, len: usize) -> Vec<u8> {
        (0..len).map(|_| [0, 0, 2, self.below(256).to_le_bytes()[0]][self.below(4)]).collect()
    }
}

/// A file of intact, damaged and cut batches, bytes of any kind, and headers that claim the bytes behind them.
struct Mixture {
    bytes: Vec<u8>,
    /// Positions of the headers, and their claims in bytes.
    claims: Vec<(usize, usize)>,
    offset: i64,
}

impl Mixture {
    fn new(chance: &Chance) -> Self {
        let mut mixture = Self { bytes: Vec::new(), claims: Vec::new(), offset: BASE };
        for _ in 0..=chance.below(16) {
            mixture.extend(chance);
        }
        if chance.below(3) == 0 {
            mixture.bytes.truncate(chance.below(mixture.bytes.len() + 1));
        }
        // From the last one on, so that a claim over others stays right.
        for (at, size) in mixture.claims.into_iter().rev() {
            if chance.below(3) == 0
                && let Some(claimed) = mixture.bytes.get_mut(at..at + size)
            {
                seal(claimed);
            }
        }
        mixture.claims = Vec::new();
        mixture
    }

    fn extend(&mut self, chance: &Chance) {
        // Now and then an offset that was there before, or one that a segment does not reach.
        let offset = match chance.below(12) {
            0 => self.offset - 1,
            1 => self.offset + OFFSET_SPAN_MAX,
            _ => self.offset,
        };
        self.offset += i64::try_from(chance.below(3)).unwrap();
        let payload = chance.bytes(chance.below(90));
        match chance.below(8) {
            0 => self.bytes.extend(payload),
            1..=3 => self.bytes.extend(batch(offset, &payload)),
            4 => {
                let mut bytes = batch(offset, &payload);
                let bit = chance.below(bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
                self.bytes.extend(bytes);
            }
            5 => {
                let bytes = batch(offset, &payload);
                self.bytes.extend(&bytes[..chance.below(bytes.len())]);
            }
            _ => self.claim(chance, offset),
        }
    }

    /// A header, which may be cut off.
    fn claim(&mut self, chance: &Chance, offset: i64) {
        let size = HEADER_BYTES + chance.below(900);
        let mut header = header(offset, size);
        match chance.below(10) {
            0 => header[LEADER_EPOCH] = 0xff,
            1 => header[LAST_OFFSET_DELTA..BASE_TIMESTAMP].copy_from_slice(&(-1_i32).to_be_bytes()),
            2 => header[LAST_OFFSET_DELTA..BASE_TIMESTAMP].copy_from_slice(&3_i32.to_be_bytes()),
            _ => {}
        }
        self.claims.push((self.bytes.len(), size));
        self.bytes.extend(&header[..HEADER_BYTES - chance.below(2) * chance.below(40)]);
    }
}

#[test]
fn a_scan_tells_what_trying_every_position_tells() {
    let (mut found, mut nothing) = (0, 0);
    for seed in 0..4000 {
        let chance = Chance(SimRandom::new(seed));
        let bytes = Mixture::new(&chance).bytes;
        let told = Model { bytes: &bytes, position: 0, expected: BASE }.tell();
        let limits =
            Limits { window_bytes: HEADER_BYTES + chance.below(300), claims_max: 1 + chance.below(8) };
        let file = BytesFile::new(bytes, usize::MAX);
        assert_eq!(told_by(&file, None), told, "seed {seed}");
        assert_eq!(told_by(&file, Some(limits)), told, "seed {seed} with {limits:?}");
        found += told.iter().filter(|told| matches!(told, Told::Found { .. })).count();
        nothing += told.iter().filter(|told| matches!(told, Told::Nothing { .. })).count();
    }
    assert!(found > 4000 && nothing > 1000, "{found} batches found behind damage, {nothing} times none");
}

/// Bytes that are full of headers, each of which claims all bytes behind it.
fn forged(len: usize, step: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for at in (0..len - HEADER_BYTES).step_by(step) {
        bytes[at..at + HEADER_BYTES].copy_from_slice(&header(BASE, len - at));
    }
    bytes
}

#[test]
fn headers_that_claim_all_behind_them_cost_one_reading() {
    let mut bytes = forged(4 << 20, 64);
    let position = bytes.len() as u64;
    bytes.extend(batch(BASE + 7, b"intact"));
    // Once for the damage itself, once for the bytes behind it.
    let read_max = bytes.len() * 2 + WINDOW_BYTES;
    let told = told_by(&BytesFile::new(bytes, read_max), None);
    let batch = Told::Batch { position, base_offset: BASE + 7 };
    assert_eq!(told, [Told::Damage { position: 0 }, Told::Found { position, base_offset: BASE + 7 }, batch]);
}

/// Intact batches with a header between any two that claims all bytes behind it.
pub(crate) fn alternating(len: usize) -> (Vec<u8>, usize) {
    let mut bytes = Vec::new();
    let mut count = 0;
    while bytes.len() < len {
        bytes.extend(header(BASE + 1_000_000, len - bytes.len() + HEADER_BYTES));
        bytes.extend(batch(BASE + i64::try_from(count).unwrap(), b"intact"));
        count += 1;
    }
    bytes.resize(len + 3 * HEADER_BYTES, 0);
    (bytes, count)
}

#[test]
fn damage_in_many_places_is_passed_in_one_reading() {
    let (bytes, count) = alternating(1 << 20);
    // Once for the first damage, once for the search, once for the headers of found batches.
    let read_max = bytes.len() * 3 + WINDOW_BYTES;
    let told = told_by(&BytesFile::new(bytes, read_max), None);
    assert_eq!(told.iter().filter(|told| matches!(told, Told::Batch { .. })).count(), count);
}

#[test]
fn headers_beyond_the_bound_cost_a_reading_for_each_bound() {
    let (len, step, claims_max) = (1 << 20, 64, 2000);
    let mut bytes = forged(len, step);
    let position = bytes.len() as u64;
    bytes.extend(batch(BASE, b"intact"));
    let passes = len / step / claims_max + 1;
    let read_max = bytes.len() * (passes + 1) + 2 * WINDOW_BYTES;
    let limits = Limits { window_bytes: 16 * 1024, claims_max };
    let told = told_by(&BytesFile::new(bytes, read_max), Some(limits));
    assert_eq!(told.len(), 3);
    assert_eq!(told[1], Told::Found { position, base_offset: BASE });
}
