// Exports `dispatch`: converts the activation, and answers with the plan or the refusal.

#include <string.h>

#include "internal.h"

static const guild_worker_t *the_worker;
static exports_guild_worker_dispatch_refusal_t refusal;
static bool is_refused;

static bool refuse(uint8_t kind, const char *text) {
    is_refused = true;
    refusal.tag = kind;
    refusal.val.unsupported = guild_to_host(text);
    return false;
}

bool guild_refuse(const char *format, ...) {
    va_list values;
    va_start(values, format);
    const char *text = guild_format_values(format, values);
    va_end(values);
    return refuse(GUILD_WORKER_TYPES_REFUSAL_INVALID_CONFIG, text);
}

bool guild_unsupported(const char *format, ...) {
    va_list values;
    va_start(values, format);
    const char *text = guild_format_values(format, values);
    va_end(values);
    return refuse(GUILD_WORKER_TYPES_REFUSAL_UNSUPPORTED, text);
}

static guild_bounds_t bounds_from_host(guild_worker_types_bounds_t bounds) {
    return (guild_bounds_t){
        .max_turns = bounds.max_turns.is_some ? bounds.max_turns.val : 0,
        .max_budget_usd = bounds.max_budget_usd.is_some ? bounds.max_budget_usd.val : 0,
        .deadline_seconds = bounds.deadline_seconds.is_some ? bounds.deadline_seconds.val : 0,
    };
}

static guild_worker_types_bounds_t bounds_to_host(guild_bounds_t bounds) {
    return (guild_worker_types_bounds_t){
        .max_turns = {bounds.max_turns != 0, bounds.max_turns},
        .max_budget_usd = {bounds.max_budget_usd != 0, bounds.max_budget_usd},
        .deadline_seconds = {bounds.deadline_seconds != 0, bounds.deadline_seconds},
    };
}

// The smaller value of each bound. A bound that only one side sets applies.
static guild_bounds_t smaller(guild_bounds_t a, guild_bounds_t b) {
#define LEAST(name) (a.name == 0 || (b.name != 0 && b.name < a.name) ? b.name : a.name)
    return (guild_bounds_t){LEAST(max_turns), LEAST(max_budget_usd), LEAST(deadline_seconds)};
#undef LEAST
}

static guild_activation_t activation_from_host(const exports_guild_worker_dispatch_activation_t *from) {
    const guild_worker_types_commission_t *commission = &from->context.val.commission;
    guild_activation_t to = {
        .job = guild_from_host(commission->job),
        .description = guild_from_host(commission->request.description),
        .task = guild_from_host(commission->request.task),
        .posture = guild_from_host(from->posture),
        .granted_tools = guild_names_from_host(from->granted_tools),
        .bounds = bounds_from_host(from->bounds),
    };
    if (commission->attempt.is_some) {
        const guild_worker_types_attempt_t *attempt = &commission->attempt.val;
        guild_attempt_t *copy = guild_alloc(sizeof *copy);
        *copy = (guild_attempt_t){guild_from_host(attempt->commission), attempt->number,
                                  guild_names_from_host(attempt->dependencies)};
        to.attempt = copy;
    }
    if (from->project.is_some) {
        guild_project_t *copy = guild_alloc(sizeof *copy);
        *copy = (guild_project_t){guild_from_host(from->project.val.name), guild_from_host(from->project.val.root)};
        to.project = copy;
    }
    guild_note_t *notes = guild_alloc((from->memories.len + 1) * sizeof *notes);
    for (size_t i = 0; i < from->memories.len; i++) {
        const guild_worker_types_memory_note_t *note = &from->memories.ptr[i];
        notes[i] = (guild_note_t){
            .key = guild_from_host(note->key),
            .content = guild_from_host(note->content),
            .modified = guild_from_host(note->modified),
            .origin = note->origin.is_some ? guild_from_host(note->origin.val) : NULL,
            .scope = note->scope,
        };
    }
    to.memories = notes;
    guild_tool_info_t *tools = guild_alloc((from->toolbox_tools.len + 1) * sizeof *tools);
    for (size_t i = 0; i < from->toolbox_tools.len; i++) {
        const guild_worker_types_tool_definition_t *tool = &from->toolbox_tools.ptr[i];
        tools[i] = (guild_tool_info_t){
            .name = guild_from_host(tool->name),
            .description = guild_from_host(tool->description),
            .input_schema = guild_from_host(tool->input_schema),
            .output_schema = tool->output_schema.is_some ? guild_from_host(tool->output_schema.val) : NULL,
        };
    }
    to.toolbox_tools = tools;
    return to;
}

// The granted tools among the requested ones.
static bindings_list_string_t granted(bindings_list_string_t tools, const char *const *wanted) {
    bindings_list_string_t both = {guild_alloc(tools.len * sizeof *both.ptr), 0};
    for (size_t i = 0; i < tools.len; i++) {
        const char *tool = guild_from_host(tools.ptr[i]);
        for (const char *const *one = wanted; one != NULL && *one != NULL; one++) {
            if (strcmp(tool, *one) == 0) {
                both.ptr[both.len++] = tools.ptr[i];
                break;
            }
        }
    }
    return both;
}

static bindings_list_string_t names_of(guild_worker_types_list_tool_definition_t tools) {
    bindings_list_string_t names = {guild_alloc(tools.len * sizeof *names.ptr), tools.len};
    for (size_t i = 0; i < tools.len; i++) {
        names.ptr[i] = tools.ptr[i].name;
    }
    return names;
}

bool exports_guild_worker_dispatch_activate(exports_guild_worker_dispatch_activation_t *from,
                                            exports_guild_worker_dispatch_plan_t *ret,
                                            exports_guild_worker_dispatch_refusal_t *err) {
    guild_bounds_t asked = {0};
    guild_plan_t plan = {0};
    if (from->context.tag != GUILD_WORKER_TYPES_CONTEXT_COMMISSION) {
        guild_unsupported("this worker takes commissions, not meetings");
        *err = refusal;
        return false;
    }
    guild_activation_t activation = activation_from_host(from);
    cJSON *config;
    const char *text = guild_from_host(from->context.val.commission.request.config);
    const char *refused = guild_check_config(text, the_worker->config, &config, &asked);
    if (refused != NULL) {
        guild_refuse("%s", refused);
    } else if (the_worker->plan != NULL && !the_worker->plan(&activation, config, &plan) && !is_refused) {
        const guild_error_t *error = guild_last_error();
        guild_fail("%s", error != NULL ? error->message : "plan answered false: use `return guild_refuse(...)`");
    }
    if (is_refused) {
        *err = refusal;
        return false;
    }
    ret->tag = GUILD_WORKER_TYPES_PLAN_SESSION;
    ret->val.session = (guild_worker_types_session_plan_t){
        .system_prompt = guild_to_host(plan.system_prompt != NULL ? plan.system_prompt
                                                                  : guild_system_prompt(&activation, activation.task)),
        .prompt = guild_to_host(plan.prompt != NULL ? plan.prompt : activation.task),
        .tools = granted(from->granted_tools, the_worker->tools),
        .toolbox_tools = names_of(from->toolbox_tools),
        .bounds = bounds_to_host(smaller(smaller(asked, plan.bounds), activation.bounds)),
    };
    if (plan.model != NULL) {
        ret->val.session.model = (bindings_option_string_t){true, guild_to_host(plan.model)};
    }
    return true;
}

uint8_t *guild_activate(const guild_worker_t *worker, uint8_t *activation) {
    guild_start();
    the_worker = worker;
    return __wasm_export_exports_guild_worker_dispatch_activate(activation);
}
