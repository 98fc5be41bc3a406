//! Links between nodes that can be cut, one way or both: between each two nodes stands a proxy of its own.
//!
//! ```text
//!   node a ──dials──► proxy (a, b) ──dials──► node b          what a says to b:  forth on (a, b), back on (b, a)
//!   node b ──dials──► proxy (b, a) ──dials──► node a
//! ```
//!
//! What is cut is held back, as by a network that loses everything and a TCP that sends it again: connections stay open,
//! and once the cut is mended what was said before comes. A node is told where its proxies are by `TREFOIL_PEER_ROUTES`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::process::{Place, free_run};

/// All proxies between some nodes, numbered from 1. They end with the test.
pub struct Proxies {
    /// Whether what the first says to the second is held back.
    cut: BTreeMap<(u32, u32), watch::Sender<bool>>,
    /// Where the first finds the second.
    addresses: BTreeMap<(u32, u32), (SocketAddr, SocketAddr)>,
    tasks: Vec<JoinHandle<()>>,
}

impl Proxies {
    /// Proxies between nodes at these places.
    pub async fn between(places: &[Place]) -> Proxies {
        let ids = || 1..=places.len() as u32;
        let pairs: Vec<(u32, u32)> =
            ids().flat_map(|from| ids().map(move |to| (from, to))).filter(|(a, b)| a != b).collect();
        let cut: BTreeMap<_, _> = pairs.iter().map(|pair| (*pair, watch::channel(false).0)).collect();
        let (mut addresses, mut tasks) = (BTreeMap::new(), Vec::new());
        for (from, to) in pairs {
            let own = SocketAddr::from((Ipv4Addr::LOCALHOST, free_run(1)));
            let target = places[to as usize - 1].peer;
            let listener = TcpListener::bind(own).await.unwrap();
            let (forth, back) = (cut[&(from, to)].subscribe(), cut[&(to, from)].subscribe());
            tasks.push(tokio::spawn(accept(listener, target, forth, back)));
            addresses.insert((from, to), (target, own));
        }
        Proxies { cut, addresses, tasks }
    }

    /// The variable by which a node finds its proxies.
    pub fn routes(&self, from: u32) -> (String, String) {
        let own = self.addresses.iter().filter(|((node, _), _)| *node == from);
        let routes: Vec<String> = own.map(|(_, (target, proxy))| format!("{target}={proxy}")).collect();
        ("TREFOIL_PEER_ROUTES".to_owned(), routes.join(","))
    }

    /// Holds back what `from` says to `to`.
    pub fn cut(&self, from: u32, to: u32) {
        self.cut[&(from, to)].send_replace(true);
    }

    /// Holds back everything between these nodes and all others.
    pub fn cut_off(&self, nodes: &[u32]) {
        for ((from, to), cut) in &self.cut {
            if nodes.contains(from) != nodes.contains(to) {
                cut.send_replace(true);
            }
        }
    }

    /// Lets everything through.
    pub fn mend(&self) {
        for cut in self.cut.values() {
            cut.send_replace(false);
        }
    }
}

impl Drop for Proxies {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, forth: watch::Receiver<bool>, back: watch::Receiver<bool>) {
    loop {
        let Ok((near, _)) = listener.accept().await else { continue };
        let (forth, back) = (forth.clone(), back.clone());
        tokio::spawn(async move {
            // A target that refuses is one to whoever dialled, too: the connection is closed.
            let Ok(far) = TcpStream::connect(target).await else { return };
            let set = |stream: &TcpStream| stream.set_nodelay(true);
            if set(&near).and_then(|()| set(&far)).is_err() {
                return;
            }
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            // Both ways end with the first that does.
            tokio::select! {
                () = carry(near_in, far_out, forth) => {}
                () = carry(far_in, near_out, back) => {}
            }
        });
    }
}

/// Carries what comes in until one side ends; nothing while it is cut.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut cut: watch::Receiver<bool>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let Ok(length) = from.read(&mut buffer).await else { return };
        // An error says that the proxies are gone.
        if length == 0 || cut.wait_for(|cut| !*cut).await.is_err() || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
