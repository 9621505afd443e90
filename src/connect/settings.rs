//! Gathers what is set about a connection, and where: the address given, the service file, the
//! environment, in libpq's order of precedence. Knows the keys' kinds of values, not their effect.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use log::debug;

use super::conninfo::{self, Pairs};
use super::keys::{self, KEYS, Use};
use super::{files, unusable};

/// Looks a variable of the environment up.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// No `Debug`: it holds the password.
pub(super) struct Settings<'a> {
    values: BTreeMap<&'static str, Setting>,
    environment: Environment<'a>,
}

struct Setting {
    value: String,
    origin: Origin,
}

#[derive(Clone)]
enum Origin {
    Address(&'static str),
    Service(PathBuf),
    Variable(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(name) | Self::Variable(name) => formatter.write_str(name),
            Self::Service(path) => write!(formatter, "service file {}", path.display()),
        }
    }
}

impl<'a> Settings<'a> {
    pub(super) fn gather(url: Option<&str>, environment: Environment<'a>) -> anyhow::Result<Self> {
        let mut settings = Self { values: BTreeMap::new(), environment };
        let fallback = settings.variable("DATABASE_URL");
        let address = match (url.filter(|url| !url.trim().is_empty()), &fallback) {
            (Some(url), _) => Some((url, Origin::Address("the database URL"))),
            (None, Some(url)) => Some((url.as_str(), Origin::Address("DATABASE_URL"))),
            (None, None) => None,
        };
        if let Some((text, origin)) = address {
            let mut pairs = conninfo::parse(text).map_err(|why| unusable(&origin, &why))?;
            // `add` keeps the first of equal keys; within an address the last one counts.
            pairs.reverse();
            settings.add(pairs, &origin)?;
        }
        for name in ["service", "servicefile"] {
            settings.add_variable(name)?;
        }
        if let Some(service) = settings.text("service").map(str::to_owned) {
            settings.add_service(&service)?;
        }
        for key in KEYS {
            settings.add_variable(key.name)?;
        }
        Ok(settings)
    }

    /// A variable that is set to something.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.environment)(name).filter(|value| !value.is_empty())
    }

    pub(super) fn home(&self) -> Option<PathBuf> {
        let home = self.variable("HOME").map(PathBuf::from);
        home.or_else(|| files::account(rustix::process::geteuid().as_raw()).map(|(_, home)| home))
    }

    /// A file below the user's home, whether it exists or not.
    pub(super) fn in_home(&self, name: &str) -> Option<PathBuf> {
        self.home().map(|home| home.join(name))
    }

    /// A value that is set to something.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|setting| setting.value.as_str()).filter(|value| !value.is_empty())
    }

    /// The items of a list; empty ones are kept, because lists belong together by position.
    pub(super) fn list(&self, name: &str) -> Vec<&str> {
        self.text(name).map(|text| text.split(',').map(str::trim).collect()).unwrap_or_default()
    }

    pub(super) fn number<N: FromStr>(&self, name: &str) -> anyhow::Result<Option<N>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(self.invalid(name, "is no number, or too large", "write it in digits")),
        }
    }

    pub(super) fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> anyhow::Result<Option<T>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        if let Some((_, chosen)) = choices.iter().find(|(choice, _)| *choice == text) {
            return Ok(Some(*chosen));
        }
        let allowed = choices.iter().map(|(choice, _)| *choice).collect::<Vec<_>>().join(", ");
        Err(self.invalid(name, "has an unknown value", &format!("allowed are {allowed}")))
    }

    /// A refusal that names the key and where its value came from; the value may be a secret.
    pub(super) fn invalid(&self, name: &str, why: &str, remedy: &str) -> anyhow::Error {
        let cause = format!("`{name}` {why}; {remedy}");
        match self.values.get(name) {
            Some(setting) => unusable(&setting.origin, &cause),
            None => unusable(&"the database settings", &cause),
        }
    }

    fn add(&mut self, pairs: Pairs, origin: &Origin) -> anyhow::Result<()> {
        for (name, value) in pairs {
            let Some(key) = keys::find(&name).map_err(|why| unusable(origin, &why))? else {
                debug!("`{name}` in {origin} is another program's; it is ignored");
                continue;
            };
            match key.use_ {
                Use::Ignored => {}
                Use::Refused if keys::asks_for_nothing(key, &value) => {}
                Use::Refused => {
                    return Err(unusable(origin, &format!("jobctl can't do what `{name}` asks for; remove it")));
                }
                Use::Read => {
                    self.values.entry(key.name).or_insert_with(|| Setting { value, origin: origin.clone() });
                }
            }
        }
        Ok(())
    }

    fn add_variable(&mut self, name: &'static str) -> anyhow::Result<()> {
        let variable = KEYS.iter().find(|key| key.name == name).map_or("", |key| key.variable);
        if variable.is_empty() || self.values.contains_key(name) {
            return Ok(());
        }
        match self.variable(variable) {
            Some(value) => self.add(vec![(name.to_owned(), value)], &Origin::Variable(variable)),
            None => Ok(()),
        }
    }

    /// The user's own file first; the system's when that has no such service.
    fn add_service(&mut self, service: &str) -> anyhow::Result<()> {
        let named = self.text("servicefile").map(PathBuf::from);
        let own = named.clone().or_else(|| self.in_home(".pg_service.conf").filter(|path| path.exists()));
        let system = self.variable("PGSYSCONFDIR").unwrap_or_else(|| "/etc/postgresql-common".to_owned());
        let system = Some(PathBuf::from(system).join("pg_service.conf")).filter(|path| path.exists());
        for path in own.into_iter().chain(system) {
            let origin = Origin::Service(path.clone());
            if let Some(pairs) = files::service(&path, service).map_err(|why| unusable(&origin, &why))? {
                if pairs.iter().any(|(name, _)| name == "service") {
                    return Err(unusable(&origin, "a service can't name another one; remove `service`"));
                }
                return self.add(pairs, &origin);
            }
        }
        // Names what stands in files that others may read: no secret.
        let why = format!("names `{service}`, which is in no service file");
        Err(self.invalid("service", &why, "correct it, or set PGSERVICEFILE"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[track_caller]
    fn gathers(url: Option<&str>, variables: &[(&str, &str)], expected: &[(&str, Option<&str>)]) {
        let environment = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        let settings = Settings::gather(url, &environment).unwrap_or_else(|error| panic!("{error:#}"));
        for (name, value) in expected {
            assert_eq!(settings.text(name), *value, "{name}");
        }
    }

    #[track_caller]
    fn refuses(url: &str, variables: &[(&str, &str)], why: &str) {
        let environment = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        let refused = Settings::gather(Some(url), &environment).err().map(|error| format!("{error:#}"));
        assert_eq!(refused.as_deref(), Some(why));
    }

    #[test]
    fn what_is_given_comes_before_the_environment() {
        let environment = [("PGHOST", "e"), ("PGPORT", "1"), ("PGPASSWORD", "p"), ("DATABASE_URL", "host=d port=2")];
        gathers(Some("host=g"), &environment, &[("host", Some("g")), ("port", Some("1")), ("password", Some("p"))]);
        gathers(None, &environment, &[("host", Some("d")), ("port", Some("2"))]);
        gathers(Some(" "), &environment, &[("host", Some("d"))]);
        gathers(None, &environment[..2], &[("host", Some("e")), ("user", None)]);
    }

    #[test]
    fn what_is_given_as_empty_keeps_the_environment_out() {
        gathers(Some("host='' dbname=a dbname=b"), &[("PGHOST", "e")], &[("host", None), ("dbname", Some("b"))]);
        gathers(None, &[("PGHOST", "")], &[("host", None)]);
    }

    #[test]
    fn a_service_comes_between_what_is_given_and_the_environment() {
        let home = tempfile::tempdir().expect("a directory");
        fs::write(home.path().join(".pg_service.conf"), "[s]\nhost=s\nport=3\nuser=s\n").expect("written");
        let environment = [("HOME", home.path().to_str().expect("UTF-8")), ("PGPORT", "1"), ("PGDATABASE", "e")];
        let expected = [("host", Some("s")), ("port", Some("3")), ("user", Some("g")), ("dbname", Some("e"))];
        gathers(Some("service=s user=g"), &environment, &expected);
        gathers(Some("user=g"), &[&environment[..], &[("PGSERVICE", "s")]].concat(), &expected);
        refuses(
            "service=t",
            &environment,
            "cannot use the database URL: `service` names `t`, which is in no service file; correct it, or set PGSERVICEFILE",
        );
        let why =
            "cannot use PGSERVICE: `service` names `t`, which is in no service file; correct it, or set PGSERVICEFILE";
        refuses("user=g", &[&environment[..], &[("PGSERVICE", "t")]].concat(), why);
    }

    #[test]
    fn a_demand_that_can_not_be_kept_is_refused() {
        gathers(Some("gssencmode=prefer sslcompression=1 pgbouncer=true"), &[], &[("gssencmode", None)]);
        let why = "cannot use PGREQUIREPEER: jobctl can't do what `requirepeer` asks for; remove it";
        refuses("host=h", &[("PGREQUIREPEER", "postgres")], why);
        let why = "cannot use the database URL: it has no parameter `sslmod`; did you mean `sslmode`?";
        refuses("postgres://h/?sslmod=require", &[], why);
    }
}
