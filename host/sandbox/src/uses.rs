//! Records which of its grants a component used in one call.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use guild_contract::capability::{Capability, Kind};
use url::Url;

/// Capabilities that are recorded of one call. Only hosts can be that many.
const MOST: usize = 200;

/// The capabilities that a component used in one call, as `guild.toml` spells them.
#[derive(Clone, Default)]
pub(crate) struct Uses(Arc<Mutex<BTreeSet<Cow<'static, str>>>>);

impl Uses {
    pub(crate) fn kind(&self, kind: &'static Kind) {
        self.insert(Cow::Borrowed(kind.name));
    }

    /// The read root of a path.
    pub(crate) fn path(&self, path: &str) {
        let root = path.split('/').next().unwrap_or_default();
        self.insert(Capability::Root(root.to_owned()).to_string().into());
    }

    /// The host of an address.
    pub(crate) fn address(&self, address: &str) {
        if let Some(host) = Url::parse(address).ok().as_ref().and_then(Url::host_str) {
            self.insert(Capability::Host(host.to_owned()).to_string().into());
        }
    }

    /// The capabilities so far, by name.
    pub(crate) fn take(&self) -> Vec<String> {
        let uses = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        uses.into_iter().map(Cow::into_owned).collect()
    }

    fn insert(&self, capability: Cow<'static, str>) {
        let mut uses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if uses.len() < MOST {
            uses.insert(capability);
        }
    }
}
