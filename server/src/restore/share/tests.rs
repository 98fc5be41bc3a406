//! Shares of restores: whatever cluster was backed up and whatever cluster it comes back to, all nodes together hold what was
//! written up to the time, no more and no less.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use trefoil::model::Stamp;
use trefoil_s3::{Call, Fault, Faulty, ObjectStore};

use super::*;
use source::{Shape, Source};
use target::{RESTORE, Target};

mod damage;
mod source;
mod target;

/// Longest wait for anything in a test.
const PATIENCE: Duration = Duration::from_secs(30);

/// A bucket that is the same whatever its location.
pub(super) struct TheOne(pub(super) Arc<dyn ObjectStore>);

impl Buckets for TheOne {
    fn open(&self, _: Location, _: Limits) -> BoxFuture<'_, trefoil_s3::Result<Arc<dyn ObjectStore>>> {
        Box::pin(async { Ok(self.0.clone()) })
    }
}

/// Three zones of one node each, as most have it.
const THREE: Shape = Shape { vnode_bits: 4, zones: &[("eu", "a", 1), ("eu", "b", 1), ("eu", "c", 1)] };

#[tokio::test(flavor = "multi_thread")]
async fn what_all_nodes_load_is_what_was_written_up_to_the_time() {
    for seed in 0..12 {
        let source = Source::new(THREE, seed).await;
        for at in source.times() {
            let target = Target::new(&source, Shape { vnode_bits: 5, zones: &[("eu", "a", 2)] });
            target.load_all(source.bucket.clone(), at).await;
            assert_eq!(target.rows(), source.rows(at), "seed {seed}, at {at:?}");
        }
    }
}

/// B076: restoring mapped nodes to nodes without regard to zones, so that several copies came into one and another lacked
/// data. Here each node asks the placement for what is its own: whatever the numbers of nodes, zones, regions and vnodes
/// were and are, each copy of each region is whole.
#[tokio::test(flavor = "multi_thread")]
async fn b076_every_copy_is_whole_in_whatever_shape() {
    let shapes: [Shape; 4] = [
        Shape { vnode_bits: 4, zones: &[("eu", "a", 1), ("eu", "b", 1)] },
        Shape { vnode_bits: 2, zones: &[("mars", "a", 3), ("mars", "b", 1), ("mars", "c", 1)] },
        Shape { vnode_bits: 6, zones: &[("eu", "a", 3), ("eu", "b", 3), ("eu", "c", 3)] },
        Shape { vnode_bits: 0, zones: &[("eu", "z", 1)] },
    ];
    let sources = [THREE, Shape { vnode_bits: 3, zones: &[("us", "x", 2), ("us", "y", 2), ("us", "z", 2)] }];
    for (shape, from) in sources.into_iter().enumerate() {
        let source = Source::new(from, 100 + shape as u64).await;
        let at = source.times()[1];
        for shape in shapes {
            let target = Target::new(&source, shape);
            target.load_all(source.bucket.clone(), at).await;
            for copy in target.copies() {
                assert_eq!(copy, source.rows(at), "{shape:?}");
            }
        }
    }
}

/// B077: state of the old cluster came back with its data, and old promises were kept again. Here data comes and nothing
/// else: no names, no promises, nothing to be purged by.
#[tokio::test(flavor = "multi_thread")]
async fn b077_a_restore_brings_data_and_no_state_of_the_cluster_that_was() {
    let source = Source::new(THREE, 7).await;
    let target = Target::new(&source, THREE);
    target.load_all(source.bucket.clone(), source.times()[2]).await;
    for node in &target.nodes {
        assert!(!node.store.live_files().is_empty());
        assert!(node.store.received().is_empty() && node.store.saved_reconciled().is_empty());
        assert!(node.store.saved_purged_through().is_empty());
        assert_eq!(node.store.closed_through(), Stamp(0));
        assert_eq!(node.vfs.list(std::path::Path::new("/node/restore")).unwrap(), [RESTORE.to_string()]);
    }
}

/// A share whose bucket fails now and then stops and goes on where it was, with or without a restart of its node.
#[tokio::test(flavor = "multi_thread")]
async fn a_share_that_stopped_goes_on() {
    let source = Source::new(THREE, 3).await;
    let at = source.times()[1];
    let mut target = Target::new(&source, Shape { vnode_bits: 3, zones: &[("eu", "a", 1)] });
    let mut turn = 0;
    loop {
        turn += 1;
        let mut left = 4 * turn;
        let failing = Faulty::new(source.bucket.clone(), move |call, _| {
            left -= i32::from(call == Call::Get);
            (left < 0).then_some(Fault::Unreachable)
        });
        let share = target.load(0, Arc::new(failing), at).await;
        if share.state() == v1::RestoreShareState::Done {
            break;
        }
        assert!(share.state() == v1::RestoreShareState::Stopped && share.retry, "{share:?}");
        if turn % 2 == 0 {
            target.restart(0);
        }
    }
    assert!(turn > 3, "{turn}");
    assert_eq!(target.rows(), source.rows(at));
    // Done is done, after a restart too: nothing is asked for.
    target.restart(0);
    let nothing = Faulty::new(source.bucket.clone(), |_, _| Some(Fault::Denied));
    assert_eq!(target.load(0, Arc::new(nothing), at).await.state(), v1::RestoreShareState::Done);
}

/// The power goes in the middle of a share: what is noted as loaded is there, and going on leads to the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_share_survives_the_loss_of_power() {
    let source = Source::new(THREE, 5).await;
    let at = source.times()[1];
    for turn in 1..40_u64 {
        let mut target = Target::new(&source, Shape { vnode_bits: 2, zones: &[("eu", "a", 1)] });
        let vfs = target.nodes[0].vfs.clone();
        vfs.power_off_at(vfs.operations() + 4 * turn);
        let share = target.load(0, source.bucket.clone(), at).await;
        let is_done = share.state() == v1::RestoreShareState::Done;
        target.crash(0, turn);
        let again = target.load(0, source.bucket.clone(), at).await;
        assert_eq!(again.state(), v1::RestoreShareState::Done, "turn {turn}: {again:?}");
        assert_eq!(target.rows(), source.rows(at), "turn {turn}");
        if is_done {
            return;
        }
    }
    panic!("it never came to its end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_is_ended_and_forgotten_and_another_order_is_told_apart() {
    let source = Source::new(THREE, 11).await;
    let target = Target::new(&source, Shape { vnode_bits: 2, zones: &[("eu", "a", 1)] });
    let at = source.times()[0];
    // It hangs until it is ended.
    let stalled = Faulty::new(source.bucket.clone(), |_, key| key.contains("/obj/").then_some(Fault::Unreachable));
    target.load(0, Arc::new(stalled), at).await;
    let shares = target.nodes[0].shares(source.bucket.clone());
    assert_eq!(shares.look(RESTORE).state(), v1::RestoreShareState::Unspecified);
    let order = target.order(at);
    target.nodes[0].begin(&shares, order.clone(), &target.state).await.unwrap();
    let other = Order { through: source.times()[1], ..order.clone() };
    assert!(target.nodes[0].begin(&shares, other, &target.state).await.is_err());
    let faster = Order { bytes_per_s: std::num::NonZeroU64::new(1 << 30), ..order.clone() };
    target.nodes[0].begin(&shares, faster, &target.state).await.unwrap();
    let shares = Arc::new(shares);
    let ending = shares.clone();
    tokio::task::spawn_blocking(move || ending.end(RESTORE)).await.unwrap().unwrap();
    assert_eq!(shares.look(RESTORE).state(), v1::RestoreShareState::Unspecified);
    let notes = PathBuf::from(format!("/node/restore/{RESTORE}"));
    assert!(!target.nodes[0].vfs.exists(&notes).unwrap());
    // A table that is in use takes nothing.
    let in_use = target.in_use();
    assert!(in_use.nodes[0].begin(&in_use.nodes[0].shares(source.bucket.clone()), order, &target.state).await.is_err());
}

/// What the notes below have been since they were first written.
const GOLDEN: &str = concat!(
    "5452464c5253543101000000580000009b8297e9070707070707070707070707070707070707070707070707070707070707",
    "07070002000000000000000000000000000000010300020600a20200000000000000000000000000000000020001030000002211000000000000"
);

#[test]
fn notes_are_kept_as_they_always_were() {
    use trefoil::model::{NodeId, TableId, Vnode};
    let mut notes = Notes { order: [7; 32], ..Notes::default() };
    let vnodes = [0, 1, 2, 9, 300].map(Vnode).into_iter().collect();
    notes.vnodes.insert(TableId(Uuid::from_u128(1)), vnodes);
    notes.vnodes.insert(TableId(Uuid::from_u128(2)), Default::default());
    notes.logs.insert(NodeId(3), 0x1122);
    let bytes = notes.encode();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, GOLDEN);
    assert_eq!(Notes::decode(&bytes.clone().into()), Some(notes.clone()));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert_eq!(Notes::decode(&damaged.into()), None, "byte {at}");
        assert_eq!(Notes::decode(&bytes[..at].to_vec().into()), None);
    }
    notes.is_done = true;
    assert_eq!(Notes::decode(&notes.encode().into()), Some(notes));
}
