"""The checks of this project: words and phrases that are not plain technical English."""

import re
from collections.abc import Iterator

from proselint.registry.checks import Check, CheckResult, types
from proselint.registry.checks.engine import Fancy

# What to write instead, by the pattern of what not to write.
PLAIN = {
    r"say(?:s|ing)? so|said so": "is flagged, is stated (name what is stated)",
    r"without a place|which place|a place, emissions": "location",
    r"nobody (?:said|says)|no one (?:said|says)": "is not set",
    r"(?:is|are|was|were) not there\b": "is missing",
    r"(?:is|are|was|were) missed in the report": "the report lists it as missing",
    r"(?:is|are|was|were|been|be) told": "is reported, is detected, receives",
    r"told (?:of|apart)": "reported, distinguished",
    r"mend(?:s|ed|ing)?": "fix",
    r"in vain": "without result",
    r"notic(?:e|es|ed|ing) nothing|nothing notices": "runs transparently",
    r"each (?:\d[\d.]*|second|minute|hour|day)": "every",
    r"so (?:many|much)(?! (?:that|as)\b)": "the number (N), the amount",
    r"likewise": "repeat the words",
    r"without a word": "unexpectedly, without a message",
    r"(?:speaks?|spoke) of": "describes, states",
    r"of (?:its|their|your|our|my|his) own": "its own X, a separate X",
    r"of (?:ours|theirs|yours)\b": "our X",
    r"stands?|stood": "is, is listed, is shown",
    r"all the same|none the less|nonetheless": "still",
    r"on (?:its|their|our|your) account": "because of it",
    r"(?:nothing|none|anything|everything|no \w+) but": "only, except",
    r"by (?:the )?(?:thousands|hundreds|dozens)": "thousands of",
    r"by itself|of itself": "automatically, alone",
    r"at hand": "available",
    r"lies? (?:beside|within reach|about)": "is next to",
    r"(?:hears?|heard) (?:of|about|nothing)": "receives no event",
    r"whoever|whomever": "users who",
    r"puts? (?:\w+ ){0,3}right": "corrects",
    r"the house": "the architecture",
    r"the truth": "the true value",
    r"as people do(?: it)?": "as is common",
    r"goes? wrong|went wrong": "fails",
    r"once and for all|now and then|from time to time": "occasionally (say how often)",
    r"a good deal|a great deal|a lot of": "say how much",
    r"takes? (?:part|place)": "participates, occurs",
}  # fmt: skip

# Longer sentences have to be read twice. Lists of things may be this long.
MOST_WORDS = 40
_SENTENCE = re.compile(r"(?:[^.!?;|·\n]|[.!?](?!\s))+")
_WORD = re.compile(r"[A-Za-z][\w'-]*|§+")


def _long_sentences(text: str, check: Check) -> Iterator[CheckResult]:
    """Find sentences with too many words. A sentence ends at a full stop or at the line's end."""
    for sentence in _SENTENCE.finditer(text):
        words = len(_WORD.findall(sentence[0]))
        if words > MOST_WORDS:
            yield CheckResult(
                check_path=check.path,
                message=check.message.format(words),
                span=sentence.span(),
                replacements=None,
            )


CHECKS = (
    Check(
        check_type=types.PreferredForms(
            items={f"(?:{pattern})": instead for pattern, instead in PLAIN.items()}
        ),
        engine=Fancy(),  # Python's regular expressions
        path="plain_english.phrases",
        message="Not plain technical English: '{1}'. Write: {0}.",
    ),
    Check(
        check_type=_long_sentences,
        path="plain_english.long_sentences",
        message=f"A sentence of {{}} words; at most {MOST_WORDS}. Divide it.",
    ),
)
