//! Compaction of all nodes: the node that is asked asks each of them.

use bytes::Bytes;
use futures_util::FutureExt;
use prost::Message;
use tonic::Status;
use trefoil::metadata::ClusterState;
use trefoil::model::{NodeId, TableId};
use trefoil::store::{CompactionStatus, RunningCompaction, ScrubStatus, TableFiles};
use trefoil_proto::convert::schema as convert;
use trefoil_proto::v1;

use super::Control;
use super::control::REPORT_TIMEOUT;
use crate::clock;

impl Control {
    /// What each of these nodes tells of its compaction, in their order, once it has begun to compact `table` if one is
    /// named. A node that is not seen alive is not asked.
    pub(super) async fn compaction(&self, nodes: &[NodeId], table: Option<TableId>) -> Vec<v1::NodeCompaction> {
        let call = v1::CompactionCall { table: table.map(convert::table_id).unwrap_or_default() };
        let own = || self.own_compaction(table).boxed();
        let failed = |error| v1::NodeCompaction { error, ..v1::NodeCompaction::default() };
        let of =
            |node: NodeId, answer: Result<_, _>| v1::NodeCompaction { node: node.0, ..answer.unwrap_or_else(failed) };
        self.ask_each(nodes, (v1::CallKind::Compaction, &call, REPORT_TIMEOUT), own, of).await
    }

    /// Answers another node, which has sent a [`v1::CompactionCall`].
    pub(super) async fn answer_compaction(&self, body: Bytes) -> Result<Bytes, Status> {
        let call = v1::CompactionCall::decode(body).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let table = match call.table.is_empty() {
            true => None,
            false => {
                let id = convert::table_id_to_model(&call.table);
                Some(id.map_err(|invalid| v1::Error::invalid(invalid).into_status())?)
            }
        };
        Ok(self.own_compaction(table).await?.encode_to_vec().into())
    }

    async fn own_compaction(&self, table: Option<TableId>) -> Result<v1::NodeCompaction, Status> {
        let replica = self.shared().replica.clone();
        let looked = tokio::task::spawn_blocking(move || {
            table.into_iter().for_each(|table| replica.compact(table));
            (replica.store().compaction_status(clock::wall_us().div_euclid(1_000_000)), replica.scrub_status())
        });
        let (status, scrub) = looked.await.map_err(|error| Status::internal(error.to_string()))?;
        Ok(v1::NodeCompaction { scrub: Some(scrub_status(&scrub)), ..told(&self.state(), &status) })
    }
}

/// Tables that the state does not know, since they are going, are left out.
fn told(state: &ClusterState, status: &CompactionStatus) -> v1::NodeCompaction {
    let running = status.running.iter().filter_map(|running| {
        let RunningCompaction { table, files, bytes, bytes_read } = *running;
        let (keyspace, table) = table_name(state, table)?;
        Some(v1::RunningCompaction { keyspace, table, files, bytes, bytes_read })
    });
    let tables = status.tables.iter().filter_map(|files| Some(table_files(table_name(state, files.table)?, files)));
    let mut tables: Vec<v1::TableFiles> = tables.collect();
    tables.sort_by(|a, b| (&a.keyspace, &a.table).cmp(&(&b.keyspace, &b.table)));
    v1::NodeCompaction {
        running: running.collect(),
        tables,
        backlog_bytes: status.backlog_bytes(),
        backlog_files: status.backlog_files(),
        ..v1::NodeCompaction::default()
    }
}

fn table_files((keyspace, table): (String, String), files: &TableFiles) -> v1::TableFiles {
    v1::TableFiles {
        keyspace,
        table,
        files: files.files,
        bytes: files.bytes,
        waiting_files: files.waiting_files,
        waiting_bytes: files.waiting_bytes,
        aside_files: files.aside_files,
        read_amplification: files.read_amplification,
        write_amplification: files.write_amplification,
        space_amplification: files.space_amplification,
    }
}

fn scrub_status(status: &ScrubStatus) -> v1::ScrubStatus {
    let ScrubStatus { files, bytes, damaged, waiting_files, waiting_bytes } = *status;
    v1::ScrubStatus { files, bytes, damaged, waiting_files, waiting_bytes }
}

/// The names of a table and its keyspace.
pub(crate) fn table_name(state: &ClusterState, id: TableId) -> Option<(String, String)> {
    let table = state.table(id)?;
    Some((state.keyspace(table.keyspace)?.name.clone(), table.name.clone()))
}
