//! `jobctl show`: one run, why it is not running, and its history.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::Args;
use serde::Serialize;
use serde_json::value::RawValue;

use super::arguments::{run_id, within};
use super::outage::{LastingSession, OUTAGE_LIMIT};
use super::{DatabaseFlags, wait};
use crate::exit::{Exit, Fault};
use crate::health::{self, Finding, why_waiting};
use crate::job::redact;
use crate::job::status::Status;
use crate::job::thresholds::Thresholds;
use crate::print::{self, Cell, Fields, Output, Table};
use crate::store::{self, Attempt, History, RunDetails, Store, StoredOutput};
use crate::text::listing::{ListedRow, Listing};
use crate::text::{plural, timestamp};

/// How many of an output's last lines are shown.
const LINES: usize = 20;
/// How many of an output's last characters are read for these lines.
const CHARACTERS: usize = 8000;
/// How often --follow looks for output. Workers send output with their heartbeats, which are rarer.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Show a run, why it is not running, and its history
///
/// The payload is shown without the values of headers and of the environment, and
/// without the query of a URL. --output prints the stored output of an attempt.
/// Of a running attempt, these are the last 8 KiB at its last heartbeat:
///
///   jobctl show 3
///   jobctl show 3 --output | less
///   jobctl show 3 --output --follow
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// A run's id
    #[arg(value_name = "ID", value_parser = run_id)]
    id: i64,
    /// Print only the stored output of the last attempt, unchanged
    #[arg(long, conflicts_with_all = ["json", "format", "header"])]
    output: bool,
    /// Print the output of this attempt
    // With --json, clap does not check `requires`, because --output conflicts with --json. So name
    // the conflicts here, too.
    #[arg(
        long,
        value_name = "N",
        requires = "output",
        conflicts_with_all = ["json", "format", "header"],
        value_parser = within(1, i32::MAX)
    )]
    attempt: Option<i32>,
    /// Print the output of the running or next attempt until it ends; then exit as `jobctl wait`
    #[arg(
        long,
        requires = "output",
        conflicts_with_all = ["attempt", "json", "format", "header"]
    )]
    follow: bool,
    #[command(flatten)]
    form: Output,
}

/// A run and what else is known about it.
#[derive(Serialize)]
struct ShowAnswer<'a> {
    #[serde(flatten)]
    run: Option<&'a ListedRow>,
    why_not_running: Option<String>,
    /// `disabled` or `paused`; `None`: the job's schedule is in force, or the job has none.
    schedule_state: Option<&'static str>,
    payload: Option<Box<RawValue>>,
    /// Why the payload cannot be read.
    payload_error: Option<&'a str>,
    history: &'a [Attempt],
    events: &'a Listing,
}

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<Exit> {
        let store = database.open()?;
        if self.output {
            return self.print_output(store, database);
        }
        // JSON has the whole outputs.
        let characters = if self.form.is_json() { None } else { i32::try_from(CHARACTERS).ok() };
        let shown = store.show(self.id, characters)?.ok_or_else(|| no_run(&store, self.id))?;
        let (run, payload) = (&shown.run, shown.payload.as_ref());
        let answer = ShowAnswer {
            run: shown.fields.rows.first(),
            why_not_running: why_waiting::why(run, &findings(&store, run)?),
            schedule_state: match (run.disabled, run.paused_at) {
                (true, _) => Some("disabled"),
                (false, Some(_)) => Some("paused"),
                (false, None) => None,
            },
            payload: payload.ok().map(|payload| redact::payload(&run.job_type, payload)),
            payload_error: payload.err().map(String::as_str),
            history: &shown.attempts,
            events: &shown.events,
        };
        print::object(self.form, &answer, |fields| text(&shown, fields))?;
        Ok(Exit::Done)
    }

    /// Prints the stored output of an attempt. With `--follow`, goes on until the attempt has
    /// ended, also after a short outage of the database, and returns the exit status for the run.
    fn print_output(&self, store: Store, database: &DatabaseFlags) -> anyhow::Result<Exit> {
        let stored = store.output(self.id, self.attempt)?.ok_or_else(|| no_run(&store, self.id))?;
        if !self.follow {
            print::answer(&output(self.id, self.attempt, stored)?)?;
            return Ok(Exit::Done);
        }
        let mut session = LastingSession::new(database, OUTAGE_LIMIT, store);
        follow(stored, |attempt| {
            session.insist(POLL_INTERVAL, |store| Ok(store.output(self.id, attempt)?))
        })?;
        let states = session.insist(POLL_INTERVAL, |store| {
            let states = store.run_states(vec![self.id])?;
            states.first().ok_or_else(|| no_run(store, self.id))?;
            Ok(states)
        })?;
        Ok(wait::exit(&states))
    }
}

/// Returns the findings about a pending or lost run's job, which may say why it is not running;
/// none for other runs.
fn findings(store: &Store, run: &RunDetails) -> store::Result<Vec<Finding>> {
    let is_lost = run.locked_until.is_some_and(|until| until < run.now) && !run.has_result;
    if !run.status.is_pending() && !is_lost {
        return Ok(Vec::new());
    }
    // Explain even a short wait.
    let thresholds = Thresholds { lag: Duration::ZERO, ..Thresholds::default() };
    let work = store.inspect_work(Some(vec![run.job_type.clone()]), thresholds)?;
    Ok(health::work(&work, &thresholds))
}

/// The error about a run that does not exist. If a person pruned it by its id, says so.
fn no_run(store: &Store, id: i64) -> Fault {
    let pruned = pruned(store, id).unwrap_or_default();
    Fault::new(Exit::NotFound, format!("cannot show run {id}: no such run{pruned}"))
}

/// Returns the end of a sentence: by which user the run was pruned and when, if that is its last
/// event in the trail.
fn pruned(store: &Store, id: i64) -> Option<String> {
    let last_event = store.list_events(Some(id), None).ok()?.rows.pop()?;
    let fields = Fields::of(&last_event).ok()?;
    let cells = fields.cells("action, host_user|recorded_by, recorded_at", None);
    let texts: Vec<_> = cells.iter().map(|(_, cell)| cell.bare()).collect();
    match &texts[..] {
        [action, by, at] if action == "prune" => Some(format!("; {by} pruned it at {at}")),
        _ => None,
    }
}

/// Returns the text of a stored output. Fails if its attempt has not begun.
fn output(id: i64, attempt: Option<i32>, stored: StoredOutput) -> anyhow::Result<String> {
    if stored.attempt.is_none() {
        let missing = match attempt {
            Some(attempt) => format!("attempt {attempt} has not begun"),
            None => "no attempt has begun".to_owned(),
        };
        let why = format!("cannot show the output of run {id}: {missing}");
        return Err(Fault::new(Exit::NotFound, why).into());
    }
    if stored.live && stored.output.is_none() {
        print::complain(&format!("run {id}: its worker has sent no output yet"));
    }
    Ok(stored.output.unwrap_or_default())
}

/// Prints the output of an attempt, and each addition to it, until the attempt ends. If the run
/// waits, this is its next attempt.
///
/// - `first`: the output that was read already.
/// - `read` gets the number of an attempt, or `None` for the newest one. It returns the output of
///   that attempt so far; `None`: the run was deleted.
fn follow(
    first: StoredOutput,
    mut read: impl FnMut(Option<i32>) -> anyhow::Result<Option<StoredOutput>>,
) -> anyhow::Result<()> {
    let mut read_later = |attempt| {
        thread::sleep(POLL_INTERVAL);
        read(attempt)
    };
    let attempt_before = first.attempt;
    let mut stored = first;
    if stored.waiting {
        // Wait for the next attempt. The run may also end without one.
        while stored.attempt == attempt_before && !stored.live {
            if !stored.waiting {
                return Ok(());
            }
            let Some(found) = read_later(None)? else { return Ok(()) };
            stored = found;
        }
    }
    let (followed, mut printed) = (stored.attempt, String::new());
    loop {
        let output = stored.output.unwrap_or_default();
        print::answer(&added_output(&printed, &output, stored.live))?;
        if !stored.live {
            return Ok(());
        }
        printed = output;
        let Some(found) = read_later(followed)? else { return Ok(()) };
        stored = found;
    }
}

/// Returns the text that must be printed after `printed`, so that a reader sees all of `output`.
///
/// - While the attempt is `live`, both texts are the last bytes of what it has printed. If they
///   overlap, returns the rest of `output` after the overlap. If not, returns all of it after a
///   line about the gap.
/// - When the attempt has ended, the stored output has stderr after stdout, so it may be another
///   text. Then returns all of it, too, after a heading.
fn added_output(printed: &str, output: &str, live: bool) -> String {
    if let Some(at) = output.find(printed) {
        return output[at + printed.len()..].to_owned();
    }
    let mut ends = printed.char_indices().map(|(start, _)| &printed[start..]);
    match ends.find(|end| output.starts_with(end)) {
        Some(overlap) => output[overlap.len()..].to_owned(),
        None if live => format!("\n[bytes left out]\n{output}"),
        None => format!("\n--- the stored output ---\n{output}"),
    }
}

/// Prints a run, its history and its trail for people.
fn text(shown: &History, fields: &Fields) -> anyhow::Result<()> {
    let History { run, attempts, events, .. } = shown;
    let is_running = run.status == Status::Running;
    let mut facts = fields.cells(
        "id as run, job_type as job, status, why_not_running as why, schedule_state as schedule, \
         queue, priority, idempotency_key as key, share, lock, only_worker as only worker, \
         trace_id as trace, \
         scheduled_for as scheduled for, schedule as fired by, \
         created_at as created, run_at as due, expires_at as expires, started_at as started, \
         usual_end_at as usual end, locked_by as worker, locked_until as lease until, \
         cancel_requested_at as cancel asked, after, after_rule as after rule, \
         roots as chain root, followers, finished_at as ended, settled_at as settled, \
         attempts/max_attempts as attempts, \
         timeout_seconds as timeout, backoff, error_type as error type, last_error as error, \
         payload|payload_error as payload",
        Some(run.now),
    );
    // Leave out facts that say nothing about a run of this status.
    facts.retain(|(name, cell)| match *name {
        "after" | "after rule" | "chain root" | "followers" => !cell.bare().is_empty(),
        "due" | "expires" => run.status.is_pending(),
        "started" => is_running,
        _ => true,
    });
    for (name, cell) in &mut facts {
        if run.status == Status::Succeeded {
            *name = match *name {
                "error type" => "last error type",
                "error" => "last error",
                other => other,
            };
        }
        // A disabled or paused schedule does not stop runs that exist, but a reader may expect it.
        if let ("schedule", Cell::Text(state)) = (*name, cell) {
            *state += ", which does not stop this run";
        }
    }
    print::facts(facts)?;
    if let Some(output) = &run.live_output {
        print::answer("\noutput so far\n")?;
        print::excerpt(output, LINES)?;
    }
    attempts.chunk_by(is_repeated).try_for_each(|attempts| history(attempts, run.now))?;
    trail(events, run.now)?;
    print::answer(&next_steps(run))
}

/// Returns the commands that a person may want to run next, after an empty line.
fn next_steps(run: &RunDetails) -> String {
    let mut text = String::new();
    let steps: &[(&str, &str)] = match run.status {
        Status::Blocked => &[
            ("list --before", "shows the runs that it waits for"),
            ("retry", "starts it without waiting for them"),
            ("cancel", "stops it"),
        ],
        Status::Queued if run.run_at > run.now => {
            &[("retry", "starts it now"), ("cancel", "stops it")]
        }
        Status::Queued | Status::Running => &[("cancel", "stops it")],
        Status::Failed => &[("retry", "tries it now"), ("cancel", "stops it")],
        Status::Dead if run.settled_at.is_none() => {
            &[("retry", "tries it again"), ("settle", "closes it"), ("prune", "deletes it")]
        }
        Status::Dead => &[("retry", "tries it again"), ("prune", "deletes it")],
        Status::Cancelled => &[("retry", "runs it after all"), ("prune", "deletes it")],
        Status::Succeeded => &[],
    };
    for (command, effect) in steps {
        if text.is_empty() {
            text += "\n";
        }
        text += &format!("`jobctl {command} {}` {effect}\n", run.id);
    }
    text
}

/// Returns whether two attempts ended alike, so that they are shown as one.
fn is_repeated(first: &Attempt, second: &Attempt) -> bool {
    (&first.outcome, &first.error_type, &first.error)
        == (&second.outcome, &second.error_type, &second.error)
        && (first.exit_code, first.signal, first.http_status)
            == (second.exit_code, second.signal, second.http_status)
}

/// Prints successive attempts that ended alike as one, after an empty line, and the output of the
/// last one.
fn history(attempts: &[Attempt], now: DateTime<Utc>) -> anyhow::Result<()> {
    let (Some(first), Some(last)) = (attempts.first(), attempts.last()) else { return Ok(()) };
    let output = last.output.as_deref().unwrap_or_default();
    let is_read_whole =
        !last.output_truncated && output.chars().take(CHARACTERS).count() < CHARACTERS;
    let shown = if is_read_whole && output.lines().count() <= LINES {
        format!("{} bytes", last.output_bytes)
    } else {
        format!("the end of {} bytes; --output prints all stored bytes", last.output_bytes)
    };
    let mut facts = Fields::of(last)?.cells(
        "attempt, outcome, worker, started_at as started, run_time_seconds as took, \
         exit_code as exit status, signal, http_status as HTTP status, error_type as error type, \
         error",
        Some(now),
    );
    if last.output_bytes > 0 {
        facts.push(("output", Cell::Text(shown)));
    }
    if attempts.len() > 1 {
        let workers: BTreeSet<_> = attempts.iter().map(|attempt| attempt.worker.as_str()).collect();
        let [first_start, last_start] = [first, last].map(|one| timestamp::instant(one.started_at));
        for (name, cell) in &mut facts {
            *cell = Cell::Text(match *name {
                "attempt" => {
                    format!("{} to {}, with the same result", first.attempt, last.attempt)
                }
                "worker" => plural::listed(&Vec::from_iter(&workers), 3),
                "started" => format!("{first_start} to {last_start}"),
                "took" | "output" => format!("{} (the last)", cell.bare()),
                _ => continue,
            });
        }
    }
    let indented =
        |name: &str| if name == "attempt" { name.to_owned() } else { format!("  {name}") };
    print::answer("\n")?;
    print::facts(facts.into_iter().map(|(name, cell)| (indented(name), cell)).collect())?;
    print::excerpt(output, LINES)
}

const TRAIL: Table<'_> =
    Table::new("recorded_at as at, action, host_user|recorded_by as by, detail, reason", "");

/// Prints the events of a run or of a definition for people.
pub(super) fn trail(events: &Listing, now: DateTime<Utc>) -> anyhow::Result<()> {
    print::answer(&print::section("Trail", &events.rows, &TRAIL.since(Some(now)).wrapped())?)
}

#[cfg(test)]
mod tests {
    use super::added_output;

    #[test]
    fn only_the_added_text_is_printed() {
        let live = |before, output| added_output(before, output, true);
        assert_eq!(live("", "a\n"), "a\n");
        assert_eq!(live("a\n", "a\nb\n"), "b\n");
        assert_eq!(live("a\n", "a\n"), "");
        // The beginning was dropped meanwhile.
        assert_eq!(live("abc", "bcd"), "d");
        assert_eq!(live("a€", "€b"), "b");
        assert_eq!(live("abc", "xyz"), "\n[bytes left out]\nxyz");
        assert_eq!(added_output("abc", "xyz", false), "\n--- the stored output ---\nxyz");
    }
}
