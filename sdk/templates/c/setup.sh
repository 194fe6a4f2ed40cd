apt-get install clang-19 lld-19 wasi-libc libclang-rt-19-dev-wasm32    # once, on Debian
