//! The address of the database: the user's own file, which `init --env-file` writes, and what
//! commands say about the database they looked into.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::docs::migrations;
use crate::support::{Invocation, TestDb, jobctl, temp_dir};

/// Writes the user's own file of variables, which commands read in this folder for settings.
fn write_own_file(config: &Path, text: &str) -> PathBuf {
    let file = config.join("jobctl/env");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    file
}

/// A command in a new shell: no variable names a database.
fn in_new_shell<'a>(
    config: &Path,
    arguments: impl IntoIterator<Item = &'a str>,
) -> Invocation<'static> {
    jobctl(arguments).env("XDG_CONFIG_HOME", config.to_str().unwrap())
}

#[test]
fn a_new_shell_finds_the_database_whose_address_init_wrote() {
    let (db, folder) = (TestDb::empty(), temp_dir());
    let home = folder.path();
    let file = home.join(".config/jobctl/env");
    let init = |arguments: &[&'static str]| {
        let init = db.jobctl(["init", "--env-file"]).args(arguments.iter().copied());
        init.env_remove("XDG_CONFIG_HOME").env("HOME", home.to_str().unwrap()).run()
    };
    // `init` asks before it writes the file, and a script can't answer.
    init(&[]).exits(2).stdout("").stderr_has(&format!("write the address in {}", file.display()));
    assert!(!file.exists());
    let done = init(&["--yes"]).success();
    let done = done.stderr_has(&format!("the address is in {}; ", file.display()));
    // Cron's ticks read the same file, wherever it is.
    let lines = format!("\nJOBCTL_ENV_FILE={}\n* * * * * ", file.display());
    done.stdout_has(&lines).prints_nowhere("DATABASE_URL");
    // The file is private, and has only the address.
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let text = format!("JOBCTL_DATABASE_URL='{}'\n", db.url());
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    // In a new shell, no variable names a database, and commands find it nevertheless.
    let new_shell = |arguments: &[&'static str]| {
        let new_shell = jobctl(arguments.iter().copied()).env_remove("XDG_CONFIG_HOME");
        new_shell.env("HOME", home.to_str().unwrap())
    };
    let id = new_shell(&["enqueue", "shell", "--", "true"]).run().success().stdout;
    assert_eq!(db.status(id.trim().parse().unwrap()), "queued");
    // A second `init` finds nothing to write.
    let again = new_shell(&["init", "--env-file"]).run().success().stdout_has(&lines);
    again.stderr_has("is up to date\n").prints_nowhere("DATABASE_URL");
    // `init --remove` calls `crontab`: this one does nothing.
    let crontab = home.join("crontab");
    fs::write(&crontab, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&crontab, Permissions::from_mode(0o755)).unwrap();
    let removed = new_shell(&["init", "--remove"]).env("PATH", home.to_str().unwrap()).run();
    removed.success().stderr_has(&format!("{} stays, because ", file.display()));
}

#[test]
fn the_own_file_keeps_its_other_variables_and_may_hold_a_password() {
    let (db, other, folder) = (TestDb::empty(), TestDb::new(), temp_dir());
    let config = folder.path();
    let old = format!(
        "# of jobs\nTOKEN=a\nexport JOBCTL_DATABASE_URL={}\nPGAPPNAME=old\n\nPGDUMPS=b\n",
        other.url()
    );
    let file = write_own_file(config, &old);
    db.execute("CREATE ROLE own_file LOGIN SUPERUSER PASSWORD 'own_file'");
    let url = format!("{}?options=-c%20search_path='x'", db.url_as("own_file"));
    let init = |arguments: &[&'static str]| {
        let init = in_new_shell(config, ["init", "--env-file"]).env("DATABASE_URL", &url);
        init.args(arguments.iter().copied()).run().prints_nowhere("own_file:own_file")
    };
    init(&[]).exits(2).stderr_has("replace the address in ");
    assert_eq!(fs::read_to_string(&file).unwrap(), old);
    init(&["--yes"]).success();
    // The new address replaces the old one and PGAPPNAME, which is a variable of libpq. PGDUMPS is
    // none, so it stays.
    let expected = format!("# of jobs\nTOKEN=a\n\nPGDUMPS=b\nDATABASE_URL=\"{url}\"\n");
    assert_eq!(fs::read_to_string(&file).unwrap(), expected);
    // Jobs get this variable from the file as from the environment.
    let show = "echo ${DATABASE_URL-no} ${TOKEN-no} ${JOBCTL_ENV_FILE-no}";
    in_new_shell(config, ["enqueue", "--run", "shell", "--", "sh", "-c", show]).run().success();
    let first_run = 1;
    assert_eq!(db.of_attempt(first_run, 1, "output"), format!("{url} a no\n"));
    db.execute("REASSIGN OWNED BY own_file TO CURRENT_USER; DROP OWNED BY own_file");
    db.execute("DROP ROLE own_file");
}

#[test]
fn init_env_file_refuses_a_missing_or_unwritable_address_and_a_malformed_file() {
    let (db, folder) = (TestDb::empty(), temp_dir());
    let init = || in_new_shell(folder.path(), ["init", "--env-file", "--yes"]);
    init().run().exits(2).complains_once().stderr_has("no flag or variable names a database");
    // An address with both kinds of quotes, and one with a line break.
    for url in [format!("{}?options='\" #", db.url()), format!("{}?options=a\nb", db.url())] {
        let refused = init().env("DATABASE_URL", &url).run().exits(7).complains_once();
        refused.stderr_has("cannot write DATABASE_URL into a file");
    }
    assert_eq!(db.query("SELECT to_regnamespace('jobctl') IS NULL"), "t");
    let file = write_own_file(folder.path(), "A=1\ns3cret\n");
    let refused = init().env("DATABASE_URL", &db.url()).run().exits(7).complains_once();
    refused.stderr_has("line 2 is not NAME=VALUE").prints_nowhere("s3cret");
    assert_eq!(fs::read_to_string(&file).unwrap(), "A=1\ns3cret\n");
}

/// The file is broken, so each command that reads it fails with an error about it.
#[test]
fn the_own_file_is_read_only_if_nothing_else_names_a_database() {
    let folder = temp_dir();
    let file = write_own_file(folder.path(), "s3cret\n");
    let broken = format!("cannot use {}: line 1 is not NAME=VALUE", file.display());
    let list = |name: &str, value: &str| {
        in_new_shell(folder.path(), ["list"]).env("PGCONNECT_TIMEOUT", "1").env(name, value)
    };
    // These variables name no database, so the file is read.
    for (name, value) in [
        ("PGPORT", "1"),
        ("PGUSER", "u"),
        ("DATABASE_URL", ""),
        ("PGHOST", ""),
        ("JOBCTL_DATABASE_URL", ""),
    ] {
        list(name, value)
            .run()
            .exits(7)
            .complains_once()
            .stderr_has(&broken)
            .prints_nowhere("s3cret");
    }
    // Each of these names a database, so the file is not read. The connection fails instead.
    let url = "postgres://127.0.0.1:1/x";
    for (name, value) in [
        ("JOBCTL_DATABASE_URL", url),
        ("DATABASE_URL", url),
        ("PGHOST", "127.0.0.1"),
        ("PGHOSTADDR", "127.0.0.1"),
        ("PGDATABASE", "nowhere"),
        ("PGSERVICE", "nowhere"),
    ] {
        let done = list(name, value).env("PGPORT", "1").run();
        assert_ne!(done.status.code(), Some(0), "{name}");
        done.prints_nowhere("cannot use /");
    }
    for arguments in [vec!["--database-url", url], vec!["--database-url=postgres://127.0.0.1:1/x"]]
    {
        list("A", "1").args(arguments).run().exits(5).prints_nowhere("cannot use /");
    }
    // The flag after `--` belongs to the command `echo`, so the file is read.
    let once = in_new_shell(folder.path(), ["once", "k", "--", "echo", "--database-url"]);
    once.run().exits(7).stderr_has(&broken);
    // JOBCTL_ENV_FILE names another file, which comes first.
    let given = list("JOBCTL_ENV_FILE", "/nowhere").run().exits(7);
    given.stderr_has("cannot use JOBCTL_ENV_FILE /nowhere: ");
    // Help needs no database.
    jobctl(["list", "--help"])
        .env("XDG_CONFIG_HOME", folder.path().to_str().unwrap())
        .run()
        .success();
}

#[test]
fn the_own_file_must_be_private_and_may_be_missing_or_empty() {
    let (db, folder) = (TestDb::new(), temp_dir());
    let file = write_own_file(folder.path(), &format!("DATABASE_URL={}\n", db.url()));
    let list = || in_new_shell(folder.path(), ["list"]).run();
    list().success();
    let assert_refused = |why: &str| {
        list()
            .exits(7)
            .complains_once()
            .stderr_has(&format!("cannot use {}: {why}", file.display()));
    };
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    assert_refused("other users can read it; run `chmod 600`");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&file, Some(1), None).unwrap();
        assert_refused("it belongs to another user; run `chown`, or run jobctl as that user");
        std::os::unix::fs::chown(&file, Some(0), None).unwrap();
    }
    // A relative folder, and a folder that can't be entered, count as folders without a file.
    for config in [".", "/dev/null", "/nonexistent"] {
        let list = jobctl(["list"]).env("XDG_CONFIG_HOME", config).env("HOME", "/dev/null");
        let list = list.env("PGHOST", "").current_dir(folder.path()).run();
        assert_ne!(list.status.code(), Some(0), "{config}: {list}");
        list.prints_nowhere("cannot use");
    }
    // An empty file is allowed. Without an address, libpq's defaults apply.
    write_own_file(folder.path(), "");
    list().complains_once().prints_nowhere("cannot use").prints_nowhere("is empty");
}

#[test]
fn doctor_says_what_names_the_database() {
    let (db, folder) = (TestDb::new(), temp_dir());
    let file =
        write_own_file(folder.path(), &format!("JOBCTL_DATABASE_URL={}\n", db.url_as("postgres")));
    let url = db.url();
    let doctor = || in_new_shell(folder.path(), ["doctor"]);
    let assert_origin = |doctor: Invocation<'_>, origin: &str| {
        let line = format!("/{}, from {origin}\n", db.name());
        doctor
            .run()
            .stdout_has("ok\taddress\t")
            .stdout_has(&line)
            .prints_nowhere("postgres:postgres@");
    };
    assert_origin(doctor(), &format!("JOBCTL_DATABASE_URL in {}", file.display()));
    // A flag or a variable comes before the file, and `doctor` says so.
    let unread = |origin: &str| format!("{origin}; {} is not read", file.display());
    assert_origin(doctor().args(["--database-url", &url]), &unread("--database-url"));
    assert_origin(doctor().env("JOBCTL_DATABASE_URL", &url), &unread("JOBCTL_DATABASE_URL"));
    assert_origin(doctor().env("DATABASE_URL", &url), &unread("DATABASE_URL"));
    // PGUSER adds the user, which this address lacks.
    let user = doctor().env("DATABASE_URL", &url.replace("postgres@", ""));
    assert_origin(user.env("PGUSER", "postgres"), &unread("DATABASE_URL, PGUSER"));
    // `doctor` names the variables that it does not read, also if it can't connect.
    let refused = doctor().env("PGHOST", "127.0.0.1").env("PGPORT", "1").run().exits(5);
    refused
        .complains_once()
        .stderr_has(&format!("the address is of {}: cannot connect ", unread("PGHOST")));
    let refused = jobctl(["doctor"]).env("PGPORT", "1").run();
    refused.complains_once().stderr_has("the address is of libpq's defaults: no flag or variable");
}

#[test]
fn an_error_about_a_missing_schema_names_the_database() {
    let db = TestDb::empty();
    let folder = temp_dir();
    fs::write(folder.path().join("jobs.toml"), "[jobs.a]\nshell = 'true'\n").unwrap();
    // Each command that reads or writes the schema.
    for line in [
        "apply jobs.toml --yes",
        "enqueue shell -- true",
        "enqueue --run shell -- true",
        "once k -- true",
        "wait 1",
        "tick",
        "tick --run 1",
        "tick --dry-run",
        "prune",
        "load --yes",
        "list",
        "list-dead",
        "failures",
        "show 1",
        "status",
        "check",
        "report",
        "jobs",
        "next",
        "trail",
        "retry 1",
        "cancel 1",
        "edit 1 --priority 1",
        "settle 1",
        "undo 1",
        "pause a",
        "resume a",
        "hold --queue q",
        "release --queue q",
        "forget w",
        "accept-restore",
    ] {
        let done = db.jobctl(line.split(' ')).current_dir(folder.path()).run();
        done.exits(6).stdout("").complains_once().stderr_has(&format!("/{}); ", db.name()));
    }
    // `doctor` reports the missing schema as a finding.
    let doctor = db.jobctl(["doctor"]).run().exits(1);
    let missing = format!("missing migrations: {}", migrations().join(", "));
    doctor.stdout_has(&missing).stdout_has(&format!("/{})\t", db.name()));
}

/// `init` gives the tip only at a terminal, because the log of a script would repeat it.
#[test]
fn init_at_a_terminal_offers_to_write_the_address() {
    let (db, folder) = (TestDb::new(), temp_dir());
    let config = folder.path().to_str().unwrap();
    let at_terminal = || {
        let script = db.script("script -qec \"'$jobctl' init\" /dev/null </dev/null");
        script.env("XDG_CONFIG_HOME", config).run().success()
    };
    let tip = "a new shell may not know this address; `jobctl init --env-file` writes it";
    at_terminal().stdout_has(tip);
    db.jobctl(["init"]).env("XDG_CONFIG_HOME", config).run().success().prints_nowhere(tip);
    write_own_file(folder.path(), &format!("JOBCTL_DATABASE_URL={}\n", db.url()));
    // The file has the address now.
    at_terminal().prints_nowhere(tip);
}
