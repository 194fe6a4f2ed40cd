// cJSON (`cjson/README.md`), so that `sdk/*.c` is all of the SDK.

#include <stdlib.h>

#include "internal.h"

// The host takes documents of 128 levels; cJSON's own bound is more than a stack of 64 KiB has room for.
#undef CJSON_NESTING_LIMIT
#define CJSON_NESTING_LIMIT 128
#include "cjson/cJSON.c"

void guild_start(void) {
    cJSON_InitHooks(&(cJSON_Hooks){guild_alloc, free});
}
