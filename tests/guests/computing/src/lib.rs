//! A component that computes before it answers: what a plugin does with a text, at length. It counts words, sorts
//! them, and hashes it all as SHA-256 does, again and again.

use std::{collections::HashMap, fmt::Write};

use guild_plugin_sdk::{Activation, Plan, Refusal, Worker, export_worker, session_plan};

struct Computing;

const ROUNDS: u32 = 8;
const WORDS: usize = 40_000;

impl Worker for Computing {
    fn activate(activation: Activation) -> Result<Plan, Refusal> {
        let mut seed = 1;
        let mut digest = String::new();
        for _ in 0..ROUNDS {
            let text = text(&mut seed);
            digest.clear();
            for byte in sha256(counted(&text).as_bytes()) {
                let _ = write!(digest, "{byte:02x}");
            }
        }
        Ok(Plan::Session(session_plan(&activation, &digest, String::new(), &[])))
    }
}

/// Words that look drawn.
fn text(seed: &mut u64) -> String {
    let mut text = String::new();
    for _ in 0..WORDS {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        let _ = write!(text, "{:x} ", *seed % 5000);
    }
    text
}

/// How often each word is there, by frequency.
fn counted(text: &str) -> String {
    let mut counts: HashMap<&str, u32> = HashMap::new();
    for word in text.split_whitespace() {
        *counts.entry(word).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    let mut lines = text.to_uppercase();
    for (word, count) in counts {
        let _ = writeln!(lines, "{count:>6} {word}");
    }
    lines
}

const INIT: [u32; 8] = [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];

/// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
fn constants() -> [u32; 64] {
    let primes = (2_u64..).filter(|n| (2..*n).all(|d| n % d != 0));
    let mut constants = [0; 64];
    for (constant, prime) in constants.iter_mut().zip(primes) {
        *constant = ((prime as f64).cbrt().fract() * 4_294_967_296.0) as u32;
    }
    constants
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let constants = constants();
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    padded.resize(padded.len().next_multiple_of(64), 0);
    let mut state = INIT;
    for block in padded.chunks_exact(64) {
        let mut w = [0_u32; 64];
        for (word, bytes) in w.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        for i in 16..64 {
            let a = w[i - 15].rotate_right(7) ^ w[i - 15].rotate_right(18) ^ (w[i - 15] >> 3);
            let b = w[i - 2].rotate_right(17) ^ w[i - 2].rotate_right(19) ^ (w[i - 2] >> 10);
            w[i] = w[i - 16].wrapping_add(a).wrapping_add(w[i - 7]).wrapping_add(b);
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
        for i in 0..64 {
            let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let t1 = h.wrapping_add(s1).wrapping_add((e & f) ^ (!e & g)).wrapping_add(constants[i]).wrapping_add(w[i]);
            let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
            let t2 = s0.wrapping_add((a & b) ^ (a & c) ^ (b & c));
            (h, g, f, e, d, c, b, a) = (g, f, e, d.wrapping_add(t1), c, b, a, t1.wrapping_add(t2));
        }
        for (all, new) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *all = all.wrapping_add(new);
        }
    }
    let mut digest = [0; 32];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

export_worker!(Computing);
