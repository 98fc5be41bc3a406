//! What snapshots hold, read from their files by themselves.

use trefoil::codec::EncodedRow;
use trefoil::model::{Merge, Stream};
use trefoil::snapshot::Snapshot;
use trefoil::sstable::{BlockCache, FragmentStream, Sstable, SstableMeta, file_name};

use super::*;

/// Everything that the files of a snapshot say; each must be the one that its manifest lists.
pub fn read(vfs: &MemoryVfs, snapshot: &Snapshot) -> Data {
    let directory = Path::new("/node/snapshots").join(snapshot.id.to_string());
    let open = |file: &SstableMeta| -> FragmentStream {
        let path = directory.join(file_name(file.id));
        let sstable = Arc::new(Sstable::open(vfs, &path, Arc::new(BlockCache::new(0))).unwrap());
        sstable.verify(&file.hash).unwrap();
        sstable.read_through().unwrap()
    };
    let mut data = Data::new();
    for table in &snapshot.tables {
        let files = snapshot.files.iter().filter(|file| file.table == table.id);
        let mut merged = Merge::new(files.map(open).collect::<Vec<_>>(), Direction::Forward);
        let mut partition = None;
        while let Some(fragment) = merged.next().unwrap() {
            match fragment {
                Fragment::Partition(header) => partition = Some(header.key),
                Fragment::Row(key, row) => {
                    if let Some(number) = number_of(&row) {
                        data.insert((table.id, partition.clone().unwrap(), key), number);
                    }
                }
                Fragment::Change(..) => {}
            }
        }
    }
    data
}

/// The number of the write that set a row; `None` if it is deleted.
pub fn number_of(row: &EncodedRow) -> Option<u64> {
    let row = row.decode().unwrap();
    let value = row.cells.first().and_then(|cell| cell.1.value_at(0))?;
    Some(std::str::from_utf8(value).unwrap().trim().parse().unwrap())
}
