//! What is kept, and what goes.
#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::backup::{LASTS_MAX_US, Listed, ListedPart, ListedPiece, Phase, Scope, StoredFile};
use crate::commitlog::Position;
use crate::model::{TableId, VnodeBits};
use crate::sstable::SstableMeta;

const CLUSTER: Uuid = Uuid::from_u128(1);
const GRACE_US: i64 = 2 * DAY_US;
/// Long after everything below.
const NOW: Stamp = Stamp(100 * DAY_US);

fn file(number: u8) -> StoredFile {
    let table = TableId(Uuid::from_u128(5));
    let id = Uuid::from_u128(number.into());
    let meta = SstableMeta { id, table, bytes: 10, hash: [number; 32], stamps: (Stamp(1), Stamp(2)) };
    StoredFile { meta, suffix: None }
}

fn part(backup: u128, node: u32, first_piece: u64, files: &[u8]) -> Part {
    Part {
        cluster: CLUSTER,
        backup: Uuid::from_u128(backup),
        node: NodeId(node),
        vnode_bits: VnodeBits::new(3).unwrap(),
        made_at: Stamp(1),
        position: Position::default(),
        first_piece,
        highest: Stamp(2),
        tables: Vec::new(),
        files: files.iter().map(|number| file(*number)).collect(),
        received: Default::default(),
        state: Bytes::new(),
    }
}

/// A backup that was complete on that day, of these parts and pieces.
fn manifest(day: i64, tag: &str, parts: &[&Part], pieces: &[(u32, u64)]) -> Manifest {
    let object = Listed { bytes: 10, hash: [0; 32] };
    Manifest {
        cluster: CLUSTER,
        backup: parts[0].backup,
        name: String::new(),
        tag: tag.to_owned(),
        scope: Scope::All,
        began_at: Stamp(day * DAY_US - 1),
        cut: Stamp(day * DAY_US),
        state: Bytes::new(),
        parts: parts.iter().map(|part| ListedPart { node: part.node, object, files: 1, file_bytes: 1 }).collect(),
        pieces: pieces
            .iter()
            .map(|(node, number)| ListedPiece { node: NodeId(*node), number: *number, object })
            .collect(),
        absent: Vec::new(),
    }
}

fn intent(backup: u128, began_at: Stamp, phase: Phase) -> Intent {
    Intent {
        cluster: CLUSTER,
        backup: Uuid::from_u128(backup),
        name: String::new(),
        tag: String::new(),
        scope: Scope::All,
        began_at,
        driver: NodeId(1),
        driven_at: began_at,
        cut: None,
        phase,
        reason: String::new(),
    }
}

fn old(keys: impl IntoIterator<Item = String>) -> Vec<Seen> {
    keys.into_iter().map(|key| Seen { key, bytes: 10, modified_at: Stamp(0) }).collect()
}

fn unneeded(facts: &Facts, retention: &Retention) -> Vec<String> {
    mark(facts, retention, NOW, GRACE_US).unneeded.into_iter().map(|seen| seen.key).collect()
}

/// Two backups, of days 10 and 90; the older one has file 1 alone, both have file 2, nobody has file 3.
fn two() -> Facts {
    let (first, second) = (part(10, 1, 5, &[1, 2]), part(90, 1, 8, &[2]));
    let manifests = vec![manifest(10, "", &[&first], &[(1, 5), (1, 6)]), manifest(90, "", &[&second], &[(1, 8)])];
    let files = (1..=3).map(|number| file(number).key());
    let pieces = (4..=10).map(|number| layout::piece(NodeId(1), number));
    let rest = manifests.iter().map(Manifest::key).chain([first.key(), second.key(), layout::INDEX.to_owned()]);
    let objects = old(files.chain(pieces).chain(rest));
    Facts { objects, manifests, intents: Vec::new(), parts: vec![first, second] }
}

fn days(days: u32) -> Retention {
    Retention { days: Some(days), ..Retention::default() }
}

#[test]
fn without_rules_only_what_no_backup_needs_goes() {
    assert_eq!(unneeded(&two(), &Retention::default()), [file(3).key(), layout::piece(NodeId(1), 4)]);
}

#[test]
fn an_old_backup_goes_with_what_it_alone_needs() {
    let facts = two();
    let pieces = (4..=7).map(|number| layout::piece(NodeId(1), number));
    let mut expected: Vec<String> = [file(1).key(), file(3).key()].into_iter().chain(pieces).collect();
    expected.extend([facts.manifests[0].key(), facts.parts[0].key()]);
    assert_eq!(unneeded(&facts, &days(30)), expected);
    let count = Retention { count: Some(1), ..Retention::default() };
    assert_eq!(unneeded(&facts, &count), expected);
}

#[test]
fn the_newest_backup_stays_however_old_it_is() {
    let retention = days(1);
    let kept = retention.kept(&two().manifests, NOW);
    assert_eq!(kept.into_keys().collect::<Vec<_>>(), [Uuid::from_u128(90)]);
}

#[test]
fn a_tag_keeps_a_backup_as_of_its_cut_and_not_the_logs_behind() {
    let mut facts = two();
    facts.manifests[0].tag = "yearly".to_owned();
    let retention = Retention { tags: vec!["yearly".to_owned()], ..days(30) };
    let gone = [4, 7].map(|number| layout::piece(NodeId(1), number));
    assert_eq!(unneeded(&facts, &retention), [&[file(3).key()], &gone[..]].concat());
}

#[test]
fn what_is_young_or_is_not_ours_stays() {
    let mut facts = two();
    facts.objects.iter_mut().filter(|seen| seen.key == file(3).key()).for_each(|seen| {
        seen.modified_at = Stamp(NOW.0 - GRACE_US + 1);
    });
    facts.objects.push(Seen { key: "obj/readme".to_owned(), bytes: 1, modified_at: Stamp(0) });
    let marks = mark(&facts, &Retention::default(), NOW, GRACE_US);
    assert_eq!(marks.unneeded.len(), 1);
    assert_eq!((marks.young, marks.strangers), ((1, 10), vec!["obj/readme".to_owned()]));
}

/// Nodes 10, 101 and 102: a run for one of them took the others' objects for its own, by what keys begin with.
#[test]
fn b079_no_node_is_taken_for_another() {
    let parts: Vec<Part> = [0x10, 0x101, 0x102].map(|node| part(90, node, u64::from(node), &[])).into();
    let all: Vec<&Part> = parts.iter().collect();
    let manifests = vec![manifest(90, "", &all, &[])];
    let piece = |node: u32, number| layout::piece(NodeId(node), number);
    let objects =
        old([piece(0x10, 0xf), piece(0x10, 0x10), piece(0x101, 0x101), piece(0x102, 0x101), piece(0x1010, 1)]);
    let facts = Facts { objects, manifests, intents: Vec::new(), parts };
    // Of a node that no backup knows nothing goes: nobody can tell what its log is needed for.
    assert_eq!(unneeded(&facts, &days(30)), [piece(0x10, 0xf), piece(0x102, 0x101)]);
}

/// A backup under way used an object of an old backup; that was let go and its objects were removed before the manifest of
/// the new one was written, which then was complete and had a missing object.
#[test]
fn b080_what_a_backup_under_way_uses_stays() {
    let mut facts = two();
    let under_way = part(95, 1, 6, &[1]);
    facts.objects.extend(old([
        under_way.key(),
        layout::part(Uuid::from_u128(95), NodeId(2)),
        layout::intent(under_way.backup),
    ]));
    let began_at = Stamp(NOW.0 - LASTS_MAX_US + 1);
    facts.intents = vec![intent(95, began_at, Phase::Paused)];
    assert!(parts_of(&facts, &days(30), NOW).contains(&under_way.backup));
    facts.parts.push(under_way.clone());
    let gone = unneeded(&facts, &days(30));
    assert!(!gone.contains(&file(1).key()), "the object that both use");
    assert!(gone.contains(&facts.parts[0].key()) && gone.contains(&layout::piece(NodeId(1), 5)));
    assert!(!gone.contains(&layout::piece(NodeId(1), 6)), "the log behind its part");
    assert!(!gone.iter().any(|key| key.contains(&under_way.backup.to_string())), "{gone:?}");

    // Once it has lasted too long no manifest of it may be written, and what it alone uses goes.
    facts.intents = vec![intent(95, Stamp(began_at.0 - 1), Phase::Paused)];
    assert!(!facts.intents[0].may_complete(NOW));
    let gone = unneeded(&facts, &days(30));
    assert!(
        gone.contains(&file(1).key()) && gone.contains(&under_way.key()) && gone.contains(&layout::piece(NodeId(1), 6))
    );
    assert!(gone.contains(&layout::intent(under_way.backup)));
}

proptest! {
    /// Whatever is there: what a kept backup lists is never among what goes, and everything is told of exactly once.
    #[test]
    fn nothing_that_is_listed_goes(
        backups in vec((1..100i64, vec(0..40u8, 0..6), 0..20u64, any::<bool>()), 1..8),
        keep_days in proptest::option::of(0..90u32),
        count in proptest::option::of(0..4u32),
    ) {
        let mut facts = Facts::default();
        for (at, (day, files, first, tagged)) in backups.iter().enumerate() {
            let mut files = files.clone();
            files.sort_unstable();
            files.dedup();
            let part = part(at as u128 + 1, 1 + at as u32 % 2, *first, &files);
            let piece = (part.node.0, *first);
            facts.manifests.push(manifest(*day, if *tagged { "t" } else { "" }, &[&part], &[piece]));
            facts.parts.push(part);
        }
        let files = (0..40).map(|number| file(number).key());
        let pieces = (1..=2).flat_map(|node| (0..30).map(move |number| layout::piece(NodeId(node), number)));
        let rest = facts.manifests.iter().map(Manifest::key).chain(facts.parts.iter().map(Part::key));
        facts.objects = old(files.chain(pieces).chain(rest));
        let retention = Retention { days: keep_days, count, tags: vec!["t".to_owned()] };
        let marks = mark(&facts, &retention, NOW, GRACE_US);
        prop_assert_eq!(marks.needed.0 as usize + marks.unneeded.len(), facts.objects.len());
        let gone: BTreeSet<&str> = marks.unneeded.iter().map(|seen| seen.key.as_str()).collect();
        for (manifest, part) in facts.manifests.iter().zip(&facts.parts) {
            let days_old = 100 - manifest.cut.0 / DAY_US;
            let rank = facts.manifests.iter().filter(|other| (other.cut, other.backup) > (manifest.cut, manifest.backup)).count();
            let whole = rank == 0
                || keep_days.is_some_and(|days| days_old <= i64::from(days))
                || count.is_some_and(|count| rank < count as usize)
                || (keep_days.is_none() && count.is_none());
            let is_kept = whole || manifest.tag == "t";
            prop_assert_eq!(is_kept, !gone.contains(manifest.key().as_str()));
            if is_kept {
                let pieces = manifest.pieces.iter().map(|piece| layout::piece(piece.node, piece.number));
                for key in part.files.iter().map(StoredFile::key).chain(pieces).chain([part.key()]) {
                    prop_assert!(!gone.contains(key.as_str()), "{} of {}", key, manifest.backup);
                }
            }
            if whole {
                for number in part.first_piece..30 {
                    prop_assert!(!gone.contains(layout::piece(part.node, number).as_str()));
                }
            }
        }
    }
}
