//! `jobctl.next_time`: the next local time, for programs that enqueue in SQL.

use std::fmt::Write as _;

use crate::support::{Role, TestDb, jobctl, leave_out};

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// Returns the next number of SplitMix64, a generator of random numbers.
pub(crate) fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[test]
fn the_sql_function_next_time_returns_the_times_that_jobctl_next_prints() {
    // For each zone, two random schedules are compared, with nine times each.
    const TIMES: usize = 9;
    let db = TestDb::new();
    let listed = db.client().query_one(
        "SELECT string_agg(name, E'\\n' ORDER BY name) FROM pg_timezone_names
         WHERE name ~ '^[A-Z][A-Za-z_]+/' AND name !~ '^(Etc|SystemV|posix)/'",
        &[],
    );
    let zones: String = match listed {
        Ok(row) => row.get(0),
        // PostgreSQL lists none if one of their files links to an /etc/localtime that is missing.
        Err(_) => return leave_out("the times of all zones", "the server can't list its zones"),
    };
    let (mut state, mut cases, mut expected) = (7, String::new(), Vec::new());
    for (number, zone) in zones.lines().chain(zones.lines()).enumerate() {
        // Returns a random number below `end`.
        let mut any = |end: u64| random(&mut state) % end;
        // Most clock changes are within the days after one of these.
        let month =
            ["03-06", "03-24", "04-01", "09-24", "10-01", "10-24", "10-30"][any(7) as usize];
        let from = format!("{}-{month}T{:02}:00:00Z", 1975 + any(62), any(24));
        let (hour, minute) =
            ([0, 0, 1, 1, 2, 2, 3, 23][any(8) as usize], [0, 30, 59][any(3) as usize]);
        let [one, other] = [any(7), any(7)].map(|day| DAYS[day as usize]);
        let days = match any(8) {
            0 | 1 => format!("{one},{other}"),
            2 => "mon-fri".to_owned(),
            3 => format!("{one}#{},{other}L", 1 + any(5)),
            4 => ["L", "LW"][any(2) as usize].to_owned(),
            _ => "*".to_owned(),
        };
        let fields = if days.starts_with('L') { [&days, "*"] } else { ["*", &days] };
        let schedule = format!("{minute} {hour} {} * {}", fields[0], fields[1]);
        let count = TIMES.to_string();
        let next = [
            "next",
            "--schedule",
            &schedule,
            "--time-zone",
            zone,
            "--from",
            &from,
            "--count",
            &count,
            "--format",
            "tsv",
        ];
        let next = jobctl(next).run().success();
        let time = |line: &str| line.split('\t').next().unwrap().to_owned();
        let times = next.stdout.lines().map(time).filter(|time| time.ends_with('Z'));
        expected.push(format!("{zone} {schedule}: {}", times.collect::<Vec<_>>().join(" ")));
        let comma = if number == 0 { "" } else { ", " };
        let at = format!("time '{hour}:{minute}', '{days}', timestamptz '{from}'");
        write!(cases, "{comma}({number}, '{zone}', '{schedule}', {at})").unwrap();
    }
    assert!(expected.len() > 1000, "{}", expected.len());
    let found = db.query(&format!(
        "WITH RECURSIVE asked (number, zone, schedule, at, days, since) AS (VALUES {cases}),
         time AS (
             SELECT 0 AS place, since AS at, asked.number FROM asked
             UNION ALL
             SELECT place + 1, jobctl.next_time(asked.at, asked.days, asked.zone, time.at), number
             FROM time JOIN asked USING (number) WHERE place < {TIMES}
         )
         SELECT asked.zone || ' ' || asked.schedule || ': ' || string_agg(to_char(
             time.at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'), ' ' ORDER BY place)
         FROM time JOIN asked USING (number) WHERE place > 0
         GROUP BY number, asked.zone, asked.schedule ORDER BY number"
    ));
    for (found, expected) in found.lines().zip(&expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.lines().count(), expected.len());
}

#[test]
fn an_application_enqueues_for_its_next_monday() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n");
    let enqueue = "SELECT jobctl.enqueue('a',
         run_at => jobctl.next_time('09:00', 'mon', 'Europe/Berlin'))";
    Role::granted(&db, "enqueuer").client().batch_execute(enqueue).unwrap();
    let line = r#"{"job_type": "a", "next": "0 9 * * mon", "time_zone": "Europe/Berlin"}"#;
    db.jobctl(["enqueue", "--batch", "-"]).stdin(line).run().success();
    // SQL and the batch set the same time.
    assert_eq!(db.query("SELECT count(DISTINCT run_at) FROM jobctl.job_runs"), "1");
}

#[test]
fn next_time_takes_days_a_zone_and_the_time_after_which_it_looks() {
    let db = TestDb::new();
    // It is 9:00 on a Monday, so the next of these days is Saturday.
    let monday = "SELECT jobctl.next_time('09:00', 'MON,sat-sun', 'UTC', '2026-11-23 09:00Z')";
    assert_eq!(db.query(monday), "2026-11-28 09:00:00+00");
    // This time does not exist on the day of the change to summer time. The end of the gap counts,
    // and the fraction of the second is dropped.
    let gap = "SELECT jobctl.next_time('02:00:00.5', '*', 'Europe/Berlin', '2026-03-28 12:00Z')";
    assert_eq!(db.query(gap), "2026-03-29 01:00:00+00");
}

#[test]
fn next_time_names_the_wrong_argument() {
    let db = TestDb::new();
    // The arguments of `next_time`, and the error.
    for (arguments, why) in [
        ("NULL", "an argument is NULL"),
        ("'24:00'", "at is out of range; allowed are 00:00 to 23:59:59"),
        ("'9:00', 'monday'", "days must be *, or days like mon,wed, mon-fri, mon#1, friL, L or LW"),
        (
            "'9:00', 'mon-wed-fri'",
            "days must be *, or days like mon,wed, mon-fri, mon#1, friL, L or LW",
        ),
        (
            "'9:00', 'mon', 'CEST'",
            "there is no time zone `CEST`; write a name such as Europe/Berlin, or UTC",
        ),
        (
            "'9:00', 'mon', 'UTC', 'infinity'",
            "after is out of range; allowed are the years 1 to 9999",
        ),
    ] {
        let error = db.try_query(&format!("SELECT jobctl.next_time({arguments})")).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.message(), format!("cannot compute a time: {why}"));
        assert_eq!(error.code().code(), "22023");
    }
}

#[test]
fn sql_accepts_the_time_zones_that_a_definition_accepts() {
    let db = TestDb::new();
    db.apply("[jobs.a]\nshell = 'true'\n");
    let right = [
        "UTC",
        "GMT",
        "GMT0",
        "CET",
        "EST5EDT",
        "W-SU",
        "Etc/GMT+5",
        "Europe/Berlin",
        "America/Argentina/Buenos_Aires",
    ];
    // PostgreSQL itself accepts most of these.
    let wrong = [
        "europe/berlin",
        "America/new_york",
        "ASIA/TOKYO",
        "utc",
        "Est5edt",
        "right/UTC",
        "posix/Europe/Berlin",
        "localtime",
        "posixrules",
        "CEST",
        "CEST-2",
        "MARS3",
        "A/B3",
        "GMT+5",
        "Etc/GMT-15",
        "Mars/Phobos",
        "Europe",
        "Europe/",
    ];
    for (zones, is_right) in [(&right[..], true), (&wrong, false)] {
        for zone in zones {
            let next = ["next", "--schedule", "@daily", "--time-zone", zone];
            assert_eq!(db.jobctl(next).run().status.success(), is_right, "{zone}");
            for call in ["schedule('s', 'a', '@daily', 'ZONE')", "next_time('9:00', '*', 'ZONE')"] {
                let call = format!("SELECT jobctl.{}", call.replace("ZONE", zone));
                // The zone of the session stays.
                let call = format!("SET timezone = 'Asia/Tokyo'; {call}; SHOW timezone");
                match db.try_query(&call) {
                    Ok(answer) => assert!(is_right && answer.ends_with("Asia/Tokyo"), "{answer}"),
                    Err(error) => {
                        let error = error.as_db_error().unwrap();
                        let why = format!("cannot compute a time: there is no time zone `{zone}`;");
                        assert!(!is_right && error.message().starts_with(&why), "{error}");
                        assert_eq!(error.code().code(), "22023");
                    }
                }
            }
        }
    }
}
