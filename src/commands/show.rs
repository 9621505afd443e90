//! `jobctl show`: one run, why it is not running, and its history.

use chrono::{DateTime, Utc};
use clap::Args;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Database, verdicts};
use crate::exit::{Exit, Fault};
use crate::print::{self, Cell, Form};
use crate::store::{self, Attempt, Shown, Store};
use crate::{duration, redact, waiting};

/// Lines of an output that are shown, from its end.
const LINES: usize = 20;
/// Characters of an output that are read for them.
const CHARACTERS: usize = 8000;
/// Characters of a payload that are shown.
const PAYLOAD_SHOWN: usize = 1000;

/// Show a run, why it is not running, and its history
///
/// Of a built-in job's payload, values of headers and of the environment and the
/// query of a URL are not shown. What the last attempt printed, in full:
///
///   jobctl show 3
///   jobctl show 3 --output | less
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    /// A run's id
    #[arg(value_name = "ID", allow_negative_numbers = true, value_parser = verdicts::run_id)]
    id: i64,
    /// Only print what its last attempt printed, byte by byte
    #[arg(long)]
    output: bool,
    /// What another attempt printed
    #[arg(long, value_name = "N", requires = "output", allow_negative_numbers = true, value_parser = super::within(1, i32::MAX))]
    attempt: Option<i32>,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

/// A run as JSON; the fields are named as the columns are.
#[derive(Serialize)]
struct Answer<'a> {
    id: i64,
    job_type: &'a str,
    status: &'a str,
    /// Why it is not running.
    why: Option<String>,
    queue: &'a str,
    priority: i32,
    attempts: i32,
    max_attempts: i32,
    timeout_seconds: Option<f64>,
    backoff: &'a str,
    idempotency_key: Option<&'a str>,
    key_scope: &'a str,
    payload: Option<Box<RawValue>>,
    /// Why the payload can't be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_error: Option<&'a str>,
    error_type: Option<&'a str>,
    last_error: Option<&'a str>,
    run_at: DateTime<Utc>,
    scheduled_for: Option<DateTime<Utc>>,
    enqueued_by: &'a str,
    created_at: DateTime<Utc>,
    started_at: Option<DateTime<Utc>>,
    failed_at: Option<DateTime<Utc>>,
    finished_at: Option<DateTime<Utc>>,
    cancel_requested_at: Option<DateTime<Utc>>,
    locked_by: Option<&'a str>,
    locked_until: Option<DateTime<Utc>>,
    updated_at: DateTime<Utc>,
    history: &'a [Attempt],
}

impl Arguments {
    pub(crate) fn run(self, database: &Database) -> anyhow::Result<Exit> {
        let store = database.open()?;
        if self.output {
            print::answer(&output(&store, self.id, self.attempt)?)?;
            return Ok(Exit::Done);
        }
        let form = Form::new(self.json);
        let characters = i32::try_from(CHARACTERS).ok().filter(|_| form == Form::Text);
        let run = store.show(self.id, characters)?.ok_or_else(|| no_run(self.id))?;
        match form {
            Form::Text => text(&run)?,
            Form::Json => print::json(&json(&run))?,
        }
        Ok(Exit::Done)
    }
}

fn no_run(id: i64) -> Fault {
    Fault::new(Exit::NotFound, format!("cannot show run {id}: no such run"))
}

fn output(store: &Store, id: i64, attempt: Option<i32>) -> anyhow::Result<String> {
    let found = store.output(id, attempt)?.ok_or_else(|| no_run(id))?;
    let missing = || match attempt {
        Some(attempt) => format!("cannot show what run {id} printed: no attempt {attempt} has ended"),
        None => format!("cannot show what run {id} printed: no attempt has ended"),
    };
    found.ok_or_else(|| Fault::new(Exit::NotFound, missing()).into())
}

fn json(run: &Shown) -> Answer<'_> {
    Answer {
        id: run.id,
        job_type: &run.job_type,
        status: &run.status,
        why: waiting::why(run),
        queue: &run.queue,
        priority: run.priority,
        attempts: run.attempts,
        max_attempts: run.max_attempts,
        timeout_seconds: run.timeout_seconds,
        backoff: &run.backoff,
        idempotency_key: run.idempotency_key.as_deref(),
        key_scope: &run.key_scope,
        payload: run.payload.as_ref().ok().map(|payload| redact::payload(&run.job_type, payload)),
        payload_error: run.payload.as_ref().err().map(String::as_str),
        error_type: run.error_type.as_deref(),
        last_error: run.last_error.as_deref(),
        run_at: run.run_at,
        scheduled_for: run.scheduled_for,
        enqueued_by: &run.enqueued_by,
        created_at: run.created_at,
        started_at: run.started_at,
        failed_at: run.failed_at,
        finished_at: run.finished_at,
        cancel_requested_at: run.cancel_requested_at,
        locked_by: run.locked_by.as_deref(),
        locked_until: run.locked_until,
        updated_at: run.updated_at,
        history: &run.history,
    }
}

fn text(run: &Shown) -> anyhow::Result<()> {
    let since = |at: Option<DateTime<Utc>>| at.map_or(Cell::Nothing, |at| Cell::Since(at, run.now));
    let waits = matches!(run.status.as_str(), "queued" | "failed");
    let runs = run.status == "running";
    // Neither holds a run back, which is what somebody who looks here may think.
    let schedule = match (run.disabled, run.paused_at) {
        (true, _) => Some("off: the definition is disabled, or not in the file any more; runs go on"),
        (false, Some(_)) => Some("paused; runs go on"),
        (false, None) => None,
    };
    let payload = match &run.payload {
        Ok(payload) => bounded(redact::payload(&run.job_type, payload).get()),
        Err(why) => why.clone(),
    };
    print::facts(vec![
        ("run", run.id.to_string().into()),
        ("job", run.job_type.as_str().into()),
        ("status", run.status.as_str().into()),
        ("why", waiting::why(run).into()),
        ("schedule", schedule.into()),
        ("queue", run.queue.as_str().into()),
        ("priority", run.priority.to_string().into()),
        ("key", run.idempotency_key.clone().into()),
        ("scheduled for", run.scheduled_for.into()),
        ("created", since(Some(run.created_at))),
        ("due", since(Some(run.run_at).filter(|_| waits))),
        ("started", since(run.started_at.filter(|_| runs))),
        ("worker", run.locked_by.clone().into()),
        ("lease until", since(run.locked_until)),
        ("cancel asked", since(run.cancel_requested_at)),
        ("ended", since(run.finished_at)),
        ("attempts", format!("{}/{}", run.attempts, run.max_attempts).into()),
        ("timeout", run.timeout_seconds.map(|seconds| duration::show(store::seconds(seconds))).into()),
        ("backoff", run.backoff.as_str().into()),
        ("error type", run.error_type.clone().into()),
        ("error", run.last_error.clone().into()),
        ("payload", payload.into()),
    ])?;
    run.history.iter().try_for_each(|attempt| history(attempt, run.now))
}

/// An attempt, behind an empty line.
fn history(attempt: &Attempt, now: DateTime<Utc>) -> anyhow::Result<()> {
    let took = (attempt.finished_at - attempt.started_at).to_std().unwrap_or_default();
    let output = attempt.output.as_deref().unwrap_or_default();
    let whole = !attempt.output_truncated && output.chars().take(CHARACTERS).count() < CHARACTERS;
    let shown = match output.lines().count() {
        lines if whole && lines <= LINES => format!("{} bytes", attempt.output_bytes),
        _ => format!("the end of {} bytes; --output prints what is kept", attempt.output_bytes),
    };
    print::answer("\n")?;
    print::facts(vec![
        ("attempt", attempt.attempt.to_string().into()),
        ("  outcome", attempt.outcome.as_str().into()),
        ("  worker", attempt.worker.as_str().into()),
        ("  started", Cell::Since(attempt.started_at, now)),
        ("  took", duration::show(took).into()),
        ("  exit status", attempt.exit_code.map(|code| code.to_string()).into()),
        ("  signal", attempt.signal.map(|signal| signal.to_string()).into()),
        ("  HTTP status", attempt.http_status.map(|status| status.to_string()).into()),
        ("  error type", attempt.error_type.clone().into()),
        ("  error", attempt.error.clone().into()),
        ("  output", Some(shown).filter(|_| attempt.output_bytes > 0).into()),
    ])?;
    print::excerpt(output, LINES)
}

fn bounded(payload: &str) -> String {
    match payload.char_indices().nth(PAYLOAD_SHOWN) {
        Some((end, _)) => format!("{}… ({} bytes in all)", &payload[..end], payload.len()),
        None => payload.to_owned(),
    }
}
