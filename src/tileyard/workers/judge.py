"""The judge: compares the outputs of kernels with their golden outputs, in a process without a device."""

import sys
from collections.abc import Iterator
from pathlib import Path

from tileyard.artifacts.arrays import get_array
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import HOST_FAULTS, TileyardError
from tileyard.base.model import Digest, Outcome
from tileyard.processes.wire import Channel
from tileyard.targets.base import Array
from tileyard.workers.handing_over import get_output
from tileyard.workers.output_checks import Output, compare_outputs
from tileyard.workers.protocol import CaseToJudge, Judged, JudgeReady, JudgeRequest, Verdicts

KEPT = 64
"""Number of golden outputs that stay mapped: the configs of a kernel share theirs."""


class Judge:
    """Gives verdicts. ``objects`` contains the golden outputs."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._golden: dict[Digest, Array] = {}

    def judge(self, case: CaseToJudge) -> Judged:
        """The verdict on the outputs of one case."""
        try:
            mismatch, message = compare_outputs(self._outputs(case), case.check)
        except (*HOST_FAULTS, ValueError, MemoryError) as error:
            return Judged(outcome=Outcome.INFRA_ERROR, message=f"cannot judge: {error}")
        except TileyardError as error:
            return Judged(outcome=Outcome.RUNTIME_ERROR, message=str(error))
        outcome = Outcome.PASSED if mismatch is None else Outcome.MISMATCH
        return Judged(outcome=outcome, message=message, mismatch=mismatch)

    def _outputs(self, case: CaseToJudge) -> Iterator[Output]:
        """The outputs, each read only when it is needed."""
        for handed, digest in zip(case.outputs, case.golden, strict=True):
            yield Output(handed.name, get_output(handed), self._want(digest), handed.precision)

    def _want(self, digest: Digest) -> Array:
        if digest not in self._golden:
            if len(self._golden) >= KEPT:
                self._golden.clear()
            self._golden[digest] = get_array(self._objects, digest)
        return self._golden[digest]


def main(home: str) -> None:
    """Answer until the engine closes the channel."""
    with Channel.serving() as channel:
        judge = Judge(ObjectStore(Path(home) / "objects"))
        channel.send(JudgeReady())
        while (request := channel.receive(JudgeRequest)) is not None:
            channel.send(Verdicts(verdicts=tuple(map(judge.judge, request.cases))))


if __name__ == "__main__":
    main(sys.argv[1])
