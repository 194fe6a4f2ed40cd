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

/// Whether an address names a host only, and no endpoint of one member.
pub(crate) fn is_bare(url: &str) -> bool {
    url.parse::<Url>().is_ok_and(|url| matches!(url.path(), "/" | "/mcp"))
}

/// Where a host has its events, and which member's are meant: the host's own address, or an endpoint of it.
pub(crate) fn events(url: &str) -> Result<(Url, Option<MemberKey>), String> {
    beside(url, "events")
}

/// Where a host tells of its members.
pub(crate) fn members(url: &str) -> Result<Url, String> {
    beside(url, "members").map(|(url, _)| url)
}

/// What a host has beside its endpoints, and the member whose endpoint `url` is.
fn beside(url: &str, what: &str) -> Result<(Url, Option<MemberKey>), String> {
    let mut url = endpoint(url, None)?;
    let endpoint = url.path().trim_end_matches('/');
    let base = endpoint.strip_suffix("/mcp").unwrap_or(endpoint);
    let of_a_member = ["/members/", "/dispatch/", "/all/", "/whole/"].iter().find_map(|part| base.rsplit_once(part));
    let (base, key) = match of_a_member {
        Some((base, key)) => (base, Some(key.parse().map_err(|e| format!("{e}"))?)),
        None => (base, None),
    };
    let path = format!("{base}/{what}");
    url.set_path(&path);
    url.set_query(None);
    Ok((url, key))
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

    #[test]
    fn the_events_are_beside_the_endpoints() {
        let at = |url| events(url).map(|(url, key)| (url.to_string(), key.map(String::from)));
        assert_eq!(at("http://127.0.0.1:7433").unwrap(), ("http://127.0.0.1:7433/events".into(), None));
        assert_eq!(at("http://127.0.0.1:7433/mcp").unwrap(), ("http://127.0.0.1:7433/events".into(), None));
        let of_member = ("http://localhost:1/events".into(), Some("a/b".into()));
        assert_eq!(at("http://localhost:1/members/a/b/mcp").unwrap(), of_member);
        assert_eq!(at("https://guild.example/x/mcp").unwrap(), ("https://guild.example/x/events".into(), None));
        let of_all = members("http://localhost:1/members/a/b/mcp").unwrap();
        assert_eq!(of_all.as_str(), "http://localhost:1/members");
    }
}
