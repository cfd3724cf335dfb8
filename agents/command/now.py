"""What the front has to know about the command in progress when something ends it. Imports nothing."""

from __future__ import annotations

#: The run that is being driven, for the hint how to go on with it.
run_id: str = ""
#: True once the one JSON document of ``--json`` was written.
json_written: bool = False
