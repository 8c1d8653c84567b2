"""Reads quickly what a 64-bit little-endian program asks of the dynamic loader, but for symbol versions."""

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from tileyard.artifacts.libraries import NUMBERS, Needs
from tileyard.base.model import Record

_MACHINES = {number: name for name, number in NUMBERS.items()}
_HEAD = struct.Struct("<4sBB10xHHIQQQIHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_WIDE, _LITTLE = 2, 1
_PROGRAM, _SHARED = 2, 3
_LOADED, _DYNAMIC = 1, 2
_END, _NEEDED, _STRINGS, _SYMBOLS, _RPATH, _RUNPATH = 0, 1, 5, 6, 15, 29


class Links(Record):
    """Libraries that a file asks for, and names that it takes; None if it is not dynamically linked."""

    needs: Needs
    imports: frozenset[str] | None = None


def read_links(path: Path) -> Links | None:
    """The links of a program or library; None for any other file, including a damaged one. Raises OSError."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < _HEAD.size:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _read(data)
            except (struct.error, ValueError, IndexError):
                return None


def _read(data: mmap.mmap) -> Links | None:
    head = _HEAD.unpack_from(data)
    magic, width, order, kind, machine = head[:5]
    if (magic, width, order) != (b"\x7fELF", _WIDE, _LITTLE) or kind not in (_PROGRAM, _SHARED):
        return None
    first, size, count = head[7], head[11], head[12]
    segments = [_SEGMENT.unpack_from(data, first + number * size) for number in range(count)]
    needs = Needs(machine=_MACHINES.get(machine, str(machine)))
    dynamic = next((one for one in segments if one[0] == _DYNAMIC), None)
    if dynamic is None:
        return Links(needs=needs)
    tags = list(_read_tags(data, dynamic[2], dynamic[5]))
    places = dict(tags)

    def find(address: int) -> int:
        for one in segments:
            if one[0] == _LOADED and one[3] <= address < one[3] + one[5]:
                return int(address - one[3] + one[2])
        raise ValueError(address)

    strings = find(places[_STRINGS]) if _STRINGS in places else 0

    def text(offset: int) -> str:
        end = data.find(b"\0", strings + offset)
        if end < 0:
            raise ValueError(offset)
        return data[strings + offset : end].decode(errors="replace")

    needed = tuple(text(value) for tag, value in tags if tag == _NEEDED)
    search = places.get(_RUNPATH, places.get(_RPATH))
    imports = None
    if needed and _SYMBOLS in places:
        start = find(places[_SYMBOLS])
        if strings <= start:  # no linker does that
            raise ValueError(strings)
        table = data[start : start + (strings - start) // _SYMBOL.size * _SYMBOL.size]
        offsets = {one[0] for one in _SYMBOL.iter_unpack(table) if one[3] == 0 and one[0]}
        # After the symbols there may be another table, whose entries could look like names.
        imports = frozenset(text(one) for one in offsets if strings + one < len(data))
    return Links(
        needs=Needs(
            machine=needs.machine,
            libraries=needed,
            search=() if search is None else tuple(filter(None, text(search).split(":"))),
            is_rpath=_RPATH in places and _RUNPATH not in places,
        ),
        imports=imports,
    )


def _read_tags(data: mmap.mmap, start: int, size: int) -> Iterator[tuple[int, int]]:
    for offset in range(start, start + size, _ENTRY.size):
        tag, value = _ENTRY.unpack_from(data, offset)
        if tag == _END:
            return
        yield tag, value
