//! Collects the settings of a connection in libpq's order of precedence: the address, the service
//! file, the environment. Knows the keys and reads values, but not their effect.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use log::debug;

use crate::conninfo::{self, Pairs};
use crate::error::Error;
use crate::files;
use crate::parameter::{Parameter, find_key};

/// The keys that name a database. libpq has defaults for missing ones.
const NAMES: [&str; 5] = ["service", "host", "hostaddr", "user", "dbname"];

/// Looks up a variable of the environment.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Where a value comes from, for errors.
type Origin = Cow<'static, str>;

/// The settings that were given, each with its origin. Implements no `Debug`, because they contain
/// the password.
pub(crate) struct Settings<'a> {
    values: BTreeMap<&'static str, (String, Origin)>,
    environment: Lookup<'a>,
    /// The name of the program in errors.
    program: &'a str,
}

impl<'a> Settings<'a> {
    /// Collects the settings. `address` is a URL or key=value pairs, and its origin.
    pub(crate) fn collect(
        address: Option<(&str, &str)>,
        environment: Lookup<'a>,
        program: &'a str,
    ) -> Result<Self, Error> {
        let mut settings = Self { values: BTreeMap::new(), environment, program };
        if let Some((address, origin)) = address {
            let mut pairs =
                conninfo::parse(address).map_err(|cause| Error::of_setting(origin, cause))?;
            // If a key occurs twice, the last value counts. `add` keeps the first, so reverse them.
            pairs.reverse();
            settings.add(pairs, &origin.to_owned().into())?;
        }
        // The variables that name the service are needed before the others, which the service
        // overrides.
        settings.add_variables(|key| matches!(key, "service" | "servicefile"))?;
        if let Some(service) = settings.text("service").map(str::to_owned) {
            settings.add_service(&service)?;
        }
        settings.add_variables(|_| true)?;
        Ok(settings)
    }

    /// Returns the value of a variable; `None`: it is unset or empty.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        (self.environment)(name).filter(|value| !value.is_empty())
    }

    /// Returns the path of a file below the user's home.
    pub(crate) fn in_home(&self, name: &str) -> Option<PathBuf> {
        let home = self.variable("HOME").map(PathBuf::from);
        Some(home.or_else(|| files::account().map(|(_, home)| home))?.join(name))
    }

    /// Returns the value of a setting; `None`: it is missing or empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|(value, _)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns the origins of the settings that name the database; empty if libpq's defaults name
    /// it.
    pub(crate) fn origins(&self) -> Vec<String> {
        let mut origins = Vec::new();
        for name in NAMES.into_iter().filter(|name| self.text(name).is_some()) {
            let origin = self.values[name].1.to_string();
            if !origins.contains(&origin) {
                origins.push(origin);
            }
        }
        origins
    }

    /// Returns the items of a list. Empty items stay, because the items of `host` and `port` belong
    /// together by their position.
    pub(crate) fn list(&self, name: &str) -> Vec<&str> {
        self.text(name).map(|text| text.split(',').map(str::trim).collect()).unwrap_or_default()
    }

    /// Returns the value of a setting that is a number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i32>, Error> {
        self.text(name)
            .map(|text| text.trim().parse())
            .transpose()
            .map_err(|_| self.invalid(name, "is not a number, or too large", "write it in digits"))
    }

    /// Returns the value of a setting that is a positive number, or `default` if it is missing;
    /// `None` for zero and less, which in libpq mean no limit, or the system's default.
    pub(crate) fn positive(&self, name: &str, default: u32) -> Result<Option<u32>, Error> {
        let number = self.number(name)?;
        Ok(number.map_or(Some(default), |n| u32::try_from(n).ok().filter(|n| *n > 0)))
    }

    /// Returns the value of a setting in seconds, as `positive` does.
    pub(crate) fn seconds(&self, name: &str, default: u32) -> Result<Option<Duration>, Error> {
        Ok(self.positive(name, default)?.map(|seconds| Duration::from_secs(seconds.into())))
    }

    /// Returns what the value of a setting stands for, by the list of `choices`, or `default` if it
    /// is missing.
    pub(crate) fn choice<T: Copy>(
        &self,
        name: &str,
        default: T,
        choices: &[(&str, T)],
    ) -> Result<T, Error> {
        let Some(text) = self.text(name) else { return Ok(default) };
        if let Some((_, chosen)) = choices.iter().find(|(choice, _)| *choice == text) {
            return Ok(*chosen);
        }
        let allowed = choices.iter().map(|(choice, _)| *choice).collect::<Vec<_>>().join(", ");
        Err(self.invalid(name, "has an unknown value", &format!("use {allowed}")))
    }

    /// Returns the value of a setting that must be one of these words; the first is the default.
    pub(crate) fn word<const N: usize>(
        &self,
        name: &str,
        words: [&'static str; N],
    ) -> Result<&'static str, Error> {
        self.choice(name, words[0], &words.map(|word| (word, word)))
    }

    /// Returns an error that names the key and its origin, but not the value, which may be a
    /// secret.
    pub(crate) fn invalid(&self, name: &str, cause: &str, remedy: &str) -> Error {
        let origin = self.values.get(name).map_or("the database settings", |(_, origin)| origin);
        Error::of_setting(origin, format!("`{name}` {cause}; {remedy}"))
    }

    /// Adds settings, except those that have a value already: it has a higher precedence.
    fn add(&mut self, pairs: Pairs, origin: &Origin) -> Result<(), Error> {
        for (name, value) in pairs {
            match find_key(&name, &value, self.program)
                .map_err(|cause| Error::of_setting(origin, cause))?
            {
                None => debug!("`{name}` in {origin} has no effect"),
                Some(key) => {
                    self.values.entry(key).or_insert_with(|| (value, origin.clone()));
                }
            }
        }
        Ok(())
    }

    /// Adds the values of environment variables for keys that have no value yet, if `includes` is
    /// true for the key.
    fn add_variables(&mut self, includes: impl Fn(&str) -> bool) -> Result<(), Error> {
        for parameter in Parameter::all().filter(|parameter| includes(parameter.key())) {
            if let Some(variable) = parameter.variable()
                && let Some(value) = self.variable(variable)
            {
                self.add(vec![(parameter.key().to_owned(), value)], &variable.into())?;
            }
        }
        Ok(())
    }

    /// Adds the settings of a service, from the user's service file, or from the system's if the
    /// user's lacks the service.
    fn add_service(&mut self, service: &str) -> Result<(), Error> {
        let own = self
            .text("servicefile")
            .map(PathBuf::from)
            .or_else(|| self.in_home(".pg_service.conf").filter(|path| path.exists()));
        let system = self.variable("PGSYSCONFDIR");
        let system = PathBuf::from(system.as_deref().unwrap_or("/etc/postgresql-common"));
        let system = Some(system.join("pg_service.conf")).filter(|path| path.exists());
        for path in own.into_iter().chain(system) {
            let origin = Origin::from(format!("service file {}", path.display()));
            let pairs = files::service(&path, service)
                .map_err(|cause| Error::of_setting(&origin, cause))?;
            let Some(pairs) = pairs else { continue };
            if pairs.iter().any(|(name, _)| name == "service") {
                let cause = "a service cannot name another service; remove `service`";
                return Err(Error::of_setting(&origin, cause));
            }
            return self.add(pairs, &origin);
        }
        // The error may show the service's name, which is not a secret: other users may read its
        // file.
        let cause = format!("is `{service}`, but no service file has this service");
        Err(self.invalid("service", &cause, "correct it, or set PGSERVICEFILE"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIVEN: &str = "the database URL";

    fn collect<'a>(url: Option<&str>, environment: Lookup<'a>) -> Result<Settings<'a>, Error> {
        Settings::collect(url.map(|url| (url, GIVEN)), environment, "psql")
    }

    #[track_caller]
    fn collects(url: Option<&str>, variables: &[(&str, &str)], expected: &[(&str, Option<&str>)]) {
        let environment = |name: &str| {
            variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        };
        let settings = collect(url, &environment).unwrap_or_else(|error| panic!("{error}"));
        for (name, value) in expected {
            assert_eq!(settings.text(name), *value, "{name}");
        }
    }

    #[track_caller]
    fn refuses(url: &str, variables: &[(&str, &str)], why: &str) {
        let environment = |name: &str| {
            variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        };
        let refused = collect(Some(url), &environment).err().map(|error| error.to_string());
        assert_eq!(refused.as_deref(), Some(why));
    }

    #[test]
    fn an_address_takes_precedence_over_the_environment() {
        let environment = [("PGHOST", "e"), ("PGPORT", "1"), ("PGPASSWORD", "p")];
        collects(
            Some("host=g"),
            &environment,
            &[("host", Some("g")), ("port", Some("1")), ("password", Some("p"))],
        );
        collects(None, &environment[..2], &[("host", Some("e")), ("user", None)]);
    }

    #[test]
    fn an_empty_value_hides_the_environment() {
        collects(
            Some("host='' dbname=a dbname=b"),
            &[("PGHOST", "e")],
            &[("host", None), ("dbname", Some("b"))],
        );
        collects(None, &[("PGHOST", "")], &[("host", None)]);
    }

    #[test]
    fn a_service_ranks_between_the_address_and_the_environment() {
        let home = tempfile::tempdir().expect("a directory");
        let text = b"[s]\nhost=s\nport=3\nuser=s\n";
        std::fs::write(home.path().join(".pg_service.conf"), text).expect("written");
        let environment =
            [("HOME", home.path().to_str().expect("UTF-8")), ("PGPORT", "1"), ("PGDATABASE", "e")];
        let expected =
            [("host", Some("s")), ("port", Some("3")), ("user", Some("g")), ("dbname", Some("e"))];
        collects(Some("service=s user=g"), &environment, &expected);
        let find = |name: &str| {
            let found = environment.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let origins = |url| collect(url, &find).ok().map(|it| it.origins());
        let file = format!("service file {}/.pg_service.conf", home.path().display());
        let named = [GIVEN.to_owned(), file, "PGDATABASE".to_owned()];
        assert_eq!(origins(Some("service=s user=g")), Some(named.to_vec()));
        assert_eq!(origins(Some("sslmode=disable dbname=''")), Some(Vec::new()));
        collects(Some("user=g"), &[&environment[..], &[("PGSERVICE", "s")]].concat(), &expected);
        let why = |origin: &str| {
            let cause = "`service` is `t`, but no service file has this service";
            format!("cannot use {origin}: {cause}; correct it, or set PGSERVICEFILE")
        };
        refuses("service=t", &environment, &why("the database URL"));
        refuses("user=g", &[&environment[..], &[("PGSERVICE", "t")]].concat(), &why("PGSERVICE"));
    }

    #[test]
    fn an_unsupported_or_unknown_key_is_refused() {
        collects(
            Some("gssencmode=prefer sslcompression=1 pgbouncer=true"),
            &[],
            &[("gssencmode", None)],
        );
        let why = "cannot use PGREQUIREPEER: psql does not support `requirepeer`; remove it";
        refuses("host=h", &[("PGREQUIREPEER", "postgres")], why);
        let why =
            "cannot use the database URL: unknown parameter `sslmod`; did you mean `sslmode`?";
        refuses("postgres://h/?sslmod=require", &[], why);
    }
}
