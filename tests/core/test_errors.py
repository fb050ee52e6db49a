"""The tree of errors."""

import pickle

import pytest

from energy_callbacks.core import errors


def test_every_error_of_ours_is_in_one_tree() -> None:
    """``except EnergyCallbacksError`` catches all errors, and the docstring lists them."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    found = [kind for kind in kinds if not kind.__name__.startswith("_")]
    assert len(found) == 13
    for kind in found:
        assert issubclass(kind, errors.EnergyCallbacksError)
        assert errors.__doc__ is not None
        assert kind.__name__ in errors.__doc__


def test_a_missing_extra_is_an_import_error_too() -> None:
    """Code that expects ``ImportError`` of a missing framework works."""
    assert issubclass(errors.MissingExtraError, ImportError)


def test_a_sensor_fails_in_three_ways() -> None:
    """Cannot be opened, missed a reading, lost for good, and nothing else."""
    assert set(errors.SourceError.__subclasses__()) == {
        errors.SourceUnavailable,
        errors.ReadingMissed,
        errors.SourceLost,
    }


@pytest.mark.parametrize("fix", ["", "run: modprobe msr"])
def test_unavailable_carries_reason_and_fix_through_a_pickle(fix: str) -> None:
    """Both reach another process, and the message holds both."""
    error = errors.SourceUnavailable("no RAPL here", fix)
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.reason, copy.fix) == ("no RAPL here", fix)
    assert str(copy) == str(error) == ("no RAPL here; run: modprobe msr" if fix else "no RAPL here")
