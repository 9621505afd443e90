//! What `retry` and `cancel` answer: a verdict for each id, and the worst of them as exit status.

use serde::Serialize;

use crate::exit::Exit;
use crate::print::{self, Form};
use crate::store::Asked;

/// What became of a request about one run.
#[derive(Debug, Serialize)]
pub(super) struct Verdict {
    id: i64,
    /// One or two words.
    verdict: String,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip)]
    exit: Exit,
}

/// Judges `answers` to a request about `ids`, in the order of the ids. `granted` words a granted
/// request by the status the run had, `why` says why one was refused.
pub(super) fn judge(
    ids: &[i64],
    answers: &[Asked],
    granted: impl Fn(&str) -> &'static str,
    why: impl Fn(&str) -> String,
) -> Vec<Verdict> {
    ids.iter()
        .map(|&id| match answers.iter().find(|answer| answer.id == id) {
            None => Verdict {
                id,
                verdict: "not found".to_owned(),
                reason: Some("no such run".to_owned()),
                exit: Exit::NotFound,
            },
            Some(answer) if answer.granted => {
                Verdict { id, verdict: granted(&answer.status).to_owned(), reason: None, exit: Exit::Done }
            }
            Some(answer) => {
                let reason = why(&answer.status);
                Verdict { id, verdict: "refused".to_owned(), reason: Some(reason), exit: Exit::Conflict }
            }
        })
        .collect()
}

/// Prints the verdicts: granted requests to stdout, refusals to stderr, or all as JSON to stdout.
///
/// # Errors
/// stdout takes no more.
pub(super) fn print(form: Form, verb: &str, verdicts: &[Verdict]) -> anyhow::Result<Exit> {
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
pub(super) fn distinct(ids: Vec<i64>) -> Vec<i64> {
    let mut seen = std::collections::HashSet::new();
    ids.into_iter().filter(|id| seen.insert(*id)).collect()
}
