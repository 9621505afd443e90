//! Requests for many runs, by id or by filter: `retry`, `cancel`, `edit`, `settle` and `prune`
//! make them. Each run gets a result; the worst result is the exit status.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::arguments::{Filter, Reason, TimeZone, run_id};
use crate::exit::{Exit, Fault};
use crate::job::status::Status;
use crate::print::{self, Output, Progress, Table};
use crate::store::{
    self, Bisection, Cause, Kind, Operation, OperationResult, RunEffects, RunFilter, Store,
};
use crate::text::plain::plain;
use crate::text::plural;
use crate::upkeep::{self, TimeSlice, UpkeepState};

/// How long a command may take to release or cancel runs that wait for those that it has ended.
const FOLLOWERS_LIMIT: Duration = Duration::from_secs(5);

/// The flags of commands that may change many runs.
#[derive(Args, Debug)]
#[group(skip)]
pub(super) struct BulkFlags {
    /// Count the runs, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(super) yes: bool,
    /// Print a line for each run, not only totals
    #[arg(long)]
    pub(super) verbose: bool,
    #[command(flatten)]
    pub(super) reason: Reason,
}

/// The runs that a command is for: the given ids or, with a flag of the command in the group `All`,
/// all runs that match the filter.
#[derive(Args, Debug)]
pub(super) struct Selection {
    /// Run ids
    #[arg(
        value_name = "ID",
        required_unless_present_any = ["All", "Filter"],
        conflicts_with = "Filter",
        value_parser = run_id
    )]
    ids: Vec<i64>,
    #[command(flatten)]
    flags: BulkFlags,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    time_zone: TimeZone,
    #[command(flatten)]
    output: Output,
}

impl Selection {
    /// Returns the ids that are given.
    pub(super) fn ids(&self) -> &[i64] {
        &self.ids
    }

    /// Fails if the runs can't be selected as asked, before the database is used.
    ///
    /// - `all`: whether a flag selects all matching runs. Without it, a filter is an error. With
    ///   it, a person must confirm the change, which is an error if there is no terminal to ask.
    /// - `flags`: the names of the flags that would set `all`, for the error.
    /// - `verb`: the name of the command, for the error.
    pub(super) fn check(&self, all: bool, flags: &str, verb: &str) -> Result<(), Fault> {
        if !all {
            return self.filter.refuse_without(flags);
        }
        if self.flags.yes || self.flags.dry_run || print::can_ask() {
            return Ok(());
        }
        // A script whose filter is empty by mistake must not change all runs.
        Err(print::unaskable(verb, &format!("{verb} all runs that match")))
    }
}

/// The operation that a command asks for, and its words.
pub(super) struct BulkRequest<'a> {
    pub(super) operation: Operation,
    /// Statuses in which the request is granted.
    pub(super) from: &'a [Status],
    /// Returns the word for a granted request.
    pub(super) granted_word: &'a dyn Fn(&OperationResult) -> &'static str,
    /// Returns why a request was refused. The arguments are the run's id and status.
    pub(super) why_refused: &'a dyn Fn(i64, Status) -> String,
}

/// What the database did about a request for one run.
enum RunResult {
    NotFound,
    /// Another session has locked the run, and still has after a wait.
    Locked,
    /// The database rejects the change for this reason.
    Rejected(String),
    Answer(OperationResult),
}

/// The result of a request for one run.
#[derive(Default, Serialize)]
struct RunAnswer {
    id: i64,
    result: &'static str,
    /// Why the request for this run was refused.
    why_not_changed: Option<String>,
}

/// The number of runs with the same result.
#[derive(Default, Serialize)]
struct Total {
    result: &'static str,
    runs: i64,
    /// Why the requests for these runs were refused.
    why_not_changed: Option<String>,
    /// The first of these runs.
    #[serde(skip)]
    id: i64,
}

const LINES: Table<'_> = Table::new("id, result", "");
const TOTALS: Table<'_> = Table::new("result, runs", "");

impl BulkRequest<'_> {
    /// Makes the request for these runs; in a dry run, reads what it would do.
    pub(super) fn of_ids(
        &self,
        ids: Vec<i64>,
        flags: &BulkFlags,
        output: Output,
        store: &Store,
    ) -> anyhow::Result<Exit> {
        let ids = distinct(ids);
        self.warn_of_effects(&ids, output, store)?;
        self.in_batches(&ids, flags, output, store, |_| true)
    }

    /// Makes the request for the selected runs.
    ///
    /// - `all`: a word for the runs, such as `dead`, if a flag selects all matching ones. Then a
    ///   person must confirm the change first. `None`: the runs are selected by their ids.
    pub(super) fn of_selection(
        &self,
        selection: Selection,
        store: &Store,
        all: Option<&str>,
    ) -> anyhow::Result<Exit> {
        let Selection { ids, flags, filter, time_zone, output } = selection;
        let Some(kind) = all else {
            return self.of_ids(ids, &BulkFlags { verbose: true, ..flags }, output, store);
        };
        let filter = filter.resolve(store, &time_zone, self.from, output)?;
        let mut ids = store.list_ids(RunFilter { unsettled: true, ..filter })?;
        // The store returns the newest first. Results are printed from the oldest on.
        ids.reverse();
        let matching = match ids.len() {
            0 => format!("no {kind} run"),
            more => plural::of(i64::try_from(more).unwrap_or(i64::MAX), &format!("{kind} run")),
        };
        self.warn_of_effects(&ids, output, store)?;
        if ids.is_empty() {
            print::hint(output, &format!("{matching} matches"));
        } else if !flags.yes && !flags.dry_run {
            let verb = self.operation.verb();
            print::confirm(verb, &format!("{verb} {matching}"))?;
        }
        // Print no result for runs whose status changed meanwhile: they no longer match.
        let still_matches = |result: &RunResult| match result {
            RunResult::NotFound => false,
            RunResult::Locked | RunResult::Rejected(_) => true,
            RunResult::Answer(OperationResult { status, granted, .. }) => {
                *granted || self.from.contains(status)
            }
        };
        self.in_batches(&ids, &flags, output, store, still_matches)
    }

    /// Before a retry of succeeded runs, warns of their effects, which will not be repeated.
    fn warn_of_effects(&self, ids: &[i64], output: Output, store: &Store) -> anyhow::Result<()> {
        let repeats_successes =
            matches!(self.operation, Operation::Retry(_)) && self.from.contains(&Status::Succeeded);
        if !repeats_successes || output.is_json() {
            return Ok(());
        }
        if let Some(RunEffects { effects, runs, first_key }) =
            store.effects_of_runs(ids.to_vec())?
        {
            let (effects, runs) = (plural::of(effects, "effect"), plural::of(runs, "run"));
            let key = plain(&first_key);
            print::complain(&format!(
                "`once` does not repeat {effects} of {runs}, such as `{key}`"
            ));
        }
        Ok(())
    }

    /// Makes the request in batches. Prints the results in the order of the ids, also if the
    /// request fails for the rest. `has_answer` selects the results that are printed and counted.
    fn in_batches(
        &self,
        ids: &[i64],
        flags: &BulkFlags,
        output: Output,
        store: &Store,
        has_answer: impl Fn(&RunResult) -> bool,
    ) -> anyhow::Result<Exit> {
        let (mut results, progress) = (HashMap::new(), Progress::of(Some(ids.len())));
        // The operation id has 40 bits, so that a person can type it.
        let name = format!("{:010x}", rand::random_range(0..1_u64 << 40));
        let cause = Cause { operation: Some(name.clone()), ..flags.reason.cause() };
        let requested = self.request((ids, flags.dry_run, &cause), store, &progress, &mut results);
        progress.clear();
        if !flags.dry_run && matches!(self.operation, Operation::Cancel | Operation::Undo(_)) {
            release_followers(store, ids);
        }
        let (mut answers, mut exits) = (Vec::new(), Vec::new());
        for id in ids {
            if let Some(result) = results.get(id).filter(|result| has_answer(result)) {
                let (answer, exit) = self.judge(*id, result);
                answers.push(answer);
                exits.push(exit);
            }
        }
        if requested.is_ok() || !answers.is_empty() {
            self.print(output, answers, flags.verbose)?;
        }
        requested?;
        let can_be_undone = !matches!(self.operation, Operation::Remove | Operation::Undo(_));
        // No hint after one run: a person knows what it was, and can change it back.
        let has_changed_many = exits.iter().filter(|exit| **exit == Exit::Done).count() > 1;
        if can_be_undone && !flags.dry_run && has_changed_many {
            print::hint(output, &format!("`jobctl undo {name}` undoes it"));
        }
        Ok(exits.into_iter().max().unwrap_or(Exit::Done))
    }

    /// Makes the request, and adds the result of each run to `results`. If the request fails
    /// midway, `results` has the runs so far. Runs that another session has locked come last.
    fn request(
        &self,
        (ids, dry_run, cause): (&[i64], bool, &Cause),
        store: &Store,
        progress: &Progress,
        results: &mut HashMap<i64, RunResult>,
    ) -> store::Result<()> {
        // The last ids come first: of several finished runs with one live key, a retry gives it to
        // the newest.
        let mut remaining: Vec<_> = ids.iter().rev().copied().collect();
        // The first round skips locked runs. The second round waits for them. If that takes too
        // long, the third one tries them once more, and reports those that are still locked.
        for skips_locked in [true, false, true] {
            let mut locked = Vec::new();
            let mut bisection = Bisection::of(remaining);
            while !bisection.is_done() {
                let step = bisection.step(|part| {
                    let ids = part.to_vec();
                    let (answers, skipped) =
                        self.perform(ids, dry_run, cause, store, skips_locked)?;
                    let answers = answers.into_iter();
                    // A run that gets no other result below does not exist.
                    results.extend(part.iter().map(|id| (*id, RunResult::NotFound)));
                    results.extend(skipped.iter().map(|id| (*id, RunResult::Locked)));
                    results.extend(answers.map(|answer| (answer.id, RunResult::Answer(answer))));
                    locked.extend(skipped);
                    Ok(())
                });
                match step {
                    // A lock outlasted the wait: leave the remaining runs to the third round.
                    Err(error) if !skips_locked && error.kind == Kind::Busy => {
                        locked.extend(bisection.into_untried());
                        break;
                    }
                    Err(error) => return Err(error),
                    Ok(Some((id, why))) => {
                        results.insert(id, RunResult::Rejected(why.cause().to_owned()));
                    }
                    Ok(None) => {}
                }
                progress.show(results.len());
            }
            remaining = locked;
        }
        Ok(())
    }

    /// Makes the request for a part of the runs; in a `dry_run`, reads what it would do. Returns
    /// the answers. If `skips_locked`, it skips runs that another session has locked, and also
    /// returns these. Otherwise it waits for them.
    fn perform(
        &self,
        ids: Vec<i64>,
        dry_run: bool,
        cause: &Cause,
        store: &Store,
        skips_locked: bool,
    ) -> store::Result<(Vec<OperationResult>, Vec<i64>)> {
        if dry_run {
            return Ok((store.dry_run(ids, self.from)?, Vec::new()));
        }
        let answers = store.operate(&self.operation, ids, self.from, cause, skips_locked);
        if skips_locked { answers } else { answers.map_err(store::Error::of_locked_rows) }
    }

    /// Returns the answer about a run, and the exit status for it.
    fn judge(&self, id: i64, result: &RunResult) -> (RunAnswer, Exit) {
        let (result, why_not_changed, exit) = match result {
            RunResult::NotFound => ("not found", Some("no such run".to_owned()), Exit::NotFound),
            RunResult::Locked => {
                let why = "another transaction has locked it; try again";
                ("locked", Some(why.to_owned()), Exit::Conflict)
            }
            RunResult::Rejected(why) => ("rejected", Some(why.clone()), Exit::CouldNot),
            RunResult::Answer(answer) if answer.granted => {
                ((self.granted_word)(answer), None, Exit::Done)
            }
            RunResult::Answer(OperationResult { status, .. }) => {
                ("refused", Some((self.why_refused)(id, *status)), Exit::Conflict)
            }
        };
        (RunAnswer { id, result, why_not_changed }, exit)
    }

    /// Prints how many runs have the same result; if `verbose`, the answer of each run.
    fn print(&self, output: Output, answers: Vec<RunAnswer>, verbose: bool) -> anyhow::Result<()> {
        let verb = self.operation.verb();
        if verbose {
            return print_answers(output, answers, &LINES, |answer| {
                Some(format!(
                    "cannot {verb} run {}: {}",
                    answer.id,
                    answer.why_not_changed.as_ref()?
                ))
            });
        }
        let mut totals = BTreeMap::<_, Total>::new();
        for RunAnswer { id, result, why_not_changed } in answers {
            let key = (why_not_changed.clone(), result);
            totals.entry(key).or_insert(Total { result, runs: 0, why_not_changed, id }).runs += 1;
        }
        print_answers(output, totals.into_values().collect(), &TOTALS, |total| {
            let Total { runs, why_not_changed, id, .. } = total;
            let those = match runs {
                1 => format!("run {id}"),
                _ => format!("{runs} runs, such as run {id}"),
            };
            Some(format!("cannot {verb} {those}: {}", why_not_changed.as_ref()?))
        })
    }
}

/// Prints granted answers to stdout, and the `error` of each refused one to stderr; as JSON, prints
/// all answers to stdout.
fn print_answers<T: Default + Serialize>(
    output: Output,
    answers: Vec<T>,
    table: &Table<'_>,
    error: impl Fn(&T) -> Option<String>,
) -> anyhow::Result<()> {
    if output.is_json() {
        return print::rows(output, &answers, table);
    }
    let (granted, refused): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|answer| error(answer).is_none());
    print::rows(output, &granted, table)?;
    refused.iter().filter_map(error).for_each(|error| print::complain(&error));
    Ok(())
}

/// Prints deleted runs; in a dry run, the runs to delete.
pub(super) fn print_deleted(output: Output, ids: Vec<i64>) -> anyhow::Result<()> {
    let answers =
        ids.into_iter().map(|id| RunAnswer { id, result: "deleted", why_not_changed: None });
    print::rows(output, &answers.collect::<Vec<_>>(), &LINES)
}

/// Returns the ids without repetitions, in the order given.
fn distinct(ids: Vec<i64>) -> Vec<i64> {
    let mut seen = HashSet::new();
    ids.into_iter().filter(|id| seen.insert(*id)).collect()
}

/// Releases or cancels blocked runs that wait for these runs. If time runs out or the database
/// fails, the next tick does the rest.
fn release_followers(store: &Store, ids: &[i64]) {
    let mut state = UpkeepState::default();
    let mut slice = TimeSlice::new(Some(Instant::now() + FOLLOWERS_LIMIT), &mut state);
    // `release_followers` changes this list. What it leaves in it is for the next tick.
    let mut ended = ids.to_vec();
    if let Err(error) = upkeep::release_followers(store, &mut slice, Some(&mut ended)) {
        log::debug!("a tick will decide about the blocked runs: {error}");
    }
}
