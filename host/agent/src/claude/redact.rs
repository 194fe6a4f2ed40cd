//! Removes the operator's secrets from texts that are shown: the CLI knows them, and may repeat them in an error.

/// Variables whose values are secret.
const SECRET: &[&str] = &["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"];
/// The length of the shortest secret. A shorter value is a word such as `true`.
const MIN_BYTES: usize = 8;
/// The replacement for a secret.
const SHOWN: &str = "***";

/// Values that must not be shown.
#[derive(Clone)]
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    /// The secret values in the CLI's environment: its login, and the operator's variables, which may be addresses with
    /// a password.
    pub(super) fn of(environment: &[String]) -> Self {
        let names = SECRET.iter().copied().chain(environment.iter().map(String::as_str));
        Self::new(names.filter_map(|name| std::env::var(name).ok()))
    }

    fn new(values: impl Iterator<Item = String>) -> Self {
        let mut values: Vec<String> = values.filter(|value| value.len() >= MIN_BYTES).collect();
        // A value may be a part of another.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self(values)
    }

    /// The text without the secrets.
    pub(super) fn redact(&self, text: String) -> String {
        self.0.iter().fold(text, |text, secret| if text.contains(secret) { text.replace(secret, SHOWN) } else { text })
    }

    /// The bytes of the longest secret. A text that was cut may begin with all but the first byte of it.
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
