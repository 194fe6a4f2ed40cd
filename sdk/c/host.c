// Functions of the host: files, memory, the web, and the log.

#include "internal.h"

static guild_error_t last_error;
static bool has_failed;

const guild_error_t *guild_last_error(void) {
    return has_failed ? &last_error : NULL;
}

// Stores the error of a function of the host, and returns whether the function succeeded.
static bool worked(bool is_ok, const guild_worker_types_host_error_t *error) {
    has_failed = !is_ok;
    if (is_ok) {
        return true;
    }
    last_error.kind = error->tag;
    switch (last_error.kind) {
    case GUILD_NOT_GRANTED:
        last_error.message = guild_format("not granted: %s", guild_from_host(error->val.not_granted));
        break;
    case GUILD_OVER_LIMIT:
        last_error.message = guild_format("over a limit: %s", guild_from_host(error->val.over_limit));
        break;
    case GUILD_NO_JOB:
        last_error.message = "this host function needs a job: call it in `run`, not in a plan or a tool call";
        break;
    case GUILD_JOB_ENDED:
        last_error.message = "the job is no longer running";
        break;
    default:
        last_error.message = guild_from_host(error->val.invalid_input);
    }
    return false;
}

char *guild_file_read(const char *path, uint32_t offset, uint32_t limit) {
    bindings_string_t from = guild_to_host(path), text;
    guild_worker_types_host_error_t error;
    bool is_ok = guild_worker_files_read(&from, offset, limit, &text, &error);
    return worked(is_ok, &error) ? guild_from_host(text) : NULL;
}

guild_passage_t *guild_file_grep(const char *pattern, const char *glob, uint32_t limit) {
    bindings_string_t of = guild_to_host(pattern), in = guild_to_host(glob == NULL ? "" : glob);
    guild_worker_files_list_passage_t found;
    guild_worker_types_host_error_t error;
    bool is_ok = guild_worker_files_grep(&of, glob == NULL ? NULL : &in, limit, &found, &error);
    if (!worked(is_ok, &error)) {
        return NULL;
    }
    guild_passage_t *passages = guild_alloc((found.len + 1) * sizeof *passages);
    for (size_t i = 0; i < found.len; i++) {
        passages[i] = (guild_passage_t){guild_from_host(found.ptr[i].path), found.ptr[i].line,
                                        guild_from_host(found.ptr[i].text)};
    }
    return passages;
}

const char **guild_file_glob(const char *pattern, uint32_t limit) {
    bindings_string_t of = guild_to_host(pattern);
    bindings_list_string_t paths;
    guild_worker_types_host_error_t error;
    bool is_ok = guild_worker_files_glob(&of, limit, &paths, &error);
    return worked(is_ok, &error) ? guild_names_from_host(paths) : NULL;
}

char *guild_memory_load(guild_scope_t scope, const char *key) {
    bindings_string_t under = guild_to_host(key);
    bindings_option_string_t text;
    guild_worker_types_host_error_t error;
    bool is_ok = guild_worker_memory_load((guild_worker_types_scope_t)scope, &under, &text, &error);
    return worked(is_ok, &error) && text.is_some ? guild_from_host(text.val) : NULL;
}

guild_entry_t *guild_memory_list(guild_scope_t scope) {
    guild_worker_memory_list_entry_t found;
    guild_worker_types_host_error_t error;
    bool is_ok = guild_worker_memory_list((guild_worker_types_scope_t)scope, &found, &error);
    if (!worked(is_ok, &error)) {
        return NULL;
    }
    guild_entry_t *entries = guild_alloc((found.len + 1) * sizeof *entries);
    for (size_t i = 0; i < found.len; i++) {
        entries[i] = (guild_entry_t){guild_from_host(found.ptr[i].key), found.ptr[i].bytes,
                                     guild_from_host(found.ptr[i].modified)};
    }
    return entries;
}

guild_hit_t *guild_web_search(const char *query, uint32_t limit) {
    bindings_string_t of = guild_to_host(query);
    guild_worker_web_list_hit_t found;
    guild_worker_types_host_error_t error;
    bool is_ok = guild_worker_web_search(&of, limit, &found, &error);
    if (!worked(is_ok, &error)) {
        return NULL;
    }
    guild_hit_t *hits = guild_alloc((found.len + 1) * sizeof *hits);
    for (size_t i = 0; i < found.len; i++) {
        hits[i] = (guild_hit_t){guild_from_host(found.ptr[i].title), guild_from_host(found.ptr[i].url),
                                guild_from_host(found.ptr[i].snippet)};
    }
    return hits;
}

char *guild_web_fetch(const char *url) {
    bindings_string_t address = guild_to_host(url), text;
    guild_worker_types_host_error_t error;
    bool is_ok = guild_worker_web_fetch(&address, &text, &error);
    return worked(is_ok, &error) ? guild_from_host(text) : NULL;
}

void guild_log(guild_level_t level, const char *format, ...) {
    va_list values;
    va_start(values, format);
    bindings_string_t line = guild_to_host(guild_format_values(format, values));
    va_end(values);
    guild_worker_log_write((guild_worker_log_level_t)level, &line);
}
