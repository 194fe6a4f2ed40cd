//! Which address is meant.

use guild_contract::MemberKey;
use reqwest::Url;

/// The endpoint that is meant: a bare address means its `/mcp`, and a member of it `/members/KEY/mcp`.
pub(crate) fn endpoint(url: &str, member: Option<&MemberKey>) -> Result<Url, String> {
    let mut url: Url = url.parse().map_err(|_| "it should look like http://127.0.0.1:7433/mcp".to_owned())?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err("it should begin with http:// or https:// and a host's name".to_owned());
    }
    let bare = matches!(url.path(), "/" | "/mcp");
    match member {
        None if bare => url.set_path("/mcp"),
        None => {}
        Some(key) if bare => url.set_path(&format!("/members/{key}/mcp")),
        Some(key) => return Err(format!("it names an endpoint already; leave the member {key} or its path out")),
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_follows_from_address_and_member() {
        let at = |url, member: Option<&str>| {
            endpoint(url, member.map(|m| m.parse().unwrap()).as_ref()).map(|url| url.to_string())
        };
        assert_eq!(at("http://127.0.0.1:7433", None).unwrap(), "http://127.0.0.1:7433/mcp");
        assert_eq!(at("http://127.0.0.1:7433/mcp", None).unwrap(), "http://127.0.0.1:7433/mcp");
        assert_eq!(at("http://localhost:1/mcp", Some("a/b")).unwrap(), "http://localhost:1/members/a/b/mcp");
        assert_eq!(at("http://localhost:1/members/a/mcp", None).unwrap(), "http://localhost:1/members/a/mcp");
        assert_eq!(at("https://guild.example", None).unwrap(), "https://guild.example/mcp");
        assert!(at("http://localhost:1/members/a/mcp", Some("b")).unwrap_err().contains("member b"));
        assert!(at("localhost:7433", None).unwrap_err().contains("http://"));
        assert!(at("7433", None).unwrap_err().contains("http://"));
    }
}
