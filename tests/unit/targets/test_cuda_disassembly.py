"""What nvdisasm prints, cut down to one artifact's functions."""

from tileyard.targets.cuda.sass import keep_functions

HEAD = "\t.target\tsm_80\n\n"
FIRST = (
    "//--------------------- .text.first_kernel --------------------------\n"
    ".other first, STO_CUDA_ENTRY\nA ;\n"
)
SECOND = (
    "//--------------------- .text.second_kernel --------------------------\n"
    ".other second, STO_CUDA_ENTRY\nB ;\n"
)
CALLED = "//--------------------- .text.helper --------------------------\n.other helper, STO_LOCAL\nC ;\n"


def test_kernels_of_others_are_left_out() -> None:
    """Of a cubin that several kernels share, those that are asked for remain, with what they may call."""
    text = HEAD + FIRST + SECOND + CALLED
    expected = HEAD + SECOND + CALLED
    assert "".join(keep_functions(text, ["second_kernel"])) == expected


def test_all_of_an_artifacts_kernels_remain() -> None:
    """An artifact with several launches keeps the functions of all."""
    text = HEAD + FIRST + SECOND
    assert "".join(keep_functions(text, ["second_kernel", "first_kernel"])) == text
