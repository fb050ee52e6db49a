"""Sums stack samples as they come: by line and second, and by stack."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Final

from energy_callbacks.profiling.lines.source_location import How, Line, entry, is_users, line_of
from energy_callbacks.profiling.lines.stack_sampler import StackSample

MOST_BINS: Final = 600
MOST_SITES: Final = 2000
MOST_STACKS: Final = 2000
MOST_CODES: Final = 20_000
_DEEPEST: Final = 200

Site = tuple[int, int, How]
"""The place of a sample: number of the code, offset in it, and place in the instruction."""
Frames = tuple[tuple[int, int], ...]
"""A stack, outermost first: number and offset, which is -1 for frames of libraries."""


@dataclass(slots=True)
class LineTime:
    """Time of one place.

    Attributes:
        wall_s: in all.
        cpu_s: of the main thread.
        others_s: CPU time of the process's other threads while the main one was in a call.
        wait_s: time in which none of them ran.
    """

    wall_s: float = 0.0
    cpu_s: float = 0.0
    others_s: float = 0.0
    wait_s: float = 0.0

    def add(self, wall_s: float, cpu: float, others: float) -> None:
        """A span in which this many cores worked."""
        self.wall_s += wall_s
        self.cpu_s += wall_s * cpu
        self.others_s += wall_s * others
        self.wait_s += wall_s * max(1.0 - cpu - others, 0.0)

    def merge(self, other: "LineTime") -> None:
        """Add another's."""
        self.wall_s += other.wall_s
        self.cpu_s += other.cpu_s
        self.others_s += other.others_s
        self.wait_s += other.wait_s


Bin = dict[Site | None, LineTime]
"""Time of a span by place; ``None`` is time in no line of the user's."""


@dataclass(slots=True)
class LineTally:
    """Sums, in bounded memory: spans double their width if there are too many of them.

    Attributes:
        start_s: of the first span.
        width_s: of a span.
        bins: spans, one after the other.
        stacks: wall seconds by place and stack.
    """

    start_s: float
    width_s: float = 1.0
    bins: list[Bin] = field(default_factory=list)
    stacks: dict[tuple[Site | None, Frames], float] = field(default_factory=dict)
    _codes: list[CodeType] = field(default_factory=list)
    _numbers: dict[int, tuple[int, bool]] = field(default_factory=dict)
    _sites: set[Site] = field(default_factory=set)

    def take(self, frame: FrameType, look: StackSample) -> None:
        """Sum up one look; on the thread whose stack it is."""
        site, frames = self._walk(frame)
        first = site
        if look.is_before and site is not None and site[2] == "at":
            first = (site[0], site[1], "before")
        cpu = (1.0, 0.0) if look.is_before else (look.cpu, look.others)
        self._spend(first, frames, (look.since_s, look.asked_s), cpu)
        self._spend(site, frames, (look.asked_s, look.until_s), (look.cpu, look.others))

    def line(self, site: Site) -> Line:
        """Which line of source a place is."""
        number, offset, how = site
        code = self._codes[number]
        return Line(code.co_filename, line_of(code, offset, how), code.co_qualname)

    def frame_line(self, number: int, offset: int) -> Line:
        """Which line a frame of a stack was at; 0 for a library's."""
        code = self._codes[number]
        if offset < 0:
            return Line(code.co_filename, 0, code.co_qualname)
        return self.line((number, offset, "in"))

    def spans(self) -> Iterator[tuple[float, float, Bin]]:
        """Start, end and content of each span."""
        for i, one in enumerate(self.bins):
            yield self.start_s + i * self.width_s, self.start_s + (i + 1) * self.width_s, one

    def _walk(self, innermost: FrameType) -> tuple[Site | None, Frames]:
        is_entered = innermost.f_lasti > entry(innermost.f_code)
        frame = innermost if is_entered else innermost.f_back
        site: Site | None = None
        frames: list[tuple[int, int]] = []
        while frame is not None and len(frames) < _DEEPEST:
            code = frame.f_code
            number, is_own = self._numbers.get(id(code)) or self._number(code)
            offset = frame.f_lasti if is_own else -1
            if is_own and site is None:
                site = self._known((number, offset, "in" if frames else "at"))
            frames.append((number, offset))
            frame = frame.f_back
        frames.reverse()
        return site, tuple(frames)

    def _number(self, code: CodeType) -> tuple[int, bool]:
        """Code objects compare slowly, their identities fast; they are kept, so those stay."""
        if len(self._codes) >= MOST_CODES:
            return 0, False
        self._codes.append(code)
        self._numbers[id(code)] = found = len(self._codes) - 1, is_users(code.co_filename)
        return found

    def _known(self, site: Site) -> Site | None:
        if site not in self._sites:
            if len(self._sites) >= MOST_SITES:
                return None
            self._sites.add(site)
        return site

    def _spend(
        self,
        site: Site | None,
        frames: Frames,
        span_s: tuple[float, float],
        cores: tuple[float, float],
    ) -> None:
        start_s, end_s = max(span_s[0], self.start_s), span_s[1]
        if end_s <= start_s:
            return
        key = (site, frames)
        if key not in self.stacks and len(self.stacks) >= MOST_STACKS:
            key = (site, ())
        self.stacks[key] = self.stacks.get(key, 0.0) + end_s - start_s
        while (end_s - self.start_s) / self.width_s > MOST_BINS:
            self._widen()
        while start_s < end_s:
            number = int((start_s - self.start_s) / self.width_s)
            edge_s = min(self.start_s + (number + 1) * self.width_s, end_s)
            while len(self.bins) <= number:
                self.bins.append({})
            self.bins[number].setdefault(site, LineTime()).add(edge_s - start_s, *cores)
            start_s = edge_s if edge_s > start_s else end_s

    def _widen(self) -> None:
        """Two spans become one."""
        pairs, self.width_s = self.bins, 2.0 * self.width_s
        self.bins = pairs[::2]
        for one, more in zip(self.bins, pairs[1::2], strict=False):
            for site, spent in more.items():
                one.setdefault(site, LineTime()).merge(spent)
