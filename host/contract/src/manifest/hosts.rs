//! Checks patterns of host names in manifests and policies.

/// The most characters of a host's name in DNS, with the port of a pattern.
const HOST_CHARS: usize = 253;

/// Refuses a pattern of hosts that people could mistake for another one. The code that matches the pattern checks its
/// syntax.
pub(crate) fn check_host(host: &str) -> Result<(), String> {
    if !host.is_ascii() {
        return Err(format!(
            "{host:?} has characters beyond ASCII, some of which look like others; write its name in Punycode, as \
             \"xn--bcher-kva.example\""
        ));
    }
    if host.len() > HOST_CHARS {
        return Err(format!("a pattern of hosts has at most {HOST_CHARS} characters, and this one has {}", host.len()));
    }
    Ok(())
}
