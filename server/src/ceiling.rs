//! The ceiling of the node's clock, on disk: no stamp beyond it is ever given, so a new run that begins above it never
//! gives a stamp twice, whatever the wall clock does meanwhile.
//!
//! ```text
//! clock    TRFLCLK1 | frame (codec/frame.rs, salt 1) around the ceiling i64 (µs since 1970)       replaced by rename
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use trefoil::codec::frame::{Framed, put_frame, read_frame};
use trefoil::codec::varint::Reader;
use trefoil::model::Stamp;
use trefoil::vfs::Vfs;
use trefoil::{Corrupt, Error, Result};

use crate::coordinate::Shared;

const MAGIC: &[u8; 8] = b"TRFLCLK1";
const SALT: u64 = 1;
const NAME: &str = "clock";

/// How often it is looked whether the ceiling is near.
const LOOK: Duration = Duration::from_millis(100);

/// Keeps the ceiling on disk ahead of the clock.
pub async fn keep_raised(file: Arc<CeilingFile>, shared: Arc<Shared>) {
    let naming = &shared.naming;
    let mut ticks = tokio::time::interval(LOOK);
    loop {
        ticks.tick().await;
        // A clock that is off must not be promised to the next run.
        let wanted = naming.ceiling_wanted().filter(|_| shared.peers.own_clock_off().is_none());
        let Some(ceiling) = wanted else { continue };
        let file = file.clone();
        let written = tokio::task::spawn_blocking(move || file.write(ceiling)).await;
        match written.map_err(|error| error.to_string()).and_then(|written| written.map_err(|error| error.to_string()))
        {
            Ok(()) => naming.ceiling_raised(ceiling),
            Err(reason) => {
                if naming.obstacle().is_none() {
                    tracing::error!(reason, "the clock's ceiling could not be written; it is tried again and again");
                }
                naming.ceiling_not_raised(reason);
            }
        }
    }
}

/// The file that holds it.
pub struct CeilingFile {
    vfs: Arc<dyn Vfs>,
    directory: PathBuf,
}

impl CeilingFile {
    /// The file in a data directory.
    pub fn new(vfs: Arc<dyn Vfs>, directory: &Path) -> CeilingFile {
        CeilingFile { vfs, directory: directory.to_owned() }
    }

    /// The ceiling of the runs before; `Stamp(0)` if there were none.
    pub fn read(&self) -> Result<Stamp> {
        let path = self.directory.join(NAME);
        if !self.vfs.exists(&path)? {
            return Ok(Stamp(0));
        }
        let file = self.vfs.open(&path)?;
        let len = usize::try_from(file.len()?).unwrap_or(usize::MAX).min(256);
        let mut bytes = vec![0; len];
        file.read_at(&mut bytes, 0)?;
        decode(Bytes::from(bytes)).map_err(|error| error.in_file(&path, 0))
    }

    /// Makes a ceiling durable. Blocks.
    pub fn write(&self, ceiling: Stamp) -> Result<()> {
        let temporary = self.directory.join("clock.new");
        if self.vfs.exists(&temporary)? {
            self.vfs.remove(&temporary)?;
        }
        let file = self.vfs.create(&temporary)?;
        file.write_at(&encode(ceiling), 0)?;
        file.sync()?;
        self.vfs.rename(&temporary, &self.directory.join(NAME))?;
        self.vfs.sync_dir(&self.directory)
    }
}

fn encode(ceiling: Stamp) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    put_frame(&mut out, SALT, &ceiling.0.to_le_bytes());
    out
}

fn decode(bytes: Bytes) -> Result<Stamp> {
    let corrupt = |reason: &str| Error::from(Corrupt::new("clock ceiling", reason));
    if bytes.len() < MAGIC.len() || bytes[..MAGIC.len()] != *MAGIC {
        return Err(corrupt("it does not begin with TRFLCLK1"));
    }
    let frame = bytes.slice(MAGIC.len()..);
    let Framed::Whole(payload, taken) = read_frame(&frame, SALT) else {
        return Err(corrupt("its checksum does not fit"));
    };
    if taken != frame.len() {
        return Err(corrupt("there is something behind its end"));
    }
    let mut reader = Reader::new("clock ceiling", payload);
    let ceiling = reader.i64()?;
    reader.end()?;
    Ok(Stamp(ceiling))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use trefoil::vfs::memory::MemoryVfs;

    #[test]
    fn a_ceiling_survives_and_damage_is_noticed() {
        let vfs: Arc<dyn Vfs> = Arc::new(MemoryVfs::new());
        let directory = Path::new("/data");
        vfs.create_dir(directory).unwrap();
        let file = CeilingFile::new(vfs.clone(), directory);
        assert_eq!(file.read().unwrap(), Stamp(0));
        file.write(Stamp(5)).unwrap();
        file.write(Stamp(1_700_000_000_000_000)).unwrap();
        assert_eq!(file.read().unwrap(), Stamp(1_700_000_000_000_000));
        // The example of docs/formats.md: files written once must be readable for ever.
        let kept: String = encode(Stamp(1_700_000_000_000_000)).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(kept, "5452464c434c4b3108000000dd06643500401e18240a0600");
        let good = encode(Stamp(7));
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(decode(Bytes::from(bad)).is_err(), "byte {at}");
            assert!(decode(Bytes::copy_from_slice(&good[..at])).is_err(), "cut at {at}");
        }
    }
}
