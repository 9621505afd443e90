//! What somebody who misspelt a word may have meant. Pure.

/// The candidate nearest to `word`, if one is near: a third of its letters may be wrong, at least two.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A word that is more than twice as long is no misspelling, and names in a table may have a
    // megabyte.
    let candidates = candidates.into_iter().filter(|candidate| word.len() <= 2 * candidate.len() + 2);
    let word = word.to_lowercase();
    candidates
        .map(|candidate| (strsim::osa_distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(2) && *distance < candidate.len())
        .min()
        .map(|(_, candidate)| candidate)
}

/// `; did you mean ...?`, or nothing.
pub(crate) fn suggestion<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, candidates).map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_word_is_suggested_and_a_far_one_is_not() {
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
