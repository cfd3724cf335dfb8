"""The contract between a C++ candidate and the harness: one header, one function.

A candidate is one C++17 file that includes ``orienteer.h`` and defines ``forward``. The harness allocates everything:
inputs and parameters are read-only, outputs have the reference's shapes and are filled with NaN (integers with a
pattern) before the call. Sizes are read at run time, so one file serves every shape.
"""

from __future__ import annotations

#: Dtype codes of ``Tensor.dtype``; a plain Python argument of ``forward`` comes as a tensor of rank 0.
DTYPES = {
    "float32": 0,
    "float64": 1,
    "float16": 2,
    "bfloat16": 3,
    "int64": 4,
    "int32": 5,
    "int16": 6,
    "int8": 7,
    "uint8": 8,
    "bool": 9,
}
#: Bytes of one element.
ITEM_SIZE = {
    "float32": 4,
    "float64": 8,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
#: Code of an argument that is no tensor and no number (None, a text): ``data`` is null.
NOTHING = -1
#: Every tensor's data begins at a multiple of this, bytes.
ALIGNMENT = 64
HEADER_NAME = "orienteer.h"
HEADER = """\
// The contract of a C++ kernel for Orienteer's cpu target; see docs/cpu.md.
#pragma once
#include <cstdint>

enum DType : int32_t {
    FLOAT32 = 0, FLOAT64 = 1, FLOAT16 = 2, BFLOAT16 = 3, INT64 = 4, INT32 = 5, INT16 = 6, INT8 = 7, UINT8 = 8, BOOL = 9
};

struct Tensor {
    void* data;              // 64-byte aligned, row-major
    const int64_t* sizes;    // rank numbers
    const int64_t* strides;  // in elements
    int64_t rank;
    int32_t dtype;           // a DType; -1 for an argument that is neither tensor nor number
    int32_t reserved;
};

// inputs: the arguments of Model.forward in order. state: parameters and buffers in the order of state_dict().
// outputs: what forward returns, allocated by the caller. threads: how many threads may be used.
extern "C" __attribute__((visibility("default"))) void forward(const Tensor* inputs, const Tensor* state,
                                                              const Tensor* outputs, int threads);
"""
