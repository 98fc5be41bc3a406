//! Reads between nodes. What comes from a peer is checked like bytes from a disk: faults are [`Corrupt`].

use bytes::Bytes;
use trefoil::coordinator::{Digest, Unseen};
use trefoil::model::{
    Bound, ClusteringKey, Direction, Page, PageEnd, PagePosition as ModelPosition, PartitionKey, ReadCommand,
    ReadCost as ModelCost, RowPosition, Slice, TableId, Target as ModelTarget, Timestamp, Token, TokenRange,
};
use trefoil::{Corrupt, Result};
use uuid::Uuid;

use crate::v1::page_position::{Here, Row};
use crate::v1::read_operation::Target;
use crate::v1::{BoundPair, PagePosition, ReadCost, ReadOperation, ReplicaPage, TokenSpan};

/// The wire form of a read of one replica.
pub fn read_operation(command: &ReadCommand) -> ReadOperation {
    let target = match &command.target {
        ModelTarget::Partition(key) => Target::Partition(key.bytes().clone()),
        ModelTarget::Scan(tokens) => Target::Scan(TokenSpan {
            after: tokens.after.map(|token| token.0),
            up_to: tokens.up_to.map(|token| token.0),
        }),
    };
    let pair = |slice: &Slice| BoundPair { start: slice.start.bytes().clone(), end: slice.end.bytes().clone() };
    ReadOperation {
        table: Bytes::copy_from_slice(command.table.0.as_bytes()),
        target: Some(target),
        slices: command.slices.iter().map(pair).collect(),
        reversed: command.direction == Direction::Reverse,
        after: command.after.as_ref().map(position),
        now_s: command.now_s,
        limit_rows: command.limit_rows,
        limit_bytes: command.limit_bytes,
        digest_only: false,
        purge_below_us: None,
    }
}

/// The wire form of a read of which only the digest is to be answered.
pub fn digest_operation(command: &ReadCommand, unseen: Unseen) -> ReadOperation {
    let purge_below_us = unseen.below.map(|below| below.0);
    ReadOperation { digest_only: true, purge_below_us, ..read_operation(command) }
}

/// What the digest is to leave out, if a digest is asked for.
pub fn wanted_digest(operation: &ReadOperation) -> Option<Unseen> {
    let below = operation.purge_below_us.map(Timestamp);
    operation.digest_only.then_some(Unseen { now_s: operation.now_s, below })
}

/// A read of one replica from its wire form.
pub fn read_command(operation: ReadOperation) -> Result<ReadCommand> {
    let table = Uuid::from_slice(&operation.table).map_err(|_| corrupt("the table id has not 16 bytes"))?;
    let target = match operation.target {
        Some(Target::Partition(bytes)) => ModelTarget::Partition(PartitionKey::from_bytes(bytes)),
        Some(Target::Scan(span)) => {
            ModelTarget::Scan(TokenRange { after: span.after.map(Token), up_to: span.up_to.map(Token) })
        }
        None => return Err(corrupt("it has no target").into()),
    };
    let slices = operation.slices.into_iter().map(slice).collect::<Result<Vec<_>>>()?;
    if slices.windows(2).any(|pair| pair[0].end > pair[1].start) {
        return Err(corrupt("its slices overlap or do not ascend").into());
    }
    if operation.limit_rows == 0 {
        return Err(corrupt("its row limit is 0").into());
    }
    Ok(ReadCommand {
        table: TableId(table),
        target,
        slices,
        direction: if operation.reversed { Direction::Reverse } else { Direction::Forward },
        after: operation.after.map(position_to_model).transpose()?,
        now_s: operation.now_s,
        limit_rows: operation.limit_rows,
        limit_bytes: operation.limit_bytes,
    })
}

fn slice(pair: BoundPair) -> Result<Slice> {
    let slice = Slice { start: Bound::from_bytes(pair.start)?, end: Bound::from_bytes(pair.end)? };
    if slice.start >= slice.end {
        return Err(corrupt("a slice is empty").into());
    }
    Ok(slice)
}

/// The wire form of a replica's answer and of what it has cost.
pub fn replica_page(page: Page, cost: &ModelCost) -> ReplicaPage {
    let end = match &page.end {
        PageEnd::Complete => None,
        PageEnd::At(at) => Some(position(at)),
    };
    ReplicaPage { entries: page.entries, end, cost: Some(read_cost(cost)), ..ReplicaPage::default() }
}

/// The wire form of the digest of a replica's answer and of what that has cost.
pub fn replica_digest(digest: Digest, cost: &ModelCost) -> ReplicaPage {
    let digest = Bytes::copy_from_slice(&digest.0);
    ReplicaPage { digest, cost: Some(read_cost(cost)), ..ReplicaPage::default() }
}

/// The digest that a replica answered, if it is one.
pub fn digest(page: &ReplicaPage) -> Result<Option<Digest>> {
    if page.digest.is_empty() {
        return Ok(None);
    }
    let digest = page.digest.as_ref().try_into().map_err(|_| corrupt("a digest has not 16 bytes"))?;
    if page.end.is_some() || !page.entries.is_empty() {
        return Err(corrupt("a digest and a page at once").into());
    }
    Ok(Some(Digest(digest)))
}

/// A replica's answer from its wire form; the entries are checked when they are decoded.
pub fn page(page: ReplicaPage) -> Result<(Page, ModelCost)> {
    let end = match page.end {
        None => PageEnd::Complete,
        Some(at) => PageEnd::At(position_to_model(at)?),
    };
    Ok((Page { entries: page.entries, end }, cost(page.cost)))
}

/// What a read has cost a replica, from its wire form.
pub fn cost(cost: Option<ReadCost>) -> ModelCost {
    cost.map_or_else(ModelCost::default, |cost| ModelCost {
        sstables_read: cost.sstables_read,
        sstables_skipped: cost.sstables_skipped,
        blocks_cached: cost.blocks_cached,
        blocks_read: cost.blocks_read,
        bytes_read: cost.bytes_read,
        rows: cost.rows,
        tombstones: cost.tombstones,
    })
}

/// The wire form of what a read has cost.
pub fn read_cost(cost: &ModelCost) -> ReadCost {
    ReadCost {
        sstables_read: cost.sstables_read,
        sstables_skipped: cost.sstables_skipped,
        blocks_cached: cost.blocks_cached,
        blocks_read: cost.blocks_read,
        bytes_read: cost.bytes_read,
        rows: cost.rows,
        tombstones: cost.tombstones,
        commands: 0,
    }
}

fn position(position: &ModelPosition) -> PagePosition {
    let row = match &position.row {
        RowPosition::Header => Row::Header(Here {}),
        RowPosition::After(key) => Row::After(key.bytes().clone()),
        RowPosition::At(bound) => Row::At(bound.bytes().clone()),
        RowPosition::End => Row::End(Here {}),
    };
    PagePosition { partition: position.partition.bytes().clone(), row: Some(row) }
}

fn position_to_model(position: PagePosition) -> Result<ModelPosition> {
    let row = match position.row {
        Some(Row::Header(_)) => RowPosition::Header,
        Some(Row::After(bytes)) => RowPosition::After(ClusteringKey::from_bytes(bytes)?),
        Some(Row::At(bytes)) => RowPosition::At(Bound::from_bytes(bytes)?),
        Some(Row::End(_)) => RowPosition::End,
        None => return Err(corrupt("a position has no place in its partition").into()),
    };
    Ok(ModelPosition { partition: PartitionKey::from_bytes(position.partition), row })
}

fn corrupt(reason: &str) -> Corrupt {
    Corrupt::new("read between nodes", reason)
}
