//! What `retry`, `cancel` and `prune` have in common: a request about runs, by id or by filter, that is
//! answered with a verdict for each run, and the worst of them as exit status.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use super::filter::Filter;
use crate::count;
use crate::exit::{Exit, Fault};
use crate::model::Status;
use crate::print::{self, Form};
use crate::store::{self, Asked, Store};

/// Runs asked about per statement.
const BATCH: usize = 1000;

/// What is asked about runs.
pub(super) struct Request<'a> {
    pub(super) verb: &'static str,
    /// Statuses that a run may be moved from.
    pub(super) from: &'a [Status],
    pub(super) ask: &'a dyn Fn(Vec<i64>) -> store::Result<Vec<Asked>>,
    /// Words a granted request by the status the run had.
    pub(super) granted: &'a dyn Fn(&str) -> &'static str,
    /// Says by the status the run has why a request was refused.
    pub(super) why: &'a dyn Fn(&str) -> String,
}

/// What became of a request about one run.
#[derive(Debug, Serialize)]
struct Verdict {
    id: i64,
    /// One or two words.
    verdict: String,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip)]
    exit: Exit,
}

impl Request<'_> {
    /// Asks about these runs.
    ///
    /// # Errors
    /// The database's; stdout takes no more.
    pub(super) fn of_ids(&self, form: Form, ids: Vec<i64>) -> anyhow::Result<Exit> {
        self.in_batches(form, &distinct(ids), |_| true)
    }

    /// Asks about the runs that match and may be moved, which `words` names; on a terminal not before
    /// somebody has said yes, unless `sure`.
    ///
    /// # Errors
    /// The database's; stdout takes no more.
    pub(super) fn of_matching(
        &self,
        form: Form,
        store: &Store,
        filter: Filter,
        words: &str,
        sure: bool,
    ) -> anyhow::Result<Exit> {
        let mut ids = store.list_ids(filter.resolve(store, self.from)?)?;
        ids.reverse();
        let matching = match ids.len() {
            0 => format!("no {words} run"),
            more => count::of(i64::try_from(more).unwrap_or(i64::MAX), &format!("{words} run")),
        };
        if ids.is_empty() {
            print::hint(form, &format!("{matching} matches"));
        } else if !sure && !print::confirm(|| Ok(Some(format!("{} {matching}?", self.verb))))? {
            return Err(Fault::new(Exit::CouldNot, format!("{matching} left alone")).into());
        }
        // Who has moved on since matches no more, and that is no refusal.
        let matches =
            |answer: &Asked| answer.granted || self.from.iter().any(|status| status.as_str() == answer.status);
        self.in_batches(form, &ids, |answer| answer.is_some_and(matches))
    }

    /// Asks in batches that no limit of a statement cuts off, from the last to the first: of runs that
    /// ended with one live key the newest has it again. Prints the verdicts in the order of the ids,
    /// also when there was an error after some of them. `counts` says whose answer is worth a verdict;
    /// there is none about a run that does not exist.
    fn in_batches(&self, form: Form, ids: &[i64], counts: impl Fn(Option<&Asked>) -> bool) -> anyhow::Result<Exit> {
        let mut batches = Vec::new();
        let asked = ids.rchunks(BATCH).try_for_each(|batch| {
            let answers = (self.ask)(batch.to_vec())?;
            let answers: HashMap<_, _> = answers.iter().map(|answer| (answer.id, answer)).collect();
            let worth = batch.iter().map(|id| (*id, answers.get(id).copied())).filter(|(_, answer)| counts(*answer));
            batches.push(worth.map(|(id, answer)| self.judge(id, answer)).collect::<Vec<_>>());
            Ok::<_, store::Error>(())
        });
        let verdicts: Vec<_> = batches.into_iter().rev().flatten().collect();
        if verdicts.is_empty() {
            asked?;
            return print(form, self.verb, &verdicts);
        }
        let exit = print(form, self.verb, &verdicts)?;
        asked?;
        Ok(exit)
    }

    fn judge(&self, id: i64, answer: Option<&Asked>) -> Verdict {
        let (verdict, reason, exit) = match answer {
            None => ("not found", Some("no such run".to_owned()), Exit::NotFound),
            Some(answer) if answer.granted => ((self.granted)(&answer.status), None, Exit::Done),
            Some(answer) => ("refused", Some((self.why)(&answer.status)), Exit::Conflict),
        };
        Verdict { id, verdict: verdict.to_owned(), reason, exit }
    }
}

/// Prints the verdicts: granted requests to stdout, refusals to stderr, or all as JSON to stdout.
///
/// # Errors
/// stdout takes no more.
fn print(form: Form, verb: &str, verdicts: &[Verdict]) -> anyhow::Result<Exit> {
    let (granted, refused): (Vec<_>, Vec<_>) = verdicts.iter().partition(|verdict| verdict.reason.is_none());
    if form == Form::Json {
        print::json(&verdicts)?;
    } else {
        print::rows(form, &["id", "verdict"], &granted, |one| vec![one.id.to_string(), one.verdict.clone()])?;
        for one in refused {
            print::complain(&format!("cannot {verb} run {}: {}", one.id, one.reason.as_deref().unwrap_or_default()));
        }
    }
    Ok(verdicts.iter().map(|verdict| verdict.exit).max().unwrap_or(Exit::Done))
}

/// Reads a run's id.
///
/// # Errors
/// It is not a positive number that an id can be.
pub(super) fn run_id(text: &str) -> Result<i64, String> {
    text.parse().ok().filter(|id| *id > 0).ok_or_else(|| format!("ids are whole numbers from 1 to {}", i64::MAX))
}

/// The ids without repetitions, in the order given: one verdict each.
fn distinct(ids: Vec<i64>) -> Vec<i64> {
    let mut seen = HashSet::new();
    ids.into_iter().filter(|id| seen.insert(*id)).collect()
}
