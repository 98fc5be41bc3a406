//! Reads between nodes survive the wire; faulty ones are corrupt, never a panic.

use bytes::Bytes;
use proptest::prelude::*;
use trefoil::coordinator::{Digest, Unseen};
use trefoil::model::{
    Bound, ClusteringKey, Direction, Order, Page, PageEnd, PagePosition, PartitionKey, ReadCommand, RowPosition, Slice,
    TableId, Target, Timestamp, Token, TokenRange, Type,
};
use uuid::Uuid;

use crate::convert::peer;
use crate::v1::{BoundPair, ReadOperation, ReplicaPage};

fn key(value: i32) -> ClusteringKey {
    ClusteringKey::encode(&[value.to_be_bytes().to_vec().into()], &[(Type::Int, Order::Ascending)]).unwrap()
}

fn positions() -> impl Strategy<Value = PagePosition> {
    let row = prop_oneof![
        Just(RowPosition::Header),
        any::<i32>().prop_map(|value| RowPosition::After(key(value))),
        any::<i32>().prop_map(|value| RowPosition::At(key(value).before())),
        Just(RowPosition::End),
    ];
    ("[a-z]{1,5}", row)
        .prop_map(|(partition, row)| PagePosition { partition: PartitionKey::from_bytes(partition.into()), row })
}

fn commands() -> impl Strategy<Value = ReadCommand> {
    let target = prop_oneof![
        "[a-z]{1,5}".prop_map(|key| Target::Partition(PartitionKey::from_bytes(key.into()))),
        (any::<Option<i64>>(), any::<Option<i64>>())
            .prop_map(|(after, up_to)| Target::Scan(TokenRange { after: after.map(Token), up_to: up_to.map(Token) })),
    ];
    let slices = prop::collection::btree_set(any::<i32>(), 0..4)
        .prop_map(|keys| keys.into_iter().map(|value| Slice::one(&key(value))).collect::<Vec<_>>());
    let direction = prop::sample::select(vec![Direction::Forward, Direction::Reverse]);
    let rest = (any::<u128>(), any::<i64>(), 1..=u32::MAX, any::<u32>());
    (target, slices, direction, prop::option::of(positions()), rest).prop_map(
        |(target, slices, direction, after, (table, now_s, limit_rows, limit_bytes))| ReadCommand {
            table: TableId(Uuid::from_u128(table)),
            target,
            slices,
            direction,
            after,
            now_s,
            limit_rows,
            limit_bytes,
        },
    )
}

proptest! {
    #[test]
    fn a_read_survives_the_wire(command in commands()) {
        prop_assert_eq!(peer::read_command(peer::read_operation(&command)).unwrap(), command);
    }

    #[test]
    fn a_page_survives_the_wire(end in prop::option::of(positions())) {
        let end = end.map_or(PageEnd::Complete, PageEnd::At);
        let page = Page { entries: Bytes::from_static(b"entries"), end };
        let cost = trefoil::model::ReadCost { blocks_read: 3, rows: 4, ..Default::default() };
        prop_assert_eq!(peer::page(peer::replica_page(page.clone(), &cost)).unwrap(), (page, cost));
    }
}

#[test]
fn a_digest_survives_the_wire() {
    let command = ReadCommand {
        table: TableId(Uuid::nil()),
        target: Target::Scan(TokenRange::ALL),
        slices: vec![],
        direction: Direction::Forward,
        after: None,
        now_s: 7,
        limit_rows: 1,
        limit_bytes: 0,
    };
    for below in [None, Some(Timestamp(-5))] {
        let unseen = Unseen { now_s: 7, below };
        let operation = peer::digest_operation(&command, unseen);
        assert_eq!(peer::wanted_digest(&operation), Some(unseen));
        assert_eq!(peer::read_command(operation).unwrap(), command);
    }
    assert_eq!(peer::wanted_digest(&peer::read_operation(&command)), None);
    let cost = trefoil::model::ReadCost { rows: 4, ..Default::default() };
    let answer = peer::replica_digest(Digest([9; 16]), &cost);
    assert_eq!(peer::digest(&answer).unwrap(), Some(Digest([9; 16])));
    assert_eq!(peer::cost(answer.cost), cost);
    assert_eq!(peer::digest(&ReplicaPage::default()).unwrap(), None);
    let short = ReplicaPage { digest: Bytes::from_static(b"short"), ..answer.clone() };
    let both = ReplicaPage { entries: Bytes::from_static(b"entries"), ..answer };
    assert!(peer::digest(&short).is_err() && peer::digest(&both).is_err());
}

#[test]
fn faulty_reads_are_corrupt() {
    let good = || {
        let command = ReadCommand {
            table: TableId(Uuid::nil()),
            target: Target::Scan(TokenRange::ALL),
            slices: vec![],
            direction: Direction::Forward,
            after: None,
            now_s: 0,
            limit_rows: 1,
            limit_bytes: 0,
        };
        peer::read_operation(&command)
    };
    let pair = |start: Bound, end: Bound| BoundPair { start: start.bytes().clone(), end: end.bytes().clone() };
    let faulty = [
        ReadOperation { table: Bytes::from_static(b"short"), ..good() },
        ReadOperation { target: None, ..good() },
        ReadOperation { limit_rows: 0, ..good() },
        ReadOperation { slices: vec![BoundPair::default()], ..good() },
        ReadOperation { slices: vec![pair(Bound::top(), Bound::bottom())], ..good() },
        ReadOperation {
            slices: vec![pair(key(3).before(), key(4).after()), pair(key(4).before(), key(5).after())],
            ..good()
        },
        ReadOperation { after: Some(Default::default()), ..good() },
    ];
    assert!(peer::read_command(good()).is_ok());
    for operation in faulty {
        let refused = peer::read_command(operation.clone());
        assert!(matches!(refused, Err(trefoil::Error::Corrupt(_))), "{operation:?}: {refused:?}");
    }
}
