package toolbox

import _ "guild/internal/bindings/wit_toolbox" // exports toolbox
