//! Memory and tables of a Store, summed over everything in it.

use guild_contract::Limits;
use wasmtime::ResourceLimiter;

/// Counts what a Store's memories and tables take, and refuses growth beyond the limits.
#[derive(Debug)]
pub(crate) struct Limiter {
    memory: u64,
    max_memory: u64,
    table_elements: u64,
    max_table_elements: u64,
    instances: usize,
    tables: usize,
    memories: usize,
    /// The limit that refused a growth, for the reason of the failure that usually follows.
    refused: Option<String>,
}

impl Limiter {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            memory: 0,
            max_memory: limits.memory_bytes,
            table_elements: 0,
            max_table_elements: limits.table_elements,
            instances: limits.instances as usize,
            tables: limits.tables as usize,
            memories: limits.memories as usize,
            refused: None,
        }
    }

    /// The limit that the component ran into, if it did.
    pub(crate) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }
}

/// Adds the growth to the total if the limit allows it.
fn grow(total: &mut u64, max: u64, current: usize, desired: usize) -> bool {
    let grown = total.saturating_add(desired.saturating_sub(current) as u64);
    let fits = grown <= max;
    if fits {
        *total = grown;
    }
    fits
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _max: Option<usize>) -> wasmtime::Result<bool> {
        let fits = grow(&mut self.memory, self.max_memory, current, desired);
        if !fits {
            self.refused = Some(format!("limits.memory_bytes = {}", self.max_memory));
        }
        Ok(fits)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _max: Option<usize>) -> wasmtime::Result<bool> {
        let fits = grow(&mut self.table_elements, self.max_table_elements, current, desired);
        if !fits {
            self.refused = Some(format!("limits.table_elements = {}", self.max_table_elements));
        }
        Ok(fits)
    }

    fn instances(&self) -> usize {
        self.instances
    }

    fn tables(&self) -> usize {
        self.tables
    }

    fn memories(&self) -> usize {
        self.memories
    }
}
