//! The providers: the address of each, how it takes the key, and how its protocol differs.

use guild_contract::secret::{Secret, may_carry_key};
use guild_session::secret::KeySource;
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};

/// A protocol that model providers speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// Anthropic's Messages API. Base URL: `https://api.anthropic.com`.
    Anthropic,
    /// OpenAI's chat completions, which vLLM, llama.cpp and many others speak too. Base URL:
    /// `https://api.openai.com/v1`.
    OpenAi,
    /// Google's Gemini API. Base URL: `https://generativelanguage.googleapis.com/v1beta`.
    Gemini,
    /// Ollama's own chat. Base URL: `http://localhost:11434`.
    Ollama,
}

impl Provider {
    /// The names by which `api.provider` chooses one.
    pub const NAMES: [(&'static str, Self); 4] =
        [("anthropic", Self::Anthropic), ("openai", Self::OpenAi), ("gemini", Self::Gemini), ("ollama", Self::Ollama)];

    /// The provider of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMES.into_iter().find_map(|(known, provider)| (known == name).then_some(provider))
    }

    /// The default source of its key, which its own tools use too. Ollama needs no key.
    fn usual_key(self) -> Option<KeySource> {
        let name = match self {
            Self::Anthropic => "ANTHROPIC_API_KEY",
            Self::OpenAi => "OPENAI_API_KEY",
            Self::Gemini => "GEMINI_API_KEY",
            Self::Ollama => return None,
        };
        Some(KeySource::Env(name.to_owned()))
    }

    /// How the names of its own models begin, among those that have a list price.
    pub(crate) fn models(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("claude-"),
            Self::OpenAi => Some("gpt-"),
            Self::Gemini => Some("gemini-"),
            Self::Ollama => None,
        }
    }

    /// The name by which `api.provider` chooses it.
    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.into_iter().find_map(|(name, known)| (known == self).then_some(name)).unwrap_or_default()
    }

    fn usual_base(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com",
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta",
            Self::Ollama => "http://localhost:11434",
        }
    }
}

/// The header of keys that are bearer tokens.
const AUTHORIZATION: &str = "authorization";

/// Where requests go, and with which key.
#[derive(Clone, Debug)]
pub(crate) struct ProviderEndpoint {
    pub(crate) provider: Provider,
    pub(crate) base: Url,
    /// Where the key is; `None` where none is sent.
    pub(crate) key_source: Option<KeySource>,
}

impl ProviderEndpoint {
    /// A base URL as the provider's own tools take it. Without a key, the provider's usual variable is looked at, but
    /// only for the provider's own address: another one is asked without a key.
    pub(crate) fn new(provider: Provider, base: Option<&str>, key: Option<KeySource>) -> Result<Self, String> {
        let text = base.unwrap_or(provider.usual_base()).trim_end_matches('/');
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
        let key = key.or_else(|| base.is_none().then(|| provider.usual_key()).flatten());
        if key.is_some() && !may_carry_key(url.scheme(), url.host_str().unwrap_or_default()) {
            return Err(format!("api.base_url {text:?}: the key would travel unencrypted; use https"));
        }
        Ok(Self { provider, base: url, key_source: key })
    }

    /// The key of the moment, where one is needed. The error says what to set.
    pub(crate) fn key(&self) -> Result<Option<Secret>, String> {
        let read = |source: &KeySource| {
            source.read().map_err(|e| {
                format!(
                    "{e}; or name another variable as `key_env`, or a file as `key_file`, under [api] in guild.toml"
                )
            })
        };
        self.key_source.as_ref().map(read).transpose()
    }

    /// Where its key comes from, for an error text.
    pub(crate) fn key_named(&self) -> Option<String> {
        self.key_source.as_ref().map(ToString::to_string)
    }

    /// The address of a request, and its headers.
    pub(crate) fn target(&self, model: &str, key: Option<&Secret>) -> Result<(Url, HeaderMap), String> {
        let in_gemini = format!("{model}:streamGenerateContent");
        let (path, key_header) = match self.provider {
            Provider::Anthropic => (["v1", "messages"], "x-api-key"),
            Provider::OpenAi => (["chat", "completions"], AUTHORIZATION),
            Provider::Gemini => (["models", in_gemini.as_str()], "x-goog-api-key"),
            Provider::Ollama => (["api", "chat"], AUTHORIZATION),
        };
        let mut url = self.base.clone();
        let segments = url.path_segments_mut();
        segments.map_err(|()| "api.base_url cannot have a path".to_owned())?.pop_if_empty().extend(path);
        if self.provider == Provider::Gemini {
            url.set_query(Some("alt=sse"));
        }
        let mut headers = HeaderMap::new();
        if self.provider == Provider::Anthropic {
            headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
        }
        if let Some(key) = key.map(Secret::expose) {
            let scheme = if key_header == AUTHORIZATION { "Bearer " } else { "" };
            let value = HeaderValue::from_str(&format!("{scheme}{key}"));
            let mut value = value.map_err(|_| "the key has characters that no HTTP header may have".to_owned())?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(key_header), value);
        }
        Ok((url, headers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(provider: Provider, base: Option<&str>, model: &str) -> String {
        let (url, _) = ProviderEndpoint::new(provider, base, None).unwrap().target(model, None).unwrap();
        url.into()
    }

    #[test]
    fn a_base_url_is_taken_as_the_providers_own_tools_take_it() {
        assert_eq!(url(Provider::Anthropic, None, "m"), "https://api.anthropic.com/v1/messages");
        assert_eq!(url(Provider::OpenAi, None, "m"), "https://api.openai.com/v1/chat/completions");
        assert_eq!(url(Provider::OpenAi, Some("http://h:8000/v1/"), "m"), "http://h:8000/v1/chat/completions");
        assert_eq!(url(Provider::Ollama, None, "m"), "http://localhost:11434/api/chat");
        let gemini = "https://generativelanguage.googleapis.com/v1beta/models/m-high:streamGenerateContent?alt=sse";
        assert_eq!(url(Provider::Gemini, None, "m-high"), gemini);
    }

    #[test]
    fn a_models_name_cannot_lead_elsewhere() {
        let url = url(Provider::Gemini, None, "../../v9/other?x=1#");
        assert!(url.contains("/v1beta/models/..%2F..%2Fv9%2Fother%3Fx=1%23:streamGenerateContent?alt=sse"), "{url}");
    }

    #[test]
    fn a_base_url_that_is_none_is_refused_without_quoting_a_password() {
        for base in ["api.example.com", "ftp://h", "http://", "http://h/?x=1"] {
            assert!(
                ProviderEndpoint::new(Provider::OpenAi, Some(base), None).unwrap_err().contains("api.base_url"),
                "{base}"
            );
        }
        let with_password = ProviderEndpoint::new(Provider::OpenAi, Some("https://me:hunter2@h"), None).unwrap_err();
        assert!(with_password.contains("key_env") && !with_password.contains("hunter2"), "{with_password}");
    }

    #[test]
    fn a_key_goes_over_https_or_stays_on_this_machine() {
        let with_key =
            |base| ProviderEndpoint::new(Provider::OpenAi, Some(base), Some(KeySource::Env("KEY".to_owned())));
        for base in ["http://h:8000/v1", "http://192.168.1.5/v1", "http://localhost.example.com", "http://[fe80::1]"] {
            let refused = with_key(base).unwrap_err();
            assert!(
                refused.contains(base) && refused.contains("unencrypted") && refused.contains("https"),
                "{refused}"
            );
            assert!(ProviderEndpoint::new(Provider::OpenAi, Some(base), None).is_ok(), "{base} without a key");
        }
        for base in ["https://h/v1", "http://localhost:8000/v1", "http://127.0.0.2:8000", "http://[::1]:8000/v1"] {
            assert!(with_key(base).is_ok(), "{base}");
        }
    }

    #[test]
    fn the_usual_key_is_only_for_the_providers_own_address() {
        let at = |base| ProviderEndpoint::new(Provider::OpenAi, base, None).unwrap().key_named();
        assert_eq!(at(None).unwrap(), "the environment variable OPENAI_API_KEY");
        assert_eq!(at(Some("http://localhost:8000/v1")), None);
    }
}
