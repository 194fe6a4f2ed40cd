// A worker that answers questions from the files that it may read.
#include "guild.h"

static bool plan(const guild_activation_t *activation, const cJSON *config, guild_plan_t *plan) {
    const char *focus = guild_text(config, "focus");
    if (focus) plan->prompt = guild_format("%s\n\nConcentrate on: %s", activation->task, focus);
    return true;
}

GUILD_WORKER(
    .config = GUILD_FIELDS({"focus", GUILD_TEXT, "What to concentrate on"}),
    .tools = GUILD_NAMES("Read", "Grep", "Glob"),
    .plan = plan,
);
