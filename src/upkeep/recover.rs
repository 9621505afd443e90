//! Recovers runs whose leases expired, and shortens leases that a wrong clock has made too long.

use std::sync::Once;
use std::time::Duration;

use super::TimeSlice;
use super::time_slice::Item;
use crate::job::attempt::{self, EXPIRES_FIRST};
use crate::job::backoff::wait_after;
use crate::job::failure::ErrorType;
use crate::job::status::Status;
use crate::store::{self, LostLease, Recovered, Store};
use crate::text::duration;

/// How many lost leases are looked up at a time.
const RECOVERED_AT_ONCE: usize = 500;

/// A run, its attempt and the wait before the next attempt.
type LostAttempt = (i64, i32, Duration);

impl Item for LostAttempt {
    fn run(&self) -> Option<i64> {
        Some(self.0)
    }
}

/// Recovers the runs whose leases expired, and shortens leases that are too long, as long as there
/// is time.
pub(super) fn recover(store: &Store, slice: &mut TimeSlice) -> store::Result<()> {
    let mut rejected = slice.state.slow();
    loop {
        let found = store.lost_leases(RECOVERED_AT_ONCE, rejected.clone())?;
        let is_full = found.len() == RECOVERED_AT_ONCE;
        let (ahead, lost): (Vec<_>, Vec<_>) = found.into_iter().partition(|run| run.is_ahead);
        let has_shortened = slice.work_off(
            ahead.iter().map(|run| run.id).collect(),
            |part: &[_]| shorten(store, part),
            |id, why| reject(&mut rejected, id, &why),
        )?;
        let has_recovered = recover_lost(store, slice, &lost, &mut rejected)?;
        if !slice.try_go_on(has_recovered || has_shortened, is_full) {
            return Ok(());
        }
    }
}

/// Recovers runs whose leases expired, and logs what became of each. Returns whether it recovered
/// any. Adds the runs whose change the database rejects to `rejected`.
fn recover_lost(
    store: &Store,
    slice: &mut TimeSlice,
    lost: &[LostLease],
    rejected: &mut Vec<i64>,
) -> store::Result<bool> {
    const ERROR: &str = "lease expired: its worker crashed, hung or lost the database";
    let attempts: Vec<LostAttempt> = lost
        .iter()
        .map(|run| {
            let counted = run.attempt - run.uncounted_attempts;
            (run.id, run.attempt, wait_after(counted, &run.backoff, rand::random()))
        })
        .collect();
    let mut recovered = Vec::new();
    let recover_part = |part: &[_]| {
        let before = recovered.len();
        recovered.extend(store.recover(part, ERROR)?);
        let has_changed = recovered.len() > before;
        Ok(has_changed)
    };
    let has_recovered = slice
        .work_off(attempts.clone(), recover_part, |(id, ..), why| reject(rejected, id, &why))?;
    for (run, (.., wait)) in lost.iter().zip(&attempts) {
        if let Some(recovered) = recovered.iter().find(|recovered| recovered.id == run.id) {
            log_recovered(run, recovered, *wait);
        }
    }
    Ok(has_recovered)
}

/// Leaves a run alone until the next wake, because the database rejects its change. Returns
/// `false`: no row was changed.
fn reject(rejected: &mut Vec<i64>, id: i64, why: &store::Error) -> store::Result<bool> {
    static LOGGED: Once = Once::new();
    LOGGED.call_once(|| log::error!(run = id; "run {id}: {why}"));
    rejected.push(id);
    Ok(false)
}

/// Shortens leases that end later than any tick may ask for. Returns whether it changed any.
fn shorten(store: &Store, ids: &[i64]) -> store::Result<bool> {
    let shortened = store.shorten_leases(ids.to_vec())?;
    for (id, ends_in) in &shortened {
        log::warn!(
            run = *id;
            "run {id}: its lease now ends in {}, because its old end came from a clock of the \
             database that was ahead; if its worker is gone: `jobctl retry --force {id}`",
            duration::show(*ends_in)
        );
    }
    Ok(!shortened.is_empty())
}

/// Logs a run whose lease was lost, and what became of it. `wait` is the time until its next
/// attempt, if it has one.
fn log_recovered(run: &LostLease, recovered: &Recovered, wait: Duration) {
    let subject = attempt::describe(run.id, &run.job_type, run.attempt, run.max_attempts);
    let next = match recovered.status {
        Status::Failed if recovered.expires_first => EXPIRES_FIRST.to_owned(),
        Status::Failed => format!("next attempt in {}", duration::show(wait)),
        other => other.as_str().to_owned(),
    };
    let has_next = recovered.status == Status::Failed && !recovered.expires_first;
    let next_attempt_seconds = if has_next { Some(wait.as_secs_f64()) } else { None };
    log::warn!(
        run = run.id,
        job = run.job_type,
        attempt = run.attempt,
        worker = run.worker,
        status = recovered.status.as_str(),
        error_type = ErrorType::LeaseExpired.as_str(),
        next_attempt_seconds = next_attempt_seconds;
        "{subject}: lease of worker {} expired, {next}",
        run.worker.escape_debug()
    );
}
