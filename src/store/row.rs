//! Arguments of statements and the rows that they return, by type: the SQL type of an argument
//! follows from its Rust type, and a struct's field is the column of the same name.

use std::error::Error;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use postgres::Row;
use postgres::row::RowIndex;
use postgres::types::private::BytesMut;
use postgres::types::{FromSql, FromSqlOwned, IsNull, Json, ToSql, Type, to_sql_checked};
use serde::Serialize;
use serde_json::{Value, to_value, value};

use super::seconds;
use crate::job::action::JobKind;
use crate::job::attempt::HistoryOutcome;
use crate::job::due::{DueSchedule, Scheduled};
use crate::job::enqueue::{AfterRule, EnqueueResult, KeyScope, OnConflict};
use crate::job::failure::ErrorType;
use crate::job::finding_code::Code;
use crate::job::graph::Job;
use crate::job::status::{HoldScope, Status};
use crate::text::listing::{ListedRow, Listing};
pub(super) use crate::text::timestamp;

pub(super) type PgResult<T> = std::result::Result<T, postgres::Error>;

/// A parameter and the type that the statement casts it to.
type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// A Rust type that has one SQL type.
pub(super) trait SqlType {
    const TYPE: Type;
    /// The SQL type of an array of this type. UNKNOWN for types that never occur in an array.
    const ARRAY: Type = Type::UNKNOWN;
}

/// Defines the SQL type of Rust types, and of arrays of them.
macro_rules! sql_types {
    ($($rust:ty: $sql:ident, $array:ident;)+) => {$(
        impl SqlType for $rust {
            const TYPE: Type = Type::$sql;
            const ARRAY: Type = Type::$array;
        }
    )+};
}
sql_types! {
    bool: BOOL, BOOL_ARRAY;
    i32: INT4, INT4_ARRAY;
    i64: INT8, INT8_ARRAY;
    f64: FLOAT8, FLOAT8_ARRAY;
    str: TEXT, TEXT_ARRAY;
    String: TEXT, TEXT_ARRAY;
    DateTime<Utc>: TIMESTAMPTZ, TIMESTAMPTZ_ARRAY;
    Value: JSONB, JSONB_ARRAY;
}

impl<T> SqlType for Json<T> {
    const TYPE: Type = Type::JSONB;
}

/// Defines enums as texts, of which each variant is one word. Any other word is an error of the
/// row.
macro_rules! word_types {
    ($($rust:ty),+ $(,)?) => {$(
        impl SqlType for $rust {
            const TYPE: Type = Type::TEXT;
            const ARRAY: Type = Type::TEXT_ARRAY;
        }

        impl<'a> FromSql<'a> for $rust {
            fn from_sql(sql_type: &Type, raw: &'a [u8]) -> FromSqlResult<Self> {
                let word = <&str>::from_sql(sql_type, raw)?;
                Self::of(word).ok_or_else(|| format!("the word {word:?} is unknown").into())
            }

            fn accepts(sql_type: &Type) -> bool {
                <&str as FromSql>::accepts(sql_type)
            }
        }

        impl ToSql for $rust {
            fn to_sql(&self, sql_type: &Type, out: &mut BytesMut) -> FromSqlResult<IsNull> {
                self.as_str().to_sql(sql_type, out)
            }

            fn accepts(sql_type: &Type) -> bool {
                <&str as ToSql>::accepts(sql_type)
            }

            to_sql_checked!();
        }
    )+};
}
word_types!(
    AfterRule,
    Code,
    EnqueueResult,
    ErrorType,
    HistoryOutcome,
    HoldScope,
    JobKind,
    KeyScope,
    OnConflict,
    Status
);

type FromSqlResult<T> = std::result::Result<T, Box<dyn Error + Sync + Send>>;

impl<T: SqlType + ?Sized> SqlType for &T {
    const TYPE: Type = T::TYPE;
    const ARRAY: Type = T::ARRAY;
}

impl<T: SqlType> SqlType for Option<T> {
    const TYPE: Type = T::TYPE;
    const ARRAY: Type = T::ARRAY;
}

impl<T: SqlType> SqlType for [T] {
    const TYPE: Type = T::ARRAY;
}

impl<T: SqlType> SqlType for Vec<T> {
    const TYPE: Type = T::ARRAY;
}

/// A value that is passed to a statement.
pub(super) trait Argument {
    /// Returns the value with its SQL type.
    fn typed(&self) -> Parameter<'_>;
}

impl<T: SqlType + ToSql + Sync> Argument for T {
    fn typed(&self) -> Parameter<'_> {
        (self, T::TYPE)
    }
}

/// Returns one column of a batch of rows: the argument of a statement that reads arrays.
pub(super) fn column<'a, T, U>(rows: &'a [T], value: impl Fn(&'a T) -> U) -> Vec<U> {
    rows.iter().map(value).collect()
}

/// A type that a row is read as: a struct of `rows!`, one column, or a tuple of columns.
pub(super) trait FromRow: Sized {
    fn from_row(row: &Row) -> PgResult<Self>;
}

/// A type that a column is read as.
pub(super) trait FromColumn: Sized {
    fn from_column(row: &Row, column: impl RowIndex + Display) -> PgResult<Self>;
}

impl<T: SqlType + FromSqlOwned> FromColumn for T {
    fn from_column(row: &Row, column: impl RowIndex + Display) -> PgResult<Self> {
        row.try_get(column)
    }
}

/// A number of seconds.
impl FromColumn for Duration {
    fn from_column(row: &Row, column: impl RowIndex + Display) -> PgResult<Self> {
        row.try_get(column).map(seconds)
    }
}

impl FromColumn for Option<Duration> {
    fn from_column(row: &Row, column: impl RowIndex + Display) -> PgResult<Self> {
        row.try_get::<_, Option<f64>>(column).map(|number| number.map(seconds))
    }
}

impl<T: FromColumn> FromRow for T {
    fn from_row(row: &Row) -> PgResult<Self> {
        T::from_column(row, 0)
    }
}

impl<A: FromColumn, B: FromColumn> FromRow for (A, B) {
    fn from_row(row: &Row) -> PgResult<Self> {
        Ok((A::from_column(row, 0)?, B::from_column(row, 1)?))
    }
}

impl<A: FromColumn, B: FromColumn, C: FromColumn> FromRow for (A, B, C) {
    fn from_row(row: &Row) -> PgResult<Self> {
        Ok((A::from_column(row, 0)?, B::from_column(row, 1)?, C::from_column(row, 2)?))
    }
}

/// Defines structs that are read from rows: each field from the column of the same name. A field
/// with `= value` is not a column, and starts with that value. In JSON, the fields have these
/// names, too. `as` names the module that writes a field as JSON.
macro_rules! rows {
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[$field_meta:meta])*
                $field_vis:vis $field:ident: $type:ty $(as $json:literal)? $(= $value:expr)?,
            )+
        }
    )+) => {$(
        #[derive(Clone, Debug, Default, serde::Serialize)]
        $(#[$meta])*
        $vis struct $name {
            $($(#[$field_meta])* $(#[serde(with = $json)])? $field_vis $field: $type,)+
        }

        $crate::store::row::from_row!($name { $($field $(= $value)?,)+ });
    )+};
}
pub(super) use rows;

/// Reads a struct that is defined elsewhere as `rows!` does.
macro_rules! from_row {
    ($name:ident { $($field:ident $(= $value:expr)?),+ $(,)? }) => {
        impl $crate::store::row::FromRow for $name {
            fn from_row(row: &postgres::Row) -> $crate::store::row::PgResult<Self> {
                Ok(Self { $($field: $crate::store::row::from_row!(row, $field $($value)?),)+ })
            }
        }
    };
    ($row:ident, $field:ident) => {
        $crate::store::row::FromColumn::from_column($row, stringify!($field))?
    };
    ($row:ident, $field:ident $value:expr) => { $value };
}
pub(super) use from_row;

from_row!(Job { name, schedule, time_zone, after, hooks });
from_row!(Scheduled {
    name,
    schedule,
    time_zone,
    after,
    enabled,
    paused_at,
    next_run_at,
    skipped_fires,
    application_schedule,
    owner,
    schedules,
    last_status,
    last_succeeded_at,
    usual_seconds,
    now,
});
from_row!(DueSchedule {
    id,
    schedule_id,
    name,
    application_schedule,
    schedule,
    time_zone,
    catch_up,
    most_fires,
    spread,
    seen,
    stored_at,
    starts_at,
    ends_at,
    resumed_at,
    now,
});

/// Returns a column as JSON.
fn json(row: &Row, column: usize) -> PgResult<Value> {
    fn json_of<T: FromSqlOwned + Serialize>(row: &Row, column: usize) -> PgResult<Value> {
        Ok(to_value(row.try_get::<_, Option<T>>(column)?).unwrap_or_default())
    }
    match row.columns()[column].type_().clone() {
        Type::BOOL => json_of::<bool>(row, column),
        Type::INT4 => json_of::<i32>(row, column),
        Type::INT8 => json_of::<i64>(row, column),
        Type::FLOAT8 => json_of::<f64>(row, column),
        Type::INT8_ARRAY => json_of::<Vec<i64>>(row, column),
        Type::TEXT_ARRAY => json_of::<Vec<String>>(row, column),
        Type::JSONB => json_of::<Value>(row, column),
        Type::TIMESTAMPTZ => {
            let at: Option<DateTime<Utc>> = row.try_get(column)?;
            Ok(timestamp::serialize(&at, value::Serializer).unwrap_or_default())
        }
        _ => json_of::<String>(row, column),
    }
}

/// Returns the rows of a list, to print them. Its fields are the columns before `now`; later
/// columns are not printed. Without rows, the row `nulls` names the columns.
pub(super) fn listing(rows: &[Row], nulls: Option<&Row>) -> PgResult<Listing> {
    let columns = rows.first().or(nulls).map(Row::columns).unwrap_or_default();
    let column_names = columns.iter().map(|column| column.name().to_owned());
    let names: Arc<[_]> = column_names.take_while(|name| name != "now").collect();
    let fields = names.len();
    let now = match rows.first() {
        // The column after the fields is `now`, which is the same in each row.
        Some(row) if row.len() > fields => Some(row.try_get(fields)?),
        _ => None,
    };
    let mut listed = Vec::with_capacity(rows.len());
    for row in rows {
        let values = (0..fields).map(|field| json(row, field)).collect::<PgResult<_>>()?;
        listed.push(ListedRow { names: Arc::clone(&names), values });
    }
    Ok(Listing { rows: listed, now, names })
}
