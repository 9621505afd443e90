//! `import-crontab`: each line becomes a job that `apply` accepts, or a warning.

use crate::cron;
use crate::support::{Finished, Invocation, TestDb, jobctl, leave_out, temp_dir};

fn import(crontab: &str, flags: &[&str]) -> Finished {
    let arguments = ["import-crontab", "-", "--time-zone", "Europe/Berlin"];
    jobctl(arguments.into_iter().chain(flags.iter().copied())).stdin(crontab).run().success()
}

const CRONTAB: &str = "\
# All jobs of the shop

# Paths
PATH = \"/srv/app/bin:/usr/bin\"
MAILTO=ops@example.com

# Exports the orders
30 2 * * 1-5\tcd /srv/app && export-orders >\"orders $(date +\\%F).csv\"
@daily nice -n 10 export-orders --all
0 9 * * * mail -s Hello ana%Dear Ana,%it is 100\\% done
@reboot warm-up
99 * * * * never
nonsense
CRON_TZ=UTC
SHELL=/bin/bash
*/5 * * * * [ -x /usr/bin/check.sh ] && /usr/bin/check.sh
";

const DEFINITIONS: &str = r#"# All jobs of the shop

# Paths

# Line 5 is left out: MAILTO has no equivalent: run `jobctl check` from cron, which mails its lines

# Exports the orders
[jobs.export-orders]
shell = "cd /srv/app && export-orders >\"orders $(date +%F).csv\""
env = { PATH = "/srv/app/bin:/usr/bin" }
schedule = "30 2 * * 1-5"
time_zone = "Europe/Berlin"
overlap = "allow"
catch_up = "skip"
max_attempts = 1

[jobs.export-orders-2]
shell = "nice -n 10 export-orders --all"
env = { PATH = "/srv/app/bin:/usr/bin" }
schedule = "@daily"
time_zone = "Europe/Berlin"
overlap = "allow"
catch_up = "skip"
max_attempts = 1

[jobs.mail]
shell = "{ mail -s Hello ana\n} <<'END_OF_INPUT'\nDear Ana,\nit is 100% done\nEND_OF_INPUT"
env = { PATH = "/srv/app/bin:/usr/bin" }
schedule = "0 9 * * *"
time_zone = "Europe/Berlin"
overlap = "allow"
catch_up = "skip"
max_attempts = 1

# Line 11 is left out: @reboot has no equivalent: keep the line
#     @reboot warm-up

# Line 12 is left out: `99` in the minute field is wrong; allowed are 0 to 59
#     99 * * * * never

# Line 13 is left out: it is neither a variable, nor a schedule and a command
#     nonsense

[jobs."check.sh"]
shell = ["/bin/bash", "-c", "[ -x /usr/bin/check.sh ] && /usr/bin/check.sh"]
env = { PATH = "/srv/app/bin:/usr/bin" }
schedule = "*/5 * * * *"
time_zone = "UTC"
overlap = "allow"
catch_up = "skip"
max_attempts = 1

"#;

#[test]
fn each_line_becomes_a_job_or_a_warning() {
    let imported = import(CRONTAB, &[]).stdout(DEFINITIONS);
    let lines: Vec<_> = imported.stderr.lines().collect();
    assert_eq!(lines.len(), 4, "{imported}");
    assert!(lines[1] == "jobctl: -:11: @reboot has no equivalent: keep the line", "{imported}");
    let db = TestDb::new();
    assert_eq!(db.apply(DEFINITIONS).lines().count(), 4);
}

/// The clock of Berlin goes forward on 29 March 2026, a Sunday.
#[test]
fn cron_and_jobctl_are_compared_line_by_line() {
    let compare = |crontab: &str| {
        let from = ["--compare", "2d", "--from", "2026-03-28T12:00:00+01:00"];
        let arguments = ["import-crontab", "-", "--time-zone", "Europe/Berlin"];
        jobctl(arguments.into_iter().chain(from)).stdin(crontab).run()
    };
    let same = "30 2 * * * a\n\n*/5 * * * mon-fri b\n0 0 1,30 * 7 c\n@yearly d\n";
    let lines = "line 1, a: 2 times, first 2026-03-29T03:00:00+02:00\n\
                 line 3, b: 157 times, first 2026-03-30T00:00:00+02:00\n\
                 line 4, c: 2 times, first 2026-03-29T00:00:00+01:00\n\
                 line 5, d: 0 times\n";
    compare(same).success().stderr("").stdout(lines);
    let differs = "@daily a\n0,30 2 * * 0 b\nCRON_TZ=UTC\n0 0 * * sat-sun c\n0 0 30 2 * d\n";
    let lines = "line 1, a: 2 times, first 2026-03-29T00:00:00+01:00\n\
                 line 2, b: differs: cron 2 times, jobctl 1 time\n  \
                 2026-03-29T03:00:00+02:00  cron 2  jobctl 1\n\
                 line 4, c: differs: cron 0 times, jobctl 1 time\n  \
                 2026-03-29T00:00:00+00:00  cron 0  jobctl 1\n";
    let compared = compare(differs).exits(1).stdout(lines);
    compared.complains_once().stderr_has("jobctl: -:5: `0 0 30 2 *` never fires: ");
}

#[test]
fn a_job_reads_the_text_after_a_percent_sign() {
    let db = TestDb::new();
    db.apply(&import("0 9 * * * cat # the input%Dear Ana,%it is 100\\% done\n", &[]).stdout);
    let id = db.enqueue(["cat"]);
    db.jobctl(["tick", "--quiet"]).run().success();
    assert_eq!(db.of_attempt(id, 1, "output"), "Dear Ana,\nit is 100% done\n");
}

#[test]
fn a_line_of_the_system_names_its_user() {
    let line =
        "HOME=/srv\n17 * * * * root test -x /bin/a || { cd / && run-parts /etc/cron.hourly; }\n";
    let imported = import(line, &["--system"]).stderr("");
    let imported = imported.stdout_has(
        "# Cron runs it as root: let a crontab of that user tick.\n[jobs.run-parts]\nshell = ",
    );
    imported.stdout_has("\ncwd = \"/srv\"\n");
}

#[test]
fn a_file_of_the_system_names_users_without_a_flag() {
    if let Some(why) = cron::obstacle() {
        return leave_out("import-crontab of a file in /etc/cron.d", why);
    }
    let steps = r#"
        mount -t tmpfs tmpfs /etc/cron.d
        echo '0 4 * * * root backup' >/etc/cron.d/app
        mount --bind /etc/cron.d/app /etc/crontab
        "$jobctl" import-crontab /etc/crontab
        cd /etc/cron.d && "$jobctl" import-crontab app"#;
    let command = format!("unshare --mount sh -euc '{}'", steps.replace('\'', r"'\''"));
    let done = Invocation::script(&command, None).run().success();
    assert_eq!(done.stdout.matches("[jobs.backup]\nshell = \"backup\"\n").count(), 2, "{done}");
    let assumed = |file| format!("jobctl: the lines of {file} name a user: --system is assumed\n");
    done.stderr(&[assumed("/etc/crontab"), assumed("app")].concat());
}

#[test]
fn the_lines_of_init_are_no_jobs() {
    let init = TestDb::new().jobctl(["init"]).run().success().stdout;
    let crontab = format!("0 4 * * * backup\n{init}@reboot warm-up\n0 5 * * * later\n");
    let line = crontab.lines().position(|line| line == "@reboot warm-up").unwrap() + 1;
    let warning = format!("jobctl: -:{line}: @reboot has no equivalent: keep the line\n");
    let imported = import(&crontab, &[]).stderr(&warning);
    let names: Vec<_> = imported.stdout.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(names, ["[jobs.backup]", "[jobs.later]"]);
    assert!(!imported.stdout.contains("env = "), "{imported}");
}

/// Names of built-in jobs, and commands without a word for a name.
#[test]
fn every_name_is_valid_and_unique() {
    let lines = ["/usr/bin/http", "\"$JOB\" ", "42", "./--x", "a/$(b)", "true"];
    let crontab: String = lines.iter().map(|line| format!("@hourly {line}\n")).collect();
    let imported = import(&crontab, &[]).stderr("");
    assert_eq!(imported.stdout.matches("[jobs.").count(), lines.len(), "{imported}");
    TestDb::new().apply(&imported.stdout);
}

#[test]
fn a_job_is_named_after_the_program_that_does_the_work() {
    // The first is the line of Debian's certbot.
    let crontab = "\
        @daily test -x /usr/bin/certbot -a \\! -d /run/systemd/system && perl -e 'sleep \
        int(rand(43200))' && certbot -q renew\n\
        @daily . /etc/profile; nice sleep 5; /usr/bin/backup --all\n";
    let names = import(crontab, &[]).stderr("").stdout;
    let names: Vec<_> = names.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(names, ["[jobs.certbot]", "[jobs.backup]"]);
}

#[test]
fn the_time_zone_is_that_of_the_host() {
    let folder = temp_dir();
    let crontab = folder.path().join("crontab");
    std::fs::write(&crontab, "@daily backup\n").unwrap();
    let import = jobctl(["import-crontab", crontab.to_str().unwrap()]).env("TZ", "Asia/Tokyo");
    import.run().success().stderr("").stdout_has("\ntime_zone = \"Asia/Tokyo\"\n");
    jobctl(["import-crontab", "/nowhere"]).run().exits(1).complains_once();
}
