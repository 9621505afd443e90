//! A schedule in words. They are made from what the fields match, not from how they are written, so
//! that no form of writing can be left out.

use super::expression::{DayRule, Expression, Field};

/// So many times of day are listed; more are described.
const LISTED: u32 = 6;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// "At 00:00 on day 13 of the month or on Friday (Europe/Berlin time)."
pub(super) fn sentence(expression: &Expression, zone: &str) -> String {
    let text = format!("{} {}{} ({zone} time).", time(expression), day(expression), months(expression.months));
    text[..1].to_uppercase() + &text[1..]
}

fn time(expression: &Expression) -> String {
    let (hours, minutes) = (expression.hours, expression.minutes);
    if hours.count() * minutes.count() <= LISTED {
        let times = hours.iter().flat_map(|hour| minutes.iter().map(move |minute| format!("{hour:02}:{minute:02}")));
        return format!("at {}", list(&times.collect::<Vec<_>>()));
    }
    let all_hours = hours.count() == 24;
    let values: Vec<_> = minutes.iter().collect();
    let every = match step(&values) {
        Some(1) if values.len() == 60 => Some("every minute".to_owned()),
        Some(step) if values[0] == 0 && step > 1 && step as usize * values.len() == 60 => {
            Some(format!("every {step} minutes"))
        }
        _ => None,
    };
    match every {
        Some(every) if all_hours => every,
        Some(every) => format!("{every} in {}", numbers("hour", &hours.iter().collect::<Vec<_>>())),
        None if all_hours => format!("at {} of every hour", numbers("minute", &values)),
        None => format!("at {} of {}", numbers("minute", &values), numbers("hour", &hours.iter().collect::<Vec<_>>())),
    }
}

fn day(expression: &Expression) -> String {
    let any_day = expression.days.count() == 31;
    let any_weekday = expression.weekdays.count() == 7;
    let days = || format!("on {}", numbers("day", &expression.days.iter().collect::<Vec<_>>()));
    // Monday first, as in "Saturday and Sunday".
    let weekdays = || {
        let days = WEEKDAYS.iter().enumerate().filter(|(index, _)| expression.weekdays.has((*index as u32 + 1) % 7));
        format!("on {}", names(&days.map(|(index, _)| index).collect::<Vec<_>>(), &WEEKDAYS))
    };
    match expression.day_rule() {
        DayRule::Both if any_day && any_weekday => "every day".to_owned(),
        DayRule::Both if any_day => weekdays(),
        DayRule::Both if any_weekday => format!("{} of the month", days()),
        DayRule::Both => format!("{} of the month, but only {}", days(), weekdays()),
        DayRule::Either if any_day || any_weekday => "every day".to_owned(),
        DayRule::Either => format!("{} of the month or {}", days(), weekdays()),
    }
}

fn months(months: Field) -> String {
    if months.count() == 12 {
        return String::new();
    }
    format!(", only in {}", names(&months.iter().map(|month| month as usize - 1).collect::<Vec<_>>(), &MONTHS))
}

/// "minute 5", "minutes 0, 5 and 10 through 20", "every 7th minute from 0 through 56".
fn numbers(unit: &str, values: &[u32]) -> String {
    match (step(values), values) {
        (_, [value]) => format!("{unit} {value}"),
        (Some(step), [first, _, .., last]) if step > 1 && values.len() > 2 => {
            format!("every {} {unit} from {first} through {last}", ordinal(step))
        }
        _ => {
            let runs = runs(values.iter().map(|value| *value as usize));
            let words = runs.iter().map(|(first, last)| run(&first.to_string(), &last.to_string()));
            format!("{unit}s {}", list(&words.collect::<Vec<_>>()))
        }
    }
}

fn names(indexes: &[usize], names: &[&str]) -> String {
    let runs = runs(indexes.iter().copied());
    list(&runs.iter().map(|(first, last)| run(names[*first], names[*last])).collect::<Vec<_>>())
}

fn run(first: &str, last: &str) -> String {
    if first == last { first.to_owned() } else { format!("{first} through {last}") }
}

/// Three and more in a row as first and last, others twice the same.
fn runs(values: impl Iterator<Item = usize>) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for value in values {
        match runs.last_mut() {
            Some(run) if run.1 + 1 == value => run.1 = value,
            _ => runs.push((value, value)),
        }
    }
    let pairs = runs.into_iter().flat_map(|(first, last)| match last - first {
        1 => vec![(first, first), (last, last)],
        _ => vec![(first, last)],
    });
    pairs.collect()
}

/// The distance between all neighbours, if it is one.
fn step(values: &[u32]) -> Option<u32> {
    let mut steps = values.windows(2).map(|pair| pair[1] - pair[0]);
    let first = steps.next()?;
    steps.all(|step| step == first).then_some(first)
}

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

/// "a", "a and b", "a, b and c".
fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [item] => item.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn says(text: &str, words: &str) {
        assert_eq!(sentence(&Expression::parse(text).unwrap(), "UTC"), format!("{words} (UTC time)."), "{text}");
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
        says("15,45 * * * *", "At minutes 15 and 45 of every hour every day");
        says("*/7 * * * *", "At every 7th minute from 0 through 56 of every hour every day");
        says("5-59/15 * * * *", "At every 15th minute from 5 through 50 of every hour every day");
        says("@hourly", "At minute 0 of every hour every day");
        says("*/60 * * * *", "At minute 0 of every hour every day");
        says("0-20/2,50 * * * *", "At minutes 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20 and 50 of every hour every day");
        says("* 9-17 * * *", "Every minute in hours 9 through 17 every day");
        says("0 0-20/2 * * *", "At minute 0 of every 2nd hour from 0 through 20 every day");
        says("*/5 22-23,0-1 * * *", "Every 5 minutes in hours 0, 1, 22 and 23 every day");
        says("1-3,5,7-9 4 * * *", "At minutes 1 through 3, 5 and 7 through 9 of hour 4 every day");
    }

    #[test]
    fn days_say_whether_one_field_is_enough() {
        says("0 0 13 * 5", "At 00:00 on day 13 of the month or on Friday");
        says("0 0 */2 * 5", "At 00:00 on every 2nd day from 1 through 31 of the month, but only on Friday");
        says(
            "0 0 1-7 * */2",
            "At 00:00 on days 1 through 7 of the month, but only on Tuesday, Thursday, Saturday and Sunday",
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
    fn months_restrict_all_the_rest() {
        says("@yearly", "At 00:00 on day 1 of the month, only in January");
        says("0 0 13 3-5,12 5", "At 00:00 on day 13 of the month or on Friday, only in March through May and December");
        says("* * * */3 *", "Every minute every day, only in January, April, July and October");
    }
}
