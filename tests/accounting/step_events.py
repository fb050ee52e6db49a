"""Events of steps, as the meter appends them to a ``StepLog``."""

from energy_callbacks.accounting.metrics.step_counts import StepLog
from energy_callbacks.accounting.step_marks import DONE, READY, STEP


def ready(log: StepLog, t_s: float) -> None:
    """Record that a batch has arrived."""
    log.append((READY, t_s, None, None, None))


def done(log: StepLog, t_s: float) -> None:
    """Record that a batch is done."""
    log.append((DONE, t_s, None, None, None))


def step(log: StepLog, t_s: float, samples: float | None, tokens: float | None) -> None:
    """Record an optimizer step that Python finished at ``t_s``."""
    log.append((STEP, t_s, samples, tokens, log.ends.mark(t_s) if log.ends else None))
