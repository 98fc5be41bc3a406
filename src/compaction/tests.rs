//! The strategy on plain values: what is chosen of which files, and what comes of it after thousands of flushes.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::num::NonZeroU32;

use super::*;
use crate::model::Scaling;

const BITS: u8 = 10;
const VNODES: u32 = 1 << BITS;
/// The size of a flush in these tests.
const FLUSH: u64 = 1 << 20;

fn bits() -> VnodeBits {
    VnodeBits::new(BITS).unwrap()
}

/// A file over the vnodes from `first` to `last`.
fn file(number: u128, bytes: u64, first: u32, last: u32) -> FileFacts {
    let token = |vnode: u32, within: u64| Token(((u64::from(vnode) << (64 - BITS)) + within) as i64 ^ i64::MIN);
    FileFacts {
        id: Uuid::from_u128(number),
        bytes,
        tokens: (token(first, 1), token(last, 1 << 50)),
        vnodes: (Vnode(first), Vnode(last)),
        timestamps: (Timestamp(0), Timestamp(number as i64)),
        last_stamp: Stamp(number as i64),
        is_spent: false,
    }
}

fn whole(number: u128, bytes: u64) -> FileFacts {
    file(number, bytes, 0, VNODES - 1)
}

fn scaled(scaling: &[Scaling]) -> CompactionOptions {
    CompactionOptions::new(scaling.to_vec(), 64, None).unwrap()
}

fn decide(files: &[FileFacts], options: &CompactionOptions, busy: &[u128]) -> Vec<Vec<u128>> {
    let busy = busy.iter().map(|number| Uuid::from_u128(*number)).collect();
    let choices = choose(files, &Terms { options, flush_bytes: FLUSH, bits: bits() }, &busy);
    choices.into_iter().map(|choice| choice.inputs.iter().map(Uuid::as_u128).collect()).collect()
}

#[test]
fn tiered_waits_and_leveled_does_not() {
    let files: Vec<_> = (1..=3).map(|number| whole(number, FLUSH)).collect();
    let none: Vec<Vec<u128>> = Vec::new();
    assert_eq!(decide(&files, &scaled(&[Scaling::Tiered(4)]), &[]), none);
    assert_eq!(decide(&files, &scaled(&[Scaling::Tiered(3)]), &[]), [[1, 2, 3]]);
    assert_eq!(decide(&files, &scaled(&[Scaling::Leveled(10)]), &[]), [[1, 2, 3]]);
    assert_eq!(decide(&files[..1], &scaled(&[Scaling::Neutral]), &[]), none);
    assert_eq!(decide(&files, &scaled(&[Scaling::Leveled(10)]), &[2]), [[1, 3]]);
}

#[test]
fn only_files_of_a_level_that_overlap_are_merged_and_sets_are_apart() {
    let leveled = scaled(&[Scaling::Leveled(4)]);
    // Side by side: nothing. The large file is of another level.
    let apart = [file(1, FLUSH / 2, 0, 511), file(2, FLUSH / 2, 512, 1023), whole(3, 100 * FLUSH)];
    assert_eq!(decide(&apart, &leveled, &[]), Vec::<Vec<u128>>::new());
    // Two sets at once.
    let sets = [
        file(1, FLUSH / 4, 0, 255),
        file(2, FLUSH / 4, 10, 255),
        file(3, FLUSH / 4, 600, 855),
        file(4, FLUSH / 4, 600, 855),
        file(5, FLUSH / 4, 700, 955),
    ];
    assert_eq!(decide(&sets, &leveled, &[]), [vec![3, 4, 5], vec![1, 2]]);
    // What overlaps one of two that overlap goes along.
    let chain = [file(1, FLUSH / 2, 0, 511), file(2, FLUSH / 4, 400, 655), file(3, FLUSH / 2, 512, 1023)];
    assert_eq!(decide(&chain, &leveled, &[]), [[1, 2, 3]]);
}

/// Against each pair of files being looked at.
#[test]
fn settled_files_are_the_densest_of_those_that_overlap() {
    let mut state = 7u64;
    let mut random = |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % u64::from(below)) as u32
    };
    for _ in 0..300 {
        let files: Vec<FileFacts> = (0..random(30))
            .map(|number| {
                let first = random(VNODES);
                file(
                    u128::from(number),
                    1 + u64::from(random(1 << 20)),
                    first,
                    first + random((VNODES - first).min(200)),
                )
            })
            .collect();
        let mut densest: Vec<&FileFacts> = files.iter().collect();
        densest.sort_by(|a, b| density([*b], bits()).total_cmp(&density([*a], bits())).then(a.id.cmp(&b.id)));
        let mut apart: Vec<&FileFacts> = Vec::new();
        for file in densest {
            if apart.iter().all(|other| other.tokens.1 < file.tokens.0 || file.tokens.1 < other.tokens.0) {
                apart.push(file);
            }
        }
        assert_eq!(settled_bytes(&files, bits()), apart.iter().map(|file| file.bytes).sum::<u64>());
    }
}

#[test]
fn a_cut_file_is_of_the_level_that_the_whole_one_was() {
    let level_of = |file: FileFacts| density([&file], bits());
    let (whole, half) = (level_of(whole(1, 64 * FLUSH)), level_of(file(1, 32 * FLUSH, 0, 511)));
    assert!((whole - half).abs() < 1.0, "{whole} {half}");
    let both = [file(1, 32 * FLUSH, 0, 511), file(2, 32 * FLUSH, 512, 1023)];
    assert!((density(&both, bits()) - whole).abs() < 1.0);
}

/// The parameters of a level apply to it and to no other.
#[test]
fn each_level_has_its_parameter() {
    let options = scaled(&[Scaling::Tiered(8), Scaling::Leveled(4)]);
    let small: Vec<_> = (1..=7).map(|number| whole(number, FLUSH)).collect();
    assert_eq!(decide(&small, &options, &[]), Vec::<Vec<u128>>::new());
    let large: Vec<_> = (1..=2).map(|number| whole(number, 8 * FLUSH)).collect();
    assert_eq!(decide(&large, &options, &[]), [[1, 2]]);
}

#[test]
fn a_set_too_large_for_one_merge_begins_where_it_is_most_crowded() {
    // A thousand files side by side, and two over all of them.
    let mut files: Vec<_> = (0..1_000).map(|at| file(u128::from(at) + 10, FLUSH / VNODES as u64, at, at)).collect();
    files.push(whole(1, FLUSH));
    files.push(whole(2, FLUSH));
    let choices = decide(&files, &scaled(&[Scaling::Leveled(4)]), &[]);
    assert_eq!(choices.len(), 1);
    assert_eq!(choices[0].len(), INPUTS_MAX);
    assert!(choices[0].starts_with(&[1, 2]));
    // More on one token than can be merged: the oldest.
    let crowd: Vec<_> = (1..=100).rev().map(|number| whole(number, FLUSH)).collect();
    assert_eq!(decide(&crowd, &scaled(&[Scaling::Tiered(4)]), &[]), [(1..=32).collect::<Vec<u128>>()]);
}

#[test]
fn files_of_different_windows_never_meet() {
    let window_s = 100;
    let options = CompactionOptions::new(vec![Scaling::Tiered(4)], 64, NonZeroU32::new(window_s)).unwrap();
    let at = |number: u128, newest_s: i64| FileFacts {
        timestamps: (Timestamp((newest_s - 10) * 1_000_000), Timestamp(newest_s * 1_000_000)),
        ..whole(number, FLUSH)
    };
    // The newest window waits for four as its scaling says; older ones are brought together as soon as two overlap.
    let files = [at(1, 50), at(2, 99), at(3, 100), at(4, 150), at(5, 199), at(6, 210), at(7, 220), at(8, 230)];
    assert_eq!(decide(&files, &options, &[]), [vec![3, 4, 5], vec![1, 2]]);
    let full = [at(6, 210), at(7, 220), at(8, 230), at(9, 299)];
    assert_eq!(decide(&full, &options, &[]), [[6, 7, 8, 9]]);
    let before_1970 = [at(1, -50), at(2, 50)];
    assert_eq!(decide(&before_1970, &options, &[]), Vec::<Vec<u128>>::new());
}

#[test]
fn what_is_spent_is_dropped_first_and_apart() {
    let mut files: Vec<_> = (1..=6).map(|number| whole(number, FLUSH)).collect();
    files[4].is_spent = true;
    files[5].is_spent = true;
    let options = scaled(&[Scaling::Tiered(4)]);
    assert_eq!(decide(&files, &options, &[]), [vec![5, 6], vec![1, 2, 3, 4]]);
    let choices = choose(&files, &Terms { options: &options, flush_bytes: FLUSH, bits: bits() }, &BTreeSet::new());
    assert_eq!((choices[0].action, choices[1].action), (Action::Drop, Action::Merge));
}

#[test]
fn what_is_spent_goes_unless_something_as_old_stays_beside_it() {
    let spent = |number: u128, first: u32, last: u32, oldest: i64, newest: i64| FileFacts {
        timestamps: (Timestamp(oldest), Timestamp(newest)),
        is_spent: true,
        ..file(number, FLUSH, first, last)
    };
    let gone_of = |spent: &[FileFacts], staying: &[FileFacts], limit: i64| -> Vec<u128> {
        let (spent, staying): (Vec<_>, Vec<_>) = (spent.iter().collect(), staying.iter().collect());
        gone(&spent, &staying, |_| Some(Timestamp(limit))).iter().map(|file| file.id.as_u128()).collect()
    };
    let a = spent(1, 0, 100, 10, 20);
    let b = spent(2, 0, 100, 20, 30);
    let c = spent(3, 50, 200, 30, 40);
    assert_eq!(gone_of(&[a.clone(), b.clone(), c.clone()], &[], 41), [1, 2, 3]);
    // The limit is exclusive.
    assert_eq!(gone_of(std::slice::from_ref(&c), &[], 40), Vec::<u128>::new());
    // The third stays, so the second, which is as new as the oldest of the third, stays too, and so does the first.
    assert_eq!(gone_of(&[a.clone(), b.clone(), c.clone()], &[], 40), Vec::<u128>::new());
    // Something older beside it, or far from it.
    assert_eq!(gone_of(std::slice::from_ref(&a), &[spent(9, 90, 95, 5, 50)], 100), Vec::<u128>::new());
    assert_eq!(gone_of(std::slice::from_ref(&a), &[spent(9, 200, 300, 5, 50)], 100), [1]);
    assert_eq!(gone_of(std::slice::from_ref(&a), &[spent(9, 0, 300, 21, 50)], 100), [1]);
    assert_eq!(gone(&[&a], &[], |_| None), Vec::<&FileFacts>::new());
}

/// A table to which flushes are added and whose files are merged as the strategy says. Of every vnode a file holds the same
/// share of all rows there are, at random, so that merging files of the shares p and q gives one of 1 - (1 - p)(1 - q).
struct Simulation {
    options: CompactionOptions,
    /// Bytes of all rows there are.
    universe: f64,
    files: Vec<(FileFacts, f64)>,
    next: u128,
    flushed: f64,
    written: f64,
}

impl Simulation {
    fn new(options: CompactionOptions, universe: f64) -> Simulation {
        Simulation { options, universe, files: Vec::new(), next: 0, flushed: 0.0, written: 0.0 }
    }

    fn add(&mut self, share: f64, first: u32, last: u32) -> u64 {
        self.next += 1;
        let bytes = (self.universe * share * f64::from(last - first + 1) / f64::from(VNODES)) as u64 + 1;
        self.files.push((file(self.next, bytes, first, last), share));
        bytes
    }

    fn flush(&mut self) {
        // Between half and one and a half of the usual size.
        let size = FLUSH as f64 * (0.5 + (self.next % 7) as f64 / 6.0);
        self.flushed += self.add(size / self.universe, 0, VNODES - 1) as f64;
    }

    fn facts(&self) -> Vec<FileFacts> {
        self.files.iter().map(|(facts, _)| facts.clone()).collect()
    }

    fn choices(&self) -> Vec<Choice> {
        let terms = Terms { options: &self.options, flush_bytes: FLUSH, bits: bits() };
        choose(&self.facts(), &terms, &BTreeSet::new())
    }

    fn merge(&mut self, choice: &Choice) {
        let is_input = |facts: &FileFacts| choice.inputs.contains(&facts.id);
        let inputs: Vec<_> = self.files.extract_if(.., |(facts, _)| is_input(facts)).collect();
        assert_eq!(inputs.len(), choice.inputs.len(), "a file is in one choice only, and it is there");
        let facts: Vec<FileFacts> = inputs.iter().map(|(facts, _)| facts.clone()).collect();
        let cut = Cut::new(bits(), density(&facts, bits()), self.options.target_bytes());
        let last = facts.iter().map(|facts| facts.vnodes.1.0).max().unwrap();
        let mut first = facts.iter().map(|facts| facts.vnodes.0.0).min().unwrap();
        while first <= last {
            let end = cut.shard(Vnode(first)).end.min(last + 1);
            let middle = (first + end - 1) / 2;
            let holds = |facts: &FileFacts| (facts.vnodes.0.0..=facts.vnodes.1.0).contains(&middle);
            let absent: f64 = inputs.iter().filter(|(facts, _)| holds(facts)).map(|(_, share)| 1.0 - share).product();
            if absent < 1.0 {
                self.written += self.add(1.0 - absent, first, end - 1) as f64;
            }
            first = end;
        }
    }

    /// Merges until nothing is left to do, `threads` sets at a time; how many merges that took.
    fn settle(&mut self, threads: usize, most: usize) -> usize {
        let mut merges = 0;
        loop {
            let choices = self.choices();
            if choices.is_empty() {
                return merges;
            }
            for choice in choices.iter().take(threads) {
                self.merge(choice);
                merges += 1;
            }
            assert!(merges <= most, "{}: it does not come to an end", self.name());
        }
    }

    fn name(&self) -> String {
        self.options.to_map()["scaling"].clone()
    }

    fn write_amplification(&self) -> f64 {
        (self.flushed + self.written) / self.flushed
    }

    fn space_amplification(&self) -> f64 {
        let facts = self.facts();
        let bytes: u64 = facts.iter().map(|facts| facts.bytes).sum();
        bytes as f64 / settled_bytes(&facts, bits()) as f64
    }
}

const FLUSHES: usize = 3_000;

/// New rows only: the data grows to three thousand flushes. What is promised of each parameter is kept at every moment.
#[test]
fn growing_data_costs_what_the_parameters_say() {
    let cases: [(&[Scaling], f64, usize); 8] = [
        (&[Scaling::Tiered(3)], 10.0, 22),
        (&[Scaling::Tiered(4)], 8.0, 24),
        (&[Scaling::Tiered(16)], 5.0, 50),
        (&[Scaling::Tiered(64)], 4.0, 135),
        (&[Scaling::Neutral], 14.0, 14),
        (&[Scaling::Leveled(4)], 17.0, 8),
        (&[Scaling::Leveled(10)], 25.0, 6),
        (&[Scaling::Tiered(4), Scaling::Tiered(4), Scaling::Leveled(10)], 20.0, 11),
    ];
    for (scaling, writes_most, overlap_most) in cases {
        let mut table = Simulation::new(scaled(scaling), 1e9 * FLUSH as f64);
        let mut reads = 0;
        for _ in 0..FLUSHES {
            table.flush();
            table.settle(3, 200);
            reads = reads.max(overlap(&table.facts()));
        }
        let writes = table.write_amplification();
        assert!(writes <= writes_most, "{}: {writes} writes", table.name());
        assert!(reads <= overlap_most, "{}: {reads} files on a token", table.name());
        let largest = table.files.iter().map(|(facts, _)| facts.bytes).max().unwrap();
        assert!(largest <= 2 * table.options.target_bytes(), "{}: a file of {largest} bytes", table.name());
    }
}

/// The same rows again and again, a hundred flushes large: space and files stay bounded for ever.
#[test]
fn rows_that_are_overwritten_take_bounded_space() {
    for scaling in [Scaling::Tiered(4), Scaling::Tiered(16), Scaling::Neutral, Scaling::Leveled(10)] {
        let mut table = Simulation::new(scaled(&[scaling]), 100.0 * FLUSH as f64);
        let (mut space, mut files) = (0.0f64, 0);
        for number in 0..FLUSHES {
            table.flush();
            table.settle(3, 200);
            if number > 200 {
                space = space.max(table.space_amplification());
                files = files.max(table.files.len());
            }
        }
        let (space_most, files_most) = match scaling {
            Scaling::Tiered(fan) => (f64::from(fan) + 1.0, 5 * usize::from(fan)),
            _ => (3.0, 20),
        };
        assert!(space <= space_most, "{}: {space} times the data", table.name());
        assert!(files <= files_most, "{}: {files} files", table.name());
    }
}

/// Compaction that lags behind, for a thousand flushes, catches up once it may, with every parameter; and a change of the
/// parameters in between leads from any state to one in which the new ones want nothing more.
#[test]
fn whatever_the_state_it_comes_to_rest_under_any_parameters() {
    let all = [Scaling::Tiered(3), Scaling::Tiered(32), Scaling::Neutral, Scaling::Leveled(3), Scaling::Leveled(20)];
    for before in all {
        for after in all {
            let mut table = Simulation::new(scaled(&[before]), 2_000.0 * FLUSH as f64);
            for number in 0..1_000 {
                table.flush();
                if number % 5 == 0
                    && let Some(choice) = table.choices().first().cloned()
                {
                    table.merge(&choice);
                }
            }
            table.options = scaled(&[after]);
            let merges = table.settle(4, 5_000);
            let choices = table.choices();
            assert_eq!(choices, [], "{before} then {after}");
            assert!(merges < 2_000, "{before} then {after}: {merges} merges");
        }
    }
}

/// A set of a large level is merged although smaller and more urgent ones keep coming.
#[test]
fn no_set_waits_for_ever() {
    let mut table = Simulation::new(scaled(&[Scaling::Leveled(10)]), 1e9 * FLUSH as f64);
    let large: Vec<Uuid> = (0..2)
        .map(|_| {
            table.add(300.0 / 1e9, 0, VNODES - 1);
            table.files.last().unwrap().0.id
        })
        .collect();
    for rounds in 0.. {
        assert!(rounds < 1_000, "the large files wait for ever");
        // Three flushes for each merge: more comes than can be merged.
        (0..3).for_each(|_| table.flush());
        let choice = table.choices().remove(0);
        let is_large = choice.inputs.contains(&large[0]);
        table.merge(&choice);
        if is_large {
            break;
        }
    }
}
