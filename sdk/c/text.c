// Memory, texts and faults.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

void *guild_alloc(size_t size) {
    void *memory = calloc(1, size > 0 ? size : 1);
    if (memory == NULL) {
        guild_fail("out of memory: %zu bytes were asked for", size);
    }
    return memory;
}

char *guild_format_values(const char *format, va_list values) {
    va_list again;
    va_copy(again, values);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0) {
        guild_fail("the format \"%s\" does not fit its values", format);
    }
    char *text = guild_alloc((size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, format, values);
    return text;
}

char *guild_format(const char *format, ...) {
    va_list values;
    va_start(values, format);
    char *text = guild_format_values(format, values);
    va_end(values);
    return text;
}

_Noreturn void guild_fail(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    abort();
}

char *guild_from_host(bindings_string_t text) {
    char *copy = guild_alloc(text.len + 1);
    memcpy(copy, text.ptr, text.len);
    return copy;
}

bindings_string_t guild_to_host(const char *text) {
    return (bindings_string_t){(uint8_t *)text, strlen(text)};
}

const char **guild_names_from_host(bindings_list_string_t names) {
    const char **copies = guild_alloc((names.len + 1) * sizeof *copies);
    for (size_t i = 0; i < names.len; i++) {
        copies[i] = guild_from_host(names.ptr[i]);
    }
    return copies;
}

// The length of the white space of Unicode at the start of a text, in bytes.
static size_t white_space(const char *text) {
    static const char *const wide[] = { // U+0085, U+00A0, U+1680, U+2000 to U+200A, U+2028, U+2029, U+202F, ...
        "\xc2\x85", "\xc2\xa0", "\xe1\x9a\x80", "\xe2\x80\x80", "\xe2\x80\x81", "\xe2\x80\x82", "\xe2\x80\x83",
        "\xe2\x80\x84", "\xe2\x80\x85", "\xe2\x80\x86", "\xe2\x80\x87", "\xe2\x80\x88", "\xe2\x80\x89", "\xe2\x80\x8a",
        "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80",
    };
    if (*text == ' ' || (*text >= '\t' && *text <= '\r')) {
        return 1;
    }
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        if (strncmp(text, wide[i], strlen(wide[i])) == 0) {
            return strlen(wide[i]);
        }
    }
    return 0;
}

char *guild_trimmed(const char *text) {
    for (size_t space; (space = white_space(text)) > 0;) {
        text += space;
    }
    const char *end = text;
    for (const char *at = text; *at != '\0';) {
        size_t space = white_space(at);
        at += space > 0 ? space : 1;
        end = space > 0 ? end : at;
    }
    return guild_format("%.*s", (int)(end - text), text);
}
