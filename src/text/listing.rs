//! The rows of a list as they are printed: its statement defines the names and the order of their
//! fields.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer};
use serde_json::Value;

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

impl ListedRow {
    fn place(&self, name: &str) -> usize {
        self.names.iter().take_while(|other| *other != name).count()
    }

    /// Returns the value of a field; null if there is no such field.
    pub(crate) fn value(&self, name: &str) -> &Value {
        self.values.get(self.place(name)).unwrap_or(&Value::Null)
    }

    /// Makes a field null.
    pub(crate) fn clear(&mut self, name: &str) {
        let place = self.place(name);
        self.values.get_mut(place).map(Value::take);
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
