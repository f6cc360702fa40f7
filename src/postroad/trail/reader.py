"""`Trail`: answers questions about one id, or one time, from a trail in milliseconds, however large the trail is.

It opens only files and row groups that may have the answer by the manifest. It skips what is damaged, truncated,
foreign or of another version and names it in `warnings`; the findings then say that the record is not complete there.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from postroad.messages import MessageId, check_alias
from postroad.tracking import (
    LEFT_OUT,
    Answer,
    Drop,
    ExactRecorder,
    Findings,
    Gap,
    NamedJourney,
    NamedSubscription,
    Presence,
    Reconstruction,
    key_times,
    with_names,
)
from postroad.tracking.witnessed_links import WitnessedLinks
from postroad.trail.columns import DAY_MS
from postroad.trail.coverage import FOREVER, GIVEN_UP, UNREAD, GapReason, gaps_within, joined, run_of_file
from postroad.trail.errors import TrailDamageError, TrailError
from postroad.trail.evidence import Evidence
from postroad.trail.expected_brokers import noted_brokers
from postroad.trail.file_reader import Reads, TrailFile
from postroad.trail.files import origins_of
from postroad.trail.filter_rows import ask_filters, matching_filters
from postroad.trail.id_rows import group_times, id_rows
from postroad.trail.journal import SegmentEntries, has_at_most, read_segments
from postroad.trail.journal_remainder import Remainder, remainders
from postroad.trail.locations import Location, location, store_away
from postroad.trail.manifest import manifest_brokers
from postroad.trail.manifest_fit import pin_fitting
from postroad.trail.manifest_needs import gap_of, is_met
from postroad.trail.schemas import table_named
from postroad.trail.standing_rows import STANDING, standing_holes, subscription_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from postroad.tracking import Exploration
    from postroad.trail.coverage import Hole, Run
    from postroad.trail.files import FileEntry
    from postroad.trail.snapshot import Pinned

__all__ = ["DEFAULT_SKEW_MS", "DEFAULT_TOLERANCE_MS", "Trail"]

# How far the clocks of brokers may be apart.
DEFAULT_SKEW_MS = 5_000
# How long after its id's time a message may still be on its way. What waits in a queue longer is recorded as waiting.
DEFAULT_TOLERANCE_MS = 10_000

# A journal that is larger is not read for one question: it would take seconds, and some ten times as much memory.
MAX_JOURNAL_BYTES = 256 << 20

_MANIFESTS = "manifests"


class Trail:
    """A trail, to ask: a directory, or a folder of a store (`postroad.trail.locations`).

    The manifest of each broker is pinned when it is first needed: later commits are not seen. If a question is about
    later times and the broker has a journal, the journal is read and the manifest pinned again. One thread uses it.

    Attributes:
        reads: files opened and bytes read so far.
        warnings: what could not be read, by name, and was left out.
    """

    def __init__(self, root: str | Location) -> None:
        """Open a trail.

        Raises:
            TrailError: there is no such directory, or no broker ever wrote to it.
        """
        self.root = location(root)
        if isinstance(self.root, Path) and not self.root.is_dir():
            raise TrailError(f"{self.root} is not a directory; give the one that brokers write their trail to")
        try:
            is_trail = (self.root / _MANIFESTS).is_dir()
        except OSError as error:
            raise store_away(self.root, error) from error
        if not is_trail:
            raise TrailError(
                f"{self.root} is not a trail: it has no {_MANIFESTS}; give the directory that brokers write to"
            )
        self.reads = Reads()
        self._pinned: dict[int, Pinned] = {}
        self._damage: list[str] = []
        self._journals: dict[int, tuple[Remainder, ...]] = {}

    @property
    def warnings(self) -> list[str]:
        """What could not be read, by name."""
        found = [text for pinned in self._pinned.values() for text in pinned.warnings]
        return list(dict.fromkeys([*found, *self._damage]))

    def brokers(self) -> list[int]:
        """The brokers that have a part in this trail."""
        return manifest_brokers(self.root)

    def pinned(self, broker: int) -> Pinned:
        """The manifest of a broker, the same each time."""
        if broker not in self._pinned:
            self._pinned[broker] = pin_fitting(self.root, broker, self.reads)
        return self._pinned[broker]

    def files(
        self, table: str, broker: int, since: int | None = None, until: int | None = None
    ) -> tuple[list[FileEntry], list[Hole]]:
        """The files of a table, all or those with something between two times; and where the manifest is damaged."""
        table_named(table)
        pinned = self.pinned(broker)
        if since is None or until is None:
            return pinned.all_entries(table, self.reads)
        return pinned.entries(table, None, since, until, self.reads)

    # --- one id ----------------------------------------------------------------------------------------------------

    def findings(
        self,
        broker: int,
        identity: MessageId,
        tolerance: int = DEFAULT_TOLERANCE_MS,
        skew: int = DEFAULT_SKEW_MS,
        living: Run | None = None,
    ) -> Findings:
        """All that the record of one broker says about an id.

        Args:
            broker: whose record.
            identity: the message.
            tolerance: how long after the id's time, in ms, the broker may have seen it first.
            skew: how far, in ms, the broker's clock may be from the id's.
            living: the run that continues, with the time through which the caller knows what is not written yet.
        """
        window = identity.time - skew, identity.time + tolerance + skew
        # A run that the manifest does not know covers nothing here, whatever its broker believes.
        runs = self.pinned(broker).runs
        goes_on = [living for run in runs if living and (run.number, run.since) == (living.number, living.since)]
        found = self._findings(broker, identity, window, goes_on, ())
        ends = {gap.reason for gap in (*found.gaps, *found.ends)} & {
            GapReason.CRASHED,
            GapReason.NOT_YET_WRITTEN,
            GIVEN_UP,
        }
        if ends and living is None and (parts := self._remainders(broker)):
            return self._findings(broker, identity, window, [part.extended for part in parts], parts)
        return found

    def _findings(
        self,
        broker: int,
        identity: MessageId,
        window: tuple[int, int],
        extended: list[Run],
        parts: tuple[Remainder, ...],
    ) -> Findings:
        """What the files say, with some runs that go further than the manifest says, and what a journal adds."""
        evidence, pinned = Evidence(broker, identity), self.pinned(broker)
        evidence.gaps += self._unmet(pinned, identity)
        for row, run in self._rows("passages", broker, identity, evidence):
            evidence.passage(row, run)
        for row, _ in self._rows("journeys", identity.broker, identity, evidence):
            evidence.journey(row)
        for row, _ in self._rows("records", broker, identity, evidence):
            evidence.surely(row["kind"], row["subject"])
        for row, _ in self._rows("shed", broker, identity, evidence):
            evidence.drops.append(Drop(row["subscription"], row["link"], row["reason"], row["at"]))
        neighbours = {*self.neighbours(broker, *window, evidence.gaps)}
        for part in parts:
            found = part.recorder.findings(identity, part.through)
            evidence.journalled(found, part.run.number)
            neighbours |= {*found.neighbours}
        self._probe(evidence, *window, tuple(sorted(neighbours)))
        runs = pinned.runs
        for longer in extended:
            runs = joined(runs, longer)
        holes = [*pinned.holes, *(hole for part in parts for hole in part.holes)]
        return evidence.findings(runs, holes, window, pinned.retained_since, tuple(sorted(neighbours)))

    def _unmet(self, pinned: Pinned, identity: MessageId) -> list[Gap]:
        """What is missing of a broker's record because journeys at the origin stand for it, and are not here.

        The origin may have been pinned before a compaction that the other one knows of: then it is pinned again.
        """
        origin, time = identity.broker, identity.time
        needs = [need for need in pinned.needs if need.broker == origin and need.since <= time <= need.until]
        if not all(is_met(need, self.pinned(origin)) for need in needs):
            self._pinned[origin] = pin_fitting(self.root, origin, self.reads)
        return [gap_of(need) for need in needs if not is_met(need, self._pinned[origin])]

    def _remainders(self, broker: int) -> tuple[Remainder, ...]:
        """What the journal of a broker has beyond its files; read once.

        The journal is read before the manifest, which is pinned again: what a running broker deletes from its journal
        meanwhile is then in the files.
        """
        if broker not in self._journals:
            if not isinstance(self.root, Path):
                # A journal stays with its broker.
                return ()
            warnings: list[str] = []
            is_small = partial(has_at_most, self.root, broker, MAX_JOURNAL_BYTES)
            segments = read_segments(self.root, broker, warnings)
            entries = [SegmentEntries(iter(list(one.entries)), one.is_torn) for one in segments if is_small()]
            parts: tuple[Remainder, ...] = ()
            if entries:
                pinned = self._pinned[broker] = pin_fitting(self.root, broker, self.reads)
                fresh = partial(ExactRecorder, broker)
                parts = tuple(remainders(entries, pinned.runs, pinned.holes, fresh, warnings))
            self._journals[broker] = parts
        return self._journals[broker]

    def _rows(
        self, table: str, broker: int, identity: MessageId, evidence: Evidence
    ) -> Iterator[tuple[dict[str, Any], int]]:
        """The rows of an id in a table of messages, each with the run that wrote it."""
        names = table_named(table).schema.names
        for file, groups in self._opened(table, broker, identity, evidence):
            for group in groups:
                evidence.probes += 1
                try:
                    for row in id_rows(file, group, names, identity):
                        yield row, run_of_file(file.path.name)
                except TrailDamageError as error:
                    evidence.gaps.append(self._damaged(error, group_times(groups)))

    def _opened(
        self, table: str, broker: int, identity: MessageId, evidence: Evidence
    ) -> Iterator[tuple[TrailFile, list[Any]]]:
        time = identity.time
        entries, holes = self.pinned(broker).entries(table, identity.broker, time, time, self.reads)
        evidence.gaps += [Gap(hole.since, hole.until, hole.reason) for hole in holes]
        for entry in entries:
            try:
                yield TrailFile(self.root, entry, broker, self.reads), list(entry.groups)
            except TrailDamageError as error:
                evidence.gaps.append(self._damaged(error, (entry.time_from, entry.time_to)))

    def _damaged(self, error: TrailDamageError, times: tuple[int, int]) -> Gap:
        if str(error) not in self._damage:
            self._damage.append(str(error))
        return Gap(times[0], times[1] + 1, f"{UNREAD}{Path(error.path).name}")

    def _probe(self, evidence: Evidence, since: int, until: int, neighbours: tuple[int, ...]) -> None:
        """What filters say; who was subscribed is looked up only if there are any."""
        tables = []
        names = [name for name in table_named("filters").schema.names if name != "keys"]
        for file, groups in self._opened("filters", evidence.broker, evidence.identity, evidence):
            try:
                tables.append(file.read(names, {group.index for group in groups}))
            except TrailDamageError as error:
                evidence.gaps.append(self._damaged(error, group_times(groups)))
        filters, damaged = [], 0
        for rows in tables:
            some, bad = matching_filters(rows, evidence.identity)
            filters += some
            damaged += bad
        if filters:
            # Not only those of the id's time: it may have waited, and gone to somebody who came later.
            asked = key_times(filters, since, until)
            evidence.gaps += self._standing_gaps(evidence.broker, *asked)
            near = sorted({*neighbours, *self.neighbours(evidence.broker, *asked, evidence.gaps)})
            attached = self.subscriptions(evidence.broker, *asked, evidence.gaps)
            said, strange = ask_filters(filters, evidence.identity, near, attached)
            evidence.take(said)
            damaged += strange
        if damaged:
            evidence.gaps.append(Gap(since, until, f"filters cannot be read: {damaged}"))

    def _standing_gaps(self, broker: int, since: int, until: int) -> list[Gap]:
        """Where filters cannot be asked about everybody, because a hole may hide who was there."""
        pinned = self.pinned(broker)
        if not any(hole.since < until for hole in pinned.holes):
            return []
        repeated: set[int] = set()
        for table, kind in (("subscriptions", "begins"), ("links", "up")):
            rows = self._since_standing(table, broker, since, until, ["at", kind], None)
            repeated |= {row["at"] for row in rows if row[kind] == STANDING}
        return [
            Gap(hole.since, hole.until, hole.reason)
            for hole in standing_holes(pinned.runs, pinned.holes, repeated)
            if hole.since < until and hole.until > since
        ]

    def answer(
        self,
        broker: int,
        identity: MessageId,
        tolerance: int = DEFAULT_TOLERANCE_MS,
        skew: int = DEFAULT_SKEW_MS,
    ) -> Answer:
        """The findings of one broker, with the names for the numbers in them."""
        findings = self.findings(broker, identity, tolerance, skew)
        numbers = {hit.number for hits in (findings.delivered, findings.queued) for hit in hits}
        numbers |= {drop.subscription for drop in findings.dropped if drop.subscription}
        written = self.named_subscriptions(broker, numbers, identity.time - skew, identity.time + tolerance + skew)
        known = {one.number: one for one in written}
        publisher = None
        if broker == identity.broker and findings.accepted is not None:
            publisher = self.publisher(broker, identity.publisher)
        for part in self._journals.get(broker, ()):
            chronicle = part.recorder.chronicle
            known |= {one.number: one for one in chronicle.named(numbers - known.keys())}
            if publisher is None and broker == identity.broker:
                publisher = chronicle.publisher(identity.publisher)
        return Answer(findings, publisher, tuple(known[number] for number in sorted(known)))

    def trace(
        self,
        identity: MessageId,
        tolerance: int = DEFAULT_TOLERANCE_MS,
        skew: int = DEFAULT_SKEW_MS,
        exploration: Exploration = "relayed",
    ) -> NamedJourney:
        """Where a message went, asking broker by broker from its origin.

        Around a broker without a complete record, perhaps without any, others are asked that had a link to it.
        """
        here = self.brokers()
        since, until = identity.time - skew, identity.time + tolerance + skew
        around = WitnessedLinks(here, lambda broker: self.neighbours(broker, since, until))
        question = Reconstruction(identity, exploration, around)
        answers = []
        while wanted := question.to_ask():
            for broker in wanted:
                if broker not in here:
                    question.tell(broker, None)
                    continue
                answer = self.answer(broker, identity, tolerance, skew)
                answers.append(answer)
                question.tell(broker, answer.findings)
        return with_names(question.journey(), answers)

    # --- one time --------------------------------------------------------------------------------------------------

    def neighbours(self, broker: int, since: int, until: int, gaps: list[Gap] | None = None) -> list[int]:
        """The links that a broker had at any time from `since` to `until`; `gaps` takes what could not be read."""
        return self._present("links", ("neighbour", "at", "up"), broker, since, until, gaps)

    def subscriptions(self, broker: int, since: int, until: int, gaps: list[Gap] | None = None) -> list[int]:
        """Who was subscribed at a broker at any time from `since` to `until`; `gaps` takes what could not be read."""
        return self._present("subscriptions", ("subscription", "at", "begins"), broker, since, until, gaps)

    def _present(
        self, table: str, columns: tuple[str, ...], broker: int, since: int, until: int, gaps: list[Gap] | None
    ) -> list[int]:
        rows = self._since_standing(table, broker, since, until, list(columns), gaps)
        number, at, begins = columns
        starts = [run.since for run in self.pinned(broker).runs if run.since <= until]
        changes = ((row[number], row[at], row[begins]) for row in rows)
        return list(Presence.of(changes, starts).between(since, until))

    def _since_standing(
        self,
        table: str,
        broker: int,
        since: int,
        until: int,
        columns: list[str],
        gaps: list[Gap] | None,
        only: tuple[str, set[int]] | None = None,
    ) -> list[dict[str, Any]]:
        """Changes in order of time, from where the writer repeated what stands: the day, or the start of the run."""
        pinned = self.pinned(broker)
        begun = [run.since for run in pinned.runs if run.since <= until]
        run = max((start for start in begun if start <= since), default=min(begun, default=until))
        start = max(run, since // DAY_MS * DAY_MS)
        entries, holes = pinned.entries(table, None, start, until, self.reads)
        if gaps is not None:
            gaps += [Gap(hole.since, hole.until, hole.reason) for hole in holes]
        rows = [row for row in self._all_rows(entries, broker, columns, gaps, only) if start <= row["at"] <= until]
        return sorted(rows, key=lambda row: int(row["at"]))

    def _all_rows(
        self,
        entries: Iterable[FileEntry],
        broker: int,
        columns: list[str],
        gaps: list[Gap] | None = None,
        only: tuple[str, set[int]] | None = None,
    ) -> Iterator[dict[str, Any]]:
        """The rows of files, of all or of `only` those with one of some numbers in a column."""
        for entry in entries:
            try:
                file = TrailFile(self.root, entry, broker, self.reads)
                rows = file.read(columns, {group.index for group in entry.groups})
            except TrailDamageError as error:
                gap = self._damaged(error, (entry.time_from, entry.time_to))
                if gaps is not None:
                    gaps.append(gap)
                continue
            if only is not None:
                found = np.flatnonzero(np.isin(rows.column(only[0]).to_numpy(), list(only[1])))
                if not len(found):
                    continue
                # As a list: for an array pyarrow would load `numpy.ma`. An empty list has no type that it can take by.
                rows = rows.take(found.tolist())
            yield from rows.to_pylist()

    # --- names and aliases -----------------------------------------------------------------------------------------

    def publisher(self, broker: int, number: int) -> str | None:
        """The principal that published under a number; None when the record does not say."""
        entries = self.pinned(broker).numbered("names", number, self.reads)
        for row in self._all_rows(entries, broker, ["kind", "number", "name"], only=("number", {number})):
            if row["kind"] == "publisher":
                return str(row["name"])
        return None

    def named_subscriptions(
        self, broker: int, numbers: Iterable[int], since: int, until: int
    ) -> tuple[NamedSubscription, ...]:
        """The subscribers of subscription numbers at a time, as far as the record says."""
        names = table_named("subscriptions").schema.names
        missing = set(numbers)
        if not missing:
            return ()
        rows = self._since_standing("subscriptions", broker, since, until, names, None, ("subscription", missing))
        found = {row["subscription"]: subscription_in(row) for row in rows if row["begins"]}
        # Those of another run, or whose beginning could not be read then.
        for number in missing - found.keys():
            entries = self.pinned(broker).numbered("subscriptions", number, self.reads)
            for row in self._all_rows(entries, broker, names, only=("subscription", {number})):
                if row["begins"]:
                    found[number] = subscription_in(row)
                    break
        return tuple(found[number] for number in sorted(found))

    def aliased(self, alias: str, since: int | None = None, until: int | None = None) -> list[MessageId]:
        """The messages that bore a foreign id, between two times if given; reads a row group of each file of `aliases`.

        Raises:
            AliasError: such a foreign id is never recorded.
        """
        if alias != LEFT_OUT:
            check_alias(alias)
        found: set[MessageId] = set()
        for broker in self.brokers():
            for entry in self.files("aliases", broker, since, until)[0]:
                try:
                    file = TrailFile(self.root, entry, broker, self.reads)
                    groups = file.groups_with("alias", alias)
                    rows = file.read(table_named("aliases").schema.names, groups).to_pylist() if groups else []
                except TrailDamageError as error:
                    self._damaged(error, (entry.time_from, entry.time_to))
                    continue
                bearers = (row for row in rows if row["alias"] == alias)
                found.update(MessageId(row["publisher"], row["origin"], row["time"], row["counter"]) for row in bearers)
        return sorted(found, key=lambda one: (one.time, one.broker, one.publisher, one.counter))

    # --- what is not there -----------------------------------------------------------------------------------------

    def may_hide(self) -> list[str]:
        """Why something that was not found may have existed nevertheless; empty if it surely did not.

        For questions about all times, such as that for a foreign id: damage, times without a complete record, and
        brokers without a record here.
        """
        reasons = [] if self.brokers() else ["no broker has a record here"]
        for broker in self.brokers():
            pinned = self.pinned(broker)
            gaps = gaps_within(pinned.runs, pinned.holes, -1, 0, FOREVER)
            reasons += [f"broker {broker}: {gap.reason}" for gap in gaps]
            if pinned.retained_since:
                reasons.append(f"broker {broker}: {GapReason.DELETED}")
        reasons += [f"broker {broker}: {GapReason.NO_RECORD}" for broker in self.absent()]
        reasons += [f"broker {one.broker}: {GapReason.LEFT_OUT}" for one in self.aliased(LEFT_OUT)]
        # Last, with what was found damaged on the way.
        return list(dict.fromkeys([*self.warnings, *reasons]))

    def absent(self) -> list[int]:
        """Brokers that others name, as neighbours or as where messages entered, and that have no record here.

        Reads the whole manifests, and all links.
        """
        named: set[int] = set()
        for broker in self.brokers():
            entries, _ = self.pinned(broker).all_entries(None, self.reads)
            named |= origins_of(entries)
            links = [entry for entry in entries if entry.table == "links"]
            named.update(row["neighbour"] for row in self._all_rows(links, broker, ["neighbour"]))
        try:
            named |= noted_brokers(self.root)
        except TrailDamageError as error:
            self._damaged(error, (0, 0))
        return sorted(named - set(self.brokers()))
