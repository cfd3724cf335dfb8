"""What the latency models know of the hardware: rates and sizes, each with the place where it is published.

Nothing here was measured by us. Sources of the Ascend figures:

- ``platform``: the platform file for Ascend910B1 in the wheel pypto 0.2.0 (``lib/configs/A2A3.ini``): cube 1,850 MHz,
  16x16x16 products of float16 a cycle, vector unit 128 bytes a cycle, L2 192 MiB; bytes a cycle and core: DDR 32, L2
  read 110 and write 86, L1 to L0A 512 and to L0B 256, L0C to UB 256, UB to memory 64.
- ``device``: excerpts of the vendor's platform files for other chips in public repositories: 910B2 and 910_9382
  1,800 MHz, 910B4 1,500 MHz with 32 GiB and 96 MiB of L2, 950PR 1,650 MHz with 128 MiB of L2.
- ``memory``: product statements: 1.6 TB/s for the 910B with 64 GiB, taken for 910B1 to 910B3 and one die of the 910C;
  1.6 TB/s for the 950PR. For the 910B4, which has half the memory and half the cache, half of it is assumed.
- ``assumed``: no public figure was found; the value says what the model uses instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class AscendRates:
    """Rates of one chip. Bytes are per cycle and core where nothing else is said."""

    clock_hz: float
    #: Bytes a second of the whole chip.
    hbm: float
    l2_bytes: int
    #: A burst shorter than this moves no faster than one of this length, bytes.
    granule: int
    ddr: float = 32
    l2_read: float = 110
    l2_write: float = 86
    ub_out: float = 64
    ub_to_l1: float = 128
    l1_to_l0a: float = 512
    l1_to_l0b: float = 256
    l0c_out: float = 64
    vector: float = 128
    #: Sources by field.
    sources: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Assumed:
    """Fixed costs, in cycles unless their name says otherwise.

    No public file gives them. They are the same for all chips, and the reason why the model is uncalibrated.
    """

    #: From the start of a transfer until its first bytes arrive, hidden when transfers follow each other; until a store
    #: is done. The cost model in pypto 0.2.0 charges 1,406 cycles and one for every 96 bytes for a load by itself, 304
    #: and one for every 76 bytes for a store; here the bytes are charged at the platform file's rates.
    memory_latency: float = 800
    store_latency: float = 300
    #: Between two transfers of one pipe.
    transfer_gap: float = 30
    #: For each contiguous piece of a transfer, and the bytes that the L2 cache moves for a short one.
    burst: float = 2
    cache_line: float = 128
    #: One instruction of the vector unit: its start, hidden when the next one does not wait for it. (29 to 53 cycles
    #: in pypto's cost model.)
    vector_start: float = 14
    vector_drain: float = 16
    #: Products of one tile: start of the cube.
    cube_start: float = 20
    #: Moving a tile from L1 to L0, and out of L0C.
    l1_latency: float = 60
    #: Passing a flag from one pipe to another.
    flag: float = 10
    #: Scalar unit: one instruction, a division, a float operation; reading UB, reading memory past its small cache.
    scalar: float = 1
    scalar_division: float = 12
    scalar_float: float = 4
    scalar_ub: float = 12
    scalar_memory: float = 300
    #: Passing a flag between a cube core and its vector cores.
    core_flag: float = 200
    #: Starting a program instance on a core, and a kernel on the chip, seconds.
    instance_s: float = 0.7e-6
    launch_s: float = 4e-6


ASSUMED = Assumed()
_A2 = {"hbm": "memory", "l2_bytes": "platform", "granule": "vendor's tuning guide", "rest": "platform"}
ASCEND: dict[str, AscendRates] = {
    "Ascend910B1": AscendRates(1.85e9, 1.6e12, 192 << 20, 512, sources={**_A2, "clock_hz": "platform"}),
    "Ascend910B2": AscendRates(1.80e9, 1.6e12, 192 << 20, 512, sources={**_A2, "clock_hz": "device"}),
    "Ascend910B3": AscendRates(1.80e9, 1.6e12, 192 << 20, 512, sources={**_A2, "clock_hz": "assumed as 910B2"}),
    "Ascend910B4": AscendRates(
        1.50e9, 0.8e12, 96 << 20, 512, sources={**_A2, "clock_hz": "device", "l2_bytes": "device"}
    ),
    "Ascend910_9382": AscendRates(
        1.80e9, 1.6e12, 192 << 20, 512, sources={**_A2, "clock_hz": "device", "l2_bytes": "device"}
    ),
    "Ascend950PR_9589": AscendRates(
        1.65e9,
        1.6e12,
        128 << 20,
        128,
        sources={
            "clock_hz": "device",
            "hbm": "memory",
            "l2_bytes": "device",
            "granule": "product statements: 128 bytes instead of 512",
            "rest": "assumed as 910B1",
        },
    ),
}


def cube_share(bits: int) -> float:
    """Return the speed of the cube for elements of a width, relative to float16.

    8-bit integers run at twice the rate (platform file). Float32 is assumed to run at a quarter of it; the cost model
    in pypto 0.2.0 says half.
    """
    return {8: 2.0, 16: 1.0, 32: 0.25}.get(bits, 0.25)


@dataclass(frozen=True)
class GpuRates:
    """A GPU by its data sheet. Rates of the whole device, a second."""

    #: Product whose data sheet and architecture manual give the numbers.
    product: str
    multiprocessors: int
    hbm: float
    l2_bytes: int
    #: Matrix units by input: float16 and bfloat16, float32 as TF32 or xf32, 8 bits, float64.
    tensor16: float
    tensor32: float
    tensor8: float
    #: Float32 outside the matrix units.
    simt32: float
    #: Of one multiprocessor.
    shared_bytes: int
    registers: int
    threads: int
    blocks: int
    #: Registers are handed out in units of this many for a warp.
    register_unit: int
    launch_s: float = 4e-6
    #: Cache bandwidth relative to that of memory: assumed, no data sheet gives it.
    l2_share: float = 3.0


#: Dense rates without sparsity. Sources: NVIDIA A100, H100 SXM and B200 data sheets and the CUDA programming guide's
#: table of compute capabilities; AMD Instinct MI300X data sheet and the CDNA 3 ISA manual.
GPUS: dict[str, GpuRates] = {
    "sm_80": GpuRates(
        "A100 SXM 40 GB", 108, 1.555e12, 40 << 20, 312e12, 156e12, 624e12, 19.5e12, 164 << 10, 65536, 2048, 32, 256
    ),
    "sm_90": GpuRates(
        "H100 SXM 80 GB", 132, 3.35e12, 50 << 20, 989e12, 495e12, 1979e12, 67e12, 228 << 10, 65536, 2048, 32, 256
    ),
    "sm_100": GpuRates(
        "B200", 148, 8.0e12, 126 << 20, 2250e12, 1125e12, 4500e12, 75e12, 228 << 10, 65536, 2048, 32, 256
    ),
    "gfx942": GpuRates(
        "MI300X", 304, 5.3e12, 256 << 20, 1307e12, 654e12, 2615e12, 163e12, 64 << 10, 131072, 2048, 32, 512
    ),
}
