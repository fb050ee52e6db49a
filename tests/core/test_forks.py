import os

import pytest

from energy_callbacks.core import forks


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_is_of_another_generation() -> None:
    """The child counts one more, the parent stays what it was."""
    before = forks.generation
    child = os.fork()
    if not child:
        os._exit(forks.generation - before)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 1
    assert forks.generation == before
