//! What a payload may be: JSON that PostgreSQL's `jsonb` keeps whole and that means one thing to
//! everybody who reads it. Pure.

use std::collections::HashSet;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Bytes of a payload as it was given.
pub(crate) const PAYLOAD_LIMIT: usize = 256 * 1024;
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
    Ok(text)
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
