"""A toolbox that counts words."""

from dataclasses import dataclass
from typing import Annotated

from guild.toolbox import InvalidInput, Toolbox, tool


@dataclass
class Count:
    words: Annotated[int, "How many there are"]


@tool(read_only=True)
def count(
    text: Annotated[str, "The text to count in", {"maxLength": 100_000}],
    word: Annotated[str | None, "Count this word alone"] = None,
) -> Count:
    """Counts the words of a text, or how often it has one word."""
    if word == "":
        raise InvalidInput("`word` is empty: leave it out to count all words")
    return Count(sum(word in (None, one) for one in text.split()))
