"""Replaces secrets in command lines and other texts by ``REDACTED``, before they are written.

A secret is found by its name (``--api-key X``, ``HF_TOKEN=X``), by its form (``hf_...``), or by its
place (``scheme://user:X@host``). Where it is not clear whether a value is a secret, it is replaced.
A secret without a name, a known form or a known place is not found.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

MARK: Final = "REDACTED"

# Names of secrets, by the last part of a name such as ``HF_TOKEN``, ``--db-password`` or
# ``clientSecret``. Sources: gitleaks (config/gitleaks.toml, rule "generic-api-key"), detect-secrets
# (plugins/keyword.py, DENYLIST), curl(1) for headers.
_SECRETS: Final = frozenset((
    "accesstoken", "apikey", "apitoken", "auth", "authorization", "authtoken", "bearer", "cookie",
    "credential", "credentials", "passphrase", "passwd", "pwd", "secret",
))  # fmt: skip
# Words before ``key`` in names of secrets; other keys, such as ``--sort-key``, are none.
_KEYS: Final = frozenset((
    "access", "account", "api", "auth", "encryption", "kaggle", "license", "private", "secret",
    "service", "signing", "storage", "subscription", "wandb",
))  # fmt: skip
# Words before ``token`` in names of tokens of a text (transformers' ``PreTrainedTokenizerBase``,
# diffusers' textual inversion) and of ratios (``energy_per_token``); other tokens are secrets.
_TEXT_TOKENS: Final = frozenset((
    "additional", "audio", "begin", "boi", "bos", "class", "cls", "dummy", "end", "eoi", "eos",
    "first", "image", "initializer", "instance", "last", "mask", "max", "min", "modifier", "new",
    "next", "num", "pad", "per", "placeholder", "prefix", "prompt", "sep", "special", "start",
    "stop", "suffix", "text", "trigger", "unk", "video", "vision",
))  # fmt: skip
# Values that are never a secret: switches, and variables of a shell.
_HARMLESS: Final = re.compile(r"(?i:true|false|none|null|yes|no|auto|)|\$\{?[A-Z_][A-Z0-9_]*\}?")

# Beginnings of named values, and the values. ``words`` joins words by NUL, which no argument of a
# program can contain (execve(2)). ``+`` and ``~`` begin overrides of Hydra.
_NAME: Final = r"(?P<name>[A-Za-z][\w.-]*)"
_SCHEME: Final = r"(?:(?:Bearer|Basic|Digest|Token)\s+)?"  # of an HTTP header (RFC 7235)
_NAMED_WORD: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?:(?<=\0)|^)[-+~]*{_NAME}[=:]\s*{_SCHEME}",
        rf"(?:(?<=\0)|^)--?{_NAME}\0(?!-)",
    )
)
_REST_OF_WORD: Final = re.compile(r"(?P<value>[^\0]+)")
_NAMED: Final = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?<![\w.-])[-+~]*{_NAME}=\s*{_SCHEME}",
        rf"(?<![\w.-])--?{_NAME}[ \t]+(?!-){_SCHEME}",
        rf"""(?<![\w.-]){_NAME}["']?:\s*{_SCHEME}""",  # of a header, YAML or JSON
    )
)
_VALUE: Final = re.compile(
    r"""(?P<quote>["'])?(?P<value>(?(quote)[^\0]+?(?=(?P=quote)|$)|[^\s"'\0&]+))"""
)
# Forms and places of secrets. Only the group ``value`` is replaced. A comment with the name of a
# rule of gitleaks (config/gitleaks.toml) is the source of its pattern; lengths are lower limits.
_FORMS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        # RFC 3986, section 3.2.1: the user information of a URL. Hosting services for git also
        # accept a token as user name.
        r"(?<![a-zA-Z0-9+.-])[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/:@\0'\"]*:(?P<value>[^\s/\0'\"]+)@",
        r"://(?P<value>[\w-]{20,200})(?=(?::[^\s/\0@'\"]{0,200})?@)",
        # RFC 6750, section 2.1: a token in an HTTP header.
        r"(?i:\bbearer)\s+(?P<value>[\w.~+/-]{16,}=*)",
        r"(?<![A-Za-z0-9])(?P<value>(?:hf_|api_org_)[A-Za-z0-9]{16,})",  # huggingface-access-token
        # openai-api-key, anthropic-api-key; with a digit, unlike names such as ``sk-learn-...``.
        r"(?<![A-Za-z0-9_-])(?P<value>sk-(?=[A-Za-z_-]*\d)[\w-]{16,})",
        r"(?<![A-Za-z0-9])(?P<value>gh[pousr]_[A-Za-z0-9]{16,})",  # github-pat, github-oauth, ...
        r"(?<![A-Za-z0-9])(?P<value>github_pat_\w{20,})",  # github-fine-grained-pat
        r"(?<![A-Za-z0-9])(?P<value>glpat-[\w-]{20,})",  # gitlab-pat
        r"(?<![A-Z0-9])(?P<value>(?:A3T[A-Z0-9]|AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16})(?![A-Z0-9])",
        # ^ aws-access-token. The second half of such a key has no form and is found by its name.
        r"(?<![A-Za-z0-9])(?P<value>AIza[\w-]{35})",  # gcp-api-key
        r"(?<![A-Za-z0-9])(?P<value>xox[abeoprs]-[\w-]{10,})",  # slack-bot-token, ...
        r"hooks\.slack\.com/(?:services|workflows)/(?P<value>[\w/+-]+)",  # slack-webhook-url
        r"(?<![\w-])(?P<value>eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]*)",  # jwt
        r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?P<value>[^-]+)",  # private-key
        # Azure's shared access signature; signatures of presigned URLs of AWS and Google.
        r"[?&](?:sig|X-(?:Amz|Goog)-Signature)=(?P<value>[^\s&\0'\"]+)",
        # Keys of Weights & Biases have 40 digits or more, as commits of git have: they are replaced
        # only directly after a name with ``wandb``, or a few words after one with ``login``.
        r"wandb[\w.-]{0,64}(?:[\s\0]+|=)(?P<value>\w{40,})",
        r"login(?:[\s\0]+[^\s\0]{1,64}){0,4}?(?:[\s\0]+|=)(?P<value>\w{40,})",
        # Options of one letter, only of programs where they have a password: sshpass(1), mysql(1),
        # "docker login" and other commands "login", curl(1).
        r"sshpass[\s\0]+-p[\s\0]?(?P<value>[^\s\0]+)",
        r"(?:mysql|mysqldump|mariadb)[\s\0](?:.{0,200}?[\s\0])?-p(?P<value>[^\s\0]+)",
        r"login[\s\0](?:.{0,200}?[\s\0])?-p[\s\0]+(?P<value>[^\s\0]+)",
        r"curl[\s\0](?:.{0,200}?[\s\0])?(?:-u|--user)[\s\0=]?[^\s\0:]*:(?P<value>[^\s\0]+)",
    )
)


def words(command: Sequence[str]) -> list[str]:
    """Return the words of a command line without secrets.

    >>> words(["train.py", "--api-key", "abc", "--max-tokens", "512", "https://ann:abc@host/data"])
    ['train.py', '--api-key', 'REDACTED', '--max-tokens', '512', 'https://ann:REDACTED@host/data']
    """
    line = "\0".join(command)
    for beginning in _NAMED_WORD:
        line = _without_named(line, beginning, _REST_OF_WORD)
    return text(line).split("\0")


def text(text: str) -> str:
    """Return a text, such as a message or a whole command line, without secrets.

    >>> text("401 for Authorization: Bearer abc, token=abc")
    '401 for Authorization: Bearer REDACTED token=REDACTED'
    """
    for form in _FORMS:
        text = form.sub(_without_value, text)
    for beginning in _NAMED:
        text = _without_named(text, beginning, _VALUE)
    return text


def record(value: Any, name: str = "") -> Any:
    """Return a JSON value without the secrets in its texts; a list of texts is a command line.

    >>> record({"HF_TOKEN": "abc", "words": ["--password", "abc"], "steps": 3})
    {'HF_TOKEN': 'REDACTED', 'words': ['--password', 'REDACTED'], 'steps': 3}
    """
    if isinstance(value, str):
        is_secret = _is_secret_name(name) and not _HARMLESS.fullmatch(value)
        return MARK if is_secret else text(value)
    if isinstance(value, Mapping):
        return {key: record(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        is_command = value and all(isinstance(item, str) for item in value)
        return words(value) if is_command else [record(item) for item in value]
    return value


def _without_value(match: re.Match[str]) -> str:
    start, end = (place - match.start() for place in match.span("value"))
    return f"{match[0][:start]}{MARK}{match[0][end:]}"


def _without_named(text: str, beginning: re.Pattern[str], values: re.Pattern[str]) -> str:
    parts, start, place = [], 0, 0
    while match := beginning.search(text, place):
        place = match.end()
        value = values.match(text, place) if _is_secret_name(match["name"]) else None
        if value is not None and not _HARMLESS.fullmatch(value["value"]):
            parts += [text[start : value.start("value")], MARK]
            start = place = value.end("value")
    return "".join([*parts, text[start:]])


def _is_secret_name(name: str) -> bool:
    """Return whether a value with this name is a secret.

    >>> [_is_secret_name(name) for name in ("HF_TOKEN", "eos_token", "apiKey", "sort-key", "PWD")]
    [True, False, True, False, False]
    """
    if name == "PWD":  # the working directory
        return False
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    *_, before, last = ["", *re.split(r"[-_.]+", split)]
    if last == "token":
        return before not in _TEXT_TOKENS
    is_password = last.endswith("password")  # such as PGPASSWORD of PostgreSQL
    return is_password or last in _SECRETS or (last == "key" and before in _KEYS)
