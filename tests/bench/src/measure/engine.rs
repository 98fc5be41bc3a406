//! Log, memtable and store of one node, beside plain ones.

use std::sync::Arc;

use trefoil::codec::mutation::{MutationParts, decode_mutation};
use trefoil::codec::{CheckedRecord, Record};
use trefoil::compaction::Unpaced;
use trefoil::memtable::Memtable;
use trefoil::model::Slice;

use crate::engine::{Durable, log, memory, store};
use crate::plan::Plan;
use crate::report::Report;
use crate::sample::{Sample, Series};
use crate::yardstick::{log as plain_log, memory as plain_memory};
use crate::{Result, data};

/// Records of one write to the log: what gathers on a busy node.
const GROUPS: [usize; 2] = [64, 256];

/// Everything of one node.
pub fn measure(plan: &Plan, report: &mut Report) -> Result<()> {
    let records = data::records(plan.rows)?;
    log_beside_plain(plan, &records, report)?;
    memtable_beside_plain(plan, &records, report)?;
    store_alone(plan, &records, report)
}

fn log_beside_plain(plan: &Plan, records: &[CheckedRecord], report: &mut Report) -> Result<()> {
    let ways = GROUPS.into_iter().flat_map(|group| [(group, Durable::Written), (group, Durable::Synced)]);
    let ways: Vec<(usize, Durable)> = ways.collect();
    let mut plain = vec![Series::default(); ways.len()];
    let mut ours = plain.clone();
    for _ in 0..plan.rounds {
        for (at, (group, durable)) in ways.iter().enumerate() {
            let records = match durable {
                Durable::Written => records,
                Durable::Synced => &records[..plan.synced_records.min(records.len())],
            };
            let directory = tempfile::tempdir()?;
            let append = || plain_log::append(directory.path(), records, *group, *durable);
            plain[at].0.push(Sample::of_this_thread(append)?);
            let mut log = log::open(directory.path())?;
            ours[at].0.push(Sample::of_this_thread(|| log::append(&mut log, records, *group, *durable))?);
        }
    }
    let bytes = records.iter().map(|record| record.bytes().len()).sum::<usize>() / records.len().max(1);
    for (at, (group, durable)) in ways.iter().enumerate() {
        let how = if *durable == Durable::Synced { ", each group synced" } else { "" };
        let table = report.table(&format!("Log: records of {bytes} bytes with checksums"));
        table.row(format!("plain, {group} in a write{how}"), &plain[at]);
        table.row(format!("commit log, {group} in a write{how}"), &ours[at]);
        report.ratio(format!("commit log ÷ plain log, CPU, {group} in a write{how}"), ours[at].cpu_over(&plain[at]));
    }
    Ok(())
}

fn memtable_beside_plain(plan: &Plan, records: &[CheckedRecord], report: &mut Report) -> Result<()> {
    let mutations: Vec<MutationParts> = records.iter().map(decoded).collect::<Result<_>>()?;
    let row_key = |mutation: &MutationParts| (mutation.key.clone(), mutation.rows[0].0.clone());
    // Read in another order than written.
    let mut keys: Vec<_> = mutations.iter().map(row_key).collect();
    keys.sort();
    let keys: Vec<_> = data::shuffled(keys.len() as u64).into_iter().map(|at| keys[at as usize].clone()).collect();
    let whole = |(partition, row): &(trefoil::model::PartitionKey, trefoil::model::ClusteringKey)| {
        plain_memory::whole_key(partition.token().0, partition.bytes(), row.bytes())
    };
    let plain_keys: Vec<Vec<u8>> = keys.iter().map(whole).collect();
    let [mut plain_insert, mut plain_get, mut insert, mut get] = [(); 4].map(|()| Series::default());
    for _ in 0..plan.rounds {
        let plain = plain_memory::PlainMemtable::default();
        plain_insert.0.push(Sample::of_this_thread(|| {
            mutations.iter().for_each(|mutation| plain.insert(mutation));
            Ok(mutations.len() as u64)
        })?);
        plain_get.0.push(Sample::of_this_thread(|| {
            Ok(plain_keys.iter().filter_map(|key| plain.get(key)).filter(|row| !row.is_empty()).count() as u64)
        })?);
        drop(plain);
        let memtable = Arc::new(Memtable::new());
        insert.0.push(Sample::of_this_thread(|| memory::insert(&memtable, records))?);
        get.0.push(Sample::of_this_thread(|| memory::get(&memtable, &keys))?);
    }
    let per_partition = data::ROWS_PER_PARTITION;
    let table = report.table(&format!(
        "Memtable: {} rows, {per_partition} in a partition, one column of {} bytes, in random order",
        mutations.len(),
        data::VALUE_BYTES
    ));
    table.row("plain (16 ordered maps), insert".to_owned(), &plain_insert);
    table.row("memtable, insert".to_owned(), &insert);
    table.row("plain (16 ordered maps), get".to_owned(), &plain_get);
    table.row("memtable, get".to_owned(), &get);
    report.ratio("memtable ÷ plain, CPU, insert".to_owned(), insert.cpu_over(&plain_insert));
    report.ratio("memtable ÷ plain, CPU, get".to_owned(), get.cpu_over(&plain_get));
    Ok(())
}

fn decoded(record: &CheckedRecord) -> Result<MutationParts> {
    Ok(decode_mutation(Record::decode(record.bytes().clone())?.mutation)?)
}

fn store_alone(plan: &Plan, records: &[CheckedRecord], report: &mut Report) -> Result<()> {
    let rows = || data::shuffled(plan.rows).into_iter();
    let gets: Vec<_> =
        rows().map(|row| store::command(row, Slice::one(&data::clustering(row)?), 1)).collect::<Result<_>>()?;
    let scans: Vec<_> = rows()
        .take((plan.rows / 20) as usize)
        .map(|row| store::command(row, Slice::all(), data::ROWS_PER_PARTITION as u32))
        .collect::<Result<_>>()?;
    let [mut load, mut memory_get, mut file_get, mut scan] = [(); 4].map(|()| Series::default());
    for _ in 0..plan.rounds {
        let directory = tempfile::tempdir()?;
        let opened = store::open(&directory.path().join("one"), 4 << 30)?;
        store::load(&opened, records)?;
        memory_get.0.push(Sample::of_this_thread(|| store::read(&opened, &gets))?);
        opened.flush(None)?;
        // The first time each block comes into the cache.
        store::read(&opened, &scans)?;
        file_get.0.push(Sample::of_this_thread(|| store::read(&opened, &gets))?);
        scan.0.push(Sample::of_this_thread(|| store::read(&opened, &scans))?);
        drop(opened);
        // Flushes at half of this, again and again while the rows go in.
        let budget = records.iter().map(|record| record.bytes().len()).sum::<usize>() as u64 / 4;
        let opened = store::open(&directory.path().join("many"), budget)?;
        load.0.push(Sample::of_this_thread(|| {
            let rows = store::load(&opened, records)?;
            opened.flush(None)?;
            while opened.compact_next(0, &Unpaced)? {}
            Ok(rows)
        })?);
    }
    let table = report.table("Store of one node: the same rows, random bytes, reads by row and by partition");
    table.row("load with log, flushes and compactions, not synced".to_owned(), &load);
    table.row("read one row, from the memtable".to_owned(), &memory_get);
    table.row("read one row, from cached blocks of one file".to_owned(), &file_get);
    table.row(format!("read {} rows of a partition, from cached blocks of one file", data::ROWS_PER_PARTITION), &scan);
    Ok(())
}
