"""Cutting a selector into tokens, in one pass of one expression.

A token is just its text: without an error positions are not needed, so the text is scanned for them again only when
there is an error to point at. What is not a token of the language still becomes one, for the parser to refuse by name.
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

# Blanks between tokens are what no alternative matches. Possessive repetition keeps an unterminated text linear.
_TOKEN = re.compile(
    r"""[A-Za-z_$\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*"""  # a name or a keyword
    r"""|'[^']*+(?:''[^']*+)*+'"""  # a text
    r"""|"[^"]*+(?:""[^"]*+)*+\""""  # a name in double quotes
    r"""|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[A-Za-z0-9_$\x80-\U0010ffff]*"""  # a number
    r"""|<>|<=|>=|==|!=|=<|=>|&&|\|\||[^ \t\n\r\f]"""
)

# Most names: no look at Unicode categories is needed.
_PLAIN_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")

RESERVED = ("NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE")


def spellings(word: str) -> list[str]:
    """The word in every mixture of upper and lower case."""
    return ["".join(letters) for letters in product(*({letter, letter.lower()} for letter in word))]


# Every spelling is listed, since folding case would also fold letters such as the long s into ASCII ones.
KEYWORDS = {spelling: word for word in RESERVED for spelling in spellings(word)}


def tokens_of(text: str) -> list[str]:
    """The tokens in order, then one empty token as the end mark."""
    tokens = _TOKEN.findall(text)
    tokens.append("")
    return tokens


def position_of(text: str, index: int) -> int:
    """Where token number `index` starts; the end of the text's last token when it is the end mark."""
    end = 0
    for number, found in enumerate(_TOKEN.finditer(text)):
        if number == index:
            return found.start()
        end = found.end()
    return end


def hyphenated(text: str) -> list[str]:
    """Names joined by hyphens without blanks, such as `content-type`: read as differences, and seldom meant so."""
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
# digits and combining marks may follow. (Java also lets invisible format characters in; a name that looks like another
# but is not helps nobody.)
_MAY_START = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"))
_MAY_FOLLOW = _MAY_START | {"Nd", "Mn", "Mc"}


def name_mistake(name: str) -> int | None:
    """The index of the first character that a name cannot have there, or None when the name is good."""
    for index, character in enumerate(name):
        if category(character) not in (_MAY_FOLLOW if index else _MAY_START):
            return index
    return None


def needs_quotes(name: str) -> bool:
    """Whether an attribute's name can be written only in double quotes: it is not an identifier, or a reserved word."""
    if name in KEYWORDS or not name:
        return True
    return not _PLAIN_NAME.fullmatch(name) and name_mistake(name) is not None
