//! The five fields of a cron expression: which texts are accepted, and which minutes of a local
//! clock they match. Knows no time zone and no instant.
//!
//! Beyond crontab(5), the day of the month may be `L` or `LW`, and the day of the week `mon#1` or
//! `friL`. Quartz has these forms, too, but counts days from 1; here, 5 is Friday as in cron.

use chrono::{Datelike, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Weekday};

/// Words that stand for five fields.
const ALIASES: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

const MINUTE: FieldRule = FieldRule { name: "minute", first: 0, last: 59, names: "", more: "" };
const HOUR: FieldRule = FieldRule { name: "hour", first: 0, last: 23, names: "", more: "" };
const DAY: FieldRule =
    FieldRule { name: "day-of-month", first: 1, last: 31, names: "", more: ", L or LW" };
const MONTH: FieldRule = FieldRule {
    name: "month",
    first: 1,
    last: 12,
    names: "jan feb mar apr may jun jul aug sep oct nov dec",
    more: "",
};
/// `7` also means Sunday.
const WEEKDAY: FieldRule = FieldRule {
    name: "day-of-week",
    first: 0,
    last: 6,
    names: "sun mon tue wed thu fri sat",
    more: ", also with #1 to #5 or L",
};

/// The values that a field may have.
struct FieldRule {
    name: &'static str,
    first: u32,
    last: u32,
    /// The names of the values from `first` on.
    names: &'static str,
    /// The words of an error about other allowed values.
    more: &'static str,
}

/// The numbers that a field matches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    /// Bit `n` stands for `n`.
    values: u64,
    /// The field starts with `*`, as in `*/2`. Cron's rules for days and for clock changes depend
    /// on how a field is written, not on what it matches.
    star: bool,
    /// The days of a day field that depend on the month.
    special: Specials,
}

/// Days that depend on the month, as bits.
///
/// - In the field of the day of the month, bit 0 stands for the last day, and bit 1 for the last
///   day that is neither Saturday nor Sunday.
/// - In the field of the day of the week, bit `8 * n + day` stands for the `n`th such day of the
///   month, with day 0 for Sunday. `n` 6 is the last one.
type Specials = u64;

const LAST_DAY: Specials = 1;
const LAST_WORKDAY: Specials = 2;
/// The value of `n` that means the last such weekday of the month.
const LAST: u32 = 6;

/// Returns the bit for the `n`th `weekday` of a month.
const fn nth(n: u32, weekday: u32) -> Specials {
    1 << (8 * n + weekday)
}

/// A cron expression.
#[derive(Clone, Debug)]
pub(super) struct Expression {
    pub(super) minutes: Field,
    pub(super) hours: Field,
    pub(super) days: Field,
    pub(super) months: Field,
    /// From 0 for Sunday to 6.
    pub(super) weekdays: Field,
}

impl Expression {
    /// Reads an expression of five fields, or a word such as `@daily`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.starts_with('@') {
            return match ALIASES.iter().find(|(alias, _)| *alias == text) {
                Some((_, meaning)) => Self::parse(meaning),
                None => {
                    let known = ALIASES.map(|(alias, _)| alias).join(", ");
                    Err(format!(
                        "`{text}` is not a schedule; write {known}, @every 90m or five fields"
                    ))
                }
            };
        }
        let fields: Vec<_> = text.split_ascii_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            let count = fields.len();
            let noun = if count == 1 { "field" } else { "fields" };
            return Err(format!(
                "`{text}` has {count} {noun}; \
                 write five: minute, hour, day of month, month, day of week"
            ));
        };
        Ok(Self {
            minutes: MINUTE.parse(minute)?,
            hours: HOUR.parse(hour)?,
            days: DAY.parse(day)?,
            months: MONTH.parse(month)?,
            weekdays: WEEKDAY.parse(weekday)?,
        })
    }

    /// Returns whether the job runs each time when the local clock shows a matching minute. Such a
    /// job runs twice in a repeated hour, and does not catch up times in a gap.
    pub(super) fn follows_clock(&self) -> bool {
        self.minutes.star || self.hours.star
    }

    /// Returns whether a day must match both day fields, not only one of them. Follows cron's code,
    /// in which `*/2` counts as a star, too. Its manual says "if both are not `*`".
    pub(super) fn needs_both_days(&self) -> bool {
        self.days.star || self.weekdays.star
    }

    /// Returns whether it uses a form that crontab(5) lacks.
    pub(super) fn extends_cron(&self) -> bool {
        self.days.special > 0 || self.weekdays.special > 0
    }

    /// Returns whether the job may run on this date.
    fn matches_day(&self, date: NaiveDate) -> bool {
        let (number, last) = (date.day(), u32::from(date.num_days_in_month()));
        let is_last_workday = match date.weekday() {
            Weekday::Sat | Weekday::Sun => false,
            // Only Saturday or Sunday may follow.
            Weekday::Fri => number + 2 >= last,
            _ => number == last,
        };
        let matches_day = self.days.has(number)
            || number == last && self.days.special & LAST_DAY > 0
            || is_last_workday && self.days.special & LAST_WORKDAY > 0;
        let weekday = date.weekday().num_days_from_sunday();
        let mut nths = nth(number.div_ceil(7), weekday);
        if number + 7 > last {
            nths |= nth(LAST, weekday);
        }
        let matches_weekday = self.weekdays.has(weekday) || self.weekdays.special & nths > 0;
        let matches_days = if self.needs_both_days() {
            matches_day && matches_weekday
        } else {
            matches_day || matches_weekday
        };
        matches_days && self.months.has(date.month())
    }

    /// Returns the matching minutes from the first moment on and before the second.
    pub(super) fn between(
        &self,
        from: NaiveDateTime,
        until: NaiveDateTime,
    ) -> impl DoubleEndedIterator<Item = NaiveDateTime> + '_ {
        self.days_between(from.date(), until.date().succ_opt().unwrap_or(NaiveDate::MAX))
            .flat_map(|date| self.hours.iter().map(move |hour| (date, hour)))
            .flat_map(|(date, hour)| {
                self.minutes.iter().filter_map(move |minute| date.and_hms_opt(hour, minute, 0))
            })
            .filter(move |minute| (from..until).contains(minute))
    }

    /// Returns the number of matching minutes from the first moment on and before the second. Does
    /// not visit each minute, because a year has half a million: counts days, and multiplies.
    pub(super) fn count(&self, from: NaiveDateTime, until: NaiveDateTime) -> u64 {
        // From the start of the first day to the start of the last day.
        let days = self.days_between(from.date(), until.date()).count();
        let on_full_days = days * (self.hours.count() * self.minutes.count()) as usize;
        let since_midnight =
            |end: NaiveDateTime| self.between(end.date().and_time(NaiveTime::MIN), end).count();
        (on_full_days + since_midnight(until)).saturating_sub(since_midnight(from)) as u64
    }

    /// Returns the matching days from `from` on and before `until`.
    fn days_between(
        &self,
        from: NaiveDate,
        until: NaiveDate,
    ) -> impl DoubleEndedIterator<Item = NaiveDate> + '_ {
        let days = (until - from).num_days().max(0);
        (0..days)
            .filter_map(move |days| from.checked_add_signed(TimeDelta::days(days)))
            .filter(|date| self.matches_day(*date))
    }
}

impl Field {
    /// Returns whether the field matches this number.
    pub(super) fn has(self, value: u32) -> bool {
        self.values >> value & 1 == 1
    }

    /// Returns the numbers that the field matches.
    pub(super) fn iter(self) -> impl DoubleEndedIterator<Item = u32> {
        (0..64).filter(move |value| self.has(*value))
    }

    /// Returns how many numbers the field matches.
    pub(super) fn count(self) -> u32 {
        self.values.count_ones()
    }

    /// Returns whether it has the last day of the month, and the last one that is neither Saturday
    /// nor Sunday.
    pub(super) fn last_days(self) -> [bool; 2] {
        [LAST_DAY, LAST_WORKDAY].map(|day| self.special & day > 0)
    }

    /// Returns the weekdays in a month as their place, 6 for the last, and the day, from 0 for
    /// Sunday.
    pub(super) fn nth_weekdays(self) -> impl Iterator<Item = (u32, u32)> {
        let all = (1..=LAST).flat_map(|n| (0..7).map(move |day| (n, day)));
        all.filter(move |(n, day)| self.special & nth(*n, *day) > 0)
    }
}

impl FieldRule {
    /// Reads a field.
    fn parse(&self, text: &str) -> Result<Field, String> {
        let (mut values, mut special) = (0, 0);
        for item in text.split(',') {
            if item.is_empty() {
                return Err(format!(
                    "the {} field is `{text}`, a list with an empty item",
                    self.name
                ));
            }
            match self.special(item)? {
                0 => values |= self.item(item)?,
                found => special |= found,
            }
        }
        if self.is_weekday() {
            // Sunday is 0 and 7: move bit 7 to bit 0.
            values = (values | values >> 7) & 0x7f;
        }
        Ok(Field { values, star: text.starts_with('*'), special })
    }

    /// Reads an item that stands for days which depend on the month; 0: it is another item.
    fn special(&self, item: &str) -> Result<Specials, String> {
        let upper = item.to_ascii_uppercase();
        match (upper.as_str(), upper.strip_suffix('L'), item.split_once('#')) {
            ("L", ..) if self.is_day() => Ok(LAST_DAY),
            ("LW", ..) if self.is_day() => Ok(LAST_WORKDAY),
            (_, Some(day), _) if self.is_weekday() && !day.is_empty() => {
                Ok(nth(LAST, self.value(day)? % 7))
            }
            (_, _, Some((day, n))) if self.is_weekday() => {
                let n = number(n).filter(|n| (1..=5).contains(n)).ok_or_else(|| {
                    let name = self.name;
                    format!("`{item}` in the {name} field is wrong; after # comes 1 to 5")
                })?;
                Ok(nth(n, self.value(day)? % 7))
            }
            _ => Ok(0),
        }
    }

    /// Reads a value, or a range that may have a step, as bits.
    fn item(&self, item: &str) -> Result<u64, String> {
        let name = self.name;
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (item, None),
        };
        let ends = range.split_once('-').filter(|(low, high)| !low.is_empty() && !high.is_empty());
        let (low, high) = match ends {
            None if range == "*" => (self.first, self.last),
            None if range.starts_with("**") && range.trim_start_matches('*').is_empty() => {
                let with_one_star = &item[range.len() - 1..];
                return Err(format!(
                    "`{item}` in the {name} field is wrong; write `{with_one_star}`"
                ));
            }
            None => {
                let value = self.value(if range.is_empty() { item } else { range })?;
                if let Some(step) = step {
                    let with_range = format!("{range}-{}/{step}", self.last);
                    return Err(format!(
                        "`{item}` in the {name} field has a step without a range; write \
                         `{with_range}`"
                    ));
                }
                (value, value)
            }
            Some((low, high)) => match (self.value(low)?, self.value(high)?) {
                // Sunday is also the end of the week: `sat-sun`.
                (low, 0) if self.is_weekday() && low > 0 => (low, 7),
                ends => ends,
            },
        };
        if low > high {
            return Err(format!("`{item}` in the {name} field runs backwards"));
        }
        let step = step.map_or(Some(1), number).filter(|step| *step > 0).ok_or_else(|| {
            let allowed = "it must be a number from 1 on";
            format!("the step of `{item}` in the {name} field is wrong; {allowed}")
        })?;
        // As in cron, a step may exceed its range; then only the first value remains.
        Ok((low..=high).step_by(step as usize).map(|value| 1 << value).sum())
    }

    /// Reads a number or a name.
    fn value(&self, text: &str) -> Result<u32, String> {
        let mut names = self.names.split(' ');
        if let Some(index) = names.position(|name| name.eq_ignore_ascii_case(text)) {
            return Ok(self.first + index as u32);
        }
        // Sunday is 0 and 7.
        let last = if self.is_weekday() { 7 } else { self.last };
        number(text).filter(|number| (self.first..=last).contains(number)).ok_or_else(|| {
            let (name, first) = (self.name, self.first);
            let names = match (self.names.split_once(' '), self.names.rsplit_once(' ')) {
                (Some((first, _)), Some((_, last))) => format!(" or {first} to {last}"),
                _ => String::new(),
            };
            let more = self.more;
            format!(
                "`{text}` in the {name} field is wrong; allowed are {first} to {last}{names}{more}"
            )
        })
    }

    fn is_day(&self) -> bool {
        self.last == 31
    }

    fn is_weekday(&self) -> bool {
        self.last == 6
    }
}

/// Reads a number of digits only, without a sign.
fn number(text: &str) -> Option<u32> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn minutes(field: &str, expected: &[u32]) {
        assert_eq!(MINUTE.parse(field).unwrap().iter().collect::<Vec<_>>(), expected, "{field}");
    }

    #[track_caller]
    fn weekdays(field: &str, expected: &[u32]) {
        assert_eq!(WEEKDAY.parse(field).unwrap().iter().collect::<Vec<_>>(), expected, "{field}");
    }

    #[track_caller]
    fn same(one: &str, other: &str) {
        assert_eq!(
            format!("{:?}", Expression::parse(one)),
            format!("{:?}", Expression::parse(other)),
            "{one}"
        );
    }

    #[track_caller]
    fn refuses(text: &str, why: &str) {
        assert_eq!(Expression::parse(text).unwrap_err(), why);
    }

    #[test]
    fn values_ranges_steps_and_lists_are_read() {
        minutes("5", &[5]);
        minutes("05", &[5]);
        minutes("5,5,3", &[3, 5]);
        minutes("5-8", &[5, 6, 7, 8]);
        minutes("5-9/2", &[5, 7, 9]);
        minutes("*/20", &[0, 20, 40]);
        minutes("*/59", &[0, 59]);
        minutes("*/60", &[0]);
        minutes("*/90", &[0]);
        minutes("7-9/4", &[7]);
        minutes("1-5/6", &[1]);
        minutes("0-10/5,30,58-59", &[0, 5, 10, 30, 58, 59]);
        assert_eq!(MINUTE.parse("*").unwrap().count(), 60);
        assert_eq!(DAY.parse("*").unwrap().count(), 31);
    }

    #[test]
    fn names_are_read_in_any_case_and_sunday_is_0_and_7() {
        weekdays("7", &[0]);
        weekdays("0,7", &[0]);
        weekdays("SUN", &[0]);
        weekdays("mon-Fri", &[1, 2, 3, 4, 5]);
        weekdays("5-7", &[0, 5, 6]);
        weekdays("sat-sun", &[0, 6]);
        weekdays("sun-sun", &[0]);
        weekdays("sun-tue", &[0, 1, 2]);
        weekdays("0-7", &[0, 1, 2, 3, 4, 5, 6]);
        weekdays("1-7/2", &[0, 1, 3, 5]);
        weekdays("*", &[0, 1, 2, 3, 4, 5, 6]);
        weekdays("*/2", &[0, 2, 4, 6]);
        weekdays("*/7", &[0]);
        weekdays("*/8", &[0]);
        same("0 0 1 jan,DEC *", "0 0 1 1,12 *");
    }

    #[test]
    fn an_alias_equals_its_five_fields() {
        same("@hourly", "0 * * * *");
        same("@daily", "0 0 * * *");
        same("@midnight", "0 0 * * *");
        same("@weekly", "0 0 * * 0");
        same("@monthly", "0 0 1 * *");
        same("@yearly", "0 0 1 1 *");
        same("@annually", "0 0 1 1 *");
        same("  5\t4  * * * ", "5 4 * * *");
    }

    #[test]
    fn an_error_names_field_value_and_range() {
        refuses("60 * * * *", "`60` in the minute field is wrong; allowed are 0 to 59");
        refuses("* 24 * * *", "`24` in the hour field is wrong; allowed are 0 to 23");
        let days = "in the day-of-month field is wrong; allowed are 1 to 31, L or LW";
        for item in ["0", "W", "15W", "LL", "1#2"] {
            refuses(&format!("* * {item} * *"), &format!("`{item}` {days}"));
        }
        refuses("* * 1-L * *", &format!("`L` {days}"));
        refuses(
            "* * * 13 *",
            "`13` in the month field is wrong; allowed are 1 to 12 or jan to dec",
        );
        let weekdays = "in the day-of-week field is wrong; allowed are 0 to 7 or sun to sat, also \
                        with #1 to #5 or L";
        for item in ["8", "monday", "L", "LW"] {
            refuses(&format!("* * * * {item}"), &format!("`{item}` {weekdays}"));
        }
        refuses("* * * * 8#1", &format!("`8` {weekdays}"));
        refuses("* * * * #1", &format!("`` {weekdays}"));
        for item in ["1#0", "mon#6", "1#", "1#x", "1#1#1", "1#+1"] {
            let why = "in the day-of-week field is wrong; after # comes 1 to 5";
            refuses(&format!("* * * * {item}"), &format!("`{item}` {why}"));
        }
        refuses("+5 * * * *", "`+5` in the minute field is wrong; allowed are 0 to 59");
        for item in ["-", "-5", "5-", "/5"] {
            let why = "in the minute field is wrong; allowed are 0 to 59";
            refuses(&format!("{item} * * * *"), &format!("`{item}` {why}"));
        }
        refuses("-5/5 * * * *", "`-5` in the minute field is wrong; allowed are 0 to 59");
        refuses(
            "99999999999 * * * *",
            "`99999999999` in the minute field is wrong; allowed are 0 to 59",
        );
        for step in ["0", "", "x", "-1", "+5", "99999999999"] {
            let why = "in the minute field is wrong; it must be a number from 1 on";
            refuses(&format!("*/{step} * * * *"), &format!("the step of `*/{step}` {why}"));
        }
        refuses(
            "5/15 * * * *",
            "`5/15` in the minute field has a step without a range; write `5-59/15`",
        );
        refuses("x/15 * * * *", "`x` in the minute field is wrong; allowed are 0 to 59");
        refuses("**/5 * * * *", "`**/5` in the minute field is wrong; write `*/5`");
        refuses("* ** * * *", "`**` in the hour field is wrong; write `*`");
        refuses("5-1 * * * *", "`5-1` in the minute field runs backwards");
        refuses("5-0 * * * *", "`5-0` in the minute field runs backwards");
        refuses("1,2,,3 * * * *", "the minute field is `1,2,,3`, a list with an empty item");
        refuses("* 1, * * *", "the hour field is `1,`, a list with an empty item");
        for (text, found) in [
            ("", "0 fields"),
            ("5", "1 field"),
            ("* * * *", "4 fields"),
            ("0 * * * * *", "6 fields"),
        ] {
            let five = "write five: minute, hour, day of month, month, day of week";
            refuses(text, &format!("`{text}` has {found}; {five}"));
        }
        for alias in ["@reboot", "@every", "@", "@Daily"] {
            let known = "@hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, \
                         @every 90m";
            refuses(alias, &format!("`{alias}` is not a schedule; write {known} or five fields"));
        }
    }

    #[test]
    fn the_month_decides_about_last_and_nth_days() {
        let days = |text: &str| {
            let expression = Expression::parse(text).unwrap();
            let days = NaiveDate::from_ymd_opt(2026, 1, 1).unwrap().iter_days().take(365);
            let days = days.filter(|date| expression.matches_day(*date));
            days.map(|date| date.format("%m%d").to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            days("0 0 L * *"),
            "0131 0228 0331 0430 0531 0630 0731 0831 0930 1031 1130 1231"
        );
        // January ends on a Saturday, May on a Sunday.
        assert_eq!(
            days("0 0 lw * *"),
            "0130 0227 0331 0430 0529 0630 0731 0831 0930 1030 1130 1231"
        );
        assert_eq!(days("0 0 * 1-3 mon#1"), "0105 0202 0302");
        assert_eq!(days("0 0 * 1-3 1#1,5L"), "0105 0130 0202 0227 0302 0327");
        assert_eq!(days("0 0 * * 4#5"), "0129 0430 0730 1029 1231");
        assert_eq!(days("0 0 * 1,2 7#1,sunL"), "0104 0125 0201 0222");
        assert_eq!(days("0 0 * * 7L"), days("0 0 * * SUNl"));
        // As in cron, one of the two fields is enough, unless one begins with a star.
        assert_eq!(days("0 0 15,L 2 mon#1"), "0202 0215 0228");
        assert_eq!(days("0 0 */2,L 2 6L"), "0228");
    }

    #[test]
    fn days_need_both_fields_if_one_starts_with_a_star_else_either() {
        let matching = |text: &str| {
            let expression = Expression::parse(text).unwrap();
            let march = NaiveDate::from_ymd_opt(2026, 3, 1).unwrap().iter_days().take(31);
            march
                .filter(|date| expression.matches_day(*date))
                .map(|date| date.day())
                .collect::<Vec<_>>()
        };
        assert_eq!(matching("0 0 13 * 5"), [6, 13, 20, 27]);
        assert_eq!(matching("0 0 14 * 5"), [6, 13, 14, 20, 27]);
        assert_eq!(matching("0 0 */2 * 5"), [13, 27]);
        assert_eq!(matching("0 0 13-14 * */5"), [13]);
        assert_eq!(matching("0 0 1-7 * *"), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(matching("0 0 31,* * 5").len(), 31);
        assert_eq!(matching("0 0 *,31 * 5"), [6, 13, 20, 27]);
        assert_eq!(matching("0 0 1 4 *"), [0_u32; 0]);
    }
}
