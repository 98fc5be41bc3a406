//! One question to several nodes, the own one among them.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use prost::Message;
use tonic::Status;
use trefoil::model::NodeId;
use trefoil_proto::v1::CallKind;

use super::Control;

impl Control {
    /// What each of these nodes answers to `call` within `time`, in their order, where `own` answers for this one; `of`
    /// says whose answer it is, or what went wrong. A node that is not seen alive is not asked.
    pub(super) async fn ask_each<'a, A: Message + Default>(
        &'a self,
        nodes: &[NodeId],
        (kind, call, time): (CallKind, &impl Message, Duration),
        own: impl Fn() -> BoxFuture<'a, Result<A, Status>>,
        of: impl Fn(NodeId, Result<A, String>) -> A,
    ) -> Vec<A> {
        let alive = self.shared().peers.alive();
        let body = Bytes::from(call.encode_to_vec());
        let ask = |node: NodeId| {
            let own = (node == self.shared().identity.node).then(&own);
            let (body, is_alive) = (body.clone(), alive.contains(&node));
            async move {
                match own {
                    Some(own) => own.await.map_err(|status| status.message().to_owned()),
                    None if is_alive => self.ask_one(node, kind, body, time).await,
                    None => Err("it is not seen alive".to_owned()),
                }
            }
        };
        let answers = join_all(nodes.iter().map(|node| ask(*node))).await;
        nodes.iter().zip(answers).map(|(node, answer)| of(*node, answer)).collect()
    }

    async fn ask_one<A: Message + Default>(
        &self,
        node: NodeId,
        kind: CallKind,
        body: Bytes,
        time: Duration,
    ) -> Result<A, String> {
        let answer = self.rpc().call(node, kind, body, time).await;
        let body = answer.map_err(|error| error.to_string())?;
        A::decode(body).map_err(|error| error.to_string())
    }
}
