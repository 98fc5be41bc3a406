//! Whose data a directory holds, and who may open it.
//!
//! ```text
//! IDENTITY   magic "TRFLIDT1" | version u32 | frame (codec/frame.rs, salt 0) of: cluster uuid 16 | node u32 | vnode bits u8
//! LOCK       empty; held while a process has the directory open
//! ```
//!
//! The file is written last when a directory is made, so that where it stands the manifest stands too: a directory that
//! has an identity and no manifest has lost something and is refused.

use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::codec::frame::{Framed, put_frame, read_frame};
use crate::codec::varint::Reader;
use crate::model::{Identity, NodeId, VnodeBits};
use crate::vfs::Vfs;
use crate::{Corrupt, Error, Result};

const MAGIC: &[u8; 8] = b"TRFLIDT1";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 12;

/// Far more than an identity takes; a longer file is something else.
const FILE_MAX_BYTES: u64 = 4 << 10;

pub(super) fn path(directory: &Path) -> PathBuf {
    directory.join("IDENTITY")
}

/// What is locked while the directory is in use.
pub(super) fn lock_path(directory: &Path) -> PathBuf {
    directory.join("LOCK")
}

/// The directory's identity, if it has one.
pub(super) fn read(vfs: &dyn Vfs, directory: &Path) -> Result<Option<Identity>> {
    let path = path(directory);
    if !vfs.exists(&path)? {
        return Ok(None);
    }
    let file = vfs.open(&path)?;
    let len = file.len()?;
    if !(HEADER_BYTES as u64..FILE_MAX_BYTES).contains(&len) {
        return Err(Corrupt::new("identity", format!("{len} bytes is not its length")).at(&path, 0).into());
    }
    let bytes = file.map(0, len as usize)?;
    decode(&path, &bytes).map(Some).map_err(|error| error.in_file(&path, 0))
}

fn decode(path: &Path, bytes: &bytes::Bytes) -> Result<Identity> {
    let mut header = Reader::new("identity", bytes.slice(..HEADER_BYTES));
    if header.array::<8>()? != *MAGIC {
        return Err(header.corrupt("the magic does not stand at its beginning").into());
    }
    let found = header.u32()?;
    if found != VERSION {
        let what = "identity";
        return Err(Error::Version { what, file: path.to_owned(), found, oldest: VERSION, newest: VERSION });
    }
    let Framed::Whole(payload, taken) = read_frame(&bytes.slice(HEADER_BYTES..), 0) else {
        return Err(Corrupt::new("identity", "its checksum does not fit").into());
    };
    let mut reader = Reader::new("identity", payload);
    let cluster = Uuid::from_bytes(reader.array()?);
    let node = NodeId(reader.u32()?);
    let bits = reader.u8()?;
    let vnode_bits = VnodeBits::new(bits).ok_or_else(|| reader.corrupt(format!("{bits} vnode bits are too many")))?;
    reader.end()?;
    if HEADER_BYTES + taken != bytes.len() {
        return Err(Corrupt::new("identity", "there are bytes behind its end").into());
    }
    Ok(Identity { cluster, node, vnode_bits })
}

pub(super) fn encode(identity: &Identity) -> Vec<u8> {
    let mut payload = identity.cluster.as_bytes().to_vec();
    payload.extend(identity.node.0.to_le_bytes());
    payload.push(identity.vnode_bits.bits());
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    put_frame(&mut bytes, 0, &payload);
    bytes
}

/// Gives the directory its identity, durably.
pub(super) fn write(vfs: &dyn Vfs, directory: &Path, identity: &Identity) -> Result<()> {
    let (new, path) = (directory.join("IDENTITY.new"), path(directory));
    if vfs.exists(&new)? {
        vfs.remove(&new)?;
    }
    let file = vfs.create(&new)?;
    file.write_at(&encode(identity), 0)?;
    file.sync()?;
    vfs.rename(&new, &path)?;
    vfs.sync_dir(directory)
}

/// Refuses a directory that is somebody else's.
pub(super) fn check(directory: &Path, found: &Identity, expected: &Identity) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let (found, expected) = (describe(found), describe(expected));
    Err(Error::WrongDirectory { directory: directory.to_owned(), found, expected })
}

fn describe(identity: &Identity) -> String {
    let Identity { cluster, node, vnode_bits } = identity;
    format!("node {node} of cluster {cluster} with {} vnodes", vnode_bits.count())
}
