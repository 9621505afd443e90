//! Requests for many runs, by id or by filter: `retry`, `cancel`, `settle` and `prune` make them.
//! Each run gets a result; the worst result is the exit status.

use std::collections::{HashMap, HashSet};

use clap::Args;
use serde::Serialize;

use super::arguments::{Output, TimeZone, run_id};
use super::filter::Filter;
use crate::exit::{Exit, Fault};
use crate::job::status::Status;
use crate::print::{self, Form, Progress, Table};
use crate::store::{self, ActionResult, RunFilter, Store};
use crate::text::plural;

/// Runs per statement.
const BATCH: usize = 1000;

/// The runs that a command is for. Its flag with the id `all` makes it all runs that match.
#[derive(Args, Debug)]
pub(super) struct Selection {
    /// Run ids
    #[arg(
        value_name = "ID",
        required_unless_present_any = ["all", "Filter"],
        conflicts_with = "Filter",
        value_parser = run_id
    )]
    ids: Vec<i64>,
    /// Do not ask for confirmation at a terminal
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    pub(super) filter: Filter,
    #[command(flatten)]
    time_zone: TimeZone,
    #[command(flatten)]
    output: Output,
}

/// The action that a command asks for, and its words.
pub(super) struct Request<'a> {
    pub(super) verb: &'static str,
    /// Statuses in which the request is granted.
    pub(super) from: &'a [Status],
    pub(super) ask: &'a dyn Fn(Vec<i64>) -> store::Result<Vec<ActionResult>>,
    /// Returns the word for a granted request. The argument is the run's status before it.
    pub(super) granted: &'a dyn Fn(&str) -> &'static str,
    /// Returns why a request was refused. The argument is the run's status.
    pub(super) why: &'a dyn Fn(&str) -> String,
}

/// The result of a request for one run.
#[derive(Default, Serialize)]
struct Answer {
    id: i64,
    result: &'static str,
    /// Why it was refused.
    reason: Option<String>,
}

const TABLE: Table<'_> = Table::new(&[("id", "id"), ("result", "result")], "");

impl Request<'_> {
    /// Makes the request for these runs.
    pub(super) fn of_ids(&self, form: Form, ids: Vec<i64>) -> anyhow::Result<Exit> {
        self.in_batches(form, &distinct(ids), |_| true)
    }

    /// Makes the request for the runs with the ids, or for all matching runs if `all` names them.
    /// For the latter it asks for confirmation at a terminal first.
    pub(super) fn of(
        &self,
        selection: Selection,
        store: &Store,
        all: Option<&str>,
    ) -> anyhow::Result<Exit> {
        let Selection { ids, yes, filter, time_zone, output } = selection;
        let form = output.form();
        let Some(words) = all else { return self.of_ids(form, ids) };
        let filter = filter.resolve(store, &time_zone, self.from)?;
        let mut ids = store.list_ids(RunFilter { unsettled: true, ..filter })?;
        ids.reverse();
        let matching = match ids.len() {
            0 => format!("no {words} run"),
            more => plural::of(i64::try_from(more).unwrap_or(i64::MAX), &format!("{words} run")),
        };
        if ids.is_empty() {
            print::hint(form, &format!("{matching} matches"));
        } else if !yes && !print::confirm(|| Ok(Some(format!("{} {matching}?", self.verb))))? {
            return Err(Fault::new(Exit::CouldNot, format!("{matching} left unchanged")).into());
        }
        // Runs whose status changed meanwhile no longer match; skip them.
        let matches = |answer: &ActionResult| {
            answer.granted || self.from.iter().any(|status| status.as_str() == answer.status)
        };
        self.in_batches(form, &ids, |answer| answer.is_some_and(matches))
    }

    /// Makes the request in batches, within the time limit of a statement. The last batch comes
    /// first: of several finished runs with one live key, a retry gives it to the newest. Prints
    /// the results in the order of the ids, also if a batch fails. `counts` selects the answers
    /// that have a result; a run that does not exist has no answer.
    fn in_batches(
        &self,
        form: Form,
        ids: &[i64],
        counts: impl Fn(Option<&ActionResult>) -> bool,
    ) -> anyhow::Result<Exit> {
        let mut batches = Vec::new();
        let (progress, mut done) = (Progress::of(Some(ids.len())), 0);
        let asked = ids.rchunks(BATCH).try_for_each(|batch| {
            let answers = (self.ask)(batch.to_vec())?;
            let answers: HashMap<_, _> = answers.iter().map(|answer| (answer.id, answer)).collect();
            let counted = batch
                .iter()
                .map(|id| (*id, answers.get(id).copied()))
                .filter(|(_, answer)| counts(*answer));
            batches.push(counted.map(|(id, answer)| self.judge(id, answer)).collect::<Vec<_>>());
            done += batch.len();
            progress.show(done);
            Ok::<_, store::Error>(())
        });
        progress.clear();
        let (answers, exits): (Vec<_>, Vec<_>) = batches.into_iter().rev().flatten().unzip();
        if asked.is_ok() || !answers.is_empty() {
            print(form, self.verb, answers)?;
        }
        asked?;
        Ok(exits.into_iter().max().unwrap_or(Exit::Done))
    }

    fn judge(&self, id: i64, asked: Option<&ActionResult>) -> (Answer, Exit) {
        let (result, reason, exit) = match asked {
            None => ("not found", Some("no such run".to_owned()), Exit::NotFound),
            Some(asked) if asked.granted => ((self.granted)(&asked.status), None, Exit::Done),
            Some(asked) => ("refused", Some((self.why)(&asked.status)), Exit::Conflict),
        };
        (Answer { id, result, reason }, exit)
    }
}

/// Prints granted requests to stdout and refused ones to stderr; as JSON, all to stdout.
fn print(form: Form, verb: &str, answers: Vec<Answer>) -> anyhow::Result<()> {
    if form.is_json() {
        return print::rows(form, &answers, &TABLE);
    }
    let (granted, refused): (Vec<_>, Vec<_>) =
        answers.into_iter().partition(|answer| answer.reason.is_none());
    print::rows(form, &granted, &TABLE)?;
    for Answer { id, reason, .. } in refused {
        print::complain(&format!("cannot {verb} run {id}: {}", reason.unwrap_or_default()));
    }
    Ok(())
}

/// Returns the ids without repetitions, in the order given.
fn distinct(ids: Vec<i64>) -> Vec<i64> {
    let mut seen = HashSet::new();
    ids.into_iter().filter(|id| seen.insert(*id)).collect()
}
