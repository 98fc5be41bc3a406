//! The store against a model that is as simple as the rules are: random histories of all kinds of writes, flushes,
//! compactions, restarts, losses of power and full disks, and after each step reads of every shape must agree.
//!
//! A history is drawn from a seed before it is run. One that fails is made shorter as long as it still fails, and printed
//! with the command that runs it again. `TREFOIL_MODEL_OPS` and `TREFOIL_MODEL_SEED` make it more, or another one.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stdout, reason = "a soak tells how far it is")]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use run::Run;
use steps::{History, Step};

mod naive;
mod random;
mod read;
mod run;
mod select;
mod steps;
mod words;

/// Steps when nobody says otherwise.
const STEPS: u64 = 20_000;
const SEED: u64 = 1;

/// How often a failing history is run again to make it shorter.
const SHRINKING_RUNS: usize = 3_000;

#[test]
fn soak() {
    let number = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |value| value.parse().unwrap());
    let (wanted, first_seed) = (number("TREFOIL_MODEL_OPS", STEPS), number("TREFOIL_MODEL_SEED", SEED));
    let (mut done, mut told) = (0, 0);
    let mut seed = first_seed;
    while done < wanted {
        let history = steps::history(seed);
        if let Err(failure) = attempt(&history) {
            fail(seed, done, history, failure);
        }
        done += history.steps.len() as u64;
        seed += 1;
        if done - told >= 100_000 {
            println!("{done} steps, seeds {first_seed} to {}", seed - 1);
            told = done;
        }
    }
    println!("{done} steps, seeds {first_seed} to {}", seed - 1);
}

/// Where a history failed, and what was said there.
struct Failure {
    step: usize,
    said: String,
}

/// Runs a history. Panics of the engine are failures like any other.
fn attempt(History { width, steps }: &History) -> Result<(), Failure> {
    let at = Cell::new(0);
    let all = || {
        let mut run = Run::new(*width);
        for step in steps {
            run.step(step);
            at.set(at.get() + 1);
        }
        run.finish(steps.iter().filter_map(Step::now_s).max().unwrap_or(0));
    };
    quietly(|| catch_unwind(AssertUnwindSafe(all))).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
        let said = panic.downcast_ref::<String>().cloned().or(text).unwrap_or_default();
        Failure { step: at.get(), said }
    })
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Panics on this thread are not printed meanwhile.
fn quietly<T>(work: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                usual(panic);
            }
        }));
    });
    IS_QUIET.set(true);
    let done = work();
    IS_QUIET.set(false);
    done
}

fn fail(seed: u64, before: u64, history: History, failure: Failure) -> ! {
    let found_after = before + failure.step as u64;
    let (History { steps, .. }, failure) = shorter(history, failure);
    let listed: Vec<String> = steps.iter().map(|step| format!("    {step:?}")).collect();
    panic!(
        "after {found_after} steps, in the history of seed {seed}, cut to {} steps:\n{}\n{}\nrun it again with\n    \
         TREFOIL_MODEL_OPS=1 TREFOIL_MODEL_SEED={seed} cargo test --test model -- soak",
        steps.len(),
        listed.join("\n"),
        failure.said,
    );
}

/// The history with as few of its steps as still fail.
fn shorter(mut history: History, mut failure: Failure) -> (History, Failure) {
    history.steps.truncate(failure.step + 1);
    let mut runs = 0;
    let mut size = history.steps.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let mut is_shorter = false;
        while at < history.steps.len() && runs < SHRINKING_RUNS {
            let mut candidate = history.clone();
            candidate.steps.drain(at..(at + size).min(history.steps.len()));
            runs += 1;
            match attempt(&candidate) {
                Err(next) => {
                    candidate.steps.truncate(next.step + 1);
                    (history, failure, is_shorter) = (candidate, next, true);
                }
                Ok(()) => at += size,
            }
        }
        if runs >= SHRINKING_RUNS || (size == 1 && !is_shorter) {
            return (history, failure);
        }
        size = (size / 2).max(1);
    }
}
