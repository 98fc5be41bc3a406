//! The check of a stopped store's files: silent where nothing is wrong, by name where something is, and without a trace.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Node, OTHER, identity};
use crate::Error;
use crate::commitlog::{CommitLog, Position};
use crate::model::NodeId;
use crate::model::naive::{TABLE, rows, value};
use crate::store::change::Change;
use crate::store::manifest::Manifest;
use crate::store::{CheckReport, Stopped};
use crate::vfs::Vfs;
use crate::vfs::memory::MemoryVfs;

const NODE: &str = "/node";

fn check(vfs: &Arc<dyn Vfs>) -> CheckReport {
    Stopped::open(vfs.clone(), Path::new(NODE)).unwrap().check()
}

pub(super) fn findings(vfs: &Arc<dyn Vfs>) -> Vec<String> {
    check(vfs).findings.iter().map(Error::to_string).collect()
}

/// A stopped store with two tables, two files and a log that holds records of both, in a file and not.
fn stopped() -> Arc<dyn Vfs> {
    let mut node = Node::on(Arc::new(MemoryVfs::new()));
    for row in 0..2 {
        node.write(&rows(1, [(row, value("v", 1))]));
        node.flush();
    }
    node.write(&rows(2, [(7, value("v", 1))]));
    node.write(&crate::model::Mutation { table: OTHER, ..rows(1, [(9, value("v", 1))]) });
    node.vfs.clone()
}

fn files(vfs: &Arc<dyn Vfs>, directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(NODE).join(directory);
    vfs.list(&directory).unwrap().iter().map(|name| directory.join(name)).collect()
}

fn contents(vfs: &Arc<dyn Vfs>, path: &Path) -> Vec<u8> {
    let file = vfs.open(path).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// Every file with its bytes.
fn everything(vfs: &Arc<dyn Vfs>) -> Vec<(PathBuf, Vec<u8>)> {
    let mut paths: Vec<_> = ["IDENTITY", "MANIFEST"].map(|name| Path::new(NODE).join(name)).into();
    paths.extend(files(vfs, "data").into_iter().chain(files(vfs, "log")));
    paths.into_iter().map(|path| (path.clone(), contents(vfs, &path))).collect()
}

fn edit_manifest(vfs: &Arc<dyn Vfs>, changes: Vec<Change>) {
    Manifest::open(vfs.clone(), Path::new(NODE)).unwrap().commit(changes).unwrap();
}

#[test]
fn a_clean_store_has_no_findings_and_is_left_as_it_was() {
    let vfs = stopped();
    let unlisted = Path::new(NODE).join("data/left.sst");
    vfs.create(&unlisted).unwrap();
    let manifest = vfs.open(&Path::new(NODE).join("MANIFEST")).unwrap();
    let torn_at = manifest.len().unwrap();
    manifest.write_at(&[9, 0, 0, 0, 1], torn_at).unwrap();
    let before = everything(&vfs);
    let report = check(&vfs);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!((report.sstables, report.identity.map(|identity| identity.node)), (2, Some(NodeId(5))));
    assert!(report.log_records >= 2 && report.log_segments > 0 && report.sstable_bytes > 0, "{report:?}");
    let expected = [
        format!("/node/MANIFEST: its last edit is torn and will be cut off at byte {torn_at}"),
        format!("{}: the manifest does not list it; it will be removed", unlisted.display()),
    ];
    assert_eq!(report.notes, expected);
    assert_eq!(everything(&vfs), before);
}

#[test]
fn every_damaged_byte_of_a_file_is_found_in_that_file() {
    let vfs = stopped();
    let mut paths = files(&vfs, "data");
    paths.push(Path::new(NODE).join("IDENTITY"));
    for path in paths {
        let file = vfs.open(&path).unwrap();
        for (at, byte) in contents(&vfs, &path).into_iter().enumerate() {
            file.write_at(&[byte ^ 4], at as u64).unwrap();
            let findings = findings(&vfs);
            assert!(findings.len() == 1 && findings[0].contains(path.to_str().unwrap()), "byte {at}: {findings:?}");
            file.write_at(&[byte], at as u64).unwrap();
        }
    }
}

#[test]
fn damage_in_one_place_hides_no_other() {
    let vfs = stopped();
    let data = files(&vfs, "data");
    vfs.remove(&data[0]).unwrap();
    vfs.open(&data[1]).unwrap().set_len(40).unwrap();
    let log = files(&vfs, "log");
    vfs.open(&log[0]).unwrap().write_at(&[0; 8], 4_100).unwrap();
    let findings = findings(&vfs);
    assert!(findings.len() >= 3, "{findings:?}");
    for (path, reason) in [(&data[0], "is missing"), (&data[1], "at byte"), (&log[0], "at byte 4096")] {
        let is_named = |finding: &&String| finding.contains(path.to_str().unwrap()) && finding.contains(reason);
        assert!(findings.iter().any(|finding| is_named(&finding)), "{path:?}: {findings:?}");
    }
    vfs.remove(&Path::new(NODE).join("MANIFEST")).unwrap();
    let report = check(&vfs);
    assert!(report.findings[0].to_string().contains("/node/MANIFEST: this file is missing"), "{report:?}");
    assert_eq!(report.sstables, 0);
}

/// B008 and its kind: what replay passes over must be in a file.
#[test]
fn records_that_replay_would_not_reach_are_found() {
    let vfs = stopped();
    let log = Path::new(NODE).join("log");
    let examined = CommitLog::examine(&*vfs, &log, identity(), Position::default(), &mut |_| Ok(())).unwrap();
    edit_manifest(&vfs, vec![Change::ReplayFrom(examined.end.unwrap())]);
    let findings = findings(&vfs);
    assert_eq!(findings.len(), 3, "{findings:?}");
    assert!(findings[0].contains(&format!("1 records of table {TABLE}")), "{findings:?}");
    assert!(findings[1..].iter().all(|finding| finding.contains("the names of 1 records")), "{findings:?}");
}

#[test]
fn a_log_that_ends_before_what_was_flushed_is_found() {
    let vfs = stopped();
    let beyond = Position { segment: 1_000, offset: 5_000 };
    edit_manifest(&vfs, vec![Change::Flushed(TABLE, beyond)]);
    let findings = findings(&vfs);
    assert!(findings.len() == 1 && findings[0].contains("was flushed up to byte 5000 of segment 1000"), "{findings:?}");
}

#[test]
fn a_file_that_is_not_what_it_is_listed_as_is_found() {
    let vfs = stopped();
    let data = files(&vfs, "data");
    let swapped = Path::new(NODE).join("swap");
    for (from, to) in [(&data[0], &swapped), (&data[1], &data[0]), (&swapped, &data[1])] {
        vfs.rename(from, to).unwrap();
    }
    let findings = findings(&vfs);
    assert!(findings.len() == 2 && findings.iter().all(|finding| finding.contains("it is file ")), "{findings:?}");
}

#[test]
fn a_store_in_use_and_a_directory_without_one_are_refused() {
    let mut node = Node::new();
    node.write(&rows(1, [(1, value("v", 1))]));
    let refusal = |path| Stopped::open(node.vfs.clone(), Path::new(path)).err().unwrap().to_string();
    assert!(refusal(NODE).contains("/node is in use by another process"), "{}", refusal(NODE));
    assert!(refusal("/node/data").starts_with("/node/data: it holds neither"), "{}", refusal("/node/data"));
    let vfs = node.vfs.clone();
    drop(node);
    let held = Stopped::open(vfs.clone(), Path::new(NODE)).unwrap();
    assert!(held.files().unwrap().is_empty());
    assert!(matches!(vfs.lock(&Path::new(NODE).join("LOCK")), Err(Error::Locked { .. })));
}
