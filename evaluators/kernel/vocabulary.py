"""The words that a candidate file may use, as tables: what is not listed is not allowed.

A list of what is forbidden ages with every release of PyTorch and Triton; a list of what a kernel and its wrapper need
is short and stays true.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Modules that a candidate may import. None of them may be used as a value: only names inside them.
MODULES = _words(
    """
    math typing torch torch.nn torch.nn.functional torch.nn.init triton triton.language triton.language.math
    triton.language.extra triton.language.extra.libdevice triton.language.extra.cuda
    triton.language.extra.cuda.libdevice triton.tools triton.tools.tensor_descriptor
    """
)
#: What an import, a name or an attribute that is refused would be good for; the rest is a look behind the scenes.
IMPORT_CODES = {
    **dict.fromkeys(
        _words("threading multiprocessing concurrent asyncio _thread subprocess sched queue"), "background"
    ),
    **dict.fromkeys(
        _words("os io pathlib shutil tempfile glob mmap socket ssl http urllib requests pickle shelve sqlite3 zipfile"),
        "files",
    ),
    **dict.fromkeys(_words("importlib runpy code codeop marshal zipimport pkgutil ast dis"), "dynamic-code"),
}
NAME_CODES = {**dict.fromkeys(_words("exec eval compile __import__"), "dynamic-code"), "open": "files"}
ATTRIBUTE_CODES = {
    **dict.fromkeys(_words("cuda record_stream"), "stream"),
    **dict.fromkeys(_words("tofile fromfile from_file memmap dump"), "files"),
    **dict.fromkeys(_words("load_module exec_module"), "dynamic-code"),
}
TYPING = _words(
    """
    Any Optional Union List Dict Tuple Set Sequence Iterable Mapping Callable NamedTuple Final ClassVar Literal Type
    Generic TypeVar cast
    """
)
#: Built-in names; everything else that a file does not define itself is refused.
BUILTINS = _words(
    """
    abs all any bool bytes callable classmethod dict divmod enumerate filter float frozenset hasattr int isinstance
    issubclass iter len list map max min next object pow print property range repr reversed round set slice sorted
    staticmethod str sum super tuple type zip None True False Ellipsis NotImplemented __name__
    ArithmeticError AssertionError Exception ImportError IndexError KeyError NotImplementedError OverflowError
    RuntimeError TypeError ValueError ZeroDivisionError Warning
    """
)
#: Types, constants and namespaces of ``torch`` that may stand anywhere.
TORCH_VALUES = _words(
    """
    Tensor Size device dtype float16 float32 float64 bfloat16 float half double int8 int16 int32 int64 uint8 uint16
    uint32 uint64 int long short bool inf nan pi e strided contiguous_format preserve_format channels_last
    LongTensor FloatTensor Generator
    """
)
#: Functions of ``torch`` that a launching wrapper may call.
TORCH_WRAPPER = _words(
    """
    empty empty_like empty_strided zeros zeros_like ones ones_like full full_like device Size no_grad inference_mode
    is_tensor broadcast_shapes finfo iinfo is_floating_point numel reshape permute transpose squeeze unsqueeze flatten
    movedim get_default_dtype promote_types result_type as_strided
    """
)
#: Tensor methods and functions of ``torch`` that compute.
COMPUTING = _words(
    """
    abs acos add addbmm addcdiv addcmul addmm addmv addr all allclose amax amin aminmax any apply_ argmax argmin
    argsort asin atan atan2 backward baddbmm bernoulli bincount bitwise_and bitwise_or bitwise_xor bmm bucketize ceil
    cholesky clamp clamp_max clamp_min clip conj copysign corrcoef cos cosh count_nonzero cross cummax cummin cumprod
    cumsum deg2rad det diff dist div divide dot einsum eq equal erf erfc erfinv exp exp2 expm1 floor floor_divide fmod
    frac gather ge geqrf ger gt hardshrink heaviside histc hypot index_add index_copy index_fill index_put
    index_reduce index_select inner inverse isclose isfinite isinf isnan kron kthvalue le lerp log log10 log1p log2
    log_softmax logaddexp logcumsumexp logdet logical_and logical_not logical_or logical_xor logit logsumexp lt map2_
    map_ masked_fill masked_scatter masked_select matmul matrix_exp matrix_power max maximum mean median min minimum mm
    mode mul multinomial multiply mv nan_to_num nanmean nanmedian nanquantile nansum ne neg negative nextafter nonzero
    norm normal_ outer pinverse polygamma positive pow prelu prod put qr quantile reciprocal relu remainder renorm
    repeat_interleave roll rot90 round rsqrt rsub scatter scatter_add scatter_reduce searchsorted selu sgn sigmoid sign
    silu sin sinc sinh slogdet smm softmax sort sparse_mask sqrt square std std_mean sub subtract sum svd take
    take_along_dim tan tanh tensordot tile trace triangular_solve tril triu true_divide trunc unique unique_consecutive
    vander var var_mean vdot where xlogy
    """
)
#: Further functions of ``torch`` with which a constructor may build parameters and tables.
TORCH_BUILD = COMPUTING | _words(
    """
    rand randn randint randperm rand_like randn_like tensor as_tensor arange linspace logspace eye cat concat stack
    hstack vstack meshgrid complex polar broadcast_to broadcast_tensors chunk split cartesian_prod combinations normal
    tril_indices triu_indices hann_window hamming_window clone expand_copy diag diagonal block_diag flip ravel
    batch_norm layer_norm group_norm conv1d conv2d conv3d
    """
)
#: Methods that a wrapper may call on tensors, sizes, numbers, texts and containers: nothing that computes on elements.
WRAPPER_METHODS = _words(
    """
    append extend insert pop items keys values get index count copy join format startswith endswith lower upper strip
    update setdefault split replace as_integer_ratio bit_length is_integer removeprefix removesuffix union
    size dim ndimension numel nelement element_size stride storage_offset is_contiguous is_floating_point
    is_complex contiguous view view_as reshape reshape_as permute transpose t unsqueeze squeeze flatten
    unflatten expand expand_as as_strided narrow select unbind chunk swapaxes swapdims movedim moveaxis to type
    type_as float half double bfloat16 int long short byte bool char clone detach requires_grad_ cpu fill_ zero_ copy_
    new_empty new_empty_strided new_zeros new_ones new_full item contiguous_format from_tensor parameters
    named_parameters buffers eval train unfold ravel mT squeeze_ unsqueeze_ adjoint cache_clear
    """
)
#: Attributes and methods that lead out of the world of tensors: raw storage, files, frames, hooks, patches.
FORBIDDEN_ATTRIBUTES = _words(
    """
    numpy tofile dump dumps fromfile from_file memmap ctypes storage untyped_storage typed_storage share_memory
    share_memory_ gi_frame gi_code gi_yieldfrom cr_frame cr_code ag_frame ag_code f_globals f_locals f_builtins f_back
    f_code tb_frame tb_next co_code co_consts func_globals func_code register_hook register_forward_hook
    register_forward_pre_hook register_full_backward_hook register_full_backward_pre_hook register_backward_hook
    register_state_dict_post_hook register_state_dict_pre_hook register_load_state_dict_post_hook
    register_load_state_dict_pre_hook register_post_accumulate_grad_hook add_pre_run_hook pre_run_hooks rewritten_fn
    load_module exec_module cuda record_stream set_ resize_ with_traceback mro __subclasses__
    """
)
#: Attributes that tell where a tensor lies: with them a candidate could behave otherwise where it is judged.
DEVICE_ATTRIBUTES = _words(
    """
    is_cuda is_cpu is_xpu is_npu is_mps is_hpu is_ipu is_xla is_mtia is_maia is_ort is_vulkan is_meta is_mkldnn
    is_privateuseone is_pinned is_shared get_device data_ptr
    """
)
#: Functions of ``torch`` whose results hold no elements; they may be called when the file is loaded.
STATELESS = frozenset(
    f"torch.{name}"
    for name in ("finfo", "iinfo", "device", "Size", "no_grad", "inference_mode", "get_default_dtype", "promote_types")
)
#: What ``nn.Module`` has and a candidate's module may not replace: the harness (and ``__call__``) rely on it.
MODULE_MEMBERS = _words(
    """
    T_destination _apply _backward_hooks _backward_pre_hooks _buffers _call_impl _compiled_call_impl _forward_hooks
    _forward_pre_hooks _get_backward_hooks _get_backward_pre_hooks _get_name _load_from_state_dict _modules
    _load_state_dict_post_hooks _load_state_dict_pre_hooks _maybe_warn_non_full_backward_hook _named_members
    _parameters _non_persistent_buffers_set _register_load_state_dict_pre_hook _register_state_dict_hook
    _replicate_for_data_parallel _save_to_state_dict _slow_forward _state_dict_hooks _version _wrapped_call_impl
    add_module apply bfloat16 buffers call_super_init children compile cpu cuda double dump_patches eval float
    get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict modules mtia named_buffers
    named_children named_modules named_parameters parameters register_backward_hook register_buffer
    register_forward_hook register_forward_pre_hook register_full_backward_hook register_full_backward_pre_hook
    register_load_state_dict_post_hook register_load_state_dict_pre_hook register_module register_parameter
    register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state set_submodule
    share_memory state_dict to to_empty train training type xpu zero_grad
    """
)
DUNDER_METHODS = _words("__init__ __repr__ __str__ __len__ __getitem__ __eq__ __post_init__")
DUNDER_ATTRIBUTES = _words("__init__ __name__ __doc__")
#: Methods that change a container.
MUTATORS = _words("append extend insert pop popitem update setdefault add remove discard clear sort reverse")

# -- Triton --------------------------------------------------------------------------------------------------------

KERNEL_DECORATORS = frozenset({"triton.jit", "triton.autotune", "triton.heuristics"})
PLAIN_DECORATORS = frozenset({"staticmethod", "classmethod", "property", "torch.no_grad", "torch.inference_mode"})
#: Functions of ``triton`` on the host.
TRITON_HOST = frozenset(
    {
        "triton.cdiv",
        "triton.next_power_of_2",
        "triton.Config",
        "triton.set_allocator",
        "triton.tools.tensor_descriptor.TensorDescriptor",
        "triton.tools.tensor_descriptor.TensorDescriptor.from_tensor",
    }
)
LANGUAGE_TYPES = _words(
    """
    constexpr dtype tensor const pointer_type block_type void float16 float32 float64 bfloat16 float8e4b15 float8e4b8
    float8e4nv float8e5 float8e5b16 int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64 pi32_t tuple slice
    tensor_descriptor PropagateNan TRITON_MAX_TENSOR_NUMEL
    """
)
LANGUAGE = LANGUAGE_TYPES | _words(
    """
    abs add advance arange argmax argmin associative_scan assume atomic_add atomic_and atomic_cas atomic_load
    atomic_max atomic_min atomic_or atomic_store atomic_xchg atomic_xor bitonic_merge broadcast broadcast_to cast cat
    cdiv ceil clamp cos cumprod cumsum debug_barrier device_assert device_print div_rn dot dot_scaled erf exp exp2
    expand_dims fdiv flip floor fma full gather histogram inline_asm_elementwise interleave join load
    load_tensor_descriptor log log2 make_block_ptr make_tensor_descriptor map_elementwise max max_constancy
    max_contiguous maximum min minimum mul multiple_of num_programs pair_uniform_to_normal permute philox program_id
    rand rand4x randint randint4x randn randn4x range ravel reduce reduce_or reshape rsqrt sigmoid sin softmax sort
    split sqrt sqrt_rn squeeze static_assert static_print static_range store store_tensor_descriptor sub sum swizzle2d
    topk trans uint_to_uniform_float umulhi unsqueeze view where xor_sum zeros zeros_like
    """
)
LANGUAGE_MATH = _words("abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 rsqrt sin sqrt sqrt_rn umulhi")
#: Attributes and methods of values inside a kernel.
KERNEL_ATTRIBUTES = LANGUAGE | _words(
    """
    T to dtype shape type value element_ty primitive_bitwidth scalar numel item is_floating is_int is_fp16 is_fp32
    is_fp64 is_bf16 is_fp8 is_ptr is_block is_int_signed is_int_unsigned itemsize strides block_shape base logical_and
    logical_or scatter ALL NONE append
    """
)
KERNEL_BUILTINS = _words(
    "range min max abs len float int bool tuple list print isinstance None True False zip enumerate"
)


def allowed_language(path: str) -> bool:
    """Return True for a dotted path of the kernel language that a candidate may name."""
    parts = path.split(".")[2:]
    if not parts or any(part.startswith("_") for part in parts):
        return False
    if parts[0] == "math":
        return len(parts) == 2 and parts[1] in LANGUAGE_MATH
    if parts[0] == "extra":
        return len(parts) in (3, 4) and parts[-2] == "libdevice" and parts[1] in ("libdevice", "cuda")
    if parts[0] == "PropagateNan":
        return len(parts) == 1 or (len(parts) == 2 and parts[1] in ("ALL", "NONE"))
    if parts[0] in LANGUAGE_TYPES and len(parts) == 2:
        return parts[1] in KERNEL_ATTRIBUTES
    return len(parts) == 1 and parts[0] in LANGUAGE
