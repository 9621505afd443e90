//! The codes of findings about the work. Pure.

use crate::text::words::words;

words! {
    /// What a finding is about. Findings of the same severity are listed in this order: likely
    /// causes first.
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

    /// The checks of `doctor` that find these codes, in the order of its output.
    pub(crate) enum DoctorCheck {
        Restores = "restores",
        Ticks = "ticks",
        Writes = "writes",
        Answers = "answers",
        Sequences = "sequences",
        Definitions = "definitions",
        Queues = "queues",
        OverdueRuns = "overdue runs",
        Claims = "claims",
        Snoozes = "snoozes",
        DueTimes = "due times",
        BlockedRuns = "blocked runs",
        Schedules = "schedules",
        Leases = "leases",
        Results = "results",
        Attempts = "attempts",
        DeadRuns = "dead runs",
        Freshness = "freshness",
        LongRuns = "long runs",
        RunTimes = "run times",
        Failures = "failures",
        Timeouts = "timeouts",
        History = "history",
        Effects = "effects",
        Holds = "holds",
        Pauses = "pauses",
    }
}

impl Code {
    /// The codes of holds, paused schedules and disabled jobs.
    pub(crate) const STOPPED: [Self; 3] = [Self::RunsHeld, Self::SchedulePaused, Self::JobDisabled];

    /// Returns the check that finds this code.
    pub(crate) fn check(self) -> DoctorCheck {
        match self {
            Self::RestoreUnaccepted => DoctorCheck::Restores,
            Self::DatabaseReadOnly => DoctorCheck::Writes,
            Self::WorkerMissing | Self::WorkerSilent => DoctorCheck::Ticks,
            Self::DatabaseSlow => DoctorCheck::Answers,
            Self::SequenceBehind => DoctorCheck::Sequences,
            Self::DefinitionMissing => DoctorCheck::Definitions,
            Self::QueueUnserved | Self::JobUnserved => DoctorCheck::Queues,
            Self::RunsOverdue => DoctorCheck::OverdueRuns,
            Self::RunsRejected => DoctorCheck::Claims,
            Self::RunsSnoozing => DoctorCheck::Snoozes,
            Self::ClockAhead => DoctorCheck::DueTimes,
            Self::RunsStuck | Self::RunsUnreleased => DoctorCheck::BlockedRuns,
            Self::ScheduleBroken | Self::ScheduleSkipping | Self::ScheduleLate => {
                DoctorCheck::Schedules
            }
            Self::LeaseLost => DoctorCheck::Leases,
            Self::ResultsUnrecorded => DoctorCheck::Results,
            Self::JobFailing => DoctorCheck::Attempts,
            Self::RunsDead => DoctorCheck::DeadRuns,
            Self::JobStale => DoctorCheck::Freshness,
            Self::TimeoutMissing => DoctorCheck::Timeouts,
            Self::PruneMissing => DoctorCheck::History,
            Self::EffectOpen => DoctorCheck::Effects,
            Self::RunsHeld => DoctorCheck::Holds,
            Self::SchedulePaused | Self::JobDisabled => DoctorCheck::Pauses,
            Self::RunLong => DoctorCheck::LongRuns,
            Self::RunUnusual => DoctorCheck::RunTimes,
            Self::AttemptsFailing => DoctorCheck::Failures,
        }
    }
}

impl DoctorCheck {
    /// Returns what `doctor` prints if the check finds nothing. `None`: `doctor` leaves the check
    /// out.
    pub(crate) fn all_is_well(self) -> Option<&'static str> {
        Some(match self {
            // `doctor` has a check of its own for this: `health::writes`.
            Self::Writes => return None,
            // Only flags of `check` ask for these findings.
            Self::LongRuns | Self::Failures => return None,
            Self::Restores => "no tick has noticed a restored backup",
            Self::Ticks => "every worker ticks",
            Self::Answers => "no tick has waited for a slow database",
            Self::Sequences => "each sequence is ahead of its table",
            Self::Definitions => "every waiting run has a definition",
            Self::Queues => "workers serve all overdue runs",
            Self::OverdueRuns => "no run in a served queue is overdue",
            Self::Claims => "the database rejects the claim of no waiting run",
            Self::Snoozes => "no run has asked for a later attempt ten times",
            Self::DueTimes => {
                "no waiting run has a time that was written while the database's clock was ahead"
            }
            Self::BlockedRuns => {
                "no run waits for one that did not succeed, is unknown or ended long ago"
            }
            Self::Schedules => "no schedule is late",
            Self::Leases => "no run with an expired lease waits for recovery",
            Self::Results => "no result waits to be recorded",
            Self::Attempts => "no job keeps failing",
            Self::DeadRuns => "no dead run needs attention",
            Self::Freshness => "every job succeeded within its max_age",
            Self::RunTimes => "no run takes unusually long or short",
            Self::Timeouts => "every scheduled command has a timeout",
            Self::History => "no history needs to be pruned",
            Self::Effects => "no effect was left open",
            Self::Holds => "nothing is held",
            Self::Pauses => "no schedule is paused",
        })
    }
}
