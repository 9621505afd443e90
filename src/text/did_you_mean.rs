//! Suggestions for misspelt words. Pure.

/// Returns the candidate nearest to `word`, if one is near: a third of its letters may differ, or
/// two of a short one.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // A misspelling is never twice as long, and names in a table may have a megabyte.
    let candidates =
        candidates.into_iter().filter(|candidate| word.len() <= 2 * candidate.len() + 2);
    let word = word.to_lowercase();
    candidates
        .map(|candidate| (strsim::osa_distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| {
            *distance <= (candidate.len() / 3).max(2) && *distance < candidate.len()
        })
        .min()
        .map(|(_, candidate)| candidate)
}

/// Returns `; did you mean ...?`, or nothing.
pub(crate) fn suggestion<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, candidates).map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_similar_word_is_suggested_and_other_words_are_not() {
        let words = ["schedule", "shell", "http"];
        assert_eq!(nearest("shedule", words), Some("schedule"));
        assert_eq!(nearest("Shel", words), Some("shell"));
        assert_eq!(nearest("htpt", words), Some("http"));
        assert_eq!(nearest("payload", words), None);
    }

    #[test]
    fn a_word_of_a_megabyte_is_not_compared() {
        let word = "x".repeat(1 << 20);
        assert_eq!(nearest(&word, std::iter::repeat_n("a_name_of_some_length", 10_000)), None);
    }
}
