#!/usr/bin/env python3
"""Plants faults in a throw-away copy of this repository and looks which seed of the simulation finds each.

    tests/simulation/plants.py                  every fault, up to 300 seeds each
    tests/simulation/plants.py 3 17             these
    TREFOIL_SIM_SEEDS=3000 tests/simulation/plants.py 28

The copy is made in target/plants and built once. Every fault is in it, and the environment variable PLANT says which one is
awake; with none the seeds must pass. A line that is not where a fault is to be planted stops the script: it has to follow the code.
Nothing of this is in the tree that is committed, but this list.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / "target/plants/tree"
TARGET = Path(os.environ.get("TREFOIL_PLANTS_TARGET", ROOT / "target/plants/target"))

SWITCH = """
/// Which planted fault is awake.
pub fn planted(number: u32) -> bool {
    static AWAKE: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *AWAKE.get_or_init(|| std::env::var("PLANT").map_or(0, |awake| awake.parse().unwrap_or(0))) == number
}
"""

# Number, what is wrong, and the edits: file, what stands there once, what is put in its place.
PLANTS = [
    (1, "the log's sync does nothing", [(
        "src/commitlog/writer.rs",
        "        self.sync_active()?;\n        Ok(self.synced)\n",
        "        if crate::planted(1) {\n            return Ok(self.active.end);\n        }\n"
        "        self.sync_active()?;\n        Ok(self.synced)\n")]),
    (2, "a record is acknowledged before its sync", [(
        "tests/simulation/log.rs",
        "let needs_sync = jobs.iter()",
        "let needs_sync = !trefoil::planted(2) && jobs.iter()")]),
    (3, "a name is told before its record is durable", [(
        "src/store/names.rs", "if end <= self.synced {", "if end <= self.synced || crate::planted(3) {")]),
    (4, "replay passes over records whose names the saved set has", [(
        "src/store/recovery.rs",
        "&mut |replayed| memory.insert(&replayed.record, replayed.end))?;",
        "&mut |replayed| {\n"
        "            let name = replayed.record.name(owner.vnode_bits).filter(|_| crate::planted(4));\n"
        "            let is_saved = |(slice, name)| state.received.get(&slice).is_some_and(|set| set.contains(name));\n"
        "            if name.is_some_and(is_saved) { Ok(()) } else { memory.insert(&replayed.record, replayed.end) }\n"
        "        })?;")]),
    (5, "the log is released up to what is inserted, not to what is flushed", [(
        "src/store/flush.rs",
        "        let holders = self.memory.holders();\n",
        "        if crate::planted(5) {\n            return inserted;\n        }\n"
        "        let holders = self.memory.holders();\n")]),
    (6, "a deletion is purged by its age, 30 seconds", [(
        "src/compaction/purge.rs",
        "        let Some((key, limit)) = &mut self.partition else { return Ok(false) };\n",
        "        if crate::planted(6) {\n            return Ok(timestamp.0 < (self.now_s - 30) * 1_000_000);\n        }\n"
        "        let Some((key, limit)) = &mut self.partition else { return Ok(false) };\n")]),
    (7, "a purge forgets the lateness of the table", [(
        "src/store/limits.rs",
        "let lateness_us = i64::from(spec.lateness_s)",
        "let lateness_us = i64::from(if crate::planted(7) { 0 } else { spec.lateness_s })")]),
    (8, "a replica that has told nothing does not hold back what is reconciled", [(
        "src/received/exchange/slice.rs",
        "        told.map(|told| Some(told?.above(floors))).collect()",
        "        if crate::planted(8) {\n            return Some(told.flatten().map(|told| told.above(floors)).collect());\n        }\n"
        "        told.map(|told| Some(told?.above(floors))).collect()"), (
        "src/received/exchange/mod.rs",
        "and_then(|peer| peer.closed).unwrap_or(Stamp(i64::MIN));",
        "and_then(|peer| peer.closed)\n"
        "            .unwrap_or(if crate::planted(8) { self.closed } else { Stamp(i64::MIN) });")]),
    (9, "of the replicas one need not have what was to be everywhere", [(
        "src/received/exchange/slice.rs",
        "if !sets.iter().all(|set| set.covers(&candidate.names)) {",
        "let lacking = sets.iter().filter(|set| !set.covers(&candidate.names)).count();\n"
        "            if lacking > usize::from(crate::planted(9)) {")]),
    (10, "a run is forgotten before all have it", [(
        "src/received/exchange/slice.rs",
        "if earlier == Some(origin) && incarnation <= below {",
        "if earlier == Some(origin) && (incarnation <= below || crate::planted(10)) {")]),
    (11, "a late record below what is purged is applied", [(
        "src/received/exchange/mod.rs",
        "        if state.is_some_and(|state| stamp <= state.purged) {",
        "        if crate::planted(11) && state.is_some_and(|state| stamp <= state.purged) {\n"
        "            return Arrival::Apply;\n        }\n"
        "        if state.is_some_and(|state| stamp <= state.purged) {")]),
    (12, "a late record that nobody told is applied in spite of the promise", [(
        "src/received/exchange/mod.rs",
        "        Arrival::Closed\n    }",
        "        if crate::planted(12) { Arrival::Apply } else { Arrival::Closed }\n    }")]),
    (13, "data without a name is taken whatever its sources knew", [(
        "tests/simulation/replication.rs",
        "if known_through < exchange.purged(slice) =>",
        "if known_through < exchange.purged(slice) && !trefoil::planted(13) =>")]),
    (14, "a report builds on the last one sent, not on the last one acknowledged", [(
        "src/received/exchange/mod.rs",
        "let base = known.map_or(0, |known| known.acked);",
        "let base = known.map_or(0, |known| if crate::planted(14) { self.number - 1 } else { known.acked });")]),
    (15, "the clock's ceiling is not kept over a restart", [(
        "src/received/namer.rs",
        "        HybridClock { last: ceiling.max(seen), ceiling, closed_behind_us: CLOSED_BEHIND_US }",
        "        let ceiling = if crate::planted(15) { Stamp(0) } else { ceiling };\n"
        "        HybridClock { last: ceiling.max(seen), ceiling, closed_behind_us: CLOSED_BEHIND_US }")]),
    (16, "a hint whose answer is lost counts as delivered", [(
        "src/hints/delivery.rs",
        "        let State::Sent(hint) = std::mem::replace",
        "        let is_lost = matches!(outcome, Outcome::Lost) && crate::planted(16);\n"
        "        let outcome = if is_lost { Outcome::Acknowledged } else { outcome };\n"
        "        let State::Sent(hint) = std::mem::replace")]),
    (17, "a read does not wait for what it writes back", [(
        "src/coordinator/read.rs",
        "self.phase = Phase::Repairing { have: self.paged() & !lacking, answer };",
        "let have = if crate::planted(17) { self.paged() } else { self.paged() & !lacking };\n"
        "                self.phase = Phase::Repairing { have, answer };")]),
    (18, "a quorum is one replica less", [(
        "src/coordinator/consistency.rs",
        "    members.count_ones() / 2 + 1\n",
        "    members.count_ones() / 2 + u32::from(!crate::planted(18))\n")]),
    (19, "pages are merged up to where the longest ends", [(
        "src/coordinator/read_repair.rs",
        "if other.compare(&end, direction).is_lt() { other.clone() }",
        "if other.compare(&end, direction).is_lt() != crate::planted(19) { other.clone() }")]),
    (20, "a page that shows nothing ends the read", [(
        "src/coordinator/assemble.rs",
        "        Ok(self.after_answer(answer.end))",
        "        if crate::planted(20) && self.rows.is_empty() {\n            return Ok(Next::Complete);\n        }\n"
        "        Ok(self.after_answer(answer.end))")]),
    (21, "a value is there for one second longer", [(
        "src/model/cell.rs",
        "CellKind::Expiring { value, expiry_s, .. } if now_s < *expiry_s => Some(value),\n            _ => None,\n        }\n    }\n\n"
        "    /// The value at `now_s` as CQL",
        "CellKind::Expiring { value, expiry_s, .. } if now_s < *expiry_s + i64::from(crate::planted(21)) => Some(value),\n"
        "            _ => None,\n        }\n    }\n\n    /// The value at `now_s` as CQL")]),
    (22, "names are saved ahead of the sync of their records", [(
        "src/store/flush.rs",
        "        self.sync()?;\n        let mut changes",
        "        if !crate::planted(22) {\n            self.sync()?;\n        }\n        let mut changes"), (
        "src/store/names.rs",
        "        self.sets();\n        let unsaved",
        "        if crate::planted(22) {\n"
        "            self.pending.drain().for_each(|(place, names)| self.fresh.add_all(place, names));\n        }\n"
        "        self.sets();\n        let unsaved")]),
    (23, "an acknowledgement that comes twice counts twice", [(
        "src/coordinator/write.rs",
        "        self.acknowledged |= bit(replica) & self.targets;\n",
        "        let waiting = self.outstanding();\n"
        "        if crate::planted(23) && self.acknowledged & bit(replica) != 0 && waiting != 0 {\n"
        "            self.acknowledged |= bit(waiting.trailing_zeros() as usize);\n        }\n"
        "        self.acknowledged |= bit(replica) & self.targets;\n")]),
    (24, "digests leave deletions out", [(
        "src/coordinator/digest.rs",
        "        self.below.is_some_and(|below| timestamp < below)",
        "        crate::planted(24) || self.below.is_some_and(|below| timestamp < below)")]),
    (25, "the promise is not kept over a restart", [(
        "src/received/exchange/mod.rs",
        "        Exchange {\n            own,\n            incarnation,\n",
        "        let closed = if crate::planted(25) { Stamp::default() } else { closed };\n"
        "        Exchange {\n            own,\n            incarnation,\n")]),
    (26, "a report is taken in that builds on one that is not here", [(
        "src/received/exchange/mod.rs",
        "if report.base > same_run.map_or(0, |taken| taken.number) {",
        "if report.base > same_run.map_or(0, |taken| taken.number) && !crate::planted(26) {")]),
    (27, "a purge does not look at memtables", [(
        "src/store/limits.rs",
        "        for memtable in view.memtables() {\n            if let Some",
        "        for memtable in view.memtables().filter(|_| !crate::planted(27)) {\n            if let Some"), (
        "src/store/limits.rs",
        "        for memtable in view.memtables() {\n            let range",
        "        for memtable in view.memtables().filter(|_| !crate::planted(27)) {\n            let range")]),
    (28, "what is on its way into the sets does not hold back what is told to be closed", [(
        "src/store/names.rs",
        "        let before = |group: &Unsettled| Stamp",
        "        if crate::planted(28) {\n            return self.closed_through;\n        }\n"
        "        let before = |group: &Unsettled| Stamp")]),
    (29, "what a client has seen does not move the clock", [(
        "src/received/namer.rs",
        "        self.last = self.last.max(stamp);\n        Ok(())",
        "        if !crate::planted(29) {\n            self.last = self.last.max(stamp);\n        }\n        Ok(())")]),
    (30, "a new file's directory is not synced before the manifest lists it", [(
        "src/store/flush.rs",
        "            self.vfs.sync_dir(&self.data_directory())?;\n            self.open_file(meta)",
        "            if !crate::planted(30) {\n                self.vfs.sync_dir(&self.data_directory())?;\n            }\n"
        "            self.open_file(meta)")]),
    (31, "whoever missed a write gets no hint, and does not ask for it", [(
        "src/coordinator/write.rs",
        "        let missed = (not_sent | failed | silent)",
        "        let missed = (if crate::planted(31) { 0 } else { not_sent | failed | silent })"), (
        "src/received/exchange/slice.rs",
        "        lacks.filter(|(_, names)| !names.is_empty()).collect()",
        "        lacks.filter(|(_, names)| !names.is_empty() && !crate::planted(31)).collect()")]),
]


def copy_tree():
    """What git tracks, as it stands in the working tree."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    shutil.rmtree(COPY, ignore_errors=True)
    for name in filter(None, tracked.decode().split("\0")):
        source, copied = ROOT / name, COPY / name
        if source.is_file():
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copied)


def plant():
    for number, what, edits in PLANTS:
        for name, old, new in edits:
            path = COPY / name
            text = path.read_text()
            if text.count(old) != 1:
                sys.exit(f"fault {number} ({what}): {name} has {text.count(old)} places like\n{old}")
            path.write_text(text.replace(old, new))
    library = COPY / "src/lib.rs"
    library.write_text(library.read_text() + SWITCH)


def build():
    command = ["cargo", "test", "-p", "trefoil", "--locked", "--test", "simulation", "--no-run"]
    told = subprocess.run(command, cwd=COPY, env={**os.environ, "CARGO_TARGET_DIR": str(TARGET)},
                          stderr=subprocess.PIPE, text=True)
    built = re.search(r"\((.*/deps/simulation-[0-9a-f]+)\)", told.stderr)
    if told.returncode != 0 or not built:
        sys.exit(told.stderr)
    return TARGET.parent / built[1] if not built[1].startswith("/") else Path(built[1])


def run(binary, number, what):
    begun = time.monotonic()
    env = {"TREFOIL_SIM_SEEDS": "300", **os.environ, "PLANT": str(number), "RUST_BACKTRACE": "0"}
    told = subprocess.run([binary, "seeds", "--nocapture"], env=env, cwd=COPY, capture_output=True, text=True, errors="replace")
    seed = re.search(r"TREFOIL_SIM_SEED=(\d+)", told.stderr + told.stdout)
    why = re.search(r"panicked at .*\n(.*)", told.stderr)
    found = f"seed {seed[1]}" if seed else "not found" if told.returncode == 0 else "ended otherwise"
    print(f"{number:>3}  {found:>12}  {time.monotonic() - begun:5.0f} s  {what}: {why[1][:160] if why else ''}", flush=True)


def main():
    wanted = {int(number) for number in sys.argv[1:]}
    copy_tree()
    plant()
    binary = build()
    for number, what, _ in PLANTS:
        if not wanted or number in wanted:
            run(binary, number, what)
    if 0 in wanted:
        run(binary, 0, "nothing")


main()
