//! Reads a database address as a person gives it: a `postgres://` URL or libpq's `key=value` pairs.
//! Pure; knows neither which keys there are nor what they mean. No message repeats any part of the
//! text: a mistake may have moved the password anywhere.

use percent_encoding::percent_decode_str;

/// In the order given; of two equal keys the later one counts.
pub(super) type Pairs = Vec<(String, String)>;

const ENCODE: &str = "percent-encode `@`, `:`, `/`, `?`, `#` and `%` in user and password";
const FORMS: &str = "write postgres://USER:PASSWORD@HOST:PORT/DATABASE or key=value pairs";

/// # Errors
/// What is wrong, then a remedy after a semicolon.
pub(super) fn parse(text: &str) -> Result<Pairs, String> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix("postgresql://").or_else(|| text.strip_prefix("postgres://")) {
        return url(rest);
    }
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    if scheme.is_some_and(|scheme| scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))) {
        return Err(format!("it is a URL of another kind; {FORMS}"));
    }
    if !text.is_empty() && !text.contains('=') {
        return Err(format!("it is neither a URL nor key=value pairs; {FORMS}"));
    }
    key_values(text)
}

fn url(rest: &str) -> Result<Pairs, String> {
    let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    // Most likely the password has a slash; then what follows it is a secret, not a database.
    if path.contains('@') {
        return Err(format!("it has an `@` behind the host; {ENCODE}"));
    }
    let mut pairs = Pairs::new();
    // The last one: a host holds no `@`, but people leave it bare in passwords.
    let hosts = match authority.rsplit_once('@') {
        Some((login, hosts)) => {
            let (user, password) = login.split_once(':').map_or((login, None), |(user, rest)| (user, Some(rest)));
            if !user.is_empty() {
                pairs.push(("user".to_owned(), decode(user)?));
            }
            if let Some(password) = password {
                pairs.push(("password".to_owned(), decode(password)?));
            }
            hosts
        }
        None => authority,
    };
    let (mut names, mut ports) = (Vec::new(), Vec::new());
    for host in hosts.split(',') {
        let (name, port) = host_and_port(host)?;
        names.push(decode(name)?);
        ports.push(port);
    }
    // A lone `:5433` is a port without a host; `host` must stay open for the environment then.
    for (key, list) in [("host", names.join(",")), ("port", ports.join(","))] {
        if !list.is_empty() && list.chars().any(|c| c != ',') {
            pairs.push((key.to_owned(), list));
        }
    }
    if let Some(database) = path.strip_prefix('/').filter(|database| !database.is_empty()) {
        pairs.push(("dbname".to_owned(), decode(database)?));
    }
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').ok_or(format!("it has a parameter without `=`; {ENCODE}"))?;
        pairs.push(match (decode(key)?, decode(value)?) {
            // JDBC's spelling, which libpq understands in a URL too.
            (key, value) if key == "ssl" && value == "true" => ("sslmode".to_owned(), "require".to_owned()),
            pair => pair,
        });
    }
    Ok(pairs)
}

fn host_and_port(host: &str) -> Result<(&str, &str), String> {
    let (name, port) = if let Some(rest) = host.strip_prefix('[') {
        let (name, port) = rest.split_once(']').ok_or(format!("it has a `[` without `]`; {FORMS}"))?;
        match port.strip_prefix(':') {
            Some(port) => (name, port),
            None if port.is_empty() => (name, port),
            None => return Err(format!("it has text behind a `]`; {FORMS}")),
        }
    } else {
        host.split_once(':').unwrap_or((host, ""))
    };
    if port.chars().all(|c| c.is_ascii_digit()) {
        Ok((name, port))
    } else {
        Err(format!("its port is no number; write an IPv6 address in brackets and {ENCODE}"))
    }
}

fn decode(text: &str) -> Result<String, String> {
    let hexadecimal = |code: &str| code.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    if !text.split('%').skip(1).all(hexadecimal) {
        return Err(format!("it has a `%` that two hexadecimal digits don't follow; {ENCODE}"));
    }
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| format!("it is not UTF-8; {ENCODE}"))?;
    if decoded.contains('\0') {
        return Err("it has a NUL; remove %00".to_owned());
    }
    Ok(decoded.into_owned())
}

fn key_values(text: &str) -> Result<Pairs, String> {
    let mut pairs = Pairs::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let bare = || format!("it has a word without `=`; put a value with spaces in single quotes, or {FORMS}");
        let (key, after) = rest.split_once('=').ok_or_else(bare)?;
        let key = key.trim_end();
        if key.is_empty() || key.contains(char::is_whitespace) {
            return Err(bare());
        }
        let (value, after) = value(after.trim_start())?;
        pairs.push((key.to_owned(), value));
        rest = after.trim_start();
    }
    Ok(pairs)
}

/// One value, quoted or not, and what follows it.
fn value(text: &str) -> Result<(String, &str), String> {
    let quoted = text.strip_prefix('\'');
    let text = quoted.unwrap_or(text);
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            '\'' if quoted.is_some() => return Ok((value, &text[at + 1..])),
            c if quoted.is_none() && c.is_whitespace() => return Ok((value, &text[at..])),
            c => value.push(c),
        }
    }
    if quoted.is_some() {
        return Err("it has a single quote that is not closed; close it, or write \\' for a quote".to_owned());
    }
    Ok((value, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(text: &str, expected: &[(&str, &str)]) {
        let expected: Pairs = expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert_eq!(parse(text), Ok(expected), "{text}");
    }

    #[track_caller]
    fn refuses(text: &str, why: &str) {
        let refused = parse(text).unwrap_err();
        assert!(refused.contains(why) && refused.contains("; "), "{refused}");
        assert!(!refused.contains("s3cret") && !refused.contains("ss@"), "{refused}");
    }

    #[test]
    fn a_url_is_taken_apart() {
        reads("postgres://", &[]);
        reads("postgresql:///app", &[("dbname", "app")]);
        reads("postgres://h", &[("host", "h")]);
        reads("postgres://:5433/app", &[("port", "5433"), ("dbname", "app")]);
        reads(
            "postgres://me:p%40s%2Fs@db.example.com:6432/my%20app?sslmode=require&options=-c%20a%3Db",
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
    fn hosts_may_be_several_or_addresses_or_directories() {
        reads("postgres://h1:1,h2,h3:3/", &[("host", "h1,h2,h3"), ("port", "1,,3")]);
        reads("postgres://h1,h2/a", &[("host", "h1,h2"), ("dbname", "a")]);
        reads("postgres://[::1]:5433/a", &[("host", "::1"), ("port", "5433"), ("dbname", "a")]);
        reads("postgres://[fe80::1],h/", &[("host", "fe80::1,h")]);
        reads("postgres://%2Frun%2Fpostgresql/a", &[("host", "/run/postgresql"), ("dbname", "a")]);
        reads("postgres:///a?host=/run/postgresql", &[("dbname", "a"), ("host", "/run/postgresql")]);
    }

    #[test]
    fn a_password_may_hold_a_bare_at_sign() {
        reads("postgres://u:p@ss@h/d", &[("user", "u"), ("password", "p@ss"), ("host", "h"), ("dbname", "d")]);
    }

    #[test]
    fn pairs_follow_the_quoting_of_libpq() {
        reads("", &[]);
        reads("host=h  port = 5433\nuser='me'", &[("host", "h"), ("port", "5433"), ("user", "me")]);
        reads(r"password='it\'s \\ s3' dbname=a\ b", &[("password", r"it's \ s3"), ("dbname", "a b")]);
        reads("password=a=b user=", &[("password", "a=b"), ("user", "")]);
        reads("password='' host=/run", &[("password", ""), ("host", "/run")]);
        reads("password='a://b'", &[("password", "a://b")]);
    }

    #[test]
    fn no_refusal_repeats_the_text() {
        refuses("mysql://u:s3cret@h/d", "another kind");
        refuses("s3cret", "neither a URL");
        refuses("postgres://u:s3cret/x", "port is no number");
        refuses("postgres://u:s3cret", "port is no number");
        refuses("postgres://u:12/ss@h/d", "behind the host");
        refuses("postgres://u:s3cret@h:port/d", "port is no number");
        refuses("postgres://u:s3cret@::1/d", "brackets");
        refuses("postgres://u:s3cret@[::1/d", "`[` without");
        refuses("postgres://u:s3cret@[::1]x/d", "behind a `]`");
        refuses("postgres://u:s3cret%4@h/d", "two hexadecimal digits");
        refuses("postgres://u:s3cret%zz@h/d", "two hexadecimal digits");
        refuses("postgres://u:s3cret%ff@h/d", "not UTF-8");
        refuses("postgres://u:s3cret%00@h/d", "NUL");
        refuses("postgres://u:p@h/d?s3cret", "without `=`");
        refuses("password=my s3cret", "without `=`");
        refuses("password=my s3cret host=h", "without `=`");
        refuses("password='s3cret", "not closed");
    }
}
