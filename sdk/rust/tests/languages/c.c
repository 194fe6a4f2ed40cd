// Reads an activation, or a config, and writes what the SDK for C makes of it: `sdk/rust/tests/languages.rs`.

#include <stdio.h>
#include <string.h>

#include "internal.h"

static const guild_field_t fields[] = {
    {"focus", GUILD_TEXT}, {"parallel", GUILD_COUNT, .has_max = true, .max = 16}, {"deep", GUILD_FLAG}, {0}};

static char *refusal(const char *text) {
    cJSON *config;
    guild_bounds_t bounds;
    const char *refused = guild_check_config(text, fields, &config, &bounds);
    if (refused != NULL) {
        return guild_format("%s", refused);
    }
    const char *focus = guild_text(config, "focus");
    return guild_format("%u %g %u [%s] %g %d", bounds.max_turns, bounds.max_budget_usd, bounds.deadline_seconds,
                        focus == NULL ? "" : focus, guild_number(config, "parallel", 0), guild_flag(config, "deep"));
}

static char *prompt(const char *text) {
    const cJSON *json = cJSON_Parse(text), *project = cJSON_GetObjectItem(json, "project"), *note;
    guild_project_t place = {guild_text(project, "name"), guild_text(project, "root")};
    guild_note_t notes[16] = {0}, *next = notes;
    cJSON_ArrayForEach(note, cJSON_GetObjectItem(json, "memories")) {
        *next++ = (guild_note_t){
            .key = guild_text(note, "key"),
            .content = guild_text(note, "content"),
            .modified = guild_text(note, "modified"),
            .origin = guild_text(note, "origin"),
            .scope = (guild_scope_t)guild_number(note, "scope", 0),
        };
    }
    guild_activation_t activation = {
        .posture = guild_text(json, "posture"),
        .project = project == NULL ? NULL : &place,
        .memories = notes,
    };
    return guild_system_prompt(&activation, guild_text(json, "task"));
}

int main(int count, char **arguments) {
    static char text[1 << 20];
    text[fread(text, 1, sizeof text - 1, stdin)] = '\0';
    bool is_config = count > 1 && strcmp(arguments[1], "config") == 0;
    fputs(is_config ? refusal(text) : prompt(text), stdout);
    return 0;
}
