//! Model providers: the name, the address, the key and the models of each, and where requests to it go.

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

/// The facts about a provider, besides its protocol and its prices.
#[derive(Debug)]
pub struct ProviderFacts {
    /// The value of `api.provider` that chooses it.
    pub name: &'static str,
    /// The base URL, as the provider's own tools take it.
    pub base_url: &'static str,
    /// The environment variable in which the provider's own tools look for the key; `None` where it needs no key.
    pub key: Option<&'static str>,
    /// The beginning of the names of its own models, among the models that have a list price.
    pub models: Option<&'static str>,
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
            },
            Self::OpenAi => ProviderFacts {
                name: "openai",
                base_url: "https://api.openai.com/v1",
                key: Some("OPENAI_API_KEY"),
                models: Some("gpt-"),
            },
            Self::Gemini => ProviderFacts {
                name: "gemini",
                base_url: "https://generativelanguage.googleapis.com/v1beta",
                key: Some("GEMINI_API_KEY"),
                models: Some("gemini-"),
            },
            Self::Ollama => {
                ProviderFacts { name: "ollama", base_url: "http://localhost:11434", key: None, models: None }
            }
        }
    }

    /// The provider of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.facts().name == name)
    }
}

/// Where requests go, and with which key.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The protocol.
    pub provider: Provider,
    /// The base URL.
    pub base: Url,
    /// Where the key is; `None` where none is sent.
    pub key_source: Option<KeySource>,
}

impl Endpoint {
    /// The endpoint at a base URL, as the provider's own tools take it. Without a key, the key is in the provider's usual
    /// variable at the provider's own address, and no key is sent to another address.
    ///
    /// # Errors
    /// A base URL that is none, or one to which the key would travel unencrypted; the sentence names the setting.
    pub fn new(provider: Provider, base: Option<&str>, key: Option<KeySource>) -> Result<Self, String> {
        let text = base.unwrap_or(provider.facts().base_url).trim_end_matches('/');
        let url = Url::parse(text).map_err(|e| format!("api.base_url {text:?} is no URL: {e}"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(format!("api.base_url {text:?} must begin with http:// or https:// and name a host"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("api.base_url must not have a user or a password in it: set key_env or key_file".to_owned());
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(format!("api.base_url {text:?} must end with its path"));
        }
        let usual_key = || provider.facts().key.map(|name| KeySource::Env(name.to_owned()));
        let key = key.or_else(|| base.is_none().then(usual_key).flatten());
        if key.is_some() && !may_carry_key(url.scheme(), url.host_str().unwrap_or_default()) {
            return Err(format!("api.base_url {text:?}: the key would travel unencrypted; use https"));
        }
        Ok(Self { provider, base: url, key_source: key })
    }

    /// Reads the key, where one is sent.
    ///
    /// # Errors
    /// A sentence that says what to set.
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
