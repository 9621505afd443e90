//! `jobctl doctor`: checks the setup, and prints a remedy for each problem.

use std::cmp::Reverse;
use std::time::{Instant, SystemTime};

use anyhow::Context;
use chrono::{DateTime, TimeDelta, Utc};
use clap::Args;
use cron_zone::ZoneData;

use super::{DatabaseFlags, environment, grants, init};
use crate::connect::Target;
use crate::exit::Exit;
use crate::health::{self, ClockFacts, ConnectionFacts, Finding, Severity};
use crate::job::due;
use crate::job::thresholds::Thresholds;
use crate::print::{self, Format, Output, Table};
use crate::store::{self, Mode, SessionFacts, Store};

/// The clocks are compared this often. The fastest answer counts: it has the smallest error.
const CLOCK_QUERIES: usize = 3;

/// Check the setup, and print a remedy for each problem
///
/// Changes nothing. Each line is ok, warn, bad (a person must act: exit status 1)
/// or unknown (this role may not see the facts). A dead run failed and gets no
/// further attempt. A queue is a name by which workers choose runs. Run it as the
/// user of the crontab:
///
///   jobctl doctor
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: Output,
}

const TABLE: Table<'_> = Table::new("severity, check, found, remedy", "");

impl Arguments {
    pub(crate) fn run(self, database: &DatabaseFlags) -> anyhow::Result<Exit> {
        let target = database.target()?;
        let (mut findings, now) = examine(&target, &database.origin(&target))?;
        if let (Format::Table, Some(now)) = (self.output.format(), now) {
            findings.iter_mut().for_each(|finding| finding.found = finding.aged(now));
            findings.sort_by_key(|finding| Reverse(finding.severity));
        }
        print::rows(self.output, &findings, &TABLE.wrapped())?;
        let worst = findings.iter().map(|finding| finding.severity).max();
        Ok(if worst == Some(Severity::Bad) { Exit::CouldNot } else { Exit::Done })
    }
}

/// Runs the checks. Returns their findings, and the database's time if jobctl's tables could be
/// read. Checks of these tables need a schema that this program knows.
fn examine(target: &Target, origin: &str) -> anyhow::Result<(Vec<Finding>, Option<DateTime<Utc>>)> {
    let opened = Instant::now();
    let store = Store::connect(target).with_context(|| format!("the address is of {origin}"))?;
    let first = store.inspect_session()?;
    let open_for = opened.elapsed();
    let clock = compare_clocks(&store)?;
    // A pooler may give one connection several sessions, and two connections the same session.
    let other = Store::connect(target).ok().and_then(|other| other.inspect_session().ok());
    let session = store.inspect_session()?;
    let connection = ConnectionFacts {
        address: target.to_string(),
        is_local: target.is_local(),
        is_verified: target.verifies_servers(),
        sessions: [first, session.clone()],
        open_for,
        other,
    };
    let mut findings = Vec::new();
    let mut add = |check, finding: Finding| findings.push(Finding { check, ..finding });
    add("connection", health::connection(&connection, clock));
    add("address", health::address(&connection.address, origin));
    add("pooler", health::pooler(&connection));
    add("writes", health::writes(&session));
    add("durability", health::durability(&session));
    let encoding = health::database(&session);
    // `None`: a database with another encoding can't have jobctl's schema.
    let missing_steps = (encoding.severity == Severity::Ok).then(|| {
        let missing = store.missing_migrations(Mode::Inspect);
        missing.map(|steps| steps.iter().map(|step| step.name).collect::<Vec<_>>())
    });
    add("database", encoding);
    add("clock", health::clock(clock));
    if let Some(missing) = &missing_steps {
        add("schema", health::schema(missing.as_deref(), &connection.address));
    }
    add("environment", health::environment(&environment::unknown_variables()));
    let proxies = environment::proxy_variables();
    if !proxies.is_empty() {
        add("proxy", health::proxies(&proxies));
    }
    if let Some(why) = init::lost_mail() {
        add("mail", health::mail(why));
    }
    let has_schema = match &missing_steps {
        Some(Ok(missing)) => missing.is_empty(),
        // This role lacks a privilege, so the schema may still be this program's.
        Some(Err(error)) => error.exit == Exit::Configuration,
        None => false,
    };
    let now = if has_schema { examine_schema(&store, &session, &mut add) } else { None };
    let snapshots = store.inspect_snapshots();
    add("snapshots", judge(&snapshots, |facts| health::snapshots(&session, facts)));
    Ok((findings, now))
}

/// Runs the checks that read jobctl's tables. `add` gets the name of each check and its finding.
/// Returns the time of the database's clock, if it could be read.
fn examine_schema(
    store: &Store,
    session: &SessionFacts,
    add: &mut impl FnMut(&'static str, Finding),
) -> Option<DateTime<Utc>> {
    add("role", judge(&store.inspect_role(), |may| health::role(session, *may)));
    let grants = store.inspect_grants(grants::matrix());
    for finding in judge_all(&grants, |facts| health::grants(facts)) {
        add("grants", finding);
    }
    let objects = store.inspect_objects();
    for finding in judge_all(&objects, |facts| health::objects(facts)) {
        add("objects", finding);
    }
    let thresholds = Thresholds::default();
    let work = store.inspect_work(None, thresholds);
    match &work {
        Ok(work) => {
            let checks = health::checks(work, &health::work(work, &thresholds));
            checks.into_iter().for_each(|finding| add(finding.check, finding));
        }
        Err(error) => add("work", health::unreadable(error)),
    }
    let now = work.as_ref().ok().map(|work| work.now);
    let scheduled = work.map(|work| work.scheduled).unwrap_or_default();
    let zones = store.zone_facts(due::zones_in_use(&scheduled));
    add("time zones", judge(&zones, |zones| health::zones(ZoneData::current(), zones)));
    let indexes = store.inspect_indexes();
    add("indexes", judge(&indexes, |indexes| health::indexes(indexes)));
    let tables = store.inspect_tables();
    add("vacuum", judge(&tables, |tables| health::vacuum(session, tables)));
    let indexes = indexes.as_deref().unwrap_or_default();
    add("size", judge(&tables, |tables| health::sizes(tables, indexes)));
    now
}

/// Returns the finding of `finding_of` about facts, or the finding that they can't be read.
fn judge<T>(facts: &store::Result<T>, finding_of: impl Fn(&T) -> Finding) -> Finding {
    facts.as_ref().map_or_else(health::unreadable, finding_of)
}

/// Returns the findings of `findings_of` about facts, or the finding that they can't be read.
fn judge_all<T>(
    facts: &store::Result<T>,
    findings_of: impl Fn(&T) -> Vec<Finding>,
) -> Vec<Finding> {
    facts.as_ref().map_or_else(|error| vec![health::unreadable(error)], findings_of)
}

/// Compares the host's clock to the database's: the host's time in the middle of a request should
/// be the time in its answer.
fn compare_clocks(store: &Store) -> store::Result<ClockFacts> {
    let compare = || {
        let began = Instant::now();
        let now = store.now()?;
        let took = began.elapsed();
        // Use `SystemTime`, because `Utc::now` panics before 1970.
        let halfway = DateTime::<Utc>::from(SystemTime::now())
            - TimeDelta::from_std(took / 2).unwrap_or_default();
        Ok(ClockFacts { ahead: halfway - now, took })
    };
    let mut best = compare()?;
    for _ in 1..CLOCK_QUERIES {
        let next = compare()?;
        if next.took < best.took {
            best = next;
        }
    }
    Ok(best)
}
