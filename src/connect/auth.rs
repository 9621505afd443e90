//! `require_auth`: which authentication methods the server may use. A false server would ask for
//! the password in plain text. Pure.

/// libpq's names of the methods, and the protocol's codes for them.
const METHODS: [(&str, &[u32]); 7] = [
    ("none", &[0]),
    ("password", &[3]),
    ("md5", &[5]),
    ("gss", &[7]),
    ("sspi", &[9]),
    ("scram-sha-256", &[10]),
    // The driver does not support these.
    ("oauth", &[]),
];

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Methods(Vec<&'static str>);

impl Methods {
    /// All methods, if `require_auth` is not set.
    pub(super) fn any() -> Self {
        Self(METHODS.iter().map(|(name, _)| *name).collect())
    }

    /// Reads a list of allowed methods, or of forbidden methods with a `!` each.
    ///
    /// # Errors
    /// The cause, then the remedy.
    pub(super) fn read(list: &[&str]) -> Result<Self, (&'static str, String)> {
        let refused = list.iter().filter(|item| item.starts_with('!')).count();
        if refused != 0 && refused != list.len() {
            return Err(("mixes methods with and without `!`", "use one of the two forms".to_owned()));
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

    /// Checks the code of an authentication request.
    ///
    /// # Errors
    /// The name of the forbidden method.
    pub(super) fn allow(&self, code: u32) -> Result<(), &'static str> {
        match METHODS.iter().find(|(_, codes)| codes.contains(&code)) {
            Some((name, _)) if !self.0.contains(name) => Err(name),
            // The driver rejects unknown codes.
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_allowed_or_forbidden_methods() {
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
