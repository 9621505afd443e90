//! The facts about problems of the work.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::row::{PgResult, owned, rows};
use super::{Limits, Result, Store, query};
use crate::connect::Client;
use crate::health::limits::Thresholds;
use crate::schedule::due::Scheduled;

rows! {
    /// The facts of a finding, see look/findings.sql. Absent parts are not its subject.
    pub(crate) struct Fact {
        pub(crate) code: String,
        pub(crate) job_type: Option<String>,
        pub(crate) queue: Option<String>,
        pub(crate) worker: Option<String>,
        pub(crate) run_id: Option<i64>,
        pub(crate) since_at: Option<DateTime<Utc>>,
        pub(crate) runs: i64,
        pub(crate) detail: Option<String>,
    }
}

/// The problems of the work at one moment.
#[derive(Debug, Default)]
pub(crate) struct WorkFacts {
    /// By the database's clock.
    pub(crate) now: DateTime<Utc>,
    pub(crate) facts: Vec<Fact>,
    /// The definitions of the jobs, without their last runs.
    pub(crate) scheduled: Vec<Scheduled>,
    /// Whether the role of this session has the privileges of an operator.
    pub(crate) operates: bool,
}

impl Store {
    /// Returns the problems of all jobs, or only those of `jobs` and of all workers.
    pub(crate) fn inspect_work(
        &self,
        jobs: Option<Vec<String>>,
        limits: Thresholds,
    ) -> Result<WorkFacts> {
        let moment = Limits { one_moment: true, ..self.limits };
        self.transact_within(moment, "inspect the work", move |client| {
            read_work(client, jobs.as_ref(), &limits)
        })
    }

    /// Returns whether any run of this job is kept, defined or not.
    pub(crate) fn has_runs(&self, job: String) -> Result<bool> {
        self.query("look for runs", Client::one, query!("look/has_runs"), owned![job])
    }
}

/// Reads the problems in the transaction of the caller.
pub(super) fn read_work(
    client: &mut Client,
    jobs: Option<&Vec<String>>,
    limits: &Thresholds,
) -> PgResult<WorkFacts> {
    let mut scheduled: Vec<Scheduled> =
        client.list(query!("look/list_schedules"), &[&None::<String>, &false])?;
    scheduled.retain(|one| jobs.is_none_or(|jobs| jobs.contains(&one.name)));
    let (tick_age, lag) = (limits.tick_age.as_secs_f64(), limits.lag.as_secs_f64());
    let seconds = |limit: Option<Duration>| limit.map(|limit| limit.as_secs_f64());
    let (running, dead) = (seconds(limits.running), seconds(limits.dead_within));
    let failures = seconds(limits.failures.map(|(_, within)| within));
    let facts = client
        .list(query!("look/findings"), &[&jobs, &tick_age, &lag, &running, &dead, &failures])?;
    let now = client.one(query!("look/now"), &[])?;
    let operates = client.one(query!("look/operates"), &[])?;
    Ok(WorkFacts { now, facts, scheduled, operates })
}
