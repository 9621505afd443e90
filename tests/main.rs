//! The integration tests: the binary as an operator uses it, against a real PostgreSQL that the
//! suite starts itself. One crate, so that it is linked once. `simulation/` and `manual_pages/`
//! beside it are unit tests of src/tick and the help.

// The driver's convenient calls are banned in the product because of poolers; no test has one in
// between. Helpers panic, as tests do.
#![recursion_limit = "256"]
#![allow(clippy::disallowed_types, clippy::unwrap_used)]
#![allow(unreachable_pub)]

mod support;

// A file per behaviour, alphabetical.
mod address;
mod after;
mod app_schedules;
mod apply;
mod backoff;
mod batch;
mod bulk;
mod cancel;
mod causes;
mod chaos;
mod check;
mod check_reports;
mod claim;
mod cli;
mod completions;
mod connection;
mod cron;
mod database_clock;
mod database_faults;
mod definitions;
mod docs;
mod doctor;
mod drill;
mod edit;
mod effects;
mod ends;
mod enqueue;
mod enqueuers;
mod environment;
mod exhausted;
mod expire;
mod failures;
mod fencing;
mod files;
mod filters;
mod flow;
mod following;
mod forget;
mod hold;
mod hooks;
mod host_clock;
mod host_policy;
mod hostile_server;
mod http;
mod http_hostile;
mod http_policy;
mod import_crontab;
mod incidents;
mod init;
mod interfaces;
mod jobs;
mod key_scope;
mod kubernetes;
mod languages;
mod lease;
mod list;
mod list_dead;
mod live_output;
mod load;
mod locked_runs;
mod locks;
mod makefile;
mod max_waiting;
mod migrate;
mod next;
mod next_time;
mod on_call;
mod output;
mod pages;
mod pause;
mod payloads;
mod pinned;
mod plans;
mod pooler;
mod prune;
mod queries;
mod rate;
mod recover;
mod replace;
mod report;
mod restore;
mod restored;
mod results;
mod retry;
mod roles;
mod schedules;
mod settings;
mod settle;
mod share;
mod shell;
mod shell_end;
mod show;
mod shutdown;
mod slow_database;
mod snooze;
mod sql_enqueue;
mod status;
mod tick;
mod tls;
mod trace;
mod trail;
mod undo;
mod upgrade;
mod wait;
mod with_postgres;
