//! What a restore will do, found out before anything is made: the moment, the tables with their new ids, and whether every object
//! that is needed is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use prost::Message;
use tonic::Code;
use trefoil::backup::{Scope, StoredFile};
use trefoil::metadata::{ClusterState, RestoreBegun, RestoredTable};
use trefoil::model::{Keyspace, KeyspaceId, Stamp, Table, TableId, Type, UserType, Vnode};
use trefoil_proto::convert::schema as convert;
use trefoil_proto::v1;
use trefoil_proto::v1::restore_request::{What, When};
use trefoil_s3::repository::{Moment, Repository};
use trefoil_s3::{Class, Location, ObjectStore};
use uuid::Uuid;

use crate::clock;

/// Requests for objects' lengths that are under way at once.
const AT_ONCE: usize = 32;

/// What a node is taken to fetch in a second unless it is told to fetch less.
const BYTES_PER_S: u64 = 50_000_000;

/// About how many bytes one request for a part of a file gets.
const BYTES_PER_REQUEST: u64 = 2 << 20;

/// A restore that can be begun.
pub struct Plan {
    /// The entry that begins it.
    pub begun: RestoreBegun,
    /// What it does, for people.
    pub told: v1::RestorePlan,
}

/// Plans a restore from `place` into the cluster of `state`.
pub async fn plan(
    bucket: Arc<dyn ObjectStore>,
    place: v1::BackupPlace,
    request: v1::RestoreRequest,
    state: Arc<ClusterState>,
) -> Result<Plan, v1::Error> {
    let what = request.what.clone().ok_or_else(|| invalid("it is not said what is to be restored"))?;
    if matches!(what, What::All(_)) && state.keyspaces().next().is_some() {
        let text =
            "a whole cluster is restored into one without keyspaces; name a keyspace or a table, or make a new cluster";
        return Err(v1::Error::new(Code::FailedPrecondition, text, v1::Outcome::NotApplied));
    }
    let cluster = if request.cluster.is_empty() { state.cluster() } else { id("cluster", &request.cluster)? };
    let repository = Repository::new(bucket, cluster);
    let moment = moment(&repository, &request, &what).await?;
    let wanted = Wanted::of(&moment, &what, &request)?;
    check_objects(&repository, &moment, &wanted).await?;
    let restore = Uuid::new_v4();
    let order = order(place, cluster, &moment, &wanted, request.bytes_per_s);
    let record = v1::RestoreRecord { order: Some(order), began_us: clock::wall_us() };
    let keyspaces = wanted.keyspaces(&request.regions);
    let told = told(&moment, &wanted, &state, &request, &keyspaces);
    let begun = RestoreBegun {
        restore,
        plan: record.encode_to_vec().into(),
        keyspaces,
        types: wanted.types(&moment.state),
        tables: wanted.tables,
    };
    Ok(Plan { begun, told })
}

/// The moment that is asked for.
async fn moment(repository: &Repository, request: &v1::RestoreRequest, what: &What) -> Result<Moment, v1::Error> {
    let backup = if request.backup.is_empty() { None } else { Some(id("backup", &request.backup)?) };
    // Which ids the names had then is known only once the state is: every backup that may hold it will do.
    let may_hold = |scope: &Scope| match what {
        What::All(_) => *scope == Scope::All,
        What::Keyspace(_) => !matches!(scope, Scope::Table(_)),
        What::Table(_) => true,
    };
    let index = repository.index().await.map_err(failed)?;
    let known = |backup: Uuid| index.entries.iter().find(|entry| entry.backup == backup);
    let newest = || index.entries.iter().rev().find(|entry| may_hold(&entry.scope));
    let entry = backup.map_or_else(newest, known);
    let at = match request.when {
        Some(When::AtUs(at)) => Stamp(at),
        Some(When::Latest(_)) => return latest(repository, backup, may_hold).await,
        Some(When::Cut(_)) | None => match entry {
            Some(entry) => entry.cut,
            None => {
                let text = match backup {
                    Some(backup) => format!("the index lists no complete backup {backup}"),
                    None => "the index lists no complete backup of what is asked for".to_owned(),
                };
                return Err(v1::Error::new(Code::NotFound, text, v1::Outcome::NotApplied));
            }
        },
    };
    repository.moment(at, backup, may_hold).await.map_err(failed)
}

/// The last moment that the logs reach: up to where one of them is closed, and enough of the others are.
async fn latest(
    repository: &Repository,
    backup: Option<Uuid>,
    may_hold: impl Fn(&Scope) -> bool + Copy,
) -> Result<Moment, v1::Error> {
    let base = repository.moment(Stamp(i64::MAX), backup, may_hold).await;
    // Nothing is closed that far; but if it is, there is nothing better.
    if let Ok(moment) = base {
        return Ok(moment);
    }
    let index = repository.index().await.map_err(failed)?;
    let fits = |entry: &&trefoil::backup::IndexEntry| {
        backup.map_or_else(|| may_hold(&entry.scope), |backup| entry.backup == backup)
    };
    let Some(entry) = index.entries.iter().rev().find(fits) else {
        let text = "the index lists no complete backup of what is asked for";
        return Err(v1::Error::new(Code::NotFound, text, v1::Outcome::NotApplied));
    };
    let manifest = repository.manifest(entry.backup).await.map_err(failed)?;
    let mut told = BTreeSet::from([manifest.cut]);
    for part in repository.parts(&manifest).await.map_err(failed)? {
        let numbers = repository.pieces(part.node, part.first_piece).await.map_err(failed)?;
        if let Some(last) = numbers.last() {
            told.insert(repository.head(part.node, *last).await.map_err(failed)?.told);
        }
    }
    let mut failure = None;
    for at in told.into_iter().rev().filter(|at| *at >= manifest.cut) {
        match repository.moment(at, Some(entry.backup), may_hold).await {
            Ok(moment) => return Ok(moment),
            Err(error) if error.class == Class::Invalid => failure = Some(error),
            Err(error) => return Err(failed(error)),
        }
    }
    Err(failure.map_or_else(|| invalid("no log goes on from the backup"), failed))
}

/// The tables that come back.
struct Wanted {
    /// As they will be here.
    tables: Vec<RestoredTable>,
    /// Their ids in the backup, and their keyspaces there; in the same order.
    sources: Vec<(TableId, Arc<Keyspace>, String)>,
    /// Those that do not come back though they were there, and why.
    left_out: Vec<String>,
}

impl Wanted {
    fn of(moment: &Moment, what: &What, request: &v1::RestoreRequest) -> Result<Wanted, v1::Error> {
        let state = &moment.state;
        let not_found = |keyspace: &str, table: &str, text: &str| {
            v1::Error::not_found(v1::InvalidDetail::new(text).table(keyspace, table))
        };
        let of_keyspace = |keyspace: &Arc<Keyspace>| -> Vec<(Arc<Keyspace>, Arc<Table>)> {
            state.tables_in(keyspace).map(|table| (keyspace.clone(), table.clone())).collect()
        };
        let mut found: Vec<(Arc<Keyspace>, Arc<Table>)> = match what {
            What::All(_) => state.keyspaces().flat_map(of_keyspace).collect(),
            What::Keyspace(name) => {
                let keyspace = state.keyspace_named(name);
                let text = "there was no such keyspace at that time";
                keyspace.map(of_keyspace).ok_or_else(|| not_found(name, "", text))?
            }
            What::Table(v1::TableRef { keyspace, name, .. }) => {
                let text = "there was no such table at that time";
                let table = state.table_named(keyspace, name).ok_or_else(|| not_found(keyspace, name, text))?;
                let keyspace = state.keyspace(table.keyspace).ok_or_else(|| not_found(keyspace, name, text))?;
                vec![(keyspace.clone(), table.clone())]
            }
        };
        if let (What::Table(_), Some((_, table))) = (what, found.first()) {
            moment.check_whole(table.id).map_err(failed)?;
        }
        // What stands beside it is wanted all the same.
        let is_part = |(_, table): &mut (Arc<Keyspace>, Arc<Table>)| moment.check_whole(table.id).is_err();
        let left_out = found.extract_if(.., is_part);
        let left_out = left_out.map(|(keyspace, table)| {
            format!("table {}.{} is left out: a restore loaded it after the backup was made", keyspace.name, table.name)
        });
        let left_out: Vec<String> = left_out.collect();
        if !request.table_as.is_empty() && !matches!(what, What::Table(_)) {
            return Err(invalid("another name can be given to a single table only"));
        }
        let within = |keyspace: KeyspaceId, table: TableId| match moment.manifest.scope {
            Scope::All => true,
            Scope::Keyspace(id) => id == keyspace,
            Scope::Table(id) => id == table,
        };
        if let Some((keyspace, table)) = found.iter().find(|(keyspace, table)| !within(keyspace.id, table.id)) {
            let text = format!("backup {} does not hold it", moment.manifest.backup);
            return Err(not_found(&keyspace.name, &table.name, &text));
        }
        let name = |table: &Table| {
            if request.table_as.is_empty() { table.name.clone() } else { request.table_as.clone() }
        };
        let tables = found.iter().map(|(keyspace, table)| RestoredTable {
            keyspace: keyspace.name.clone(),
            table: Table { id: TableId(Uuid::new_v4()), name: name(table), ..Table::clone(table) },
            next_column: state.next_column(table.id).map_or(0, |column| column.0),
        });
        let sources = found.iter().map(|(keyspace, table)| (table.id, keyspace.clone(), table.name.clone()));
        Ok(Wanted { tables: tables.collect(), sources: sources.collect(), left_out })
    }

    /// The keyspaces, with copies in the regions as they are called here.
    fn keyspaces(&self, regions: &[v1::RestoreRegion]) -> Vec<(String, BTreeMap<String, u32>)> {
        let mut all: BTreeMap<String, BTreeMap<String, u32>> = BTreeMap::new();
        for (_, keyspace, _) in &self.sources {
            let here = keyspace.replication.iter().map(|(region, copies)| {
                let known = regions.iter().find(|known| known.old == *region);
                let copies = known.map(|known| known.copies).filter(|copies| *copies > 0).unwrap_or(*copies);
                (known.map_or_else(|| region.clone(), |known| known.new.clone()), copies)
            });
            all.insert(keyspace.name.clone(), here.collect());
        }
        all.into_iter().collect()
    }

    /// The types that the tables are made of, and those that these are made of.
    fn types(&self, state: &ClusterState) -> Vec<UserType> {
        let mut named = BTreeSet::new();
        for column in self.tables.iter().flat_map(|table| &table.table.columns) {
            name_types(&column.ty, &mut named);
        }
        let types = state.types().filter(|known| named.contains(&(known.keyspace.clone(), known.name.clone())));
        types.map(|known| UserType::clone(known)).collect()
    }

    /// The files of the tables, with the node whose copy each is.
    fn files<'a>(&'a self, moment: &'a Moment) -> impl Iterator<Item = (trefoil::model::NodeId, &'a StoredFile)> {
        let files = moment.sources.iter().flat_map(|(node, source)| source.part.files.iter().map(|file| (*node, file)));
        files.filter(|(_, file)| self.sources.iter().any(|(id, ..)| *id == file.meta.table))
    }
}

fn name_types(ty: &Type, named: &mut BTreeSet<(String, String)>) {
    if let Type::User { definition, .. } = ty {
        named.insert((definition.keyspace.clone(), definition.name.clone()));
    }
    ty.parts().into_iter().for_each(|part| name_types(part, named));
}

/// Every file is there, as long as it should be: nothing is begun that cannot be finished.
async fn check_objects(repository: &Repository, moment: &Moment, wanted: &Wanted) -> Result<(), v1::Error> {
    let files: BTreeMap<String, u64> = wanted.files(moment).map(|(_, file)| (file.key(), file.meta.bytes)).collect();
    let checks = files.into_iter().map(|(key, bytes)| check_object(repository.store().clone(), key, bytes));
    stream::iter(checks).buffer_unordered(AT_ONCE).try_collect::<()>().await
}

async fn check_object(store: Arc<dyn ObjectStore>, key: String, bytes: u64) -> Result<(), v1::Error> {
    let text = match store.head(&key).await.map_err(failed)? {
        Some(meta) if meta.bytes == bytes => return Ok(()),
        Some(meta) => format!("object {key} has {} bytes and should have {bytes}: it is damaged", meta.bytes),
        None => format!("object {key} is missing, though the backup lists it"),
    };
    Err(v1::Error::new(Code::DataLoss, text, v1::Outcome::NotApplied))
}

fn order(
    place: v1::BackupPlace,
    cluster: Uuid,
    moment: &Moment,
    wanted: &Wanted,
    bytes_per_s: u64,
) -> v1::RestoreOrder {
    let tables = wanted.sources.iter().zip(&wanted.tables).map(|((source, ..), restored)| v1::RestoreTable {
        source: convert::table_id(*source),
        table: convert::table_id(restored.table.id),
    });
    v1::RestoreOrder {
        place: Some(place),
        cluster: Bytes::copy_from_slice(cluster.as_bytes()),
        backup: Bytes::copy_from_slice(moment.manifest.backup.as_bytes()),
        through_us: moment.at.0,
        tables: tables.collect(),
        bytes_per_s,
    }
}

fn told(
    moment: &Moment,
    wanted: &Wanted,
    state: &ClusterState,
    request: &v1::RestoreRequest,
    keyspaces: &[(String, BTreeMap<String, u32>)],
) -> v1::RestorePlan {
    let mut plan = v1::RestorePlan {
        backup: Bytes::copy_from_slice(moment.manifest.backup.as_bytes()),
        cut_us: moment.manifest.cut.0,
        at_us: moment.at.0,
        cluster: Bytes::copy_from_slice(moment.manifest.cluster.as_bytes()),
        nodes: state.ring().nodes().count() as u32,
        ..v1::RestorePlan::default()
    };
    let is_new = |name: &&String| state.keyspace_named(name).is_none();
    plan.keyspaces = keyspaces.iter().map(|(name, _)| name).filter(is_new).cloned().collect();
    plan.absent = moment.manifest.absent.iter().map(|absent| format!("n{}: {}", absent.node, absent.reason)).collect();
    plan.absent.extend(wanted.left_out.iter().cloned());
    for ((source, keyspace, name), restored) in wanted.sources.iter().zip(&wanted.tables) {
        let files = wanted.files(moment).filter(|(_, file)| file.meta.table == *source);
        let (mut count, mut bytes) = (0, 0);
        files.for_each(|(_, file)| (count, bytes) = (count + 1, bytes + file.meta.bytes));
        plan.tables.push(v1::PlannedTable {
            keyspace: keyspace.name.clone(),
            name: name.clone(),
            name_here: restored.table.name.clone(),
            files: count,
            bytes,
        });
    }
    let logs = moment.sources.values().map(|source| source.pieces.len() as u64).sum::<u64>();
    plan.objects = wanted.files(moment).count() as u64 + logs + moment.sources.len() as u64 + 2;
    estimate(&mut plan, moment, wanted, state, request.bytes_per_s);
    plan
}

/// How much each copy here fetches: of every vnode one copy of the backup, where one suffices, else all.
fn estimate(plan: &mut v1::RestorePlan, moment: &Moment, wanted: &Wanted, state: &ClusterState, bytes_per_s: u64) {
    let (mut copies_read, mut copies) = (0_u64, 0_u64);
    let keyspaces: BTreeMap<KeyspaceId, &Arc<Keyspace>> =
        wanted.sources.iter().map(|(_, keyspace, _)| (keyspace.id, keyspace)).collect();
    for (id, keyspace) in &keyspaces {
        for vnode in (0..moment.vnode_bits().count()).map(Vnode) {
            let read = moment.copies((*id, vnode)).len() as u64;
            let replicas = moment.state.ring().replicas_of(keyspace, vnode).len() as u64;
            plan.vnodes += 1;
            plan.vnodes_by_one_copy += u64::from(read == 1);
            copies_read += read.min(replicas);
            copies += replicas;
        }
    }
    let stored = wanted.files(moment).map(|(_, file)| file.meta.bytes).sum::<u64>();
    let zones: BTreeSet<_> = state.ring().nodes().map(|node| node.zone.clone()).collect();
    let once = (stored as f64 * copies_read as f64 / copies.max(1) as f64) as u64;
    plan.fetched_bytes = once * zones.len() as u64;
    plan.requests = plan.fetched_bytes / BYTES_PER_REQUEST + plan.objects * u64::from(plan.nodes.max(1));
    let rate = if bytes_per_s == 0 { BYTES_PER_S } else { bytes_per_s.min(BYTES_PER_S) };
    plan.estimated_s = plan.fetched_bytes / u64::from(plan.nodes.max(1)) / rate + 1;
}

/// A place as the door to S3 takes it.
pub fn location(place: &v1::BackupPlace) -> Location {
    Location {
        endpoint: Some(place.endpoint.clone()).filter(|endpoint| !endpoint.is_empty()),
        region: place.region.clone(),
        bucket: place.bucket.clone(),
        prefix: place.prefix.clone(),
        path_style: place.path_style,
    }
}

/// A location as requests and orders tell it.
pub fn place(location: &Location) -> v1::BackupPlace {
    let Location { endpoint, region, bucket, prefix, path_style } = location.clone();
    v1::BackupPlace { endpoint: endpoint.unwrap_or_default(), region, bucket, prefix, path_style }
}

/// What went wrong with the bucket, as an answer.
pub fn failed(error: trefoil_s3::Error) -> v1::Error {
    let code = match error.class {
        Class::Retry => Code::Unavailable,
        Class::NotFound => Code::NotFound,
        Class::Conflict | Class::Invalid => Code::FailedPrecondition,
        Class::Denied => Code::PermissionDenied,
        Class::Damaged => Code::DataLoss,
    };
    v1::Error::new(code, error.to_string(), v1::Outcome::NotApplied)
}

pub fn invalid(text: &str) -> v1::Error {
    v1::Error::invalid(v1::InvalidDetail::new(text))
}

/// A uuid of 16 bytes.
pub fn id(what: &str, bytes: &Bytes) -> Result<Uuid, v1::Error> {
    Uuid::from_slice(bytes).map_err(|_| invalid(&format!("the id of the {what} has {} bytes, not 16", bytes.len())))
}
