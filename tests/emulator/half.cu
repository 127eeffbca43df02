// Every function of a 16-bit floating-point type, many to a thread. half_kernels.py puts the type's names in the place
// of NUMBER and PAIR; NAMED(before, after) puts the type's word into a function's name.

__device__ int element() { return blockIdx.x * blockDim.x + threadIdx.x; }

template <typename Value, int COUNT>
__device__ void put(Value* out, int n, const Value (&results)[COUNT]) {
  for (int k = 0; k < COUNT; ++k) out[k * n + element()] = results[k];
}

__global__ void widen(const NUMBER* x, float* out, int n) {
  if (element() >= n) return;
  const NUMBER a = x[element()];
  const PAIR pair = NAMED(__halves2, 2)(a, a);
  put(out, n, {NAMED(__, 2float)(a), float(a), __low2float(pair), __high2float(pair), NAMED(__, 22float2)(pair).y});
}

__global__ void narrow(const float* x, NUMBER* out, int n) {
  if (element() >= n) return;
  const float a = x[element()];
  NUMBER assigned;
  assigned = a;
  put(out, n,
      {NAMED(__float2, )(a), NAMED(__float2, _rn)(a), NAMED(__float2, _rz)(a), NAMED(__float2, _rd)(a),
       NAMED(__float2, _ru)(a), NUMBER(a), assigned, NAMED(__floats2, 2_rn)(a, 0.0f).x,
       NAMED(__float22, 2_rn)(make_float2(0.0f, a)).y, NAMED(__float2, 2_rn)(a).x});
}

__global__ void narrow_double(const double* x, NUMBER* out, int n) {
  if (element() >= n) return;
  put(out, n, {NAMED(__double2, )(x[element()]), NUMBER(x[element()])});
}

__global__ void from_integers(const long long* x, NUMBER* out, int n) {
  if (element() >= n) return;
  const long long a = x[element()];
  put(out, n,
      {NAMED(__ll2, _rn)(a), NAMED(__ll2, _rz)(a), NAMED(__ll2, _rd)(a), NAMED(__ll2, _ru)(a),
       NAMED(__ull2, _rn)(a), NAMED(__int2, _rn)(int(a)), NAMED(__uint2, _ru)(unsigned(a)),
       NAMED(__short2, _rn)(short(a)), NAMED(__ushort2, _rz)((unsigned short)(a)), NUMBER(a), NUMBER(int(a)),
       NUMBER((unsigned long)(a))});
}

__global__ void to_integers(const NUMBER* x, long long* out, int n) {
  if (element() >= n) return;
  const NUMBER a = x[element()];
  put(out, n,
      {(long long)NAMED(__, 2int_rn)(a), (long long)NAMED(__, 2int_rz)(a), (long long)NAMED(__, 2int_rd)(a),
       (long long)NAMED(__, 2int_ru)(a), (long long)NAMED(__, 2uint_rn)(a), (long long)NAMED(__, 2short_rn)(a),
       (long long)NAMED(__, 2ushort_rz)(a), NAMED(__, 2ll_rn)(a), (long long)NAMED(__, 2ull_rz)(a),
       (long long)NAMED(__, 2char_rz)(a), (long long)NAMED(__, 2uchar_rz)(a), (long long)static_cast<int>(a),
       static_cast<long long>(a), (long long)static_cast<bool>(a)});
}

__global__ void functions(const NUMBER* x, NUMBER* out, int n) {
  if (element() >= n) return;
  const NUMBER a = x[element()];
  put(out, n,
      {hexp(a), hexp2(a), hexp10(a), hlog(a), hlog2(a), hlog10(a), hsqrt(a), hrsqrt(a), hrcp(a), hsin(a), hcos(a),
       htanh(a), hfloor(a), hceil(a), hrint(a), htrunc(a), __hneg(a), __habs(a), -a, +a,
       h2exp(PAIR(a, a)).y, h2log2(PAIR(a, a)).x, h2rsqrt(PAIR(a, a)).y, __hneg2(PAIR(a, a)).x});
}

__global__ void binary(const NUMBER* x, const NUMBER* y, NUMBER* out, int n) {
  if (element() >= n) return;
  const NUMBER a = x[element()], b = y[element()];
  const PAIR both(a, b), swapped = __lowhigh2highlow(both);
  NUMBER added = a, subtracted = a, multiplied = a, divided = a;
  added += b;
  subtracted -= b;
  multiplied *= b;
  divided /= b;
  put(out, n,
      {a + b, __hadd(a, b), __hadd_rn(a, b), added, __hadd2(both, swapped).y, (both + swapped).x,
       a - b, __hsub(a, b), __hsub_rn(a, b), subtracted, __hsub2(both, swapped).x, (both - swapped).x,
       a * b, __hmul(a, b), __hmul_rn(a, b), multiplied, __hmul2(both, swapped).y, (both * swapped).x,
       a / b, __hdiv(a, b), divided, __h2div(both, swapped).x, (both / swapped).x,
       __hadd_sat(a, b), __hsub_sat(a, b), __hmul_sat(a, b), __hadd2_sat(both, swapped).y,
       __hmin(a, b), __hmax(a, b), __hmin_nan(a, b), __hmax_nan(a, b), __hmin2(both, swapped).y,
       __hmax2_nan(both, swapped).x});
}

__global__ void fused(const NUMBER* x, const NUMBER* y, const NUMBER* z, NUMBER* out, int n) {
  if (element() >= n) return;
  const NUMBER a = x[element()], b = y[element()], c = z[element()];
  put(out, n,
      {__hfma(a, b, c), __hfma2(PAIR(a, b), PAIR(b, a), PAIR(c, c)).y, __hfma_sat(a, b, c), __hfma_relu(a, b, c)});
}

__global__ void compare(const NUMBER* x, const NUMBER* y, unsigned* out, int n) {
  if (element() >= n) return;
  const NUMBER a = x[element()], b = y[element()];
  const PAIR p(a, b), q(b, a);
  const bool holds[] = {
      __heq(a, b), __hne(a, b), __hlt(a, b), __hle(a, b), __hgt(a, b), __hge(a, b),
      __hequ(a, b), __hneu(a, b), __hltu(a, b), __hleu(a, b), __hgtu(a, b), __hgeu(a, b),
      a == b, a != b, a < b, a <= b, a > b, a >= b,
      __hbeq2(p, q), __hblt2(p, q), __hbneu2(p, q), p <= q,
      __hlt2_mask(p, q) == (__hlt(a, b) ? 0xffffu : 0u) + (__hlt(b, a) ? 0xffff0000u : 0u),
      float(__hge2(p, q).x) == (__hge(a, b) ? 1.0f : 0.0f),
      __hisnan(a), __hisinf(a) != 0, __hisinf(a) < 0};
  unsigned bits = 0;
  for (unsigned at = 0; at < sizeof(holds); ++at) bits |= unsigned(holds[at]) << at;
  out[element()] = bits;
}

// Through every way of moving a value: cached loads and stores, shared and volatile memory, shuffles, vectors, bits.
__global__ void move(const NUMBER* x, NUMBER* out, int n) {
  __shared__ NUMBER tile[64], other_tile[64];
  volatile NUMBER* unstable = other_tile;
  const int i = element(), lane = threadIdx.x % 32;
  tile[threadIdx.x] = __ldg(x + i);
  unstable[threadIdx.x] = __ldcs(x + i);
  __syncthreads();
  const NUMBER before = tile[threadIdx.x ^ 1], steady = unstable[threadIdx.x];
  const NUMBER shuffled = __shfl_xor_sync(0xffffffffu, before, 1);
  const PAIR pair = reinterpret_cast<const PAIR*>(x)[i / 2];
  const PAIR moved = __shfl_sync(0xffffffffu, pair, lane);
  NUMBER stored;
  __stcg(&stored, NAMED(__ushort_as_, )(NAMED(__, _as_ushort)(steady)));
  NUMBER counted = x[i];
  const NUMBER counted_before = counted++;
  --counted;
  put(out, n,
      {shuffled, steady, i % 2 ? moved.y : moved.x, stored, NAMED(__short_as_, )(NAMED(__, _as_short)(before)),
       counted_before, NAMED(__low2, )(NAMED(__lows2, 2)(pair, pair)), NAMED(__high2, )(NAMED(__highs2, 2)(pair, pair)),
       NAMED(make_, 2)(x[i], x[i]).y});
}

__global__ void add_ones(NUMBER* sum, PAIR* sums, NUMBER* before, int n) {
  if (element() >= n) return;
  before[element()] = atomicAdd(sum, NUMBER(1));
  atomicAdd(sums, PAIR(NUMBER(1), NUMBER(-1)));
}

static_assert(sizeof(NUMBER) == 2 && alignof(NUMBER) == 2 && sizeof(PAIR) == 4 && alignof(PAIR) == 4);
