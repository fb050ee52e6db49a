"""CodeCarbon's logger while it works for us."""

import logging
import threading

import pytest

from energy_callbacks.sensing.quiet_codecarbon import quiet_codecarbon


@pytest.fixture
def heard():
    """What the logger of CodeCarbon lets through."""
    logger, messages = logging.getLogger("codecarbon"), []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger.addHandler(handler)
    yield messages
    logger.removeHandler(handler)


def test_only_this_thread_is_quiet(heard):
    """Inside the block this thread is not heard; another thread, and this one after, are."""
    logger = logging.getLogger("codecarbon")
    with quiet_codecarbon():
        logger.error("ours")
        other = threading.Thread(target=logger.error, args=("the user's tracker",))
        other.start()
        other.join()
    logger.error("after")
    assert heard == ["the user's tracker", "after"]


def test_an_error_ends_the_quiet(heard):
    """An exception leaves the logger as it was."""
    filters = list(logging.getLogger("codecarbon").filters)
    with pytest.raises(KeyError), quiet_codecarbon():
        raise KeyError
    assert logging.getLogger("codecarbon").filters == filters
