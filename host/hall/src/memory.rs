//! The three scopes of memory.
