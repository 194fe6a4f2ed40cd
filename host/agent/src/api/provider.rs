//! Builds the address and the headers of a request to each provider, with the key.

use guild_config::Endpoint;
use guild_contract::secret::Secret;
use reqwest::{
    Url,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
};

use super::protocol::Protocol;

/// The address of a request to a model, and its headers.
pub(crate) fn target(endpoint: &Endpoint, model: &str, key: Option<&Secret>) -> Result<(Url, HeaderMap), String> {
    let protocol = Protocol::of(endpoint.provider);
    let path = protocol.path.iter().map(|segment| segment.replace("{model}", model));
    let mut url = endpoint.base.clone();
    let segments = url.path_segments_mut();
    segments.map_err(|()| "api.base_url cannot have a path".to_owned())?.pop_if_empty().extend(path);
    url.set_query(protocol.query);
    let mut headers = HeaderMap::new();
    for (name, value) in protocol.headers {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if let Some(key) = key.map(Secret::expose) {
        let scheme = if protocol.key_header == AUTHORIZATION.as_str() { "Bearer " } else { "" };
        let value = HeaderValue::from_str(&format!("{scheme}{key}"));
        let mut value = value.map_err(|_| "the key has characters that no HTTP header may have".to_owned())?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(protocol.key_header), value);
    }
    Ok((url, headers))
}

#[cfg(test)]
mod tests {
    use guild_config::Provider;

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
