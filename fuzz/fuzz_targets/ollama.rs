#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| guild_fuzz_targets::ollama(data));
