"""What a batch costs a broker: two cost models, and the costs that a fit finds for their terms.

The paper's form charges every message for being received, for every resident filter, and for every copy sent. It has no
cost of a batch, and its filter term grows with the number of subscriptions: right for a server that tests filter after
filter. Our brokers serve batches and match through an index, so the second form adds a cost per batch, one per socket
written to and those of bytes in and out, and lets matching grow with the logarithm of the subscriptions. A message that
goes anywhere is rendered once, however many copies there are; one that nobody wants is not.
`regression.compare` says which form the data support.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from postroad.capacity.batches import BatchServer
from postroad.capacity.errors import CapacityError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["BATCHED", "FORMS", "LINEAR", "BatchCosts", "BatchSamples", "CostForm"]


class BatchSamples(NamedTuple):
    """Sampled batches, one row each.

    Attributes:
        messages: how many came in.
        subscriptions: how many were resident.
        copies: how many messages went out, to subscribers and neighbours.
        destinations: to how many sockets they went.
        bytes: the bytes of what came in.
        seconds: from the batch's arrival in the core until its bytes were written to the sockets.
    """

    messages: Floats
    subscriptions: Floats
    copies: Floats
    destinations: Floats
    bytes: Floats
    seconds: Floats

    def rows(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> BatchSamples:
        """Some of the batches."""
        return BatchSamples(*(column[chosen] for column in self))


class CostForm(NamedTuple):
    """Which terms the seconds of a batch are a sum of."""

    name: str
    terms: tuple[str, ...]

    def regressors(self, samples: BatchSamples) -> Floats:
        """float64[terms, batches]: what each term's cost is multiplied by."""
        return np.stack([_regressor(term, samples) for term in self.terms])


def _regressor(term: str, samples: BatchSamples) -> Floats:
    """Return the values of a term; the pipeline has the same as Spark expressions, and a test compares the two."""
    if term == "batch":
        return np.ones(len(samples.messages))
    if term == "receive":
        return samples.messages
    if term == "match":
        return samples.messages * samples.subscriptions
    if term == "lookup":
        return np.asarray(samples.messages * np.log2(1 + samples.subscriptions))
    if term == "send":
        return samples.copies
    if term == "write":
        return samples.destinations
    if term == "byte":
        return samples.bytes
    if term == "sent_byte":
        # Separate from incoming bytes: outgoing ones are written again for each copy, and pass the kernel twice.
        return np.asarray(samples.bytes * samples.copies / np.maximum(samples.messages, 1))
    if term == "rendered_byte":
        # How many messages go anywhere is not recorded: at most one for each copy.
        return np.asarray(samples.bytes * np.minimum(samples.copies / np.maximum(samples.messages, 1), 1.0))
    raise CapacityError(f"there is no term {term!r} in a cost")


LINEAR = CostForm("linear", ("receive", "match", "send"))
BATCHED = CostForm("batched", ("batch", "write", "receive", "lookup", "send", "byte", "sent_byte", "rendered_byte"))
FORMS = (LINEAR, BATCHED)


class BatchCosts(NamedTuple):
    """Seconds that the terms cost; those that a form does not have are 0.

    Attributes:
        batch: a batch, whatever is in it.
        write: a socket that something of a batch goes to.
        receive: a message.
        match: a message and resident subscription, tested one by one.
        lookup: a message, for each doubling of the resident subscriptions.
        send: a copy.
        byte: a byte that comes in.
        sent_byte: a byte that goes out.
        rendered_byte: a byte of a message that goes anywhere, however many copies of it.
    """

    batch: float = 0.0
    write: float = 0.0
    receive: float = 0.0
    match: float = 0.0
    lookup: float = 0.0
    send: float = 0.0
    byte: float = 0.0
    sent_byte: float = 0.0
    rendered_byte: float = 0.0

    @classmethod
    def of(cls, estimates: Mapping[str, float]) -> BatchCosts:
        """The costs that a fit estimated."""
        return cls(**estimates)

    def marginal(self, subscriptions: float, copies: float, size: float) -> float:
        """Seconds that one more message adds to a batch.

        Args:
            subscriptions: resident at the broker.
            copies: of a message, on average.
            size: bytes of a message, on average.
        """
        matched = self.match * subscriptions + self.lookup * float(np.log2(1 + subscriptions))
        byte = self.byte + self.sent_byte * copies + self.rendered_byte * min(1.0, copies)
        return self.receive + matched + self.send * copies + size * byte

    def fixed(self, destinations: float) -> float:
        """Return the seconds of a batch for this many sockets, however few messages are in it."""
        return self.batch + self.write * destinations

    def capacity(self, subscriptions: float, copies: float, size: float, utilisation: float = 0.9) -> float:
        """Messages per second that use this share of what batches of any size could carry."""
        marginal = self.marginal(subscriptions, copies, size)
        if marginal <= 0:
            raise CapacityError("a message costs nothing by this model: it does not say what a broker carries")
        return utilisation / marginal

    def server(self, rate: float, subscriptions: float, copies: float, size: float) -> BatchServer:
        """Return the queue of a broker with these costs; a batch goes to as many sockets as a message has copies."""
        return BatchServer(rate, self.fixed(copies), self.marginal(subscriptions, copies, size))

    def seconds(self, samples: BatchSamples) -> Floats:
        """Return what the model predicts for batches."""
        total = np.zeros(len(samples.messages))
        for term, cost in self._asdict().items():
            if cost:
                total += cost * _regressor(term, samples)
        return total
