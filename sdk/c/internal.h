// Declarations that the files of the SDK share.

#ifndef GUILD_INTERNAL_H
#define GUILD_INTERNAL_H

#include <stdarg.h>

#include "bindings/bindings.h"
#include "guild.h"

// A copy of a text of the host, which ends with a zero byte.
char *guild_from_host(bindings_string_t text);
// A text for the host. It is not copied.
bindings_string_t guild_to_host(const char *text);

// A list of the host, with NULL at its end.
const char **guild_names_from_host(bindings_list_string_t names);

// A text by a format of printf and its values.
char *guild_format_values(const char *format, va_list values);
// A copy of a text without the white space (of Unicode) at its ends.
char *guild_trimmed(const char *text);

// Checks a config, and trims its texts. Returns the text of a refusal, or NULL.
const char *guild_check_config(const char *text, const guild_field_t *fields, cJSON **config, guild_bounds_t *bounds);

// The schema of an object with these fields.
char *guild_schema(const guild_field_t *fields);

// Prepares a call, which ends with an error of its own when memory runs out.
void guild_start(void);

// The functions that `bindings/` exports.
uint8_t *__wasm_export_exports_guild_worker_dispatch_activate(uint8_t *activation);
uint8_t *__wasm_export_exports_guild_worker_toolbox_list_tools(void);
uint8_t *__wasm_export_exports_guild_worker_toolbox_call_tool(uint8_t *name, size_t name_length, uint8_t *input,
                                                              size_t input_length);

#endif
