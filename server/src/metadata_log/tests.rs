//! The log over nodes in one process, its files, and the Raft library's own suite for stores.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::time::Instant;

use openraft::testing::{StoreBuilder, Suite};
use openraft::{CommittedLeaderId, EntryPayload};
use trefoil::metadata::{Birth, Member, Reason, birth};
use trefoil::model::{DropKeyspace, VnodeBits};
use trefoil::ring::Zone;
use trefoil::vfs::Vfs;
use trefoil::vfs::memory::MemoryVfs;
use uuid::Uuid;

use super::files::{LogFile, Logged, Position};
use super::held::{Held, News};
use super::log_store::LogStore;
use super::machine::Machine;
use super::propose::Reply;
use super::types::{self, LogId, Proposal, StorageError, Types, Vote, VoterId};
use super::wire::{SnapshotMessage, Wire};
use super::*;
use crate::in_process::{Nodes, PATIENCE, keyspace};

const WAIT: Duration = Duration::from_secs(10);

async fn propose(log: &RaftLog, entry: Entry) -> Proposed {
    log.propose(entry, WAIT).await.unwrap()
}

fn keyspaces(log: &RaftLog) -> Vec<String> {
    log.state().keyspaces().map(|keyspace| keyspace.name.clone()).collect()
}

/// The node that a quorum takes for the leader.
async fn leader(nodes: &Nodes) -> usize {
    let began = Instant::now();
    loop {
        for (at, site) in nodes.sites.iter().enumerate() {
            let log = site.log();
            if let Some(raft) = log.raft()
                && raft.ensure_linearizable().await.is_ok()
            {
                return at;
            }
        }
        assert!(began.elapsed() < PATIENCE, "a leader is elected in time");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn every_node_proposes_and_follows() {
    let nodes = Nodes::new(&["a", "b", "c", "a"]);
    nodes.start().await;
    assert!(nodes.sites[3].log().raft().is_none(), "the second node of a zone does not vote");
    let clusters: std::collections::BTreeSet<Uuid> =
        nodes.sites.iter().map(|site| site.log().state().cluster()).collect();
    assert_eq!(clusters.len(), 1);
    for (site, number) in nodes.sites.iter().zip(1..) {
        let log = site.log();
        assert_eq!(log.me(), NodeId(number));
        let proposed = propose(&log, keyspace(&format!("from_{number}"))).await;
        assert_eq!(proposed.applied, Applied::Changed);
        assert!(log.state().epoch() >= proposed.epoch, "who proposed it has applied it");
    }
    let again = nodes.sites[3].log().propose(keyspace("from_1"), WAIT).await;
    let Err(ProposeError::Refused(refusal)) = again else { panic!("{again:?}") };
    assert_eq!(refusal.reason, Reason::Exists, "the reason travels to the node that asked");
    let last = propose(&nodes.sites[1].log(), keyspace("last")).await;
    nodes.reach(last.epoch).await;
    for site in &nodes.sites {
        assert_eq!(keyspaces(&site.log()), ["from_1", "from_2", "from_3", "from_4", "last"]);
    }
    nodes.stop().await;
}

#[tokio::test]
async fn another_leader_takes_over() {
    let nodes = Nodes::new(&["a", "b", "c"]);
    nodes.start().await;
    let first = leader(&nodes).await;
    let other = (first + 1) % 3;
    nodes.sites[first].crash(1).await;
    let proposed = propose(&nodes.sites[other].log(), keyspace("without_it")).await;
    nodes.sites[first].start().await.unwrap();
    nodes.reach(proposed.epoch).await;
    nodes.stop().await;
}

#[tokio::test]
async fn a_leader_that_is_cut_off_promises_nothing() {
    let nodes = Nodes::new(&["a", "b", "c"]);
    nodes.start().await;
    let first = leader(&nodes).await;
    nodes.cut(first);
    let alone = nodes.sites[first].log().propose(keyspace("alone"), Duration::from_secs(1)).await;
    assert!(matches!(alone, Err(ProposeError::Unavailable { .. })), "{alone:?}");
    let proposed = propose(&nodes.sites[(first + 1) % 3].log(), keyspace("together")).await;
    nodes.heal();
    nodes.reach(proposed.epoch).await;
    assert_eq!(keyspaces(&nodes.sites[first].log()), ["together"]);
    nodes.stop().await;
}

#[tokio::test]
async fn power_loss_everywhere_and_restart_in_any_order_lose_nothing() {
    let nodes = Nodes::new(&["a", "b", "c"]);
    nodes.start().await;
    let mut expected = Vec::new();
    for (round, order) in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]].into_iter().enumerate() {
        let name = format!("round_{round}");
        let proposed = propose(&nodes.sites[order[0]].log(), keyspace(&name)).await;
        nodes.reach(proposed.epoch).await;
        expected.push(name);
        nodes.stop().await;
        for at in order {
            let log = nodes.sites[at].start().await.unwrap();
            assert_eq!(keyspaces(&log), expected, "the first to start needs nobody to know the state");
        }
    }
    propose(&nodes.sites[0].log(), keyspace("after")).await;
    nodes.stop().await;
}

#[tokio::test]
async fn a_minority_refuses_in_time_and_names_the_silent() {
    let nodes = Nodes::new(&["a", "b", "c", "c"]);
    nodes.start().await;
    let proposed = propose(&nodes.sites[0].log(), keyspace("before")).await;
    nodes.reach(proposed.epoch).await;
    nodes.sites[1].crash(1).await;
    nodes.sites[2].crash(1).await;
    for at in [0, 3] {
        let began = Instant::now();
        let refused = nodes.sites[at].log().propose(keyspace("minority"), Duration::from_secs(1)).await;
        assert!(began.elapsed() < Duration::from_secs(3), "within its deadline");
        let Err(error @ ProposeError::Unavailable { .. }) = refused else { panic!("{refused:?}") };
        let text = error.to_string();
        assert!(text.contains("no quorum of its 3 voters") && text.contains("n2 is not reached"), "{text}");
        assert_eq!(keyspaces(&nodes.sites[at].log()), ["before"], "the state serves on");
    }
    nodes.sites[1].start().await.unwrap();
    propose(&nodes.sites[3].log(), keyspace("majority")).await;
    nodes.stop().await;
}

#[tokio::test]
async fn whoever_is_far_behind_gets_the_whole_state() {
    let nodes = Nodes::new(&["a", "b", "c", "a"]);
    nodes.start().await;
    nodes.sites[2].crash(1).await;
    nodes.sites[3].crash(1).await;
    let log = nodes.sites[0].log();
    let nothing = || Entry::DropKeyspace(DropKeyspace { name: "none".into(), if_exists: true });
    for _ in 0..800 {
        assert_eq!(propose(&log, nothing()).await.applied, Applied::AlreadySo);
    }
    let last = propose(&log, keyspace("last")).await;
    nodes.sites[2].start().await.unwrap();
    nodes.sites[3].start().await.unwrap();
    nodes.reach(last.epoch).await;
    nodes.stop().await;
    nodes.start().await;
    nodes.reach(last.epoch).await;
    nodes.stop().await;
}

/// The leader only sends a snapshot where it has forgotten entries, and when it forgets is the library's affair.
#[tokio::test]
async fn a_snapshot_of_the_leader_replaces_what_a_voter_has() {
    let nodes = Nodes::new(&["a", "b", "c"]);
    nodes.start().await;
    nodes.sites[2].crash(1).await;
    let proposed = propose(&nodes.sites[0].log(), keyspace("while_away")).await;
    nodes.reach(proposed.epoch).await;
    let snapshot = nodes.sites[0].log().raft().unwrap().get_snapshot().await.unwrap().unwrap();
    nodes.cut(2);
    let log = nodes.sites[2].start().await.unwrap();
    assert!(keyspaces(&log).is_empty());
    let message = SnapshotMessage { vote: Vote::new_committed(1_000, VoterId(1)), snapshot };
    log.handle(CallKind::RaftSnapshot, message.encode()).await.unwrap();
    nodes.reach(proposed.epoch).await;
    nodes.sites[2].crash(2).await;
    assert_eq!(keyspaces(&nodes.sites[2].start().await.unwrap()), ["while_away"], "it is durable");
    nodes.heal();
    let proposed = propose(&nodes.sites[2].log(), keyspace("back")).await;
    nodes.reach(proposed.epoch).await;
    nodes.stop().await;
}

fn seed(zones: &[(&str, &str)]) -> ClusterState {
    let members = zones.iter().zip(1..).map(|((region, name), number)| Member {
        zone: Zone { region: region.to_string(), name: name.to_string() },
        peer_address: format!("peer{number}"),
        client_address: format!("client{number}"),
    });
    let vnode_bits = VnodeBits::new(2).unwrap();
    birth(&Birth { cluster: Uuid::from_u128(1), name: "demo".into(), vnode_bits, members: members.collect() }).unwrap()
}

#[test]
fn voters_are_one_per_zone_and_at_most_five() {
    let of = |zones: &[(&str, &str)]| voters(seed(zones).ring()).into_iter().map(|id| id.0).collect::<Vec<_>>();
    assert_eq!(of(&[("eu", "a"), ("eu", "a"), ("eu", "b"), ("eu", "c"), ("eu", "b")]), [1, 3, 4]);
    assert_eq!(of(&[("eu", "a")]), [1]);
    let nine = [("us", "a"), ("us", "b"), ("us", "c"), ("eu", "a"), ("eu", "b"), ("eu", "c"), ("ap", "a"), ("ap", "b")];
    assert_eq!(of(&nine), [1, 2, 4, 5, 7], "regions take turns");
}

fn directory() -> (MemoryVfs, Files) {
    let vfs = MemoryVfs::new();
    vfs.create_dir(Path::new("data")).unwrap();
    let files = Files::open(Arc::new(vfs.clone()), Path::new("data")).unwrap();
    (vfs, files)
}

/// Fresh stores for every case of the suite.
struct Fresh;

impl StoreBuilder<Types, LogStore, Machine, ()> for Fresh {
    async fn build(&self) -> Result<((), LogStore, Machine), StorageError> {
        let (_, files) = directory();
        let store = LogStore::open(files.clone()).unwrap();
        files.begin(NodeId(1), &seed(&[("eu", "a")])).unwrap();
        let (held, position) = Held::new(files.clone(), files.read_state().unwrap().unwrap());
        Ok(((), store, Machine::new(held, position)))
    }
}

/// The suite wants to make numbers of voters.
impl From<u64> for VoterId {
    fn from(number: u64) -> Self {
        VoterId(u32::try_from(number).unwrap())
    }
}

/// Eight cases of the suite sleep for a second each.
#[test]
fn the_stores_keep_what_raft_relies_on() {
    Suite::test_all(Fresh).unwrap();
}

fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(term, VoterId(1)), index)
}

fn entry(term: u64, index: u64) -> types::Entry {
    let payload = EntryPayload::Normal(Proposal(Bytes::from(format!("entry {index} of term {term}"))));
    types::Entry { log_id: log_id(term, index), payload }
}

fn reopen(files: &Files) -> trefoil::Result<Logged> {
    LogFile::open(files.clone()).map(|(_, logged)| logged)
}

#[test]
fn the_log_file_is_read_as_it_was_written() {
    let (vfs, files) = directory();
    let (mut file, _) = LogFile::open(files.clone()).unwrap();
    file.append(&vec![entry(1, 0), entry(1, 1), entry(1, 2)]).unwrap();
    file.truncate(2).unwrap();
    file.append(&vec![entry(2, 2), entry(2, 3)]).unwrap();
    vfs.crash(3);
    let logged = reopen(&files).unwrap();
    let expected = [entry(1, 0), entry(1, 1), entry(2, 2), entry(2, 3)];
    assert_eq!(logged.entries.values().cloned().collect::<Vec<_>>(), expected);
    let (mut file, _) = LogFile::open(files.clone()).unwrap();
    let kept = Logged {
        purged: Some(log_id(1, 1)),
        entries: logged.entries.into_iter().filter(|(index, _)| *index > 1).collect(),
    };
    file.rewrite(&kept).unwrap();
    file.append(&vec![entry(2, 4)]).unwrap();
    let logged = reopen(&files).unwrap();
    assert_eq!((logged.purged, logged.entries.len(), logged.last()), (Some(log_id(1, 1)), 3, Some(log_id(2, 4))));
}

/// A sync fails, the process is started again and reads what stands in the page cache: what it then says that it has must
/// survive a loss of power.
#[test]
fn what_is_told_after_a_failed_sync_is_on_the_disk() {
    for seed in 0..40 {
        let (vfs, files) = directory();
        let (mut file, _) = LogFile::open(files.clone()).unwrap();
        file.append(&vec![entry(1, 0)]).unwrap();
        vfs.fail_next_sync(seed);
        file.append(&vec![entry(1, 1)]).unwrap_err();
        let told = reopen(&files).unwrap();
        vfs.crash(seed);
        assert_eq!(reopen(&files).unwrap().entries, told.entries, "seed {seed}");
    }
}

/// Every cut of the file gives back a prefix of the records; every flipped byte that a later record follows is found, and
/// in the last record it costs just that.
#[test]
fn a_damaged_log_is_a_shorter_log_or_corrupt() {
    let (vfs, files) = directory();
    let (mut file, _) = LogFile::open(files.clone()).unwrap();
    for index in 0..4 {
        file.append(&vec![entry(1, index)]).unwrap();
    }
    let path = Path::new("data/metadata/log");
    let handle = vfs.open(path).unwrap();
    let mut whole = vec![0; handle.len().unwrap() as usize];
    handle.read_at(&mut whole, 0).unwrap();
    let with = |bytes: &[u8]| {
        let handle = vfs.open(path).unwrap();
        handle.set_len(0).unwrap();
        handle.write_at(bytes, 0).unwrap();
        reopen(&files)
    };
    let frame = (whole.len() - 9) / 4;
    for cut in 0..whole.len() {
        match with(&whole[..cut]) {
            Ok(logged) => assert!(logged.entries.len() < 4 && cut >= 9),
            Err(error) => assert!(cut < 9 && matches!(error, trefoil::Error::Corrupt(_)), "cut at {cut}: {error}"),
        }
    }
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x10;
        match with(&flipped) {
            Ok(logged) => assert!(logged.entries.len() < 4, "byte {at}"),
            Err(error) => assert!(matches!(error, trefoil::Error::Corrupt(_)), "byte {at}: {error}"),
        }
    }
    let mut flipped = whole.clone();
    flipped[9 + frame + 12] ^= 1;
    let error = with(&flipped).unwrap_err().to_string();
    assert!(error.contains("metadata/log") && error.contains("checksum"), "{error}");
}

/// State and vote are one frame each: no changed byte and no other length of either is read.
#[test]
fn every_changed_byte_and_every_cut_of_state_and_vote_is_noticed() {
    let (vfs, files) = directory();
    files.begin(NodeId(1), &seed(&[("eu", "a"), ("eu", "b")])).unwrap();
    files.write_vote(&Vote::new(3, VoterId(1))).unwrap();
    let read_state = || files.read_state().map(|saved| saved.is_some());
    let read_vote = || files.read_vote().map(|vote| vote.is_some());
    let readers: [(&str, &dyn Fn() -> trefoil::Result<bool>); 2] = [("state", &read_state), ("vote", &read_vote)];
    for (name, read) in readers {
        assert!(read().unwrap());
        let handle = vfs.open(&Path::new("data/metadata").join(name)).unwrap();
        let mut whole = vec![0; handle.len().unwrap() as usize];
        handle.read_at(&mut whole, 0).unwrap();
        let refused = |bytes: &[u8]| {
            handle.set_len(0).unwrap();
            handle.write_at(bytes, 0).unwrap();
            matches!(read(), Err(trefoil::Error::Corrupt(_)))
        };
        for at in 0..whole.len() {
            for mask in [0x01, 0x80, 0xff] {
                let mut flipped = whole.clone();
                flipped[at] ^= mask;
                assert!(refused(&flipped), "{name}, byte {at} ^ {mask:02x}");
            }
            assert!(refused(&whole[..at]), "{name} cut to {at}");
        }
        assert!(refused(&[&whole[..], &[0]].concat()), "{name} and a byte more");
        assert!(!refused(&whole));
    }
}

#[test]
fn a_directory_with_raft_files_but_no_state_is_refused() {
    let (_, files) = directory();
    files.write_vote(&Vote::new(3, VoterId(1))).unwrap();
    let error = files.read_state().map(|saved| saved.is_some()).unwrap_err().to_string();
    assert!(error.contains("it holds `vote` but no `state`"), "{error}");
}

#[test]
fn state_and_vote_survive_power_loss_at_any_call() {
    let state = seed(&[("eu", "a"), ("eu", "b")]);
    for stop in 1..40 {
        let (vfs, files) = directory();
        files.begin(NodeId(2), &state).unwrap();
        vfs.power_off_at(vfs.operations() + stop);
        let mut durable = None;
        for term in 1..4 {
            let position = Position { applied: Some(log_id(term, term)), ..Position::default() };
            let vote = Vote::new(term, VoterId(2));
            if files.write_vote(&vote).and_then(|()| files.write_state(NodeId(2), &position, &state)).is_err() {
                break;
            }
            durable = Some((vote, position));
        }
        vfs.crash(stop);
        let saved = files.read_state().unwrap().unwrap();
        assert_eq!((saved.node, &saved.state), (NodeId(2), &state));
        if let Some((vote, position)) = durable {
            assert!(files.read_vote().unwrap() >= Some(vote), "stopped at call {stop}");
            assert!(saved.position.applied >= position.applied, "stopped at call {stop}");
        }
    }
}

/// Appends, taking back and rewriting, stopped at every call: what was answered is there, and what was not is whole or
/// not there at all.
#[test]
fn the_log_survives_power_loss_at_any_call() {
    for stop in 1..60 {
        let (vfs, files) = directory();
        drop(LogFile::open(files.clone()).unwrap());
        vfs.power_off_at(vfs.operations() + stop);
        let mut models = vec![Logged::default()];
        let mut answered = 0;
        if let Ok((mut file, _)) = LogFile::open(files.clone()) {
            for step in 0..8u64 {
                let mut next = Logged { purged: models[models.len() - 1].purged, ..Logged::default() };
                next.entries.clone_from(&models[models.len() - 1].entries);
                let at = next.next();
                let done = match step {
                    3 => {
                        next.entries.split_off(&(at - 1));
                        file.truncate(at - 1)
                    }
                    5 => {
                        next.purged = Some(log_id(step - 4, 1));
                        next.entries.retain(|index, _| *index > 1);
                        file.rewrite(&next)
                    }
                    _ => {
                        let entries = vec![entry(step + 1, at), entry(step + 1, at + 1)];
                        next.entries.extend(entries.iter().map(|entry| (entry.log_id.index, entry.clone())));
                        file.append(&entries)
                    }
                };
                models.push(next);
                if done.is_err() {
                    assert!(file.truncate(0).is_err(), "after a failure nothing more is written");
                    break;
                }
                answered = models.len() - 1;
            }
        }
        vfs.crash(stop);
        let found = reopen(&files).unwrap_or_else(|error| panic!("stopped at call {stop}: {error}"));
        assert!(models[answered..].contains(&found), "stopped at call {stop}: {found:?}");
    }
}

#[test]
fn garbage_of_peers_is_an_error_and_never_a_panic() {
    let request = openraft::raft::AppendEntriesRequest::<Types> {
        vote: Vote::new_committed(7, VoterId(2)),
        prev_log_id: Some(log_id(6, 40)),
        entries: vec![entry(7, 41), entry(7, 42)],
        leader_commit: None,
    };
    let bytes = request.encode();
    let decode = |bytes: Bytes| openraft::raft::AppendEntriesRequest::<Types>::decode(bytes);
    let decoded = decode(bytes.clone()).unwrap();
    assert_eq!(decoded.encode(), bytes);
    for cut in 0..bytes.len() {
        assert!(decode(bytes.slice(..cut)).is_err());
    }
    for at in 0..bytes.len() {
        for flip in [1u8, 0x80, 0xff] {
            let mut flipped = bytes.to_vec();
            flipped[at] ^= flip;
            if let Ok(decoded) = decode(flipped.clone().into()) {
                assert_eq!(decoded.encode(), flipped);
            }
        }
    }
}

/// Damages bytes in every way that is cheap, draws others, and lets a decoder see them: it must return.
fn garble<T>(whole: &Bytes, decode: impl Fn(Bytes) -> trefoil::Result<T>) {
    decode(whole.clone()).unwrap();
    for cut in 0..whole.len() {
        let _ = decode(whole.slice(..cut));
    }
    for at in 0..whole.len() {
        for flip in [1u8, 0x40, 0x80, 0xff] {
            let mut flipped = whole.to_vec();
            flipped[at] ^= flip;
            let _ = decode(flipped.into());
        }
    }
    let mut state = 11u64;
    for length in (0..2_000).map(|round| round % 64) {
        let random = (0..length).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8 >> (state >> 62)
        });
        let _ = decode(random.collect());
    }
}

#[test]
fn whatever_a_peer_sends_is_read_or_refused() {
    let state = Bytes::from(seed(&[("r", "a"), ("r", "b"), ("r", "c")]).encode());
    let drop = Bytes::from(Entry::DropKeyspace(DropKeyspace { name: "app".into(), if_exists: true }).encode());
    for news in [News::Nothing, News::Entries(vec![(7, drop.clone()), (8, drop.clone())]), News::State(state.clone())] {
        garble(&news.encode(), |bytes| match News::decode(bytes)? {
            News::Entries(entries) => entries.into_iter().try_for_each(|(_, entry)| Entry::decode(entry).map(|_| ())),
            News::State(state) => ClusterState::decode(state).map(|_| ()),
            News::Nothing => Ok(()),
        });
    }
    let epoch = Epoch { generation: 1, index: 300 };
    let refusal = Refusal::new(Reason::UnknownType, "t", "there is none");
    for reply in [
        Reply::Done(epoch, Ok(Applied::Changed)),
        Reply::Done(epoch, Err(refusal)),
        Reply::NotLeader(Some(NodeId(3))),
        Reply::NotNow("later".to_owned()),
    ] {
        garble(&reply.encode(), Reply::decode);
    }
    garble(&propose::question(WAIT, &drop), propose::read_question);
    garble(&pull::question(epoch), pull::read_question);
    let vote = Vote::new_committed(7, VoterId(2));
    garble(&openraft::raft::VoteRequest::<VoterId>::new(vote, Some(log_id(6, 40))).encode(), |bytes| {
        openraft::raft::VoteRequest::<VoterId>::decode(bytes)
    });
    garble(&openraft::raft::SnapshotResponse::<VoterId>::new(vote).encode(), |bytes| {
        openraft::raft::SnapshotResponse::<VoterId>::decode(bytes)
    });
}

/// The kept bytes of a file of `metadata/`; `TREFOIL_GOLDEN=write` writes them if they are missing.
#[allow(clippy::disallowed_methods, reason = "the samples are the test's own, not the node's")]
fn golden(name: &str, bytes: &[u8]) -> Vec<u8> {
    let path = format!("{}/../tests/golden/data/v1/{name}.hex", env!("CARGO_MANIFEST_DIR"));
    let hex: Vec<String> =
        bytes.chunks(32).map(|line| line.iter().map(|byte| format!("{byte:02x} ")).collect()).collect();
    let hex: String = hex.iter().map(|line: &String| format!("{}\n", line.trim_end())).collect();
    if !Path::new(&path).exists() && std::env::var("TREFOIL_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(&path, &hex).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert_eq!(hex, kept, "{name} is now written (left) unlike the bytes that are kept (right)");
    kept.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

fn contents(vfs: &MemoryVfs, name: &str) -> Vec<u8> {
    let file = vfs.open(&Path::new("data/metadata").join(name)).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn the_files_are_kept() {
    let (vfs, files) = directory();
    let membership = types::Membership::new(
        vec![[VoterId(1), VoterId(2)].into()],
        std::collections::BTreeMap::from([1, 2].map(|id| (VoterId(id), openraft::EmptyNode {}))),
    );
    let voters = |log_id| types::StoredMembership::new(log_id, membership.clone());
    let position = Position { applied: Some(log_id(1, 2)), membership: voters(Some(log_id(0, 0))) };
    files.write_state(NodeId(2), &position, &seed(&[("eu", "a"), ("eu", "b")])).unwrap();
    files.write_vote(&Vote::new_committed(3, VoterId(1))).unwrap();
    let (mut log, _) = LogFile::open(files.clone()).unwrap();
    log.rewrite(&Logged { purged: Some(log_id(1, 1)), entries: [(2, entry(1, 2))].into() }).unwrap();
    let blank = types::Entry { log_id: log_id(3, 3), payload: EntryPayload::Blank };
    let change = types::Entry { log_id: log_id(3, 4), payload: EntryPayload::Membership(membership.clone()) };
    log.append(&vec![blank.clone(), change.clone()]).unwrap();
    log.truncate(4).unwrap();
    for (name, kept) in [("state", "metadata-state"), ("vote", "metadata-vote"), ("log", "metadata-log")] {
        let bytes = golden(kept, &contents(&vfs, name));
        let file = vfs.open(&Path::new("data/metadata").join(name)).unwrap();
        file.set_len(0).unwrap();
        file.write_at(&bytes, 0).unwrap();
    }
    let saved = files.read_state().unwrap().unwrap();
    assert_eq!((saved.node, saved.position), (NodeId(2), position));
    assert_eq!(files.read_vote().unwrap(), Some(Vote::new_committed(3, VoterId(1))));
    let expected = Logged { purged: Some(log_id(1, 1)), entries: [(2, entry(1, 2)), (3, blank)].into() };
    assert_eq!(reopen(&files).unwrap(), expected);
}
