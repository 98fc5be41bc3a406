//! Fragments.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use super::arbitrary::{fragment, row};
use super::refuses_damage;
use crate::codec::EncodedRow;
use crate::codec::entry::{Entries, Trust, put_entry, read_entry};
use crate::codec::skim::{Outline, skim_entry};
use crate::codec::varint::{Cursor, Reader};
use crate::model::{Fragment, PartitionHeader, PartitionKey, Stream};

fn encode(fragment: &Fragment<EncodedRow>) -> Vec<u8> {
    let mut out = Vec::new();
    put_entry(&mut out, fragment);
    out
}

fn decode(bytes: Bytes, trust: Trust) -> crate::Result<Fragment<EncodedRow>> {
    let mut reader = Reader::new("entry", bytes);
    let fragment = read_entry(&mut reader, trust)?;
    reader.end()?;
    Ok(fragment)
}

fn outline(fragment: &Fragment<EncodedRow>) -> (Outline, Bytes) {
    match fragment {
        Fragment::Partition(header) => (Outline::Header, header.key.bytes().clone()),
        Fragment::Row(key, _) => (Outline::Row, key.bytes().clone()),
        Fragment::Change(bound, deletion) => (Outline::Change(*deletion), bound.bytes().clone()),
    }
}

proptest! {
    // Each case decodes hundreds of damaged versions.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn damage_is_refused(fragment in fragment()) {
        refuses_damage(&encode(&fragment), |bytes| decode(bytes, Trust::Checked).map(|fragment| encode(&fragment)));
        // What can be read can be skimmed, and skimming says the same of it; not every fault is seen by skimming.
        refuses_damage(&encode(&fragment), |bytes| {
            let mut cursor = Cursor::new("entry", &bytes);
            let skimmed = skim_entry(&mut cursor).map(|(outline, key)| (outline, Bytes::copy_from_slice(key)));
            let end = cursor.end();
            let read = decode(bytes, Trust::Trusted)?;
            end?;
            assert_eq!(skimmed?, outline(&read));
            Ok(encode(&read))
        });
    }
}

proptest! {
    #[test]
    fn fragments_come_back(fragments in vec(fragment(), 0..6)) {
        let bytes = Bytes::from(fragments.iter().flat_map(encode).collect::<Vec<u8>>());
        for trust in [Trust::Checked, Trust::Trusted] {
            let mut entries = Entries::new(bytes.clone(), trust);
            for fragment in &fragments {
                prop_assert_eq!(&entries.next().unwrap().unwrap(), fragment);
            }
            prop_assert_eq!(entries.next().unwrap(), None);
        }
    }

    #[test]
    fn any_bytes_are_entries_or_refused(bytes in vec(prop_oneof![2 => 0..5u8, 1 => any::<u8>()], 0..60)) {
        for trust in [Trust::Checked, Trust::Trusted] {
            let mut entries = Entries::new(bytes.clone().into(), trust);
            while let Ok(Some(_)) = entries.next() {}
            prop_assert_eq!(entries.next().unwrap(), None, "nothing follows an error");
        }
    }

    #[test]
    fn a_static_row_has_neither_marker_nor_deletion(row in row()) {
        let has_cells_only = row.marker.is_none() && row.deletion.is_none();
        let key = PartitionKey::from_bytes(Bytes::from_static(b"p"));
        let header = PartitionHeader { key, deletion: None, static_row: Some(EncodedRow::encode(&row)) };
        for trust in [Trust::Checked, Trust::Trusted] {
            let decoded = decode(encode(&Fragment::Partition(header.clone())).into(), trust);
            prop_assert_eq!(decoded.is_ok(), has_cells_only);
        }
    }
}
