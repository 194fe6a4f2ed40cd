// Guild Hall workers and toolboxes in C.
//
// A worker is GUILD_WORKER(...), a toolbox GUILD_TOOLBOX(...), once in a component. A component may be both. It
// imports only the functions that it calls.
//
// Texts are UTF-8 and end with a zero byte. Lists end with an entry whose first field is NULL. The values that the
// SDK returns need no free: each call runs in a fresh instance, whose memory the host drops after the call.

#ifndef GUILD_H
#define GUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cjson/cJSON.h"

#define GUILD_PRINTF(text, values) __attribute__((format(printf, text, values)))

// ---- Fields: the keys of a config, and the inputs and outputs of tools.

typedef enum {
    GUILD_TEXT,    // a text, which is not blank in a config
    GUILD_COUNT,   // a whole number, 1 or more
    GUILD_AMOUNT,  // a number above 0
    GUILD_FLAG,    // true or false
    GUILD_NUMBER,  // a number; this kind and those below are for tools only
    GUILD_INTEGER, // a whole number
    GUILD_LIST,    // a list, whose items have the kind of the first of `fields`
    GUILD_OBJECT,  // an object with `fields`
} guild_kind_t;

typedef struct guild_field {
    const char *name;
    guild_kind_t kind;
    // The description for models and people.
    const char *description;
    // Whether a tool's caller may leave the field out. All keys of a config may be left out.
    bool optional;
    // The bounds of a number, or of the length of a text or a list: GUILD_MIN and GUILD_MAX.
    bool has_min, has_max;
    double min, max;
    // The accepted texts: GUILD_ONE_OF.
    const char *const *values;
    // The fields of a list or an object: GUILD_FIELDS.
    const struct guild_field *fields;
} guild_field_t;

#define GUILD_FIELDS(...) (const guild_field_t[]){__VA_ARGS__, {0}}
#define GUILD_NAMES(...) (const char *const[]){__VA_ARGS__, NULL}
#define GUILD_MIN(n) .has_min = true, .min = (n)
#define GUILD_MAX(n) .has_max = true, .max = (n)
#define GUILD_ONE_OF(...) .values = GUILD_NAMES(__VA_ARGS__)

// A text of an object; NULL if the object has no such text.
const char *guild_text(const cJSON *object, const char *key);
// A number of an object; `otherwise` if the object has no such number.
double guild_number(const cJSON *object, const char *key, double otherwise);
// Whether an object has a flag that is true.
bool guild_flag(const cJSON *object, const char *key);

// ---- Workers. A worker checks dispatches and plans their sessions, which the host runs.

// The bounds of a job. Zero is a bound that is not set.
typedef struct {
    uint32_t max_turns;
    double max_budget_usd;
    uint32_t deadline_seconds;
} guild_bounds_t;

typedef enum { GUILD_WORKER_SCOPE, GUILD_PROJECT_SCOPE, GUILD_GLOBAL_SCOPE } guild_scope_t;

// A memory. It is a note from earlier work, not an instruction.
typedef struct {
    const char *key, *content;
    // The time of writing: RFC 3339 in UTC.
    const char *modified;
    // The job that stored the memory, or NULL if the job is not known.
    const char *origin;
    guild_scope_t scope;
} guild_note_t;

// A tool of the member's toolboxes.
typedef struct {
    const char *name, *description;
    // JSON Schemas; the second is NULL if the output has none.
    const char *input_schema, *output_schema;
} guild_tool_info_t;

// An attempt at a commission of a project.
typedef struct {
    const char *commission;
    uint32_t number;
    // Ids of commissions and paths of artifacts that the commission builds on.
    const char *const *dependencies;
} guild_attempt_t;

// The project that the work belongs to.
typedef struct {
    const char *name;
    // The first part of the paths of its files.
    const char *root;
} guild_project_t;

// The host's description of a dispatch.
typedef struct {
    const char *job, *description, *task;
    // The member's posture.md, which describes the worker.
    const char *posture;
    // NULL outside of a commission.
    const guild_attempt_t *attempt;
    // NULL outside of a project.
    const guild_project_t *project;
    // The memories that belong in the system prompt, newest first.
    const guild_note_t *memories;
    // The built-in tools that the worker's sessions may be given.
    const char *const *granted_tools;
    const guild_tool_info_t *toolbox_tools;
    // The ceiling of the job.
    guild_bounds_t bounds;
} guild_activation_t;

// The plan of a job's session. The comments name the defaults.
typedef struct {
    const char *prompt;        // the task
    const char *system_prompt; // posture, task, memories, and how to use the internal tools
    const char *model;         // the operator's model
    guild_bounds_t bounds;     // the bounds of the job
} guild_plan_t;

typedef struct {
    // The keys of a dispatch's config. maxTurns, maxBudgetUsd and deadlineSeconds are accepted too, other keys are refused.
    const guild_field_t *config;
    // The built-in tools of its sessions, of which they are given the granted ones.
    const char *const *tools;
    // Fills in the plan and returns true, or returns guild_refuse(...). With NULL, each dispatch has the plan's defaults.
    bool (*plan)(const guild_activation_t *activation, const cJSON *config, guild_plan_t *plan);
} guild_worker_t;

// The component's worker: GUILD_WORKER(.config = ..., .tools = ..., .plan = ...);
#define GUILD_WORKER(...)                                                                                              \
    static const guild_worker_t guild_the_worker = {__VA_ARGS__};                                                      \
    GUILD_EXPORT("guild:worker/dispatch@0.1.0#activate")                                                               \
    uint8_t *guild_export_activate(uint8_t *activation) { return guild_activate(&guild_the_worker, activation); }      \
    extern int guild_semicolon

// Refuses a config. The text names the key, and the accepted values.
bool guild_refuse(const char *format, ...) GUILD_PRINTF(1, 2);
// Refuses work that the worker does not do. The text says what it does.
bool guild_unsupported(const char *format, ...) GUILD_PRINTF(1, 2);

// The system prompt of a session that has the internal tools: its background, and the instructions for these tools.
char *guild_system_prompt(const guild_activation_t *activation, const char *task);
// The background of every session: the worker's identity, its project, its task, and its memories.
char *guild_background(const guild_activation_t *activation, const char *task);

// ---- Toolboxes. A tool is a function from an input to a result.

typedef struct {
    const char *name;
    // A name for people; may be NULL.
    const char *title;
    // The description for models: what the tool does, and when to use it.
    const char *description;
    const guild_field_t *input;
    // NULL if the result is not an object.
    const guild_field_t *output;
    // Whether the tool changes nothing, so that calls may run side by side.
    bool read_only;
    // Returns the result, or an error by guild_tool_error(...). The host has checked the input.
    cJSON *(*call)(const cJSON *input);
} guild_tool_t;

// The component's tools: GUILD_TOOLBOX({.name = ..., .description = ..., .call = ...}, ...);
#define GUILD_TOOLBOX(...)                                                                                             \
    static const guild_tool_t guild_the_tools[] = {__VA_ARGS__, {0}};                                                  \
    GUILD_EXPORT("guild:worker/toolbox@0.1.0#list-tools")                                                              \
    uint8_t *guild_export_list_tools(void) { return guild_list_tools(guild_the_tools); }                               \
    GUILD_EXPORT("guild:worker/toolbox@0.1.0#call-tool")                                                               \
    uint8_t *guild_export_call_tool(uint8_t *name, size_t name_length, uint8_t *input, size_t input_length) {          \
        return guild_call_tool(guild_the_tools, name, name_length, input, input_length);                               \
    }                                                                                                                  \
    extern int guild_semicolon

// The failure of a tool. The text is the reason.
cJSON *guild_tool_error(const char *format, ...) GUILD_PRINTF(1, 2);
// The refusal of an input. The text names the field, and the accepted values.
cJSON *guild_invalid_input(const char *format, ...) GUILD_PRINTF(1, 2);

// ---- Functions of the host. After a failure a function returns NULL, and guild_last_error has the reason. A tool that
// ---- then returns NULL fails with this reason.

typedef enum {
    GUILD_INVALID_INPUT, // the argument is not acceptable
    GUILD_NOT_GRANTED,   // the manifest does not request it, or the operator did not grant it
    GUILD_OVER_LIMIT,    // a size or a count is over a limit
    GUILD_NO_JOB,        // no job exists in a plan or a tool call
    GUILD_JOB_ENDED,     // the job is no longer running
    GUILD_UNAVAILABLE,   // the host failed
} guild_error_kind_t;

typedef struct {
    guild_error_kind_t kind;
    const char *message;
} guild_error_t;

// The error of the last function of the host; NULL after a success.
const guild_error_t *guild_last_error(void);

// Lines `offset` to `offset + limit` of a text file below the granted read roots, each with its number.
char *guild_file_read(const char *path, uint32_t offset, uint32_t limit);

typedef struct {
    const char *path;
    // The number of the line, from 1.
    uint32_t line;
    const char *text;
} guild_passage_t;

// At most `limit` lines that match a regular expression, in all files or in the files whose paths match `glob`.
guild_passage_t *guild_file_grep(const char *pattern, const char *glob, uint32_t limit);
// At most `limit` paths of files that match a pattern, newest first.
const char **guild_file_glob(const char *pattern, uint32_t limit);

// The text of a memory; NULL without an error if there is no such memory. A plan or a tool call stores no memories.
char *guild_memory_load(guild_scope_t scope, const char *key);

typedef struct {
    const char *key;
    uint64_t bytes;
    const char *modified;
} guild_entry_t;

// All memories of a scope, newest first.
guild_entry_t *guild_memory_list(guild_scope_t scope);

typedef struct {
    const char *title, *url, *snippet;
} guild_hit_t;

// Searches the web: at most `limit` hits, best first.
guild_hit_t *guild_web_search(const char *query, uint32_t limit);
// The main text of a page as Markdown.
char *guild_web_fetch(const char *url);

typedef enum { GUILD_DEBUG, GUILD_INFO, GUILD_WARN, GUILD_ERROR } guild_level_t;

// Writes a line into the host's log.
void guild_log(guild_level_t level, const char *format, ...) GUILD_PRINTF(2, 3);

// ---- Memory, texts, and faults.

// Zeroed memory, which is valid until the call ends.
void *guild_alloc(size_t size);
// A text by a format of printf.
char *guild_format(const char *format, ...) GUILD_PRINTF(1, 2);
// Ends the call. The text goes to stderr, which the host quotes in the error of the call. An assert does the same.
_Noreturn void guild_fail(const char *format, ...) GUILD_PRINTF(1, 2);

// ---- The expansions of the macros.

#define GUILD_EXPORT(name) __attribute__((export_name(name)))

uint8_t *guild_activate(const guild_worker_t *worker, uint8_t *activation);
uint8_t *guild_list_tools(const guild_tool_t *tools);
uint8_t *guild_call_tool(const guild_tool_t *tools, uint8_t *name, size_t name_length, uint8_t *input,
                         size_t input_length);

#endif
