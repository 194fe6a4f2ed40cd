package worker

import _ "guild/internal/bindings/wit_dispatch" // exports dispatch
