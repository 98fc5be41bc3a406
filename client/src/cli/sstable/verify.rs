//! `trefoil sstable verify`: every byte against its checksum.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;
use trefoil::sstable::SstableMeta;
use uuid::Uuid;

use super::super::error::{Error, Result};
use super::super::stopped::{self, Sstables};
use super::super::{Global, output};

/// What the manifest beside the files lists.
type Listed = BTreeMap<Uuid, SstableMeta>;

/// A file with nothing wrong.
struct Verified {
    bytes: u64,
    /// Whether there was a hash to compare it with.
    is_listed: bool,
}

/// Verifies each file; all of them, whatever is found in one.
pub fn run(sstables: &Sstables, global: &Global) -> Result<()> {
    let mut faults = 0;
    let listed = match sstables.listed() {
        Ok(listed) => listed,
        Err(error) => {
            faults += 1;
            tell(&error, global)?;
            Listed::new()
        }
    };
    for path in &sstables.paths {
        match verify(path, &listed) {
            Ok(verified) => output::line(&shown(path, &verified, global))?,
            Err(error) => {
                faults += 1;
                tell(&error, global)?;
            }
        }
    }
    if faults == 0 { Ok(()) } else { Err(Error::Faults(faults)) }
}

fn verify(path: &Path, listed: &Listed) -> trefoil::Result<Verified> {
    let sstable = stopped::open(path)?;
    let named = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| Uuid::try_parse(stem).ok());
    // By its name first: a file under the name of another one is not what the manifest means.
    let meta = named.and_then(|id| listed.get(&id)).or_else(|| listed.get(&sstable.id()));
    let outcome = match meta {
        Some(meta) => sstable.verify(&meta.hash),
        None => sstable.verify_unlisted(),
    };
    outcome.map_err(|error| error.in_file(path, 0))?;
    Ok(Verified { bytes: sstable.bytes(), is_listed: meta.is_some() })
}

fn shown(path: &Path, verified: &Verified, global: &Global) -> String {
    let Verified { bytes, is_listed } = verified;
    if global.json {
        return json!({ "file": path.display().to_string(), "bytes": bytes, "listed": is_listed, "error": null })
            .to_string();
    }
    let hash = if *is_listed { "as the manifest lists it" } else { "no manifest beside it lists it" };
    format!("{}: whole, {bytes} bytes, {hash}", path.display())
}

fn tell(error: &trefoil::Error, global: &Global) -> Result<()> {
    output::line(&if global.json { stopped::fault(error).to_string() } else { error.to_string() })
}
