"""Secrets are replaced; what only looks like a secret is kept."""

import json
import shlex
import time

import pytest

from energy_callbacks.accounting.journal import redaction

DIGITS_40 = "0123456789abcdef0123456789abcdef01234567"
SECRET = "X1zvQ"
"""A secret without a form: it is found by its name or its place."""

BY_NAME = [
    "--api-key X1zvQ", "--api-key=X1zvQ", "--api_key=X1zvQ", "-api-key X1zvQ", "--apikey X1zvQ",
    "token=X1zvQ", "--token X1zvQ", "--hf-token X1zvQ", "HF_TOKEN=X1zvQ", "WANDB_API_KEY=X1zvQ",
    "--password X1zvQ", "--db.passwd=X1zvQ", "--clientSecret X1zvQ", "+wandb.api_key=X1zvQ",
    "aws_secret_access_key=X1zvQ/a+b", "AWS_SESSION_TOKEN=X1zvQ==", "--passphrase='X1zvQ and more'",
    "--password 'X1zvQ and more'", "bash -c 'export HF_TOKEN=X1zvQ; python train.py'",
    """bash -c 'train.py -v --password "X1zvQ and more" --lr 1'""", "--auth ann:X1zvQ",
    "--password '$X1zvQ'", "env PGPASSWORD=X1zvQ train", "-e KAGGLE_KEY=X1zvQ", "dbpassword=X1zvQ",
    """--config '{"api_key": "X1zvQ", "lr": 3}'""", "https://host/?access_token=X1zvQ&page=2",
]  # fmt: skip
BY_PLACE = [
    "https://ann:X1zvQ@host/data", "postgres://ann:p@X1zvQ@host:5432/db", "redis://:X1zvQ@host",
    "curl -H 'Authorization: Bearer X1zvQ' http://host", "--header='X-Api-Key: X1zvQ'",
    "-H 'Authorization: Basic X1zvQ=='", "curl -u ann:X1zvQ http://host",
    "curl -s --user ann:X1zvQ http://host", "sshpass -p X1zvQ ssh host", "sshpass -pX1zvQ ssh host",
    "mysql -u ann -pX1zvQ db", "docker login -u ann -p X1zvQ host",
    "https://blob/data?sv=2022&sig=X1zvQ%3D", "https://hooks.slack.com/services/T0/B0/X1zvQ",
]  # fmt: skip
BY_FORM = [
    "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "sk-0123456789abcdefghij0123456789",
    "sk-proj-abc_123-def456ghi789", "sk-ant-api03-abcdefghijklmnopqrstuvwxyz",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345", "github_pat_0123456789abcdefghijAB_0123456789",
    "glpat-0123456789abcdefghij", "AIzaSyA0123456789abcdefghijABCDEFGHIJ01",
    "xoxb-0123456789-abcdef", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
]  # fmt: skip
KEPT = [
    "tokenizer.json", "--tokenizer bert", "--max-tokens 512", "--max_tokens=512", "keystone",
    "--token-budget 100", "--num-tokens 3", "--pad_token '<pad>'", "--eos-token=x", "--bos_token y",
    "--placeholder_token cat", "--energy-per-token 0.5", "--use_auth_token True", "--key loss",
    "--token --epochs 5", "--password-file secret.txt", "--sort-key name", "monkey=5",
    "PWD=/home/a",
    "bypass=1", "https://host:8080/a@b", "s3://bucket/key", "git@github.com:ann/repository.git",
    "sk-learn-linear-regression-model", "disk-0123456789abcdef0123456789", f"--commit {DIGITS_40}",
    "hf_transfer", "hf_model_trainer_with_a_long_name.py", "docker run -p 8080:80 -u 1000:1000",
    "data/token/file.txt", "gh auth status", "--author me", "--api-key=$API_KEY", "time=12:30",
    "train.py --lr 1e-3 --tag team=vision", "-p 3", "torchrun --nproc-per-node 8 -m train",
]  # fmt: skip


@pytest.mark.parametrize("line", [*BY_NAME, *BY_PLACE])
def test_a_secret_is_found_by_its_name_or_its_place(line: str) -> None:
    """It is replaced in the words of a command, and in a text."""
    for found in (shlex.join(redaction.words(shlex.split(line))), redaction.text(line)):
        assert SECRET not in found
        assert redaction.MARK in found


@pytest.mark.parametrize("secret", BY_FORM)
@pytest.mark.parametrize("line", ["{}", "train.py {} --lr 1", "--hub={}", "https://x/{}/y", "({})"])
def test_a_secret_is_found_by_its_form(secret: str, line: str) -> None:
    """It is replaced wherever it stands, and nothing else is."""
    line = line.format(secret)
    expected = line.replace(secret, redaction.MARK)
    assert redaction.text(line) == expected
    assert redaction.words(line.split()) == expected.split()


@pytest.mark.parametrize(
    "line",
    ["wandb login {}", "wandb login --relogin {}", "--wandb-login {}", "--wandb_key={}",
     "python -m wandb login --host https://h {}"],
)  # fmt: skip
def test_a_key_of_wandb_is_found_after_its_name(line: str) -> None:
    """Such a key has the form of a commit of git, and is only replaced after these words."""
    expected = line.format(redaction.MARK)
    assert redaction.text(line.format(DIGITS_40)) == expected
    assert redaction.words(line.format(DIGITS_40).split()) == expected.split()


@pytest.mark.parametrize("line", KEPT)
def test_what_is_no_secret_is_kept(line: str) -> None:
    """Names and values that only resemble those of secrets do not change."""
    assert redaction.words(shlex.split(line)) == shlex.split(line)
    assert redaction.text(line) == line


def test_all_kept_words_together_are_kept() -> None:
    """No rule reaches from one of these lines into the next."""
    words = [word for line in KEPT for word in (*shlex.split(line), "--")]
    assert redaction.words(words) == words


def test_the_rest_of_a_word_is_kept() -> None:
    """Name, quotes, scheme, user and host stay."""
    words = ["--db=1", "--api-key=a b", "postgres://ann:a@h/db", '{"token": "a", "lr": 3}', "--x"]
    assert redaction.words(words) == [
        "--db=1", "--api-key=REDACTED", "postgres://ann:REDACTED@h/db",
        '{"token": "REDACTED", "lr": 3}', "--x",
    ]  # fmt: skip


@pytest.mark.parametrize("line", [*BY_NAME, *BY_PLACE, *BY_FORM])
def test_a_second_redaction_changes_nothing(line: str) -> None:
    """A text that was redacted when it was written may be redacted again when it is read."""
    once = redaction.words(shlex.split(line))
    assert redaction.words(once) == once
    assert redaction.text(redaction.text(line)) == redaction.text(line)


def test_records_are_redacted_at_every_depth() -> None:
    """Keys are names, lists of texts are command lines, and other values do not change."""
    given = {
        "environment": {"HF_TOKEN": "a", "OMP_NUM_THREADS": "1", "PROXY": "http://u:a@h"},
        "words": ("train.py", "--token", "a"),
        "jobs": [{"words": ["--api-key=a"], "repeat": 1}, None, 2.5],
        "token": "",
    }
    expected = {
        "environment": {"HF_TOKEN": "REDACTED", "OMP_NUM_THREADS": "1",
                        "PROXY": "http://u:REDACTED@h"},
        "words": ["train.py", "--token", "REDACTED"],
        "jobs": [{"words": ["--api-key=REDACTED"], "repeat": 1}, None, 2.5],
        "token": "",
    }  # fmt: skip
    assert json.loads(json.dumps(redaction.record(given))) == expected


@pytest.mark.parametrize(
    "part", ["a", "wandb", "curl ", "://", "a=b ", "-a", "eyJ", "login -a", "'", '"a":', "a.b-",
             "mysql -u ", "sk-", "bearer ", "hf_", "-----BEGIN ", "u://u:"]
)  # fmt: skip
def test_the_time_is_proportional_to_the_length(part: str) -> None:
    """Ten times the text takes less than thirty times the time; a square would be a hundred."""

    def took_s(length: int) -> float:
        line, times = part * (length // len(part)), []
        for _ in range(3):
            start_s = time.thread_time()
            redaction.words([line])
            times.append(time.thread_time() - start_s)
        return min(times)

    assert took_s(20_000) < 30.0 * took_s(2_000)
