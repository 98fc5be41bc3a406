//! Birth: who decides, who waits, who is turned away, and what a crash in the middle leaves behind.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use futures_util::future::join_all;
use tokio::time::timeout;
use trefoil::vfs::memory::MemoryVfs;

use super::*;
use crate::in_process::{Nodes, PATIENCE, Site, keyspace};

async fn refusal(site: &Site) -> String {
    let entered = timeout(PATIENCE, site.start()).await.expect("a refusal does not wait");
    entered.map(|log| log.me()).unwrap_err().to_string()
}

#[tokio::test]
async fn nobody_is_born_before_all_have_answered() {
    let nodes = Nodes::new(&["a", "b", "c"]);
    let early = join_all(nodes.sites[..2].iter().map(Site::start));
    assert!(timeout(Duration::from_millis(300), early).await.is_err(), "two of three wait");
    for site in &nodes.sites {
        assert!(!site.vfs.exists(std::path::Path::new("data/metadata/state")).unwrap());
    }
    nodes.start().await;
    let state = nodes.sites[2].log().state();
    let addresses: Vec<&str> = state.ring().nodes().map(|node| node.client_address.as_str()).collect();
    assert_eq!(addresses, ["client-n1", "client-n2", "client-n3"]);
    assert!((1..4).all(|number| state.has_started(NodeId(number)) || number != 3), "who has entered has started");
    nodes.stop().await;
}

/// The founder, or another, loses its power at every call of its first steps; then all are restarted, in an order that
/// changes.
#[tokio::test]
async fn a_crash_in_the_middle_of_birth_is_healed_by_restarting() {
    let cases = (2..60u64).map(|case| async move {
        let (stop, victim) = (case / 2, case as usize % 2);
        let nodes = Nodes::new(&["a", "b", "c"]);
        nodes.sites[victim].vfs.power_off_at(nodes.sites[victim].vfs.operations() + stop);
        // A node without power may fail, or never enter; the others may enter, or wait for it.
        drop(timeout(Duration::from_secs(1), join_all(nodes.sites.iter().map(Site::start))).await);
        let order = [[0, 1, 2], [2, 1, 0], [1, 2, 0]][stop as usize % 3];
        nodes.stop().await;
        let started = join_all(order.map(|at| nodes.sites[at].start()));
        let logs = timeout(PATIENCE, started).await.unwrap_or_else(|_| panic!("stopped at {stop}: all enter"));
        let clusters: BTreeSet<Uuid> = logs
            .into_iter()
            .map(|log| log.unwrap_or_else(|e| panic!("stopped at {stop}: {e}")).state().cluster())
            .collect();
        assert_eq!(clusters.len(), 1, "stopped at {stop}");
        nodes.stop().await;
    });
    join_all(cases).await;
}

#[tokio::test]
async fn a_differing_list_is_named() {
    let mut nodes = Nodes::new(&["a", "b"]);
    nodes.sites[1].config.initial_members[0].zone.name = "x".into();
    let entered = timeout(PATIENCE, join_all(nodes.sites.iter().map(Site::start))).await.unwrap();
    let texts: Vec<String> =
        entered.into_iter().filter_map(|entered| entered.map(|log| log.me()).err()).map(|e| e.to_string()).collect();
    assert!(!texts.is_empty());
    for text in texts {
        let either = ["initial member 1 is n1 in eu/x there, n1 in eu/a here", "initial member 1 is n1 in eu/a there"];
        assert!(either.iter().any(|part| text.contains(part)), "{text}");
    }
}

#[tokio::test]
async fn a_stranger_is_turned_away() {
    let mut nodes = Nodes::new(&["a", "b", "c"]);
    let unlisted = nodes.sites[2].config.clone();
    nodes.sites[2].config.peer_address = "n9".into();
    let text = refusal(&nodes.sites[2]).await;
    assert!(text.contains("n9 in eu/c is not an initial member of cluster demo; adding nodes is not available yet"));
    nodes.sites[2].config = unlisted;
    nodes.sites[2].config.zone.name = "b".into();
    assert!(refusal(&nodes.sites[2]).await.contains("it is listed there in eu/c"));
    nodes.sites[2].config.zone.name = "c".into();
    nodes.start().await;

    let mut late = Nodes::new(&["a", "b", "c", "c"]);
    let late = late.sites.pop().unwrap().on(&nodes.net);
    let text = refusal(&late).await;
    assert!(text.contains("n4 is not an initial member of cluster demo; adding nodes is not available yet"), "{text}");
    nodes.stop().await;
}

#[tokio::test]
async fn an_emptied_directory_does_not_come_back_as_the_same_node() {
    let mut nodes = Nodes::new(&["a", "b", "c"]);
    nodes.start().await;
    for at in 0..3 {
        nodes.sites[at].crash(1).await;
        let full = std::mem::replace(&mut nodes.sites[at].vfs, MemoryVfs::new());
        nodes.sites[at].vfs.create_dir(std::path::Path::new("data")).unwrap();
        let text = refusal(&nodes.sites[at]).await;
        assert!(text.contains("has been part of cluster demo before and its data directory is empty now"), "{text}");
        nodes.sites[at].vfs = full;
        nodes.sites[at].start().await.unwrap();
    }
    nodes.sites[1].log().propose(keyspace("still_alive"), PATIENCE).await.unwrap();
    nodes.stop().await;
}

#[tokio::test]
async fn a_directory_belongs_to_one_node_at_one_place() {
    let mut nodes = Nodes::new(&["a", "b", "c"]);
    nodes.start().await;
    nodes.stop().await;
    let config = nodes.sites[1].config.clone();
    type Change = fn(&mut BirthConfig);
    let changes: [(&str, Change); 4] = [
        ("its zone is eu/b since birth, the configuration says eu/c", |config| config.zone.name = "c".into()),
        ("its peer address is n2", |config| config.peer_address = "n3".into()),
        ("its client address is client-n2", |config| config.client_address = "elsewhere".into()),
        ("its cluster is demo", |config| config.cluster = "other".into()),
    ];
    for (expected, change) in changes {
        change(&mut nodes.sites[1].config);
        let text = refusal(&nodes.sites[1]).await;
        assert!(text.contains(expected), "{text}");
        nodes.sites[1].config = config.clone();
    }
}
