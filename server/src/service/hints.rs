//! Hints of all nodes: the node that is asked asks each of them.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::FutureExt;
use prost::Message;
use tonic::Status;
use trefoil::model::NodeId;
use trefoil_proto::v1;

use super::Control;
use super::control::REPORT_TIMEOUT;
use crate::hints::{Action, TargetStatus};

impl Control {
    /// Does something about the hints that each of these nodes keeps, and tells of them, in their order. A node that is not
    /// seen alive is not asked.
    pub(super) async fn hints(&self, nodes: &[NodeId], call: v1::HintsCall) -> Vec<v1::NodeHints> {
        let own = || self.own_hints(call).boxed();
        let failed = |error| v1::NodeHints { error, ..v1::NodeHints::default() };
        let of = |node: NodeId, answer: Result<_, _>| v1::NodeHints { node: node.0, ..answer.unwrap_or_else(failed) };
        self.ask_each(nodes, (v1::CallKind::Hints, &call, REPORT_TIMEOUT), own, of).await
    }

    /// Answers another node, which has sent a [`v1::HintsCall`].
    pub(super) async fn answer_hints(&self, body: Bytes) -> Result<Bytes, Status> {
        let call = v1::HintsCall::decode(body).map_err(|error| Status::invalid_argument(error.to_string()))?;
        Ok(self.own_hints(call).await?.encode_to_vec().into())
    }

    async fn own_hints(&self, call: v1::HintsCall) -> Result<v1::NodeHints, Status> {
        let action = match v1::HintsAction::try_from(call.action) {
            Ok(v1::HintsAction::Unspecified) => Action::Tell,
            Ok(v1::HintsAction::Pause) => Action::Pause,
            Ok(v1::HintsAction::Resume) => Action::Resume,
            Ok(v1::HintsAction::Drop) => Action::Drop,
            // Not to be taken for a question.
            Err(_) => return Err(Status::invalid_argument("this build does not know what to do about hints")),
        };
        let hints = &self.shared().hints;
        let target = (call.target != 0).then_some(NodeId(call.target));
        let told = hints.ask(action, target).await;
        let told = told.ok_or_else(|| Status::unavailable("the node is stopping"))?;
        let targets = told.iter().map(|(node, status)| target_hints(*node, status)).collect();
        Ok(v1::NodeHints { targets, refused_queue: hints.refused_queue(), ..v1::NodeHints::default() })
    }

    /// What a report says of hints.
    pub(super) fn report_hints(&self, report: &mut v1::NodeReport) {
        let hints = &self.shared().hints;
        let told: BTreeMap<NodeId, TargetStatus> = hints.status();
        report.hint_bytes = told.values().map(|status| status.pending_bytes).sum();
        report.hint_oldest_s = told.values().map(TargetStatus::oldest_s).max().unwrap_or(0);
        report.hints_refused = hints.refused_queue() + told.values().map(TargetStatus::refused).sum::<u64>();
        report.hints_paused = told.values().any(|status| status.is_paused);
    }
}

fn target_hints(node: NodeId, status: &TargetStatus) -> v1::TargetHints {
    v1::TargetHints {
        target: node.0,
        pending_bytes: status.pending_bytes,
        oldest_s: status.oldest_s(),
        paused: status.is_paused,
        reachable: status.is_reachable,
        written: status.written,
        delivered: status.delivered,
        expired: status.expired,
        too_late: status.too_late,
        unacceptable: status.unacceptable,
        refused_bytes: status.refused_bytes,
        refused_age: status.refused_age,
        refused_disk: status.refused_disk,
        damaged_files: status.damaged_files,
        dropped_bytes: status.dropped_bytes,
    }
}
