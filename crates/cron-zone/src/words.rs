//! A schedule in words. The words are made of the values that the fields match, not of the text, so
//! that every notation is covered.

use super::expression::{Expression, Field};

/// The most times of day that are listed one by one.
const LISTED: u32 = 6;

const MONTHS: &str = "January February March April May June July August September October November \
                      December";
const WEEKDAYS: &str = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday";

/// Returns a sentence: "At 00:00 on day 13 of the month or on Friday (Europe/Berlin time)."
pub(super) fn sentence(expression: &Expression, zone: &str) -> String {
    let (time, day) = (time(expression), day(expression));
    let text = format!("{time} {day}{} ({zone} time).", months(expression.months));
    text[..1].to_uppercase() + &text[1..]
}

/// Returns the times of day: "at 00:00 and 12:00", "every 5 minutes in hour 3".
fn time(expression: &Expression) -> String {
    let (hours, minutes) = (expression.hours, expression.minutes);
    if hours.count() * minutes.count() <= LISTED {
        let times = hours
            .iter()
            .flat_map(|hour| minutes.iter().map(move |minute| format!("{hour:02}:{minute:02}")));
        return format!("at {}", list(&times.collect::<Vec<_>>()));
    }
    let values: Vec<_> = minutes.iter().collect();
    // `preposition` joins the minutes to the hours.
    let (minutes, preposition) = match step(&values) {
        Some(1) if values.len() == 60 => ("every minute".to_owned(), "in"),
        Some(step) if values[0] == 0 && step as usize * values.len() == 60 => {
            (format!("every {step} minutes"), "in")
        }
        _ => (format!("at {}", numbers("minute", &values)), "of"),
    };
    match (hours.count(), preposition) {
        (24, "in") => minutes,
        (24, _) => format!("{minutes} of every hour"),
        _ => {
            let hours = numbers("hour", &hours.iter().collect::<Vec<_>>());
            format!("{minutes} {preposition} {hours}")
        }
    }
}

/// Returns the days: "every day", "on day 13 of the month or on Friday".
fn day(expression: &Expression) -> String {
    let (days, weekdays) = (expression.days, expression.weekdays);
    let (any_day, any_weekday) = (days.count() == 31, weekdays.count() == 7);
    let numbered: Vec<_> = days.iter().collect();
    let mut of_month = Vec::new();
    if !numbered.is_empty() {
        of_month.push(numbers("day", &numbered));
    }
    let [has_last_day, has_last_workday] = days.last_days();
    if has_last_day {
        of_month.push("the last day".to_owned());
    }
    if has_last_workday {
        of_month.push("the last working day".to_owned());
    }
    let days = format!("on {} of the month", list(&of_month));
    // The week begins with Monday here, so that the words are "Saturday and Sunday".
    let in_week: Vec<_> = (0..7).filter(|index| weekdays.has((index + 1) % 7)).collect();
    let nth = |(n, day): (u32, u32)| {
        let place = ["first", "second", "third", "fourth", "fifth", "last"][n as usize - 1];
        format!("the {place} {} of the month", names(&[(day + 6) % 7], WEEKDAYS))
    };
    let mut of_week = Vec::new();
    if !in_week.is_empty() {
        of_week.push(names(&in_week, WEEKDAYS));
    }
    of_week.extend(weekdays.nth_weekdays().map(nth));
    let weekdays = format!("on {}", list(&of_week));
    match (expression.needs_both_days(), any_day, any_weekday) {
        (true, true, true) | (false, true, _) | (false, _, true) => "every day".to_owned(),
        (true, true, false) => weekdays,
        (true, false, true) => days,
        (true, false, false) => format!("{days}, but only {weekdays}"),
        (false, false, false) => format!("{days} or {weekdays}"),
    }
}

/// Returns the months: ", only in May"; empty for all months.
fn months(months: Field) -> String {
    if months.count() == 12 {
        return String::new();
    }
    let indexes: Vec<_> = months.iter().map(|month| month - 1).collect();
    format!(", only in {}", names(&indexes, MONTHS))
}

/// Returns numbers with their unit: "minute 5", "minutes 0, 5 and 10 through 20", "every 7th minute
/// from 0 through 56".
fn numbers(unit: &str, values: &[u32]) -> String {
    match (step(values), values) {
        (_, [value]) => format!("{unit} {value}"),
        (Some(step), [first, _, .., last]) if step > 1 => {
            format!("every {} {unit} from {first} through {last}", ordinal(step))
        }
        _ => format!("{unit}s {}", ranges(values, |value| value.to_string())),
    }
}

/// Returns the names at these places of a list: "May", "Monday through Friday".
fn names(indexes: &[u32], names: &str) -> String {
    let name = |index| names.split(' ').nth(index as usize).unwrap_or_default().to_owned();
    ranges(indexes, name)
}

/// Lists values in the words of `show`. Three or more successive values are "first through last".
fn ranges(values: &[u32], show: impl Fn(u32) -> String) -> String {
    let mut words = Vec::new();
    for row in values.chunk_by(|value, next| value + 1 == *next) {
        match row {
            [first, _, .., last] => {
                words.push(format!("{} through {}", show(*first), show(*last)));
            }
            _ => words.extend(row.iter().map(|value| show(*value))),
        }
    }
    list(&words)
}

/// Returns the distance between all successive values, if it is always the same.
fn step(values: &[u32]) -> Option<u32> {
    let mut steps = values.windows(2).map(|pair| pair[1] - pair[0]);
    let first = steps.next()?;
    steps.all(|step| step == first).then_some(first)
}

/// Returns an ordinal number: "1st", "22nd".
fn ordinal(number: u32) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// Lists items: "a", "a and b", "a, b and c".
fn list(items: &[String]) -> String {
    match items {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => items.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn says(text: &str, words: &str) {
        assert_eq!(
            sentence(&Expression::parse(text).unwrap(), "UTC"),
            format!("{words} (UTC time)."),
            "{text}"
        );
    }

    #[test]
    fn times_are_listed_if_they_are_few() {
        says("0 2 * * *", "At 02:00 every day");
        says("0,30 9,17 * * *", "At 09:00, 09:30, 17:00 and 17:30 every day");
        says("*/15 2 * * *", "At 02:00, 02:15, 02:30 and 02:45 every day");
        says("0 */6 * * *", "At 00:00, 06:00, 12:00 and 18:00 every day");
        says("0 */24 * * *", "At 00:00 every day");
    }

    #[test]
    fn times_are_described_if_they_are_many() {
        says("* * * * *", "Every minute every day");
        says("*/15 * * * *", "Every 15 minutes every day");
        says("0,30 * * * *", "Every 30 minutes every day");
        says("0,20,40 9-11 * * *", "Every 20 minutes in hours 9 through 11 every day");
        says("0-29 * * * *", "At minutes 0 through 29 of every hour every day");
        says("15,45 * * * *", "At minutes 15 and 45 of every hour every day");
        says("*/7 * * * *", "At every 7th minute from 0 through 56 of every hour every day");
        says("*/11 * * * *", "At every 11th minute from 0 through 55 of every hour every day");
        says("*/13 * * * *", "At every 13th minute from 0 through 52 of every hour every day");
        says("*/21 * * * *", "At every 21st minute from 0 through 42 of every hour every day");
        says("*/22 * * * *", "At every 22nd minute from 0 through 44 of every hour every day");
        says("*/23 * * * *", "At every 23rd minute from 0 through 46 of every hour every day");
        says("5-59/15 * * * *", "At every 15th minute from 5 through 50 of every hour every day");
        says("@hourly", "At minute 0 of every hour every day");
        says("*/60 * * * *", "At minute 0 of every hour every day");
        says(
            "0-20/2,50 * * * *",
            "At minutes 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20 and 50 of every hour every day",
        );
        says("* 9-17 * * *", "Every minute in hours 9 through 17 every day");
        says("0 0-20/2 * * *", "At minute 0 of every 2nd hour from 0 through 20 every day");
        says("*/5 22-23,0-1 * * *", "Every 5 minutes in hours 0, 1, 22 and 23 every day");
        says("1-3,5,7-9 4 * * *", "At minutes 1 through 3, 5 and 7 through 9 of hour 4 every day");
    }

    #[test]
    fn days_say_whether_both_fields_must_match() {
        says("0 0 13 * 5", "At 00:00 on day 13 of the month or on Friday");
        says(
            "0 0 */2 * 5",
            "At 00:00 on every 2nd day from 1 through 31 of the month, but only on Friday",
        );
        says(
            "0 0 1-7 * */2",
            "At 00:00 on days 1 through 7 of the month, but only on Tuesday, Thursday, Saturday \
             and Sunday",
        );
        says("0 0 1,15 * *", "At 00:00 on days 1 and 15 of the month");
        says("0 0 * * 1-5", "At 00:00 on Monday through Friday");
        says("0 0 * * sat,sun", "At 00:00 on Saturday and Sunday");
        says("0 0 * * fri-sun", "At 00:00 on Friday through Sunday");
        says("0 0 1,* * 5", "At 00:00 every day");
        says("0 0 *,1 * 5", "At 00:00 on Friday");
        says("0 0 1-31 * 5", "At 00:00 every day");
    }

    #[test]
    fn days_that_the_month_decides_are_named() {
        says("0 0 L * *", "At 00:00 on the last day of the month");
        says("0 0 15,LW * *", "At 00:00 on day 15 and the last working day of the month");
        says("0 0 * * mon#1", "At 00:00 on the first Monday of the month");
        says(
            "0 0 L * 3,5L,sun#5",
            "At 00:00 on the last day of the month or on Wednesday, the fifth Sunday of the month \
             and the last Friday of the month",
        );
    }

    #[test]
    fn months_restrict_days_and_times() {
        says("@yearly", "At 00:00 on day 1 of the month, only in January");
        says(
            "0 0 13 3-5,12 5",
            "At 00:00 on day 13 of the month or on Friday, only in March through May and December",
        );
        says("* * * */3 *", "Every minute every day, only in January, April, July and October");
    }
}
