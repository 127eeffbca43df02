"""What CUDA's headers declare for device code: every function, by its signature. test_intrinsics.py holds the emulator
against it.

In names, {a,b} stands for either. In signatures `mask` is an unsigned that names lanes, `width` an int, a power of two.
"""

from __future__ import annotations

import itertools
import re
from typing import NamedTuple

MODES = "_{rn,rz,rd,ru}"
INTEGERS = ("int", "unsigned", "long", "unsigned long", "long long", "unsigned long long")
NUMBERS = (*INTEGERS, "float", "double")
PARTS = {
    "char": "signed char", "uchar": "unsigned char", "short": "short", "ushort": "unsigned short", "int": "int",
    "uint": "unsigned", "long": "long", "ulong": "unsigned long", "longlong": "long long",
    "ulonglong": "unsigned long long", "float": "float", "double": "double",
}  # fmt: skip
# What there are loads and stores with a cache hint of: numbers, and vectors of at most 16 bytes.
LOADED = (
    *NUMBERS, "char", "signed char", "unsigned char", "short", "unsigned short", "char2", "char4", "uchar2", "uchar4",
    "short2", "short4", "ushort2", "ushort4", "int2", "int4", "uint2", "uint4", "longlong2", "ulonglong2", "float2",
    "float4", "double2",
)  # fmt: skip

_OF_FLOAT_AND_DOUBLE = {  # by the name of C for double, with an f for float, and as an overload for float
    "R(R)": "fabs sin cos tan sqrt log2 exp2 exp10 expm1 log10 log log1p floor exp cosh sinh tanh acosh asinh atanh "
    "logb round rint nearbyint ceil trunc atan acos asin cbrt erf erfc lgamma tgamma rsqrt rcbrt sinpi cospi erfinv "
    "erfcinv erfcx normcdf normcdfinv j0 j1 y0 y1 cyl_bessel_i{0,1}",
    "R(R, R)": "fmin fmax fdim atan2 hypot pow fmod remainder copysign nextafter",
    "R(R, R, R)": "fma",
    "R(int, R)": "jn yn",
    "R(R, int)": "ldexp scalbn",
    "R(R, long)": "scalbln",
    "R(R, int*)": "frexp",
    "R(R, R*)": "modf",
    "R(R, R, int*)": "remquo",
    "void(R, R*, R*)": "sincos sincospi",
    "int(R)": "ilogb",
    "long(R)": "lround lrint",
    "long long(R)": "llround llrint",
}

_WITHOUT_OVERLOADS = {  # those two, but under either name for its own type alone
    "R(R, R)": "rhypot",
    "R(R, R, R)": "norm3d rnorm3d",
    "R(R, R, R, R)": "norm4d rnorm4d",
    "R(int, const R*)": "norm rnorm",
    "R(const char*)": "nan",
}

_OTHERS = {
    # Mathematical functions
    "bool(float)": "signbit isfinite isnan isinf",
    "bool(double)": "signbit isfinite isnan isinf",
    "bool(long double)": "signbit isfinite isnan isinf",
    "int(float)": f"__isinff __isnanf __finitef __signbitf __float_as_int __float2int{MODES}",
    "int(double)": f"__isinf __isnan __finite __signbit __double2int{MODES} __double2hiint __double2loint",
    "int(long double)": "__isinfl __isnanl __finitel __signbitl",
    "int(int)": "abs __clz __ffs",
    "long(long)": "abs labs",
    "long long(long long)": "abs llabs",
    "float(float)": "abs __saturatef __sinf __cosf __tanf __tanhf __expf __exp10f __log2f __log10f __logf "
    f"__frsqrt_rn __frcp{MODES} __fsqrt{MODES}",
    "double(double)": f"abs __drcp{MODES} __dsqrt{MODES}",
    "double(float, double)": "copysign min max",
    "double(double, float)": "copysign min max",
    "void(float, float*, float*)": "__sincosf",
    "float(float, float)": f"min max fdividef __fdividef __powf __f{{add,sub,mul,div}}{MODES}",
    "double(double, double)": f"min max fdivide __d{{add,sub,mul,div}}{MODES}",
    "float(float, float, float)": f"__fmaf{MODES} __fmaf_ieee{MODES}",
    "double(double, double, double)": f"__fma{MODES}",
    "float2(float2, float2)": f"__fadd2{MODES} __fmul2{MODES}",
    "float2(float2, float2, float2)": f"__ffma2{MODES}",
    "double(double, double, cudaRoundMode)": "dadd dsub dmul",
    "double(double, double, double, cudaRoundMode)": "fma",
    # Conversions
    "unsigned(float)": f"__float_as_uint __float2uint{MODES}",
    "long long(float)": f"__float2ll{MODES}",
    "unsigned long long(float)": f"__float2ull{MODES}",
    "unsigned(double)": f"__double2uint{MODES}",
    "long long(double)": f"__double_as_longlong __double2ll{MODES}",
    "unsigned long long(double)": f"__double2ull{MODES}",
    "float(int)": f"__int_as_float __int2float{MODES}",
    "float(unsigned)": f"__uint_as_float __uint2float{MODES}",
    "float(long long)": f"__ll2float{MODES}",
    "float(unsigned long long)": f"__ull2float{MODES}",
    "float(double)": f"__double2float{MODES}",
    "double(int)": "__int2double_rn",
    "double(unsigned)": "__uint2double_rn",
    "double(long long)": f"__longlong_as_double __ll2double{MODES}",
    "double(unsigned long long)": f"__ull2double{MODES}",
    "double(int, int)": "__hiloint2double",
    "int(double, cudaRoundMode)": "double2int",
    "unsigned(double, cudaRoundMode)": "double2uint",
    "long long(double, cudaRoundMode)": "double2ll",
    "unsigned long long(double, cudaRoundMode)": "double2ull",
    "double(int, cudaRoundMode)": "int2double",
    "double(unsigned, cudaRoundMode)": "uint2double",
    "double(long long, cudaRoundMode)": "ll2double",
    "double(unsigned long long, cudaRoundMode)": "ull2double",
    "double(float, cudaRoundMode)": "float2double",
    # Integers
    "int(unsigned)": "__popc",
    "int(unsigned long long)": "__popcll",
    "int(long long)": "__clzll __ffsll",
    "unsigned short(unsigned short)": "__nv_bswap16",
    "unsigned long long(unsigned long long)": "__brevll __nv_bswap64",
    "unsigned(unsigned, unsigned, int)": "__fns",
    "int(int, int)": "min max __mulhi __mul24 __hadd __rhadd __vim{ax,in}_s32_relu",
    "unsigned(int, unsigned)": "min max",
    "unsigned(unsigned, int)": "min max",
    "long(long, long)": "min max",
    "unsigned long(unsigned long, unsigned long)": "min max",
    "unsigned long(long, unsigned long)": "min max",
    "unsigned long(unsigned long, long)": "min max",
    "long long(long long, long long)": "min max llmin llmax __mul64hi",
    "unsigned long long(unsigned long long, unsigned long long)": "min max ullmin ullmax __umul64hi",
    "unsigned long long(long long, unsigned long long)": "min max",
    "unsigned long long(unsigned long long, long long)": "min max",
    "unsigned(int, int, unsigned)": "__sad",
    "int(int, int, int)": "__dp{4a,2a_lo,2a_hi} __vim{ax,in}3_s32 __vim{ax,in}3_s32_relu __viaddm{ax,in}_s32 "
    "__viaddm{ax,in}_s32_relu",
    "int(char4, char4, int)": "__dp4a",
    "unsigned(uchar4, uchar4, unsigned)": "__dp4a",
    "int(short2, char4, int)": "__dp2a_{lo,hi}",
    "unsigned(ushort2, uchar4, unsigned)": "__dp2a_{lo,hi}",
    "int(int, int, bool*)": "__vibm{ax,in}_s32",
    "unsigned(unsigned, unsigned, bool*)": "__vibm{ax,in}_u32",
    "unsigned(unsigned, unsigned, bool*, bool*)": "__vibm{ax,in}_{s,u}16x2",
    "unsigned(unsigned)": "__brev __nv_bswap32 __v{abs,neg}{2,4} __v{abs,neg}ss{2,4}",
    "unsigned(unsigned, unsigned)": "min max umin umax __umulhi __umul24 __uhadd __urhadd __v{add,sub}{2,4} "
    "__v{add,sub}{ss,us}{2,4} __v{avg,absdiff,max,min,sad}{s,u}{2,4} __vhaddu{2,4} __v{cmp,set}{eq,ne}{2,4} "
    "__v{cmp,set}{ge,gt,le,lt}{s,u}{2,4} __vim{ax,in}_s16x2_relu",
    "unsigned(unsigned, unsigned, unsigned)": "__usad __byte_perm __funnelshift_{l,r,lc,rc} __dp{4a,2a_lo,2a_hi} "
    "__vim{ax,in}3_{s16x2,u16x2,u32} __vim{ax,in}3_s16x2_relu __viaddm{ax,in}_{s16x2,u16x2,u32} "
    "__viaddm{ax,in}_s16x2_relu",
    # Threads
    "void()": "__syncthreads __threadfence{,_block,_cluster,_system} cudaGridDependencySynchronize "
    "cudaTriggerProgrammaticLaunchCompletion",
    "int(predicate)": "__syncthreads_{and,or,count}",
    "bool(bool)": "syncthreads_{and,or}",
    "int(bool)": "syncthreads_count",
    "clock_t()": "clock",
    "long long()": "clock64",
    "unsigned()": "__activemask __pm{0,1,2,3} __clusterRelativeBlockRank __clusterSizeInBlocks",
    "dim3()": "__clusterDim __clusterRelativeBlockIdx __clusterGridDimInClusters __clusterIdx",
    "void(int)": "__prof_trigger",
    "void(unsigned)": "__nanosleep",
    "void(mask)": "__syncwarp",
    "int(mask, int)": "__{all,any,uni}_sync __reduce_{add,min,max}_sync",
    "unsigned(mask, int)": "__ballot_sync __match_any_sync",
    "unsigned(mask, unsigned)": "__reduce_{add,min,max,and,or,xor}_sync",
    # Memory
    "unsigned(const void*)": "__is{Global,Shared,Constant,Local,CtaShared,ClusterShared} __cluster_query_shared_rank",
    "size_t(const void*)": "__cvta_generic_to_{global,shared,constant,local,grid_constant}",
    "void*(size_t)": "__cvta_{global,shared,constant,local,grid_constant}_to_generic",
    "void*(void*, const void*, size_t)": "memcpy",
    "void*(void*, int, size_t)": "memset",
    # Atomic operations
    "int(int*, int)": "atomic{Sub,Min,Max,And,Or,Xor,Add,Exch}{,_block,_system}",
    "unsigned(unsigned*, unsigned)": "atomic{Sub,Min,Max,And,Or,Xor,Add,Exch,Inc,Dec}{,_block,_system}",
    "unsigned long long(unsigned long long*, unsigned long long)": "atomic{Min,Max,And,Or,Xor,Add}{,_block,_system} "
    "atomicExch{,_block,_system}",
    "long long(long long*, long long)": "atomic{Min,Max,And,Or,Xor}{,_block,_system}",
    "float(float*, float)": "atomic{Add,Exch}{,_block,_system}",
    "double(double*, double)": "atomicAdd{,_block,_system}",
    "float2(float2*, float2)": "atomicAdd{,_block,_system}",
    "float4(float4*, float4)": "atomicAdd{,_block,_system} atomicExch{,_block,_system}",
    "int(int*, int, int)": "atomicCAS{,_block,_system}",
    "unsigned(unsigned*, unsigned, unsigned)": "atomicCAS{,_block,_system}",
    "unsigned long long(unsigned long long*, unsigned long long, unsigned long long)": "atomicCAS{,_block,_system}",
    "unsigned short(unsigned short*, unsigned short, unsigned short)": "atomicCAS",
    "uint4(uint4*, uint4, uint4)": "atomicCAS{,_block,_system}",
    "void(void*, void*, void*)": "__u128AtomicExch{,_block,_system}",
    "void(void*, void*, void*, void*)": "__u128AtomicCAS{,_block,_system}",
}

# Of __half (H is its name, h2 that of a pair, half its word in names) and likewise of __nv_bfloat16.
_OF_HALVES = {
    "H(H)": "h{trunc,ceil,floor,rint,sqrt,rsqrt,rcp,log,log2,log10,exp,exp2,exp10,cos,sin,tanh,tanh_approx} __habs "
    "__hneg",
    "H2(H2)": "h2{trunc,ceil,floor,rint,sqrt,rsqrt,rcp,log,log2,log10,exp,exp2,exp10,cos,sin,tanh,tanh_approx} __habs2 "
    "__hneg2 __hisnan2 __lowhigh2highlow __low2half2 __high2half2",
    "H(H, H)": "__h{add,sub,mul}{,_rn,_sat} __hdiv __h{max,min}{,_nan}",
    "H2(H2, H2)": "__h{add,sub,mul}2{,_rn,_sat} __h2div __h{max,min}2{,_nan} __{low,high}s2half2 "
    "__h{eq,ne,le,ge,lt,gt}{,u}2",
    "H(H, H, H)": "__hfma{,_sat,_relu}",
    "H2(H2, H2, H2)": "__hfma2{,_sat,_relu} __hcmadd",
    "bool(H)": "__hisnan",
    "int(H)": f"__hisinf __half2int{MODES}",
    "bool(H, H)": "__h{eq,ne,le,ge,lt,gt}{,u}",
    "bool(H2, H2)": "__hb{eq,ne,le,ge,lt,gt}{,u}2",
    "unsigned(H2, H2)": "__h{eq,ne,le,ge,lt,gt}{,u}2_mask",
    "H(double)": "__double2half",
    "H(float)": f"__float2half __float2half{MODES}",
    "H(int)": f"__int2half{MODES}",
    "H(unsigned)": f"__uint2half{MODES}",
    "H(long long)": f"__ll2half{MODES}",
    "H(unsigned long long)": f"__ull2half{MODES}",
    "H(short)": f"__short2half{MODES} __short_as_half",
    "H(unsigned short)": f"__ushort2half{MODES} __ushort_as_half",
    "float(H)": "__half2float",
    "short(H)": f"__half2short{MODES} __half_as_short",
    "unsigned short(H)": f"__half2ushort{MODES} __half_as_ushort",
    "unsigned(H)": f"__half2uint{MODES}",
    "long long(H)": f"__half2ll{MODES}",
    "unsigned long long(H)": f"__half2ull{MODES}",
    "signed char(H)": "__half2char_rz",
    "unsigned char(H)": "__half2uchar_rz",
    "H2(H)": "__half2half2",
    "H2(float)": "__float2half2_rn",
    "H2(float2)": "__float22half2_rn",
    "H2(H, H)": "make_half2 __halves2half2",
    "H2(float, float)": "__floats2half2_rn",
    "H(H2)": "__{low,high}2half",
    "float(H2)": "__{low,high}2float",
    "float2(H2)": "__half22float2",
    "H(H*, H)": "atomicAdd",
    "H2(H2*, H2)": "atomicAdd",
}

CALLED = {
    "malloc": "free(malloc(16));",
    "free": "free(nullptr);",
    "new": "int* const made = new int(3); delete made;",
    "delete": "int* const made = new int[3]; delete[] made;",
    "printf": 'if (threadIdx.x == 64) printf("%d", 3);',
    "__nv_aligned_device_malloc": "free(__nv_aligned_device_malloc(16, 64));",
    "__trap": "if (threadIdx.x == 64) __trap();",
    "__brkpt": "if (threadIdx.x == 64) __brkpt();",
    "__cluster_barrier_arrive": "__cluster_barrier_arrive(); __cluster_barrier_wait();",
    "__cluster_barrier_arrive_relaxed": "__cluster_barrier_arrive_relaxed(); __cluster_barrier_wait();",
    "__cluster_barrier_wait": "__cluster_barrier_arrive(); __cluster_barrier_wait();",
    "__cluster_map_shared_rank": "__shared__ int n; if (threadIdx.x == 0) *(int*)__cluster_map_shared_rank(&n, 0) = 3;",
    "__assert_fail": 'if (threadIdx.x == 64) __assert_fail("x", __FILE__, __LINE__, "f");',
}
"""Statements with functions whose arguments are particular."""


class Function(NamedTuple):
    name: str
    result: str
    parameters: tuple[str, ...]


def functions() -> list[Function]:
    """Every function with every one of its overloads."""
    found = [each for signature, names in _OTHERS.items() for each in _declared(signature, names)]
    for shape, names in (*_OF_FLOAT_AND_DOUBLE.items(), *_WITHOUT_OVERLOADS.items()):
        overloaded = _OF_FLOAT_AND_DOUBLE.get(shape) == names
        found += _declared(_of(shape, "double"), names)
        for name in _spelled(names):
            found += _declared(_of(shape, "float"), f"{name}f {name if overloaded else ''}")
    for kind in LOADED:
        found += _memory(kind)
    for base, part in PARTS.items():
        for count in range(1, 5):
            found.append(Function(f"make_{base}{count}", f"{base}{count}", (part,) * count))
        if base.endswith(("long", "double")):
            found += [Function(f"make_{base}4_{n}a", f"{base}4_{n}a", (part,) * 4) for n in (16, 32)]
    for kind in NUMBERS:
        found += _shuffles(kind)
        found += _declared(f"unsigned(mask, {kind})", "__match_any_sync")
        found += _declared(f"unsigned(mask, {kind}, int*)", "__match_all_sync")
    for half, word in (("__half", "half"), ("__nv_bfloat16", "bfloat16")):
        for shape, names in _OF_HALVES.items():
            signature = re.sub(r"\bH2\b", f"{half}2", re.sub(r"\bH\b", half, shape))
            found += _declared(signature, names.replace("half", word))
        for kind in (half, f"{half}2"):
            found += [*_memory(kind), *_shuffles(kind)]
    return list(dict.fromkeys(found))


def _memory(kind: str) -> list[Function]:
    loads = _declared(f"{kind}(const {kind}*)", "__ld{g,cg,ca,cs,lu,cv}")
    return loads + _declared(f"void({kind}*, {kind})", "__st{wb,cg,cs,wt}")


def _shuffles(kind: str) -> list[Function]:
    by_lane = _declared(f"{kind}(mask, {kind}, int, width)", "__shfl{,_xor}_sync")
    return by_lane + _declared(f"{kind}(mask, {kind}, unsigned, width)", "__shfl_{up,down}_sync")


def _of(shape: str, kind: str) -> str:
    return re.sub(r"\bR\b", kind, shape)


def _declared(signature: str, names: str) -> list[Function]:
    result, _, rest = signature.partition("(")
    parameters = tuple(part.strip() for part in rest.removesuffix(")").split(",") if part.strip())
    return [Function(name, result, parameters) for name in _spelled(names)]


def _spelled(names: str) -> list[str]:
    """'a{b,c}d e' as abd, acd and e."""
    spelled = []
    for name in names.split():
        parts = [part.split(",") if number % 2 else [part] for number, part in enumerate(re.split(r"[{}]", name))]
        spelled += ["".join(each) for each in itertools.product(*parts)]
    return spelled
