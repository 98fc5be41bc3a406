//! Rows of a stream that was merged without a cluster, printed as those that a cluster answers.

use std::io;
use std::sync::Arc;

use trefoil::codec::EncodedRow;
use trefoil::model::{Fragment, PartitionHeader, Stream, Table};
use trefoil_client::{Heading, Row};
use trefoil_proto::convert::answer::Projector;
use trefoil_proto::convert::read::projection;
use trefoil_proto::v1;

use super::error::Result;
use super::rows::{Form, Printer};

/// Prints the rows of a merged stream that are visible at `now_s`, to the standard output; how many they were.
pub fn print(table: &Table, mut merged: impl Stream<EncodedRow>, form: Form<'_>, now_s: i64) -> Result<u64> {
    let raw = v1::Projection { value_form: v1::ValueForm::Raw.into(), ..v1::Projection::default() };
    let parts = projection(raw, table).map_err(|detail| trefoil::Error::invalid("table", detail.reason))?;
    let projector = Projector::new(table, &parts, now_s);
    let heading = Arc::new(Heading::of(table));
    let mut printer = Printer::new(table, None, form, io::stdout().lock())?;
    let mut count = 0;
    let mut partition: Option<Partition> = None;
    while let Some(fragment) = merged.next()? {
        let row = match fragment {
            Fragment::Partition(header) => {
                let before = partition.replace(Partition { header, shown: 0 });
                before.and_then(|before| before.alone(&projector, now_s).transpose()).transpose()?
            }
            Fragment::Row(key, row) if row.is_visible_at(now_s)? => {
                let Some(open) = &mut partition else { continue };
                open.shown += 1;
                let values = projector.partition(&open.header.key)?;
                let static_row = open.header.static_row.as_ref().map(EncodedRow::decode).transpose()?;
                Some(projector.row(&values, &key, &row.decode()?, static_row.as_ref())?)
            }
            Fragment::Row(..) | Fragment::Change(..) => None,
        };
        if let Some(row) = row {
            printer.print(&Row::new(&heading, row)?)?;
            count += 1;
        }
    }
    if let Some(row) = partition.and_then(|last| last.alone(&projector, now_s).transpose()).transpose()? {
        printer.print(&Row::new(&heading, row)?)?;
        count += 1;
    }
    drop(printer.finish()?);
    Ok(count)
}

/// The partition whose rows are being printed.
struct Partition {
    header: PartitionHeader<EncodedRow>,
    shown: u64,
}

impl Partition {
    /// The row that stands for static values alone.
    fn alone(&self, projector: &Projector<'_>, now_s: i64) -> trefoil::Result<Option<v1::Row>> {
        let Some(row) = self.header.static_row.as_ref().filter(|_| self.shown == 0) else { return Ok(None) };
        let row = row.decode()?;
        if !row.is_visible_at(now_s) {
            return Ok(None);
        }
        projector.static_row(&projector.partition(&self.header.key)?, &row).map(Some)
    }
}
