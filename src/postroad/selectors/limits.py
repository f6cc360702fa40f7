"""The limits of a selector, each with its reason. The error of a selector over a limit names the limit."""

from __future__ import annotations

__all__ = [
    "MAX_CONJUNCTIONS",
    "MAX_EXPANDED_CONSTRAINTS",
    "MAX_IN_VALUES",
    "MAX_LIKE_LENGTH",
    "MAX_NAME_BYTES",
    "MAX_NESTING",
    "MAX_SELECTOR_LENGTH",
    "MAX_TERMS",
]

# Characters, of the text and of its canonical form: other brokers and later processes parse that form again. A selector
# arrives as one header line of a SUBSCRIBE frame. This is several times what common brokers allow in one, and still
# parses in some ten milliseconds, so that one client cannot hold up the others.
MAX_SELECTOR_LENGTH = 32_768

# Open parentheses, NOTs and signs around one place. The parser uses at most four Python frames per level and the walks
# over the tree at most six, so that 64 levels leave a caller hundreds of the 1,000 frames that Python allows.
MAX_NESTING = 64

# Texts in one IN list.
MAX_IN_VALUES = 1_024

# Characters of a LIKE pattern, without escapes. Its parts are searched in time linear in the attribute's text; only a
# part with `_` in it costs a step more for each 64 bytes of the part.
MAX_LIKE_LENGTH = 1_024

# Conditions joined by AND and OR, and operands joined by arithmetic, in the whole selector. Walks over the tree are
# linear in this number. Parsing a condition and adding it to an index takes up to some 40 microseconds, so that the
# largest selector holds a broker for less than a turn (`turn_ms`). IN takes lists of texts that are longer than this.
MAX_TERMS = 1_024

# The length of an attribute's name has one byte in an encoded message, so no attribute has a longer name.
MAX_NAME_BYTES = 255

# Constraints in all those alternatives together: each is a row to find or make when a subscription is added, at some
# microseconds, while all other connections wait. Beyond it, fewer alternatives are made.
MAX_EXPANDED_CONSTRAINTS = 4_096

# Alternatives that an OR-heavy selector is expanded into for an index; beyond it, the widest ORs are evaluated instead.
# Expansion can be exponential in the selector's length, so it needs a bound; at 64 it still costs less than the index
# saves.
MAX_CONJUNCTIONS = 64
