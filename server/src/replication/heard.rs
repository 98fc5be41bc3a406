//! How far the clocks of other nodes had come, by what they told: on disk, so that one whose directory was set back is told even
//! by a node that has started again since.
//!
//! ```text
//! heard    TRFLHRD1 | frame (codec/frame.rs, salt 2) around: count varint | (node u32 | stamp i64) ...     replaced by rename
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use trefoil::codec::frame::{Framed, put_frame, read_frame};
use trefoil::codec::varint::{Reader, put_varint};
use trefoil::model::{NodeId, Stamp};
use trefoil::vfs::Vfs;
use trefoil::{Corrupt, Error, Result};

const MAGIC: &[u8; 8] = b"TRFLHRD1";
const SALT: u64 = 2;
const NAME: &str = "heard";

/// Bytes of one node.
const ENTRY_BYTES: usize = 12;

/// The file, and what it says.
pub struct HeardClocks {
    vfs: Arc<dyn Vfs>,
    directory: PathBuf,
    clocks: Mutex<BTreeMap<NodeId, Stamp>>,
}

impl HeardClocks {
    /// Reads the file in the data directory; nobody was heard if there is none. Damage is an error: a peer that had lost data
    /// would not be told.
    pub fn open(vfs: Arc<dyn Vfs>, directory: &Path) -> Result<HeardClocks> {
        let path = directory.join(NAME);
        let mut clocks = BTreeMap::new();
        if vfs.exists(&path)? {
            let file = vfs.open(&path)?;
            let mut bytes = vec![0; file.len()? as usize];
            file.read_at(&mut bytes, 0)?;
            clocks = decode(Bytes::from(bytes)).map_err(|error| error.in_file(&path, 0))?;
        }
        Ok(HeardClocks { vfs, directory: directory.to_owned(), clocks: Mutex::new(clocks) })
    }

    /// How far the clock of a node had come; 0 if it was never heard.
    pub fn of(&self, node: NodeId) -> Stamp {
        self.clocks.lock().get(&node).copied().unwrap_or_default()
    }

    /// Takes in what was heard, on disk if it is news. Blocks.
    pub fn learn(&self, heard: impl IntoIterator<Item = (NodeId, Stamp)>) -> Result<()> {
        let mut clocks = self.clocks.lock();
        let mut next = clocks.clone();
        for (node, stamp) in heard {
            let known = next.entry(node).or_default();
            *known = stamp.max(*known);
        }
        if next == *clocks {
            return Ok(());
        }
        let temporary = self.directory.join(format!("{NAME}.new"));
        if self.vfs.exists(&temporary)? {
            self.vfs.remove(&temporary)?;
        }
        let file = self.vfs.create(&temporary)?;
        file.write_at(&encode(&next), 0)?;
        file.sync()?;
        self.vfs.rename(&temporary, &self.directory.join(NAME))?;
        self.vfs.sync_dir(&self.directory)?;
        *clocks = next;
        Ok(())
    }
}

fn encode(clocks: &BTreeMap<NodeId, Stamp>) -> Vec<u8> {
    let mut payload = Vec::new();
    put_varint(&mut payload, clocks.len() as u64);
    for (node, stamp) in clocks {
        payload.extend(node.0.to_le_bytes());
        payload.extend(stamp.0.to_le_bytes());
    }
    let mut out = MAGIC.to_vec();
    put_frame(&mut out, SALT, &payload);
    out
}

fn decode(bytes: Bytes) -> Result<BTreeMap<NodeId, Stamp>> {
    let corrupt = |reason: &str| Error::from(Corrupt::new("heard clocks", reason));
    if bytes.len() < MAGIC.len() || bytes[..MAGIC.len()] != *MAGIC {
        return Err(corrupt("it does not begin with TRFLHRD1"));
    }
    let frame = bytes.slice(MAGIC.len()..);
    let Framed::Whole(payload, taken) = read_frame(&frame, SALT) else {
        return Err(corrupt("its checksum does not fit"));
    };
    if taken != frame.len() {
        return Err(corrupt("there is something behind its end"));
    }
    let mut reader = Reader::new("heard clocks", payload);
    let mut clocks = BTreeMap::new();
    for _ in 0..reader.count(ENTRY_BYTES)? {
        let (node, stamp) = (NodeId(reader.u32()?), Stamp(reader.i64()?));
        if clocks.last_key_value().is_some_and(|(last, _)| *last >= node) {
            return Err(reader.corrupt("nodes do not ascend").into());
        }
        clocks.insert(node, stamp);
    }
    reader.end()?;
    Ok(clocks)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use trefoil::vfs::memory::MemoryVfs;

    #[test]
    fn what_was_heard_survives_and_damage_is_noticed() {
        let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
        let directory = Path::new("/data");
        vfs.create_dir(directory).unwrap();
        let heard = HeardClocks::open(vfs.clone(), directory).unwrap();
        heard.learn([(NodeId(2), Stamp(7)), (NodeId(3), Stamp(9))]).unwrap();
        heard.learn([(NodeId(2), Stamp(6))]).unwrap();
        let again = HeardClocks::open(vfs, directory).unwrap();
        assert_eq!([1, 2, 3].map(|node| again.of(NodeId(node))), [Stamp(0), Stamp(7), Stamp(9)]);
        // The example of docs/formats.md: files written once must be readable for ever.
        let good = encode(&[(NodeId(2), Stamp(7))].into());
        let kept: String = good.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(kept, "5452464c485244310d000000c3c57f5001020000000700000000000000");
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(decode(Bytes::from(bad)).is_err(), "byte {at}");
            assert!(decode(Bytes::copy_from_slice(&good[..at])).is_err(), "cut at {at}");
        }
    }
}
