"""The images of one key in the order of the leading side, and which of them the feed has brought. See ``crossing``."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import chain

from migverify.watch.key_changes import UNKNOWN, KeyChange

RECENT = 64
"""Images of one key among which one that comes back is looked for."""


@dataclass(slots=True)
class Image:
    """An image of the leading side. ``is_new``: the key did not have it recently. ``rounds``: how often it returned."""

    ordinal: int
    image: bytes | None
    inserted: bool
    is_new: bool
    is_applied: bool = False
    rounds: int = 0

    def may_be(self, image: bytes | None) -> bool:
        """Whether it is the same image, as far as that is known."""
        return self.image == image or UNKNOWN in (self.image, image)


def _ordinal(image: Image) -> int:
    return image.ordinal


@dataclass(slots=True)
class KeyImages:
    """The remembered images of a key in the order of the leading side.

    The feed has brought the one at ``at``, -1 where none is known. ``before_delete`` is ``at`` of before the row was
    deleted, None where it is not: a feed may have deleted it to insert an earlier image. ``is_there``: the image at
    ``at`` is the last of the following side, of a commit at ``position`` and ``time``.
    """

    images: list[Image] = field(default_factory=list)
    at: int = -1
    before_delete: int | None = None
    is_there: bool = False
    position: int = 0
    time: float = 0.0

    def add(self, change: KeyChange) -> bool:
        """Take a change of the leading side; returns whether it is one, and not sent again."""
        recent = [image.ordinal for image in self.images[-RECENT:] if image.image == change.image]
        if recent and (change.is_late or change.position in recent):
            return False
        at = bisect_right(self.images, change.position, key=_ordinal)  # what is late comes before others
        self.images.insert(at, Image(change.position, change.image, change.inserted, not recent))
        self.at += at <= self.at
        if self.before_delete is not None:
            self.before_delete += at <= self.before_delete
        return True

    def forget(self) -> tuple[int, bool]:
        """Forget the oldest image; returns its ordinal, and whether the feed had brought it or a later one."""
        ordinal, is_brought = self.images.pop(0).ordinal, self.at >= 0
        self.is_there = self.is_there and self.at > 0
        self.at = max(-1, self.at - 1)
        if self.before_delete is not None:
            self.before_delete = max(-1, self.before_delete - 1)
        return ordinal, is_brought

    def explanation(self, change: KeyChange, resumes_at: int, head: int | None) -> int | None:
        """Return which image the feed sent: the next one, the same again, or an earlier one again.

        What it has not brought yet may come at any time, as some tables are later than others; it sends nothing again
        up to ``resumes_at``. ``head`` as for ``Crossing.received_before``.
        """
        image = change.image
        if change.changes_nothing and self.at >= 0 and self.images[self.at].image == image:
            return self.at
        same = range(max(0, self.at), self.at + 1)
        for number in chain(range(self.at + 1, len(self.images)), same, range(self.at)):
            remembered = self.images[number]
            if not remembered.may_be(image):
                continue
            if number == self.at:
                return number
            is_next = number > self.at or (self.before_delete is not None and number >= self.before_delete)
            is_sent = is_next or resumes_at < remembered.ordinal
            if is_sent and (head is None or remembered.ordinal <= head):
                return number
        return None

    def may_be_on_its_way(self, image: bytes | None) -> bool:
        """Whether a feed may make this change before it brings an image: it deletes the row, or goes far back."""
        if image is None:
            return any(remembered.image is not None for remembered in self.images)
        return any(remembered.image == image for remembered in self.images[: max(0, self.at)])

    def may_be_other_text(self, image: bytes | None) -> bool:
        """Whether the feed has to bring an image of a row, which may be this one in another text."""
        return image is not None and any(later.image is not None for later in self.images[self.at + 1 :])

    def awaits_row(self, since: int) -> bool:
        """Whether the feed has not brought an image of a row that was committed after an ordinal."""
        return any(later.image is not None and later.ordinal > since for later in self.images[self.at + 1 :])

    def unsent(self, image: bytes | None, resumes_at: int) -> list[Image]:
        """Return the other images that the feed has to bring."""
        return [later for later in self.images[self.at + 1 :]
                if later.ordinal > resumes_at and not later.may_be(image)]  # fmt: skip

    def is_stale(self, resumes_at: int) -> bool:
        """Whether the following side has an image that is older than all that the feed may have left it with."""
        newest = bisect_right(self.images, resumes_at, key=_ordinal) - 1
        if newest < 0:
            return False  # forgotten: what came late may be in its place
        # What is there already is not logged when the feed brings it.
        return not any(image.may_be(self.images[self.at].image) for image in self.images[newest:])

    def apply(self, change: KeyChange, number: int) -> int:
        """Note that the following side has an image; returns how often it came back without a new one, 0 for not."""
        is_next = number > self.at
        if self.images[number].image is not None:
            self.before_delete = None
        elif self.before_delete is None:
            self.before_delete = self.at
        self.at, self.is_there, self.position, self.time = number, True, change.position, change.time
        if not is_next:
            return 0
        image = self.images[number]
        image.is_applied = True
        if image.image == UNKNOWN:
            return 0
        for earlier in reversed(self.images[max(0, number - RECENT) : number]):
            if earlier.image == image.image and earlier.is_applied:
                image.rounds = earlier.rounds + 1
                return image.rounds
            if earlier.is_new:
                return 0
        return 0
