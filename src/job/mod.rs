//! Jobs and their runs: what to execute, with which limits, and the effect of a result. Pure.

pub(crate) mod action;
pub(crate) mod attempt;
pub(crate) mod backoff;
pub(crate) mod command_text;
pub(crate) mod crontab_import;
pub(crate) mod definition;
pub(crate) mod definition_keys;
pub(crate) mod due;
pub(crate) mod enqueue;
pub(crate) mod failure;
pub(crate) mod finding_code;
pub(crate) mod graph;
pub(crate) mod next_status;
pub(crate) mod payload;
pub(crate) mod program_version;
pub(crate) mod redact;
pub(crate) mod seen_ticks;
pub(crate) mod status;
pub(crate) mod stored_definition;
pub(crate) mod thresholds;
