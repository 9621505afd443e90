//! Closed sets of words. Each set is an enum, so a word is checked once, where it is read. Pure.

/// Defines enums whose variants stand for words of a column or an argument, in their order.
macro_rules! words {
    ($(
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+
        }
    )+) => {$(
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[derive(serde::Deserialize, serde::Serialize)]
        $(#[$meta])*
        $vis enum $name {
            $($(#[$variant_meta])* #[serde(rename = $word)] $variant,)+
        }

        /// The first word is the default. `rows!` needs one for each field.
        impl Default for $name {
            fn default() -> Self {
                Self::ALL[0]
            }
        }

        impl $name {
            pub(crate) const WORDS: [&'static str; [$($word),+].len()] = [$($word),+];
            pub(crate) const ALL: [Self; Self::WORDS.len()] = [$(Self::$variant),+];

            /// Returns the variant of a word, if there is one.
            pub(crate) fn of(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|known| known.as_str() == word)
            }

            pub(crate) fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                let known = || format!("must be one of {}", Self::WORDS.join(", "));
                Self::of(word).ok_or_else(known)
            }
        }
    )+};
}
pub(crate) use words;
