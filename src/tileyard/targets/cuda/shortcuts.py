"""What makes TileLang's passes cheaper in a compile worker without changing what comes out.

Three things: the refuter, rewritten macros that are remembered, and a garbage collector that does not
search the heap of imported libraries again and again. They are meant for one version of TileLang,
and ``TILEYARD_PLAIN_LOWERING=1`` leaves them all out.
"""

import gc
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from tileyard.targets.cuda.refuter import NoRefuterError, Refuter, load_refuter

SWITCH = "TILEYARD_PLAIN_LOWERING"
"""Set to 1, TileLang's passes run as they are."""

GC_THRESHOLDS = (200_000, 50, 100)
"""Lowering makes few cycles, and many objects: collections are worth little, and cost a twelfth.

Imports make even more, which stay: there they cost a sixth.
"""

log = logging.getLogger(__name__)


def import_tilelang(caches: Path, environ: Mapping[str, str] = os.environ) -> Refuter | None:
    """Import TileLang's passes with every shortcut that can be used here; the refuter, if it is.

    What cannot be used is logged. For a process of its own: these shortcuts stay.
    """
    if environ.get(SWITCH, "") not in ("", "0"):
        _import()
        return None
    gc.set_threshold(*GC_THRESHOLDS)
    refuter: Refuter | None = None
    try:
        refuter = load_refuter(caches, environ.get("CC", ""))
    except NoRefuterError as error:
        log.warning("TileLang's passes ask Z3 everything: %s", error)
    _import()
    if refuter is not None and refuter.connect():
        refuter.switch(on=True)
    # Heavy, and only there once TileLang is imported.
    from tileyard.targets.cuda.macros import remember_macros

    try:
        remember_macros()
    except AttributeError as error:
        log.warning("TileLang's macros are rewritten each time: %s", error)
    gc.collect()
    gc.freeze()
    return refuter


def _import() -> None:
    import tileyard.targets.cuda.lowering  # noqa: F401 - seconds, which a runner must not spend
