//! What a component is and what it can do, read from its bytes, its manifest and the operator's policy. Nothing is
//! compiled or run, and no wasmtime is needed.
//!
//! [`inspect`] is what a host checks before it compiles anything.

pub mod inspect;
