// A toolbox that counts words.
#include "guild.h"

static cJSON *count(const cJSON *input) {
    static const char space[] = " \t\n\v\f\r";
    const char *text = guild_text(input, "text"), *word = guild_text(input, "word");
    if (word && !*word) return guild_invalid_input("`word` is empty: leave it out to count all words");
    int words = 0;
    for (text += strspn(text, space); *text; text += strspn(text, space)) {
        size_t length = strcspn(text, space);
        words += !word || (strlen(word) == length && !memcmp(text, word, length));
        text += length;
    }
    cJSON *result = cJSON_CreateObject();
    cJSON_AddNumberToObject(result, "words", words);
    return result;
}

GUILD_TOOLBOX({
    .name = "count",
    .description = "Counts the words of a text, or how often it has one word.",
    .input = GUILD_FIELDS({"text", GUILD_TEXT, "The text to count in", GUILD_MAX(100000)},
                          {"word", GUILD_TEXT, "Count this word alone", .optional = true}),
    .output = GUILD_FIELDS({"words", GUILD_INTEGER, "How many there are", GUILD_MIN(0)}),
    .read_only = true,
    .call = count,
});
