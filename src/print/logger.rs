//! The log on stderr: its lines and its level.

use std::io::{self, Write};

use env_logger::fmt::style::AnsiColor;
use env_logger::{Target, WriteStyle};
use log::{LevelFilter, Record};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::answer::json_line;
use super::colour::is_coloured;
use super::log_writer::{LogFormat, LogWriter, set_format};
use crate::exit::Fault;
use crate::text::plain::{self, plain};

/// The keys and values of a line of the log in JSON. A line about an attempt has the attempt's
/// keys.
struct LogLine(Vec<(&'static str, Value)>);

impl Serialize for LogLine {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// The keys of an attempt. The status is that of the run after the attempt, or `lost` if another
/// tick recovered the run.
const ATTEMPT_KEYS: [&str; 11] = [
    "run",
    "job",
    "attempt",
    "worker",
    "status",
    "run_time_seconds",
    "error_type",
    "error",
    "last_line",
    "next_attempt_seconds",
    "trace_id",
];

/// Starts the log on stderr: one line an event. `JOBCTL_LOG` overrides the level.
pub(crate) fn start_log(usual: LevelFilter, format: LogFormat) -> anyhow::Result<()> {
    set_format(format);
    let mut builder = env_logger::Builder::new();
    let is_coloured = is_coloured(&io::stderr());
    builder.write_style(if is_coloured { WriteStyle::Always } else { WriteStyle::Never });
    builder.target(Target::Pipe(Box::new(LogWriter)));
    let most = match std::env::var("JOBCTL_LOG") {
        Ok(filter) => filter.parse().map_err(|_| {
            Fault::usage(format!(
                "JOBCTL_LOG is `{}`; write off, error, warn, info, debug or trace",
                plain(&filter)
            ))
        })?,
        Err(_) => usual,
    };
    for module in ["jobctl", "postgres_connect"] {
        builder.filter_module(module, most);
    }
    builder.format(move |buffer, record| {
        let (time, message) = (buffer.timestamp().to_string(), record.args().to_string());
        let message = plain::cut(&message);
        let level = record.level().as_str().to_ascii_lowercase();
        if format == LogFormat::Json {
            let mut line = vec![
                ("time", time.into()),
                ("level", level.into()),
                ("message", message.as_ref().into()),
            ];
            let keys = ATTEMPT_KEYS.into_iter();
            line.extend(keys.filter_map(|key| Some((key, json_of(&value_of(record, key)?)?))));
            return buffer
                .write_all(json_line(&LogLine(line)).map_err(io::Error::other)?.as_bytes());
        }
        // A failure that is retried has the level of a success, because cron must not mail it. So
        // show it by its colour.
        let style = match value_of(record, "status") {
            Some(status) if status.to_string() == "failed" => AnsiColor::Yellow.on_default(),
            _ => buffer.default_level_style(record.level()),
        };
        writeln!(buffer, "{time} {style}{level:<5}{style:#} {}", plain(&message))
    });
    builder.init();
    Ok(())
}

/// Returns a log record's value as JSON; `None` if it is neither a number nor a text.
fn json_of(value: &log::kv::Value<'_>) -> Option<Value> {
    let number = value.to_i64().map(Value::from).or_else(|| value.to_f64().map(Value::from));
    number.or_else(|| value.to_borrowed_str().map(Value::from))
}

/// Returns the value of a key of a log record, if it has the key.
fn value_of<'a>(record: &'a Record<'_>, key: &'a str) -> Option<log::kv::Value<'a>> {
    record.key_values().get(key.into())
}
