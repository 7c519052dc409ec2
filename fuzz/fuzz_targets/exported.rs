//! What breakers wrote down for another process, from bytes that anybody may have written.
#![no_main]

#[path = "../checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    checks::exported(data);
});
