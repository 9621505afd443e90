//! The definitions file: TOML, one table per job. An error names its line, job and key. Pure.

use chrono::{DateTime, Utc};
use cron_zone::Schedule;
use serde_json::{Map, Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::job::action::{Action, JobKind};
use crate::job::definition_keys::{
    Check, FILE_KEYS, HTTP_KEYS, KEYS, Key, NOT_WITH_AFTER, OF_ONE_JOB, Overlap, check_name,
    require,
};
use crate::job::payload;
use crate::text::did_you_mean;
use crate::text::{duration, plural};

/// A job as the file defines it.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    pub(crate) name: String,
    /// The values of the columns of `job_definitions`; durations are in seconds. A column without a
    /// value here is NULL.
    pub(crate) row: Value,
    pub(crate) schedule: Option<Schedule>,
    /// Whether neither the job nor `[defaults]` gives a time zone.
    pub(crate) lacks_zone: bool,
}

impl Definition {
    /// Returns the values as PostgreSQL reads them. Writes durations as hours and seconds, because
    /// PostgreSQL 14 can't read a number of seconds above 68 years.
    pub(crate) fn columns(&self) -> Value {
        let mut row = self.row.clone();
        for key in KEYS.iter().filter(|key| matches!(key.check, Check::TimeSpan(..))) {
            if let Some(seconds) = row[key.name].as_f64() {
                row[key.name] =
                    format!("{:.0}h {}s", seconds.div_euclid(3600.0), seconds % 3600.0).into();
            }
        }
        row
    }
}

/// The contents of a file.
#[derive(Debug)]
pub(crate) struct DefinitionFile {
    /// Its name in `[file]`.
    pub(crate) name: Option<String>,
    pub(crate) definitions: Vec<Definition>,
}

/// A mistake in a file.
#[derive(Debug, PartialEq)]
pub(crate) struct Problem {
    /// Counts from 1.
    pub(crate) line: usize,
    pub(crate) what: String,
}

/// How many intervals between nominal times are compared with `spread`.
const INTERVALS: usize = 100;
/// The most jobs of a file. Reading that many takes about 100 MB.
const MOST_JOBS: usize = 10_000;

/// Reads a file. Each schedule must fire after `now`. Fails with all mistakes, sorted by line.
pub(crate) fn read(text: &str, now: DateTime<Utc>) -> Result<DefinitionFile, Vec<Problem>> {
    let file = DeTable::parse(text).map_err(|error| {
        let message = error.message().replace('\n', " ");
        let span = error.span().unwrap_or_default();
        // The parser does not name a duplicate key.
        let what = match text.get(span.clone()) {
            Some(key) if message == "duplicate key" => format!("{message} `{key}`"),
            _ => message,
        };
        at_lines(text, vec![(span.start, what)])
    })?;
    let defaults = file.get_ref().get("defaults").map(Spanned::get_ref);
    // Give the jobs no wrong defaults: their mistakes are reported once, below, not for each job.
    let valid_defaults = defaults
        .filter(|defaults| read_table("defaults", defaults).is_ok())
        .and_then(DeValue::as_table);
    let (mut definitions, mut problems) = (Vec::new(), Vec::new());
    let (mut of_file, mut of_defaults) = (Map::new(), Map::new());
    for (key, value) in file.get_ref() {
        let (name, value) = (key.get_ref().as_ref(), value.get_ref());
        let read = match name {
            "file" => read_table(name, value).map(|read| of_file = read),
            "defaults" => read_table(name, value).map(|read| of_defaults = read),
            "jobs" => read_jobs(value, valid_defaults, now, &mut definitions),
            _ => {
                let known = did_you_mean::key_suggestion(name, ["jobs", "defaults", "file"]);
                let holds = "a file holds [jobs.NAME] tables, [defaults] and [file]";
                Err(vec![format!("unknown key `{name}`; {holds}{known}").into()])
            }
        };
        for Mistake { place, why } in read.err().into_iter().flatten() {
            problems.push((place.unwrap_or(key.span().start), why));
        }
    }
    if !problems.is_empty() {
        return Err(at_lines(text, problems));
    }
    of_defaults.retain(|name, _| KEYS.iter().any(|key| key.name == name && key.is_hook()));
    set_hooks(&mut definitions, &of_defaults);
    let name = of_file.get("name").and_then(Value::as_str).map(str::to_owned);
    Ok(DefinitionFile { name, definitions })
}

/// Reads `[jobs]`, and adds the jobs without a mistake to `definitions`.
fn read_jobs<'a>(
    jobs: &DeValue<'a>,
    defaults: Option<&DeTable<'a>>,
    now: DateTime<Utc>,
    definitions: &mut Vec<Definition>,
) -> Result<(), Vec<Mistake>> {
    let jobs =
        jobs.as_table().ok_or_else(|| vec!["`jobs` holds [jobs.NAME] tables".to_owned().into()])?;
    if jobs.len() > MOST_JOBS {
        let most = plural::grouped_of(MOST_JOBS as i64, "job");
        let why = format!("more than {most}; remove some, or enqueue runs instead");
        return Err(vec![why.into()]);
    }
    let mut mistakes = Vec::new();
    for (name, job) in jobs {
        match read_job(name.get_ref(), job.get_ref(), defaults, now) {
            Ok(definition) => definitions.push(definition),
            Err(found) => mistakes.extend(found.into_iter().map(|mistake| Mistake {
                place: mistake.place.or(Some(name.span().start)),
                why: format!("job `{}`: {}", name.get_ref().escape_debug(), mistake.why),
            })),
        }
    }
    if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
}

/// Reads `[defaults]` or `[file]`.
fn read_table(name: &str, table: &DeValue<'_>) -> Result<Map<String, Value>, Vec<Mistake>> {
    let (known, excluded, prefix) = match name {
        "file" => (FILE_KEYS, &[][..], "`file`: "),
        _ => (KEYS, &OF_ONE_JOB[..], "`defaults`: "),
    };
    let table = table.as_table().ok_or_else(|| vec![format!("`{name}` must be a table").into()])?;
    let keys = Keys { table, prefix };
    let mut mistakes = Vec::new();
    let values = keys.read(known, &mut mistakes);
    for key in excluded.iter().filter(|key| keys.has(key)) {
        let why = "says what one job runs, or when; write it in its [jobs.NAME] table";
        mistakes.push(keys.mistake(key, format!("`{key}` {why}")));
    }
    if mistakes.is_empty() { Ok(values) } else { Err(mistakes) }
}

/// Gives the jobs the hooks of `[defaults]` that they do not set. A job that is itself a hook gets
/// no hook.
fn set_hooks(definitions: &mut [Definition], default_hooks: &Map<String, Value>) {
    let hook_keys = KEYS.iter().filter(|key| key.is_hook());
    let of_jobs = definitions
        .iter()
        .flat_map(|definition| hook_keys.clone().map(|key| &definition.row[key.name]));
    let jobs_that_are_hooks: Vec<_> = of_jobs
        .chain(default_hooks.values())
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    for Definition { name, row, .. } in definitions {
        if let Some(row) = row.as_object_mut().filter(|_| !jobs_that_are_hooks.contains(name)) {
            for (key, hook) in default_hooks {
                row.entry(key).or_insert_with(|| hook.clone());
            }
        }
    }
}

/// Returns the table of a job with the defaults that it does not set. Leaves out hooks, which
/// `set_hooks` sets later, defaults without the key that they need, and those that `after`
/// excludes.
fn with_defaults<'a>(job: &DeTable<'a>, defaults: &DeTable<'a>) -> DeTable<'a> {
    let mut table = job.clone();
    let has = |key: &str| job.contains_key(key) || defaults.contains_key(key);
    let fits = |key: &&Key| {
        let is_excluded = job.contains_key("after") && NOT_WITH_AFTER.contains(&key.name);
        !key.is_hook() && !job.contains_key(key.name) && !is_excluded && key.needs.is_none_or(has)
    };
    let added = KEYS.iter().filter(fits).filter_map(|key| defaults.get_key_value(key.name));
    table.extend(added.map(|(key, value)| (key.clone(), value.clone())));
    table
}

/// Turns mistakes and their offsets in the text into problems with line numbers, sorted by line.
fn at_lines(text: &str, mut mistakes: Vec<(usize, String)>) -> Vec<Problem> {
    mistakes.sort_by_key(|(offset, _)| *offset);
    let mut problems = Vec::new();
    let (mut line, mut counted_until) = (1, 0);
    for (offset, what) in mistakes {
        let offset = offset.min(text.len());
        line += text[counted_until..offset].matches('\n').count();
        counted_until = offset;
        problems.push(Problem { line, what });
    }
    problems
}

/// A mistake in a file, in the words for its author.
struct Mistake {
    /// The offset of the wrong key in the text; `None`: the mistake is about the whole table.
    place: Option<usize>,
    why: String,
}

impl From<String> for Mistake {
    fn from(why: String) -> Self {
        Self { place: None, why }
    }
}

/// A table of the file with its keys: of a job, of its `http` call, `[defaults]` or `[file]`.
#[derive(Clone, Copy)]
struct Keys<'a> {
    table: &'a DeTable<'a>,
    /// The text before a mistake's message, such as `` `http`: ``.
    prefix: &'static str,
}

impl Keys<'_> {
    fn has(self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// A mistake at the place of a key.
    fn mistake(self, key: &str, why: String) -> Mistake {
        let place = self.table.get_key_value(key).map(|(key, _)| key.span().start);
        Mistake { place, why: format!("{}{why}", self.prefix) }
    }

    /// A mistake in the value of a key.
    fn wrong(self, key: &str, why: &str) -> Mistake {
        self.mistake(key, format!("`{key}`: {why}"))
    }

    /// Returns a mistake for each key that is not `known`.
    fn unknown(self, known: &[&str]) -> impl Iterator<Item = Mistake> {
        let keys = self.table.keys().map(|key| key.get_ref().as_ref());
        keys.filter(|key| !known.contains(key)).map(move |key| {
            let mut remedy = did_you_mean::key_suggestion(key, known.iter().copied());
            if remedy.is_empty() {
                remedy = format!("; known are {}", known.join(", "));
            }
            self.wrong(key, &format!("unknown key{remedy}"))
        })
    }

    /// Returns the value of each `known` key in the table, in the form of its column. Adds unknown
    /// keys and wrong values to `mistakes`.
    fn read(self, known: &[Key], mistakes: &mut Vec<Mistake>) -> Map<String, Value> {
        let names: Vec<_> = known.iter().map(|key| key.name).collect();
        mistakes.extend(self.unknown(&names));
        let mut values = Map::new();
        for key in known {
            let Some(value) = self.table.get(key.name) else { continue };
            match to_json(value.get_ref()).and_then(|value| key.check.read(value)) {
                Ok(value) => {
                    values.insert(key.name.to_owned(), value);
                }
                Err(why) => mistakes.push(self.wrong(key.name, &why)),
            }
        }
        values
    }
}

/// Reads one job: its keys and those of `[defaults]`, what it runs, and when. Collects every
/// mistake before it fails.
fn read_job<'a>(
    name: &str,
    job: &DeValue<'a>,
    defaults: Option<&DeTable<'a>>,
    now: DateTime<Utc>,
) -> Result<Definition, Vec<Mistake>> {
    check_name(name).map_err(|why| vec![why.into()])?;
    let table =
        job.as_table().ok_or_else(|| vec!["must be a table, [jobs.NAME]".to_owned().into()])?;
    let with_defaults = defaults.map(|defaults| with_defaults(table, defaults));
    let keys = Keys { table: with_defaults.as_ref().unwrap_or(table), prefix: "" };
    let mut mistakes = Vec::new();
    let mut values = keys.read(KEYS, &mut mistakes);
    // A wrong `shell` or `http` is missing in `values`, and is one of the mistakes already.
    let action_is_wrong = JobKind::ALL
        .iter()
        .any(|kind| keys.has(kind.as_str()) && !values.contains_key(kind.as_str()));
    let (kind, action) = if action_is_wrong {
        Default::default()
    } else {
        accepted(take_action(keys, &mut values), &mut mistakes)
    };
    let usual_values = KEYS.iter().map(|key| (key.name.to_owned(), (key.default)()));
    let mut row = Map::from_iter(usual_values);
    row.retain(|_, value| !value.is_null());
    row.extend(values);
    let mut row = Value::Object(row);
    (row["name"], row["kind"], row["action"]) = (name.into(), json!(kind), action.into());
    for key in KEYS.iter().filter(|key| keys.has(key.name)) {
        let Some(needed) = key.needs.filter(|needed| !keys.has(needed)) else { continue };
        let rest = match (needed, keys.has("http")) {
            // Without `shell` and `http`, the job has nothing to run, which is another mistake.
            ("shell", false) => continue,
            ("shell", true) => ", and this job has `http`",
            _ => "; add it",
        };
        mistakes.push(keys.mistake(key.name, format!("`{}` needs `{needed}`{rest}", key.name)));
    }
    for key in NOT_WITH_AFTER {
        if keys.has("after") && keys.has(key) {
            let why = format!("excludes `{key}`: the job has the times of the jobs in `after`");
            mistakes.push(keys.wrong("after", &why));
        }
    }
    let schedule = accepted(read_schedule(keys, &row, now), &mut mistakes);
    if mistakes.is_empty() {
        let lacks_zone = schedule.is_some() && !keys.has("time_zone");
        Ok(Definition { name: name.to_owned(), row, schedule, lacks_zone })
    } else {
        Err(mistakes)
    }
}

/// Returns the value. After a mistake, notes it and returns an empty value, so that the other keys
/// can be checked, too.
fn accepted<T: Default>(result: Result<T, Mistake>, mistakes: &mut Vec<Mistake>) -> T {
    result.unwrap_or_else(|mistake| {
        mistakes.push(mistake);
        T::default()
    })
}

/// Returns the schedule of a job if it has one. It must fire after `now`, and `spread` must fit
/// it.
fn read_schedule(
    keys: Keys<'_>,
    row: &Value,
    now: DateTime<Utc>,
) -> Result<Option<Schedule>, Mistake> {
    let text = |key: &str| row[key].as_str();
    let Some((expression, time_zone)) = text("schedule").zip(text("time_zone")) else {
        return Ok(None);
    };
    let schedule = Schedule::parse(expression, time_zone);
    let schedule = schedule.map_err(|why| keys.wrong("schedule", &why.to_string()))?;
    schedule.first(now).map_err(|why| keys.wrong("schedule", &why.to_string()))?;
    check_spread(expression, row).map_err(|why| keys.mistake("spread", why))?;
    Ok(Some(schedule))
}

/// Reads the action with the same code as a tick after a claim, so that `apply` refuses every
/// action that a tick could not read. Takes the keys of the action out of `values`.
fn take_action(
    job: Keys<'_>,
    values: &mut Map<String, Value>,
) -> Result<(JobKind, Map<String, Value>), Mistake> {
    let (kind, action) = match (values.remove("shell"), values.remove("http")) {
        (Some(_), Some(_)) => {
            return Err(job.wrong("shell", "a job is either `http` or `shell`"));
        }
        (None, None) => {
            let why = "it has neither `shell` nor `http`, so there is nothing to run";
            return Err(why.to_owned().into());
        }
        (Some(command), None) => {
            let mut action = Map::from_iter([("command".to_owned(), command)]);
            let keys = KEYS.iter().filter(|key| key.needs == Some("shell"));
            action.extend(keys.filter_map(|key| values.remove_entry(key.name)));
            (JobKind::Shell, action)
        }
        (None, Some(Value::Object(call))) => (JobKind::Http, call),
        (None, Some(_)) => {
            return Err(job.wrong("http", "must be a table: { url = \"https://...\" }"));
        }
    };
    let call = job.table.get("http").and_then(|call| call.get_ref().as_table());
    let call = call.map(|table| Keys { table, prefix: "`http`: " });
    if let Some(mistake) = call.and_then(|call| call.unknown(&HTTP_KEYS).next()) {
        return Err(mistake);
    }
    let payload = values.get("payload").map_or_else(|| "{}".to_owned(), Value::to_string);
    payload::check(payload.as_bytes())
        .map_err(|why| job.wrong("payload", without_position(&why)))?;
    let read = Action::of_definition(kind, &Value::Object(action.clone()).to_string(), &payload);
    read.and_then(|action| action.check_program()).map_err(|why| {
        // In a file, the key of a command is `shell`.
        let why = without_position(&why).replace("`command`", "`shell`");
        // Find the line of the key that the message names in backquotes.
        let keys = call.unwrap_or(job);
        let named = why.split('`').nth(1).filter(|named| keys.has(named));
        match named.or_else(|| why.starts_with("header").then_some("headers")) {
            Some(key) => keys.mistake(key, why.clone()),
            None => job.wrong(kind.as_str(), &why),
        }
    })?;
    Ok((kind, action))
}

/// Removes the position from a message of the JSON parser: it is a position in JSON that was made
/// from the file.
fn without_position(why: &str) -> &str {
    why.rsplit_once(", at line 1 column ").map_or(why, |(why, _)| why)
}

/// With `overlap = "skip"`, refuses a spread that is longer than the interval between two nominal
/// times: a run that still waits for its delay would make the schedule skip the next time.
fn check_spread(schedule: &str, row: &Value) -> Result<(), String> {
    // Compute times in UTC from a fixed day, so that a file that is valid today stays valid.
    let times: Vec<_> =
        Schedule::parse(schedule, "UTC")?.fires(DateTime::UNIX_EPOCH).take(INTERVALS + 1).collect();
    let intervals = times.windows(2).filter_map(|pair| (pair[1].at - pair[0].at).to_std().ok());
    let spread = row["spread"].as_f64().unwrap_or_default();
    match intervals.min().filter(|interval| interval.as_secs_f64() < spread) {
        Some(interval) if row["overlap"] == Overlap::Skip.as_str() => Err(format!(
            "`spread` is longer than the {} between two times, so overlap = \"skip\" would skip \
             the second",
            duration::show(interval)
        )),
        _ => Ok(()),
    }
}

/// Converts a value of the file into JSON, and refuses what PostgreSQL or JSON can't store.
fn to_json(value: &DeValue<'_>) -> Result<Value, String> {
    let without_nul = |text: &str| {
        require(!text.contains('\0'), || "has a NUL, which can't be stored".to_owned())
            .map(|()| text.to_owned())
    };
    Ok(match value {
        DeValue::String(text) => without_nul(text)?.into(),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_err(|_| format!("{number} is too large"))?
            .into(),
        DeValue::Float(number) => {
            let float = number.as_str().parse::<f64>().ok().and_then(serde_json::Number::from_f64);
            Value::Number(float.ok_or_else(|| format!("JSON has no number {number}"))?)
        }
        DeValue::Boolean(yes) => (*yes).into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Array(items) => {
            items.iter().map(|item| to_json(item.get_ref())).collect::<Result<_, _>>()?
        }
        DeValue::Table(table) => {
            let members = table
                .iter()
                .map(|(key, value)| Ok((without_nul(key.get_ref())?, to_json(value.get_ref())?)));
            Value::Object(members.collect::<Result<_, String>>()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn one(text: &str) -> Definition {
        let mut definitions = read(text, DateTime::UNIX_EPOCH).unwrap().definitions;
        assert_eq!(definitions.len(), 1);
        definitions.remove(0)
    }

    #[track_caller]
    fn refuses(text: &str, line: usize, what: &str) {
        let problem = &read(text, DateTime::UNIX_EPOCH).unwrap_err()[0];
        assert_eq!(problem.line, line, "{problem:?}");
        assert!(problem.what.contains(what), "{problem:?}");
    }

    #[test]
    fn a_shell_job_has_its_command_in_its_action() {
        let job = one(
            "[jobs.cleanup]\nshell = 'bin/cleanup --all'\ncwd = '/srv'\nenv = { LANG = 'C' }\n\
             timeout = '10m'\n",
        );
        assert_eq!((&job.row["kind"], &job.row["timeout"]), (&json!("shell"), &json!(600.0)));
        assert_eq!(
            job.row["action"],
            json!({"command": "bin/cleanup --all", "cwd": "/srv", "env": {"LANG": "C"}})
        );
        assert_eq!(
            one("[jobs.a]\nshell = ['ls', '-l']\n").row["action"],
            json!({"command": ["ls", "-l"]})
        );
    }

    #[test]
    fn an_http_job_has_its_call_in_its_action() {
        let job =
            one("[jobs.a.http]\nurl = 'https://a'\nmethod = 'PUT'\nheaders = { X = '${T}' }\n");
        assert_eq!(job.row["kind"], "http");
        assert_eq!(
            job.row["action"],
            json!({"url": "https://a", "method": "PUT", "headers": {"X": "${T}"}})
        );
    }

    #[test]
    fn missing_keys_take_their_defaults() {
        let job = one("[jobs.a]\nshell = 'x'\n");
        assert_eq!(
            job.row,
            json!({
                "name": "a", "kind": "shell", "action": {"command": "x"}, "payload": {},
                "time_zone": "UTC", "catch_up": "one", "overlap": "skip", "when_full": "refuse",
                "snooze": "run", "max_attempts": 10, "backoff": "exponential:1m..30m",
                "priority": 0, "queue": "default", "spread": 0.0, "enqueue_may_set": [],
                "enabled": true, "pass_result": false, "result": "text", "when": "success",
                "alert_after": 3, "each_worker": false,
            })
        );
        assert!(job.schedule.is_none());
    }

    #[test]
    fn expires_has_the_limits_of_expires_in() {
        let read = |expires: &str| format!("[jobs.a]\nshell = 'x'\nexpires = '{expires}'\n");
        assert_eq!(one(&read("3650d")).row["expires"], 3650.0 * 86400.0);
        for expires in ["3651d", "0s", "0"] {
            refuses(&read(expires), 3, "`expires`: `");
        }
    }

    #[test]
    fn enqueuers_are_roles_and_enqueue_may_set_names_limits() {
        let job =
            one("[jobs.a]\nshell = 'x'\nenqueuers = ['shop', 'a b']\nenqueue_may_set = ['queue', \
             'timeout']\n");
        assert_eq!(job.row["enqueuers"], json!(["shop", "a b"]));
        assert_eq!(job.row["enqueue_may_set"], json!(["queue", "timeout"]));
        assert_eq!(one("[jobs.a]\nshell = 'x'\nenqueuers = []\n").row["enqueuers"], json!([]));
        for (key, why) in [
            ("enqueuers = 'shop'", "`enqueuers`: must be a list of strings"),
            ("enqueuers = [1]", "`enqueuers`: must be a string"),
            ("enqueuers = ['']", "`enqueuers`: a role's name has 1 to 63 bytes"),
            (
                "enqueue_may_set = ['run_at']",
                "`enqueue_may_set`: must be one of queue, priority, timeout",
            ),
        ] {
            refuses(&format!("[jobs.a]\nshell = 'x'\n{key}\n"), 3, why);
        }
    }

    #[test]
    fn an_error_names_line_job_and_key() {
        refuses(
            "[jobs.a]\nshell = 'x'\nshedule = '@daily'\n",
            3,
            "job `a`: `shedule`: unknown key; did you mean `schedule`?",
        );
        refuses(
            "[job.a]\nshell = 'x'\n",
            1,
            "unknown key `job`; a file holds [jobs.NAME] tables, [defaults] and [file]; did you \
             mean `jobs`?",
        );
        refuses(
            "[jobs.a]\nshell = 'x'\n\n[jobs.b]\nqueue = 'x'\n",
            4,
            "job `b`: it has neither `shell` nor `http`",
        );
        refuses(
            "[jobs.a]\nshell = 'x'\nhttp = { url = 'http://a' }\n",
            2,
            "a job is either `http` or `shell`",
        );
        refuses("[jobs.a]\nhttp = { ulr = 'http://a' }\n", 2, "did you mean `url`?");
        refuses("[jobs.a]\nhttp = { url = 'ftp://a' }\n", 2, "must start with http://");
        refuses(
            "[jobs.a]\nshell = 'x'\nenv = { 'A=B' = 'c' }\n",
            3,
            "`env` has a name that is empty or contains `=`",
        );
        refuses(
            "[jobs.a]\nshell = 'x'\ntimeout = 5\n",
            3,
            "`timeout`: must be a string with a unit, such as \"5s\"",
        );
        refuses("[jobs.a]\nshell = 'x'\ntimeout = '5'\n", 3, "is not a duration");
        refuses("[jobs.a]\nshell = 'x'\nmax_attempts = 0\n", 3, "from 1 to 1000");
        refuses("[jobs.a]\nshell = 'x'\nbackoff = 'often'\n", 3, "is not a backoff");
        refuses("[jobs.a]\nshell = 'x'\noverlap = 'never'\n", 3, "one of skip, allow, queue");
        refuses("[jobs.a]\nshell = 'x'\ncatch_up = 'all:0'\n", 3, "all:N");
        refuses(
            "[jobs.a]\nshell = 'x'\ntime_zone = 'Europe/Berlin'\n",
            3,
            "`time_zone` needs `schedule`; add it",
        );
        let spread = |keys: &str| {
            format!("[jobs.a]\nshell = 'x'\nschedule = '*/5 9-17 * * *'\nspread = '6m'\n{keys}")
        };
        refuses(&spread(""), 4, "`spread` is longer than the 5m between two times");
        one(&spread("overlap = 'queue'\n"));
        one(&spread("").replace("6m", "5m"));
        refuses("[jobs.'a b']\nshell = 'x'\n", 1, "a name has 1 to 63");
        refuses("[jobs.shell]\nshell = 'x'\n", 1, "name of a built-in job");
        refuses("[jobs.a]\nshell = 'x'\nshell = 'y'\n", 3, "duplicate key `shell`");
        refuses("[jobs.a\n", 1, "");
        refuses("[file]\nname = 'a b'\n", 2, "`file`: `name`: a file's name has 1 to 63");
        refuses("[file]\nname = 1\n", 2, "`file`: `name`: must be a string");
        refuses("[file]\nas = 'a'\n", 2, "`file`: `as`: unknown key");
        refuses("file = 'billing'\n", 1, "`file` must be a table");
    }

    #[test]
    fn all_mistakes_of_a_job_are_reported() {
        let text = "[jobs.a]\ntimeout = '1'\nshedule = 'x'\nschedule = '0 25 * * *'\nburst = 2\n\
                    http = { ulr = 'http://a' }\n";
        let problems = read(text, DateTime::UNIX_EPOCH).unwrap_err();
        let lines: Vec<_> = problems.iter().map(|problem| problem.line).collect();
        assert_eq!(lines, [2, 3, 4, 5, 6], "{problems:?}");
    }

    #[test]
    fn an_error_uses_the_keys_of_the_file() {
        #[track_caller]
        fn says(text: &str, line: usize, what: &str) {
            let what = format!("job `a`: {what}");
            assert_eq!(read(text, DateTime::UNIX_EPOCH).unwrap_err(), [Problem { line, what }]);
        }
        let shell = |keys: &str| format!("[jobs.a]\nshell = 'x'\n{keys}\n");
        says(&shell("env = { A = 1 }"), 3, "`env`: expected a string");
        says(
            &shell("permanent_exit_codes = '1'"),
            3,
            "`permanent_exit_codes`: expected a sequence",
        );
        says(
            &shell("permanent_exit_codes = [0, 300]"),
            3,
            "`permanent_exit_codes` must hold exit statuses from 1 to 255",
        );
        says(&shell("cwd = ''"), 3, "`cwd` is empty");
        says(
            &shell("schedule = '@daily'\ntime_zone = 'Mars'"),
            4,
            "`time_zone`: there is no time zone `Mars`; write a name such as Europe/Berlin, or UTC",
        );
        says(
            &shell("time_zone = 'UTC'\nschedule = '@dayly'").replace("@dayly", "0 0 30 2 *"),
            4,
            "`schedule`: `0 0 30 2 *` never fires: no time within 41 years of 1970-01-01 matches",
        );
        says(
            &shell("payload = { a = [\"\\u0000\"] }"),
            3,
            "`payload`: has a NUL, which can't be stored",
        );
        says(&shell("env = { \"A\\u0000\" = 'x' }"), 3, "`env`: has a NUL, which can't be stored");
        says(
            "[jobs.a]\nqueue = 'q'\nshell = \"a\\u0000\"\n",
            3,
            "`shell`: has a NUL, which can't be stored",
        );
        says("[jobs.a]\nqueue = 'q'\nshell = ' '\n", 3, "`shell` is empty");
        says(
            "[jobs.a]\nqueue = 'q'\nshell = 5\n",
            3,
            "`shell` must be a string or a list of strings",
        );
        says(
            "[jobs.a]\ncwd = '/'\nhttp = { url = 'http://a' }\n",
            2,
            "`cwd` needs `shell`, and this job has `http`",
        );
        let http = |key: &str| format!("[jobs.a.http]\nmethod = 'PUT'\nurl = 'http://a'\n{key}\n");
        says(&http("redirects = 'x'"), 4, "`http`: `redirects`: expected u32");
        says(&http("headers = { X = 1 }"), 4, "`http`: `headers`: expected a string");
        says(&http("timout = '5s'"), 4, "`http`: `timout`: unknown key; did you mean `timeout`?");
        says(
            "[jobs.a.http]\nmethod = 'PUT'\nurl = 'ftp://a'\n",
            3,
            "`http`: `url` must start with http:// or https://",
        );
        says("[jobs.a]\nhttp = {}\n", 2, "`http`: missing field `url`");
    }
}
