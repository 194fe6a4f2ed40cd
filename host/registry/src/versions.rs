//! Tags that are versions.

use semver::Version;

/// The tag of the newest version, if it is newer than `than`, which has to be a version too. Pre-releases count only
/// after another pre-release.
pub(crate) fn newest<'a>(tags: impl IntoIterator<Item = &'a str>, than: Option<&str>) -> Option<&'a str> {
    let than = match than {
        Some(than) => Some(version(than)?),
        None => None,
    };
    let wants_pre = than.as_ref().is_some_and(|than| !than.pre.is_empty());
    let versions = tags.into_iter().filter_map(|tag| Some((version(tag)?, tag)));
    let newest = versions.filter(|(version, _)| wants_pre || version.pre.is_empty()).max()?;
    than.is_none_or(|than| newest.0.cmp_precedence(&than).is_gt()).then_some(newest.1)
}

/// The version that a tag names.
pub(crate) fn version(tag: &str) -> Option<Version> {
    Version::parse(tag.strip_prefix('v').unwrap_or(tag)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_the_highest_one_that_is_released() {
        let tags = ["latest", "0.9.0", "v0.10.0", "1.0.0-rc.1", "0.2.0"];
        assert_eq!(newest(tags, None), Some("v0.10.0"));
        assert_eq!(newest(tags, Some("0.9.0")), Some("v0.10.0"));
        assert_eq!(newest(tags, Some("0.10.0")), None);
        assert_eq!(newest(tags, Some("1.0.0-alpha")), Some("1.0.0-rc.1"));
        assert_eq!(newest(["latest", "1"], None), None);
        assert_eq!(newest(tags, Some("latest")), None);
    }
}
