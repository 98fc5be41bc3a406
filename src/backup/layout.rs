//! Keys of objects, below the prefix of the cluster. Made of ids and numbers alone: no host, address, token or name of anybody's
//! is in them (B079, B091), and each part has a fixed width and ends with a slash.
//!
//! ```text
//! obj/<2 hex>/<64 hex>[-<8 hex>]      an SSTable by its SHA-256; with a suffix where the plain key was condemned
//! log/<node 8 hex>/<number 16 hex>    a piece of a node's log
//! part/<backup>/<node 8 hex>          what one node holds for a backup
//! backup/<backup>                     a complete backup
//! intent/<backup>                     a backup under way
//! index                               all complete backups
//! condemned/<prune>                   what a prune is about to delete
//! lease                               who prunes
//! ```

use std::fmt::Write;

use uuid::Uuid;

use crate::model::NodeId;

/// All complete backups.
pub const INDEX: &str = "index";
/// Who prunes.
pub const LEASE: &str = "lease";
/// What all files begin with.
pub const OBJECTS: &str = "obj/";
/// What all manifests begin with.
pub const BACKUPS: &str = "backup/";
/// What all intents begin with.
pub const INTENTS: &str = "intent/";
/// What all parts begin with.
pub const PARTS: &str = "part/";
/// What all pieces begin with.
pub const LOGS: &str = "log/";
/// What all lists of the condemned begin with.
pub const CONDEMNED: &str = "condemned/";

/// What is told to which cluster in a bucket: everything of a cluster is below its id.
pub fn cluster_prefix(cluster: Uuid) -> String {
    cluster.to_string()
}

/// The key of a file with this SHA-256.
pub fn file(hash: &[u8; 32], suffix: Option<u32>) -> String {
    let mut key = format!("{OBJECTS}{:02x}/", hash[0]);
    hash.iter().for_each(|byte| write!(key, "{byte:02x}").unwrap_or(()));
    if let Some(suffix) = suffix {
        write!(key, "-{suffix:08x}").unwrap_or(());
    }
    key
}

/// The key of a piece of the log of a node.
pub fn piece(node: NodeId, number: u64) -> String {
    format!("{}{number:016x}", log_of(node))
}

/// What the keys of all pieces of a node begin with.
pub fn log_of(node: NodeId) -> String {
    format!("{LOGS}{:08x}/", node.0)
}

/// The node and number of a piece, by its key.
pub fn parse_piece(key: &str) -> Option<(NodeId, u64)> {
    let (node, number) = key.strip_prefix(LOGS)?.split_once('/')?;
    let parsed = (NodeId(u32::from_str_radix(node, 16).ok()?), u64::from_str_radix(number, 16).ok()?);
    // Exactly the key that we would make, so that no two keys mean the same.
    (piece(parsed.0, parsed.1) == key).then_some(parsed)
}

/// An object, by its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// An SSTable: its SHA-256, and the suffix.
    File([u8; 32], Option<u32>),
    /// A piece of a node's log.
    Piece(NodeId, u64),
    /// A node's part of a backup.
    Part(Uuid, NodeId),
    /// A complete backup.
    Manifest(Uuid),
    /// A backup under way.
    Intent(Uuid),
    /// What a run of prune is about to remove.
    Condemned(Uuid),
    /// All complete backups.
    Index,
    /// Who prunes.
    Lease,
}

impl Key {
    /// Reads exactly the keys that are made here. `None`: it is no object of ours.
    pub fn parse(key: &str) -> Option<Key> {
        let uuid = |text: &str| Uuid::try_parse(text).ok();
        let node = |text: &str| u32::from_str_radix(text, 16).ok().map(NodeId);
        let parsed = match key.split_once('/') {
            None if key == INDEX => Key::Index,
            None if key == LEASE => Key::Lease,
            None => return None,
            Some(("obj", rest)) => {
                let (_, name) = rest.split_once('/')?;
                let (digits, suffix) = match name.split_once('-') {
                    Some((digits, suffix)) => (digits, Some(u32::from_str_radix(suffix, 16).ok().filter(|n| *n != 0)?)),
                    None => (name, None),
                };
                Key::File(parse_hash(digits)?, suffix)
            }
            Some(("log", _)) => parse_piece(key).map(|(node, number)| Key::Piece(node, number))?,
            Some(("part", rest)) => {
                let (backup, of) = rest.split_once('/')?;
                Key::Part(uuid(backup)?, node(of)?)
            }
            Some(("backup", rest)) => Key::Manifest(uuid(rest)?),
            Some(("intent", rest)) => Key::Intent(uuid(rest)?),
            Some(("condemned", rest)) => Key::Condemned(uuid(rest)?),
            Some(_) => return None,
        };
        // Exactly the key that we would make, so that no two keys mean the same.
        (parsed.text() == key).then_some(parsed)
    }

    /// The key.
    pub fn text(&self) -> String {
        match self {
            Key::File(hash, suffix) => file(hash, *suffix),
            Key::Piece(node, number) => piece(*node, *number),
            Key::Part(backup, node) => part(*backup, *node),
            Key::Manifest(id) => backup(*id),
            Key::Intent(id) => intent(*id),
            Key::Condemned(prune) => condemned(*prune),
            Key::Index => INDEX.to_owned(),
            Key::Lease => LEASE.to_owned(),
        }
    }
}

fn parse_hash(digits: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if digits.len() != 2 * hash.len() || !digits.is_ascii() {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(hash)
}

/// The key of what a run of prune is about to remove.
pub fn condemned(prune: Uuid) -> String {
    format!("{CONDEMNED}{prune}")
}

/// The key of a part.
pub fn part(backup: Uuid, node: NodeId) -> String {
    format!("{PARTS}{backup}/{:08x}", node.0)
}

/// The key of the manifest of a backup.
pub fn backup(backup: Uuid) -> String {
    format!("{BACKUPS}{backup}")
}

/// The key of the intent of a backup.
pub fn intent(backup: Uuid) -> String {
    format!("{INTENTS}{backup}")
}

/// The backup that an intent or a manifest is of, by its key; `prefix` is [`INTENTS`] or [`BACKUPS`].
pub fn parse_backup(prefix: &str, key: &str) -> Option<Uuid> {
    let text = key.strip_prefix(prefix)?;
    Uuid::parse_str(text).ok().filter(|parsed| parsed.to_string() == text)
}
