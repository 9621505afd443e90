//! Addresses of databases as people write them, and libpq's parameters in them.
//!
//! An address is a `postgres://` URL or libpq's `key=value` pairs. No error repeats its text,
//! because a mistake may have put the password anywhere.

// The `url` crate can't parse a list of hosts with ports.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::error::Error;
pub use crate::parameter::{Parameter, may_be_secret};

/// The characters that a URL encodes in the value of a parameter.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');

/// Keys and values in the order of the text. The last of equal keys counts.
pub(crate) type Pairs = Vec<(String, String)>;

const ENCODE: &str = "percent-encode `@`, `:`, `/`, `?`, `#` and `%` in user and password";
const FORMS: &str = "write postgres://USER:PASSWORD@HOST:PORT/DATABASE or key=value pairs";

const DOTNET: &str = "is an address for .NET; write key=value pairs with blanks between them, as \
                      in host=HOST user=USER password=PASSWORD dbname=DATABASE";
/// The schemes by which other programs mean PostgreSQL.
const OTHER_SCHEMES: [&str; 9] =
    ["ecto", "pg", "pgsql", "postgis", "postgres", "postgresql", "postgre", "postgressql", "psql"];

/// The address of a database, split into parameters. It does not check which keys exist.
///
/// ```
/// use postgres_connect::conninfo::Conninfo;
///
/// let mut address = Conninfo::parse("postgres://ana@db/shop", "DATABASE_URL")?;
/// assert_eq!(address.get("dbname"), Some("shop"));
/// address.set("sslmode", "require");
/// assert_eq!(address.as_str(), "postgres://ana@db/shop?sslmode=require");
/// # Ok::<(), postgres_connect::Error>(())
/// ```
#[derive(Clone, Eq, PartialEq)]
pub struct Conninfo {
    text: String,
    pairs: Pairs,
}

impl Conninfo {
    /// Parses a URL or `key=value` pairs. Errors name the `origin` of the text, such as a variable.
    ///
    /// # Errors
    /// The text is neither, or is not well-formed. The error is of the kind
    /// [`Setting`](crate::ErrorKind::Setting).
    pub fn parse(text: &str, origin: &str) -> Result<Self, Error> {
        let pairs = parse(text).map_err(|reason| Error::of_setting(origin, reason))?;
        Ok(Self { text: text.to_owned(), pairs })
    }

    /// Returns the value of a key, decoded. If the key occurs twice, the last value counts.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs().rfind(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// Returns all keys with their values, decoded, in the order of the text.
    pub fn pairs(&self) -> impl DoubleEndedIterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Adds a pair at the end of the text, so that it counts instead of an earlier one.
    pub fn set(&mut self, key: &str, value: &str) {
        self.text = with(&self.text, key, value);
        self.pairs.push((key.to_owned(), value.to_owned()));
    }

    /// Returns the text. It may contain a password.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Shows no values, because any may be a password.
impl fmt::Debug for Conninfo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> =
            self.pairs().map(|(key, _)| key).filter(|key| !may_be_secret(key)).collect();
        formatter.debug_struct("Conninfo").field("keys", &keys).finish_non_exhaustive()
    }
}

/// Reads an address. An error is the cause and, after a semicolon, the remedy.
pub(crate) fn parse(text: &str) -> Result<Pairs, String> {
    let text = text.trim();
    for (prefix, what) in [
        ("\"", "is in quotes; remove them, because env files of containers keep them"),
        ("'", "is in quotes; remove them, because env files of containers keep them"),
        (
            "jdbc:",
            "is an address for JDBC; remove `jdbc:`, and write USER:PASSWORD@ before the host",
        ),
        (
            "r2dbc:",
            "is an address for R2DBC; remove `r2dbc:`, and write USER:PASSWORD@ before the host",
        ),
        ("pgsql:host=", "is an address for PDO; remove `pgsql:`, and write blanks for `;`"),
        ("Host=", DOTNET),
        ("Server=", DOTNET),
        ("psql ", "is a command; remove `psql` and the quotes"),
        ("DATABASE_URL=", "begins with `DATABASE_URL=`; remove it"),
    ] {
        if text.starts_with(prefix) {
            return Err(format!("it {what}"));
        }
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return if text.is_empty() || text.contains('=') {
            key_values(text)
        } else {
            Err(format!("it is neither a URL nor key=value pairs; {FORMS}"))
        };
    };
    // Some programs also name their driver in the scheme, as in `postgresql+psycopg`.
    let (kind, driver) = scheme.split_once('+').unwrap_or((scheme, ""));
    let is_postgres = OTHER_SCHEMES.contains(&&*kind.to_lowercase());
    match scheme {
        "postgresql" | "postgres" => url(rest),
        _ if is_postgres && !driver.is_empty() => {
            Err("the scheme of the URL names a driver; remove the `+` and the driver".to_owned())
        }
        _ if is_postgres => {
            Err("the scheme of the URL is that of another program; write postgres://".to_owned())
        }
        _ if scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) => {
            Err(format!("the scheme of the URL is not postgres; {FORMS}"))
        }
        // This is not a scheme: the `://` is a part of a value.
        _ => key_values(text),
    }
}

/// Returns an address that can be parsed with one more pair. This pair counts instead of an earlier
/// one with the same key.
fn with(address: &str, key: &str, value: &str) -> String {
    let address = address.trim();
    if address.starts_with("postgres://") || address.starts_with("postgresql://") {
        let separator = if address.contains('?') { '&' } else { '?' };
        return format!("{address}{separator}{key}={}", utf8_percent_encode(value, VALUE));
    }
    format!("{address} {key}='{}'", value.replace('\\', r"\\").replace('\'', r"\'"))
}

/// Reads a URL, without `postgresql://`.
fn url(rest: &str) -> Result<Pairs, String> {
    let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    // Do not take a part of a password for the name of the database: probably the password contains
    // a `/` that is not encoded.
    if path.contains('@') {
        return Err(format!("there is an `@` after the host; {ENCODE}"));
    }
    let mut pairs = Pairs::new();
    let mut add = |key: &str, value: String| pairs.push((key.to_owned(), value));
    // Split at the last `@`: a host has none, but a password may contain one that is not encoded.
    let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (user, password) =
        login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
    if !user.is_empty() {
        add("user", decode(user)?);
    }
    if let Some(password) = password {
        add("password", decode(password)?);
    }
    let (mut names, mut ports) = (Vec::new(), Vec::new());
    for host in hosts.split(',') {
        let (name, port) = host_and_port(host)?;
        names.push(decode(name)?);
        ports.push(port);
    }
    // Leave out an empty list. If the URL has only a port (`:5433`), the environment names the
    // host.
    for (key, list) in [("host", names.join(",")), ("port", ports.join(","))] {
        if list.chars().any(|c| c != ',') {
            add(key, list);
        }
    }
    if let Some(database) = path.strip_prefix('/').filter(|database| !database.is_empty()) {
        add("dbname", decode(database)?);
    }
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| format!("a parameter of the URL has no `=`; {ENCODE}"))?;
        match (&*decode(key)?, decode(value)?) {
            // As in libpq, JDBC's spelling is accepted, too.
            ("ssl", value) if value == "true" => add("sslmode", "require".to_owned()),
            (key, value) => add(key, value),
        }
    }
    Ok(pairs)
}

/// Splits a host of a URL from its port. An IPv6 address has brackets.
fn host_and_port(host: &str) -> Result<(&str, &str), String> {
    let (name, port) = match host.strip_prefix('[') {
        None => host.split_once(':').unwrap_or((host, "")),
        Some(rest) => {
            let (name, port) =
                rest.split_once(']').ok_or_else(|| format!("a `[` has no `]`; {FORMS}"))?;
            let port = if port.is_empty() { Some(port) } else { port.strip_prefix(':') };
            (name, port.ok_or_else(|| format!("there is text after a `]`; {FORMS}"))?)
        }
    };
    if port.chars().all(|c| c.is_ascii_digit()) {
        Ok((name, port))
    } else {
        Err(format!("the port is not a number; write an IPv6 address in brackets and {ENCODE}"))
    }
}

/// Replaces `%XX` by the characters that it stands for.
fn decode(text: &str) -> Result<String, String> {
    let is_hexadecimal = |code: &str| {
        code.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit))
    };
    if !text.split('%').skip(1).all(is_hexadecimal) {
        return Err(format!("a `%` is not followed by two hexadecimal digits; {ENCODE}"));
    }
    let decoded =
        percent_decode_str(text).decode_utf8().map_err(|_| format!("it is not UTF-8; {ENCODE}"))?;
    if decoded.contains('\0') {
        return Err("it has a NUL; remove %00".to_owned());
    }
    Ok(decoded.into_owned())
}

/// Reads `key=value` pairs, whose values may be quoted.
fn key_values(text: &str) -> Result<Pairs, String> {
    let mut pairs = Pairs::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (key, after) = rest
            .split_once('=')
            .map(|(key, after)| (key.trim_end(), after.trim_start()))
            .filter(|(key, _)| !key.is_empty() && !key.contains(char::is_whitespace))
            .ok_or("a word has no `=`; put a value with spaces in single quotes")?;
        let (value, after) = value(after)?;
        pairs.push((key.to_owned(), value));
        rest = after.trim_start();
    }
    Ok(pairs)
}

/// Returns the value at the start of `text`, and the text after it.
fn value(text: &str) -> Result<(String, &str), String> {
    let Some(quoted) = text.strip_prefix('\'') else {
        let (value, after) = unescape(text, char::is_whitespace);
        return Ok((value, after.unwrap_or_default()));
    };
    match unescape(quoted, |c| c == '\'') {
        (value, Some(after)) => Ok((value, &after[1..])),
        _ => Err("a single quote is not closed; close it, or write \\' for a quote".to_owned()),
    }
}

/// Splits a text at the first character for which `is_end` is true and which has no backslash
/// before it. Returns the text before it, without the backslashes before other characters, and the
/// rest from this character on, if there is one.
pub(crate) fn unescape(text: &str, is_end: impl Fn(char) -> bool) -> (String, Option<&str>) {
    let mut plain = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => plain.push(chars.next().map_or(c, |(_, escaped)| escaped)),
            c if is_end(c) => return (plain, Some(&text[at..])),
            c => plain.push(c),
        }
    }
    (plain, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_that_is_added_counts() {
        for address in ["postgres://h", "postgresql://h?user=x", "host=h", "user='x y' "] {
            let path = r"/a b/c'd\é%&";
            let pairs = parse(&with(address, "passfile", path)).unwrap();
            assert_eq!(pairs.last(), Some(&("passfile".to_owned(), path.to_owned())), "{address}");
        }
    }

    #[track_caller]
    fn reads(text: &str, expected: &[(&str, &str)]) {
        let expected: Pairs =
            expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert_eq!(parse(text), Ok(expected), "{text}");
    }

    #[track_caller]
    fn refuses(text: &str, why: &str) {
        let refused = parse(text).unwrap_err();
        assert!(refused.contains(why) && refused.contains("; "), "{refused}");
        assert!(!refused.contains("s3cret") && !refused.contains("ss@"), "{refused}");
    }

    #[test]
    fn a_url_becomes_pairs() {
        reads("postgres://", &[]);
        reads("postgresql:///app", &[("dbname", "app")]);
        reads("postgres://h", &[("host", "h")]);
        reads("postgres://:5433/app", &[("port", "5433"), ("dbname", "app")]);
        reads(
            "postgres://me:p%40s%2Fs@db.example.com:6432/my%20app?sslmode=require\
             &options=-c%20a%3Db",
            &[
                ("user", "me"),
                ("password", "p@s/s"),
                ("host", "db.example.com"),
                ("port", "6432"),
                ("dbname", "my app"),
                ("sslmode", "require"),
                ("options", "-c a=b"),
            ],
        );
        reads("postgres://me@h?ssl=true", &[("user", "me"), ("host", "h"), ("sslmode", "require")]);
        reads("postgres://me:@h/", &[("user", "me"), ("password", ""), ("host", "h")]);
    }

    #[test]
    fn a_url_takes_several_hosts_addresses_and_directories() {
        reads("postgres://h1:1,h2,h3:3/", &[("host", "h1,h2,h3"), ("port", "1,,3")]);
        reads("postgres://h1,h2/a", &[("host", "h1,h2"), ("dbname", "a")]);
        reads("postgres://[::1]:5433/a", &[("host", "::1"), ("port", "5433"), ("dbname", "a")]);
        reads("postgres://[fe80::1],h/", &[("host", "fe80::1,h")]);
        reads("postgres://%2Frun%2Fpostgresql/a", &[("host", "/run/postgresql"), ("dbname", "a")]);
        reads(
            "postgres:///a?host=/run/postgresql",
            &[("dbname", "a"), ("host", "/run/postgresql")],
        );
    }

    #[test]
    fn a_password_may_hold_a_bare_at_sign() {
        reads(
            "postgres://u:p@ss@h/d",
            &[("user", "u"), ("password", "p@ss"), ("host", "h"), ("dbname", "d")],
        );
    }

    #[test]
    fn pairs_follow_the_quoting_of_libpq() {
        reads("", &[]);
        reads("host=h  port = 5433\nuser='me'", &[("host", "h"), ("port", "5433"), ("user", "me")]);
        reads(
            r"password='it\'s \\ s3' dbname=a\ b",
            &[("password", r"it's \ s3"), ("dbname", "a b")],
        );
        reads("password=a=b user=", &[("password", "a=b"), ("user", "")]);
        reads("password='' host=/run", &[("password", ""), ("host", "/run")]);
        reads("password='a://b'", &[("password", "a://b")]);
    }

    #[test]
    fn no_error_repeats_the_text() {
        refuses("mysql://u:s3cret@h/d", "not postgres");
        for scheme in ["postgresql+psycopg2", "postgresql+asyncpg", "postgres+pg8000", "ecto+x"] {
            refuses(&format!("{scheme}://u:s3cret@h/d"), "remove the `+` and the driver");
        }
        for scheme in ["ecto", "psql", "pg", "pgsql", "postgis", "Postgres", "POSTGRESQL"] {
            refuses(&format!("{scheme}://u:s3cret@h/d"), "another program; write postgres://");
        }
        refuses("mysql+pymysql://u:s3cret@h/d", "not postgres");
        refuses("r2dbc:postgresql://u:s3cret@h/d", "remove `r2dbc:`");
        refuses("pgsql:host=h;dbname=d;password=s3cret", "remove `pgsql:`");
        refuses("Host=h;Username=u;Password=s3cret;Database=d", "is an address for .NET");
        refuses("Server=h;User Id=u;Password=s3cret", "is an address for .NET");
        refuses("s3cret", "neither a URL");
        refuses("\"postgres://u:s3cret@h/d\"", "is in quotes");
        refuses("'host=h password=s3cret'", "is in quotes");
        refuses("jdbc:postgresql://h/d?user=u&password=s3cret", "remove `jdbc:`");
        refuses("jdbc:postgresql:d", "remove `jdbc:`");
        refuses("psql 'postgres://u:s3cret@h/d'", "is a command");
        refuses("DATABASE_URL=postgres://u:s3cret@h/d", "begins with");
        refuses("postgres://u:s3cret/x", "port is not a number");
        refuses("postgres://u:s3cret", "port is not a number");
        refuses("postgres://u:12/ss@h/d", "after the host");
        refuses("postgres://u:s3cret@h:port/d", "port is not a number");
        refuses("postgres://u:s3cret@::1/d", "brackets");
        refuses("postgres://u:s3cret@[::1/d", "`[` has no `]`");
        refuses("postgres://u:s3cret@[::1]x/d", "after a `]`");
        refuses("postgres://u:s3cret%4@h/d", "two hexadecimal digits");
        refuses("postgres://u:s3cret%zz@h/d", "two hexadecimal digits");
        refuses("postgres://u:s3cret%ff@h/d", "not UTF-8");
        refuses("postgres://u:s3cret%00@h/d", "NUL");
        refuses("postgres://u:p@h/d?s3cret", "has no `=`");
        refuses("password=my s3cret", "has no `=`");
        refuses("password=my s3cret host=h", "has no `=`");
        refuses("password='s3cret", "not closed");
    }
}
