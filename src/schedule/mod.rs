//! Computes when a schedule fires: a cron expression in the local time of a time zone. Pure:
//! instants in, instants out; only `zone` reads files.
//!
//! Clock changes are treated as in Debian's cron. A job with fixed times fires once for each time.
//! If the clock skips the time, it fires right after the gap; if the time occurs twice, it fires
//! the first time. A job whose minute or hour starts with `*` fires whenever the clock shows a
//! matching minute: not in a gap, and twice in a repeated hour.

mod clock;
mod expression;
mod fire;
mod spread;
mod words;
mod zone;

use std::iter;

use chrono::{DateTime, Datelike, Days, NaiveDate, Utc};

pub(crate) use clock::Clock;
use clock::{Gap, Pass, Stretch};
use expression::Expression;
pub(crate) use fire::{Fire, Mark};
pub(crate) use spread::spread_of;
pub(crate) use zone::ZoneData;

/// How far to search ahead and back. Within 40 years every date falls on every day of the week,
/// even 29 February across a year such as 2100.
pub(crate) const HORIZON_YEARS: u32 = 41;
const HORIZON_DAYS: usize = HORIZON_YEARS as usize * 366;

/// An expression, and the clock by which it is read.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    text: String,
    expression: Expression,
    clock: Clock,
}

/// What fell due while nobody looked.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Missed {
    /// The newest times, in order.
    pub(crate) times: Vec<DateTime<Utc>>,
    /// How many are older than those.
    pub(crate) skipped: u64,
}

impl Schedule {
    /// # Errors
    /// Says which field is wrong and what it allows, or that there is no such zone.
    pub(crate) fn parse(expression: &str, time_zone: &str) -> Result<Self, String> {
        let text = expression.trim().to_owned();
        Ok(Self { expression: Expression::parse(&text)?, text, clock: Clock::parse(time_zone)? })
    }

    /// Returns the first nominal time after `from`.
    ///
    /// # Errors
    /// The schedule never fires, such as on 30 February: no time within the horizon matches.
    pub(crate) fn first(&self, from: DateTime<Utc>) -> Result<DateTime<Utc>, String> {
        let never = || {
            let (text, day) = (&self.text, from.date_naive());
            format!("`{text}` never fires: no time within {HORIZON_YEARS} years of {day} matches")
        };
        self.after(from).ok_or_else(never)
    }

    /// Returns the first nominal time after `instant`; `None` if there is none within the horizon.
    pub(crate) fn after(&self, instant: DateTime<Utc>) -> Option<DateTime<Utc>> {
        days_from(instant).find_map(|day| self.fires_on(day).find(|at| *at > instant))
    }

    /// Returns the nominal times after `after` and up to `until`: the `newest` ones, and the number
    /// of the others. Times before the horizon are not counted. The number is a sum over days, not
    /// minutes, so a year costs the same for every schedule.
    pub(crate) fn missed(&self, after: DateTime<Utc>, until: DateTime<Utc>, newest: usize) -> Missed {
        let oldest = until.checked_sub_days(Days::new(HORIZON_DAYS as u64 - 1)).unwrap_or(DateTime::<Utc>::MIN_UTC);
        let after = after.max(oldest);
        let (first, last) = (after.date_naive(), until.date_naive());
        let mut missed = Missed { times: Vec::new(), skipped: 0 };
        let days: Vec<_> = days_from(after).take_while(|day| *day <= last).collect();
        for day in days.into_iter().rev() {
            if missed.times.len() >= newest
                && first < day
                && day < last
                && let Some(count) = self.count_on(day)
            {
                missed.skipped += u64::from(count);
                continue;
            }
            for at in self.fires_on(day).rev().filter(|at| after < *at && *at <= until) {
                if missed.times.len() < newest {
                    missed.times.push(at);
                } else {
                    missed.skipped += 1;
                }
            }
        }
        missed.times.reverse();
        missed
    }

    /// The nominal times after `instant`, for people.
    pub(crate) fn fires(&self, instant: DateTime<Utc>) -> impl Iterator<Item = Fire> + '_ {
        let mut last = instant;
        iter::from_fn(move || {
            let at = self.after(last)?;
            let mark = self.mark(last, at);
            last = at;
            Some(Fire { at, local: self.clock.show(at), mark })
        })
    }

    /// The schedule in one sentence.
    pub(crate) fn words(&self) -> String {
        words::sentence(&self.expression, self.clock.name())
    }

    /// The nominal times on a day of UTC, in order.
    fn fires_on(&self, day: NaiveDate) -> impl DoubleEndedIterator<Item = DateTime<Utc>> + '_ {
        let stretches = self.may_match(day).then(|| self.clock.stretches(day));
        stretches.into_iter().flatten().flat_map(|stretch| self.fires_in(&stretch))
    }

    fn fires_in(&self, stretch: &Stretch) -> impl DoubleEndedIterator<Item = DateTime<Utc>> + use<'_> {
        let follows_clock = self.expression.follows_clock();
        let made_up = (!follows_clock && self.matches_in(&stretch.gap())).then_some(stretch.start);
        let (from, until) = stretch.local();
        let offset = stretch.offset;
        let shown = self.expression.between(from, until).map(move |local| (local - offset).and_utc());
        let counting =
            shown.filter(move |at| Some(*at) != made_up && (follows_clock || self.clock.pass(*at) != Pass::Second));
        made_up.into_iter().chain(counting)
    }

    /// How many nominal times a day of UTC has, if no change of the clock bears on it.
    fn count_on(&self, day: NaiveDate) -> Option<u32> {
        if !self.may_match(day) {
            return Some(0);
        }
        // Midnight of UTC is at `time` by the clock, so the day holds the rest of one local day and the
        // beginning of the next.
        let local = day.and_hms_opt(0, 0, 0)? + self.clock.steady(day)?;
        let before = self.expression.count_before(local.time());
        let rest = self.expression.count() - before;
        let counts = [(Some(local.date()), rest), (local.date().succ_opt(), before)];
        let matching = counts.into_iter().filter(|(day, _)| day.is_some_and(|day| self.expression.matches_day(day)));
        Some(matching.map(|(_, count)| count).sum())
    }

    /// Whether a local day matches that overlaps this day of UTC: no offset is more than a day.
    fn may_match(&self, day: NaiveDate) -> bool {
        [day.pred_opt(), Some(day), day.succ_opt()].into_iter().flatten().any(|day| self.expression.matches_day(day))
    }

    fn matches_in(&self, gap: &Gap) -> bool {
        self.expression.between(gap.from, gap.until).next().is_some()
    }

    /// The mark of the fire at `at`, when the one before it is at `since`.
    fn mark(&self, since: DateTime<Utc>, at: DateTime<Utc>) -> Option<Mark> {
        let follows_clock = self.expression.follows_clock();
        let gap = days_from(since)
            .take_while(|day| *day <= at.date_naive())
            .filter(|day| self.may_match(*day))
            .flat_map(|day| self.clock.stretches(day))
            .filter(|stretch| since < stretch.start && stretch.start <= at)
            .map(|stretch| stretch.gap())
            .find(|gap| self.matches_in(gap));
        match (gap, self.clock.pass(at)) {
            (Some(gap), _) if follows_clock => Some(Mark::LeftOut(gap)),
            (Some(gap), _) => Some(Mark::AfterGap(gap)),
            (None, Pass::Only) => None,
            (None, Pass::First) if follows_clock => Some(Mark::FirstPass),
            (None, Pass::First) => Some(Mark::Once),
            (None, Pass::Second) => Some(Mark::SecondPass),
        }
    }
}

/// The days of UTC from that of `instant` on, as far as the horizon. Times near the end of what can
/// be represented have none, so that a day more is always an instant.
fn days_from(instant: DateTime<Utc>) -> impl Iterator<Item = NaiveDate> {
    instant.date_naive().iter_days().take(HORIZON_DAYS).take_while(|day| (1..=9999).contains(&day.year()))
}

#[cfg(test)]
mod tests {
    use chrono::{TimeDelta, Timelike};
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn schedule(expression: &str, zone: &str) -> Schedule {
        Schedule::parse(expression, zone).unwrap()
    }

    /// The first fires after a time, as `jobctl next` shows them, without the words of the marks.
    #[track_caller]
    fn fires(expression: &str, zone: &str, from: &str, expected: &[&str]) {
        let schedule = schedule(expression, zone);
        let shown = schedule.fires(at(from)).take(expected.len()).map(|fire| {
            let mark = match fire.mark {
                None => "",
                Some(Mark::AfterGap(_)) => " after gap",
                Some(Mark::LeftOut(_)) => " left out",
                Some(Mark::Once) => " once",
                Some(Mark::FirstPass) => " first",
                Some(Mark::SecondPass) => " second",
            };
            assert_eq!(fire.at, fire.local);
            format!("{} = {}{mark}", fire.at.format("%m-%dT%H:%MZ"), fire.local.format("%H:%M%:z"))
        });
        assert_eq!(shown.collect::<Vec<_>>(), expected, "{expression} {zone}");
    }

    #[test]
    fn a_time_that_is_leapt_over_comes_right_after_the_gap() {
        fires(
            "30 2 * * *",
            "America/New_York",
            "2026-03-07T12:00:00Z",
            &["03-08T07:00Z = 03:00-04:00 after gap", "03-09T06:30Z = 02:30-04:00"],
        );
        fires(
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            &["03-29T01:00Z = 03:00+02:00 after gap", "03-30T00:30Z = 02:30+02:00"],
        );
        fires(
            "15 2 * * *",
            "Australia/Lord_Howe",
            "2026-10-03T00:00:00Z",
            &["10-03T15:30Z = 02:30+11:00 after gap", "10-04T15:15Z = 02:15+11:00"],
        );
        fires(
            "0 0 * * *",
            "America/Havana",
            "2026-03-07T12:00:00Z",
            &["03-08T05:00Z = 01:00-04:00 after gap", "03-09T04:00Z = 00:00-04:00"],
        );
        fires(
            "30 0 * * *",
            "Asia/Tehran",
            "2022-03-21T12:00:00Z",
            &["03-21T20:30Z = 01:00+04:30 after gap", "03-22T20:00Z = 00:30+04:30"],
        );
        fires(
            "59 1 * * *",
            "Europe/Dublin",
            "2026-03-28T12:00:00Z",
            &["03-29T01:00Z = 02:00+01:00 after gap", "03-30T00:59Z = 01:59+01:00"],
        );
        fires(
            "0 3 * * *",
            "Pacific/Chatham",
            "2026-09-26T00:00:00Z",
            &["09-26T14:00Z = 03:45+13:45 after gap", "09-27T13:15Z = 03:00+13:45"],
        );
        // In Ramadan the clock is an hour behind, and that is the daylight-saving time of the tables.
        fires(
            "30 2 * * *",
            "Africa/Casablanca",
            "2026-03-21T12:00:00Z",
            &["03-22T02:00Z = 03:00+01:00 after gap", "03-23T01:30Z = 02:30+01:00"],
        );
        // A whole day: Samoa went to the other side of the date line.
        fires(
            "0 12 * * *",
            "Pacific/Apia",
            "2011-12-29T00:00:00Z",
            &["12-29T22:00Z = 12:00-10:00", "12-30T10:00Z = 00:00+14:00 after gap", "12-30T22:00Z = 12:00+14:00"],
        );
    }

    #[test]
    fn all_times_in_a_gap_come_at_once_and_with_the_one_right_after_it() {
        fires(
            "0,30 1-3 * * *",
            "America/New_York",
            "2026-03-08T06:00:00Z",
            &["03-08T06:30Z = 01:30-05:00", "03-08T07:00Z = 03:00-04:00 after gap", "03-08T07:30Z = 03:30-04:00"],
        );
    }

    #[test]
    fn a_time_that_comes_twice_counts_the_first_time() {
        fires(
            "30 1 * * *",
            "America/New_York",
            "2026-10-31T12:00:00Z",
            &["11-01T05:30Z = 01:30-04:00 once", "11-02T06:30Z = 01:30-05:00"],
        );
        fires("0,30 1,2 * * *", "America/New_York", "2026-11-01T05:59:59Z", &["11-01T07:00Z = 02:00-05:00"]);
        fires(
            "30 2 * * *",
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            &["10-25T00:30Z = 02:30+02:00 once", "10-26T01:30Z = 02:30+01:00"],
        );
        fires(
            "45 1 * * *",
            "Australia/Lord_Howe",
            "2026-04-03T20:00:00Z",
            &["04-04T14:45Z = 01:45+11:00 once", "04-05T15:15Z = 01:45+10:30"],
        );
        fires(
            "0 0 * * *",
            "America/Havana",
            "2026-10-31T12:00:00Z",
            &["11-01T04:00Z = 00:00-04:00 once", "11-02T05:00Z = 00:00-05:00"],
        );
        // At midnight the clock goes back into the day before.
        fires(
            "30 23 * * *",
            "Asia/Tehran",
            "2022-09-21T12:00:00Z",
            &["09-21T19:00Z = 23:30+04:30 once", "09-22T20:00Z = 23:30+03:30"],
        );
        fires("0 0 * * *", "Asia/Tehran", "2022-09-21T12:00:00Z", &["09-21T20:30Z = 00:00+03:30"]);
        fires(
            "30 1 * * *",
            "Europe/Dublin",
            "2026-10-24T12:00:00Z",
            &["10-25T00:30Z = 01:30+01:00 once", "10-26T01:30Z = 01:30+00:00"],
        );
        fires(
            "0 3 * * *",
            "Pacific/Chatham",
            "2026-04-04T00:00:00Z",
            &["04-04T13:15Z = 03:00+13:45 once", "04-05T14:15Z = 03:00+12:45"],
        );
        fires(
            "30 2 * * *",
            "Africa/Casablanca",
            "2026-02-14T12:00:00Z",
            &["02-15T01:30Z = 02:30+01:00 once", "02-16T02:30Z = 02:30+00:00"],
        );
    }

    #[test]
    fn a_wildcard_follows_the_clock() {
        fires(
            "30 * * * *",
            "America/New_York",
            "2026-11-01T04:00:00Z",
            &[
                "11-01T04:30Z = 00:30-04:00",
                "11-01T05:30Z = 01:30-04:00 first",
                "11-01T06:30Z = 01:30-05:00 second",
                "11-01T07:30Z = 02:30-05:00",
            ],
        );
        fires(
            "30 * * * *",
            "America/New_York",
            "2026-03-08T06:00:00Z",
            &["03-08T06:30Z = 01:30-05:00", "03-08T07:30Z = 03:30-04:00 left out"],
        );
        fires("*/15 2 * * *", "America/New_York", "2026-03-08T00:00:00Z", &["03-09T06:00Z = 02:00-04:00 left out"]);
        fires("*/15 3 * * *", "America/New_York", "2026-03-08T00:00:00Z", &["03-08T07:00Z = 03:00-04:00"]);
        fires(
            "*/20 1-2 * * *",
            "Australia/Lord_Howe",
            "2026-04-04T14:30:00Z",
            &["04-04T14:40Z = 01:40+11:00 first", "04-04T15:10Z = 01:40+10:30 second", "04-04T15:30Z = 02:00+10:30"],
        );
        fires(
            "0 */6 * * *",
            "America/Havana",
            "2026-10-31T22:00:00Z",
            &["11-01T04:00Z = 00:00-04:00 first", "11-01T05:00Z = 00:00-05:00 second", "11-01T11:00Z = 06:00-05:00"],
        );
    }

    #[test]
    fn a_repeated_hour_may_reach_into_the_next_day_of_utc() {
        // Gaza: 02:00 is put back to 01:00 at 23:00 UTC.
        let schedule = schedule("59 1 * * *", "Asia/Gaza");
        let first = schedule.after(at("2026-10-23T12:00:00Z")).unwrap();
        assert_eq!(first, at("2026-10-23T22:59:00Z"));
        assert_eq!(schedule.after(first).unwrap(), at("2026-10-24T23:59:00Z"));
    }

    #[test]
    fn the_next_time_is_strictly_later() {
        fires("0 0 1 1 *", "UTC", "2026-01-01T00:00:00Z", &["01-01T00:00Z = 00:00+00:00"]);
        let minutely = schedule("* * * * *", "Asia/Kathmandu");
        assert_eq!(minutely.after(at("2026-01-01T00:00:59.999Z")), Some(at("2026-01-01T00:01:00Z")));
        assert_eq!(minutely.after(at("2026-01-01T00:01:00Z")), Some(at("2026-01-01T00:02:00Z")));
    }

    #[test]
    fn what_never_fires_is_refused() {
        let now = at("2026-03-01T00:00:00Z");
        for never in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31 2 */2"] {
            let why = schedule(never, "Europe/Berlin").first(now).unwrap_err();
            assert_eq!(why, format!("`{never}` never fires: no time within 41 years of 2026-03-01 matches"));
        }
        for rare in ["0 0 29 2 *", "0 0 30 2 1", "@yearly"] {
            assert!(schedule(rare, "Europe/Berlin").first(now).is_ok());
        }
        assert_eq!(schedule("0 0 29 2 */7", "UTC").after(at("2032-02-29T00:00:00Z")), Some(at("2060-02-29T00:00:00Z")));
        assert_eq!(schedule("0 0 29 2 */7", "UTC").after(at("2088-02-29T00:00:00Z")), Some(at("2128-02-29T00:00:00Z")));
        // 2100 is no leap year.
        assert_eq!(schedule("0 0 29 2 *", "UTC").after(at("2096-02-29T00:00:00Z")), Some(at("2104-02-29T00:00:00Z")));
    }

    #[test]
    fn an_instant_beyond_all_calendars_has_no_next_time() {
        let schedule = schedule("* * * * *", "America/New_York");
        for extreme in [DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC] {
            assert_eq!(schedule.after(extreme), None);
            assert_eq!(schedule.missed(extreme, extreme, 1), Missed { times: vec![], skipped: 0 });
        }
        let now = at("2026-01-01T00:00:00Z");
        assert_eq!(schedule.missed(DateTime::<Utc>::MIN_UTC, now, 1).times, [now]);
    }

    #[test]
    fn the_newest_missed_times_are_listed_and_the_others_counted() {
        let schedule = schedule("* * * * *", "Europe/Berlin");
        let (down, up) = (at("2026-03-29T00:00:00Z"), at("2026-03-29T03:00:10Z"));
        assert_eq!(schedule.missed(down, up, 0), Missed { times: vec![], skipped: 180 });
        assert_eq!(schedule.missed(down, up, 1), Missed { times: vec![at("2026-03-29T03:00:00Z")], skipped: 179 });
        let hundred = schedule.missed(down, up, 100);
        assert_eq!((hundred.times.len(), hundred.skipped), (100, 80));
        assert_eq!(hundred.times[0], at("2026-03-29T01:21:00Z"));
        assert!(hundred.times.is_sorted());
        assert_eq!(schedule.missed(up, down, 5), Missed { times: vec![], skipped: 0 });
    }

    #[test]
    fn the_number_missed_is_exact_for_years() {
        let year =
            schedule("* * * * *", "America/New_York").missed(at("2025-01-01T12:34:00Z"), at("2026-01-01T12:34:00Z"), 1);
        assert_eq!(year.skipped, 365 * 1440 - 1);
        let daily = schedule("30 2 * * *", "America/New_York").missed(
            at("2020-01-01T12:00:00Z"),
            at("2026-01-01T12:00:00Z"),
            3,
        );
        assert_eq!(daily.skipped, 6 * 365 + 2 - 3);
        // An hour that is leapt over, and one that comes twice.
        let hourly =
            schedule("@hourly", "Europe/Berlin").missed(at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z"), 0);
        assert_eq!(hourly.skipped, 365 * 24);
        let cut = schedule("@daily", "UTC").missed(DateTime::UNIX_EPOCH, at("2026-01-01T00:00:00Z"), 0);
        assert_eq!(cut.skipped, HORIZON_DAYS as u64 - 1);
    }

    const ZONES: [&str; 12] = [
        "UTC",
        "America/New_York",
        "America/Havana",
        "America/St_Johns",
        "Africa/Casablanca",
        "Antarctica/Troll",
        "Asia/Gaza",
        "Asia/Tehran",
        "Australia/Lord_Howe",
        "Europe/Berlin",
        "Europe/Dublin",
        "Pacific/Chatham",
    ];

    fn field(first: u32, last: u32) -> impl Strategy<Value = String> {
        let value = first..=last;
        let range = (value.clone(), value.clone()).prop_map(|(one, other)| (one.min(other), one.max(other)));
        let item = prop_oneof![
            value.clone().prop_map(|value| value.to_string()),
            range.clone().prop_map(|(low, high)| format!("{low}-{high}")),
            (range, 0..60_u32).prop_map(|((low, high), n)| format!("{low}-{high}/{}", 1 + n % (high - low + 1))),
        ];
        prop_oneof![
            2 => Just("*".to_owned()),
            1 => (1..=last).prop_map(|step| format!("*/{step}")),
            4 => prop::collection::vec(item, 1..4).prop_map(|items| items.join(",")),
        ]
    }

    prop_compose! {
        fn any_schedule()(
            minute in field(0, 59), hour in field(0, 4), day in field(1, 31), month in field(1, 12),
            weekday in field(0, 6), zone in prop::sample::select(&ZONES),
        ) -> Schedule {
            schedule(&format!("{minute} {hour} {day} {month} {weekday}"), zone)
        }
    }

    /// A time within days of a change of the clock, more often than not.
    fn any_time() -> impl Strategy<Value = DateTime<Utc>> {
        let changes = ["2026-03-08T07:00:00Z", "2026-10-25T01:00:00Z", "2026-11-01T06:00:00Z", "2022-09-21T19:30:00Z"];
        (prop::sample::select(changes.to_vec()), -500_000..500_000_i64)
            .prop_map(|(change, seconds)| at(change) + TimeDelta::seconds(seconds))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn times_increase_and_do_not_depend_on_where_the_search_starts(
            schedule in any_schedule(), from in any_time(), between in 0.0..1.0,
        ) {
            let mut last = from;
            for _ in 0..20 {
                let Some(next) = schedule.after(last) else { break };
                prop_assert!(next > last);
                let inside = last + TimeDelta::seconds(((next - last).num_seconds() as f64 * between) as i64);
                if inside < next {
                    prop_assert_eq!(schedule.after(inside), Some(next));
                }
                last = next;
            }
        }

        #[test]
        fn each_time_matches_by_the_clock_or_is_right_after_a_gap(schedule in any_schedule(), from in any_time()) {
            for fire in schedule.fires(from).take(20) {
                let local = fire.local.naive_local();
                let shown = schedule.expression.between(local, local + TimeDelta::seconds(1)).next().is_some();
                let made_up = matches!(&fire.mark, Some(Mark::AfterGap(gap)) if gap.until == local);
                prop_assert!(shown || made_up, "{} {:?}", schedule.text, fire);
                prop_assert_eq!(fire.at.second(), 0);
            }
        }

        #[test]
        fn what_was_missed_is_what_the_next_times_were(
            schedule in any_schedule(), from in any_time(), hours in 0..200_i64, newest in 0..50_usize,
        ) {
            let until = from + TimeDelta::hours(hours);
            let all: Vec<_> = iter::successors(schedule.after(from), |last| schedule.after(*last))
                .take_while(|at| *at <= until)
                .collect();
            let (older, newer) = all.split_at(all.len().saturating_sub(newest));
            prop_assert_eq!(
                schedule.missed(from, until, newest),
                Missed { times: newer.to_vec(), skipped: older.len() as u64 }
            );
        }
    }
}
