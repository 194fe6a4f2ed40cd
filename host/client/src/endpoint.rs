//! URLs of a host's endpoints.

use guild_contract::MemberKey;
use reqwest::Url;

use crate::Error;

/// The endpoint for an address: `/mcp` for a bare address, and `/members/KEY/mcp` for a member.
pub(crate) fn endpoint(address: &str, member: Option<&MemberKey>) -> Result<Url, Error> {
    let invalid = |reason: &str| Error::Address { url: address.to_owned(), reason: reason.to_owned() };
    let mut url: Url = address.parse().map_err(|_| invalid("it should look like http://127.0.0.1:7433/mcp"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err(invalid("it should begin with http:// or https:// and a host's name"));
    }
    let bare = matches!(url.path(), "/" | "/mcp");
    match member {
        None if bare => url.set_path("/mcp"),
        None => {}
        Some(key) if bare => url.set_path(&format!("/members/{key}/mcp")),
        Some(key) => return Err(is_endpoint(address, key)),
    }
    Ok(url)
}

/// The error if both the address and the caller name a member.
pub(crate) fn is_endpoint(address: &str, key: &MemberKey) -> Error {
    let reason = format!("it names an endpoint already; leave the member {key} or its path out");
    Error::Address { url: address.to_owned(), reason }
}

/// Whether an address is that of a host, and not an endpoint of one member.
pub(crate) fn is_bare(url: &str) -> bool {
    url.parse::<Url>().is_ok_and(|url| matches!(url.path(), "/" | "/mcp"))
}

/// The URL of a host's events, and the member if `url` is the endpoint of one.
pub(crate) fn events(url: &str) -> Result<(Url, Option<MemberKey>), Error> {
    sibling(url, "events")
}

/// The URL of a host's report of its members.
pub(crate) fn members(url: &str) -> Result<Url, Error> {
    sibling(url, "members").map(|(url, _)| url)
}

/// The URL at which a host says that it answers.
pub(crate) fn health(url: &str) -> Result<Url, Error> {
    sibling(url, "healthz").map(|(url, _)| url)
}

/// The URL below which a host's hall is.
pub(crate) fn hall(url: &str) -> Result<Url, Error> {
    sibling(url, "hall/").map(|(url, _)| url)
}

/// The URL next to the host's endpoints, and the member if `address` is the endpoint of one.
fn sibling(address: &str, what: &str) -> Result<(Url, Option<MemberKey>), Error> {
    let mut url = endpoint(address, None)?;
    let endpoint = url.path().trim_end_matches('/');
    let base = endpoint.strip_suffix("/mcp").unwrap_or(endpoint);
    let of_a_member = ["/members/", "/dispatch/", "/all/"].iter().find_map(|part| base.rsplit_once(part));
    let (base, key) = match of_a_member {
        Some((base, key)) => {
            let key = key.parse::<MemberKey>();
            let key = key.map_err(|e| Error::Address { url: address.to_owned(), reason: e.to_string() })?;
            (base, Some(key))
        }
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
        assert!(at("http://localhost:1/members/a/mcp", Some("b")).unwrap_err().to_string().contains("member b"));
        assert!(at("localhost:7433", None).unwrap_err().to_string().contains("http://"));
        assert!(at("7433", None).unwrap_err().to_string().contains("http://"));
    }

    #[test]
    fn the_events_are_next_to_the_endpoints() {
        let at = |url| events(url).map(|(url, key)| (url.to_string(), key.map(String::from)));
        assert_eq!(at("http://127.0.0.1:7433").unwrap(), ("http://127.0.0.1:7433/events".into(), None));
        assert_eq!(at("http://127.0.0.1:7433/mcp").unwrap(), ("http://127.0.0.1:7433/events".into(), None));
        let of_member = ("http://localhost:1/events".into(), Some("a/b".into()));
        assert_eq!(at("http://localhost:1/members/a/b/mcp").unwrap(), of_member);
        assert_eq!(at("https://guild.example/x/mcp").unwrap(), ("https://guild.example/x/events".into(), None));
        let of_all = members("http://localhost:1/members/a/b/mcp").unwrap();
        assert_eq!(of_all.as_str(), "http://localhost:1/members");
        let hall = hall("https://guild.example/x/mcp").unwrap();
        assert_eq!(hall.join("a/b").unwrap().as_str(), "https://guild.example/x/hall/a/b");
    }
}
