//! What a payload may be: JSON that PostgreSQL's `jsonb` keeps whole and that means one thing to
//! everybody who reads it. Pure.

use std::collections::HashSet;
use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Bytes of a payload as it was given.
pub(crate) const PAYLOAD_LIMIT: usize = 256 * 1024;
/// Bytes of a payload as it is read back: `jsonb` puts spaces between items and writes numbers out.
const STORED_LIMIT: usize = 64 * PAYLOAD_LIMIT;
/// `jsonb` writes a number out in full, so that a short one with a great exponent becomes a long one.
const EXPONENT_LIMIT: u32 = 308;
/// Nested arrays and objects; far from what recursion costs anybody's stack.
const DEPTH_LIMIT: usize = 64;

/// Checks a payload and hands it back as text.
///
/// # Errors
/// What is wrong and where (`line 1 column 8`): not UTF-8, not JSON, a NUL, half a surrogate pair, a
/// key twice, nested too deep, too long. Never a part of the payload itself.
pub(crate) fn check(bytes: &[u8]) -> Result<&str, String> {
    if bytes.len() > PAYLOAD_LIMIT {
        return Err(format!("payload is longer than {} KiB", PAYLOAD_LIMIT / 1024));
    }
    check_stored(bytes)
}

/// Checks a payload as the database hands it back.
///
/// # Errors
/// As `check`, but for a length that `jsonb` has added.
pub(crate) fn check_stored(bytes: &[u8]) -> Result<&str, String> {
    if bytes.len() > STORED_LIMIT {
        return Err(format!("payload is longer than {} MiB", STORED_LIMIT / 1024 / 1024));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| format!("payload is not UTF-8 at byte {}", error.valid_up_to() + 1))?;
    if text.starts_with('\u{feff}') {
        return Err("payload starts with a byte order mark at line 1 column 1".to_owned());
    }
    let mut json = serde_json::Deserializer::from_str(text);
    Strict { depth: 0 }
        .deserialize(&mut json)
        .and_then(|()| json.end())
        .map_err(|error| format!("payload is not valid JSON: {error}"))?;
    match great_exponent(text) {
        Some(at) => Err(format!("payload has an exponent beyond {EXPONENT_LIMIT} at byte {}", at + 1)),
        None => Ok(text),
    }
}

/// # Errors
/// The JSON is no object: to the parser of one, a list of its values would do.
pub(crate) fn check_object(json: &[u8]) -> Result<(), String> {
    if json.trim_ascii_start().starts_with(b"{") { Ok(()) } else { Err("must be an object".to_owned()) }
}

/// Reads an object of valid JSON.
///
/// # Errors
/// It is none, or not what is wanted: what was expected, and where. Never a part of what it holds but its keys.
pub(crate) fn read<'de, T: Deserialize<'de>>(object: &'de str) -> Result<T, String> {
    check_object(object.as_bytes())?;
    serde_json::from_str(object).map_err(|error| {
        let error = error.to_string();
        let is_about_value = error.starts_with("invalid ");
        // The parser quotes what it found in front of this.
        match error.rsplit_once(", expected ").filter(|_| is_about_value) {
            Some((_, expected)) => format!("expected {expected}"),
            None => error,
        }
    })
}

/// Where valid JSON has an exponent that is too great either way. The parser does not tell: to it a
/// number that small is zero.
fn great_exponent(json: &str) -> Option<usize> {
    let mut in_string = false;
    let mut bytes = json.bytes().enumerate().peekable();
    let mut before = b' ';
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' if in_string => drop(bytes.next()),
            b'"' => in_string = !in_string,
            b'e' | b'E' if !in_string && before.is_ascii_digit() => {
                let mut exponent = 0_u32;
                while let Some((_, digit)) = bytes.next_if(|(_, byte)| matches!(byte, b'+' | b'-' | b'0'..=b'9')) {
                    if digit.is_ascii_digit() {
                        exponent = exponent.saturating_mul(10).saturating_add(u32::from(digit - b'0'));
                    }
                }
                if exponent > EXPONENT_LIMIT {
                    return Some(at);
                }
            }
            _ => {}
        }
        before = byte;
    }
    None
}

/// Accepts one JSON value and keeps nothing of it.
#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl Strict {
    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        if self.depth == DEPTH_LIMIT {
            return Err(E::custom(format_args!("nested deeper than {DEPTH_LIMIT}")));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

fn no_nul<E: de::Error>(text: &str) -> Result<(), E> {
    if text.contains('\0') { Err(E::custom("NUL not allowed")) } else { Ok(()) }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        no_nul(text)
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
            no_nul(&key)?;
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
    fn what_is_wrong_is_said_with_its_position() {
        refuses(br#"{"a":"x\u0000y"}"#, "NUL not allowed at line 1 column");
        refuses(br#"{"x\u0000y":1}"#, "NUL not allowed at line 1 column");
        refuses(br#"["\ud800"]"#, "line 1 column");
        refuses(b"[\"\xff\"]", "not UTF-8 at byte 3");
        refuses("\u{feff}{}".as_bytes(), "byte order mark");
        refuses(b"", "line 1 column 0");
        refuses(b"{} x", "trailing characters at line 1 column 4");
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
