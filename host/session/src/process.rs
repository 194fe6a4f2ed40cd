//! Identifies processes of this machine.

/// The start time of a live process: field 22 of `/proc/<pid>/stat`, unless field 3 tells that it has ended. The name
/// before these fields may contain any characters, also parentheses.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}
