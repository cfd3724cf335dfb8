"""Small HIVM functions in the form that the compiler writes."""

from __future__ import annotations

HEAD = """module attributes {{}} {{
  func.func private @load_gm_to_ubuf_1d_float(memref<?xf32>) attributes {{llvm.emit_c_interface}}
  func.func @k(%arg0: i64, %arg1: memref<?xi8, #hivm.address_space<gm>>, %arg2: memref<?xi8, #hivm.address_space<gm>>, \
%arg3: memref<?xf32, #hivm.address_space<gm>>, %arg4: memref<?xf32, #hivm.address_space<gm>>, %arg5: i32, %arg6: i32, \
%arg7: i32, %arg8: i32) attributes {{hacc.entry, hivm.func_core_type = #hivm.func_core_type<AIV>}} {{
    %c0_i32 = arith.constant 0 : i32
    %c1_i32 = arith.constant 1 : i32
    %c0 = arith.constant 0 : index
    %cst = arith.constant 0.000000e+00 : f32
    %0 = hivm.hir.pointer_cast(%c0_i32) : memref<{block}xf32, #hivm.address_space<ub>>
    %1 = hivm.hir.pointer_cast(%c0_i32) : memref<{block}xf32, #hivm.address_space<ub>>
    %2 = hivm.hir.get_block_idx -> i64
    %3 = arith.trunci %2 : i64 to i32
    %4 = arith.remsi %3, %arg6 : i32
{body}
    hivm.hir.pipe_barrier[<PIPE_ALL>]
    return
  }}
}}
"""
_GM, _UB = "#hivm.address_space<gm>", "#hivm.address_space<ub>"
_TYPE = "memref<{block}xf32, strided<[?], offset: ?>, {space}>"
#: One buffer: the load of a turn waits until the store of the turn before is done.
SINGLE = """    hivm.hir.set_flag[<PIPE_MTE3>, <PIPE_MTE2>, <EVENT_ID0>]
    scf.for %i = %4 to %arg5 step %arg6  : i32 {{
{turn}
    }}
    hivm.hir.wait_flag[<PIPE_MTE3>, <PIPE_MTE2>, <EVENT_ID0>]"""
#: Two buffers.
DOUBLE = """    hivm.hir.set_flag[<PIPE_MTE3>, <PIPE_MTE2>, <EVENT_ID0>]
    hivm.hir.set_flag[<PIPE_MTE3>, <PIPE_MTE2>, <EVENT_ID0>]
    scf.for %i = %4 to %arg5 step %arg6  : i32 {{
{turn}
    }}
    hivm.hir.wait_flag[<PIPE_MTE3>, <PIPE_MTE2>, <EVENT_ID0>]
    hivm.hir.wait_flag[<PIPE_MTE3>, <PIPE_MTE2>, <EVENT_ID0>]"""
TURN = """      %b = arith.muli %i, %c1_i32 : i32
      %r = memref.reinterpret_cast %arg3 to offset: [%c0], sizes: [{block}], strides: [{stride}] : memref<?xf32, {gm}> \
to memref<{block}xf32, strided<[{stride}], offset: ?>, {gm}>
      %w = memref.reinterpret_cast %arg4 to offset: [%c0], sizes: [{block}], strides: [1] : memref<?xf32, {gm}> \
to memref<{block}xf32, strided<[1], offset: ?>, {gm}>
      hivm.hir.wait_flag[<PIPE_MTE3>, <PIPE_MTE2>, <EVENT_ID0>]
      func.call @load_gm_to_ubuf_1d_float(%r, %0, %c0_i32, %cst, %c0) : (A, B, i32, f32, index) -> ()
      hivm.hir.set_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
      hivm.hir.wait_flag[<PIPE_MTE2>, <PIPE_V>, <EVENT_ID0>]
      func.call @{function}(%0, %1, %1) : (A, B, C) -> ()
      hivm.hir.set_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
      hivm.hir.wait_flag[<PIPE_V>, <PIPE_MTE3>, <EVENT_ID0>]
      func.call @store_ubuf_to_gm_1d_float(%1, %w, %c0_i32) : (A, B, i32) -> ()
      hivm.hir.set_flag[<PIPE_MTE3>, <PIPE_MTE2>, <EVENT_ID0>]"""


def module(loop: str = DOUBLE, block: int = 1024, stride: int = 1, function: str = "vexp_1d_float", turn: str = TURN):
    """Return a module that copies ``%arg5`` blocks through a vector function."""
    text = turn.format(block=block, stride=stride, function=function, gm=_GM)
    return HEAD.format(block=block, body=loop.format(turn=text))


def launch(blocks: int, grid: int = 1, **tensors: int) -> dict:
    """Return the record of a launch of :func:`module`."""
    return {
        "name": "k",
        "signature": {"x": "*fp32", "o": "*fp32", "n": "i32"},
        "scalars": {"n": blocks},
        "tensors": tensors,
        "grid": [grid, 1, 1],
        "calls": [{"grid": [grid, 1, 1], "scalars": {"n": blocks}, "tensors": tensors, "count": 1}],
    }
