// Checks a dispatch's config key by key. Every refusal names the key and what is accepted.

#include <stdlib.h>
#include <string.h>

#include "internal.h"

const char *guild_text(const cJSON *object, const char *key) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

double guild_number(const cJSON *object, const char *key, double otherwise) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) ? item->valuedouble : otherwise;
}

bool guild_flag(const cJSON *object, const char *key) {
    return cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, key));
}

static const guild_field_t bounds_fields[] = {
    {"maxTurns", GUILD_COUNT}, {"maxBudgetUsd", GUILD_AMOUNT}, {"deadlineSeconds", GUILD_COUNT}, {0}};

static char *listed(const char *list, const char *name) {
    return list == NULL ? guild_format("%s", name) : guild_format("%s, %s", list, name);
}

static size_t characters(const char *text) {
    size_t count = 0;
    for (; *text != '\0'; text++) {
        count += (*text & 0xc0) != 0x80;
    }
    return count;
}

// A value for an error text: at most 80 characters of its JSON.
static char *shown(const cJSON *value) {
    char *json = cJSON_PrintUnformatted(value);
    if (characters(json) <= 80) {
        return json;
    }
    size_t end = 0;
    for (size_t count = 0; count < 80 || (json[end] & 0xc0) == 0x80; end++) {
        count += (json[end] & 0xc0) != 0x80;
    }
    return guild_format("%.*s…", (int)end, json);
}

static bool is_one_of(const char *text, const char *const *values) {
    while (*values != NULL && strcmp(text, *values) != 0) {
        values++;
    }
    return *values != NULL;
}

// Checks the value of a key, and trims a text. Returns NULL, or the description of the accepted values.
static const char *check(const guild_field_t *field, cJSON *value) {
    const char *accepted = NULL;
    bool fits = false;
    switch (field->kind) {
    case GUILD_TEXT:
        accepted = "a text that is not empty";
        for (const char *const *one = field->values; one != NULL && *one != NULL; one++) {
            accepted = one == field->values ? guild_format("one of %s", *one) : listed(accepted, *one);
        }
        if (cJSON_IsString(value)) {
            char *text = guild_trimmed(value->valuestring);
            fits = *text != '\0' && (field->values == NULL || is_one_of(text, field->values));
            if (fits && field->has_max && characters(text) > field->max) {
                return guild_format("a text of at most %.0f characters", field->max);
            }
            value->valuestring = fits ? text : value->valuestring;
        }
        break;
    case GUILD_COUNT: {
        double most = field->has_max ? field->max : UINT32_MAX;
        accepted = field->has_max ? guild_format("a whole number from 1 to %.0f", most) : "a whole number, 1 or more";
        fits = cJSON_IsNumber(value) && value->valuedouble >= 1 && value->valuedouble <= most &&
               value->valuedouble == (uint32_t)value->valuedouble;
        break;
    }
    case GUILD_AMOUNT:
        accepted = "a number above 0";
        fits = cJSON_IsNumber(value) && value->valuedouble > 0;
        break;
    case GUILD_FLAG:
        accepted = "true or false";
        fits = cJSON_IsBool(value);
        break;
    default:
        guild_fail("config.%s: a key is a GUILD_TEXT, GUILD_COUNT, GUILD_AMOUNT or GUILD_FLAG", field->name);
    }
    return fits ? NULL : accepted;
}

static const char *check_all(cJSON *config, const guild_field_t *fields, const char **known) {
    for (const guild_field_t *field = fields; field->name != NULL; field++) {
        *known = listed(*known, field->name);
        cJSON *value = cJSON_GetObjectItemCaseSensitive(config, field->name);
        const char *accepted = value == NULL ? NULL : check(field, value);
        if (accepted != NULL) {
            return guild_format("config.%s must be %s, not %s", field->name, accepted, shown(value));
        }
    }
    return NULL;
}

static bool is_known(const char *key, const guild_field_t *fields) {
    while (fields->name != NULL && strcmp(key, fields->name) != 0) {
        fields++;
    }
    return fields->name != NULL;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char *guild_check_config(const char *text, const guild_field_t *fields, cJSON **config, guild_bounds_t *bounds) {
    static const guild_field_t none[] = {{0}};
    fields = fields == NULL ? none : fields;
    *config = cJSON_ParseWithOpts(text, NULL, true);
    if (!cJSON_IsObject(*config)) {
        return "config must be a JSON object";
    }
    const char *known = NULL;
    const char *refused = check_all(*config, bounds_fields, &known);
    if (refused == NULL) {
        refused = check_all(*config, fields, &known);
    }
    if (refused != NULL) {
        return refused;
    }
    const char **unknown = guild_alloc((size_t)cJSON_GetArraySize(*config) * sizeof *unknown);
    size_t count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, *config) {
        if (!is_known(item->string, bounds_fields) && !is_known(item->string, fields)) {
            unknown[count++] = item->string;
        }
    }
    if (count > 0) {
        qsort(unknown, count, sizeof *unknown, by_name);
        const char *names = NULL;
        for (size_t i = 0; i < count; i++) {
            names = listed(names, cJSON_PrintUnformatted(cJSON_CreateString(unknown[i])));
        }
        return guild_format("config has the unknown %s %s; known are %s", count == 1 ? "key" : "keys", names, known);
    }
    bounds->max_turns = (uint32_t)guild_number(*config, "maxTurns", 0);
    bounds->max_budget_usd = guild_number(*config, "maxBudgetUsd", 0);
    bounds->deadline_seconds = (uint32_t)guild_number(*config, "deadlineSeconds", 0);
    return NULL;
}
