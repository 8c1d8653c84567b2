"""The request of ``compile`` to the engine process. Light to import."""

from tileyard.base.model import Value
from tileyard.service.verbs import KernelVerb
from tileyard.verbs.tune.result.records import CompileResult, TuneRequest


class StartCompile(KernelVerb[CompileResult], kw_only=True):
    """Build the configs of a kernel that a tuning run of ``request`` would try, and run none. Without
    ``all_configs`` only the first. With ``pack_to`` they are packed there, with inputs and reference results,
    for ``commit`` if given. ``pass_options`` replace a kernel's own; ``pipeline`` is that of a Side.
    """

    opener = "tileyard.verbs.compile.plan.opening:open_compile"
    kept = "what was built is kept; run the same command again to continue"

    request: TuneRequest
    all_configs: bool = False
    pass_options: dict[str, Value] = {}
    pipeline: str = ""
    pack_to: str = ""
    commit: str = ""
