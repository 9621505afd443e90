//! Compares the model of the database with PostgreSQL: random requests of ticks go through the
//! model and, by the tick's own code, through the SQL. After each one, every answer and every row
//! must be the same. What operators and applications do goes to PostgreSQL alone, and the model
//! takes over the rows. So it need not know their rules; `sequences.rs` checks them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;

use super::database::Database;
use super::operations::{Operation, STEPS, Sequence};
use super::postgres::{Real, Reply, Rows, try_sequences};
use crate::store::{self, Recovered};
use crate::tick::request::{Answer, Request};
use crate::upkeep::Woken;

/// Returns an answer as text: of an error, only its kind.
fn describe<T: Debug>(answer: store::Result<T>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => format!("{:?}", error.kind),
    }
}

fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort();
    items
}

/// Returns the answer to a request as text, without durations and in one order.
fn describe_answer(answer: Answer) -> String {
    match answer {
        Answer::Wake { woken, is_searching } => {
            let woken =
                woken.map(|woken| Woken { took: Duration::ZERO, longest: Duration::ZERO, ..woken });
            format!("{} {is_searching}", describe(woken))
        }
        Answer::Renew(renewed) => describe(renewed.map(|mut renewed| {
            renewed.sort_by_key(|(claim, _)| *claim);
            renewed
        })),
        Answer::Step(Err((error, _))) => format!("{:?}", error.kind),
        Answer::Step(Ok(step)) => {
            let recorded: BTreeMap<_, _> = step.recorded.into_iter().collect();
            format!("{recorded:?} {:?} {:#?}", sorted(step.locked), step.taken)
        }
        Answer::Store(left) => describe(left),
        Answer::Leave(done) => describe(done),
        Answer::Prune => String::new(),
    }
}

/// Returns the rows of the model, in the form in which `Real::rows` reads those of PostgreSQL.
fn rows_of(model: &Database) -> Rows {
    fn row(key: String, row: &impl Serialize) -> (String, Value) {
        (key, serde_json::to_value(row).unwrap())
    }
    let runs = model.runs.iter().map(|(id, it)| row(format!("run {id}"), it));
    let attempts = model.attempts.iter();
    let attempts = attempts.map(|((id, attempt), it)| row(format!("attempt {id} {attempt}"), it));
    let definitions = model.definitions.iter();
    let definitions = definitions.map(|(name, it)| row(format!("definition {name}"), it));
    let workers = model.workers.iter().map(|(name, it)| row(format!("worker {name}"), it));
    let kept = model.kept.values();
    let kept = kept.map(|it| row(format!("kept {}", it.claim.id), it));
    let dependencies = model.dependencies.iter();
    let dependencies =
        dependencies.map(|((after, run), it)| row(format!("dependency {after} {run}"), it));
    let rows = runs.chain(attempts).chain(definitions).chain(workers).chain(kept);
    rows.chain(dependencies).collect()
}

/// Writes times and numbers in one way.
fn normalized(value: Value) -> Value {
    match value {
        Value::String(text) => match DateTime::parse_from_rfc3339(&text) {
            Ok(time) => time.timestamp_micros().into(),
            Err(_) => Value::String(text),
        },
        Value::Number(number) => number.as_f64().into(),
        Value::Array(items) => items.into_iter().map(normalized).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(key, it)| (key, normalized(it))).collect()
        }
        value => value,
    }
}

/// Returns the rows that differ.
fn differing(model: &Rows, real: &Rows) -> String {
    let keys: BTreeSet<_> = model.keys().chain(real.keys()).collect();
    let row = |rows: &Rows, key: &String| rows.get(key).cloned().map(normalized);
    let keys = keys.into_iter().filter(|key| *key != "last_run" && !key.starts_with("holds"));
    let differing = keys.filter(|key| row(model, key) != row(real, key));
    let text = |rows: &Rows, key| row(rows, key).map_or("none".to_owned(), |it| it.to_string());
    let show = |key| format!("{key}\n  model {}\n  real  {}\n", text(model, key), text(real, key));
    differing.map(show).collect()
}

/// Performs an operation on the model. Returns its answer, if the model knows the operation.
fn perform_on_model(sequence: &mut Sequence, operation: &Operation) -> Option<String> {
    let model = &mut sequence.tables;
    match operation {
        Operation::Tick(_, Request::Prune) => None,
        Operation::Tick(index, request) => {
            let session = &mut sequence.sessions[*index];
            session.now = Instant::now();
            Some(describe_answer(model.perform(session, request, &mut || 0.5)))
        }
        Operation::Recover(expired) => Some(describe(model.recover(expired).map(sorted_runs))),
        _ => None,
    }
}

fn sorted_runs(mut recovered: Vec<Recovered>) -> Vec<Recovered> {
    recovered.sort_by_key(|recovered| recovered.id);
    recovered
}

fn describe_reply(reply: Reply) -> String {
    match reply {
        Reply::Tick(answer) => describe_answer(answer),
        Reply::Recovered(recovered) => describe(recovered.map(sorted_runs)),
        reply => format!("{reply:?}"),
    }
}

/// A wake draws the waits of recovered runs at random: takes those that are possible.
fn adopt_waits(model: &mut Database, real: &Rows) {
    for run in model.runs.values_mut() {
        // A recovered run may expire in the same wake.
        let is_recovered = matches!(run.error_type.as_deref(), Some("lease_expired" | "expired"))
            && run.failed_at == Some(model.now)
            && run.updated_at == model.now;
        let real = real.get(&format!("run {}", run.id)).filter(|_| is_recovered);
        let real = real.and_then(|row| row["run_at"].as_str()?.parse::<DateTime<Utc>>().ok());
        let Some(real) = real else { continue };
        let [wait, drawn] = [run.run_at, real].map(|at| (at - run.updated_at).as_seconds_f64());
        if (drawn - wait).abs() <= 0.2 * wait + 1e-6 {
            run.run_at = real;
        }
    }
}

/// Performs a sequence of operations on PostgreSQL and on the model. Returns what differs.
fn compare(real: &mut Real, seed: u64) -> Result<(), String> {
    let mut sequence = Sequence::new(seed, false);
    real.reset(&sequence.sessions);
    real.rows(sequence.tables.now);
    for step in 0..STEPS {
        let operation = sequence.operation(step);
        let reply = real.perform(&operation);
        let model_said = match (&operation, &reply) {
            (Operation::Race(_, both), Reply::Raced(first, _)) => {
                let said = perform_on_model(&mut sequence, &both[*first]);
                let other = perform_on_model(&mut sequence, &both[1 - *first]);
                said.zip(other).map(|(first, second)| format!("{first} {second}"))
            }
            _ => perform_on_model(&mut sequence, &operation),
        };
        let next = sequence.next_time();
        let rows = real.rows(next);
        if matches!(operation, Operation::Tick(_, Request::Wake(_))) {
            adopt_waits(&mut sequence.tables, &rows);
        }
        let model_rows = rows_of(&sequence.tables);
        sequence.adopt(&rows, &operation, &reply);
        sequence.tables.now = next;
        let Some(model_said) = model_said else { continue };
        let real_said = match reply {
            Reply::Raced(first, replies) => {
                let mut said = replies.map(describe_reply);
                said.rotate_left(first);
                said.join(" ")
            }
            reply => describe_reply(reply),
        };
        let differing = differing(&model_rows, &rows);
        let model_excluded = sequence.sessions.iter().map(|it| &it.filter.excluded_runs);
        let real_excluded = real.ticks.iter().map(|it| &it.plan.filter.excluded_runs);
        let is_excluded_alike = model_excluded.eq(real_excluded);
        if model_said != real_said || !differing.is_empty() || !is_excluded_alike {
            return Err(format!(
                "step {step}: {operation:?}\nmodel: {model_said}\nreal:  {real_said}\n\
                {differing}excluded alike: {is_excluded_alike}"
            ));
        }
    }
    Ok(())
}

#[test]
fn the_model_and_postgres_answer_alike() {
    try_sequences("differential", compare);
}
