//! Whose a log dir is: a small file that is written once, when the dir is first used.
//!
//! ```text
//!   magic "RRdirown"          8
//!   version                   u16
//!   node id                   i32
//!   dir id                    16
//!   cluster id, its length    u16
//!   cluster id                UTF-8
//!   CRC-32C of all before     u32
//! ```
//! All big-endian. The version rises with each change of layout; a newer one is refused by name.

use riverrun_types::NodeId;

use crate::fields::{DecodeError, FieldReader};

/// Name of the file in a log dir.
pub(crate) const META_FILE: &str = "dir.meta";
/// The file in bytes at most.
pub(crate) const META_BYTES_MAX: u64 = 1024;
/// A cluster id in bytes at most.
pub(crate) const CLUSTER_ID_BYTES_MAX: usize = 256;

const MAGIC: &[u8; 8] = b"RRdirown";
const VERSION: u16 = 1;
const NAME: &str = "the owner file of a log dir";

/// The owner of a log dir.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirMeta {
    pub(crate) cluster: String,
    pub(crate) node: NodeId,
    /// Random: tells log dirs apart wherever they are mounted.
    pub(crate) dir_id: [u8; 16],
}

impl DirMeta {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&self.node.0.to_be_bytes());
        out.extend_from_slice(&self.dir_id);
        let len = u16::try_from(self.cluster.len()).expect("a cluster id is bounded");
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(self.cluster.as_bytes());
        out.extend_from_slice(&crc32c::crc32c(&out).to_be_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = FieldReader::new(bytes);
        if reader.array::<8>(NAME)? != *MAGIC {
            return Err(DecodeError::WrongMagic(NAME));
        }
        let found = reader.u16(NAME)?;
        if found > VERSION {
            return Err(DecodeError::NewerVersion { name: NAME, found, supported: VERSION });
        }
        let node = NodeId(reader.i32(NAME)?);
        let dir_id = reader.array(NAME)?;
        let len = usize::from(reader.u16(NAME)?);
        let cluster = std::str::from_utf8(reader.bytes(len, NAME)?);
        let checksum = reader.u32(NAME)?;
        reader.finish(NAME)?;
        if checksum != crc32c::crc32c(&bytes[..bytes.len() - size_of::<u32>()]) {
            return Err(DecodeError::Checksum(NAME));
        }
        let cluster = cluster.map_err(|_| DecodeError::Invalid("cluster id"))?.to_owned();
        Ok(Self { cluster, node, dir_id })
    }

    /// The owner for people.
    pub(crate) fn owner(&self) -> String {
        format!("node {} of cluster {}", self.node.0, self.cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let meta = DirMeta { cluster: "MkU3OEVBNTcwNTJENDM2Qk".into(), node: NodeId(7), dir_id: [3; 16] };
        let bytes = meta.encode();
        assert_eq!(DirMeta::decode(&bytes), Ok(meta));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(DirMeta::decode(&damaged).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(DirMeta::decode(&bytes[..len]).is_err(), "{len} bytes");
        }
    }
}
