//! Received sets against an oracle: a few replicas of one vnode run the exchange of the core over a toy of a store, while
//! messages are lost, doubled and late beyond every bound, threads stop between any two steps, nodes lose their power and
//! come back with another clock. The oracle sees all disks at once and holds every word to what is there.
//!
//! A history follows from its seed. `TREFOIL_RECEIVED_SEEDS` and `TREFOIL_RECEIVED_SEED` make it more, or others.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stdout, reason = "a soak tells how far it is")]

use world::World;

mod disk;
mod loss;
mod node;
mod settings;
mod world;

/// Histories when nobody says otherwise.
const SEEDS: u64 = 40;

#[test]
fn soak() {
    let number = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |value| value.parse().unwrap());
    let (seeds, first) = (number("TREFOIL_RECEIVED_SEEDS", SEEDS), number("TREFOIL_RECEIVED_SEED", 1));
    let all = std::env::var("TREFOIL_RECEIVED_ALL").is_ok();
    let (mut purges, mut rebuilt, mut failed) = (0, 0, 0);
    for seed in first..first + seeds {
        match World::run(seed) {
            Ok(world) => {
                purges += world.purges;
                rebuilt += world.rebuilt;
            }
            Err(fault) => {
                failed += 1;
                let again = format!(
                    "TREFOIL_RECEIVED_SEEDS=1 TREFOIL_RECEIVED_SEED={seed} cargo test --test received -- --nocapture"
                );
                assert!(all, "seed {seed}: {fault}\nagain: {again}");
                println!("seed {seed}: {fault}");
            }
        }
    }
    println!(
        "{seeds} histories from seed {first}, {purges} deletions purged, {rebuilt} disks rebuilt, {failed} failed"
    );
    assert!(purges as u64 > seeds / 4, "only {purges} deletions were purged: this shows nothing");
}
