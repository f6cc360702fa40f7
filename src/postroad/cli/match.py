"""`postroad match`: try a selector without a broker."""

from __future__ import annotations

from typing import Annotated

import typer

from postroad.cli.connection import Attributes, read_attributes
from postroad.cli.output import AsJson, echo_json

__all__ = ["match", "point_out_doubts"]

EXIT_NO_MATCH = 1


def match(
    selector: Annotated[str, typer.Argument(metavar="SELECTOR", help="Such as: price > 20 AND stock = 'S1'.")],
    attribute: Attributes = None,
    as_json: AsJson = False,
) -> None:
    """Check a selector: print its canonical form, or point at the mistake.

    With attributes, also say whether a message with them would match (as text, as STOMP sends them); if not, the exit
    code is 1.
    """
    from postroad.messages import Untyped
    from postroad.selectors import Selector

    parsed = Selector.parse(selector)
    point_out_doubts(selector)
    given = read_attributes(attribute)
    truth = parsed.evaluate({name: Untyped(value) for name, value in given.items()})
    answer = "unknown" if truth is None else str(truth).lower()
    if as_json:
        echo_json({"selector": str(parsed), **({"result": answer} if attribute else {})})
    else:
        typer.echo(str(parsed))
        if attribute:
            typer.echo(answer)
    if attribute and truth is not True:
        raise typer.Exit(EXIT_NO_MATCH)


def point_out_doubts(selector: str) -> None:
    """Print to stderr what in a selector may not mean what its author thinks."""
    from postroad.selectors import doubts

    for doubt in doubts(selector):
        typer.echo(f"postroad: {doubt}", err=True)
