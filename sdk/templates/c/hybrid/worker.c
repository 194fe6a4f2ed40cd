// A worker that knows the headings of the files that it may read, and a tool that lists them.
#include "guild.h"

static guild_passage_t *headings(const char *files) {
    return guild_file_grep("^#{1,3} ", files ? files : "**/*.md", 200);
}

static bool plan(const guild_activation_t *activation, const cJSON *config, guild_plan_t *plan) {
    (void)config;
    guild_passage_t *at = headings(NULL);
    if (!at) return guild_unsupported("%s", guild_last_error()->message);
    char *prompt = guild_format("%s\n\n# Headings of the files\n", guild_system_prompt(activation, activation->task));
    for (; at->path; at++) prompt = guild_format("%s\n%s:%u: %s", prompt, at->path, at->line, at->text);
    plan->system_prompt = prompt;
    return true;
}

GUILD_WORKER(.tools = GUILD_NAMES("Read", "Grep", "Glob"), .plan = plan);

static cJSON *list(const cJSON *input) {
    guild_passage_t *at = headings(guild_text(input, "files"));
    if (!at) return NULL;
    cJSON *result = cJSON_CreateObject(), *all = cJSON_AddArrayToObject(result, "headings");
    for (; at->path; at++) {
        cJSON *heading = cJSON_CreateObject();
        cJSON_AddStringToObject(heading, "path", at->path);
        cJSON_AddNumberToObject(heading, "line", at->line);
        cJSON_AddStringToObject(heading, "text", at->text);
        cJSON_AddItemToArray(all, heading);
    }
    return result;
}

GUILD_TOOLBOX({
    .name = "headings",
    .description = "Lists the headings of Markdown files, to find where to read.",
    .input = GUILD_FIELDS({"files", GUILD_TEXT, "The files, as a glob; all Markdown if it is left out", .optional = true}),
    .output = GUILD_FIELDS({"headings", GUILD_LIST, .fields = GUILD_FIELDS({"heading", GUILD_OBJECT,
        .fields = GUILD_FIELDS({"path", GUILD_TEXT, "The file"},
                               {"line", GUILD_INTEGER, "The number of the line, from 1"},
                               {"text", GUILD_TEXT, "The heading, with its `#`"})})}),
    .read_only = true,
    .call = list,
});
