//! The tools of a session that works on a commission.
