//! The version that a worker reports: that of jobctl and of its rules for time zones. Pure.

const ZONES_TAG: &str = "+tzdata.";
const UNKNOWN: &str = "unknown";

/// Returns jobctl's version with that of this host's time zones, as `0.1.0+tzdata.2026a`.
pub(crate) fn program_version(zones: Option<&str>) -> String {
    format!("{}{ZONES_TAG}{}", env!("CARGO_PKG_VERSION"), zones.unwrap_or(UNKNOWN))
}

/// Returns whether a worker reported another version of the time zones than this host's. If one of
/// both is unknown, returns false.
pub(crate) fn has_other_zones(reported: &str, zones: Option<&str>) -> bool {
    let reported_zones = reported.split_once(ZONES_TAG).map(|(_, zones)| zones);
    let known = reported_zones.filter(|zones| *zones != UNKNOWN);
    known.zip(zones).is_some_and(|(reported, own)| reported != own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_versions_differ() {
        let (own, other) = (Some("2026a"), Some("2025b"));
        assert_eq!(program_version(own), concat!(env!("CARGO_PKG_VERSION"), "+tzdata.2026a"));
        assert!(has_other_zones(&program_version(other), own));
        assert!(!has_other_zones(&program_version(own), own));
        assert!(!has_other_zones(&program_version(None), own));
        assert!(!has_other_zones(&program_version(own), None));
        assert!(!has_other_zones("0.1.0", own), "it reports no version of rules");
    }
}
