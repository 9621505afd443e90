//! The rows of a list as they are printed. The statement that reads them defines the names and the
//! order of their fields.

use std::cmp::Ordering;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::did_you_mean;

#[derive(Clone, Debug)]
pub(crate) struct Listing {
    /// The names of the fields, also if there is no row.
    pub(crate) names: Arc<[String]>,
    pub(crate) rows: Vec<ListedRow>,
    /// The time of the database's clock, if the statement returns it.
    pub(crate) now: Option<DateTime<Utc>>,
}

/// A row; in JSON, an object.
#[derive(Clone, Debug)]
pub(crate) struct ListedRow {
    pub(crate) names: Arc<[String]>,
    pub(crate) values: Vec<Value>,
}

impl Listing {
    /// Keeps these fields, in this order. An unknown name is an error.
    pub(crate) fn select(&mut self, fields: &[String]) -> Result<(), String> {
        for (place, name) in fields.iter().enumerate() {
            self.check(name)?;
            if fields[..place].contains(name) {
                return Err(format!("field `{name}` is named twice"));
            }
        }
        self.names = fields.into();
        for row in &mut self.rows {
            row.values = fields.iter().map(|name| row.value(name).clone()).collect();
            row.names = Arc::clone(&self.names);
        }
        Ok(())
    }

    /// Sorts the rows by these fields; `-` before a name sorts backwards. Null comes last.
    pub(crate) fn sort(&mut self, fields: &[String]) -> Result<(), String> {
        // Sort by the first field at the end, because a later sort keeps the order of equal rows.
        for field in fields.iter().rev() {
            let (name, is_backwards) =
                field.strip_prefix('-').map_or((&**field, false), |name| (name, true));
            self.check(name)?;
            self.rows.sort_by(|a, b| match (a.value(name), b.value(name)) {
                (Value::Null, Value::Null) => Ordering::Equal,
                (Value::Null, _) => Ordering::Greater,
                (_, Value::Null) => Ordering::Less,
                (a, b) if is_backwards => compare(b, a),
                (a, b) => compare(a, b),
            });
        }
        Ok(())
    }

    /// Fails if there is no field with this name. The error suggests a similar name.
    fn check(&self, name: &str) -> Result<(), String> {
        if self.names.iter().any(|other| other == name) {
            return Ok(());
        }
        let word = name.to_lowercase();
        let mut names = self.names.iter().map(String::as_str);
        // The heading of a column is often a part of the name, as KEY of `idempotency_key`.
        let similar = names
            .rfind(|other| other.split('_').any(|part| part == word))
            .or_else(|| did_you_mean::nearest(&word, self.names.iter().map(String::as_str)));
        let suggestion = did_you_mean::question(similar);
        let known = self.names.join(", ");
        Err(format!("unknown field `{name}`; allowed are {known}{suggestion}"))
    }
}

/// Compares numbers by their values, and other values by their texts. The texts of times have the
/// order of the times.
fn compare(a: &Value, b: &Value) -> Ordering {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        _ => match (a.as_str(), b.as_str()) {
            (Some(a), Some(b)) => a.cmp(b),
            _ => a.to_string().cmp(&b.to_string()),
        },
    }
}

impl ListedRow {
    /// Returns the place of a field; the number of fields if there is no such field.
    fn index_of(&self, name: &str) -> usize {
        self.names.iter().position(|other| other == name).unwrap_or(self.names.len())
    }

    /// Returns the value of a field; null if there is no such field.
    pub(crate) fn value(&self, name: &str) -> &Value {
        self.values.get(self.index_of(name)).unwrap_or(&Value::Null)
    }

    /// Makes a field null.
    pub(crate) fn clear(&mut self, name: &str) {
        let place = self.index_of(name);
        if let Some(value) = self.values.get_mut(place) {
            *value = Value::Null;
        }
    }
}

impl Serialize for ListedRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.names.iter().zip(&self.values))
    }
}

impl Serialize for Listing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.rows.serialize(serializer)
    }
}
