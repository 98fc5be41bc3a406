//! What replicas compare instead of whole answers: a fingerprint of a page as every replica with the same writes has it.
//!
//! ```text
//! page ──► what has expired by now_s: without its value ──► without deletions and expired cells below the bound ──► hash
//!                                                                                    end of the page ──────────────┘
//! ```
//!
//! A replica may have let go of a deletion, or of an expired value, that another still holds (B017): neither shows. The
//! place where a page was cut is part of the digest, so that answers which reach differently far are not taken for equal.
//! Rows of which nothing has expired and nothing is deleted are hashed as the bytes they are.

use bytes::Bytes;

use crate::Result;
use crate::codec::EncodedRow;
use crate::codec::entry::{Entries, Trust, put_entry};
use crate::codec::position::put_position;
use crate::codec::row::view::{KindView, Part};
use crate::model::reconcile::expire_row;
use crate::model::{
    Cell, CellKind, Deletion, Fragment, LivenessKind, Page, PageEnd, PartitionHeader, Row, Stream, Timestamp,
    fingerprint,
};

/// The digest of one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest(pub [u8; 16]);

/// What does not show in a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unseen {
    /// The coordinator's clock, seconds since 1970: values that have expired by then.
    pub now_s: i64,
    /// Deletions, and what is left of expired values, with a lower timestamp; `None`: all show.
    pub below: Option<Timestamp>,
}

/// The digest of a page of this node's own, or of one whose entries were decoded without a fault.
pub fn digest(page: &Page, unseen: Unseen) -> Result<Digest> {
    let normal = if is_normal(&page.entries, unseen)? { page.entries.clone() } else { normalised(page, unseen)? };
    let mut whole = fingerprint(&normal).to_le_bytes().to_vec();
    whole.extend_from_slice(&(normal.len() as u64).to_le_bytes());
    if let PageEnd::At(position) = &page.end {
        put_position(&mut whole, position);
    }
    Ok(Digest(fingerprint(&whole).to_le_bytes()))
}

/// Whether the entries are hashed as they stand.
fn is_normal(entries: &Bytes, unseen: Unseen) -> Result<bool> {
    let mut entries = Entries::new(entries.clone(), Trust::Trusted);
    // A header that says nothing and has nothing behind it.
    let mut is_bare = false;
    while let Some(fragment) = entries.next()? {
        let is_normal = match &fragment {
            Fragment::Partition(_) if is_bare => false,
            Fragment::Partition(header) => {
                let static_row = header.static_row.as_ref().map_or(Ok(true), |row| unseen.is_normal_row(row))?;
                static_row && !header.deletion.is_some_and(|deletion| unseen.hides(deletion.timestamp))
            }
            Fragment::Row(_, row) => unseen.is_normal_row(row)?,
            Fragment::Change(_, deletion) => !deletion.is_some_and(|deletion| unseen.hides(deletion.timestamp)),
        };
        if !is_normal {
            return Ok(false);
        }
        is_bare = matches!(&fragment, Fragment::Partition(header) if !header.says_something());
    }
    Ok(!is_bare)
}

/// The entries without what does not show.
fn normalised(page: &Page, unseen: Unseen) -> Result<Bytes> {
    let mut entries = Entries::new(page.entries.clone(), Trust::Trusted);
    let mut out = Vec::with_capacity(page.entries.len());
    let mut waiting: Option<PartitionHeader<EncodedRow>> = None;
    let mut in_force: Option<Deletion> = None;
    while let Some(fragment) = entries.next()? {
        let shown = match fragment {
            Fragment::Partition(PartitionHeader { key, deletion, static_row }) => {
                let static_row = static_row.map(|row| unseen.row(row)).transpose()?.flatten();
                let header = PartitionHeader { key, deletion: unseen.deletion(deletion), static_row };
                in_force = None;
                waiting = Some(header).filter(|header| {
                    let says_something = header.says_something();
                    if says_something {
                        put_entry(&mut out, &Fragment::Partition(header.clone()));
                    }
                    !says_something
                });
                None
            }
            Fragment::Row(key, row) => unseen.row(row)?.map(|row| Fragment::Row(key, row)),
            Fragment::Change(bound, deletion) => {
                let deletion = unseen.deletion(deletion);
                let changes = deletion != in_force;
                in_force = deletion;
                changes.then_some(Fragment::Change(bound, deletion))
            }
        };
        let Some(shown) = shown else { continue };
        if let Some(header) = waiting.take() {
            put_entry(&mut out, &Fragment::Partition(header));
        }
        put_entry(&mut out, &shown);
    }
    Ok(out.into())
}

impl Unseen {
    fn hides(&self, timestamp: Timestamp) -> bool {
        self.below.is_some_and(|below| timestamp < below)
    }

    fn deletion(&self, deletion: Option<Deletion>) -> Option<Deletion> {
        deletion.filter(|deletion| !self.hides(deletion.timestamp))
    }

    /// Whether everything in the row shows as it stands.
    fn is_normal_row(&self, row: &EncodedRow) -> Result<bool> {
        let row = row.view()?;
        let deletion_shows = !row.deletion.is_some_and(|deletion| self.hides(deletion.timestamp));
        let marker_shows = row.marker.is_none_or(|marker| match marker.kind {
            LivenessKind::Live => true,
            LivenessKind::Expiring { expiry_s, .. } => self.now_s < expiry_s,
            LivenessKind::Expired { expiry_s, .. } => self.now_s < expiry_s || !self.hides(marker.timestamp),
        });
        if !(deletion_shows && marker_shows) {
            return Ok(false);
        }
        for part in row.parts {
            let shows = match part? {
                Part::Complex { deletion, .. } => !deletion.is_some_and(|deletion| self.hides(deletion.timestamp)),
                Part::Cell(cell) | Part::Element(_, cell) => match cell.kind {
                    KindView::Live(_) | KindView::Counter(_) => true,
                    KindView::Tombstone { .. } => !self.hides(cell.timestamp),
                    KindView::Expiring { expiry_s, .. } => self.now_s < expiry_s,
                    KindView::Expired { expiry_s, .. } => self.now_s < expiry_s || !self.hides(cell.timestamp),
                },
            };
            if !shows {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What shows of a row; `None` if nothing does.
    fn row(&self, row: EncodedRow) -> Result<Option<EncodedRow>> {
        if self.is_normal_row(&row)? {
            return Ok(Some(row));
        }
        let Row { marker, deletion, cells, complex } = expire_row(row.decode()?, self.now_s);
        let marker = marker.filter(|marker| match marker.kind {
            LivenessKind::Expired { expiry_s, .. } => self.now_s < expiry_s || !self.hides(marker.timestamp),
            LivenessKind::Live | LivenessKind::Expiring { .. } => true,
        });
        let mut shown = Row { marker, deletion: self.deletion(deletion), cells, complex };
        shown.cells.retain(|(_, cell)| self.shows(cell));
        for (_, complex) in &mut shown.complex {
            complex.deletion = self.deletion(complex.deletion);
            complex.cells.retain(|(_, cell)| self.shows(cell));
        }
        shown.complex.retain(|(_, complex)| !complex.is_empty());
        Ok((!shown.is_empty()).then(|| EncodedRow::encode(&shown)))
    }

    fn shows(&self, cell: &Cell) -> bool {
        match cell.kind {
            CellKind::Tombstone { .. } => !self.hides(cell.timestamp),
            CellKind::Expired { expiry_s, .. } => self.now_s < expiry_s || !self.hides(cell.timestamp),
            CellKind::Live(_) | CellKind::Expiring { .. } | CellKind::Counter(_) => true,
        }
    }
}
