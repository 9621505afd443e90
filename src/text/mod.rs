//! Text for people and programs: durations, lists, plurals, suggestions, times. Pure.

pub(crate) mod did_you_mean;
pub(crate) mod listing;
pub(crate) mod plain;
pub(crate) mod plural;
pub(crate) mod shell;
pub(crate) mod timestamp;
pub(crate) mod words;

pub(crate) use cron_zone::duration;
