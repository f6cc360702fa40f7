"""Workload files: scenarios as TOML, so that users can bring their own (`docs/lab.md` has the format).

A file names one of the scenarios of the lab and its settings, or describes its own groups of subscribers and
publishers. Their texts may contain `{name}`: a value that `[values]` describes, drawn again for each subscriber or
message.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec
import numpy as np

from postroad.config.mistakes import plain_words
from postroad.lab.errors import LabError
from postroad.lab.scenarios.content import ContentScenario, FewNamesScenario
from postroad.lab.scenarios.scenario import (
    MAX_MESSAGES,
    MAX_SUBSCRIBERS,
    Publications,
    Scenario,
    Subscriber,
    poisson_times,
)
from postroad.lab.scenarios.topics import FilterGridScenario, FloodScenario, TrackedScenario
from postroad.messages import Draft
from postroad.selectors import Selector, TopicPattern

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from postroad.messages import Value

__all__ = ["SCENARIOS", "DescribedScenario", "read_workload", "scenario_of"]

WORKLOAD_VERSION = 1
# A longer file is not a workload that somebody wrote.
MAX_WORKLOAD_BYTES = 1024 * 1024

_PLACE = re.compile(r"\{(\w+)\}")
Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_SUBSCRIBERS)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=1e7)]
Number = Annotated[int, msgspec.Meta(ge=1, le=65_535)]

SCENARIOS: dict[str, type[Scenario]] = {
    kind.kind: kind for kind in (ContentScenario, FewNamesScenario, TrackedScenario, FilterGridScenario, FloodScenario)
}


class DrawnValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value that is drawn evenly: one of some `choices`, or an integer `from` one `to` another, both included."""

    choices: list[str | int | float | bool] = []
    low: int | None = msgspec.field(default=None, name="from")
    high: int | None = msgspec.field(default=None, name="to")

    def draw(self, random: np.random.Generator, count: int) -> list[Any]:
        """Draw this many values."""
        if self.choices:
            return [self.choices[place] for place in random.integers(0, len(self.choices), count).tolist()]
        assert self.low is not None
        assert self.high is not None
        return list(random.integers(self.low, self.high, count, endpoint=True).tolist())


class SubscriberGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Equal subscribers, assigned in turn to some brokers (all by default)."""

    topic: str
    count: Count = 1
    selector: str = ""
    brokers: list[Number] = []


class PublisherGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Equal publishers: each a Poisson process; its rate goes from `rate` to `rate_end`, if that is given."""

    topic: str
    count: Count = 1
    rate: Rate = 1.0
    rate_end: Rate | None = None
    attributes: list[str] = []
    body: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    brokers: list[Number] = []


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    kind: str
    settings: dict[str, Any] = {}
    brokers: Number = 1
    seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 10.0
    seed: Annotated[int, msgspec.Meta(ge=0)] = 1
    values: dict[str, DrawnValue] = {}
    subscribers: list[SubscriberGroup] = []
    publishers: list[PublisherGroup] = []


@dataclass(frozen=True)
class DescribedScenario(Scenario):
    """A scenario that a file describes.

    Attributes:
        brokers: numbered from 1.
        seconds: how long they publish.
        seed: of everything that is drawn.
        values: what names in braces stand for.
        groups: of subscribers.
        sources: groups of publishers.
    """

    kind: ClassVar[str] = "described"

    brokers: int
    seconds: float
    seed: int
    values: Mapping[str, DrawnValue]
    groups: tuple[SubscriberGroup, ...]
    sources: tuple[PublisherGroup, ...]

    def settings(self) -> dict[str, Any]:
        """Return the settings as the file has them."""
        return {
            "kind": self.kind,
            "brokers": self.brokers,
            "seconds": self.seconds,
            "seed": self.seed,
            "values": msgspec.to_builtins(dict(self.values)),
            "subscribers": msgspec.to_builtins(self.groups),
            "publishers": msgspec.to_builtins(self.sources),
        }

    def subscribers(self) -> list[Subscriber]:
        """Group by group."""
        random = np.random.default_rng([self.seed, 0])
        found: list[Subscriber] = []
        for group in self.groups:
            homes = group.brokers or list(range(1, self.brokers + 1))
            drawn = self._drawn(random, group.count, group.topic, group.selector)
            found += [
                Subscriber(
                    homes[place % len(homes)],
                    _filled(group.topic, drawn, place),
                    _filled(group.selector, drawn, place),
                )
                for place in range(group.count)
            ]
        return found

    def publications(self) -> Publications:
        """All groups together, in order of time."""
        at, clients, brokers, sources = [], [], [], []
        drawn: list[Mapping[str, list[Any]]] = []
        first = 0
        for number, source in enumerate(self.sources):
            random = np.random.default_rng([self.seed, 1, number])
            end = source.rate if source.rate_end is None else source.rate_end
            times = poisson_times(random, (source.rate * source.count, end * source.count), self.seconds)
            who = random.integers(0, source.count, len(times))
            homes = np.array(source.brokers or range(1, self.brokers + 1), np.int32)
            at.append(times)
            clients.append((first + who).astype(np.int32))
            brokers.append(homes[who % len(homes)])
            sources.append(np.full(len(times), number))
            drawn.append(self._drawn(random, len(times), source.topic, *(f"{{{name}}}" for name in source.attributes)))
            first += source.count
        when, group = np.concatenate(at), np.concatenate(sources)
        place = np.concatenate([np.arange(len(times)) for times in at])
        order = np.argsort(when, kind="stable")
        group, place = group[order], place[order]
        bodies = [b"x" * source.body for source in self.sources]

        def draft(row: int) -> Draft:
            number, at_row = int(group[row]), int(place[row])
            source, values = self.sources[number], drawn[number]
            attributes: dict[str, Value] = {name: values[name][at_row] for name in source.attributes}
            return Draft(_filled(source.topic, values, at_row), attributes, body=bodies[number])

        return Publications(when[order], np.concatenate(brokers)[order], np.concatenate(clients)[order], draft)

    def _drawn(self, random: np.random.Generator, count: int, *texts: str) -> dict[str, list[Any]]:
        names = dict.fromkeys(name for text in texts for name in _PLACE.findall(text))
        return {name: self.values[name].draw(random, count) for name in names}


def _filled(text: str, drawn: Mapping[str, list[Any]], place: int) -> str:
    return _PLACE.sub(lambda found: str(drawn[found[1]][place]), text)


def read_workload(path: Path) -> Scenario:
    """Read a workload file.

    Raises:
        LabError: it cannot be read, or is not a workload; the text names the field.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LabError(f"{path}: cannot be read ({error.strerror})") from None
    if len(data) > MAX_WORKLOAD_BYTES:
        raise LabError(f"{path}: a workload has at most {MAX_WORKLOAD_BYTES:,} bytes, this has {len(data):,}")
    try:
        return _scenario(tomllib.loads(data.decode("utf-8")))
    except (ValueError, RecursionError) as error:
        raise LabError(f"{path}: not TOML: {error}") from None
    except LabError as error:
        raise LabError(f"{path}: {error}") from None


def scenario_of(kind: str, settings: Mapping[str, Any]) -> Scenario:
    """A scenario of the lab, by name.

    Raises:
        LabError: there is none of that name, or a setting is wrong.
    """
    made = SCENARIOS.get(kind)
    if made is None:
        raise LabError(f"kind: there is no workload {kind!r}; there are {', '.join([*SCENARIOS, 'described'])}")
    known = {field.name for field in fields(made)}  # type: ignore[arg-type]
    if unknown := sorted(settings.keys() - known):
        raise LabError(f"settings.{unknown[0]}: {kind!r} has no such setting; it has {', '.join(sorted(known))}")
    try:
        return msgspec.convert(dict(settings), made)
    except msgspec.ValidationError as error:
        raise LabError(_named(error, "settings")) from None
    except LabError as error:
        raise LabError(f"settings.{error}") from None


def _scenario(data: Mapping[str, Any]) -> Scenario:
    if (version := data.get("version")) != WORKLOAD_VERSION:
        raise LabError(f"version: this is for workloads of version {WORKLOAD_VERSION}; the file says {version!r}")
    try:
        file = msgspec.convert(data, _File)
    except msgspec.ValidationError as error:
        raise LabError(_named(error)) from None
    if file.kind != DescribedScenario.kind:
        own = sorted(data.keys() - {"version", "kind", "settings"})
        if own:
            raise LabError(f"{own[0]}: only a workload of kind {DescribedScenario.kind!r} has this; use [settings]")
        return scenario_of(file.kind, file.settings)
    if file.settings:
        raise LabError("settings: a described workload has none; its fields stand at the top of the file")
    return _described(file)


def _described(file: _File) -> DescribedScenario:
    for name, value in file.values.items():
        ranged = value.low is not None and value.high is not None and value.low <= value.high
        if bool(value.choices) == ranged:
            raise LabError(f"values.{name}: give either choices, or from and to with from <= to")
    if not file.publishers:
        raise LabError("publishers: a workload has at least one group of them")
    homes = [
        *((f"subscribers[{at}]", group.brokers) for at, group in enumerate(file.subscribers)),
        *((f"publishers[{at}]", group.brokers) for at, group in enumerate(file.publishers)),
    ]
    for where, brokers in homes:
        if brokers and max(brokers) > file.brokers:
            raise LabError(f"{where}.brokers: there is no broker {max(brokers)}; the workload has {file.brokers}")
    for at, group in enumerate(file.subscribers):
        _check_names(file, f"subscribers[{at}].topic", group.topic)
        _check_names(file, f"subscribers[{at}].selector", group.selector)
    for at, source in enumerate(file.publishers):
        _check_names(file, f"publishers[{at}].topic", source.topic)
        for name in source.attributes:
            _check_names(file, f"publishers[{at}].attributes", f"{{{name}}}")
    if sum(group.count for group in file.subscribers) > MAX_SUBSCRIBERS:
        raise LabError(f"subscribers: a workload has at most {MAX_SUBSCRIBERS:,}")
    ends = [(one.rate, one.rate if one.rate_end is None else one.rate_end) for one in file.publishers]
    expected = sum(
        one.count * (first + last) / 2 * file.seconds for one, (first, last) in zip(file.publishers, ends, strict=True)
    )
    if expected > MAX_MESSAGES:
        raise LabError(f"publishers: some {expected:,.0f} messages; a workload publishes at most {MAX_MESSAGES:,}")
    made = DescribedScenario(
        file.brokers, file.seconds, file.seed, file.values, tuple(file.subscribers), tuple(file.publishers)
    )
    _check_texts(made)
    return made


def _check_names(file: _File, where: str, text: str) -> None:
    for name in _PLACE.findall(text):
        if name not in file.values:
            raise LabError(f"{where}: {{{name}}} is not described; add [values.{name}]")


def _check_texts(made: DescribedScenario) -> None:
    """Check the first subscriber of each group: its texts must be a topic and a selector."""
    from postroad.errors import PostroadError

    first = 0
    subscribers = made.subscribers()
    for at, group in enumerate(made.groups):
        one = subscribers[first]
        first += group.count
        try:
            TopicPattern.parse(one.topic)
            if one.selector:
                Selector.parse(one.selector)
        except PostroadError as error:
            raise LabError(f"subscribers[{at}]: {error}") from None


def _named(error: msgspec.ValidationError, root: str = "") -> str:
    """Put the field first; msgspec puts the path last: "Expected `int`, got `str` - at `$.brokers`"."""
    problem, _, path = str(error).partition(" - at `")
    problem = plain_words(problem)
    place = f"{root}{path.rstrip('`').removeprefix('$')}".removeprefix(".")
    return f"{place}: {problem}" if place else problem
