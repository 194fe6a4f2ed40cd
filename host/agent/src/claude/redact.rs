//! Removes the operator's secrets from texts that are shown: the CLI knows them, and may repeat them in an error.

/// Variables whose values are secret.
const SECRET: &[&str] = &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"];
/// A value that is shorter is a word such as `true`, and no secret.
const MIN_BYTES: usize = 8;
/// The replacement for a secret.
const SHOWN: &str = "***";

/// Values that must not be shown.
#[derive(Clone)]
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    /// The values that the CLI is given: of its login, and of the variables that the operator names, which may be an
    /// address with a password in it.
    pub(super) fn of(environment: &[String]) -> Self {
        let names = SECRET.iter().copied().chain(environment.iter().map(String::as_str));
        Self::new(names.filter_map(|name| std::env::var(name).ok()))
    }

    fn new(values: impl Iterator<Item = String>) -> Self {
        let mut values: Vec<String> = values.filter(|value| value.len() >= MIN_BYTES).collect();
        // One may be a part of another.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self(values)
    }

    /// The text without them.
    pub(super) fn redact(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| if text.contains(secret) { text.replace(secret, SHOWN) } else { text })
    }

    /// How many bytes the longest has: a text that is cut may begin with so much less one of it.
    pub(super) fn longest(&self) -> usize {
        self.0.first().map_or(0, String::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_of_the_longest_secret_is_removed_and_short_values_remain() {
        let secrets = Secrets::new(["sentinel-1", "sentinel-1-and-more", "true"].map(str::to_owned).into_iter());
        let shown = secrets.redact("true: sentinel-1-and-more sentinel-1".to_owned());
        assert_eq!(shown, "true: *** ***");
    }
}
