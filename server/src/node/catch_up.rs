//! Before a node serves: the metadata that it missed while it was down.

use std::time::Duration;

use super::{Node, until};
use crate::clock;

/// How long a member may take, at the start, to say how far the metadata have come.
const ASK_PATIENCE: Duration = Duration::from_secs(2);

/// How long the start waits for metadata that others have.
const CATCH_UP_PATIENCE: Duration = Duration::from_secs(15);

impl Node {
    /// Waits until the node serves by the latest metadata that any member had which answered: while it was down a table
    /// may have been emptied or dropped, whose rows it still has and must show to nobody.
    ///
    /// A start needs nobody: members that are silent are not waited for, and what does not come in time comes later.
    pub(super) async fn catch_up(&self) {
        let goal = self.log.furthest(ASK_PATIENCE).await;
        let patience = clock::after(CATCH_UP_PATIENCE);
        until(patience, || self.shared.cluster.load().epoch() >= goal).await;
        let own = self.shared.cluster.load().epoch();
        if own < goal {
            tracing::warn!(%own, %goal, "this node begins to serve by metadata that are not the latest");
        }
    }
}
