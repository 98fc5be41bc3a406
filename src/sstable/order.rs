//! The invariants of a forward stream (see `model::fragment`), watched fragment by fragment: by the builder before it
//! writes one, and again when a block has been read.

use crate::model::{Deletion, Token};

/// Where a stream stands. `K` holds the bytes of a key: shared by a writer, borrowed from its block by a reader.
pub(super) struct Order<K> {
    partition: Option<(Token, K)>,
    place: Option<K>,
    in_force: Option<Deletion>,
}

/// Why a fragment cannot follow.
pub(super) type Disorder = &'static str;

impl<K: AsRef<[u8]>> Order<K> {
    /// Before the first partition.
    pub(super) fn new() -> Order<K> {
        Order { partition: None, place: None, in_force: None }
    }

    /// Somewhere within a partition.
    pub(super) fn within(token: Token, key: K, in_force: Option<Deletion>) -> Order<K> {
        Order { partition: Some((token, key)), place: None, in_force }
    }

    /// A partition begins.
    pub(super) fn partition(&mut self, token: Token, key: K) -> Result<(), Disorder> {
        self.end()?;
        if let Some((token_before, before)) = &self.partition
            && (*token_before, before.as_ref()) >= (token, key.as_ref())
        {
            return Err("partitions do not ascend");
        }
        self.partition = Some((token, key));
        self.place = None;
        Ok(())
    }

    /// A row follows.
    pub(super) fn row(&mut self, key: K) -> Result<(), Disorder> {
        self.advance(key)
    }

    /// A change of the range deletion in force follows.
    pub(super) fn change(&mut self, bound: K, deletion: Option<Deletion>) -> Result<(), Disorder> {
        if deletion == self.in_force {
            return Err("a change of the range deletion changes nothing");
        }
        self.advance(bound)?;
        self.in_force = deletion;
        Ok(())
    }

    /// The stream ends.
    pub(super) fn end(&self) -> Result<(), Disorder> {
        match self.in_force {
            Some(_) => Err("a range deletion is not closed"),
            None => Ok(()),
        }
    }

    fn advance(&mut self, place: K) -> Result<(), Disorder> {
        if self.partition.is_none() {
            return Err("a row or range deletion comes before any partition");
        }
        if self.place.as_ref().is_some_and(|before| before.as_ref() >= place.as_ref()) {
            return Err("rows and range deletions do not ascend");
        }
        self.place = Some(place);
        Ok(())
    }
}
