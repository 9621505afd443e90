//! The rules for a payload: JSON that PostgreSQL's `jsonb` keeps whole and that every reader
//! understands alike. Pure.
//!
//! The database checks payloads too, but it cannot say where a mistake is, and `jsonb` silently
//! keeps the last of several equal keys.

use std::collections::HashSet;
use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_path_to_error::Segment;

use crate::text::{did_you_mean, plain};

/// The most bytes of a payload, as it was given.
pub(crate) const PAYLOAD_LIMIT: usize = 256 * 1024;
/// The largest exponent of a number. `jsonb` prints all digits: `1e131000` has 131,001.
const EXPONENT_LIMIT: u32 = 308;
/// The deepest nesting of arrays and objects.
const DEPTH_LIMIT: usize = 64;

/// Returns the payload as text. An error names the problem and its place (`line 1 column 8`), and
/// shows no part of the payload.
pub(crate) fn check(bytes: &[u8]) -> Result<&str, String> {
    if bytes.len() > PAYLOAD_LIMIT {
        return Err(format!("payload is longer than {} KiB", PAYLOAD_LIMIT / 1024));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| format!("payload is not UTF-8 at byte {}", error.valid_up_to() + 1))?;
    check_json("payload", text).map(|()| text)
}

/// Refuses a text that `jsonb` would not keep whole. An error names the problem and its place, and
/// shows no part of the text.
pub(crate) fn check_json(name: &str, text: &str) -> Result<(), String> {
    if text.starts_with('\u{feff}') {
        return Err(format!("{name} starts with a byte order mark at line 1 column 1"));
    }
    let mut json = serde_json::Deserializer::from_str(text);
    Strict { depth: 0 }
        .deserialize(&mut json)
        .and_then(|()| json.end())
        .map_err(|error| format!("{name} is not valid JSON: {}", with_comma(&error)))?;
    if let Some(at) = too_large_exponent(text) {
        return Err(format!("{name} has an exponent beyond {EXPONENT_LIMIT} at byte {}", at + 1));
    }
    Ok(())
}

/// Returns the text of a parser's error, with a comma before the place.
fn with_comma(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line ", ", at line ")
}

/// If the parser's error is about an unknown field, adds the field that was probably meant.
fn with_suggestion(error: String) -> String {
    if !error.starts_with("unknown field `") {
        return error;
    }
    // The error names the unknown field and then the known ones, each in backquotes.
    let mut names = error.split('`').skip(1).step_by(2);
    let unknown = names.next().unwrap_or_default();
    let suggestion = did_you_mean::key_suggestion(unknown, names);
    error + &suggestion
}

/// Reads an object. An error names the key, without the middle of a long one, and shows no value.
pub(crate) fn read<'de, T: Deserialize<'de>>(object: &'de [u8]) -> Result<T, String> {
    // Refuse a list, from which serde would read a struct, too.
    if !object.trim_ascii_start().starts_with(b"{") {
        return Err("must be an object".to_owned());
    }
    let mut json = serde_json::Deserializer::from_slice(object);
    let read = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let key = match error.path().iter().next() {
            Some(Segment::Map { key }) => Some(format!("`{key}`")),
            _ => None,
        };
        let error = with_comma(&error.into_inner());
        let is_about_value = error.starts_with("invalid ");
        // Keep only the end of a message about a value: the value is quoted before `, expected`.
        let why = match error.rsplit_once(", expected ").filter(|_| is_about_value) {
            Some((_, expected)) => match expected.strip_prefix("i32") {
                Some(place) => format!("expected a whole number of 32 bits{place}"),
                None => format!("expected {expected}"),
            },
            None => with_suggestion(error),
        };
        let why = match key.filter(|key| !why.contains(&**key)) {
            Some(key) => format!("{key}: {why}"),
            None => why,
        };
        plain::cut(&why).into_owned()
    })?;
    json.end().map_err(|error| with_comma(&error))?;
    Ok(read)
}

/// Returns the place of an exponent beyond the limit in valid JSON, positive or negative. The
/// parser does not refuse a very negative one: it reads the number as zero.
fn too_large_exponent(json: &str) -> Option<usize> {
    let (mut in_string, mut escaped, mut before) = (false, false, b' ');
    json.bytes().enumerate().position(|(at, byte)| {
        in_string ^= byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        // Outside strings, only the `e` of a number follows a digit.
        let follows_digit = std::mem::replace(&mut before, byte).is_ascii_digit();
        if in_string || !matches!(byte, b'e' | b'E') || !follows_digit {
            return false;
        }
        let digits = json[at + 1..].trim_start_matches(['+', '-']);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        // If the digits do not fit into a u32, the exponent is beyond the limit.
        digits[..end].parse().unwrap_or(u32::MAX) > EXPONENT_LIMIT
    })
}

/// Reads one JSON value, and stores nothing of it.
#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl Strict {
    /// Returns the visitor for the next level of nesting, unless it is too deep.
    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        if self.depth == DEPTH_LIMIT {
            return Err(E::custom(format_args!("nested deeper than {DEPTH_LIMIT}")));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

macro_rules! accept {
    ($($visit:ident($($value:ty)?),)+) => {
        $(fn $visit<E: de::Error>(self $(, _: $value)?) -> Result<(), E> {
            Ok(())
        })+
    };
}

impl<'de> Visitor<'de> for Strict {
    type Value = ();

    accept! { visit_unit(), visit_bool(bool), visit_i64(i64), visit_u64(u64), visit_f64(f64), }

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        if text.contains('\0') { Err(E::custom("NUL not allowed")) } else { Ok(()) }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let item = self.deeper()?;
        while items.next_element_seed(item)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let member = self.deeper()?;
        let mut seen = HashSet::new();
        while let Some(key) = members.next_key::<String>()? {
            self.visit_str(&key)?;
            if !seen.insert(key) {
                return Err(de::Error::custom("the same key twice in one object"));
            }
            members.next_value_seed(member)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn accepts(text: &str) {
        assert_eq!(check(text.as_bytes()), Ok(text));
    }

    #[track_caller]
    fn refuses(bytes: &[u8], why: &str) {
        let refused = check(bytes).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }

    #[test]
    fn json_that_jsonb_keeps_is_accepted() {
        accepts("null");
        accepts("12345678901234567890123");
        accepts(r#"[1e308, -2.5E-308, 0e0, true, "1e999", "\"1e999"]"#);
        accepts(r#"{"a": [1, 2.5, "\ud83d\ude00", {"b": null}], "A": true}"#);
        accepts(&format!("{}{}", "[".repeat(64), "]".repeat(64)));
    }

    #[test]
    fn an_error_names_the_position() {
        refuses(br#"{"a":"x\u0000y"}"#, "NUL not allowed, at line 1 column");
        refuses(br#"{"x\u0000y":1}"#, "NUL not allowed, at line 1 column");
        refuses(br#"["\ud800"]"#, "line 1 column");
        refuses(b"[\"\xff\"]", "not UTF-8 at byte 3");
        refuses("\u{feff}{}".as_bytes(), "byte order mark");
        refuses(b"", "line 1 column 0");
        refuses(b"{} x", "trailing characters, at line 1 column 4");
        refuses(b"nan", "line 1 column");
        refuses(b"1e999", "out of range");
        refuses(b"[0, 1e-309]", "exponent beyond 308 at byte 6");
        refuses(b"1E-99999999999999999999", "exponent beyond 308 at byte 2");
        refuses(br#"{"a":1,"a":2}"#, "the same key twice");
        refuses("[".repeat(20_000).as_bytes(), "nested deeper than 64");
    }

    #[test]
    fn the_limit_is_256_kib_to_the_byte() {
        let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
        accepts(&text(PAYLOAD_LIMIT));
        refuses(text(PAYLOAD_LIMIT + 1).as_bytes(), "longer than 256 KiB");
    }
}
