// Exports `toolbox`: the schemas of the tools, made of their tables of fields, and their calls.

#include <string.h>

#include "internal.h"

static const guild_tool_t *the_tools;
static exports_guild_worker_toolbox_tool_error_t error;
static bool is_error;

static cJSON *schema_of_all(const guild_field_t *fields);

static cJSON *schema_of(const guild_field_t *field) {
    static const char *const types[] = {"string", "integer", "number", "boolean", "number", "integer", "array"};
    cJSON *schema = field->kind == GUILD_OBJECT ? schema_of_all(field->fields) : cJSON_CreateObject();
    if (field->kind != GUILD_OBJECT) {
        cJSON_AddStringToObject(schema, "type", types[field->kind]);
    }
    if (field->description != NULL) {
        cJSON_AddStringToObject(schema, "description", field->description);
    }
    if (field->values != NULL) {
        cJSON *values = cJSON_AddArrayToObject(schema, "enum");
        for (const char *const *value = field->values; *value != NULL; value++) {
            cJSON_AddItemToArray(values, cJSON_CreateString(*value));
        }
    }
    const char *of = field->kind == GUILD_TEXT ? "Length" : field->kind == GUILD_LIST ? "Items" : "imum";
    if (field->has_min || field->kind == GUILD_COUNT) {
        cJSON_AddNumberToObject(schema, guild_format("min%s", of), field->has_min ? field->min : 1);
    }
    if (field->has_max) {
        cJSON_AddNumberToObject(schema, guild_format("max%s", of), field->max);
    }
    if (field->kind == GUILD_AMOUNT) {
        cJSON_AddNumberToObject(schema, "exclusiveMinimum", 0);
    }
    if (field->kind == GUILD_LIST && field->fields != NULL) {
        cJSON_AddItemToObject(schema, "items", schema_of(field->fields));
    }
    return schema;
}

static cJSON *schema_of_all(const guild_field_t *fields) {
    cJSON *schema = cJSON_CreateObject();
    cJSON_AddStringToObject(schema, "type", "object");
    cJSON *properties = cJSON_AddObjectToObject(schema, "properties");
    cJSON *required = cJSON_AddArrayToObject(schema, "required");
    for (const guild_field_t *field = fields; field != NULL && field->name != NULL; field++) {
        cJSON_AddItemToObject(properties, field->name, schema_of(field));
        if (!field->optional) {
            cJSON_AddItemToArray(required, cJSON_CreateString(field->name));
        }
    }
    cJSON_AddFalseToObject(schema, "additionalProperties");
    return schema;
}

static bindings_string_t document(const cJSON *json) {
    return guild_to_host(cJSON_PrintUnformatted(json));
}

static cJSON *fail(uint8_t kind, const char *text) {
    is_error = true;
    error.tag = kind;
    error.val.failed = guild_to_host(text);
    return NULL;
}

cJSON *guild_tool_error(const char *format, ...) {
    va_list values;
    va_start(values, format);
    const char *text = guild_format_values(format, values);
    va_end(values);
    return fail(EXPORTS_GUILD_WORKER_TOOLBOX_TOOL_ERROR_FAILED, text);
}

cJSON *guild_invalid_input(const char *format, ...) {
    va_list values;
    va_start(values, format);
    const char *text = guild_format_values(format, values);
    va_end(values);
    return fail(EXPORTS_GUILD_WORKER_TOOLBOX_TOOL_ERROR_INVALID_INPUT, text);
}

void exports_guild_worker_toolbox_list_tools(exports_guild_worker_toolbox_list_tool_definition_t *ret) {
    ret->len = 0;
    while (the_tools[ret->len].name != NULL) {
        ret->len++;
    }
    ret->ptr = guild_alloc(ret->len * sizeof *ret->ptr);
    for (size_t i = 0; i < ret->len; i++) {
        const guild_tool_t *tool = &the_tools[i];
        ret->ptr[i] = (exports_guild_worker_toolbox_tool_definition_t){
            .name = guild_to_host(tool->name),
            .description = guild_to_host(tool->description == NULL ? "" : tool->description),
            .input_schema = document(schema_of_all(tool->input)),
            .read_only = tool->read_only,
        };
        if (tool->title != NULL) {
            ret->ptr[i].title = (bindings_option_string_t){true, guild_to_host(tool->title)};
        }
        if (tool->output != NULL) {
            ret->ptr[i].output_schema = (guild_worker_types_option_json_t){true, document(schema_of_all(tool->output))};
        }
    }
}

bool exports_guild_worker_toolbox_call_tool(bindings_string_t *name, exports_guild_worker_toolbox_json_t *input,
                                            exports_guild_worker_toolbox_json_t *ret,
                                            exports_guild_worker_toolbox_tool_error_t *err) {
    const char *wanted = guild_from_host(*name);
    const guild_tool_t *tool = the_tools;
    while (tool->name != NULL && strcmp(tool->name, wanted) != 0) {
        tool++;
    }
    if (tool->name == NULL) {
        fail(EXPORTS_GUILD_WORKER_TOOLBOX_TOOL_ERROR_UNKNOWN_TOOL, wanted);
        *err = error;
        return false;
    }
    const cJSON *json = cJSON_ParseWithOpts(guild_from_host(*input), NULL, true);
    const cJSON *result = json == NULL ? guild_invalid_input("the input is not JSON") : tool->call(json);
    if (result == NULL && !is_error) {
        const guild_error_t *last = guild_last_error();
        const char *unsaid = "the tool answered NULL: use `return guild_tool_error(...)`";
        guild_tool_error("%s", last != NULL ? last->message : unsaid);
    }
    if (is_error) {
        *err = error;
        return false;
    }
    *ret = document(result);
    return true;
}

uint8_t *guild_list_tools(const guild_tool_t *tools) {
    guild_start();
    the_tools = tools;
    return __wasm_export_exports_guild_worker_toolbox_list_tools();
}

uint8_t *guild_call_tool(const guild_tool_t *tools, uint8_t *name, size_t name_length, uint8_t *input,
                         size_t input_length) {
    guild_start();
    the_tools = tools;
    return __wasm_export_exports_guild_worker_toolbox_call_tool(name, name_length, input, input_length);
}
