//! Numbers with their nouns, and lists of names. Pure.

/// Returns a number with its noun: `1 run`, `2 runs`.
pub(crate) fn of(number: i64, noun: &str) -> String {
    format!("{number} {}", inflected(number, noun))
}

/// Returns a number in groups of three digits with its noun: `1 run`, `12,345 runs`.
pub(crate) fn grouped_of(number: i64, noun: &str) -> String {
    format!("{} {}", grouped(number), inflected(number, noun))
}

/// Returns a number in groups of three digits: `12,345`.
pub(crate) fn grouped(number: i64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Lists the first `shown` names and the number of the others: `a, b and 3 more`.
pub(crate) fn listed(names: &[impl AsRef<str>], shown: usize) -> String {
    joined(names, shown, ", ")
}

/// Lists names as `listed` does, with this separator.
pub(crate) fn joined(names: &[impl AsRef<str>], shown: usize, separator: &str) -> String {
    let first = names.iter().take(shown).map(AsRef::as_ref).collect::<Vec<_>>().join(separator);
    match names.len().saturating_sub(shown) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Returns the singular or the plural of a noun.
fn inflected(number: i64, noun: &str) -> String {
    if number == 1 { noun.to_owned() } else { format!("{noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_shows_the_first_names_and_the_number_of_the_others() {
        assert_eq!(listed(&["a"], 3), "a");
        assert_eq!(listed(&["a", "b", "c"], 3), "a, b, c");
        assert_eq!(listed(&["a", "b", "c", "d", "e"], 3), "a, b, c and 2 more");
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn the_number_one_takes_the_singular() {
        assert_eq!([of(0, "run"), of(1, "run"), of(2000, "run")], ["0 runs", "1 run", "2000 runs"]);
        assert_eq!(
            [0, 1, 2000].map(|number| grouped_of(number, "run")),
            ["0 runs", "1 run", "2,000 runs"]
        );
    }
}
