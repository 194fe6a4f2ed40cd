//! Lists the model providers, each with its name, address, key, models and prices.

use guild_contract::secret::{Secret, may_carry_key};
use url::Url;

use crate::key_source::KeySource;

/// A protocol that model providers speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// Anthropic's Messages API.
    Anthropic,
    /// OpenAI's chat completions, which vLLM, llama.cpp and many others speak too.
    OpenAi,
    /// Google's Gemini API.
    Gemini,
    /// Ollama's own chat.
    Ollama,
}

/// A list price: the model, the tokens of input above which the price applies, and US dollars per million tokens of
/// input, of cached input, of input written to the cache, and of output.
pub(crate) type ListPrice = (&'static str, u64, f64, f64, f64, f64);

/// The facts about a provider, besides its protocol.
#[derive(Debug)]
pub struct ProviderFacts {
    /// The value of `api.provider` that selects the provider.
    pub name: &'static str,
    /// The base URL, in the form that the provider's own tools take.
    pub base_url: &'static str,
    /// The environment variable in which the provider's own tools look for the key; `None` if the provider needs no
    /// key.
    pub key: Option<&'static str>,
    /// The prefix of the names of the provider's own models, among the models that have a list price.
    pub models: Option<&'static str>,
    /// The list prices of models that are used with tools, from the provider's pages or reports about them in November
    /// 2026. Prices that could not be confirmed are left out. Requests never ask for services with extra charges, such
    /// as priority or a cache that lives for an hour.
    pub(crate) prices: &'static [ListPrice],
}

impl Provider {
    /// All providers.
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::OpenAi, Self::Gemini, Self::Ollama];

    /// The facts about this provider.
    pub const fn facts(self) -> ProviderFacts {
        match self {
            Self::Anthropic => ProviderFacts {
                name: "anthropic",
                base_url: "https://api.anthropic.com",
                key: Some("ANTHROPIC_API_KEY"),
                models: Some("claude-"),
                prices: &[
                    ("claude-fable-5-1", 0, 10.0, 0.25, 12.5, 50.0),
                    ("claude-fable-5", 0, 10.0, 1.0, 12.5, 50.0),
                    ("claude-opus-5-5", 0, 4.0, 0.2, 5.0, 20.0),
                    ("claude-opus-5", 0, 5.0, 0.5, 6.25, 25.0),
                    ("claude-opus-4-8", 0, 5.0, 0.5, 6.25, 25.0),
                    ("claude-opus-4-7", 0, 5.0, 0.5, 6.25, 25.0),
                    ("claude-opus-4-6", 0, 5.0, 0.5, 6.25, 25.0),
                    ("claude-opus-4-5", 0, 5.0, 0.5, 6.25, 25.0),
                    ("claude-opus-4-1", 0, 15.0, 1.5, 18.75, 75.0),
                    ("claude-sonnet-5-5", 0, 2.0, 0.1, 2.5, 10.0),
                    ("claude-sonnet-5", 0, 2.0, 0.2, 2.5, 10.0),
                    ("claude-sonnet-4-6", 0, 3.0, 0.3, 3.75, 15.0),
                    ("claude-sonnet-4-5", 0, 3.0, 0.3, 3.75, 15.0),
                    ("claude-haiku-5-5", 0, 0.1, 0.01, 0.125, 0.5),
                    ("claude-haiku-5-5", 100_000, 0.5, 0.05, 0.625, 2.5),
                    ("claude-haiku-4-5", 0, 1.0, 0.1, 1.25, 5.0),
                ],
            },
            Self::OpenAi => ProviderFacts {
                name: "openai",
                base_url: "https://api.openai.com/v1",
                key: Some("OPENAI_API_KEY"),
                models: Some("gpt-"),
                prices: &[
                    ("gpt-5.4", 0, 2.5, 0.25, 2.5, 15.0),
                    ("gpt-5.4", 272_000, 5.0, 0.5, 5.0, 22.5),
                    ("gpt-5.2", 0, 1.75, 0.175, 1.75, 14.0),
                    ("gpt-5.1", 0, 1.25, 0.125, 1.25, 10.0),
                    ("gpt-5", 0, 1.25, 0.125, 1.25, 10.0),
                    ("gpt-5-mini", 0, 0.25, 0.025, 0.25, 2.0),
                    ("gpt-5-nano", 0, 0.05, 0.005, 0.05, 0.4),
                    ("gpt-4.1", 0, 2.0, 0.5, 2.0, 8.0),
                    ("gpt-4.1-mini", 0, 0.4, 0.1, 0.4, 1.6),
                    // This version costs more than later ones, and has no discount for cached input.
                    ("gpt-4o-2024-05-13", 0, 5.0, 5.0, 5.0, 15.0),
                    ("gpt-4o", 0, 2.5, 1.25, 2.5, 10.0),
                    ("gpt-4o-mini", 0, 0.15, 0.075, 0.15, 0.6),
                ],
            },
            Self::Gemini => ProviderFacts {
                name: "gemini",
                base_url: "https://generativelanguage.googleapis.com/v1beta",
                key: Some("GEMINI_API_KEY"),
                models: Some("gemini-"),
                prices: &[
                    ("gemini-2.5-pro", 0, 1.25, 0.125, 1.25, 10.0),
                    ("gemini-2.5-pro", 200_000, 2.5, 0.25, 2.5, 15.0),
                    ("gemini-2.5-flash", 0, 0.3, 0.03, 0.3, 2.5),
                ],
            },
            Self::Ollama => ProviderFacts {
                name: "ollama",
                base_url: "http://localhost:11434",
                key: None,
                models: None,
                prices: &[],
            },
        }
    }

    /// The provider of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.facts().name == name)
    }
}

/// The address of a provider, and the source of its key.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The protocol.
    pub provider: Provider,
    /// The base URL.
    pub base: Url,
    /// The source of the key; `None` if no key is sent.
    pub key_source: Option<KeySource>,
}

impl Endpoint {
    /// Makes the endpoint at a base URL, in the form that the provider's own tools take. If no `key` is given, the
    /// provider's own address gets the key in the provider's usual variable, and any other address gets no key.
    ///
    /// # Errors
    ///
    /// Returns an error that names the setting when the base URL is invalid, or when the key would travel to it
    /// unencrypted.
    pub fn new(provider: Provider, base: Option<&str>, key: Option<KeySource>) -> Result<Self, String> {
        let text = base.unwrap_or(provider.facts().base_url).trim_end_matches('/');
        let url = Url::parse(text).map_err(|e| format!("api.base_url {text:?} is not a URL: {e}"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(format!("api.base_url {text:?} must begin with http:// or https:// and name a host"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("api.base_url must not have a user or a password in it: set key_env or key_file".to_owned());
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(format!("api.base_url {text:?} must not have a query or a fragment"));
        }
        let usual_key = || provider.facts().key.map(|name| KeySource::Env(name.to_owned()));
        let key = key.or_else(|| base.is_none().then(usual_key).flatten());
        if key.is_some() && !may_carry_key(url.scheme(), url.host_str().unwrap_or_default()) {
            return Err(format!("api.base_url {text:?}: the key would travel unencrypted; use https"));
        }
        Ok(Self { provider, base: url, key_source: key })
    }

    /// Reads the key, if one is sent.
    ///
    /// # Errors
    ///
    /// Returns a sentence with the setting to change.
    pub fn key(&self) -> Result<Option<Secret>, String> {
        let read = |source: &KeySource| {
            source.read().map_err(|e| {
                format!(
                    "{e}; or name another variable as `key_env`, or a file as `key_file`, under [api] in guild.toml"
                )
            })
        };
        self.key_source.as_ref().map(read).transpose()
    }

    /// The place of the key, for an error text.
    pub fn key_named(&self) -> Option<String> {
        self.key_source.as_ref().map(ToString::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_that_is_none_is_refused_without_quoting_a_password() {
        for base in ["api.example.com", "ftp://h", "http://", "http://h/?x=1"] {
            assert!(Endpoint::new(Provider::OpenAi, Some(base), None).unwrap_err().contains("api.base_url"), "{base}");
        }
        let with_password = Endpoint::new(Provider::OpenAi, Some("https://me:hunter2@h"), None).unwrap_err();
        assert!(with_password.contains("key_env") && !with_password.contains("hunter2"), "{with_password}");
    }

    #[test]
    fn a_key_goes_over_https_or_stays_on_this_machine() {
        let with_key = |base| Endpoint::new(Provider::OpenAi, Some(base), Some(KeySource::Env("KEY".to_owned())));
        for base in ["http://h:8000/v1", "http://192.168.1.5/v1", "http://localhost.example.com", "http://[fe80::1]"] {
            let refused = with_key(base).unwrap_err();
            assert!(
                refused.contains(base) && refused.contains("unencrypted") && refused.contains("https"),
                "{refused}"
            );
            assert!(Endpoint::new(Provider::OpenAi, Some(base), None).is_ok(), "{base} without a key");
        }
        for base in ["https://h/v1", "http://localhost:8000/v1", "http://127.0.0.2:8000", "http://[::1]:8000/v1"] {
            assert!(with_key(base).is_ok(), "{base}");
        }
    }

    #[test]
    fn the_usual_key_is_only_for_the_providers_own_address() {
        let at = |base| Endpoint::new(Provider::OpenAi, base, None).unwrap().key_named();
        assert_eq!(at(None).unwrap(), "the environment variable OPENAI_API_KEY");
        assert_eq!(at(Some("http://localhost:8000/v1")), None);
    }
}
