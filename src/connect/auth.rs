//! `require_auth`: by which methods the server may ask who we are. A server that can't be trusted asks
//! for the password in clear. Pure.

/// libpq's names for them, and the codes with which a server asks.
const METHODS: [(&str, &[u32]); 7] = [
    ("none", &[0]),
    ("password", &[3]),
    ("md5", &[5]),
    ("gss", &[7]),
    ("sspi", &[9]),
    ("scram-sha-256", &[10]),
    // The driver can't do it.
    ("oauth", &[]),
];

/// The methods that are allowed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Methods(Vec<&'static str>);

impl Methods {
    /// All of them: nothing was said.
    pub(super) fn any() -> Self {
        Self(METHODS.iter().map(|(name, _)| *name).collect())
    }

    /// Reads a list: what is allowed, or, each with a `!`, what is not.
    ///
    /// # Errors
    /// What is wrong with it, then the remedy.
    pub(super) fn read(list: &[&str]) -> Result<Self, (&'static str, String)> {
        let refused = list.iter().filter(|item| item.starts_with('!')).count();
        if refused != 0 && refused != list.len() {
            return Err(("mixes methods with and without `!`", "use one of both".to_owned()));
        }
        let named = |item: &str| METHODS.iter().map(|(name, _)| *name).find(|name| *name == item);
        let items: Option<Vec<_>> = list.iter().map(|item| named(item.strip_prefix('!').unwrap_or(item))).collect();
        let Some(items) = items else {
            let names = METHODS.map(|(name, _)| name).join(", ");
            return Err(("has an unknown method", format!("allowed are {names}")));
        };
        if refused == 0 {
            return Ok(Self(items));
        }
        Ok(Self(Self::any().0.into_iter().filter(|name| !items.contains(name)).collect()))
    }

    /// Whether the server may ask with this code.
    ///
    /// # Errors
    /// The name of the method that it may not ask for.
    pub(super) fn allow(&self, code: u32) -> Result<(), &'static str> {
        match METHODS.iter().find(|(_, codes)| codes.contains(&code)) {
            Some((name, _)) if !self.0.contains(name) => Err(name),
            // The driver refuses what it does not know.
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_says_what_is_allowed_or_what_is_not() {
        let allows = |list: &[&str]| {
            let methods = Methods::read(list).expect("a list");
            [0, 3, 5, 7, 9, 10].map(|code| methods.allow(code).is_ok())
        };
        assert_eq!(allows(&["scram-sha-256"]), [false, false, false, false, false, true]);
        assert_eq!(allows(&["!password", "!md5", "!none"]), [false, false, false, true, true, true]);
        assert_eq!(Methods::any().allow(0), Ok(()));
        assert_eq!(Methods::read(&["md5"]).expect("a list").allow(3), Err("password"));
        assert!(Methods::read(&["md5", "!none"]).is_err());
        assert!(Methods::read(&["scram"]).is_err());
    }
}
