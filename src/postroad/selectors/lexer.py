"""Splits a selector into tokens, in one pass of one regular expression.

A token is just its text. Only errors need positions, so an error scans the text again to find its place. Characters
that are not part of the language become tokens too: the parser then names them in its error.
"""

from __future__ import annotations

import re
from itertools import product
from unicodedata import category

__all__ = [
    "KEYWORDS",
    "RESERVED",
    "hyphenated",
    "name_mistake",
    "needs_quotes",
    "position_of",
    "spellings",
    "tokens_of",
]

# Blanks between tokens match no alternative. Possessive repetition keeps the time linear for an unterminated text.
_TOKEN = re.compile(
    r"""[A-Za-z_$\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*"""  # a name or a keyword
    r"""|'[^']*+(?:''[^']*+)*+'"""  # a text
    r"""|"[^"]*+(?:""[^"]*+)*+\""""  # a name in double quotes
    r"""|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[A-Za-z0-9_$\x80-\U0010ffff]*"""  # a number
    r"""|<>|<=|>=|==|!=|=<|=>|&&|\|\||[^ \t\n\r\f]"""
)

# Most names; they need no check of Unicode categories.
_PLAIN_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")

RESERVED = ("NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE")


def spellings(word: str) -> list[str]:
    """Return the word in all combinations of upper and lower case."""
    return ["".join(letters) for letters in product(*({letter, letter.lower()} for letter in word))]


# A list of all spellings, because case folding would also turn letters such as the long s into ASCII ones.
KEYWORDS = {spelling: word for word in RESERVED for spelling in spellings(word)}


def tokens_of(text: str) -> list[str]:
    """Return the tokens in order, then an empty token as the end mark."""
    tokens = _TOKEN.findall(text)
    tokens.append("")
    return tokens


def position_of(text: str, index: int) -> int:
    """Return where token number `index` starts; for the end mark, where the last token ends."""
    end = 0
    for number, found in enumerate(_TOKEN.finditer(text)):
        if number == index:
            return found.start()
        end = found.end()
    return end


def hyphenated(text: str) -> list[str]:
    """Return names joined by hyphens, such as `content-type`: they are differences here, which is rarely meant."""
    found: list[str] = []
    run: list[str] = []
    end = -1
    for token in [*_TOKEN.finditer(text), None]:
        word = token[0] if token else ""
        wants_name = len(run) % 2 == 0
        if run and token and token.start() == end and (_PLAIN_NAME.fullmatch(word) if wants_name else word == "-"):
            run.append(word)
        else:
            if len(run) > 2:
                found.append("".join(run[: len(run) - (len(run) % 2 == 0)]))
            run = [word] if _PLAIN_NAME.fullmatch(word) and word not in KEYWORDS else []
        end = token.end() if token else -1
    return found


# Java's rule for identifiers by Unicode category: letters, letter numbers, currency signs and connectors may start one;
# digits and combining marks may follow. (Java also allows invisible format characters, which make different
# names look alike.)
_MAY_START = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"))
_MAY_FOLLOW = _MAY_START | {"Nd", "Mn", "Mc"}


def name_mistake(name: str) -> int | None:
    """Return the index of the first character that a name cannot have there, or None."""
    for index, character in enumerate(name):
        if category(character) not in (_MAY_FOLLOW if index else _MAY_START):
            return index
    return None


def needs_quotes(name: str) -> bool:
    """Whether an attribute's name can be written only in double quotes: it is not an identifier, or a reserved word."""
    if name in KEYWORDS or not name:
        return True
    return not _PLAIN_NAME.fullmatch(name) and name_mistake(name) is not None
