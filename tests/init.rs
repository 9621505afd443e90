//! `init`: the schema, the lines of the crontab, the units of systemd.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::cron;
use crate::docs::{files, migrations, root};
use crate::support::{Invocation, Role, TestDb, copy_jobctl, leave_out, packages, temp_dir};

#[test]
fn an_empty_command_for_problems_is_refused() {
    TestDb::new()
        .jobctl(["init", "--exec", ""])
        .run()
        .exits(2)
        .stdout("")
        .stderr_has("cannot use --exec: its value is empty");
}

#[test]
fn init_migrates_and_prints_lines_but_installs_nothing() {
    let db = TestDb::empty();
    let init = || db.jobctl(["init", "--report", "/srv/50% off.html"]).env("PATH", "/a:/b:/a");
    // The lines have each folder of PATH once. In a crontab, `%` needs a backslash.
    let all = format!(": {}\n", migrations().join(", "));
    let first = init().run().success().stderr_has("migrated ").stderr_has(&all);
    let first = first.stderr_has("nothing is installed; `jobctl init --crontab` adds these lines");
    let program = env!("CARGO_BIN_EXE_jobctl");
    let expected = format!(
        "# BEGIN jobctl: written by `jobctl init`, which replaces these lines\n\
         PATH=/a:/b\n\
         JOBCTL_DATABASE_URL={}\n\
         * * * * * '{program}' tick --quiet\n\
         */5 * * * * '{program}' check --repeat 1h\n\
         17 3 * * * '{program}' prune\n\
         */10 * * * * '{program}' report --output '/srv/50\\% off.html'\n\
         # END jobctl\n",
        db.url()
    );
    assert_eq!(first.stdout, expected);
    // A second call finds the schema, and prints the same lines.
    init().run().success().stdout(&expected).stderr_has(" is up to date\n");
}

#[test]
fn problems_are_mailed_or_sent_by_the_check_and_init_says_which() {
    let db = TestDb::empty();
    let init = |arguments: &[&str]| db.jobctl(["init"]).args(arguments.iter().copied()).run();
    for command in ["printf 'a\\n'", "a\nb"] {
        let why = "cannot write the value of --exec: it has backslashes or control characters";
        init(&["--exec", command]).exits(7).stdout("").complains_once().stderr_has(why);
    }
    assert_eq!(db.query("SELECT to_regnamespace('jobctl')"), "");
    let program = env!("CARGO_BIN_EXE_jobctl");
    let printed = init(&["--exec", "mail -s '50% down' a@b.c"]).success();
    printed.stdout_has(&format!(
        "\n*/5 * * * * '{program}' check --exec 'mail -s '\\''50\\% down'\\'' a@b.c'\n"
    ));
    // Without --exec, cron mails the problems, if it can.
    let printed = init(&[]).success().stdout_has(" check --repeat 1h\n");
    printed.stderr_has("--exec").stderr_has("mail");
    // The file of variables can hold the address of a webhook, which is a secret.
    let folder = temp_dir();
    let file = folder.path().join("env");
    fs::write(&file, "JOBCTL_CHECK_WEBHOOK=https://h.example/T0\n").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let file = file.to_str().unwrap();
    let printed = db.jobctl(["init"]).env("JOBCTL_ENV_FILE", file).run().success();
    assert!(!printed.stdout.contains("h.example"), "{printed}");
    printed.stderr_has("JOBCTL_CHECK_WEBHOOK sends problems when they are new");
}

/// A page may add flags, or write a log instead of mails.
#[test]
fn every_page_shows_the_tick_that_init_prints() {
    let db = TestDb::new();
    let program = format!("'{}'", env!("CARGO_BIN_EXE_jobctl"));
    let lines = db.jobctl(["init"]).run().success().stdout.replace(&program, "jobctl");
    let tick = lines.lines().find(|line| line.contains(" jobctl tick")).unwrap();
    let (times, command) = tick.split_at(tick.find("jobctl").unwrap());
    let folders = ["docs", "examples", "man", "packaging", "src/report/static"];
    let pages = folders.iter().flat_map(|folder| files(&root().join(folder)));
    let pages = pages.chain(["README.md", "crontab.example"].map(|name| root().join(name)));
    // The pages with the whole line as `init` prints it.
    let mut with_tick = Vec::new();
    for page in pages {
        // Pictures are no text. The manual's source has a backslash before each `-`.
        let text = fs::read_to_string(&page).unwrap_or_default().replace("\\-", "-");
        let shown = text.lines().filter(|line| line.contains(times.trim_end()));
        for line in shown.filter(|line| line.contains("jobctl tick")) {
            let (before, after) = line.split_once("jobctl tick").unwrap();
            // In /etc/cron.d, a user stands between the times and the command.
            let has_times = before.ends_with(times) || !before.trim_end().ends_with('*');
            let is_same = format!("jobctl tick{after}").starts_with(command);
            let is_shown = has_times && (is_same || after.starts_with(" >>"));
            assert!(is_shown, "{}: {line}", page.display());
        }
        if text.contains(tick) {
            with_tick.push(page.strip_prefix(root()).unwrap().display().to_string());
        }
    }
    // These pages must have the whole line.
    for page in ["crontab.example", "docs/guide.md", "man/jobctl.1", "man/jobctl-tick.1"] {
        assert!(with_tick.iter().any(|shown| shown == page), "{page} lacks: {tick}");
    }
    assert!(with_tick.iter().any(|shown| shown.ends_with("first_steps.html")), "{with_tick:?}");
}

/// The address comes from the variables that psql reads, too.
#[test]
fn lines_set_the_variables_of_the_address() {
    let db = TestDb::new();
    let url = db.url();
    let init = db.jobctl(["init"]).env_remove("JOBCTL_DATABASE_URL").env("DATABASE_URL", &url);
    let done = init.run().success();
    done.stdout_has(&format!("\nDATABASE_URL={url}\n")).prints_nowhere("JOBCTL_DATABASE_URL=");
    let init = db.jobctl(["init"]).env("PGAPPNAME", "shop").env("PGCONNECT_TIMEOUT", "7");
    init.run().success().stdout_has("\nPGAPPNAME=shop\nPGCONNECT_TIMEOUT=7\n");
}

#[test]
fn a_password_is_never_written_and_nothing_is_migrated() {
    let db = TestDb::empty();
    let url = db.url_as("ana");
    for (name, value) in [("JOBCTL_DATABASE_URL", url.as_str()), ("PGPASSWORD", "s3cret")] {
        let refused = db.jobctl(["init"]).env(name, value).run().exits(7).stdout("");
        refused
            .complains_once()
            .stderr_has("put it into ~/.pgpass")
            .prints_nowhere("s3cret")
            .prints_nowhere("ana:ana");
    }
    assert_eq!(db.query("SELECT to_regnamespace('jobctl') IS NULL"), "t");
    // Errors name the origin of the address.
    for (address, why) in [(url.as_str(), "its password "), ("WRONG", "it is neither a URL nor ")] {
        let refused = db.jobctl(["init", "--database-url", address]).run().exits(7).stdout("");
        refused.complains_once().stderr_has(&format!("cannot use --database-url: {why}"));
    }
}

#[test]
fn no_secret_parameter_of_an_address_is_written() {
    let db = TestDb::new();
    for secret in ["sslpassword", "scram_client_key", "scram_server_key", "oauth_client_secret"] {
        let url = format!("{}?{secret}=s3cret&application_name=x", db.url());
        db.jobctl(["list"]).env("JOBCTL_DATABASE_URL", &url).run().success();
        for form in ["--crontab", "--systemd"] {
            let refused = db.jobctl(["init", form, "--yes"]).env("JOBCTL_DATABASE_URL", &url);
            let refused = refused.run().exits(7).stdout("").complains_once();
            refused.stderr_has("it has a parameter that may be secret").prints_nowhere("s3cret");
        }
    }
    // Other parameters are written.
    let url = format!("{}?application_name=x&pgbouncer=true", db.url());
    db.jobctl(["init"]).env("JOBCTL_DATABASE_URL", &url).run().success().stdout_has(&url);
}

/// Cron and systemd start jobctl in another folder.
#[test]
fn paths_in_the_variables_of_the_address_are_absolute() {
    let (db, folder) = (TestDb::new(), temp_dir());
    let folder = folder.path().canonicalize().unwrap();
    let init = |name: &str, value: &str| {
        let init = db.jobctl(["init"]).env("PGSSLMODE", "disable").env(name, value);
        init.current_dir(&folder).run().success()
    };
    let root = folder.join("a b/root.crt").display().to_string();
    for name in ["PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY", "PGSSLCRL", "PGPASSFILE"] {
        init(name, "a b/root.crt").stdout_has(&format!("\n{name}={root}\n"));
        init(name, "/a/b").stdout_has(&format!("\n{name}=/a/b\n"));
    }
    let url = db.url();
    // In an address, the absolute path follows the relative one, and the last one counts.
    let assert_writes_address = |address: &str, line: &str| {
        init("JOBCTL_DATABASE_URL", address).stdout_has(&format!("\nJOBCTL_DATABASE_URL={line}\n"));
    };
    let absolute = root.replace(' ', "%20");
    let relative = format!("{url}?sslrootcert=a%20b/root.crt");
    assert_writes_address(&relative, &format!("{relative}&sslrootcert={absolute}"));
    assert_writes_address(&format!("{url}?sslkey=/a/b"), &format!("{url}?sslkey=/a/b"));
}

/// A newline would add a line to the crontab, and `%` would end the command.
#[test]
fn a_path_that_cron_would_read_otherwise_is_not_written() {
    let (db, folder) = (TestDb::new(), temp_dir());
    let odd = folder.path().join("a\n* * * * * touch pwned");
    fs::create_dir(&odd).unwrap();
    let assert_path_refused = |report: &str, why: &str| {
        let init = db.jobctl(["init", "--report", report]).current_dir(&odd).run();
        init.exits(7).stdout("").stderr_has(why);
    };
    assert_path_refused(
        "page.html",
        "cannot write the path of the report: it has backslashes, control ",
    );
    for report in ["/srv/a\rb", "/srv/a\\%b", "/srv/\u{85}"] {
        assert_path_refused(report, "cannot write the path of the report: ");
    }
    assert_path_refused(
        &format!("/{}", "a/".repeat(500)),
        "it is longer than 998 bytes; shorten its words",
    );
    // The path of the program itself.
    copy_jobctl(&odd);
    for form in ["", "--systemd"] {
        let script = format!("exec ./jobctl init {form} --yes");
        let refused = db.script(&script).current_dir(&odd).run().exits(7).stdout("");
        refused.stderr_has("cannot write the path of jobctl: it has backslashes, control ");
    }
}

#[test]
fn the_file_of_variables_takes_the_place_of_the_variables_it_sets() {
    let (db, folder) = (TestDb::new(), temp_dir());
    let file = folder.path().join("jobctl.env");
    fs::write(&file, format!("JOBCTL_DATABASE_URL={}\n", db.url_as("ana"))).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    db.execute("CREATE ROLE ana LOGIN SUPERUSER PASSWORD 'ana'");
    let init = db.jobctl(["init"]).env_remove("JOBCTL_DATABASE_URL");
    let init = init.env("JOBCTL_ENV_FILE", file.to_str().unwrap()).env("PGAPPNAME", "shop");
    let lines = format!("\nJOBCTL_ENV_FILE={}\nPGAPPNAME=shop\n* * * * * ", file.display());
    let done = init.run().success().stdout_has(&lines);
    done.prints_nowhere("DATABASE_URL").prints_nowhere("ana:ana");
    db.execute("DROP ROLE ana");
}

/// Executes a script beside a cron daemon, where `crontab` changes a crontab of the test's own.
fn beside_cron<'a>(db: &'a TestDb, folder: &Path, script: &str) -> Invocation<'a> {
    fs::write(folder.join(".steps"), script).unwrap();
    Invocation::script(&cron::beside("sh -u .steps", folder), Some(db))
        .current_dir(folder)
        .env("JOBCTL_DATABASE_URL", &db.url())
}

/// Adds the lines, repeats that, changes them, and removes them twice. Prints a line with `==`
/// before and after what each `init` prints. `crontab` is the real program.
const STEPS: &str = r#"
init() { echo "== $*"; "$jobctl" init "$@" 2>&1; echo "== exit $?"; }
printf '%s\n' 'MAILTO=ana' '0 4 * * * backup' | crontab -
init --crontab
init --crontab --yes
crontab -l
init --crontab --yes
init --crontab --yes --report /srv/report.html
crontab -l
"$jobctl" check --repeat 1h; ls state/jobctl/check-*
JOBCTL_DATABASE_URL=$other "$jobctl" check --repeat 1h
init --remove --yes
ls state/jobctl/check-* | wc -l
crontab -l
JOBCTL_DATABASE_URL=$other "$jobctl" init --remove --yes 2>/dev/null
init --remove --yes
crontab -r
init --crontab --yes
init --remove --yes
crontab -l 2>&1 || :
"#;

/// Answers the question at a terminal, and shows the crontab afterwards.
const ANSWERS: &str = r#"
printf '%s\n' 'MAILTO=""' HOME=/srv TZ=UTC SHELL=/bin/bash PGHOST=db DATABASE_URL=other \
    JOBCTL_LOG=debug '0 4 * * * backup' | crontab -
for answer in n y; do
    echo "== $answer"
    printf '%s\n' $answer | script -qec "'$jobctl' init --crontab" /dev/null 2>&1 || echo "exit $?"
    crontab -l
done
"#;

#[test]
fn at_a_terminal_only_a_yes_installs_the_lines() {
    if let Some(why) = cron::obstacle() {
        return leave_out("init --crontab at a terminal", why);
    }
    let (db, folder) = (TestDb::new(), temp_dir());
    let done = beside_cron(&db, folder.path(), ANSWERS).run().success();
    // What the terminal shows after the answer `n` and after `y`, and then the crontab.
    let shown = done.stdout.replace('\r', "");
    let [_, no, yes] = shown.split("== ").collect::<Vec<_>>()[..] else { panic!("{done}") };
    for answer in [no, yes] {
        assert!(answer.contains("change the crontab? [y/N] "), "{done}");
        assert!(answer.contains("\n+ * * * * * "), "{done}");
    }
    // The lines that the crontab had before. They stay.
    let own = "MAILTO=\"\"\nHOME=/srv\nTZ=UTC\nSHELL=/bin/bash\nPGHOST=db\nDATABASE_URL=other\n\
        JOBCTL_LOG=debug\n0 4 * * * backup\n";
    assert!(no.ends_with(&format!("cannot init: not confirmed\nexit 1\n{own}")), "{done}");
    assert!(yes.contains(&format!("the lines are installed in the crontab\n{own}")), "{done}");
    // Each of these lines also applies to the new lines below it.
    for complaint in [
        "the crontab sets HOME: ticks read /srv/.pgpass, not yours",
        "cron mails no line of `check` and `tick`, because the crontab sets MAILTO to nothing",
        "the crontab sets TZ=UTC, also for ticks and jobs",
        "the crontab sets SHELL=/bin/bash, also for ticks and jobs",
        "the crontab sets PGHOST, also for ticks; if it is not meant for them, \
         move it below their lines",
        "the crontab sets JOBCTL_LOG, also for ticks; if it is not meant for them, \
         move it below their lines",
    ] {
        assert!(no.contains(&format!("jobctl: {complaint}\n")), "{done}");
    }
    assert!(!no.contains("cron mails problems"), "{done}");
    // The new lines set JOBCTL_DATABASE_URL, which comes before DATABASE_URL.
    assert!(!no.contains("sets DATABASE_URL"), "{done}");
    assert!(yes.ends_with("# END jobctl\n"), "{done}");
}

/// For each of four crontabs, prints how many variables of it `init` names, which line `init` says
/// ticks, and how many times `doctor` says that cron mails nothing.
const MAILS: &str = r#"
mails() {
    printf '%s\n' "$@" | crontab -
    "$jobctl" init 2>&1 | grep -c 'crontab sets' || :
    "$jobctl" init 2>&1 | grep -o 'line [0-9] of the crontab ticks' || :
    "$jobctl" doctor | grep -c 'crontab sets MAILTO to nothing' || :
}
mails 'MAILTO=""' '* * * * * /opt/jobctl tick'
mails '* * * * * /opt/jobctl tick' 'MAILTO=""' '0 4 * * * backup' MAILTO=ana
mails 'MAILTO=ana' '* * * * * /opt/jobctl tick' 'MAILTO=""' '*/5 * * * * jobctl check'
mails "HOME=$HOME" SHELL=/bin/sh '* * * * * jobctl tick' '#* * * * * jobctl check'
"#;

#[test]
fn only_lines_that_change_something_are_named() {
    if let Some(why) = cron::obstacle() {
        return leave_out("lines above those of init", why);
    }
    let (db, folder) = (TestDb::new(), temp_dir());
    let done = beside_cron(&db, folder.path(), MAILS).run().success();
    // For each crontab: the number of variables, the line that ticks, and the number of warnings.
    let crontabs = [(1, 2, 1), (0, 1, 0), (1, 2, 1), (0, 3, 0)];
    let expected = crontabs.map(|(variables, line, warnings)| {
        format!("{variables}\nline {line} of the crontab ticks\n{warnings}\n")
    });
    done.stdout(&expected.concat());
}

#[test]
fn the_lines_are_in_the_crontab_once_and_can_be_removed() {
    if let Some(why) = cron::obstacle() {
        return leave_out("init --crontab", why);
    }
    let (db, other, folder) = (TestDb::new(), TestDb::new(), temp_dir());
    let done = beside_cron(&db, folder.path(), STEPS)
        .env("other", &other.url())
        .env("XDG_CONFIG_HOME", folder.path().to_str().unwrap())
        .env("XDG_STATE_HOME", folder.path().join("state").to_str().unwrap())
        .env("TERM", "dumb")
        .run()
        .success();
    // What each `init` prints, and then its exit status with the output of the commands after it.
    let parts: Vec<_> = done.stdout.split("== ").collect();
    let [
        _,
        unconfirmed,
        after_unconfirmed,
        added,
        after_added,
        repeated,
        _,
        changed,
        after_changed,
        _,
        after_removed,
        removed_again,
        ..,
        last,
    ] = parts[..]
    else {
        panic!("{done}")
    };
    let own = "MAILTO=ana\n0 4 * * * backup\n";
    let program = env!("CARGO_BIN_EXE_jobctl");
    let tick = format!("* * * * * '{program}' tick --quiet\n");
    // Without a terminal, it asks for --yes and changes nothing.
    assert!(unconfirmed.contains(&format!("+ {tick}")), "{done}");
    assert!(unconfirmed.contains("not a terminal to ask; add --yes\n"), "{done}");
    assert_eq!(after_unconfirmed, "exit 2\n", "{done}");

    // The lines are added once, below those of the user.
    assert!(added.contains("the lines are installed in the crontab\n"), "{done}");
    let listed = after_added.strip_prefix("exit 0\n").unwrap();
    assert!(listed.starts_with(own) && listed.matches(&tick).count() == 1, "{done}");
    assert!(repeated.contains("the crontab is up to date\n"), "{done}");

    // A changed flag shows and adds only the new line.
    let shown: Vec<_> =
        changed.lines().skip(1).filter(|line| line.starts_with(['+', '-'])).collect();
    let report = format!("*/10 * * * * '{program}' report --output '/srv/report.html'");
    assert_eq!(shown, [format!("+ {report}")], "{done}");
    assert!(after_changed.contains(&report), "{done}");
    assert_eq!(after_changed.matches(&tick).count(), 1, "{done}");
    assert!(after_changed.contains("\nstate/jobctl/check-"), "{done}");

    // A removal leaves the lines of the user. Of the two notes of `check`, it leaves the one about
    // the other database, which a removal for that database deletes.
    assert_eq!(after_removed, format!("exit 0\n1\n{own}"), "{done}");
    assert!(removed_again.contains("the crontab has no lines of `jobctl init`\n"), "{done}");
    assert!(!folder.path().join("state/jobctl").exists(), "{done}");
    assert!(last.ends_with("no crontab for root\n"), "{done}");
}

/// Repeats `init` without and with its flags.
const REPEATED: &str = r#"
init() { echo "== $*"; "$jobctl" init "$@" 2>&1; }
init --crontab --yes --exec "mail -s '50% down' a@b.c" --report '/srv/50% off.html'
crontab -l >first
init --crontab --yes
crontab -l | cmp first - && echo same
init
init --crontab --yes --exec logger
crontab -l
init --remove --yes
init
"#;

#[test]
fn a_repetition_keeps_the_flags_that_it_does_not_have() {
    if let Some(why) = cron::obstacle() {
        return leave_out("init --crontab again", why);
    }
    let (db, folder) = (TestDb::new(), temp_dir());
    let done = beside_cron(&db, folder.path(), REPEATED).run().success();
    let parts: Vec<_> = done.stdout.split("== ").skip(1).collect();
    let [first, again, printed, changed, _, removed] = parts[..] else { panic!("{done}") };
    // `init` says so of each flag that it was not given, but keeps.
    let stays = |flag| format!("the installed --{flag} stays; `jobctl init --remove` removes it");
    let sends = "--exec sends problems";
    assert!(!first.contains(" stays; ") && first.contains(sends), "{done}");
    assert!(again.ends_with("\nsame\n") && again.contains(sends), "{done}");
    assert!(again.contains(&stays("exec")) && again.contains(&stays("report")), "{done}");
    let exec = r"check --exec 'mail -s '\''50\% down'\'' a@b.c'";
    let report = r"report --output '/srv/50\% off.html'";
    assert!(printed.contains(exec) && printed.contains(report), "{done}");
    // The difference shows the old line.
    assert!(changed.contains("check --exec 'logger'\n"), "{done}");
    assert_eq!(changed.matches(exec).count(), 1, "{done}");
    assert!(changed.contains(report) && !changed.contains(&stays("exec")), "{done}");
    assert!(!removed.contains(" stays; ") && removed.contains("check --repeat 1h\n"), "{done}");
}

#[test]
fn the_units_of_systemd_are_valid_and_can_be_removed() {
    let is_root = rustix::process::geteuid().is_root();
    if is_root && cron::obstacle().is_some() {
        return leave_out("init --systemd", "the folder of the units can't be kept apart");
    }
    let (db, folder) = (TestDb::new(), temp_dir());
    let units = folder.path().join("systemd/user");
    fs::create_dir_all(&units).unwrap();
    let units = if is_root { "/etc/systemd/system" } else { units.to_str().unwrap() };
    let verify = if packages::is_installed("systemd-analyze") { "systemd-analyze" } else { "true" };
    let steps = format!(
        "set -eu
         [ $(id -u) != 0 ] || mount -t tmpfs tmpfs {units}
         \"$jobctl\" init --systemd --yes
         cat {units}/jobctl*
         {verify} verify --man=no {units}/jobctl*
         \"$jobctl\" init
         echo ==; \"$jobctl\" init --systemd
         PGAPPNAME=shop \"$jobctl\" init --systemd --yes \
             --exec 'mail -s \"50%\" {{environment}}{{state}}'
         cat {units}/jobctl-check.service
         {verify} verify --man=no {units}/jobctl*
         echo ==; PGAPPNAME=shop \"$jobctl\" init --systemd
         mkdir 'a$b 50%'
         cp \"$jobctl\" 'a$b 50%/jobctl'
         'a$b 50%/jobctl' init --systemd --yes
         {verify} verify --man=no {units}/jobctl*
         mkdir {units}/timers.target.wants
         ln -s {units}/jobctl.timer {units}/jobctl-check.timer {units}/timers.target.wants
         echo ==; \"$jobctl\" init --remove --yes
         find {units} -name 'jobctl*'"
    );
    fs::write(folder.path().join("steps"), steps).unwrap();
    let run = if is_root { "unshare --mount sh steps 2>&1" } else { "sh steps 2>&1" };
    let done = Invocation::script(run, Some(&db))
        .current_dir(folder.path())
        .env("JOBCTL_DATABASE_URL", &db.url())
        .env("XDG_CONFIG_HOME", folder.path().to_str().unwrap())
        .env("PATH", &format!("{}:/50%", std::env::var("PATH").unwrap()))
        .run()
        .success();
    let [written, again, kept, removed] = done.stdout.split("==\n").collect::<Vec<_>>()[..] else {
        panic!("{done}")
    };

    // The units that the first `init` writes.
    let program = env!("CARGO_BIN_EXE_jobctl");
    for command in ["tick ", "check\n"] {
        assert!(written.contains(&format!("\nExecStart=\"{program}\" {command}")), "{done}");
    }
    // Every other setting could take a right from the jobs that they have under cron.
    const HARMLESS: [&str; 7] = [
        "Type=oneshot",
        "ExecStart=",
        "Environment=",
        "User=root",
        "WorkingDirectory=-~",
        "KillMode=process",
        "OOMPolicy=continue",
    ];
    let services = written.split("\n[Service]\n").skip(1).map(|rest| rest.split("\n[").next());
    let settings = services.flat_map(|service| service.unwrap().lines());
    let settings = settings.filter(|line| line.contains('=') && !line.starts_with('#'));
    let others: Vec<_> =
        settings.filter(|line| !HARMLESS.iter().any(|start| line.starts_with(start))).collect();
    assert_eq!(others, ["TimeoutStopSec=60"], "{done}");
    // Mail programs deliver in the background, after the command of the job has ended.
    assert_eq!(written.matches("\nKillMode=process\n").count(), 2, "{done}");
    assert!(written.contains("\nOOMPolicy=continue\n"), "{done}");
    // Cron gives its commands SHELL, and the variables and the folder of the user.
    assert_eq!(written.matches("\nEnvironment=SHELL=/bin/sh\n").count(), 2, "{done}");
    let of_root = written.matches("\nUser=root\nWorkingDirectory=-~\n").count();
    assert_eq!(of_root, if is_root { 2 } else { 0 }, "{done}");
    assert!(
        written.contains("problems make jobctl-check.service fail, and its journal "),
        "{done}"
    );
    assert!(written.contains(":/50%%\"\n") && written.contains("\nPersistent=yes\n"), "{done}");

    // The commands that `init` asks for, and the warning about a second tick.
    let systemctl = if is_root { "systemctl" } else { "systemctl --user" };
    let run = |commands: &[&str]| {
        let mut commands: Vec<_> = commands.iter().map(|it| format!("{systemctl} {it}")).collect();
        if !is_root && commands.last().unwrap().contains("enable") {
            commands.push("loginctl enable-linger".to_owned());
        }
        format!("{units}; run `{}`\n", commands.join(" && "))
    };
    assert!(!written.contains("Unknown"), "{done}");
    let enable = "enable --now jobctl.timer jobctl-check.timer";
    assert!(written.contains(&run(&["daemon-reload", enable])), "{done}");
    let also = format!(
        "jobctl.timer in {units} ticks, too, and one tick a minute is enough; run `jobctl init \
         --remove` first\n"
    );
    assert!(written.contains(&also), "{done}");

    // The second `init` changes a unit, so it also ends the tick that has the old text.
    let changed = run(&["daemon-reload", "stop jobctl.service", enable]);
    assert!(again.contains("are up to date\n") && again.contains(&changed), "{done}");
    let sends = format!(
        "\nExecStart=\"{program}\" check --exec \"mail -s \\\"50%%\\\" {{environment}}{{state}}\"\n"
    );
    assert!(again.contains(&sends) && again.contains("--exec sends problems"), "{done}");
    assert!(!again.contains("Unknown"), "{done}");

    // The third `init` keeps --exec. Then another path of jobctl is written and verified.
    assert!(kept.contains("are up to date\n") && kept.contains("--exec stays; "), "{done}");
    assert!(kept.contains("--exec sends problems"), "{done}");
    let odd = kept.contains("/a$b 50%%/jobctl\" tick ") && !kept.contains("not executable");
    assert!(odd, "{done}");

    // The removal.
    let stop = run(&["daemon-reload", "stop jobctl.timer jobctl-check.timer jobctl.service"]);
    assert!(removed.contains(&format!("the units are removed from {stop}")), "{done}");
    // All files and the link are gone.
    assert!(!removed.lines().any(|line| line.starts_with(units)), "{done}");
}

#[test]
fn a_worker_may_set_up_a_host_of_a_migrated_database() {
    let (db, folder) = (TestDb::new(), temp_dir());
    let role = Role::granted(&db, "worker");
    let done = role.jobctl_with_pass_file(["init"], folder.path()).run().success();
    done.stderr_has(" is up to date\n").stdout_has("tick --quiet\n");
}

#[test]
fn units_beside_lines_of_a_crontab_are_named() {
    let (db, folder) = (TestDb::new(), temp_dir());
    let block = db.jobctl(["init"]).run().success().stdout;
    let crontab = folder.path().join("crontab");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    // Returns what `init --systemd` says if this is the crontab: a program `crontab` prints it.
    let init_beside = |text: &str| {
        fs::write(folder.path().join("lines"), text).unwrap();
        let script = format!("#!/bin/sh\ncat {}/lines\n", folder.path().display());
        fs::write(&crontab, script).unwrap();
        fs::set_permissions(&crontab, Permissions::from_mode(0o755)).unwrap();
        // Without --yes, it changes nothing.
        let init = db.jobctl(["init", "--systemd"]).env("PATH", &path);
        let config = folder.path().to_str().unwrap();
        init.env("XDG_CONFIG_HOME", config).run().exits(2).stderr
    };
    let has_block = "the crontab has lines of `jobctl init`, which tick and check, too; remove \
                     them with `crontab -e`\n";
    let tick = |line: usize| format!("line {line} of the crontab ticks, too; remove it, because");
    // The lines of `init`, and another line that ticks.
    let said = init_beside(&format!("0 4 * * * backup\n{block}* * * * * jobctl tick\n"));
    assert!(said.contains(has_block) && said.contains(&tick(2 + block.lines().count())), "{said}");
    assert_eq!(said.matches("of the crontab").count(), 1, "{said}");
    // No line ticks: the last one is a comment.
    let said = init_beside("0 4 * * * backup\n*/5 * * * * jobctl check\n# jobctl tick\n");
    assert!(!said.contains("the crontab"), "{said}");
}
