"""Layout files: looks at one and says what is wrong with it, or writes one; GDS and OASIS, also gzipped.

A layout is read by KLayout's reader in this process: only for files that a person named, and only up to a size. Decks
are run on copies in a sandbox (``strmrun``, ``klayout``), where the reader can do no harm.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from orienteer.environments.layout.tasks import LayerNumber
from orienteer.errors import UsageError

#: Largest file that is looked at, MiB, before and after unzipping.
MOST_MB = 1024
_CURE = "give a layout as GDS or OASIS (.gds, .oas, also .gz)"
_GDS, _OASIS, _GZIP = b"\x00\x06\x00\x02", b"%SEMI-OASIS\r\n", b"\x1f\x8b"
_SUFFIXES = (".gds", ".gds2", ".oas", ".gds.gz", ".gds2.gz")
_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class LayoutFacts:
    """What is in a layout file.

    Attributes:
        path: the file.
        sha256: of its bytes.
        size: bytes.
        format: ``GDS2`` or ``OASIS``, with ``.gz`` where it is zipped.
        dbu: the database unit in micrometres.
        tops: names of the top cells.
        cells: number of cells.
        layers: shapes per layer, each cell's counted once however often it is placed; layers without a number left out.
    """

    path: Path
    sha256: str
    size: int
    format: str
    dbu: float
    tops: tuple[str, ...]
    cells: int
    layers: Mapping[LayerNumber, int]


def check_layout(path: str | Path, *, most_mb: int = MOST_MB) -> LayoutFacts:
    """Read a layout and return what is in it.

    Args:
        path: the file.
        most_mb: largest size, MiB; for a zipped file of what is in it as well.

    Raises:
        UsageError: it is missing, no regular file, empty, too large, no layout, or damaged.
    """
    path = Path(path)
    size, sha, form = _looked_at(path, most_mb)
    from klayout import db

    layout = db.Layout()
    try:
        layout.read(str(path))
    except RuntimeError as error:
        said = str(error).removesuffix(" in Layout.read")
        raise UsageError(f"{path} is a damaged {form} file: {said[:200]}", "write it again from its source") from None
    layers: dict[LayerNumber, int] = {}
    for index in layout.layer_indexes():
        info = layout.get_info(index)
        if info.layer >= 0:
            key = (info.layer, info.datatype)
            layers[key] = layers.get(key, 0) + sum(cell.shapes(index).size() for cell in layout.each_cell())
    tops = tuple(sorted(cell.name for cell in layout.top_cells()))
    if not tops:
        raise UsageError(f"{path} has no cell in it", "give a layout with at least one cell")
    return LayoutFacts(path, sha, size, form, layout.dbu, tops, layout.cells(), dict(sorted(layers.items())))


def write_layout(
    path: str | Path,
    shapes: Mapping[LayerNumber, Sequence[Sequence[tuple[int, int]]]],
    dbu: float = 0.001,
    top: str = "TOP",
) -> None:
    """Write polygons into one cell of a new layout; the same content gives the same bytes.

    Args:
        path: where to; the suffix decides the format. An existing file is replaced whole.
        shapes: hulls by layer: corner points in database units, three or more.
        dbu: the database unit in micrometres.
        top: the name of the cell.

    Raises:
        UsageError: the suffix or a shape makes no sense, or the file cannot be written.
    """
    path = Path(path)
    if not path.name.lower().endswith(_SUFFIXES):
        raise UsageError(f"{path} is to be written in an unknown format", f"end its name in {', '.join(_SUFFIXES)}")
    if not 0 < dbu < 1000:
        raise UsageError(f"a database unit of {dbu} micrometres makes no sense", "give for example 0.001")
    from klayout import db

    layout = db.Layout()
    layout.dbu = dbu
    cell = layout.create_cell(top)
    for (layer, datatype), hulls in sorted(shapes.items()):
        if not (0 <= layer <= 65535 and 0 <= datatype <= 65535):
            raise UsageError(f"{layer}/{datatype} is no layer", "numbers are 0 to 65535")
        into = cell.shapes(layout.layer(layer, datatype))
        for hull in hulls:
            into.insert(_polygon(db, hull, (layer, datatype)))
    options = db.SaveLayoutOptions()
    options.set_format_from_filename(path.name)
    options.gds2_write_timestamps = False
    draft = path.with_name(f".{os.getpid()}-{os.urandom(4).hex()}-{path.name}")
    try:
        layout.write(str(draft), options)
        draft.replace(path)
    except (OSError, RuntimeError) as error:
        draft.unlink(missing_ok=True)
        raise UsageError(f"{path} cannot be written: {error}", "give a file in a folder that you may write") from None


def _polygon(db: Any, hull: Sequence[tuple[int, int]], layer: LayerNumber) -> Any:
    where = f"a polygon on {layer[0]}/{layer[1]}"
    if len(hull) < 3:
        raise UsageError(f"{where} has {len(hull)} corners", "give three or more")
    if any(not isinstance(v, int) or abs(v) > _LIMIT for point in hull for v in point):
        raise UsageError(f"{where} has a corner off the grid or out of range", "give whole database units of 32 bits")
    return db.Polygon([db.Point(x, y) for x, y in hull])


def _looked_at(path: Path, most_mb: int) -> tuple[int, str, str]:
    """Return size, hash and format of what may be given to the reader."""
    try:
        # Without waiting: a named pipe would hold us until somebody writes.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        what = "does not exist" if error.errno == errno.ENOENT else f"cannot be opened: {error.strerror}"
        raise UsageError(f"the layout {path} {what}", _CURE) from None
    except ValueError:
        raise UsageError(f"{str(path)!r} is no path", _CURE) from None
    facts = os.fstat(fd)
    if not stat.S_ISREG(facts.st_mode):
        os.close(fd)
        kind = "a folder" if stat.S_ISDIR(facts.st_mode) else "no regular file"
        raise UsageError(f"the layout {path} is {kind}", _CURE)
    with os.fdopen(fd, "rb") as file:
        if facts.st_size == 0:
            raise UsageError(f"the layout {path} is empty", _CURE)
        if facts.st_size > most_mb << 20:
            raise UsageError(_too_large(path, facts.st_size >> 20, most_mb), "allow it with --most-mb")
        head = file.read(64)
        zipped = head.startswith(_GZIP)
        if zipped:
            file.seek(0)
            head = _unzipped_head(file, path, most_mb)
        form = "GDS2" if head.startswith(_GDS) else "OASIS" if head.startswith(_OASIS) else ""
        if not form:
            words = head.split(b"\0")[0]
            text = len(words) == len(head) and all(c >= 32 or c in b"\t\r\n" for c in head)
            what = "a text file" if text else "neither GDS nor OASIS"
            raise UsageError(f"the layout {path} is {what}", _CURE)
        file.seek(0)
        sha = hashlib.file_digest(file, "sha256").hexdigest()
    return facts.st_size, sha, f"{form}.gz" if zipped else form


def _too_large(path: Path, size_mb: int, most_mb: int) -> str:
    return f"the layout {path} has {size_mb} MiB, more than the {most_mb} that are looked at"


def _unzipped_head(file: BinaryIO, path: Path, most_mb: int) -> bytes:
    """Unzip to the end to see that it is whole and how large it gets; return the beginning."""
    unzip = zlib.decompressobj(31)
    head, size = b"", 0
    try:
        while not unzip.eof and (piece := unzip.unconsumed_tail or file.read(1 << 16)):
            out = unzip.decompress(piece, 1 << 20)
            head = head or out[:64]
            size += len(out)
            if size > most_mb << 20:
                raise UsageError(_too_large(path, size >> 20, most_mb), "allow it with --most-mb")
    except zlib.error as error:
        raise UsageError(
            f"the layout {path} is a damaged gzip file: {error}", "write it again from its source"
        ) from None
    if not unzip.eof:
        raise UsageError(f"the layout {path} is a gzip file cut off", "write it again from its source")
    return head
