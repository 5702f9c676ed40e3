"""Parts of files read by several workers: processes of this machine, or tasks of Spark.

First pass -> plan of parts -> second pass -> shares of sessions -> files. Every figure of the summary and every row is
what one process would have written; only groups and files end elsewhere.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from migverify.errors import ReadError, UsageError
from migverify.spark.capture_exchange import Account, Gathering, gather, put_together, read_part, settle
from migverify.spark.capture_follow import Counts
from migverify.spark.capture_mask import masks
from migverify.spark.capture_parts import PART_BYTES, Ask, Read, SessionKey, Survey, cuts, parts_of, plan, survey
from migverify.spark.capture_runs import RUN_BYTES
from migverify.workload.capture import CaptureInput, CaptureOptions, CaptureSummary, FileCount, tells_connects
from migverify.workload.lines import BLOCK

_Answer = TypeVar("_Answer")
Progress = Callable[[int, int], None]


class Workers(Protocol):
    """Runs the passes."""

    @property
    def shares(self) -> int:
        """How many shares of sessions are assembled."""
        ...

    def survey(self, asks: Sequence[Ask]) -> Sequence[Survey]:
        """Make surveys, in their order."""
        ...

    def exchange(
        self, reads: Sequence[Read], cuts: Sequence[SessionKey], gathering: Gathering, folder: Path, progress: Progress
    ) -> tuple[list[Account], list[tuple[Path, Counts]]]:
        """Read parts and assemble shares in folders of their own below ``folder``; returns them in order."""
        ...


class ParallelColumns:
    """The road of columns with several workers; see ``migverify.workload.capture.ColumnRoad``."""

    def __init__(self, workers: Workers, progress: Progress | None = None, part_bytes: int = PART_BYTES) -> None:
        self._workers, self._part_bytes = workers, part_bytes
        self._progress = progress or (lambda _read, _written: None)

    def takes(self, inputs: Sequence[CaptureInput], options: CaptureOptions) -> bool:
        """Every format is read, and masked by ``migverify.workload.mask`` only.

        Raises
        ------
        UsageError
            another mask is asked for.
        """
        del inputs
        if not masks(options):
            raise UsageError("this mask needs one process.", hint="Leave out --jobs and --engine.")
        return True

    def run(
        self,
        inputs: Sequence[CaptureInput],
        folder: Path,
        options: CaptureOptions,
        summary: CaptureSummary,
        rejects: IO[str],
    ) -> None:
        """Write the statements of files, which stand in the order of their times, and the summary's figures."""
        parts = parts_of(inputs, self._part_bytes)
        made = plan(parts, self._workers.survey)
        gathering = Gathering(
            frozenset(made.connects), tells_connects(inputs), options.mask is not None, options.run_bytes or RUN_BYTES
        )
        accounts, shares = self._workers.exchange(
            made.reads, cuts(made.sample, self._workers.shares), gathering, folder, self._progress
        )
        settle(accounts, summary, rejects)
        for _, counts in shares:
            counts.add_to(summary)
        put_together(folder, [share for share, _ in shares])
        for share, _ in shares:
            shutil.rmtree(share)


class Processes:
    """Workers in processes of this machine; rows travel in files of the output folder.

    Parameters
    ----------
    jobs
        Processes, at least 1.
    """

    def __init__(self, jobs: int, block: int = BLOCK) -> None:
        if jobs < 1:
            raise UsageError(f"--jobs must be at least 1, not {jobs}.")
        self._jobs, self._block = jobs, block
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Processes:
        # spawned: a fork of a process with Arrow's threads may hang
        self._pool = ProcessPoolExecutor(self._jobs, mp_context=get_context("spawn"))
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    @property
    def shares(self) -> int:
        """How many shares of sessions are assembled."""
        return 2 * self._jobs

    def survey(self, asks: Sequence[Ask]) -> list[Survey]:
        """Make surveys, in their order."""
        found = dict(self._each(survey, [(one, self._block) for one in asks]))
        return [found[at] for at in range(len(asks))]

    def exchange(
        self, reads: Sequence[Read], cuts: Sequence[SessionKey], gathering: Gathering, folder: Path, progress: Progress
    ) -> tuple[list[Account], list[tuple[Path, Counts]]]:
        """Read parts and assemble shares in folders of their own below ``folder``; returns them in order."""
        packets = folder / "packets"
        packets.mkdir()
        accounts: list[Account] = []
        done = 0
        for _, account in self._each(_send, [(one, cuts, packets, self._block) for one in reads]):
            accounts.append(account)
            done += account.count.bytes
            progress(done, 0)
        shares = [folder / f"share-{number:05d}" for number in range(len(cuts) + 1)]
        counted: dict[int, Counts] = {}
        written = 0
        for number, counts in self._each(_gather, [(packets, n, gathering, share) for n, share in enumerate(shares)]):
            counted[number] = counts
            written += counts.statements
            progress(done, written)
        shutil.rmtree(packets)
        return accounts, [(share, counted[number]) for number, share in enumerate(shares)]

    def _each(
        self, work: Callable[..., _Answer], arguments: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[int, _Answer]]:
        """Yield answers with the number of their arguments, as they come."""
        if self._pool is None:
            raise TypeError("the processes are not started")
        waiting: dict[Future[_Answer], int] = {}
        left = iter(enumerate(arguments))
        try:
            while True:
                for number, one in left:
                    waiting[self._pool.submit(work, *one)] = number
                    if len(waiting) >= 2 * self._jobs:
                        break
                if not waiting:
                    return
                over, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in over:
                    yield waiting.pop(future), future.result()
        except BrokenProcessPool as error:
            raise ReadError(
                "a worker process ended before its time.", hint="Is there enough memory? Try fewer --jobs."
            ) from error


def new_account(read: Read) -> Account:
    """Return the empty account of a part."""
    one = read.part.one
    return Account(
        read.part.rank, read.part.nth, read.entry.begin, FileCount(str(one.path), one.format.name, one.server)
    )


def _send(read: Read, cuts: Sequence[SessionKey], packets: Path, block: int) -> Account:
    """Read a part; its packets go to one file for each share."""
    account = new_account(read)
    files: dict[int, IO[bytes]] = {}
    try:
        for share, packet in read_part(read, cuts, account, block):
            if share not in files:
                path = packets / f"{share:05d}-{read.part.rank:06d}-{read.part.nth:06d}"
                files[share] = path.open("wb")
            files[share].write(len(packet).to_bytes(8, "little") + packet)
    finally:
        for file in files.values():
            file.close()
    return account


def _gather(packets: Path, share: int, gathering: Gathering, folder: Path) -> Counts:
    return gather(_packets(sorted(packets.glob(f"{share:05d}-*"))), gathering, folder)


def _packets(paths: Iterable[Path]) -> Iterator[bytes]:
    for path in paths:
        with path.open("rb") as file:
            while head := file.read(8):
                yield file.read(int.from_bytes(head, "little"))
        path.unlink()
