//! `jobctl wait`, and the wait of `jobctl enqueue --wait`: until runs have ended.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use signal_hook::flag;
use signal_hook::iterator::Signals;

use super::arguments::run_id;
use super::outage::{LastingSession, OUTAGE_LIMIT};
use super::{DatabaseFlags, catch_signals, stop_signals};
use crate::exit::{Exit, Fault};
use crate::job::failure::{ErrorType, Failure};
use crate::job::status::Status;
use crate::print;
use crate::store::{RunState, Store};
use crate::text::{duration, plural};

/// The first pause before the states are read again. Each further pause is 1.5 times as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How many outputs are in memory at a time, each at most 128 KiB.
const OUTPUTS: usize = 100;
/// The status of timeout(1) after its time.
pub(super) const TIMED_OUT: u8 = 124;

/// Wait until runs have ended
///
/// Prints a line for each run that did not succeed. The exit status is 0 if all
/// succeeded, 1 if a run is dead, 10 if one was cancelled, and 124 after
/// --timeout. Ctrl-C ends the wait, not the runs. A login that can only enqueue
/// can wait for the runs that it enqueued, and read their outputs.
///
///   jobctl wait 17 18 --timeout 10m
///   jobctl wait 17 --output --exit-status
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// The runs' ids
    #[arg(value_name = "ID", required = true, value_parser = run_id)]
    ids: Vec<i64>,
    /// Stop waiting after this time
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    timeout: Option<Duration>,
    /// Print the stored output of each run
    #[arg(long)]
    output: bool,
    /// If a run is dead, exit with its command's exit status, or 128 plus its signal
    #[arg(long)]
    exit_status: bool,
}

impl Arguments {
    /// The wait of `jobctl enqueue --wait`. With `prints_output`, it prints what the runs printed.
    pub(super) fn of(ids: Vec<i64>, timeout: Option<Duration>, prints_output: bool) -> Self {
        Self { ids, timeout, output: prints_output, exit_status: false }
    }

    /// Waits until the runs have ended, and prints their outputs if --output is given, then their
    /// failures. Goes on if the database is away for a short time.
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<Exit> {
        let (interrupted, began) = (Arc::default(), Instant::now());
        let signals = signals(&interrupted)?;
        // After the timeout, do not wait for an answer of the database.
        if let Some(timeout) = self.timeout {
            let interrupted = Arc::clone(&interrupted);
            let interrupt = move || {
                thread::sleep(timeout);
                interrupted.store(true, Ordering::Relaxed);
            };
            thread::Builder::new().spawn(interrupt).context("cannot wait")?;
        }
        let mut session = LastingSession::unopened(database, OUTAGE_LIMIT, interrupted);
        let mut pause = FIRST_PAUSE;
        let mut waited =
            Waited { unfinished: self.ids.iter().copied().collect(), ..Waited::default() };
        let with_output: &[i64] = if self.output { &self.ids } else { &[] };
        let mut parts = with_output.chunks(OUTPUTS).peekable();
        let stopped = loop {
            // Reads the states until all runs have ended, and then the outputs, part by part.
            let answer = session.try_once(|store| {
                waited.read_states(store)?;
                let part = parts.peek().filter(|_| waited.unfinished.is_empty());
                part.map(|ids| outputs(store, ids)).transpose()
            })?;
            match answer {
                Some(Some(outputs)) => {
                    parts.next();
                    outputs.iter().try_for_each(|output| print::answer(output))?;
                    continue;
                }
                // No output is left to print.
                Some(None) if waited.unfinished.is_empty() => {
                    return Ok(self.complain_of_failures(&mut waited.ended));
                }
                // Some runs have not ended, or the database is away.
                Some(None) | None => {}
            }
            let time_left = self.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
            if time_left == Some(Duration::ZERO) {
                break TIMED_OUT;
            }
            let pause_left = time_left.map_or(pause, |left| left.min(pause));
            if let Ok(signal) = signals.recv_timeout(pause_left) {
                break 128 + signal;
            }
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        };
        let unfinished: Vec<_> = waited.unfinished.into_iter().collect();
        let why = match unfinished[..] {
            // Either the states are unknown, or all runs have ended and outputs are missing.
            _ if !waited.has_states || unfinished.is_empty() => {
                "the database did not answer".to_owned()
            }
            [id] => format!("run {id} goes on; `jobctl wait {id}`"),
            _ => format!("{} go on", plural::of(unfinished.len() as i64, "run")),
        };
        print::complain(&why);
        Ok(Exit::Passed(stopped))
    }

    /// Complains of the runs that did not succeed, in the order in which they were named. Returns
    /// the exit status.
    fn complain_of_failures(&self, states: &mut [RunState]) -> Exit {
        let mut places = HashMap::new();
        for (place, id) in self.ids.iter().enumerate() {
            // An id that is named twice has its first place.
            places.entry(*id).or_insert(place);
        }
        states.sort_by_key(|state| places.get(&state.id));
        states.iter().filter_map(failure).for_each(|why| print::complain(&why));
        let passed_on = if self.exit_status { passed_on(states) } else { None };
        passed_on.unwrap_or_else(|| exit(states))
    }
}

/// Returns the outputs of these runs, in this order.
fn outputs(store: &Store, ids: &[i64]) -> anyhow::Result<Vec<String>> {
    let mut last = store.last_outputs(ids.to_vec())?;
    last.sort_by_key(|output| ids.iter().position(|id| *id == output.id));
    Ok(last.into_iter().filter_map(|output| output.output).collect())
}

/// The runs that a wait is for.
#[derive(Default)]
struct Waited {
    /// Whether the states were read at least once.
    has_states: bool,
    unfinished: BTreeSet<i64>,
    /// Some unfinished runs can start only after a person retries another run.
    is_stuck: bool,
    ended: Vec<RunState>,
}

impl Waited {
    /// Reads the states of the unfinished runs. Complains if some have become stuck.
    fn read_states(&mut self, store: &Store) -> anyhow::Result<()> {
        if self.has_states && self.unfinished.is_empty() {
            return Ok(());
        }
        let found = store.run_states(self.unfinished.iter().copied().collect())?;
        self.has_states = true;
        let is_found = |id: &&i64| found.iter().any(|state| state.id == **id);
        if found.len() < self.unfinished.len()
            && let Some(id) = self.unfinished.iter().find(|id| !is_found(id))
        {
            let why = format!("cannot wait for run {id}: no such run, or another role enqueued it");
            return Err(Fault::new(Exit::NotFound, why).into());
        }
        let stuck = stuck(&found);
        stuck.iter().filter(|_| !self.is_stuck).for_each(|line| print::complain(line));
        self.is_stuck = stuck.is_some();
        let ended = found.into_iter().filter(|state| state.status.is_final());
        for state in ended {
            self.unfinished.remove(&state.id);
            self.ended.push(state);
        }
        Ok(())
    }
}

/// Returns a sentence about the runs that can't start; `None` if all can.
pub(super) fn stuck(states: &[RunState]) -> Option<String> {
    let stuck: Vec<_> = states.iter().filter(|state| state.stuck).collect();
    let id = stuck.iter().map(|run| run.id).min()?;
    let runs = match stuck.len() {
        1 => format!("run {id}"),
        more => format!("{more} runs, such as run {id},"),
    };
    Some(format!(
        "{runs} can't start: a run that must succeed first is dead, cancelled or deleted; \
         `jobctl show {id}` says which"
    ))
}

/// Returns the numbers of signals that end a wait, as they come. Each also sets `interrupted`. A
/// signal that comes when `interrupted` is set ends the process.
fn signals(interrupted: &Arc<AtomicBool>) -> anyhow::Result<Receiver<u8>> {
    let stop_signals = stop_signals();
    // Register this before `catch_signals`, so that the first signal finds `interrupted` unset.
    for signal in stop_signals.iter().copied() {
        flag::register_conditional_default(signal, Arc::clone(interrupted))
            .context("cannot wait")?;
    }
    catch_signals(interrupted)?;
    let mut signals = Signals::new(stop_signals).context("cannot wait")?;
    let (sender, receiver) = mpsc::channel();
    let pass_on = move || {
        for signal in signals.forever().filter_map(|signal| u8::try_from(signal).ok()) {
            if sender.send(signal).is_err() {
                break;
            }
        }
    };
    thread::Builder::new().spawn(pass_on).context("cannot wait")?;
    Ok(receiver)
}

/// Returns a sentence about a run that is dead, failed or cancelled; `None` for other runs.
pub(super) fn failure(state: &RunState) -> Option<String> {
    let RunState { id, job, attempts, error_type, exit_code, signal, .. } = state;
    match state.status {
        Status::Dead | Status::Failed => {
            let attempts = plural::of(i64::from(*attempts), "attempt");
            let exit_code = exit_code.filter(|code| *code != 0).map(Failure::ExitCode);
            let failure = exit_code.or(signal.map(Failure::Signal));
            let why = match (error_type.as_deref().unwrap_or("unknown"), failure) {
                (timeout, _) if timeout == ErrorType::Timeout.as_str() => "timed out".to_owned(),
                (_, Some(failure)) => failure.to_string(),
                // Only the type of the error is known: a role that only enqueues may not read the
                // error itself.
                (other, None) => format!("error type {other}"),
            };
            let failed = if state.status == Status::Dead { "is dead" } else { "failed" };
            Some(format!("run {id} of job {job} {failed} after {attempts}: {why}"))
        }
        Status::Cancelled => Some(format!("run {id} of job {job} was cancelled")),
        _ => None,
    }
}

/// Returns the exit status for runs in these states: 10 if one is cancelled, or else 1 if one did
/// not succeed, or else 0.
pub(super) fn exit(states: &[RunState]) -> Exit {
    if states.iter().any(|state| state.status == Status::Cancelled) {
        Exit::Cancelled
    } else if states.iter().all(|state| state.status == Status::Succeeded) {
        Exit::Done
    } else {
        Exit::CouldNot
    }
}

/// Returns the exit status of the first dead run whose last attempt has one, or 128 plus the signal
/// that ended it.
fn passed_on(states: &[RunState]) -> Option<Exit> {
    let dead = states.iter().filter(|state| state.status == Status::Dead);
    let mut statuses = dead.filter_map(|RunState { exit_code, signal, .. }| {
        let status = exit_code.or(signal.map(|signal| 128 + signal))?;
        u8::try_from(status).ok().filter(|status| *status > 0)
    });
    statuses.next().map(Exit::Passed)
}
