"""Negatives for a stream of clicks: articles that others clicked shortly before.

For each click, up to K different articles are drawn evenly from those that were clicked in the hour
before it, except its own, as CHAMELEON does for its evaluation (arXiv:1904.10367). Only clicks with
an earlier time count, so a negative is never from the future. N clicks.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class RecentArticles:
    """The distinct articles of a window of time, one of which can be drawn in O(1)."""

    def __init__(self) -> None:
        """Starts empty."""
        self.articles: list[int] = []
        self._places: dict[int, int] = {}
        self._clicks: dict[int, int] = {}

    def add(self, article: int) -> None:
        """Counts a click."""
        self._clicks[article] = self._clicks.get(article, 0) + 1
        if article not in self._places:
            self._places[article] = len(self.articles)
            self.articles.append(article)

    def remove(self, article: int) -> None:
        """Forgets a click that was added; the article leaves with its last one."""
        self._clicks[article] -= 1
        if self._clicks[article]:
            return
        del self._clicks[article]
        place = self._places.pop(article)
        last = self.articles.pop()
        if last != article:
            self.articles[place] = last
            self._places[last] = place

    def draw(self, uniform: list[float], but: int) -> list[int]:
        """Returns different articles, one for each number of [0, 1), or as many as there are.

        Args:
            uniform: random numbers.
            but: an article that is not drawn.
        """
        taken = [self._places[but]] if but in self._places else []
        found: list[int] = []
        for number in uniform:
            left = len(self.articles) - len(taken)
            if not left:
                break
            place = int(number * left)
            for other in sorted(taken):  # skips the places that are taken
                place += place >= other
            taken.append(place)
            found.append(self.articles[place])
        return found


def draw_negatives(
    times: Ints, articles: Ints, count: int, window: int, seed: int
) -> tuple[Ints, Ints]:
    """Returns the clicks of negatives int64 [M], rising, and their articles int64 [M].

    The negatives of a click depend on the seed, its number and the clicks before it alone.

    Args:
        times: int64 [N], of the clicks, rising.
        articles: int64 [N].
        count: K, the most negatives of a click; the first clicks have fewer.
        window: how far back an article may have been clicked, in the unit of `times`.
        seed: of the draws.
    """
    uniform = np.random.default_rng([seed, 3]).random((len(times), count)).tolist()
    moments, clicked = times.tolist(), articles.tolist()
    recent = RecentArticles()
    oldest = newest = 0  # recent has the clicks oldest to newest - 1
    of_click: list[int] = []
    drawn: list[int] = []
    for click, moment in enumerate(moments):
        while moments[newest] < moment:
            recent.add(clicked[newest])
            newest += 1
        while oldest < newest and moments[oldest] < moment - window:
            recent.remove(clicked[oldest])
            oldest += 1
        found = recent.draw(uniform[click], clicked[click])
        of_click += [click] * len(found)
        drawn += found
    return np.array(of_click, np.int64), np.array(drawn, np.int64)
