"""The window that is being filled: what ran in a replica, as the requests that finished in it met it.

A request is slow or fast by what ran while *it* did. So what runs is averaged over a residence, and that counts, in
every tick, by how many finish then (Little: what runs / residence). Two numbers come of it: the mean, beside which
the mean latency is put, and what one request in twenty met or exceeded, beside which their P95 is. On a real engine
whose requests take 3 s the second was twice the first in some minutes of uneven traffic: a minute that broke the
objective with 10 running on average says nothing of 10, but much of the 20 that ran for some seconds of it.
"""

from __future__ import annotations

import math

from scaler.value import frozen

#: Of what is spread as chance has it, one in twenty lies so many standard deviations above the mean.
P95_DEVIATIONS = 1.645
#: A window counts if what ran, averaged over a residence, was on average within this share of what ran.
STEADY_SHARE = 0.3


@frozen
class Window:
    """Sums over the ticks so far, of one replica: ``running`` and ``lasting`` (what ran, averaged over a residence)
    times seconds; ``finished`` requests, and these times lasting and times its square; ``most`` is its largest.
    """

    seconds: float = 0.0
    running: float = 0.0
    lasting: float = 0.0
    finished: float = 0.0
    products: float = 0.0
    squares: float = 0.0
    most: float = 0.0

    def with_tick(self, running: float, lasting: float, residence_seconds: float, elapsed_seconds: float) -> Window:
        """One tick more, in which a request stays for ``residence_seconds`` > 0."""
        finished = lasting / residence_seconds * elapsed_seconds
        return Window(
            self.seconds + elapsed_seconds,
            self.running + running * elapsed_seconds,
            self.lasting + lasting * elapsed_seconds,
            self.finished + finished,
            self.products + finished * lasting,
            self.squares + finished * lasting * lasting,
            max(self.most, lasting),
        )

    @property
    def met_on_average(self) -> float:
        """Sequences that ran while a request did, on average over the requests; 0.0 where none finished."""
        return self.products / self.finished if self.finished > 0 else 0.0

    @property
    def met_by_few(self) -> float:
        """What one request in twenty met or exceeded, as far as mean and deviation tell; never more than ran."""
        mean = self.met_on_average
        if self.finished <= 0:
            return mean
        deviation = math.sqrt(max(0.0, self.squares / self.finished - mean * mean))
        return min(mean + P95_DEVIATIONS * deviation, self.most)

    @property
    def even(self) -> bool:
        """Whether those that finished ran in replicas about as full as they are in it, and not before it."""
        return abs(self.running - self.lasting) <= STEADY_SHARE * max(self.running, self.lasting)


#: One that has just begun.
BEGUN = Window()
