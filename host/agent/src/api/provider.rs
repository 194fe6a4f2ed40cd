//! How a request is addressed at each provider, and how it carries the key.

use guild_config::{Endpoint, Provider};
use guild_contract::secret::Secret;
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};

/// The header of keys that are bearer tokens.
const AUTHORIZATION: &str = "authorization";

/// The address of a request to a model, and its headers.
pub(crate) fn target(endpoint: &Endpoint, model: &str, key: Option<&Secret>) -> Result<(Url, HeaderMap), String> {
    let in_gemini = format!("{model}:streamGenerateContent");
    let (path, key_header) = match endpoint.provider {
        Provider::Anthropic => (["v1", "messages"], "x-api-key"),
        Provider::OpenAi => (["chat", "completions"], AUTHORIZATION),
        Provider::Gemini => (["models", in_gemini.as_str()], "x-goog-api-key"),
        Provider::Ollama => (["api", "chat"], AUTHORIZATION),
    };
    let mut url = endpoint.base.clone();
    let segments = url.path_segments_mut();
    segments.map_err(|()| "api.base_url cannot have a path".to_owned())?.pop_if_empty().extend(path);
    if endpoint.provider == Provider::Gemini {
        url.set_query(Some("alt=sse"));
    }
    let mut headers = HeaderMap::new();
    if endpoint.provider == Provider::Anthropic {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn url(provider: Provider, base: Option<&str>, model: &str) -> String {
        let (url, _) = target(&Endpoint::new(provider, base, None).unwrap(), model, None).unwrap();
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
}
