//! The frame of a file: header, footer and checksums.
//!
//! ```text
//! header   magic "TRFLSST1" | version u32 | file uuid 16 bytes | crc32 u32 over all before it
//! footer   section * 4: index, bloom filter, statistics, vnode directory | file uuid 16 bytes | version u32
//!          | crc32 u32 over all before it | magic "TRFLSST1"
//! section  offset u64 | length u64 | crc32 u32 over the file's uuid and the section's bytes
//! ```
//!
//! Everything between header and footer belongs to a block or a section and nothing lies between them, so that every
//! byte of a file is under a checksum. All of them begin with the file's uuid: a piece of another file never fits.

use std::path::Path;

use bytes::Bytes;
use uuid::Uuid;

use crate::codec::varint::Reader;
use crate::{Corrupt, Error, Result};

/// The version this build writes. It reads older ones too.
pub(super) const VERSION: u32 = 2;

/// The first version, whose filters know partitions only.
pub(super) const OLDEST_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"TRFLSST1";

pub(super) const HEADER_BYTES: usize = 8 + 4 + 16 + 4;
pub(super) const SECTIONS: usize = 4;
pub(super) const FOOTER_BYTES: usize = SECTIONS * 20 + 16 + 4 + 4 + 8;

/// Bytes of a block's checksum, behind its body.
pub(super) const BLOCK_CRC_BYTES: usize = 4;

/// One part of the file behind the blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) crc: u32,
}

/// The header's bytes.
pub(super) fn header(id: Uuid) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(id.as_bytes());
    let crc = crc32fast::hash(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// Checks a header and answers whose file it is, and of which version.
pub(super) fn read_header(bytes: Bytes, path: &Path) -> Result<(Uuid, u32)> {
    let covered = bytes.slice(..bytes.len().saturating_sub(4));
    let mut reader = Reader::new("SSTable header", bytes);
    check_magic(&mut reader)?;
    let version = read_version(&mut reader, path)?;
    let id = uuid(&mut reader)?;
    check_crc(&mut reader, &covered)?;
    Ok((id, version))
}

/// The footer's bytes.
pub(super) fn footer(id: Uuid, sections: &[Section; SECTIONS]) -> Vec<u8> {
    let mut out = Vec::with_capacity(FOOTER_BYTES);
    for section in sections {
        out.extend_from_slice(&section.offset.to_le_bytes());
        out.extend_from_slice(&section.len.to_le_bytes());
        out.extend_from_slice(&section.crc.to_le_bytes());
    }
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(&VERSION.to_le_bytes());
    let crc = crc32fast::hash(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(&MAGIC);
    out
}

/// Checks the footer of a file of `file_len` bytes whose header is known, and that its sections follow each other up to the
/// footer.
pub(super) fn read_footer(bytes: Bytes, (id, header): (Uuid, u32), file_len: u64) -> Result<[Section; SECTIONS]> {
    let covered = bytes.slice(..bytes.len().saturating_sub(4 + MAGIC.len()));
    let mut reader = Reader::new("SSTable footer", bytes);
    let mut sections = [Section { offset: 0, len: 0, crc: 0 }; SECTIONS];
    for section in &mut sections {
        *section = Section { offset: reader.u64()?, len: reader.u64()?, crc: reader.u32()? };
    }
    let (found, version) = (uuid(&mut reader)?, reader.u32()?);
    check_crc(&mut reader, &covered)?;
    check_magic(&mut reader)?;
    if version != header {
        return Err(
            Corrupt::new("SSTable footer", format!("it says format version {version}, unlike the header")).into()
        );
    }
    if found != id {
        return Err(Corrupt::new("SSTable footer", format!("it belongs to file {found}, the header to {id}")).into());
    }
    check_layout(&sections, file_len)?;
    Ok(sections)
}

/// Whether this is a footer of a version that this build reads.
pub(super) fn is_readable_footer(bytes: Bytes) -> bool {
    let covered = bytes.slice(..bytes.len().saturating_sub(4 + MAGIC.len()));
    let mut rest = Reader::new("SSTable footer", bytes.slice(covered.len()..));
    (OLDEST_VERSION..=VERSION).any(|version| covered.ends_with(&version.to_le_bytes()))
        && check_crc(&mut rest, &covered).is_ok()
        && check_magic(&mut rest).is_ok()
}

fn check_layout(sections: &[Section; SECTIONS], file_len: u64) -> Result<()> {
    let gap = || Corrupt::new("SSTable footer", "its sections do not follow each other up to the footer");
    let mut end = sections[0].offset;
    if end < HEADER_BYTES as u64 {
        return Err(gap().into());
    }
    for section in sections {
        if section.offset != end {
            return Err(gap().into());
        }
        end = end.checked_add(section.len).ok_or_else(gap)?;
    }
    if end.checked_add(FOOTER_BYTES as u64) != Some(file_len) {
        return Err(gap().into());
    }
    Ok(())
}

/// The checksum of a section of file `id`.
pub(super) fn section_crc(id: Uuid, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(id.as_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// The checksum of a block's body that stands at `offset` of file `id`: a block of another file or place does not fit.
pub(super) fn block_crc(id: Uuid, offset: u64, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(id.as_bytes());
    hasher.update(&offset.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

/// Sixteen bytes as a uuid.
pub(super) fn uuid(reader: &mut Reader) -> Result<Uuid> {
    Ok(Uuid::from_bytes(reader.array()?))
}

fn check_magic(reader: &mut Reader) -> Result<()> {
    let magic: [u8; 8] = reader.array()?;
    if magic != MAGIC {
        return Err(reader.corrupt(format!("it has magic {:?}", magic.escape_ascii().to_string())).into());
    }
    Ok(())
}

fn read_version(reader: &mut Reader, path: &Path) -> Result<u32> {
    let found = reader.u32()?;
    if !(OLDEST_VERSION..=VERSION).contains(&found) {
        let file = path.to_owned();
        return Err(Error::Version { what: "SSTable", file, found, oldest: OLDEST_VERSION, newest: VERSION });
    }
    Ok(found)
}

fn check_crc(reader: &mut Reader, covered: &[u8]) -> Result<()> {
    let (found, computed) = (reader.u32()?, crc32fast::hash(covered));
    if found != computed {
        return Err(reader.corrupt(format!("its checksum is {found:08x}, its bytes give {computed:08x}")).into());
    }
    Ok(())
}
