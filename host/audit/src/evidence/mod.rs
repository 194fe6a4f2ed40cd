//! Finds evidence in texts and data. Nothing here knows of components, manifests or policies: each module takes a text
//! or bytes of an untrusted author, and answers with findings and their places, within bounds that do not depend on the
//! input.

pub mod characters;
pub mod form;
pub mod hosts;
pub mod packed;
pub mod pages;
pub mod phrases;
pub mod prose;
pub mod views;
