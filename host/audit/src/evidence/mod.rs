//! Reads texts and data. Nothing here knows of components, manifests or policies: each module takes a text or bytes of an
//! untrusted author, and answers with what is there and where, within bounds that do not depend on the input.

pub mod characters;
pub mod form;
pub mod formulas;
pub mod hosts;
pub mod pages;
pub mod regions;
pub mod runtimes;
