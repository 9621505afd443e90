//! The codes of findings about the work. Pure.

use crate::text::words::words;

words! {
    /// What a finding is about. The order is that of findings that are equally bad: likely causes
    /// first.
    pub(crate) enum Code {
        RestoreUnaccepted = "restore_unaccepted",
        DatabaseReadOnly = "database_read_only",
        WorkerMissing = "worker_missing",
        WorkerSilent = "worker_silent",
        DatabaseSlow = "database_slow",
        SequenceBehind = "sequence_behind",
        DefinitionMissing = "definition_missing",
        QueueUnserved = "queue_unserved",
        JobUnserved = "job_unserved",
        RunsOverdue = "runs_overdue",
        RunsRejected = "runs_rejected",
        RunsSnoozing = "runs_snoozing",
        ClockAhead = "clock_ahead",
        RunsStuck = "runs_stuck",
        RunsUnreleased = "runs_unreleased",
        ScheduleBroken = "schedule_broken",
        ScheduleSkipping = "schedule_skipping",
        ScheduleLate = "schedule_late",
        LeaseLost = "lease_lost",
        ResultsUnrecorded = "results_unrecorded",
        JobFailing = "job_failing",
        RunsDead = "runs_dead",
        JobStale = "job_stale",
        TimeoutMissing = "timeout_missing",
        PruneMissing = "prune_missing",
        EffectOpen = "effect_open",
        RunsHeld = "runs_held",
        SchedulePaused = "schedule_paused",
        JobDisabled = "job_disabled",
        RunLong = "run_long",
        RunUnusual = "run_unusual",
        AttemptsFailing = "attempts_failing",
    }
}

impl Code {
    /// Of holds, paused and disabled jobs.
    pub(crate) const STOPPED: [Self; 3] = [Self::RunsHeld, Self::SchedulePaused, Self::JobDisabled];

    /// The check of `doctor` that finds it. Only a flag of `check` asks for `RunLong` and
    /// `AttemptsFailing`.
    pub(crate) fn check(self) -> &'static str {
        match self {
            Self::RestoreUnaccepted => "restores",
            // `doctor` has this check without it.
            Self::DatabaseReadOnly => "writes",
            Self::WorkerMissing | Self::WorkerSilent => "ticks",
            Self::DatabaseSlow => "answers",
            Self::SequenceBehind => "sequences",
            Self::DefinitionMissing => "definitions",
            Self::QueueUnserved | Self::JobUnserved => "queues",
            Self::RunsOverdue => "overdue runs",
            Self::RunsRejected => "claims",
            Self::RunsSnoozing => "snoozes",
            Self::ClockAhead => "due times",
            Self::RunsStuck | Self::RunsUnreleased => "blocked runs",
            Self::ScheduleBroken | Self::ScheduleSkipping | Self::ScheduleLate => "schedules",
            Self::LeaseLost => "leases",
            Self::ResultsUnrecorded => "results",
            Self::JobFailing => "attempts",
            Self::RunsDead => "dead runs",
            Self::JobStale => "freshness",
            Self::TimeoutMissing => "timeouts",
            Self::PruneMissing => "history",
            Self::EffectOpen => "effects",
            Self::RunsHeld => "holds",
            Self::SchedulePaused | Self::JobDisabled => "pauses",
            Self::RunLong => "long runs",
            Self::RunUnusual => "run times",
            Self::AttemptsFailing => "failures",
        }
    }
}
