"""CodeCarbon's data files, read without CodeCarbon."""

import subprocess
import sys

import pytest

from energy_callbacks.core.errors import MissingExtraError
from energy_callbacks.sensing import codecarbon_tables
from energy_callbacks.sensing.codecarbon_tables import path, table


def test_the_newest_of_several_years_is_taken() -> None:
    """Wildcards match the folder of a year."""
    found = path("private_infra/20*/usa_emissions.json")
    assert found.parent.name >= "2023"
    assert table("private_infra/20*/usa_emissions.json")["california"]["regionCode"] == "CA"


def test_a_missing_file_is_named() -> None:
    """The message names the file that CodeCarbon does not have."""
    with pytest.raises(FileNotFoundError, match=r"CodeCarbon has no file data/nothing\.json"):
        table("nothing.json")


def test_without_codecarbon_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """CodeCarbon is not installed; the message has the command that installs it."""
    monkeypatch.setattr(codecarbon_tables, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"not installed; run: pip install .*codecarbon"):
        path("hardware/cpu_power.csv")


def test_nothing_of_codecarbon_is_imported() -> None:
    """Reading the tables imports neither CodeCarbon nor pandas."""
    code = (
        "import sys\n"
        "from energy_callbacks.sensing.codecarbon_tables import cpu_rows, table\n"
        "assert len(list(cpu_rows())) > 4000 and table('private_infra/global_energy_mix.json')\n"
        "assert not {'codecarbon', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
