"""Which names of TileLang's language are no operations of kernels. Imports TileLang: import this late."""

from collections.abc import Iterable
from types import ModuleType

import tilelang.language as T
from tvm_ffi import dtype as ScalarType

MODULES = {
    "tvm.tirx.expr": "nodes of TVM's expressions",
    "tvm.tirx.function": "nodes of TVM's expressions",
    "tvm.ir.expr": "nodes of TVM's expressions",
    "tvm.tirx.script": "TVM's own script builder",
    "tvm.target": "TVM's own code generators",
    "tvm_ffi": "scalar types",
    "typing": "types for annotations",
    "tilelang.language.dtypes": "questions about scalar types",
    "tilelang.language.symbolics": "shapes of parameters",
    "tilelang.language.frame": "what TileLang asks itself while it builds a kernel",
    "tilelang.language.meta": "classes whose methods are inlined",
    "tilelang.language.warp_specialize": "parts of a schedule of roles",
    "tilelang.layout": "layouts",
    "tilelang.tileop": "policies",
    "tilelang.cuda.intrinsics": "generators of hand-written code for threads",
}
"""Modules, with all below them, whose names are no operations, and what they are."""

NAMES = {
    "prim_func macro const Ref JITFunc KernelLaunchFrame WarpSpecializeFrame": "what makes kernels",
    "Buffer Tensor StridedTensor FragmentBuffer SharedBuffer LocalBuffer ptr Ptr": "parameters",
    "get_block_bindings get_block_extents get_thread_bindings get_thread_extents get_cluster_dims "
    "get_cluster_ids get_cluster_extents": "lists of what is asked for one by one",
    "TVMBackendAllocWorkspace TVMBackendFreeWorkspace anylist_getitem anylist_resetitem "
    "anylist_setitem_call_cpacked anylist_setitem_call_packed call_cpacked call_cpacked_lowered call_packed "
    "call_packed_lowered tvm_call_cpacked tvm_call_cpacked_lowered tvm_call_packed tvm_call_packed_lowered "
    "tvm_stack_alloca tvm_stack_make_array tvm_stack_make_shape tvm_struct_get tvm_struct_set "
    "tvm_throw_last_error tvm_tuple": "code of the host",
    "call_llvm_intrin call_llvm_pure_intrin q_multiply_shift_per_axis tvm_thread_invariant call_intrin": (
        "for other targets, or for whatever is not in the language"
    ),
    "make_blockscaled_gemm_layout tma_gather4_bytes": "numbers and layouts for operations",
}
"""Single names that are not operations, and what they are."""


def public_names() -> list[str]:
    """Every name of the language that is not a module and no scalar type."""
    found = {*T.__all__, *(name for name in dir(T) if not name.startswith("_"))}
    values = {name: getattr(T, name) for name in found}
    return sorted(
        name
        for name, value in values.items()
        if callable(value) and not isinstance(value, ModuleType | ScalarType)
    )


def scalar_types() -> dict[str, str]:
    """The name of the language for every scalar type, and its synonyms behind it, by TVM's name."""
    found: dict[str, list[str]] = {}
    for name in sorted(dir(T)):
        value = getattr(T, name)
        if isinstance(value, ScalarType) and value.lanes == 1:
            found.setdefault(str(value), []).append(name)
    by_width = sorted(found.items(), key=lambda item: min(len(name) for name in item[1]))
    return {min(names, key=len): ", ".join(names) for _, names in by_width}


def others(names: Iterable[str]) -> dict[str, list[str]]:
    """Those of ``names`` that are not operations, by what they are."""
    listed = {name: what for group, what in NAMES.items() for name in group.split()}
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        what = listed.get(name) or _by_module(getattr(T, name))
        if what:
            found.setdefault(what, []).append(name)
    return found


def _by_module(value: object) -> str:
    module = str(getattr(value, "__module__", None) or type(value).__module__)
    return next(
        (what for start, what in MODULES.items() if f"{module}.".startswith(f"{start}.")), ""
    )
