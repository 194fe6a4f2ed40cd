// System prompts of agent sessions: posture, task, memories, and instructions for the internal tools.

#include <string.h>

#include "internal.h"
#include "texts.h"

// The scope of a note and its origin. The host itself writes the notes `compacted` and `left-out`.
static char *heading(const guild_note_t *note) {
    static const char *const scopes[] = {"worker", "project", "global"};
    if (strcmp(note->key, "left-out") == 0 && note->scope == GUILD_WORKER_SCOPE && note->origin == NULL) {
        return guild_format("[said by the host, %s]", note->modified);
    }
    const char *origin = "of unknown origin";
    if (note->origin != NULL) {
        origin = guild_format("from job %s", note->origin);
    } else if (strcmp(note->key, "compacted") == 0) {
        origin = "condensed by the host from earlier notes";
    }
    return guild_format("[%s note `%s`, %s, %s]", scopes[note->scope], note->key, origin, note->modified);
}

// The section of memories. Each line of a note is quoted, so that it cannot pass for a line of the prompt.
static char *memories(const guild_note_t *notes) {
    char *section = guild_format("%s", memories_heading);
    for (; notes->key != NULL; notes++) {
        section = guild_format("%s\n\n---\n\n%s\n", section, heading(notes));
        const char *line = guild_trimmed(notes->content);
        while (*line != '\0') {
            const char *end = strchr(line, '\n');
            size_t length = end == NULL ? strlen(line) : (size_t)(end - line);
            size_t shown = end != NULL && length > 0 && line[length - 1] == '\r' ? length - 1 : length;
            section = guild_format("%s\n> %.*s", section, (int)shown, line);
            line += end == NULL ? length : length + 1;
        }
    }
    return guild_format("%s\n\n---", section);
}

char *guild_background(const guild_activation_t *activation, const char *task) {
    const char *prompt = guild_trimmed(activation->posture);
    if (*prompt != '\0') {
        prompt = guild_format("%s\n\n", prompt);
    }
    if (activation->project != NULL) {
        const guild_project_t *project = activation->project;
        prompt = guild_format("%s# Project\n\n%s; its files are under `%s/`.\n\n", prompt, project->name,
                              project->root);
    }
    char *whole = guild_format("%s# Task\n\n%s", prompt, guild_trimmed(task));
    if (activation->memories->key != NULL) {
        whole = guild_format("%s\n\n%s", whole, memories(activation->memories));
    }
    return whole;
}

char *guild_system_prompt(const guild_activation_t *activation, const char *task) {
    const char *instructions = activation->project != NULL ? commission_instructions : tool_instructions;
    return guild_format("%s\n\n# How you work\n\n%s", guild_background(activation, task), instructions);
}
