package autonomous

import _ "guild/internal/bindings/wit_run" // exports run
