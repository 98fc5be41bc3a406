//! One suite for the file systems, and what is special about each.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the suite needs a directory of the machine")]

use std::path::Path;
use std::sync::Arc;

use super::disk::{DiskVfs, ReadOnlyDiskVfs};
use super::faulty::{Fault, FaultyVfs, Operation};
use super::memory::MemoryVfs;
use super::{File, Vfs};
use crate::Error;

fn on_all(test: fn(&dyn Vfs, &Path)) {
    let directory = tempfile::tempdir().unwrap();
    test(&DiskVfs, directory.path());
    let memory = MemoryVfs::new();
    memory.create_dir(Path::new("/data")).unwrap();
    test(&memory, Path::new("/data"));
    let faulty = FaultyVfs::new(Arc::new(MemoryVfs::new()));
    faulty.create_dir(Path::new("/data")).unwrap();
    test(&faulty, Path::new("/data"));
}

fn contents(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn refused<T>(result: crate::Result<T>) -> std::io::ErrorKind {
    match result {
        Err(Error::Io { source, .. }) => source.kind(),
        Err(other) => panic!("not an io error: {other}"),
        Ok(_) => panic!("not refused"),
    }
}

#[test]
fn reads_what_was_written() {
    on_all(|vfs, directory| {
        let file = vfs.create(&directory.join("a")).unwrap();
        assert!(file.is_empty().unwrap());
        file.write_at(b"world", 6).unwrap();
        file.write_at(b"hello", 0).unwrap();
        file.sync().unwrap();
        let again = vfs.open(&directory.join("a")).unwrap();
        assert_eq!(contents(&*again), b"hello\0world");
        assert_eq!(&again.map(4, 4).unwrap()[..], b"o\0wo");
        assert!(again.map(11, 0).unwrap().is_empty());
        assert_eq!(refused(again.map(8, 4)), std::io::ErrorKind::UnexpectedEof);
        assert_eq!(refused(again.read_at(&mut [0; 4], 8)), std::io::ErrorKind::UnexpectedEof);
        again.set_len(13).unwrap();
        again.set_len(3).unwrap();
        again.set_len(5).unwrap();
        assert_eq!(contents(&*file), b"hel\0\0");
    });
}

#[test]
fn names_are_made_moved_linked_and_removed() {
    on_all(|vfs, directory| {
        let (a, b, c) = (directory.join("a"), directory.join("b"), directory.join("c"));
        let file = vfs.create(&a).unwrap();
        assert_eq!(refused(vfs.create(&a)), std::io::ErrorKind::AlreadyExists);
        assert_eq!(refused(vfs.open(&b)), std::io::ErrorKind::NotFound);
        file.write_at(b"1", 0).unwrap();
        vfs.link(&a, &b).unwrap();
        assert_eq!(refused(vfs.link(&a, &b)), std::io::ErrorKind::AlreadyExists);
        vfs.create(&c).unwrap().write_at(b"2", 0).unwrap();
        vfs.rename(&a, &c).unwrap();
        assert_eq!(vfs.list(directory).unwrap(), ["b", "c"]);
        assert_eq!(contents(&*vfs.open(&c).unwrap()), b"1");
        assert!(!vfs.exists(&a).unwrap() && vfs.exists(&b).unwrap() && vfs.exists(directory).unwrap());
        vfs.remove(&b).unwrap();
        vfs.remove(&c).unwrap();
        assert_eq!(refused(vfs.remove(&c)), std::io::ErrorKind::NotFound);
        assert_eq!(refused(vfs.rename(&c, &a)), std::io::ErrorKind::NotFound);
        assert_eq!(contents(&*file), b"1", "an open handle outlives its name");
        vfs.sync_dir(directory).unwrap();
        assert!(vfs.list(directory).unwrap().is_empty());
    });
}

#[test]
fn only_an_empty_directory_is_removed() {
    on_all(|vfs, directory| {
        let (outer, inner) = (directory.join("outer"), directory.join("outer/inner"));
        vfs.create_dir(&inner).unwrap();
        assert_eq!(refused(vfs.remove_dir(&outer)), std::io::ErrorKind::DirectoryNotEmpty);
        vfs.create(&inner.join("a")).unwrap();
        assert_eq!(refused(vfs.remove_dir(&inner)), std::io::ErrorKind::DirectoryNotEmpty);
        vfs.remove(&inner.join("a")).unwrap();
        vfs.remove_dir(&inner).unwrap();
        vfs.remove_dir(&outer).unwrap();
        assert!(!vfs.exists(&outer).unwrap());
        assert_eq!(refused(vfs.remove_dir(&outer)), std::io::ErrorKind::NotFound);
    });
}

#[test]
fn directories_are_made_with_their_parents() {
    on_all(|vfs, directory| {
        let deep = directory.join("x/y");
        assert_eq!(refused(vfs.list(&deep)), std::io::ErrorKind::NotFound);
        assert_eq!(refused(vfs.create(&deep.join("a"))), std::io::ErrorKind::NotFound);
        vfs.create_dir(&deep).unwrap();
        vfs.create_dir(&deep).unwrap();
        vfs.create(&deep.join("a")).unwrap();
        assert_eq!(vfs.list(directory).unwrap(), ["x"]);
        assert_eq!(vfs.list(&deep).unwrap(), ["a"]);
    });
}

#[test]
fn a_lock_has_one_holder() {
    on_all(|vfs, directory| {
        let path = directory.join("lock");
        let held = vfs.lock(&path).unwrap();
        match vfs.lock(&path) {
            Err(Error::Locked { directory: named }) => assert_eq!(named, directory),
            _ => panic!("two holders"),
        }
        drop(held);
        vfs.lock(&path).unwrap();
    });
}

fn durable_file(vfs: &MemoryVfs, name: &str, bytes: &[u8]) -> Arc<dyn File> {
    let file = vfs.create(Path::new(name)).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
    vfs.sync_dir(Path::new("/")).unwrap();
    file
}

#[test]
fn a_crash_spares_what_was_synced_and_kills_handles() {
    for seed in 0..50 {
        let vfs = MemoryVfs::new();
        let file = durable_file(&vfs, "/a", b"kept");
        vfs.crash(seed);
        assert_eq!(contents(&*vfs.open(Path::new("/a")).unwrap()), b"kept");
        assert_eq!(refused(file.len()), std::io::ErrorKind::StaleNetworkFileHandle);
    }
}

#[test]
fn a_crash_keeps_loses_and_tears_writes_in_any_order() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..400 {
        let vfs = MemoryVfs::new();
        let file = durable_file(&vfs, "/a", &[0; 1024]);
        file.write_at(&[1; 1024], 0).unwrap();
        file.write_at(&[2; 512], 256).unwrap();
        vfs.crash(seed);
        let bytes = contents(&*vfs.open(Path::new("/a")).unwrap());
        assert!(bytes[..256].iter().all(|byte| *byte == bytes[0]), "a sector is whole");
        seen.insert((bytes[0], bytes[300], bytes[600], bytes[900]));
    }
    for wanted in [(0, 0, 0, 0), (1, 2, 2, 1), (1, 1, 1, 1), (0, 2, 2, 0), (1, 1, 0, 0), (0, 0, 1, 1), (1, 2, 1, 1)] {
        assert!(seen.contains(&wanted), "{wanted:?} never happened");
    }
}

#[test]
fn a_crash_undoes_names_but_keeps_their_order() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let vfs = MemoryVfs::new();
        durable_file(&vfs, "/a", b"a");
        vfs.rename(Path::new("/a"), Path::new("/b")).unwrap();
        vfs.create(Path::new("/a")).unwrap();
        vfs.create(Path::new("/other")).unwrap();
        vfs.crash(seed);
        let names = vfs.list(Path::new("/")).unwrap();
        if names.contains(&"b".to_owned()) {
            assert_eq!(contents(&*vfs.open(Path::new("/b")).unwrap()), b"a");
        } else {
            assert_eq!(contents(&*vfs.open(Path::new("/a")).unwrap()), b"a", "a lost rename leaves the old name");
        }
        seen.insert(names.join(" "));
    }
    let wanted = ["a", "a b", "a b other", "a other", "b", "b other"];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), wanted);
}

#[test]
fn syncing_one_directory_leaves_the_other_open() {
    let (mut lost, dirs) = (false, [Path::new("/x"), Path::new("/y")]);
    for seed in 0..30 {
        let vfs = MemoryVfs::new();
        for directory in dirs {
            vfs.create_dir(directory).unwrap();
            vfs.create(&directory.join("file")).unwrap();
        }
        vfs.sync_dir(dirs[0]).unwrap();
        vfs.crash(seed);
        assert!(vfs.exists(Path::new("/x/file")).unwrap());
        lost |= !vfs.exists(Path::new("/y/file")).unwrap();
    }
    assert!(lost);
}

#[test]
fn power_off_stops_at_the_call_and_behind_it() {
    let (mut written, mut lost) = (false, false);
    for seed in 0..40 {
        let vfs = MemoryVfs::new();
        let file = durable_file(&vfs, "/a", b"old");
        vfs.power_off_at(vfs.operations() + 2);
        assert_eq!(file.len().unwrap(), 3);
        assert!(file.write_at(b"new", 0).is_err());
        assert!(file.len().is_err() && vfs.exists(Path::new("/a")).is_err());
        vfs.crash(seed);
        let bytes = contents(&*vfs.open(Path::new("/a")).unwrap());
        written |= bytes == b"new";
        lost |= bytes == b"old";
    }
    assert!(written && lost, "the call that was stopped may have happened or not");
}

#[test]
fn faults_hit_the_call_they_were_planned_for() {
    let memory = MemoryVfs::new();
    let vfs = FaultyVfs::new(Arc::new(memory.clone()));
    let path = Path::new("/a");
    vfs.fail(Operation::Create, 1, Fault::Full);
    assert_eq!(refused(vfs.create(path)), std::io::ErrorKind::StorageFull);
    let file = vfs.create(path).unwrap();
    vfs.fail(Operation::Write, 2, Fault::ShortWrite);
    file.write_at(b"abcd", 0).unwrap();
    assert_eq!(refused(file.write_at(b"ABCD", 0)), std::io::ErrorKind::StorageFull);
    assert_eq!(contents(&*file), b"ABcd");
    assert_eq!(vfs.calls(Operation::Write), 2);
    vfs.fail(Operation::Read, 1, Fault::Device);
    let error = file.read_at(&mut [0], 0).unwrap_err();
    assert!(error.damage().is_some(), "{error}");
    file.read_at(&mut [0], 0).unwrap();
}

#[test]
fn a_failed_sync_is_not_made_good_by_the_next_one() {
    let mut lost = false;
    for seed in 0..20 {
        let memory = MemoryVfs::new();
        let vfs = FaultyVfs::new(Arc::new(memory.clone()));
        let file = vfs.create(Path::new("/a")).unwrap();
        vfs.sync_dir(Path::new("/")).unwrap();
        file.write_at(b"abcd", 0).unwrap();
        vfs.fail(Operation::Sync, 1, Fault::Device);
        file.sync().unwrap_err();
        file.sync().unwrap();
        memory.crash(seed);
        lost |= memory.open(Path::new("/a")).unwrap().is_empty().unwrap();
    }
    assert!(lost);
}

#[test]
fn what_a_failed_sync_lost_is_seen_until_the_power_goes() {
    let mut outcomes = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let vfs = MemoryVfs::new();
        let file = durable_file(&vfs, "/a", b"old.");
        file.write_at(b"new", 0).unwrap();
        vfs.fail_next_sync(seed);
        file.sync().unwrap_err();
        let again = vfs.open(Path::new("/a")).unwrap();
        assert_eq!(contents(&*again), b"new.");
        again.write_at(b"!", 3).unwrap();
        again.sync().unwrap();
        vfs.crash(seed);
        outcomes.insert(contents(&*vfs.open(Path::new("/a")).unwrap()));
    }
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), [b"new!", b"old!"]);
}

#[test]
fn a_read_only_view_of_the_disk_reads_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (path, other) = (directory.path().join("a"), directory.path().join("b"));
    DiskVfs.create(&path).unwrap().write_at(b"hello", 0).unwrap();
    let held = DiskVfs.lock(&directory.path().join("LOCK")).unwrap();
    let vfs = ReadOnlyDiskVfs;
    assert!(matches!(vfs.lock(&directory.path().join("LOCK")), Err(Error::Locked { .. })));
    drop(held);
    let _held = vfs.lock(&directory.path().join("LOCK")).unwrap();
    assert!(matches!(DiskVfs.lock(&directory.path().join("LOCK")), Err(Error::Locked { .. })));
    let file = vfs.open(&path).unwrap();
    assert_eq!((contents(&*file), &file.map(1, 3).unwrap()[..]), (b"hello".to_vec(), &b"ell"[..]));
    refused(file.write_at(b"x", 0));
    refused(file.set_len(1));
    let refusals = [
        vfs.create(&other).map(drop),
        vfs.create_dir(&other),
        vfs.sync_dir(directory.path()),
        vfs.rename(&path, &other),
        vfs.link(&path, &other),
        vfs.remove(&path),
    ];
    assert!(refusals.into_iter().all(|outcome| refused(outcome) == std::io::ErrorKind::ReadOnlyFilesystem));
    refused(vfs.lock(&other));
    assert_eq!(vfs.list(directory.path()).unwrap(), ["LOCK", "a"]);
    assert_eq!(contents(&*file), b"hello");
}
