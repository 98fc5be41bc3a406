//! Each object of a backup damaged in turn, in every way that a bucket or a disk can: nothing of it is ever served.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use trefoil::backup::{Index, IndexEntry, Manifest, layout};
use trefoil::model::Stamp;
use trefoil_proto::v1;
use trefoil_proto::v1::RestoreShareState as State;
use trefoil_proto::v1::restore_request::{What, When};
use trefoil_s3::{Memory, ObjectStore};
use uuid::Uuid;

use super::source::{BACKUP, Rows, Shape, Source};
use super::target::Target;
use super::{Faulty, THREE};
use crate::restore::plan;

/// One node, which needs all there is.
const ONE: Shape = Shape { vnode_bits: 2, zones: &[("eu", "a", 1)] };

/// Places of an object in which a byte is turned over, beside its first and its last.
const PLACES: usize = 6;

#[derive(Debug, Clone, Copy)]
enum Damage {
    Missing,
    CutTo(usize),
    Flipped(usize),
}

impl Damage {
    /// All that are tried of an object of so many bytes. Everywhere, if `TREFOIL_BYTES=all`.
    fn of(bytes: usize) -> Vec<Damage> {
        let everything = std::env::var("TREFOIL_BYTES").is_ok_and(|value| value == "all");
        let places = if everything { bytes } else { PLACES };
        let mut at: BTreeSet<usize> = (0..places).map(|place| place * bytes / places).collect();
        at.insert(bytes - 1);
        let cuts = [0, bytes / 2, bytes - 1].map(Damage::CutTo);
        [Damage::Missing].into_iter().chain(cuts).chain(at.into_iter().map(Damage::Flipped)).collect()
    }
}

/// What came of a restore.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Refused,
    Stopped,
    WithoutEffect,
}

struct Tried {
    source: Source,
    bucket: Arc<Memory>,
    whole: BTreeMap<String, bytes::Bytes>,
    at: Stamp,
    rows: Rows,
}

impl Tried {
    async fn new() -> Tried {
        let source = Source::new(THREE, 9).await;
        let bucket = Arc::new(Memory::default());
        let prefix = source.state.cluster();
        let key = layout::backup(BACKUP);
        let manifest = source.bucket.get(&format!("{prefix}/{key}"), None).await.unwrap().bytes;
        let mut index = Index { cluster: source.state.cluster(), entries: Vec::new() };
        index.add(IndexEntry::of(&Manifest::decode(&key, &manifest).unwrap()));
        bucket.put(&format!("{prefix}/{}", layout::INDEX), index.encode());
        for listed in source.bucket.list_all("").await.unwrap() {
            bucket.put(&listed.key, source.bucket.get(&listed.key, None).await.unwrap().bytes);
        }
        let mut whole = BTreeMap::new();
        let all: Arc<dyn ObjectStore> = bucket.clone();
        for listed in all.list_all("").await.unwrap() {
            whole.insert(listed.key.clone(), bucket.get(&listed.key, None).await.unwrap().bytes);
        }
        // To the end, so that each piece is needed.
        let at = source.times()[2];
        let rows = source.rows(at);
        Tried { source, bucket, whole, at, rows }
    }

    async fn damage(&self, key: &str, damage: Damage) {
        let mut bytes = self.whole[key].to_vec();
        match damage {
            Damage::Missing => return self.bucket.delete(key).await.unwrap(),
            Damage::CutTo(length) => bytes.truncate(length),
            Damage::Flipped(at) => bytes[at] ^= 0x10,
        }
        self.bucket.put(key, bytes.into());
    }

    fn mend(&self, key: &str) {
        self.bucket.put(key, self.whole[key].clone());
    }

    async fn plan(&self, bucket: Arc<dyn ObjectStore>) -> Result<(), v1::Error> {
        let table = v1::TableRef { keyspace: "ks".into(), name: "t".into(), ..v1::TableRef::default() };
        let request = v1::RestoreRequest {
            cluster: self.source.state.cluster().as_bytes().to_vec().into(),
            what: Some(What::Table(table)),
            when: Some(When::AtUs(self.at.0)),
            table_as: "back".into(),
            ..v1::RestoreRequest::default()
        };
        let state = Arc::new(ONE.born(Uuid::from_u128(0xdd)));
        plan(bucket, v1::BackupPlace::default(), request, state).await.map(drop)
    }

    /// A restore with `key` damaged: refused by name, or stopped by name and whole once the object is, or whole all the same.
    async fn restore(&self, key: &str, damage: Damage) -> Outcome {
        let what = format!("{key} {damage:?}");
        // The object itself or, of a log that does not reach far enough, whose log it is.
        let name = key.rsplit('/').next().unwrap();
        let of_log = key.split_once("/log/").and_then(|(_, below)| below.split_once('/')).map(|(node, _)| node);
        let of_log = of_log.map(|node| format!("node {}", node.trim_start_matches('0')));
        let is_named = |text: &str| text.contains(name) || of_log.as_ref().is_some_and(|node| text.contains(node));
        self.damage(key, damage).await;
        if let Err(error) = self.plan(self.bucket.clone()).await {
            assert!(is_named(&error.message), "{what}: {error:?}");
            self.mend(key);
            return Outcome::Refused;
        }
        let target = Target::new(&self.source, ONE);
        let share = target.load(0, self.bucket.clone(), self.at).await;
        self.mend(key);
        if share.state() == State::Done {
            assert_eq!(target.rows(), self.rows, "{what}");
            return Outcome::WithoutEffect;
        }
        assert_eq!(share.state(), State::Stopped, "{what}");
        assert!(!share.retry && is_named(&share.error), "{what}: {share:?}");
        // What it had loaded before it stopped stays, and it goes on.
        let again = target.load(0, self.bucket.clone(), self.at).await;
        assert_eq!(again.state(), State::Done, "{what}: {again:?}");
        assert_eq!(target.rows(), self.rows, "{what}");
        Outcome::Stopped
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_object_damaged_in_any_way_is_refused_and_named_or_of_no_effect() {
    let tried = Tried::new().await;
    let watched = Arc::new(Faulty::new(tried.bucket.clone(), |_, _| None));
    tried.plan(watched.clone()).await.unwrap();
    let target = Target::new(&tried.source, ONE);
    target.load(0, watched.clone(), tried.at).await;
    assert_eq!(target.rows(), tried.rows);
    let read: BTreeSet<String> = watched.take_calls().into_iter().map(|(_, key)| key).collect();
    let mut seen: BTreeMap<(&str, Outcome), usize> = BTreeMap::new();
    for (key, bytes) in tried.whole.iter().filter(|(key, _)| read.contains(*key)) {
        let kinds = ["/obj/", "/log/", "/part/", "/backup/", "/index"];
        let kind = kinds.into_iter().find(|kind| key.contains(kind)).unwrap();
        for damage in Damage::of(bytes.len()) {
            let outcome = tried.restore(key, damage).await;
            // What the manifest stands on is refused before anything is made. Of a log the other copies may suffice.
            let is_early = outcome == Outcome::Refused || kind == "/log/";
            let is_seen = matches!(damage, Damage::Flipped(_)) && kind == "/obj/";
            assert!(is_early || is_seen, "{key} {damage:?}: {outcome:?}");
            *seen.entry((kind, outcome)).or_default() += 1;
        }
    }
    let of = |kind, outcome| seen.get(&(kind, outcome)).copied().unwrap_or(0);
    assert!(of("/obj/", Outcome::Stopped) > 0 && of("/log/", Outcome::Stopped) > 0, "{seen:?}");
    assert!(["/obj/", "/part/", "/backup/", "/index"].iter().all(|kind| of(kind, Outcome::Refused) > 0), "{seen:?}");
}
