//! How far the hints for one node are acknowledged, on disk.
//!
//! ```text
//! acknowledged   TRFLHNP1 | frame (codec/frame.rs, salt 1) around segment u64 | offset u64        replaced by rename
//! ```
//!
//! What is lost of it costs no more than hints delivered twice: a file that does not read stands for none.

use std::path::Path;

use bytes::Bytes;

use super::Place;
use crate::codec::frame::{Framed, put_frame, read_frame};
use crate::codec::varint::Reader;
use crate::vfs::Vfs;
use crate::{Error, Result};

const MAGIC: &[u8; 8] = b"TRFLHNP1";
const SALT: u64 = 1;
const NAME: &str = "acknowledged";
const BYTES: usize = 8 + 8 + 16;

/// The bytes of a place.
pub(super) fn encode(place: Place) -> Vec<u8> {
    let mut payload = [0; 16];
    payload[..8].copy_from_slice(&place.segment.to_le_bytes());
    payload[8..].copy_from_slice(&place.offset.to_le_bytes());
    let mut out = MAGIC.to_vec();
    put_frame(&mut out, SALT, &payload);
    out
}

/// Reads what [`encode`] wrote; `None` if it is something else.
pub(super) fn decode(bytes: &Bytes) -> Option<Place> {
    if bytes.len() != BYTES || !bytes.starts_with(MAGIC) {
        return None;
    }
    let Framed::Whole(payload, _) = read_frame(&bytes.slice(MAGIC.len()..), SALT) else { return None };
    let mut reader = Reader::new("acknowledged hints", payload);
    let place = Place { segment: reader.u64().ok()?, offset: reader.u64().ok()? };
    reader.end().ok().map(|()| place)
}

/// The place that was saved; the beginning if none was, or none that reads.
pub(super) fn read(vfs: &dyn Vfs, directory: &Path) -> Result<Place> {
    let path = directory.join(NAME);
    if !vfs.exists(&path)? {
        return Ok(Place::default());
    }
    let file = vfs.open(&path)?;
    if file.len()? != BYTES as u64 {
        return Ok(Place::default());
    }
    let mut bytes = vec![0; BYTES];
    match file.read_at(&mut bytes, 0) {
        Ok(()) => Ok(decode(&bytes.into()).unwrap_or_default()),
        Err(Error::Io { .. }) => Ok(Place::default()),
        Err(error) => Err(error),
    }
}

/// Makes a place durable.
pub(super) fn write(vfs: &dyn Vfs, directory: &Path, place: Place) -> Result<()> {
    let temporary = directory.join("acknowledged.new");
    if vfs.exists(&temporary)? {
        vfs.remove(&temporary)?;
    }
    let file = vfs.create(&temporary)?;
    file.write_at(&encode(place), 0)?;
    file.sync()?;
    vfs.rename(&temporary, &directory.join(NAME))?;
    vfs.sync_dir(directory)
}
