"""Reading MLIR: operations, regions, buffer types and affine maps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orienteer.evaluators.kernel.latency import mlir

TEXT = """#map = affine_map<()[s0, s1] -> (s0 + s1 * 2, s0 ceildiv 3)>
module attributes {x = #x<"a">} {
  func.func private @lib(memref<?xf32>) attributes {llvm.emit_c_interface}
  func.func @main(%arg0: memref<?x4xf16, #hivm.address_space<gm>> {a = 1 : i32}, %arg1: i32) attributes {hacc.entry} {
    %c-1_i64 = arith.constant -1 : i64
    %0:2 = scf.for %i = %c0 to %arg1 step %c1 iter_args(%a = %c0, %b = %c1) -> (i32, i32)  : i32 {
      scf.if %x {
        func.call @lib(%m) : (memref<?xf32>) -> ()
      } else {
        hivm.hir.pipe_barrier[<PIPE_V>]
      } {hivm.unlikely_condition}
      scf.yield %b, %a : i32, i32
    } {pipeline}
    %s = "tt.reduce"(%v) <{axis = 0 : i32}> ({
    ^bb0(%l: f32, %r: f32):
      %t = arith.addf %l, %r : f32
    }) : (tensor<8xf32>) -> f32
    return
  }
}
"""


def test_operations_and_regions():
    module = mlir.read(TEXT)
    assert list(module.functions) == ["main"]
    main = module.functions["main"]
    assert [name for name, _ in main.arguments] == ["%arg0", "%arg1"]
    assert "hacc.entry" in main.attributes
    constant, loop, reduce, _ = main.body
    assert constant.results == ("%c-1_i64",)
    assert loop.results == ("%0#0", "%0#1") and loop.tail == "{pipeline}"
    branch, end = loop.regions[0]
    assert [region[0].name for region in branch.regions] == ["func.call", "hivm.hir.pipe_barrier"]
    assert branch.tail == "{hivm.unlikely_condition}" and end.operands() == ["%b", "%a"]
    assert reduce.name == "tt.reduce" and "-> f32" in reduce.text


def test_locations_are_cut():
    text = 'module {\n  tt.func public @k(%p: !tt.ptr<f32> loc("p"(#loc)), %n: i32 loc("n"(#loc))) {\n'
    text += '    %x = arith.addi %n, %n : i32 loc(callsite(#loc1 at #loc2))\n  } loc("a(b".py":1:2)\n} loc(#loc)\n'
    function = mlir.read(text).functions["k"]
    assert [name for name, _ in function.arguments] == ["%p", "%n"]
    assert function.body[0].text.strip() == "%n, %n : i32"


@pytest.mark.parametrize("text", ["module {\n", "module {\n}\n}\n"])
def test_braces_that_do_not_match(text):
    with pytest.raises(mlir.NotRead):
        mlir.read(text)


def test_a_text_that_is_too_long():
    with pytest.raises(mlir.NotRead, match="characters"):
        mlir.read(" " * (mlir.MAX_TEXT + 1))


@pytest.mark.parametrize(
    ("text", "sizes", "strides", "bits", "space"),
    [
        ("memref<4096xf32, #hivm.address_space<ub>>", (4096,), None, 32, "ub"),
        ("memref<?x8xbf16, strided<[?, 1], offset: ?>, #hivm.address_space<gm>>", (None, 8), (None, 1), 16, "gm"),
        ("memref<f32, #hivm.address_space<ub>>", (), None, 32, "ub"),
        ("a : memref<2xf32> to memref<3xi1>", (3,), None, 1, ""),
        ("tensor<64x32x!tt.ptr<f16>>", (64, 32), None, 16, ""),
        ("tensor<8xf8E4M3FN>", (8,), None, 8, ""),
    ],
)
def test_buffer_types(text, sizes, strides, bits, space):
    found = mlir.buffer_type(text)
    assert (found.sizes, found.strides, found.bits, found.space) == (sizes, strides, bits, space)


@given(st.integers(-1000, 1000), st.integers(1, 50))
def test_affine_maps_compute_as_mlir_says(a, b):
    found = mlir.AffineMap(["d0"], ["s0"], "d0 floordiv s0 + 3, d0 ceildiv s0, (d0 mod s0) * 2, -d0 - s0, d0 + s0 * 4")
    assert found([a, b]) == [a // b + 3, -(-a // b), (a % b) * 2, -a - b, a + 4 * b]


@pytest.mark.parametrize(
    "body", ["__import__('os')", "d0.real", "d0 ** 9", "d0 if d0 else 1", "[d0][0]", "1.5", "(" * 500]
)
def test_nothing_but_affine_expressions_is_read(body):
    with pytest.raises(mlir.NotRead):
        mlir.AffineMap(["d0"], [], body)
