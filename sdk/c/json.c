// Compiles cJSON (`cjson/README.md`) here, so that `sdk/*.c` has all sources of the SDK.

#include <stdlib.h>

#include "internal.h"

// The host accepts documents of 128 levels. The default of cJSON needs more than a stack of 64 KiB.
#undef CJSON_NESTING_LIMIT
#define CJSON_NESTING_LIMIT 128
#include "cjson/cJSON.c"

void guild_start(void) {
    cJSON_InitHooks(&(cJSON_Hooks){guild_alloc, free});
}
