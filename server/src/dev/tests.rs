//! Shapes, ports and settings of developers' clusters; the processes are tested as a whole elsewhere.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::net::TcpListener;
use std::path::Path;

use super::*;
use crate::config::Config;

fn options(zones: u16, nodes_per_zone: u16, port: u16) -> DevOptions {
    DevOptions { dir: PathBuf::new(), zones, nodes_per_zone, port, demo: false }
}

#[test]
fn another_shape_is_refused_and_the_same_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("new");
    let shape = Shape::new(&options(3, 1, 9440)).unwrap();
    shape.settle(&directory).unwrap();
    shape.settle(&directory).unwrap();
    let other = Shape::new(&options(3, 2, 9440)).unwrap().settle(&directory).unwrap_err().to_string();
    let expected = "holds a cluster of --zones 3 --nodes-per-zone 1 --port 9440, not of --zones 3 --nodes-per-zone 2 \
                    --port 9440; ask for the same, or choose another --dir";
    assert!(other.ends_with(expected), "{other}");
    std::fs::write(directory.join("dev.toml"), "zones = 3\nnodes = 1\n").unwrap();
    let broken = shape.settle(&directory).unwrap_err().to_string();
    assert!(broken.contains("dev.toml") && broken.contains("nodes"), "{broken}");
}

#[test]
fn each_node_has_settings_that_hold_and_keep_what_somebody_changed() {
    let directory = tempfile::tempdir().unwrap();
    let shape = Shape::new(&options(3, 2, 9440)).unwrap();
    let places = shape.places(directory.path());
    let zones: Vec<&str> = places.iter().map(|place| place.zone.as_str()).collect();
    assert_eq!(zones, ["a", "a", "b", "b", "c", "c"]);
    for place in &places {
        place.write_settings(&shape, &places).unwrap();
    }
    let last = Config::load(&places[5].settings()).unwrap();
    assert_eq!(last.node.peer_address.to_string(), "127.0.0.1:9491");
    assert_eq!(last.node.data_dir, directory.path().join("node-6/data"));
    assert_eq!(last.cluster.initial_members.len(), 6);
    let endpoint = last.backup.and_then(|backup| backup.endpoint);
    assert_eq!(endpoint.as_deref(), cfg!(feature = "dev-s3").then_some("http://127.0.0.1:9449"));
    assert_eq!(last.cluster.initial_members[5].address, last.node.peer_address);
    assert_eq!(last.cluster.initial_members[5].zone, last.node.zone);

    let text = std::fs::read_to_string(places[0].settings()).unwrap();
    std::fs::write(places[0].settings(), text.replace("level = \"info\"", "level = \"debug\"")).unwrap();
    places[0].write_settings(&shape, &places).unwrap();
    assert_eq!(Config::load(&places[0].settings()).unwrap().log.level, tracing::Level::DEBUG);
}

#[test]
fn a_port_that_is_taken_or_does_not_exist_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().port();
    let place = &Shape::new(&options(1, 1, taken - 1)).unwrap().places(Path::new("."))[0];
    let error = place.ports_are_free().unwrap_err().to_string();
    assert!(error.contains(&format!("port {taken} is taken (peer port of node 1)")), "{error}");
    Shape::new(&options(1, 1, 65_526)).unwrap();
    assert!(Shape::new(&options(1, 1, 65_527)).unwrap_err().to_string().contains("up to 65536"));
    let error = Shape::new(&options(3, 2, 65_500)).unwrap_err().to_string();
    assert_eq!(error, "6 nodes from --port 65500 on need ports up to 65552, but there is none above 65535");
}

#[cfg(feature = "dev-s3")]
#[tokio::test]
async fn the_port_of_the_bucket_is_named_if_it_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().port();
    let first = taken - shape::BUCKET_OFFSET;
    let Err(error) = bucket::serve(directory.path(), first).await else { panic!("port {taken} is taken") };
    assert!(error.to_string().contains(&format!("port {taken} is taken (S3 for backups)")), "{error}");
}
