//! The fields of a row, read from its JSON. So the struct of a row, or the SELECT list of a
//! listing, defines the row's JSON, its TSV and the columns of its table.

use std::fmt;
use std::time::Duration;

use anyhow::Context;
use chrono::{DateTime, Utc};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::cell::Cell;
use crate::job::status::Status;
use crate::text::plain::plain;

/// Field names and the JSON of their values, in the order of the struct.
pub(crate) struct Fields(Vec<(String, Box<RawValue>)>);

impl Fields {
    pub(crate) fn of<T: Serialize>(row: &T) -> anyhow::Result<Self> {
        let json = serde_json::to_string(row).context("cannot write JSON")?;
        serde_json::from_str(&json).context("cannot read a row's fields")
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Returns the values as TSV has them.
    pub(super) fn values(&self) -> Vec<String> {
        self.0.iter().map(|(name, value)| text(name, value.get()).unwrap_or_default()).collect()
    }

    /// Returns a line for each field: its name and its value.
    pub(super) fn lines(&self) -> String {
        let mut lines = String::new();
        for (name, value) in self.names().into_iter().zip(self.values()) {
            lines.extend([format!("{name}\t{value}").trim_end_matches('\t'), "\n"]);
        }
        lines
    }

    /// Returns the values of these columns with their headings, as people see them.
    pub(crate) fn cells<'a>(
        &self,
        list: &'a str,
        now: Option<DateTime<Utc>>,
    ) -> Vec<(&'a str, Cell)> {
        columns(list).map(|(heading, name)| (heading, self.cell(name, now))).collect()
    }

    /// Returns the JSON of a field's value; `null` if there is no such field.
    fn json(&self, name: &str) -> &str {
        self.0.iter().find(|(field, _)| field == name).map_or("null", |(_, value)| value.get())
    }

    /// Returns a value as people see it. The end of the field's name says its type: `_seconds` is a
    /// length of time; `_at`, `_until` and `_for` are times. `a/b` is a pair of fields, `a|b` the
    /// first of two that is not null, `a+b` two texts with a blank between them.
    pub(super) fn cell(&self, name: &str, now: Option<DateTime<Utc>>) -> Cell {
        if let Some((of, all)) = name.split_once('/') {
            return Cell::Whole(format!("{}/{}", self.json(of), self.json(all)));
        }
        if let Some((first, second)) = name.split_once('|') {
            let name = if self.json(first) == "null" { second } else { first };
            return self.cell(name, now);
        }
        if let Some((first, second)) = name.split_once('+') {
            let texts = [first, second].into_iter().filter_map(|name| text(name, self.json(name)));
            let texts = texts.collect::<Vec<_>>().join(" ");
            return if texts.is_empty() { Cell::Nothing } else { Cell::Text(texts) };
        }
        let json = self.json(name);
        let Some(text) = text(name, json) else { return Cell::Nothing };
        if name.ends_with("_seconds") {
            let seconds = text.parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
            return Cell::Length(seconds.unwrap_or_default());
        }
        if ["_at", "_until", "_for"].iter().any(|suffix| name.ends_with(suffix))
            && let Ok(at) = DateTime::parse_from_rfc3339(&text)
        {
            return Cell::Time(at.to_utc(), now);
        }
        match name {
            "status" | "last_status" | "outcome" | "severity" => Cell::Status(text),
            "running_runs" if text != "0" => Cell::Number(text, Some(Status::Running)),
            "failed_runs" if text != "0" => Cell::Number(text, Some(Status::Failed)),
            "dead_runs" if text != "0" => Cell::Number(text, Some(Status::Dead)),
            "local_time" => {
                let local = DateTime::parse_from_rfc3339(&text);
                Cell::Whole(local.map_or(text, |at| at.format("%a %Y-%m-%d %H:%M %:z").to_string()))
            }
            _ if json.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => {
                Cell::Number(text, None)
            }
            _ => Cell::Text(text),
        }
    }
}

/// Returns the heading and the field of each column of a list such as `id, job_type as job`.
pub(super) fn columns(list: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts = |column| str::split_once(column, " as ").unwrap_or((column, column));
    list.split(", ").map(parts).map(|(field, heading)| (heading, field))
}

/// Returns the text of a JSON value; `None` for null. A list of words or ids becomes these words
/// with commas. Another list, an object or a payload stays JSON.
fn text(name: &str, json: &str) -> Option<String> {
    match json.as_bytes().first() {
        _ if json == "null" => None,
        _ if name == "payload" => Some(plain(json)),
        Some(b'"') => serde_json::from_str(json).ok().map(|text: String| plain(&text)),
        Some(b'[') => {
            let words: Result<Vec<String>, _> = serde_json::from_str(json);
            let ids: Result<Vec<i64>, _> = serde_json::from_str(json);
            let ids = ids.map(|ids| ids.iter().map(i64::to_string).collect());
            Some(words.or(ids).map_or_else(|_| plain(json), |words| plain(&words.join(","))))
        }
        _ => Some(plain(json)),
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Fields, M::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}
