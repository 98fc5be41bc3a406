//! What replicas tell each other about who has what.

use trefoil::codec::varint::Reader;
use trefoil::model::{KeyspaceId, MutationName, NodeId, Stamp, Vnode};
use trefoil::received::ReceivedSet;
use trefoil::received::report::{Report, ReportNumber, SliceReport};
use trefoil::received::told::{Floors, Reconciled, Told};

use crate::kept::golden;

fn floors() -> Floors {
    let mut floors = Floors::default();
    floors.raise(NodeId(1), 1_760_000_000_000_000);
    floors.raise(NodeId(3), 1_750_000_000_000_000);
    floors
}

fn told() -> Told {
    let mut set = ReceivedSet::default();
    for sequence in [1, 2, 3, 7, 8, 300] {
        set.add(MutationName { origin: NodeId(2), incarnation: 1_755_000_000_000_000, sequence });
    }
    Told::new(set, floors())
}

fn report() -> Report {
    Report {
        number: ReportNumber { incarnation: 1_765_000_000_000_000, number: 812 },
        base: 810,
        acked: Some(ReportNumber { incarnation: 1_766_000_000_000_000, number: 12 }),
        closed_through: Stamp(1_766_000_000_123_456),
        slices: vec![
            ((KeyspaceId(1), Vnode(30)), SliceReport { placement: 2, told: Some(told()) }),
            ((KeyspaceId(1), Vnode(1023)), SliceReport { placement: 300, told: None }),
        ],
    }
}

#[test]
fn a_report_is_kept() {
    let report = report();
    let bytes = golden("report", &report.encode());
    assert_eq!(Report::decode(bytes).expect("a report"), report);
}

#[test]
fn a_report_of_nothing_new_is_kept() {
    let number = ReportNumber { incarnation: 1_765_000_000_000_000, number: 1 };
    let report = Report { number, base: 0, acked: None, closed_through: Stamp(-1), slices: Vec::new() };
    let bytes = golden("report-empty", &report.encode());
    assert_eq!(Report::decode(bytes).expect("a report"), report);
}

#[test]
fn what_is_reconciled_is_kept() {
    let reconciled = Reconciled { through: Stamp(1_766_000_000_123_456), floors: floors() };
    let mut encoded = Vec::new();
    reconciled.encode(&mut encoded);
    let mut reader = Reader::new("reconciled", golden("reconciled", &encoded));
    assert_eq!(Reconciled::decode(&mut reader).expect("what was written"), reconciled);
    reader.end().expect("nothing behind it");
}

#[test]
fn the_example_of_the_documentation_is_the_kept_report() {
    let page = include_str!("../../docs/formats.md");
    let (_, example) = page.split_once("The sample `report`").expect("the example");
    let lines = example.split("```").nth(1).expect("its drawing").lines().skip(1);
    let digits: Vec<&str> = lines.filter_map(|line| line.split("  ").next()).flat_map(str::split_whitespace).collect();
    let expected: Vec<String> = report().encode().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(digits, expected);
}
