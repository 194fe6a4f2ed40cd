//! Limits memory and tables of a Store, summed over everything in it.

use std::sync::Arc;

use guild_contract::Limits;
use wasmtime::ResourceLimiter;

use super::{Reached, ResourceUsage};

/// The bytes of an element of a table.
const ELEMENT_BYTES: u64 = 8;

/// Counts the bytes of a Store's memories and tables, and refuses growth beyond the limits.
pub(crate) struct Limiter {
    limits: Arc<Limits>,
    usage: Arc<ResourceUsage>,
    table_elements: u64,
}

impl Limiter {
    pub(crate) fn new(limits: Arc<Limits>, usage: Arc<ResourceUsage>) -> Self {
        Self { limits, usage, table_elements: 0 }
    }
}

/// Whether the desired size exceeds the component's own declared maximum. The engine asks before it checks that, and a
/// growth that it then refuses must take nothing. For a table without a declared maximum, `max` is the room in the
/// engine's pool, which is the limit of all members.
fn is_beyond(desired: usize, max: Option<usize>, limit: u64) -> bool {
    max.is_some_and(|max| desired > max && (max as u64) < limit)
}

/// The size of the growth.
fn more(current: usize, desired: usize) -> u64 {
    desired.saturating_sub(current) as u64
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, max: Option<usize>) -> wasmtime::Result<bool> {
        Ok(!is_beyond(desired, max, self.limits.memory_bytes) && self.usage.grow(more(current, desired)))
    }

    fn table_growing(&mut self, current: usize, desired: usize, max: Option<usize>) -> wasmtime::Result<bool> {
        let limit = self.limits.table_elements;
        if is_beyond(desired, max, limit) {
            return Ok(false);
        }
        let elements = self.table_elements.saturating_add(more(current, desired));
        let fits = elements <= limit;
        self.usage.note(Reached { name: "table_elements", max: limit }, fits);
        if !fits {
            return Ok(false);
        }
        let fits = self.usage.grow(more(current, desired).saturating_mul(ELEMENT_BYTES));
        if fits {
            self.table_elements = elements;
        }
        Ok(fits)
    }

    fn instances(&self) -> usize {
        self.limits.instances as usize
    }

    fn tables(&self) -> usize {
        self.limits.tables as usize
    }

    fn memories(&self) -> usize {
        self.limits.memories as usize
    }
}
