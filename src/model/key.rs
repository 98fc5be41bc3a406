//! Keys and their byte order.
//!
//! ```text
//! partition key    one component: its CQL bytes; several: for each  u16 length (big-endian) | bytes | 00
//! clustering key   for each component  40 | enc ;  then 38        enc is memcmp-able, inverted for descending columns
//! bound            for each component  40 | enc ;  then 20 (before everything with this prefix) or 60 (after it)
//! ```
//!
//! Above this file only bytes are compared: a descending column is inverted here and nowhere else (B034), and a bound
//! never equals a key, so there is one total order over rows and the ends of ranges (B103).

use bytes::Bytes;

use super::schema::Order;
use super::token::Token;
use super::types::Type;
use crate::Result;

/// A partition key with its token. Ordered by (token, bytes), the order of the ring and of every file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey {
    token: Token,
    bytes: Bytes,
}

/// A row's place within its partition. Ordered by its bytes. A table without clustering columns has one: `38`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusteringKey(Bytes);

/// A place between rows. Ordered by its bytes, and comparable with [`ClusteringKey`]s by theirs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bound(Bytes);

/// The rows between two bounds; empty unless `start < end`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Slice {
    /// Where it begins, in ascending order, whatever the direction of the read.
    pub start: Bound,
    /// Where it ends.
    pub end: Bound,
}

impl PartitionKey {
    /// The key of these components (CQL bytes, in key order), checked against their types and limits.
    pub fn encode(_components: &[Bytes], _types: &[Type]) -> Result<PartitionKey> {
        todo!()
    }

    /// The key of already serialised bytes, as they stand in files and messages; the token is computed.
    pub fn from_bytes(bytes: Bytes) -> PartitionKey {
        PartitionKey { token: Token::of(&bytes), bytes }
    }

    /// The components, as CQL bytes in key order; an error if the bytes are not a key of these types.
    pub fn decode(&self, _types: &[Type]) -> Result<Vec<Bytes>> {
        todo!()
    }

    /// Its place on the ring.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The serialised components: what is hashed, stored and compared.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl ClusteringKey {
    /// The key of these components (CQL bytes, in key order), checked against their types and limits.
    pub fn encode(_components: &[Bytes], _types: &[(Type, Order)]) -> Result<ClusteringKey> {
        todo!()
    }

    /// A key from bytes that were a key's; the framing of components is checked when they are decoded.
    pub fn from_bytes(bytes: Bytes) -> Result<ClusteringKey> {
        Ok(ClusteringKey(bytes))
    }

    /// The components, as CQL bytes in key order.
    pub fn decode(&self, _types: &[(Type, Order)]) -> Result<Vec<Bytes>> {
        todo!()
    }

    /// The ordered bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The place just before this row.
    pub fn before(&self) -> Bound {
        todo!()
    }

    /// The place just after this row.
    pub fn after(&self) -> Bound {
        todo!()
    }
}

impl Bound {
    /// Before every row whose first components are `prefix`; before all rows if it is empty.
    pub fn before(_prefix: &[Bytes], _types: &[(Type, Order)]) -> Result<Bound> {
        todo!()
    }

    /// After every row whose first components are `prefix`; after all rows if it is empty.
    pub fn after(_prefix: &[Bytes], _types: &[(Type, Order)]) -> Result<Bound> {
        todo!()
    }

    /// Before all rows.
    pub fn bottom() -> Bound {
        Bound(Bytes::from_static(&[0x20]))
    }

    /// After all rows.
    pub fn top() -> Bound {
        Bound(Bytes::from_static(&[0x60]))
    }

    /// A bound from bytes that were a bound's; an error if they do not end like one.
    pub fn from_bytes(bytes: Bytes) -> Result<Bound> {
        Ok(Bound(bytes))
    }

    /// The ordered bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

impl Slice {
    /// All rows.
    pub fn all() -> Slice {
        Slice { start: Bound::bottom(), end: Bound::top() }
    }

    /// Just this row.
    pub fn one(key: &ClusteringKey) -> Slice {
        Slice { start: key.before(), end: key.after() }
    }
}
