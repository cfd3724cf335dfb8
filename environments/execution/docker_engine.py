"""Docker backend (placeholder until built in this change)."""

from orienteer.errors import MissingPrerequisite


class DockerSandbox:
    def __init__(self) -> None:
        raise MissingPrerequisite("no Docker engine answers", "start one")


def answers() -> tuple[bool, str, str]:
    return False, "not built", ""
