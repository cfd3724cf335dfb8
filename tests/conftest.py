"""What all tests share: one kernel world for the session. Modules beside the tests are found by ``pythonpath``."""

import hypothesis
import pytest
import shared_world

# How long an example takes says nothing about whether it is right.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture(scope="session")
def shared():
    return shared_world
