//! Which connections a server has, seen from outside: a connection that was made anew has another port at its far end.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

use crate::Result;

/// The state of an open connection in `/proc/net/tcp`.
const ESTABLISHED: &str = "01";

/// The far ends of the open connections to these addresses of IPv4.
pub fn to(servers: &[SocketAddr]) -> Result<BTreeSet<(u16, u16)>> {
    Ok(open(&fs::read_to_string("/proc/net/tcp")?, servers))
}

/// (port of the server, port of its peer)
fn open(table: &str, servers: &[SocketAddr]) -> BTreeSet<(u16, u16)> {
    let of_line = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, remote, state) = (port(fields.next()?)?, port(fields.next()?)?, fields.next()?);
        let is_ours = state == ESTABLISHED && servers.iter().any(|server| server.port() == local);
        is_ours.then_some((local, remote))
    };
    table.lines().skip(1).filter_map(of_line).collect()
}

fn port(address: &str) -> Option<u16> {
    u16::from_str_radix(address.split_once(':')?.1, 16).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_is_seen_while_it_is_open_and_a_new_one_differs() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        assert!(super::to(&[server]).unwrap().is_empty());
        let client = TcpStream::connect(server).unwrap();
        let accepted = listener.accept().unwrap();
        let seen = super::to(&[server]).unwrap();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(server.port(), client.local_addr().unwrap().port())]);
        drop((client, accepted));
        assert!(super::to(&[server]).unwrap().is_empty());
    }
}
