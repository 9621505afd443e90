//! Statements: the text of a query file, and arguments whose names the compiler compares with it.

use super::row::Argument;

/// The text of a query file.
macro_rules! text {
    ($file:literal) => {
        include_str!(concat!("../../sql/queries/", $file, ".sql"))
    };
}
pub(super) use text;

/// A statement and its arguments.
#[derive(Clone, Copy)]
pub(super) struct Statement<'a> {
    pub(super) text: &'a str,
    pub(super) arguments: &'a [&'a dyn Argument],
}

/// The statement of a query file with arguments: `query!("tick/last_user"; worker = self.name)`.
/// Names that differ from those in the file's head, or have another order, do not compile.
macro_rules! query {
    ($file:literal $(; $($name:ident $(= $value:expr)?),+ $(,)?)?) => {
        $crate::store::statement::Statement {
            text: $crate::store::statement::checked!($file $(; $($name),+)?),
            arguments: &[$($(
                &$crate::store::statement::argument!($name $(= $value)?)
                    as &dyn $crate::store::row::Argument
            ),+)?],
        }
    };
}
pub(super) use query;

/// The value of an argument of `query!`: the given one, or the variable with the argument's name.
macro_rules! argument {
    ($name:ident) => {
        $name
    };
    ($name:ident = $value:expr) => {
        $value
    };
}
pub(super) use argument;

/// The text of a query file, whose head must name these parameters.
macro_rules! checked {
    ($file:literal $(; $($name:ident),+)?) => {
        const {
            let text = $crate::store::statement::text!($file);
            let names: &[&str] = &[$($(stringify!($name)),+)?];
            assert!($crate::store::statement::has_parameters(text, names), $file);
            text
        }
    };
}
pub(super) use checked;

/// Returns whether the first mentions of `$1`, `$2` and so on in the comment at the top of a
/// statement are followed by these names, and no other parameter is there.
pub(super) const fn has_parameters(text: &str, names: &[&str]) -> bool {
    let text = text.as_bytes();
    // The place in the text, and how many parameters were found before it.
    let (mut at, mut found) = (0, 0);
    // Each line of the comment begins with two hyphens.
    while at + 1 < text.len() && text[at] == b'-' && text[at + 1] == b'-' {
        while at < text.len() && text[at] != b'\n' {
            if text[at] == b'$' {
                let mut number = 0;
                while at + 1 < text.len() && text[at + 1].is_ascii_digit() {
                    at += 1;
                    number = number * 10 + (text[at] - b'0') as usize;
                }
                // A smaller number is another mention of an earlier parameter.
                if number == found + 1 {
                    while at + 1 < text.len() && text[at + 1] == b' ' {
                        at += 1;
                    }
                    if found == names.len() || !has_word(text, at + 1, names[found].as_bytes()) {
                        return false;
                    }
                    found += 1;
                }
            }
            at += 1;
        }
        // Skip the line break.
        at += 1;
    }
    found == names.len()
}

/// Returns whether this whole word is at this place of the text.
const fn has_word(text: &[u8], at: usize, word: &[u8]) -> bool {
    let mut index = 0;
    while index < word.len() {
        if at + index >= text.len() || text[at + index] != word[index] {
            return false;
        }
        index += 1;
    }
    let after = at + word.len();
    after >= text.len() || !(text[after].is_ascii_alphanumeric() || text[after] == b'_')
}

#[cfg(test)]
mod tests {
    use super::has_parameters;

    #[test]
    fn the_head_has_the_names_of_parameters_in_their_order() {
        let head = "-- Like $2.\n-- $1  first    $2 second, NULL for all\n-- $10 has none\nnot $3";
        assert!(has_parameters(head, &["first", "second"]));
        for wrong in
            [&["second", "first"][..], &["first"], &["first", "second_one"], &["first", "seco"]]
        {
            assert!(!has_parameters(head, wrong), "{wrong:?}");
        }
        assert!(!has_parameters(head, &["first", "second", "third"]));
        assert!(has_parameters("no head: $1", &[]));
        assert!(!has_parameters("-- $1  first", &[]));
    }
}
