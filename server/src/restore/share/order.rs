//! What is to be restored, and what of it is this node's own.

use std::num::NonZeroU64;

use bytes::Bytes;
use prost::Message;
use sha2::{Digest, Sha256};
use trefoil::metadata::ClusterState;
use trefoil::model::{NodeId, Stamp, TableId, Vnode, VnodeBits};
use trefoil_proto::v1;
use trefoil_s3::Location;
use uuid::Uuid;

use crate::restore::{location, place};

/// What is restored, and from where; the same for every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The bucket.
    pub location: Location,
    /// The cluster that was backed up.
    pub cluster: Uuid,
    /// The backup whose files are taken.
    pub backup: Uuid,
    /// Everything stamped so or before is restored.
    pub through: Stamp,
    /// Each table by its id in the backup, and by its id here.
    pub tables: Vec<(TableId, TableId)>,
    /// The node fetches no more bytes in a second.
    pub bytes_per_s: Option<NonZeroU64>,
}

impl Order {
    /// What a message says, or what is wrong with it.
    pub fn read(message: v1::RestoreOrder) -> Result<Order, String> {
        let place = message.place.ok_or("the order does not say where the backup is")?;
        let table = |table: &v1::RestoreTable| -> Result<(TableId, TableId), String> {
            Ok((TableId(uuid(&table.source)?), TableId(uuid(&table.table)?)))
        };
        Ok(Order {
            location: location(&place),
            cluster: uuid(&message.cluster)?,
            backup: uuid(&message.backup)?,
            through: Stamp(message.through_us),
            tables: message.tables.iter().map(table).collect::<Result<_, _>>()?,
            bytes_per_s: NonZeroU64::new(message.bytes_per_s),
        })
    }

    /// The message.
    pub fn message(&self) -> v1::RestoreOrder {
        let Order { location, cluster, backup, through, tables, bytes_per_s } = self;
        let id = |id: &Uuid| Bytes::copy_from_slice(id.as_bytes());
        v1::RestoreOrder {
            place: Some(place(location)),
            cluster: id(cluster),
            backup: id(backup),
            through_us: through.0,
            tables: tables
                .iter()
                .map(|(source, table)| v1::RestoreTable { source: id(&source.0), table: id(&table.0) })
                .collect(),
            bytes_per_s: bytes_per_s.map_or(0, NonZeroU64::get),
        }
    }
}

pub(super) fn uuid(bytes: &Bytes) -> Result<Uuid, String> {
    Uuid::from_slice(bytes).map_err(|_| format!("{} bytes are no id", bytes.len()))
}

/// What is a node's own of the tables of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owned {
    /// The number of vnodes of this cluster.
    pub(super) bits: VnodeBits,
    /// By table, in the order's order: the vnodes that it has a copy of, ascending.
    pub(super) vnodes: Vec<Vec<Vnode>>,
}

impl Owned {
    /// What `node` has of the order's tables; an error names the one that is not there.
    pub(super) fn of(order: &Order, state: &ClusterState, node: NodeId) -> Result<Owned, String> {
        let ring = state.ring();
        let bits = ring.vnode_bits();
        let vnodes = order.tables.iter().map(|(_, id)| {
            let table = state.table(*id).ok_or_else(|| format!("table {id} is not known to this node yet"))?;
            let keyspace = state.keyspace(table.keyspace);
            let keyspace =
                keyspace.ok_or_else(|| format!("the keyspace of table {id} is not known to this node yet"))?;
            let all = (0..bits.count()).map(Vnode);
            Ok(all.filter(|vnode| ring.is_replica(keyspace, *vnode, node)).collect())
        });
        Ok(Owned { bits, vnodes: vnodes.collect::<Result<_, String>>()? })
    }

    /// Tells an order and what is owned of it from all others.
    pub(super) fn digest(&self, order: &Order) -> [u8; 32] {
        // How fast is no part of what.
        let order = Order { bytes_per_s: None, ..order.clone() };
        let mut digest = Sha256::new();
        digest.update(order.message().encode_to_vec());
        digest.update([self.bits.bits()]);
        for vnodes in &self.vnodes {
            digest.update((vnodes.len() as u64).to_le_bytes());
            vnodes.iter().for_each(|vnode| digest.update(vnode.0.to_le_bytes()));
        }
        digest.finalize().into()
    }
}
