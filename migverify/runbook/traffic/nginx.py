"""nginx and OpenResty: the share is a ``split_clients`` block in an include file that is ours alone.

The file is replaced in one rename, tested before any worker is signaled to read it, and names its generation in three
places: in its head, in an answer of the status location, and in every line of the access log. So each of *written*,
*served* and *measured* is asked of the one who knows, and requests that old workers end after a reload are never
counted as requests of the new share.

The exit code of ``nginx -s reload`` says only that a signal was sent. A master that cannot take the new configuration
(a port that another process holds passes ``nginx -t``) logs it, keeps the old workers and says nothing. Therefore a
reload counts when workers answer with the new generation, and not before.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from migverify.codec import parse_json
from migverify.errors import ReadError, TrafficError
from migverify.runbook.actions.action import Context, Outcome
from migverify.runbook.actions.builtin import run_program
from migverify.runbook.traffic.access_log import FORMAT, read_tally
from migverify.runbook.traffic.document import NginxInstancePart, NginxPart
from migverify.runbook.traffic.files import beside, change_locks, put_back, replace_text
from migverify.runbook.traffic.model import FULL, InstanceReading, Setting, goes_to_new, is_generation, percent
from migverify.runbook.traffic.tally import TrafficTally

__all__ = ["NginxDriver", "include_text", "parse_include", "snippets"]

_HEAD = "# traffic/v1 "
_NOTE = "# Written by migverify, and by nothing else: a file that it would not have written like this is refused.\n"
_ANSWER = re.compile(r"generation=(?P<generation>\S+) share=(?P<share>[0-9]{1,3}(?:\.[0-9]{1,2})?) pid=(?P<pid>[0-9]+)")
_ASKED = 4
"""Connections that have to agree when an instance is asked what it serves; each may reach another worker."""
_CONFIRMED = 12
"""Answers in a row that a change has to have before it counts as served."""
_SHUTTING = b"nginx: worker process is shutting down"


def include_text(split: NginxPart, setting: Setting) -> str:
    """Return the whole include file of a setting, for the ``http`` block.

    Requests without a key stay on the old side until 100 %: the hash of nothing is 0, and would move first.
    """
    name, old, new = split.variable, split.sides.old, split.sides.new
    part = setting.share
    low, high = (min(part, setting.was), max(part, setting.was)) if setting.held else (part, part)
    lines = "".join(
        f"    {size // 100}.{size % 100:02}%  {value};\n"
        for size, value in ((low, new), (high - low, split.held or ""))
        if 0 < size < FULL
    )
    log = FORMAT.format(generation=setting.generation, side=f"${name}_side", key=f"${name}_key")
    rest = new if low == FULL else (split.held or "") if high == FULL and setting.held else old
    answer = f"generation={setting.generation} share={percent(part)} pid=$pid"
    body = (
        f"{_NOTE}"
        f'split_clients "{split.key}" ${name}_split {{\n{lines}    *  {rest};\n}}\n'
        f'map "{split.key}" ${name}_side {{\n    ""  {rest};\n    default  ${name}_split;\n}}\n'
        f'map "" ${name}_key {{\n    default  "{split.key}";\n}}\n'
        f'map "" ${name}_traffic {{\n    default  "{answer}";\n}}\n'
        f"log_format migverify_{name} escape=default '{log}';\n"
    )
    header = {
        "variable": name, "share": setting.share, "generation": setting.generation, "was": setting.was,
        "previous": setting.previous, "at": setting.at, "held": setting.held,
    }  # fmt: skip
    # Against slips of an editor, and not against somebody who means it: who writes this file can do anything.
    sha = hashlib.sha256(f"{json.dumps(header)}\n{body}".encode()).hexdigest()[:16]
    return f"{_HEAD}{json.dumps(header | {'sha': sha})}\n{body}"


def parse_include(text: str, split: NginxPart) -> Setting:
    """Return the setting of an include file.

    Raises
    ------
    TrafficError
        it is none of ours, or not as this split and setting would have it: somebody edited it.
    """
    first = text.partition("\n")[0]
    setting = None
    if first.startswith(_HEAD):
        with suppress(ValueError, TypeError, KeyError):
            found = parse_json(first.removeprefix(_HEAD))
            setting = Setting(
                int(found["share"]), str(found["generation"]), int(found["was"]), str(found["previous"]),
                float(found["at"]), bool(found["held"]),
            )  # fmt: skip
    if (
        setting is None
        or not is_generation(setting.generation)
        or not 0 <= setting.share <= FULL
        or (setting.held and not split.held)
    ):
        raise TrafficError("the include file is not of this tool", hint="Make it anew: `traffic init` writes one.")
    if include_text(split, setting) != text:
        raise TrafficError(
            "the include file was edited, or is of another key or other sides than the traffic file says",
            hint="Put the old share back with traffic.abort: it writes the whole file anew.",
        )
    return setting


def snippets(split: NginxPart, instance: NginxInstancePart) -> str:
    """Return what has to stand in the configuration of an instance, for a reader."""
    name = split.variable
    refusal = f"if (${name}_side = {split.held}) {{\n    return 503;\n}}\n" if split.held else ""
    return (
        f"# in http {{ }}, before the servers\ninclude {instance.include};\n"
        f"# in the location whose requests are split\n"
        f"access_log {instance.access_log} migverify_{name};\n{refusal}proxy_pass http://${name}_side;\n"
        f"# in a server of this instance that only this machine reaches\n"
        f"location = {urlsplit(instance.status).path or '/'} {{\n    allow 127.0.0.1;\n    deny all;\n"
        f'    access_log off;\n    default_type text/plain;\n    return 200 "${name}_traffic\\n";\n}}\n'
    )


class NginxDriver:
    """Drives the instances of one split; see ``model.Driver``. Programs that it starts belong to the action's step."""

    sticky = True

    def __init__(self, split: NginxPart, context: Context) -> None:
        self._split, self._context = split, context
        self._instances = {one.name: one for one in split.instances}

    @property
    def instances(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self._instances)

    @property
    def holds(self) -> bool:
        """Whether the traffic file names a value for keys that move."""
        return bool(self._split.held)

    @property
    def predicts(self) -> Callable[[bytes, int], bool]:
        """The hash of split_clients."""
        return goes_to_new

    def locked(self) -> AbstractContextManager[None]:
        """Hold a lock beside every include file; raises TrafficError."""
        return change_locks(beside(one.include, "lock") for one in self._instances.values())

    def configured(self, instance: str) -> Setting:
        """Return what the include file says; raises TrafficError."""
        return parse_include(_read(self._instances[instance].include), self._split)

    def write(self, instance: str, setting: Setting, expected: Setting | None) -> None:
        """Replace the include file and test the whole configuration; if that fails, the old file is there again.

        Without ``expected`` a share is put back: then the file stays as it is written, so that nginx reads that share
        whenever it reads the file again.
        """
        one = self._instances[instance]
        if expected is None:
            put_back(one.include, include_text(self._split, setting))
            if why := self._run(one.test, "the configuration test"):
                raise TrafficError(f"{why}; the file says {percent(setting.share)} % and is not served")
            return
        before = _read(one.include)
        if parse_include(before, self._split) != expected:
            raise TrafficError(f"{one.include} is not what was expected: another writer changed it")
        replace_text(one.include, include_text(self._split, setting))
        if why := self._run(one.test, "the configuration test"):
            put_back(one.include, before)
            raise TrafficError(f"{why}; the old file is there again")

    def apply(self, instance: str) -> None:
        """Send the reload; whether it was taken, ``settled`` says. Raises TrafficError where it cannot be sent."""
        why = self._run(self._instances[instance].reload, "the reload")
        if why:
            raise TrafficError(why)

    def _run(self, argv: Sequence[str], what: str) -> str:
        # A reload that is cut off by a canceled step would leave nobody knowing: it is let end, it takes no second.
        context = replace(self._context, timeout=self._split.command_timeout, canceled=threading.Event())
        done = run_program(argv, context)
        if done.why is Outcome.OK and done.code == 0:
            return ""
        lines = [line for line in done.errors.splitlines() if "[emerg]" in line or "[error]" in line]
        last = (lines or done.errors.strip().splitlines() or [""])[0][:300]
        ended = f"exit code {done.code}" if done.why is Outcome.OK else done.why.value
        return f"{what} failed ({ended}): {last}".rstrip(": ")

    def served(self, instance: str) -> InstanceReading:
        """Ask several connections, which reach several workers; they have to agree."""
        one = self._instances[instance]
        answers = [self._ask(one) for _ in range(_ASKED)]
        unknown = next((answer for answer in answers if not answer.known), None)
        if unknown is not None:
            return unknown
        facts: dict[str, object] = {"workers": sorted({int(str(answer.facts["pid"])) for answer in answers})}
        if one.pid is not None:
            facts["draining"] = _draining(one.pid)
        shares = {(answer.share, answer.generation) for answer in answers}
        if len(shares) != 1:
            return InstanceReading(
                why=f"workers disagree: {', '.join(sorted(str(answer) for answer in answers))}", facts=facts
            )
        return InstanceReading(answers[0].share, answers[0].generation, facts=facts)

    def _ask(self, one: NginxInstancePart) -> InstanceReading:
        parts = urlsplit(one.status)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=3.0)
        try:
            connection.request("GET", parts.path or "/", headers={"Connection": "close"})
            response = connection.getresponse()
            text = response.read(4096).decode("ascii", "replace")
        except (OSError, http.client.HTTPException) as error:
            return InstanceReading(why=f"{one.status} does not answer: {type(error).__name__}: {error}")
        finally:
            connection.close()
        found = _ANSWER.search(text) if response.status == 200 else None
        if found is None:
            return InstanceReading(why=f"{one.status} answers {response.status} without a generation")
        return InstanceReading(
            round(float(found["share"]) * 100), found["generation"], facts={"pid": int(found["pid"])}
        )

    def settled(self, instance: str, setting: Setting) -> InstanceReading:
        """Wait until many connections in a row are served by the setting, and no old worker is left (with ``pid``)."""
        one = self._instances[instance]
        until = time.monotonic() + self._split.settle
        confirmed, answer, draining, good = 0, InstanceReading(why="not asked"), 0, False
        while time.monotonic() < until:
            answer = self._ask(one)
            good = (answer.share, answer.generation) == (setting.share, setting.generation)
            confirmed = confirmed + 1 if good else 0
            if confirmed >= _CONFIRMED:
                draining = _draining(one.pid) if one.pid is not None else 0
                if not draining:
                    return answer
            time.sleep(0.02 if good else 0.05)
        if confirmed >= _CONFIRMED:
            return InstanceReading(
                why=f"{draining} old workers have not ended within {self._split.settle:g} s, and serve as before"
            )
        if good:
            return InstanceReading(
                why=f"within {self._split.settle:g} s not {_CONFIRMED} connections in a row were served {answer}"
            )
        return answer

    def measure(self, instance: str, generations: Sequence[str], since: float) -> Mapping[str, TrafficTally]:
        """Count the instance's access log.

        Raises
        ------
        TrafficError
            it cannot be read.
        """
        setting = self.configured(instance)
        shares = {setting.generation: setting.share, setting.previous: setting.was}

        def foreseen(key: bytes, generation: str) -> bool:
            return goes_to_new(key, shares[generation])

        known = all(name in shares for name in generations)
        path = self._instances[instance].access_log
        try:
            return read_tally(path, generations, since, self._split.sides, foreseen if known else None)
        except ReadError as error:
            raise TrafficError(error.message) from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise TrafficError(f"there is no {path}", hint="`traffic init` writes the first one.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TrafficError(f"{path} cannot be read: {type(error).__name__}") from None


def _draining(pid_file: Path) -> int:
    """Count workers of a master that are ending but still serve what they began; 0 when it is not to be seen."""
    try:
        master = int(pid_file.read_text().strip())
        children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    except (OSError, ValueError):
        return 0
    found = 0
    for child in children:
        with suppress(OSError):
            # An nginx that runs through its own loader has the loader's arguments before its title.
            arguments = Path(f"/proc/{int(child)}/cmdline").read_bytes().split(b"\0")
            found += any(one.startswith(_SHUTTING) for one in arguments)
    return found
