"""Writes the conclusions of a comparison: one sentence for each group except the first."""

from collections.abc import Iterator, Sequence

from energy_callbacks.compare import validity
from energy_callbacks.compare.model import Caveat, Comparison, Effect, Quality
from energy_callbacks.compare.quantities import BY_NAME
from energy_callbacks.compare.statistics import ALPHA
from energy_callbacks.core import formatting

# Text that follows the result of ``change``, such as "-5.1 % (-6.0 to -4.2)", in the sentence on an
# effect. The key is the basis of the effect: the kind of data from which its interval is computed.
_BASIS = {"runs": "", "pairs": ", compared in pairs", "blocks": ", for these two runs only"}


def answers(comparison: Comparison) -> Iterator[str]:
    """Yield the conclusion for each group except the first, as one sentence."""
    first = comparison.groups[0].name
    for group in comparison.groups[1:]:
        effect = comparison.answer(group.name)
        if effect is None:
            yield f"{group.name} cannot be compared with {first}: no quantity is known for both."
            continue
        quality = next((one for one in comparison.qualities if one.group == group.name), None)
        sentence = _on_effect(effect, first, comparison.caveats)
        yield f"{sentence}{_on_quality(effect, quality, comparison.metric)}."


def _on_effect(effect: Effect, first: str, caveats: Sequence[Caveat]) -> str:
    title = BY_NAME[effect.quantity].in_sentence
    if effect.verdict in ("not resolved", "not measured"):
        why = reason(effect, any(validity.forbids(one, effect, first) for one in caveats))
        return f"{effect.group} against {first}: {title} {change(effect)}, {effect.verdict} ({why})"
    result = f"{change(effect)}{_BASIS[effect.basis or 'runs']}"
    return f"{effect.group} has a {effect.verdict} {title} than {first}: {result}"


def reason(effect: Effect, is_forbidden: bool) -> str:
    """Return why an effect is not resolved or not measured.

    Args:
        effect: an effect with the verdict ``not resolved`` or ``not measured``.
        is_forbidden: whether a caveat forbids any other verdict.
    """
    if effect.verdict == "not measured":
        return (
            "the energy that differs is estimated by models, and estimates cannot show a "
            "real difference"
        )
    if is_forbidden:
        return "see the warnings"
    if effect.p_holm is None or effect.detectable is None:
        return "one run does not show how much repeated runs differ; repeat it"
    if effect.p_holm < ALPHA:
        return (
            "the difference is larger than random variation, but not larger than the errors "
            "of the sensors; use the same card"
        )
    if effect.p is not None and effect.p < ALPHA:
        return (
            "significant as a single comparison, but not after the correction for several; "
            "repeat the runs"
        )
    return f"this number of runs can detect changes of {detectable(effect.detectable)} or more"


def _on_quality(effect: Effect, quality: Quality | None, metric: str | None) -> str:
    if quality is None:
        return ""
    if quality.verdict == "as good":
        return f", and {metric} is as good"
    if quality.verdict == "worse":
        return f"; {'cheaper but ' if effect.verdict == 'lower' else ''}worse in {metric}"
    return f"; it is not resolved whether {metric} is as good"


def change(effect: Effect) -> str:
    """Format the ratio of an effect as a change in per cent, with its interval if it is known.

    An example is ``-5.1 % (-6.0 to -4.2)``.
    """
    percent = signed_percent(effect.ratio)
    if effect.low is None or effect.high is None:
        return percent
    low, high = (signed_percent(end).removesuffix(" %") for end in (effect.low, effect.high))
    return f"{percent} ({low} to {high})"


def detectable(share: float) -> str:
    """Format the smallest detectable change, given as a share (0.021 is 2.1 %).

    >>> detectable(0.021), detectable(3.0)
    ('2.1 %', 'over 100 %')
    """
    return formatting.percent(share) if share <= 1.0 else "over 100 %"


def signed_percent(ratio: float) -> str:
    """Format a ratio as a change in per cent.

    >>> signed_percent(0.95), signed_percent(1.0042), signed_percent(12.0)
    ('-5.0 %', '+0.42 %', '+1100 %')
    """
    percent = 100.0 * (ratio - 1.0)
    digits = 0 if abs(percent) >= 100.0 else 1 if abs(percent) >= 1.0 else 2
    return f"{percent:+.{digits}f} %" if percent < 1e6 else "any %"
