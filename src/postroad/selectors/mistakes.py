"""What people who know SQL or a programming language may write, and what to write instead."""

from __future__ import annotations

from unicodedata import name as unicode_name

from postroad.selectors.lexer import hyphenated

__all__ = ["HINTS", "character_hint", "doubts", "name_doubts", "shown", "topic_doubts"]

HINTS = {
    "==": "write = to compare",
    "!=": "write <> for not equal",
    "=<": "write <= for at most",
    "=>": "write >= for at least",
    "&&": "write AND",
    "||": "write OR",
    "&": "write AND",
    "|": "write OR",
    "!": "write NOT",
    "`": "write names without quotes",
    "%": "there is no remainder; % has a meaning only inside a LIKE pattern",
    ";": "a selector is one condition, without a semicolon",
    "?": "there are no parameters; write the value itself",
    "NULL": "write IS NULL or IS NOT NULL to ask whether an attribute is missing",
}

_CURLY_QUOTES = "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u00b4"


def character_hint(character: str) -> str:
    """Return the hint for a character that no name can have."""
    if character in _CURLY_QUOTES:
        return "write texts in plain single quotes, as 'this'"
    return f"the character {unicode_name(character, f'U+{ord(character):04X}')} cannot be in a name"


def shown(token: str) -> str:
    """Return a token as errors show it."""
    if not token:
        return "the end of the selector"
    if len(token) > 24:
        token = f"{token[:20]}…"
    # Texts have their own quotes; anything else that cannot be printed is spelled out.
    if not token.isprintable():
        return ascii(token)
    return token if token[0] in "'\"" else f"'{token}'"


# Wildcards of MQTT and AMQP, which are ordinary characters here, and the wildcards here.
_FOREIGN_WILDCARDS = {"#": ">", "+": "*"}
# How the second destination of a composite one of ActiveMQ begins.
_FURTHER_DESTINATIONS = ("/topic/", "/queue/", "topic:", "queue:")


def name_doubts(name: str) -> list[str]:
    """Return warnings: parts of a destination of ActiveMQ that are part of the name of a topic or queue here."""
    found = []
    if any(f",{kind}" in name for kind in _FURTHER_DESTINATIONS):
        found.append("a destination is one topic or queue here, and a comma part of its name; use one for each")
    if "?consumer." in name:
        found.append("a question mark is part of the name here; write options as headers, such as prefetch-count:10")
    return found


def topic_doubts(pattern: str) -> list[str]:
    """Return warnings: parts of a valid topic pattern that may mean something else than intended, and what to write."""
    levels = pattern.replace("/", ".").split(".")
    return [
        f"{foreign} is an ordinary character in topics here; {ours} is the wildcard, "
        f"so perhaps you mean {'.'.join(ours if level == foreign else level for level in levels)}"
        for foreign, ours in _FOREIGN_WILDCARDS.items()
        if foreign in levels
    ] + name_doubts(pattern)


def doubts(text: str) -> list[str]:
    """Return warnings: parts of a valid selector that may mean something else than intended, and what to write."""
    if "-" not in text:
        return []
    return [
        f'{name} is read as {" minus ".join(name.split("-"))}; for the attribute of that name write "{name}", '
        f"for the difference {' - '.join(name.split('-'))}"
        for name in dict.fromkeys(hyphenated(text))
    ]
