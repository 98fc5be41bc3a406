//! One partition with very many rows: written, sliced both ways, paged, deleted by range, compacted, within a bound of
//! memory that is measured.
//!
//! `TREFOIL_WIDE_ROWS=1000000 cargo test -p trefoil-server --test cluster wide_partition -- --nocapture` prints the table
//! of docs/performance.md; without the variable it is a short form.

use std::time::Instant;

use futures_util::StreamExt;
use tonic::Code;
use trefoil_proto::v1::Consistency::Quorum;
use trefoil_proto::v1::change::Op;
use trefoil_proto::v1::read_request::Target;
use trefoil_proto::v1::value::Kind;
use trefoil_proto::v1::{
    CellWrite, Change, ClusteringRange, MutateRequest, Mutation, Options, ReadCost, ReadRequest, RowWrite, Slice,
    TableRef, Value,
};

use crate::door::{Door, options, value};
use crate::process::{Place, Process, Settings, settings_text};
use crate::wait::until;

const SCHEMA: [&str; 2] = [
    "CREATE KEYSPACE app",
    "CREATE TABLE app.wide (p int, c int, v blob, PRIMARY KEY (p, c)) WITH durability = 'periodic'",
];

/// Memory beyond that of an idle node, while memtables may take 8 MiB, cached blocks as much, and a page a
/// quarter of one.
const ABOVE_IDLE_MIB_MAX: u64 = 64;

/// Rows of one mutation.
const GROUP: i32 = 250;

fn rows() -> i32 {
    std::env::var("TREFOIL_WIDE_ROWS").ok().and_then(|rows| rows.parse().ok()).unwrap_or(20_000)
}

fn integer(number: i32) -> Value {
    value(Kind::Integer(number.into()))
}

fn table() -> Option<TableRef> {
    Some(TableRef { keyspace: "app".to_owned(), name: "wide".to_owned(), ..TableRef::default() })
}

fn mutate(ops: Vec<Op>) -> MutateRequest {
    let changes = ops.into_iter().map(|op| Change { op: Some(op), ..Change::default() }).collect();
    let mutation = Mutation { table: table(), partition: vec![integer(1)], changes };
    MutateRequest { options: options(Quorum), mutation: Some(mutation) }
}

/// Row `c`, with a value of 100 bytes that no compressor makes much smaller.
fn insert(c: i32) -> Op {
    let mut state = c as u64;
    let noise = (0..100).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    });
    let value = value(Kind::Blob(noise.collect()));
    Op::Insert(RowWrite { clustering: vec![integer(c)], cells: vec![CellWrite::set("v", value)] })
}

fn between(from: i32, to: i32) -> ClusteringRange {
    ClusteringRange { from: vec![integer(from)], to: vec![integer(to)], ..ClusteringRange::default() }
}

fn slice(ranges: Vec<ClusteringRange>) -> ReadRequest {
    let target = Target::Slice(Slice { partition: vec![integer(1)], ranges });
    let options = Some(Options { trace: true, ..options(Quorum).unwrap() });
    ReadRequest { options, table: table(), target: Some(target), ..ReadRequest::default() }
}

/// A node by itself, and what has been measured of it.
struct Measured {
    node: Process,
    door: Door,
    idle_kib: u64,
    began: Instant,
    lines: Vec<String>,
    worst_kib: u64,
}

impl Measured {
    async fn start(directory: &std::path::Path) -> Measured {
        let place = Place::new("a");
        let storage = "segment_mib = 48\nmemtable_mib = 8\ncache_mib = 8\n".to_owned();
        let limits = "page_kib_default = 256\n".to_owned();
        let settings = Settings { vnodes: 8, storage, limits, ..Settings::default() };
        let text = settings_text(&place, std::slice::from_ref(&place), &settings);
        let mut node = Process::new(directory.join("node"), place, &text);
        node.start();
        node.ready().await;
        let door = Door::new(node.place.client);
        for statement in SCHEMA {
            door.apply(statement).await.unwrap();
        }
        let idle_kib = node.memory_peak_kib();
        Measured { node, door, idle_kib, began: Instant::now(), lines: Vec::new(), worst_kib: 0 }
    }

    /// Notes time and memory since the last step.
    fn step(&mut self, what: &str) {
        let above_kib = self.node.memory_peak_kib().saturating_sub(self.idle_kib);
        self.worst_kib = self.worst_kib.max(above_kib);
        let line = format!("| {what} | {:.1} | {} |", self.began.elapsed().as_secs_f64(), above_kib.div_ceil(1024));
        println!("{line}");
        self.lines.push(line);
        self.began = Instant::now();
    }

    async fn write(&self, count: i32) {
        let groups = (0..count).step_by(GROUP as usize).map(|begin| begin..count.min(begin + GROUP));
        let sent = futures_util::stream::iter(groups).map(|rows| self.write_group(mutate(rows.map(insert).collect())));
        sent.buffer_unordered(8).for_each(|()| async {}).await;
    }

    /// A machine that is busy with other things may have a clock that waits for its ceiling: then it is asked again.
    async fn write_group(&self, request: MutateRequest) {
        until("the group is written", async || match self.door.mutate(request.clone()).await {
            Err(error) if error.status_code() == Code::ResourceExhausted => Err(error.message),
            written => {
                written.unwrap();
                Ok(())
            }
        })
        .await;
    }

    /// All pages of a read: the rows by number, and the dearest of the pages.
    async fn read(&self, mut request: ReadRequest) -> (Vec<i32>, ReadCost) {
        let (mut rows, mut dearest) = (Vec::new(), ReadCost::default());
        loop {
            let page = self.door.read_page(request.clone()).await.unwrap();
            rows.extend(page.rows.iter().map(|row| match row.clustering[0].kind {
                Some(Kind::Integer(number)) => number as i32,
                ref other => panic!("{other:?}"),
            }));
            let cost = page.cost.unwrap();
            dearest.rows = dearest.rows.max(cost.rows);
            dearest.blocks_read = dearest.blocks_read.max(cost.blocks_read + cost.blocks_cached);
            dearest.sstables_read = dearest.sstables_read.max(cost.sstables_read);
            if page.paging_state.is_empty() {
                return (rows, dearest);
            }
            request.paging_state = page.paging_state;
        }
    }

    async fn reads_all(&self, expected: &[i32], request: ReadRequest) -> ReadCost {
        let reversed = request.reversed;
        let (mut found, cost) = self.read(request).await;
        if reversed {
            found.reverse();
        }
        assert!(found == expected, "{} rows instead of {}", found.len(), expected.len());
        cost
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wide_partition_takes_no_more_memory_than_its_budgets() {
    let count = rows();
    let directory = tempfile::tempdir().unwrap();
    let mut node = Measured::start(directory.path()).await;
    println!("| {count} rows of 100 bytes in one partition | s | MiB above idle ({} MiB) |", node.idle_kib / 1024);
    node.write(count).await;
    node.step("written");
    let all: Vec<i32> = (0..count).collect();
    node.reads_all(&all, slice(Vec::new())).await;
    node.step("all of it, page by page");
    node.reads_all(&all, ReadRequest { reversed: true, ..slice(Vec::new()) }).await;
    node.step("all of it, backwards");

    for reversed in [false, true] {
        for at in (1..100).map(|part| count / 100 * part) {
            let ranges = vec![if reversed { between(0, at) } else { between(at, count) }];
            let request = ReadRequest { reversed, limit: 5, page_rows: 1, ..slice(ranges) };
            let (found, cost) = node.read(request).await;
            let expected = (0..5).map(|step| if reversed { at - step } else { at + step });
            assert_eq!(found, expected.collect::<Vec<_>>());
            let sources = cost.sstables_read + 2;
            assert!(cost.rows <= 2 * sources && cost.blocks_read <= 2 * sources, "one row: {cost:?}");
        }
    }
    node.step("990 pages of one row, both ways, in its midst");
    for row in (0..1_000).map(|at| (at * 7_919) % count) {
        let (found, cost) = node.read(slice(vec![between(row, row)])).await;
        assert_eq!(found, [row]);
        assert!(cost.blocks_read <= cost.sstables_read, "{cost:?}");
    }
    node.step("1,000 rows one by one");

    let (from, to) = (count / 20, count - count / 20);
    node.door.mutate(mutate(vec![Op::DeleteRange(between(from, to))])).await.unwrap();
    let left: Vec<i32> = (0..from).chain(to + 1..count).collect();
    let forward = node.reads_all(&left, slice(Vec::new())).await;
    let reverse = node.reads_all(&left, ReadRequest { reversed: true, ..slice(Vec::new()) }).await;
    assert!(forward.rows.max(reverse.rows) < 50_000, "the deleted rows were read: {forward:?} {reverse:?}");
    node.step("nine tenths deleted as one range, the rest read both ways");
    for begin in (0..from - 10).step_by((from as usize / 500).max(4)) {
        let deletes =
            vec![Op::DeleteRange(between(begin, begin + 1)), Op::DeleteRange(between(to + begin, to + begin + 1))];
        node.door.mutate(mutate(deletes)).await.unwrap();
    }
    let (found, _) = node.read(slice(Vec::new())).await;
    let (mut backwards, _) = node.read(ReadRequest { reversed: true, ..slice(Vec::new()) }).await;
    backwards.reverse();
    assert!(found == backwards && found.len() < left.len(), "{} rows, backwards {}", found.len(), backwards.len());
    node.step("a thousand ranges more, read both ways");

    node.write(count).await;
    node.door.flush(1).await;
    node.step("written again over all that, flushed");
    node.reads_all(&all, slice(Vec::new())).await;
    node.step("all of it, page by page");
    node.node.terminate().await;
    node.node.start();
    node.node.ready().await;
    until("the node serves its lane", async || node.door.ring().await.map(drop).map_err(|error| error.message)).await;
    node.reads_all(&all, ReadRequest { reversed: true, ..slice(Vec::new()) }).await;
    node.step("started again, all of it backwards");
    let worst_mib = node.worst_kib.div_ceil(1024);
    assert!(worst_mib <= ABOVE_IDLE_MIB_MAX, "{worst_mib} MiB above idle");
}
