"""Sums the time of stack samples as they arrive: by line and time span, and by stack."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Final

from energy_callbacks.profiling.common.source_location import How, Line, entry, is_users, line_of
from energy_callbacks.profiling.lines.stack_sampler import StackSample

# Maximum numbers of time spans, places, stacks and code objects that a tally keeps.
MOST_BINS: Final = 600
MOST_SITES: Final = 2000
MOST_STACKS: Final = 2000
MOST_CODES: Final = 20_000
# Maximum number of frames of a stack; if there are more, the outermost frames are left out.
_DEEPEST: Final = 200

Site = tuple[int, int, How]
"""A place in the user's code: number of the code object, offset of the instruction, and relation of
the sample to this instruction (see ``line_of``)."""
Frames = tuple[tuple[int, int], ...]
"""A stack: (number of the code object, offset of the instruction) of each frame, outermost first.
The offset is -1 for library frames."""


@dataclass(slots=True)
class LineTime:
    """Time of the main thread at one place in the code, in seconds.

    Attributes:
        wall_s: total time.
        cpu_s: CPU time of the main thread.
        others_s: CPU time of the process's other threads while the main thread was at this place.
        wait_s: ``wall_s`` minus the CPU time of all threads; if the difference is negative in a
            call of ``add``, it counts as 0.
    """

    wall_s: float = 0.0
    cpu_s: float = 0.0
    others_s: float = 0.0
    wait_s: float = 0.0

    @property
    def busy_s(self) -> float:
        """CPU time of all threads."""
        return self.cpu_s + self.others_s

    def add(self, wall_s: float, cpu: float, others: float) -> None:
        """Add a span of time.

        Args:
            wall_s: length of the span in seconds.
            cpu: mean number of cores that the main thread used.
            others: mean number of cores that other threads of the process used.
        """
        self.wall_s += wall_s
        self.cpu_s += wall_s * cpu
        self.others_s += wall_s * others
        self.wait_s += wall_s * max(1.0 - cpu - others, 0.0)

    def merge(self, other: "LineTime") -> None:
        """Add the times of ``other`` to those of this object."""
        self.wall_s += other.wall_s
        self.cpu_s += other.cpu_s
        self.others_s += other.others_s
        self.wait_s += other.wait_s


Bin = dict[Site | None, LineTime]
"""Time of each place within one time span. The key ``None`` is for time outside the user's code and
for places beyond ``MOST_SITES``."""


@dataclass(slots=True)
class LineTally:
    """Sums of stack samples in bounded memory: if there are too many time spans, pairs are merged.

    Attributes:
        start_s: start of the first time span, in seconds of ``time.monotonic``.
        width_s: length of each time span in seconds.
        bins: time of each place; one dictionary per time span, in time order.
        stacks: seconds of each pair of place and stack; stacks beyond ``MOST_STACKS`` are replaced
            by ``()``.
    """

    start_s: float
    width_s: float = 1.0
    bins: list[Bin] = field(default_factory=list)
    stacks: dict[tuple[Site | None, Frames], float] = field(default_factory=dict)
    _codes: list[CodeType] = field(default_factory=list)
    _numbers: dict[int, tuple[int, bool]] = field(default_factory=dict)
    _sites: set[Site] = field(default_factory=set)

    def take(self, frame: FrameType, sample: StackSample) -> None:
        """Add a sample; must be called on the sampled thread."""
        site, frames = self._walk(frame)
        start_s = sample.since_s
        if sample.is_before:
            first = site
            if site is not None and site[2] == "at":
                first = (site[0], site[1], "before")
            self._spend(first, frames, (start_s, sample.asked_s), (1.0, 0.0))
            start_s = sample.asked_s
        self._spend(site, frames, (start_s, sample.until_s), (sample.cpu, sample.others))

    def line(self, site: Site) -> Line:
        """Return the source line of a place."""
        number, offset, how = site
        code = self._codes[number]
        return Line(code.co_filename, line_of(code, offset, how), code.co_qualname)

    def frame_line(self, number: int, offset: int) -> Line:
        """Return the source line of a frame in a stack; library frames have line number 0."""
        if offset >= 0:
            return self.line((number, offset, "in"))
        code = self._codes[number]
        return Line(code.co_filename, 0, code.co_qualname)

    def spans(self) -> Iterator[tuple[float, float, Bin]]:
        """Yield the start, the end and the ``Bin`` of each time span."""
        for number, bin_ in enumerate(self.bins):
            start_s = self.start_s + number * self.width_s
            yield start_s, self.start_s + (number + 1) * self.width_s, bin_

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
        """Add a code object; return its number and whether it is the user's code.

        Code objects are looked up by ``id``, which is fast. They are kept in memory, so that Python
        does not reuse their ids. A code object beyond ``MOST_CODES`` is not added, and counts as
        library code.
        """
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
        """Double the width of the time spans by merging pairs of them."""
        narrow, self.width_s = self.bins, 2.0 * self.width_s
        self.bins = narrow[::2]
        for wide, second in zip(self.bins, narrow[1::2], strict=False):
            for site, time in second.items():
                wide.setdefault(site, LineTime()).merge(time)
