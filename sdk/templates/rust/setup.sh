rustup target add wasm32-wasip2                         # once
