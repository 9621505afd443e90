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

/// Lost leases recovered per statement.
const RECOVERED_AT_ONCE: usize = 500;

/// A run, its attempt and the wait before the next one.
impl Item for (i64, i32, Duration) {
    fn run(&self) -> Option<i64> {
        Some(self.0)
    }
}

/// Recovers the runs whose leases ran out. A run whose every attempt kills its worker is marked
/// dead here.
pub(super) fn recover(store: &Store, slice: &mut TimeSlice) -> store::Result<()> {
    const WHAT: &str = "lease expired: its worker crashed, hung or lost the database";
    let mut rejected = slice.state.slow();
    loop {
        let found = store.lost_leases(RECOVERED_AT_ONCE, rejected.clone())?;
        let is_full = found.len() == RECOVERED_AT_ONCE;
        let (ahead, lost): (Vec<_>, Vec<_>) = found.into_iter().partition(|run| run.is_ahead);
        let ids = ahead.iter().map(|run| run.id).collect();
        let shorten = |part: &[_]| shorten(store, part);
        let reject_lease = |id, why| reject(&mut rejected, id, &why);
        let has_shortened = slice.work_off(ids, shorten, reject_lease)?;
        let wait = |run: &LostLease| {
            let counted = run.attempt - run.uncounted_attempts;
            (run.id, run.attempt, wait_after(counted, &run.backoff, rand::random()))
        };
        let waits: Vec<_> = lost.iter().map(wait).collect();
        let mut recovered = Vec::new();
        let recover = |part: &[_]| {
            let before = recovered.len();
            recovered.extend(store.recover(part, WHAT)?);
            Ok(recovered.len() > before)
        };
        let reject_run = |(id, ..): (i64, i32, Duration), why| reject(&mut rejected, id, &why);
        let has_recovered = slice.work_off(waits.clone(), recover, reject_run)?;
        for (run, (.., wait)) in lost.iter().zip(&waits) {
            if let Some(recovered) = recovered.iter().find(|recovered| recovered.id == run.id) {
                log_recovered(run, recovered, *wait);
            }
        }
        if !slice.try_go_on(has_recovered || has_shortened, is_full) {
            return Ok(());
        }
    }
}

/// Leaves a run alone whose change the database rejects, until the next wake. Returns `false`: no
/// row was changed.
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

/// Logs a run whose lease was lost, and what became of it.
fn log_recovered(run: &LostLease, recovered: &Recovered, wait: Duration) {
    let subject = attempt::describe(run.id, &run.job_type, run.attempt, run.max_attempts);
    let next = match recovered.status {
        Status::Failed if recovered.expires_first => EXPIRES_FIRST.to_owned(),
        Status::Failed => format!("next attempt in {}", duration::show(wait)),
        other => other.as_str().to_owned(),
    };
    let has_next = recovered.status == Status::Failed && !recovered.expires_first;
    log::warn!(
        run = run.id,
        job = run.job_type,
        attempt = run.attempt,
        worker = run.worker,
        status = recovered.status.as_str(),
        error_type = ErrorType::LeaseExpired.as_str(),
        next_attempt_seconds = has_next.then_some(wait.as_secs_f64());
        "{subject}: lease of worker {} expired, {next}",
        run.worker.escape_debug()
    );
}
