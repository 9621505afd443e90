//! The history as text. It contains no address and no instant of this machine, so the same seed
//! gives the same text.

use std::fmt::Write;
use std::time::Instant;

use super::super::machine::Event;
use super::super::request::{Answer, Request};
use crate::store::{self, Claim, Claimed, FencingToken};
use crate::tick::execution::{Ended, Task};

/// A claim as `RUN/ATTEMPT@SECONDS`.
pub(super) fn claim(claim: &FencingToken) -> String {
    format!("{}/{}@{}", claim.id, claim.attempt, claim.claimed_at.format("%M:%S%.6f"))
}

fn list<T>(items: impl IntoIterator<Item = T>, word: impl Fn(T) -> String) -> String {
    let mut text = String::from("[");
    for item in items {
        let _ = write!(text, " {}", word(item));
    }
    text + " ]"
}

fn run(run: &Claimed) -> String {
    let cancelled = if run.cancel_asked { " cancelled" } else { "" };
    format!("{} {} of {}{cancelled}", claim(&run.token()), run.job_type, run.max_attempts)
}

fn result<T>(result: &store::Result<T>, word: impl Fn(&T) -> String) -> String {
    match result {
        Ok(done) => word(done),
        Err(error) => format!("{:?}: {error}", error.kind),
    }
}

pub(super) fn event(event: &Event) -> String {
    let ended = |ended: &Ended| match ended {
        Ended::Judged(judged) => {
            format!("{} {}", claim(&judged.run.token()), judged.next_status.outcome)
        }
        Ended::Unstarted(it) => format!("{} unstarted", run(it)),
        Ended::Exhausted(it, _) => format!("{} exhausted", run(it)),
    };
    match event {
        Event::ConnectFailed(error) => format!("connect failed: {error}"),
        Event::Failed(error) => format!("Failed: {error}"),
        Event::Answered(it) => format!("Answered {}", answer(it)),
        Event::Ended(attempts) => format!("Ended {}", list(attempts, ended)),
        Event::Connected | Event::Signal | Event::Time => format!("{event:?}"),
    }
}

pub(super) fn tasks(tasks: &[Task], now: Instant) -> String {
    let word = |task: &Task| {
        format!("{} until {} {:?}", run(&task.run), after(task.until, now), task.stopped)
    };
    list(tasks, word)
}

pub(super) fn claims(claims: &[FencingToken]) -> String {
    list(claims, claim)
}

pub(super) fn after(until: Instant, now: Instant) -> String {
    format!("in {:?}", until.saturating_duration_since(now))
}

pub(super) fn request(request: &Request) -> String {
    let wanted = |claim: &Claim| {
        let Claim { at_most, free_threads, release_right, limits, .. } = claim;
        let continues = if claim.after.is_some() { " continues" } else { "" };
        format!("{at_most} free {free_threads} leave {release_right} limits {limits}{continues}")
    };
    match request {
        Request::Wake(asked) => {
            let own = list(&asked.own_claims, claim);
            let error = asked.failed_claim.as_ref().map(|failed| failed.error.to_string());
            format!("Wake keeps {} own {own} after {error:?}", asked.keeps_right)
        }
        Request::Step { results, kept, unstarted, claim: claims, skips_locked } => {
            let word =
                |it: &store::Finish| format!("{} {}", claim(&it.token), it.next_status.outcome);
            let (results, kept) = (list(results, word), list(kept, word));
            let unstarted = list(unstarted, claim);
            let claims = claims.as_ref().map(wanted);
            let skips = if *skips_locked { " skips locked" } else { "" };
            format!(
                "Step results {results} kept {kept} unstarted {unstarted} claim {claims:?}{skips}"
            )
        }
        Request::Renew { claims, kept } => {
            format!("Renew {} kept {}", list(claims, claim), list(kept, claim))
        }
        Request::Store(outputs) => format!("Store {}", list(outputs, |(it, _)| claim(it))),
        Request::Leave { .. } | Request::Prune => format!("{request:?}"),
    }
}

pub(super) fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Wake { woken, is_searching } => {
            let woken = result(woken, |it| format!("{it:?}"));
            format!("Wake {woken} searching {is_searching}")
        }
        Answer::Renew(it) => {
            let word = |(it, state): &store::Renewed| format!("{} {state:?}", claim(it));
            format!("Renew {}", result(it, |it| list(it, word)))
        }
        Answer::Step(Ok(step)) => {
            let mut recorded: Vec<_> = step.recorded.iter().collect();
            recorded.sort_by_key(|(claim, _)| **claim);
            let word = |(it, status): (&FencingToken, &_)| format!("{} {status:?}", claim(it));
            let recorded = list(recorded, word);
            let (locked, taken) = (&step.locked, list(&step.taken.claimed, run));
            let skipped = if step.taken.skipped.is_some() { " skipped" } else { "" };
            format!("Step recorded {recorded} locked {locked:?} claimed {taken}{skipped}")
        }
        Answer::Step(Err((error, made))) => {
            format!("Step {:?}: {error}, perhaps {}", error.kind, list(made, claim))
        }
        Answer::Store(left) => format!("Store left {}", result(left, |it| format!("{it:?}"))),
        Answer::Leave(it) => format!("Leave {}", result(it, |()| String::new())),
        Answer::Prune => "Prune".to_owned(),
    }
}
