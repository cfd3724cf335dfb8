"""What tokens cost: a table that is data, and may be overridden."""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orienteer.errors import UsageError

#: Environment variable that names a price file.
VARIABLE = "ORIENTEER_PRICES"
_DATED = re.compile(r"-\d{4}-\d{2}-\d{2}$")
_FORM = 'it holds {"models": {"NAME": {"input": 1.0, "output": 2.0}}}, prices per million tokens'


@dataclass(frozen=True)
class PriceTable:
    """Prices per million tokens by model name, and where they are from."""

    models: dict[str, dict[str, Any]]
    source: str

    def find(self, model: str, host: str) -> tuple[float, float] | None:
        """Return (input, output) per million tokens, or None when the price is not known.

        A dated name (``gpt-4o-2024-08-06``) falls back to its family. An entry with a ``host`` holds only there.
        """
        for name in (model, _DATED.sub("", model)):
            entry = self.models.get(name)
            if entry is not None and entry.get("host", host) == host:
                return float(entry["input"]), float(entry["output"])
        return None


def cost_of(price: tuple[float, float] | None, tokens_in: int, tokens_out: int) -> float | None:
    """Return what the tokens cost, or None when the price is unknown."""
    if price is None:
        return None
    return (tokens_in * price[0] + tokens_out * price[1]) / 1e6


def load_prices(path: str | Path | None = None) -> PriceTable:
    """Return the shipped table with ``path``, else the file that ORIENTEER_PRICES names, laid over it.

    Raises:
        UsageError: the file is missing or is not a price table.
    """
    shipped = Path(__file__).with_name("prices.json")
    models = _read(shipped)
    source = "shipped"
    chosen = str(path) if path else os.environ.get(VARIABLE, "").strip()
    if chosen:
        models = {**models, **_read(Path(chosen))}
        source = Path(chosen).name
    return PriceTable(models, source)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"cannot read the price file {path} ({error.strerror})", f"point {VARIABLE} to a file"
        ) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the price file {path} is not JSON ({error})", _FORM) from None
    models = document.get("models") if isinstance(document, dict) else None
    if not isinstance(models, dict):
        raise UsageError(f"the price file {path} has no table of models", _FORM)
    for name, entry in models.items():
        for side in ("input", "output"):
            value = entry.get(side) if isinstance(entry, dict) else None
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not (0 <= value < math.inf):
                raise UsageError(f"the price file {path} has no usable {side} price for {name!r}", _FORM)
        if not isinstance(entry.get("host", ""), str):
            raise UsageError(f"the price file {path} has a host for {name!r} that is not a name", _FORM)
    return models
