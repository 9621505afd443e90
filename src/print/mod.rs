//! Writes answers to stdout, and errors, hints and the log to stderr.

mod answer;
mod cell;
mod colour;
mod fields;
mod fit;
mod log_writer;
mod logger;
mod message;
mod progress;
mod rate_limit;
mod summary;
mod table;

pub(crate) use answer::{
    Format, Output, answer, excerpt, facts, hint, json, list, object, redraw, row, rows, section,
    tsv, tsv_list,
};
pub(crate) use cell::{Cell, TimeForm};
pub(crate) use colour::{Colour, set_colour};
pub(crate) use fields::Fields;
pub(crate) use log_writer::{LogFormat, finish};
pub(crate) use logger::start_log;
pub(crate) use message::{can_ask, complain, confirm, explain, unaskable};
pub(crate) use progress::Progress;
pub(crate) use rate_limit::complain_hourly;
pub(crate) use summary::Summary;
pub(crate) use table::Table;
