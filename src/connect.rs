//! jobctl's connections, over the crate `postgres-connect`: which settings it reads, its limits and
//! remedies, and the exit status of each error.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use log::{Level, log};
use postgres_connect::conninfo::{Conninfo, Parameter, may_be_secret};
use postgres_connect::{Error, ErrorKind};
use rustix::process::geteuid;
use tokio_postgres::AsyncMessage;

pub(crate) use postgres_connect::{Client, Rejection, Target, Wait, is_behind_pooler, os_user};

use crate::exit::{Exit, Fault};

/// The oldest major version of PostgreSQL that jobctl supports.
const OLDEST_SERVER: u32 = 14;
/// The most bytes of a message, such as a row. The longest row has a payload of 16 MiB as text.
const LARGEST_MESSAGE: usize = 64 * MIB;
/// The most bytes of an answer. The largest one lists some hundred thousand runs.
const LARGEST_ANSWER: usize = 256 * MIB;
const MIB: usize = 1024 * 1024;
/// The longest wait for the server after an interruption.
pub(crate) const INTERRUPTED_LIMIT: Duration = Duration::from_secs(1);
/// A warning of the database is logged again after this time, if it comes again.
const WARNED_FOR: Duration = Duration::from_secs(3600);

/// The origin of an address that the caller gives.
pub(crate) const GIVEN: &str = "the database URL";
const DATABASE_URL: &str = "DATABASE_URL";

const WITH_PASSWORD: &str = "its password would be written into a file that others may read, or a \
                             mail; put it into ~/.pgpass instead, or add --env-file";

const WITH_SECRET: &str = "it has a parameter that may be secret, and would be written into a file \
                           that others may read; remove sslpassword, scram_client_key, \
                           scram_server_key, oauth_client_secret and unknown parameters";

/// Looks up a variable of the environment.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Returns the database of `url`, or else of `DATABASE_URL`. The service file and the `PG*`
/// variables add missing settings; for the rest, libpq's defaults apply.
pub(crate) fn resolve(url: Option<&str>, environment: Lookup<'_>) -> anyhow::Result<Target> {
    let of_variable = environment(DATABASE_URL).filter(|_| url.is_none());
    if of_variable.as_ref().is_some_and(|address| address.trim().is_empty()) {
        return Err(Fault::empty(DATABASE_URL).into());
    }
    let mut target = Target::builder()
        .variables(environment)
        .program("jobctl")
        .oldest_server(OLDEST_SERVER)
        .largest_message(LARGEST_MESSAGE)
        .largest_answer(LARGEST_ANSWER);
    if let Some(url) = url {
        target = target.address(url, GIVEN);
    } else if let Some(url) = &of_variable {
        target = target.address(url, DATABASE_URL);
    }
    target.resolve().map_err(|error| fault(&error, AddressSource::Settings))
}

/// Where the address of a database comes from.
#[derive(Clone, Copy, Eq, PartialEq)]
enum AddressSource {
    /// Some setting names the database, or is itself wrong.
    Settings,
    /// No setting names the database, so libpq's defaults lead to it.
    Defaults,
}

/// A connection that a thread is opening.
pub(crate) struct PendingConnection {
    pending: postgres_connect::PendingClient,
    source: AddressSource,
}

/// Starts a thread that connects, and calls `finished` when `poll` has the result.
pub(crate) fn start(
    target: &Target,
    finished: impl FnOnce() + Send + 'static,
) -> PendingConnection {
    let is_named = !target.origins().is_empty();
    let source = if is_named { AddressSource::Settings } else { AddressSource::Defaults };
    let target = target.clone().on_message(notice_logger());
    PendingConnection { pending: target.connect_in_background(finished), source }
}

/// Connects, and waits for that. After an interruption, waits a second at most.
pub(crate) fn open(target: &Target, interrupted: &AtomicBool) -> anyhow::Result<Client> {
    let PendingConnection { pending, source } = start(target, || ());
    let mut wait = Wait::unlimited().interruptible(interrupted, INTERRUPTED_LIMIT);
    pending.wait(&mut wait).map_err(|error| fault(&error, source))
}

impl PendingConnection {
    /// Returns the connection or the error; `None`: the thread is still connecting.
    pub(crate) fn poll(&self) -> Option<anyhow::Result<Client>> {
        let result = self.pending.poll()?;
        Some(result.map_err(|error| fault(&error, self.source)))
    }
}

/// Converts an error to one with an exit status and a remedy that names jobctl's flags. The status
/// is `Unavailable` if another host or time may help, `Configuration` if only a person can help.
fn fault(error: &Error, source: AddressSource) -> anyhow::Error {
    use ErrorKind::{
        Interrupted, Login, Network, Password, Rules, Timeout, UnknownDatabase, UnknownHost,
        UnknownRole,
    };
    let is_default = source == AddressSource::Defaults;
    let remedy = match error.kind() {
        // The server has not rejected a password: none was given, and the address may be right.
        Password if error.sql_state().is_none() => error.remedy(),
        Rules | Password | UnknownRole | UnknownDatabase | Login if is_default => {
            "name the database: set --database-url, DATABASE_URL or the PG* variables, or write it \
             into a file by `jobctl init --env-file`"
        }
        Network | Timeout | UnknownHost if is_default => {
            "is PostgreSQL running there? set --database-url, DATABASE_URL or the PG* variables, \
             or write the address into a file by `jobctl init --env-file`"
        }
        Network => {
            "is PostgreSQL running there? set --database-url, DATABASE_URL or the PG* variables"
        }
        Timeout | Interrupted => {
            "is PostgreSQL running there, or a pooler whose pool is exhausted or paused? set \
             --database-url, DATABASE_URL or the PG* variables"
        }
        UnknownHost => "correct it in --database-url, DATABASE_URL or PGHOST, or check the DNS",
        UnknownRole => {
            "create this role, or name another in --database-url, DATABASE_URL or PGUSER"
        }
        _ => error.remedy(),
    };
    let temporary = error.kind().is_temporary() || error.kind() == Interrupted;
    let exit = if temporary { Exit::Unavailable } else { Exit::Configuration };
    let separator = if remedy.is_empty() { "" } else { "; " };
    let cause = match error.kind() {
        // Do not name the interruption, which the user made.
        Interrupted => {
            let limit = INTERRUPTED_LIMIT.as_secs();
            format!("cannot connect to the database: no answer within {limit}s")
        }
        _ => error.cause().to_owned(),
    };
    Fault::new(exit, format!("{cause}{separator}{remedy}")).into()
}

/// Returns a function that logs the notices of one connection. Notices that begin with `jobctl: `
/// are warnings: by them, functions of jobctl report what they could not do. Others are debug
/// messages.
fn notice_logger() -> impl Fn(&AsyncMessage) + Send + Sync {
    // The last warning, and when it was logged.
    let warned = Mutex::new(None::<(String, Instant)>);
    move |message| {
        let AsyncMessage::Notice(notice) = message else { return };
        let text = notice.message();
        let mut warned = warned.lock().unwrap_or_else(PoisonError::into_inner);
        // On a full disk, each repeated statement brings the same notice: warn of it once.
        let is_repeated =
            warned.as_ref().is_some_and(|(last, at)| last == text && at.elapsed() < WARNED_FOR);
        let is_own = text.starts_with("jobctl: ");
        let level = if is_own && !is_repeated { Level::Warn } else { Level::Debug };
        if level == Level::Warn {
            *warned = Some((text.to_owned(), Instant::now()));
        }
        log!(level, "database: {}: {text}", notice.severity());
    }
}

/// Returns the user of this process: its name, or else its number.
pub(crate) fn system_user() -> &'static str {
    static USER: OnceLock<String> = OnceLock::new();
    USER.get_or_init(|| os_user().unwrap_or_else(|| geteuid().as_raw().to_string()))
}

/// Returns whether `DATABASE_URL` or a variable that libpq reads names a server or a database. A
/// variable with a user's name does neither. `is_set` returns whether a variable is set.
pub(crate) fn is_named(is_set: impl Fn(&str) -> bool) -> bool {
    [DATABASE_URL, "PGSERVICE", "PGHOST", "PGHOSTADDR", "PGDATABASE"].into_iter().any(is_set)
}

/// Returns whether a variable can be a part of an address.
pub(crate) fn is_of_address(name: &str) -> bool {
    name == DATABASE_URL || Parameter::all().any(|parameter| parameter.variable() == Some(name))
}

/// The users that can read the file in which another process finds its variables.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Readers {
    OnlyUser,
    Others,
}

/// Returns the variables by which another process finds the same database: `name` with the value
/// `url`, or else `DATABASE_URL`, and the `PG*` variables. If other users are `readers`, a password
/// in them is an error. Errors about `url` name its `origin`.
pub(crate) fn variables(
    name: &str,
    origin: &str,
    url: Option<&str>,
    environment: Lookup<'_>,
    readers: Readers,
) -> anyhow::Result<Vec<(String, String)>> {
    let variable = |name: &str| environment(name).filter(|value| !value.is_empty());
    let address = match url {
        Some(url) => Some((name, origin, url.to_owned())),
        None => variable(DATABASE_URL).map(|url| (DATABASE_URL, DATABASE_URL, url)),
    };
    let mut found = Vec::new();
    if let Some((name, origin, address)) = address {
        let given = Conninfo::parse(&address, origin)
            .map_err(|error| fault(&error, AddressSource::Settings))?;
        match given.pairs().find(|(key, _)| readers == Readers::Others && may_be_secret(key)) {
            Some(("password", _)) => return Err(unusable(origin, WITH_PASSWORD)),
            Some(_) => return Err(unusable(origin, WITH_SECRET)),
            None => {}
        }
        let mut complete = given.clone();
        for (key, value) in given.pairs() {
            if let Some(path) = absolute(key, value)? {
                complete.set(key, &path);
            }
        }
        found.push((name.to_owned(), complete.as_str().to_owned()));
    }
    for parameter in Parameter::all() {
        if let Some(name) = parameter.variable()
            && let Some(value) = variable(name)
        {
            let value = absolute(parameter.key(), &value)?.unwrap_or(value);
            found.push((name.to_owned(), value));
        }
    }
    if readers == Readers::Others && found.iter().any(|(name, _)| name == "PGPASSWORD") {
        return Err(unusable("PGPASSWORD", WITH_PASSWORD));
    }
    Ok(found)
}

/// Returns the absolute path for a setting whose value is a relative path, because the other
/// process may start in another folder. `None`: the value can stay.
fn absolute(key: &str, value: &str) -> anyhow::Result<Option<String>> {
    let is_path = Parameter::all().any(|parameter| parameter.key() == key && parameter.is_path());
    if !is_path
        || value.is_empty()
        || Path::new(value).is_absolute()
        || (key, value) == ("sslrootcert", "system")
    {
        return Ok(None);
    }
    let path = std::path::absolute(value)?.into_os_string().into_string();
    path.map(Some).map_err(|_| unusable(key, "its folder is not UTF-8; use another folder"))
}

/// Returns the error for a setting that can't be passed on. `reason` ends in its remedy.
fn unusable(origin: &str, reason: &str) -> anyhow::Error {
    Fault::new(Exit::Configuration, format!("cannot use {origin}: {reason}")).into()
}
