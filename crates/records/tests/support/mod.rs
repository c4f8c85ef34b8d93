//! Makes whole batches of bytes that a builder would not write.

use riverrun_records::layout;

/// Writes length and CRC anew, as an attacker would.
pub(crate) fn seal(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = u32::try_from(bytes.len() - layout::LENGTH_END).expect("a small batch");
    bytes[layout::LENGTH..layout::LENGTH_END].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[layout::ATTRIBUTES..]);
    bytes[layout::CRC..layout::ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
    bytes
}
