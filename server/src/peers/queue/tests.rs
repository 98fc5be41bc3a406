//! The bounds of what waits, and how streams end.

#![allow(clippy::unwrap_used, reason = "tests")]

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use trefoil_proto::v1::{Acknowledged, ReplicaPage, peer_operation};

use super::*;

fn write(id: u64, bytes: usize) -> PeerOperation {
    PeerOperation { id, op: Some(peer_operation::Op::Write(Bytes::from(vec![0; bytes]))), ..PeerOperation::default() }
}

fn page(id: u64, bytes: usize) -> PeerReply {
    let page = ReplicaPage { entries: Bytes::from(vec![0; bytes]), ..ReplicaPage::default() };
    PeerReply { id, result: Some(peer_reply::Result::Page(page)) }
}

fn stream() -> (Arc<Outbox>, Outgoing) {
    let outbox = Arc::new(Outbox::default());
    let mut outgoing = Outgoing::new(PeerMessage::default(), outbox.clone());
    assert!(outgoing.next().now_or_never().is_some(), "the greeting comes first");
    (outbox, outgoing)
}

fn next(outgoing: &mut Outgoing) -> Option<PeerMessage> {
    outgoing.next().now_or_never().unwrap()
}

#[test]
fn messages_keep_the_order_and_their_bounds() {
    let (outbox, mut outgoing) = stream();
    (0..300).for_each(|id| outbox.operation(write(id, 10)).unwrap());
    outbox.operation(write(300, BATCH_BYTES)).unwrap();
    outbox.operation(write(301, 10)).unwrap();
    let mut ids = Vec::new();
    let mut sizes = Vec::new();
    while let Some(Some(message)) = outgoing.next().now_or_never() {
        sizes.push(message.operations.len());
        ids.extend(message.operations.iter().map(|operation| operation.id));
    }
    assert_eq!(ids, (0..302).collect::<Vec<_>>());
    assert_eq!(sizes, [128, 128, 45, 1]);
}

#[test]
fn what_waits_is_bounded_and_room_comes_back() {
    let (outbox, mut outgoing) = stream();
    let refused = (0..100).find_map(|id| outbox.operation(write(id, 1 << 20)).err());
    assert_eq!(refused, Some(Refused::Full));
    assert!(next(&mut outgoing).is_some());
    assert_eq!(outbox.operation(write(100, 1 << 19)), Ok(()));
}

/// One item too large for a message would end the stream, and with it everything under way.
#[test]
fn nothing_is_queued_that_fits_in_no_message() {
    let (outbox, mut outgoing) = stream();
    assert_eq!(outbox.operation(write(1, MESSAGE_BYTES_MAX)), Err(Refused::TooLarge));
    outbox.reply(page(2, BATCH_BYTES - 100));
    outbox.reply(page(3, ITEM_BYTES_MAX - 100));
    outbox.reply(page(4, MESSAGE_BYTES_MAX));
    let mut replies = Vec::new();
    while let Some(Some(message)) = outgoing.next().now_or_never() {
        assert!(message.encoded_len() <= MESSAGE_BYTES_MAX);
        replies.extend(message.replies);
    }
    assert_eq!(replies.len(), 3);
    assert!(matches!(replies[2].result, Some(peer_reply::Result::Failure(_))));
}

#[test]
fn a_peer_that_takes_no_replies_is_not_served_on() {
    let (outbox, mut outgoing) = stream();
    let served = (0..1_000).take_while(|id| {
        let has_room = outbox.room().now_or_never().is_some();
        if has_room {
            outbox.reply(page(*id, 1 << 20));
        }
        has_room
    });
    assert_eq!(served.count(), QUEUE_BYTES_MAX >> 20);
    assert!(next(&mut outgoing).is_some());
    assert!(outbox.room().now_or_never().is_some());
}

#[test]
fn a_stream_that_ends_sends_the_replies_that_are_due() {
    let (outbox, mut outgoing) = stream();
    outbox.opened(2);
    outbox.end();
    assert!(outgoing.next().now_or_never().is_none(), "two replies are due");
    let done = |id| PeerReply { id, result: Some(peer_reply::Result::Acknowledged(Acknowledged {})) };
    outbox.reply(done(1));
    assert_eq!(next(&mut outgoing).unwrap().replies.len(), 1);
    assert!(outgoing.next().now_or_never().is_none());
    outbox.reply(done(2));
    assert_eq!(next(&mut outgoing).unwrap().replies.len(), 1);
    assert!(next(&mut outgoing).is_none());
}
