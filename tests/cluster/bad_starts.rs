//! Nodes that must not start: each ends with an error that names what is wrong, and touches nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use trefoil_proto::v1::Consistency::{All, Quorum};

use crate::cluster::Cluster;
use crate::process::{Place, Process, Settings, settings_text};

/// Starts a node that ends by itself; what it said, if it failed.
async fn refused(node: &mut Process) -> String {
    let before = node.log().len();
    node.start();
    let status = node.ended().await;
    let said = node.log().split_off(before);
    assert!(!status.success(), "it ended with {status}: {said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_settings_with_an_error_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let place = Place::new("a");
    let good = settings_text(&place, std::slice::from_ref(&place), &Settings::default());
    let changed = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        good.replacen(from, to, 1)
    };
    let cases = [
        (changed("[storage]", "[storage]\nsegments = 1"), "storage.segments is not a setting".to_owned()),
        (changed("segment_mib = 48", "segment_mib = 4"), "storage.segment_mib = 4: must be".to_owned()),
        (changed("vnodes = 64", "vnodes = 100"), "cluster.vnodes = 100: must be a power of two".to_owned()),
        (changed("data_dir = \"data\"", ""), "node.data_dir is missing".to_owned()),
        (changed("[limits]", "[limits"), "is not TOML".to_owned()),
        (changed("client_address = \"127.0.0.1", "client_address = \"0.0.0.0"), "node.client_address".to_owned()),
    ];
    let mut node = Process::new(directory.path().join("node"), place, &good);
    for (text, names) in cases {
        node.configure(&text);
        let said = refused(&mut node).await;
        assert!(said.contains(&names) && said.contains("node.toml"), "{names}: {said}");
    }
    assert!(!node.data_directory().exists(), "a node that does not start leaves nothing behind");
}

/// Nodes cannot join yet: one that is not on the list of initial members is told so.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_outside_the_initial_members_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (stranger, member) = (Place::new("a"), Place::new("a"));
    let elsewhere = Place { zone: "b".to_owned(), ..stranger.clone() };
    for members in [vec![member.clone()], vec![member, elsewhere]] {
        let settings = settings_text(&stranger, &members, &Settings::default());
        let mut node = Process::new(directory.path().join("node"), stranger.clone(), &settings);
        let said = refused(&mut node).await;
        assert!(said.contains(&stranger.peer.to_string()) && said.contains("initial_members"), "{said}");
    }
}

#[test]
fn a_file_of_settings_that_is_not_there_is_named() {
    let trefoild = |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_trefoild")).args(arguments).output().unwrap();
    let output = trefoild(&["serve", "--config", "/nowhere/node.toml"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("/nowhere/node.toml"), "{said}");
    let output = trefoild(&["serve"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("--config"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_is_named() {
    let mut cluster = Cluster::start(1).await;
    cluster.kill(2);
    let places = cluster.places();
    for setting in ["client_address", "peer_address", "http_address"] {
        let place = &places[1];
        let address = match setting {
            "client_address" => place.client,
            "peer_address" => place.peer,
            _ => place.http,
        };
        let taken = std::net::TcpListener::bind(address).unwrap();
        let said = refused(cluster.node_mut(2)).await;
        assert!(said.contains(setting) && said.contains(&address.to_string()), "{setting}: {said}");
        drop(taken);
    }
    cluster.start_one(2).await;
    cluster.door(2).write(1, 1, All).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn another_nodes_directory_is_refused() {
    let mut cluster = Cluster::start(1).await;
    let mut other = Cluster::start_with(1, Settings { cluster_name: "other".to_owned(), ..Settings::default() }).await;
    cluster.door(1).write(1, 1, All).await.unwrap();
    cluster.kill(1);
    cluster.kill(2);
    other.kill_all();
    let (first, second) = (cluster.node(1).data_directory(), cluster.node(2).data_directory());

    swap(&first, &second);
    for (id, really) in [(1, "node n2"), (2, "node n1")] {
        let said = refused(cluster.node_mut(id)).await;
        assert!(said.contains(really) && said.contains("data_dir"), "node {id}: {said}");
    }
    swap(&first, &second);

    swap(&first, &other.node(1).data_directory());
    let said = refused(cluster.node_mut(1)).await;
    assert!(said.contains("other"), "another cluster's: {said}");
    swap(&first, &other.node(1).data_directory());

    // Lost: it must not begin anew under its old number.
    let aside = first.with_extension("aside");
    fs::rename(&first, &aside).unwrap();
    let said = refused(cluster.node_mut(1)).await;
    assert!(said.contains("data_dir"), "an empty one: {said}");
    let _ = fs::remove_dir_all(&first);
    fs::rename(&aside, &first).unwrap();

    cluster.start_all().await;
    assert_eq!(cluster.door(1).read(1, All).await.unwrap(), Some(1));
    other.start_all().await;
}

/// Exchanges two directories.
fn swap(one: &Path, two: &Path) {
    let aside = one.with_extension("swap");
    fs::rename(one, &aside).unwrap();
    fs::rename(two, one).unwrap();
    fs::rename(&aside, two).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_in_use_is_refused() {
    let mut cluster = Cluster::start(1).await;
    cluster.kill(2);
    let mine = cluster.node(2).data_directory();
    let aside = mine.with_extension("aside");
    fs::rename(&mine, &aside).unwrap();
    std::os::unix::fs::symlink(cluster.node(1).data_directory(), &mine).unwrap();
    let said = refused(cluster.node_mut(2)).await;
    assert!(said.contains("data"), "{said}");
    fs::remove_file(&mine).unwrap();
    fs::rename(&aside, &mine).unwrap();
    cluster.start_one(2).await;
    cluster.door(1).write(1, 1, All).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_differing_list_of_members_is_refused() {
    // Born: the node itself knows better.
    let mut cluster = Cluster::start(1).await;
    cluster.kill(3);
    let places = cluster.places();
    let stranger = Place::new("b");
    let (own, others) = (places[2].clone(), [places[0].clone(), stranger.clone(), places[2].clone()]);
    let right = settings_text(&own, &places, cluster.settings());
    cluster.node(3).configure(&settings_text(&own, &others, cluster.settings()));
    let said = refused(cluster.node_mut(3)).await;
    assert!(said.contains("initial_members") && said.contains(&stranger.peer.to_string()), "{said}");
    let renamed = Settings { cluster_name: "another".to_owned(), ..cluster.settings().clone() };
    cluster.node(3).configure(&settings_text(&own, &places, &renamed));
    let said = refused(cluster.node_mut(3)).await;
    assert!(said.contains("another"), "{said}");
    cluster.node(3).configure(&right);
    cluster.start_one(3).await;
    cluster.door(3).write(1, 1, Quorum).await.unwrap();

    // Unborn: they find out from each other.
    let mut unborn = Cluster::prepare(1, Settings::default());
    let places = unborn.places();
    unborn.node(2).configure(&settings_text(&places[1], &places[..2], unborn.settings()));
    for id in [1, 2] {
        unborn.node_mut(id).start();
    }
    for id in [1, 2] {
        let status = unborn.node_mut(id).ended().await;
        let said = unborn.node(id).log();
        assert!(!status.success() && said.contains("configured differently"), "node {id}: {status}: {said}");
    }
}
