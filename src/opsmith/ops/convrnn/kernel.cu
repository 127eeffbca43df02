// ConvRNN: h_t = act(conv1d(h_{t-1}, taps, same padding) + x_t), all h_t written; x, h [batch, steps, width].
//
// A step waits for the one before, so the time of a sequence is its steps times the latency of one. The state stays in
// registers: a sequence of up to 256 units is one warp, each thread holding UNITS neighbouring ones, and other threads'
// states come by shuffles (`Warp`). A wider one is a block, and they come through shared memory (`Block`). What the next
// AHEAD steps read is on its way to shared memory (`Stream`), so device memory is never waited for.
//
// Not taken: more than 15 taps, an even number of them, a state that does not fit into a block.
#include <opsmith/pointwise/cuda_quick.h>
#include <opsmith/pointwise/cuda_types.h>

namespace convrnn {

using opsmith::bfloat16, opsmith::bfloat16_bits, opsmith::float16, opsmith::float16_bits;
using opsmith::int64_t, opsmith::uint32_t, opsmith::Value, opsmith::widen;

constexpr unsigned everyone = 0xffffffffu;
constexpr int lanes = 32;

enum Activation { identity = 0, relu = 1, tanh = 2 };

// --- tanh -------------------------------------------------------------------------------------------------------

constexpr float two_over_ln2 = 2.8853900817779268f;

// 1 - 2 / (e^2x + 1), which loses digits near 0; below 0.65 the odd polynomial x + x^3 p(x^2), a minimax fit to 0.1 units in
// the last place. Both are computed and one is chosen: a branch would cost more. The polynomial is to run in the shadow
// of the reciprocal: adding 0 * e makes it wait for the exponential, before which ptxas would put it otherwise. (Where e
// is infinite, the polynomial is not what is chosen.)
OPSMITH_DEVICE float activate_tanh(float x) {
  const float e = opsmith::quick_exp2_or_zero(x * two_over_ln2);
  const float far = fmaf(-2.0f, opsmith::quick_reciprocal(e + 1.0f), 1.0f);
  const float late = fmaf(e, 0.0f, x);
  const float square = late * late;
  const float low = fmaf(square, 0.13330830344617345f, -0.3333325984804823f);
  const float high = fmaf(square, fmaf(square, -0.005515163721015125f, 0.020469419721049105f), -0.05368802304802451f);
  const float near = fmaf(square * late, fmaf(square * square, high, low), late);
  return fabsf(x) < 0.65f ? near : far;
}

OPSMITH_DEVICE double activate_tanh(double x) { return ::tanh(x); }

template <int ACTIVATION, class Value>
OPSMITH_DEVICE Value activate(Value x) {
  if constexpr (ACTIVATION == tanh) return activate_tanh(x);
  if constexpr (ACTIVATION == relu) return x > Value(0) || x != x ? x : Value(0);
  return x;
}

// The activation's derivative where its result is h.
template <int ACTIVATION, class Value>
OPSMITH_DEVICE Value slope(Value h) {
  if constexpr (ACTIVATION == tanh) return fma(-h, h, Value(1));
  if constexpr (ACTIVATION == relu) return h <= Value(0) ? Value(0) : Value(1);  // 1 at NaN, as torch has it
  return Value(1);
}

// tanh' where its argument is x: 4 e / (1 + e)^2 with e = e^(-2|x|), precise to its last digits however small it is.
OPSMITH_DEVICE float slope_of_tanh_at(float x) {
  const float e = opsmith::quick_exp2_or_zero(-two_over_ln2 * fabsf(x));
  const float r = opsmith::quick_reciprocal(1.0f + e);
  return 4.0f * e * r * r;
}

// --- Memory -----------------------------------------------------------------------------------------------------

OPSMITH_DEVICE float narrow_to(float value, float) { return value; }
OPSMITH_DEVICE double narrow_to(double value, double) { return value; }
OPSMITH_DEVICE float16 narrow_to(float value, float16) { return {float16_bits(value)}; }
OPSMITH_DEVICE bfloat16 narrow_to(float value, bfloat16) { return {bfloat16_bits(value)}; }

template <class Element, int VECTOR>
struct alignas(sizeof(Element) * VECTOR) Vector {
  Element at[VECTOR];
};

// Where a thread works, and how it reads and writes its UNITS elements of a row: VECTOR at a time. WHOLE: every thread has
// all of its units; else the last ones may have fewer, or none.
template <bool IN_BLOCK, int UNITS_, int VECTOR_, bool WHOLE_>
struct Place {
  static constexpr int UNITS = UNITS_;
  static constexpr int VECTOR = VECTOR_;
  static constexpr bool WHOLE = WHOLE_;

  int64_t sequence;
  int first;  // unit
  int units;  // up to the end of the row

  OPSMITH_DEVICE Place(int width) {
    sequence = IN_BLOCK ? int64_t(blockIdx.x) : int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    first = threadIdx.x * UNITS;
    units = width - first;
  }

  OPSMITH_DEVICE bool has(int unit) const { return WHOLE || unit < units; }

  template <class Element, class Value>
  OPSMITH_DEVICE void read(Value (&values)[UNITS], const Element* row) const {
#pragma unroll
    for (int u = 0; u < UNITS; u += VECTOR) {
      Vector<Element, VECTOR> vector{};
      if (has(u)) vector = *reinterpret_cast<const Vector<Element, VECTOR>*>(row + first + u);
#pragma unroll
      for (int v = 0; v < VECTOR; ++v) values[u + v] = widen(vector.at[v]);
    }
  }

  template <class Element, class Value>
  OPSMITH_DEVICE void write(Element* row, const Value (&values)[UNITS]) const {
#pragma unroll
    for (int u = 0; u < UNITS; u += VECTOR) {
      Vector<Element, VECTOR> vector;
#pragma unroll
      for (int v = 0; v < VECTOR; ++v) vector.at[v] = narrow_to(values[u + v], Element{});
      if (has(u)) *reinterpret_cast<Vector<Element, VECTOR>*>(row + first + u) = vector;
    }
  }
};

// Copies from device to shared memory without waiting, where the GPU can (sm_80 and later; 4 bytes and more).
template <class Element, int VECTOR>
OPSMITH_DEVICE void copy_async(Element* to, const Element* from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  constexpr int bytes = sizeof(Element) * VECTOR;
  if constexpr (bytes >= 4) {
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from), "n"(bytes) : "memory");
    return;
  }
#endif
  using Whole = Vector<Element, VECTOR>;
  *reinterpret_cast<Whole*>(to) = *reinterpret_cast<const Whole*>(from);
}

// Ends a group of copies; waits until all but the last PENDING groups have arrived.
template <int PENDING>
OPSMITH_DEVICE void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;\n cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

// A thread's elements of the rows to come: AHEAD places in shared memory, used in turn. A thread reads what it has copied
// itself, so no other is waited for.
template <class Element, class Place, int AHEAD>
struct Stream {
  static_assert((AHEAD & (AHEAD - 1)) == 0);

  Element* places;  // of this thread; `stride` from one to the next
  int stride;
  const Place& place;

  OPSMITH_DEVICE Stream(char*& shared, const Place& place) : place(place) {
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    stride = blockDim.x * blockDim.y * Place::UNITS;
    places = reinterpret_cast<Element*>(shared) + thread * Place::UNITS;
    shared += sizeof(Element) * stride * AHEAD;
  }

  OPSMITH_DEVICE void fetch(int step, const Element* row) {
    Element* const to = places + (step & (AHEAD - 1)) * stride;
#pragma unroll
    for (int u = 0; u < Place::UNITS; u += Place::VECTOR) {
      if (place.has(u)) copy_async<Element, Place::VECTOR>(to + u, row + place.first + u);
    }
  }

  template <class Value>
  OPSMITH_DEVICE void take(Value (&values)[Place::UNITS], int step) {
    const Element* const from = places + (step & (AHEAD - 1)) * stride;
#pragma unroll
    for (int u = 0; u < Place::UNITS; u += Place::VECTOR) {
      Vector<Element, Place::VECTOR> vector{};
      if (place.has(u)) vector = *reinterpret_cast<const Vector<Element, Place::VECTOR>*>(from + u);
#pragma unroll
      for (int v = 0; v < Place::VECTOR; ++v) values[u + v] = widen(vector.at[v]);
    }
  }
};

// Calls step(t, prefetch) for each t. A step calls prefetch() when it begins: it fetches step t + AHEAD, and takes the
// data of step t + 1 into registers, where it stays during the step. Only the last steps have branches.
template <int AHEAD, class Fetch, class Take, class Step>
OPSMITH_DEVICE void run(int steps, Fetch fetch, Take take, Step step) {
#pragma unroll 1
  for (int t = 0; t < AHEAD; ++t) {
    if (t < steps) fetch(t);
    wait_for_copies<AHEAD - 1>();
  }
  take(0);
  int t = 0;
#pragma unroll 8
  for (; t < steps - AHEAD; ++t) {
    step(t, [&] {
      fetch(t + AHEAD);
      wait_for_copies<AHEAD - 1>();
      take(t + 1);
    });
  }
#pragma unroll 1
  for (; t < steps; ++t) {
    step(t, [&] {
      wait_for_copies<AHEAD - 1>();
      if (t + 1 < steps) take(t + 1);
    });
  }
}

// --- Neighbours -------------------------------------------------------------------------------------------------

// What a thread needs of other threads' values: those within RADIUS of its own units. `visit(v, value)` is called for
// each, v counted from the thread's first unit, so negative or at least UNITS; units outside of the sequence are not
// visited, or are zero.

// One warp per sequence: by shuffles.
template <int UNITS, int TAPS, class Value>
struct Warp {
  static constexpr int radius = TAPS / 2;

  template <class Visit>
  OPSMITH_DEVICE void visit_others(const Value (&values)[UNITS], Visit visit) {
    const int lane = threadIdx.x;
#pragma unroll
    for (int distance = 1; distance <= radius; ++distance) {
      const int to_left = (distance + UNITS - 1) / UNITS;
      const int to_right = (UNITS - 1 + distance) / UNITS;
      const Value left = __shfl_up_sync(everyone, values[to_left * UNITS - distance], to_left);
      const Value right = __shfl_down_sync(everyone, values[UNITS - 1 + distance - to_right * UNITS], to_right);
      if (lane >= to_left) visit(-distance, left);
      if (lane + to_right < lanes) visit(UNITS - 1 + distance, right);
    }
  }
};

// One block per sequence: through shared memory, in two copies that take turns, so that an exchange needs one barrier. At
// either end stand zeros, which are never written.
template <int UNITS, int TAPS, class Value>
struct Block {
  static constexpr int radius = TAPS / 2;

  Value* copy;
  Value* other;

  OPSMITH_DEVICE Block(char*& shared) {
    const int length = blockDim.x * UNITS + 2 * radius;
    copy = reinterpret_cast<Value*>(shared);
    other = copy + length;
    shared += sizeof(Value) * 2 * length;
    for (int i = threadIdx.x; i < 2 * length; i += blockDim.x) copy[i] = Value(0);
    __syncthreads();
  }

  template <class Visit>
  OPSMITH_DEVICE void visit_others(const Value (&values)[UNITS], Visit visit) {
    Value* own = copy + radius + threadIdx.x * UNITS;
#pragma unroll
    for (int u = 0; u < UNITS; ++u) own[u] = values[u];
    __syncthreads();
#pragma unroll
    for (int distance = 1; distance <= radius; ++distance) {
      visit(-distance, own[-distance]);
      visit(UNITS - 1 + distance, own[UNITS - 1 + distance]);
    }
    Value* const before = copy;
    copy = other;
    other = before;
  }
};

// sums[u] += sum_v taps[radius + v - u] * values[v], over all units v of the sequence; MIRRORED: taps[radius + u - v], the
// transposed convolution. The thread's own units come first, because nothing has to wait for them.
template <bool MIRRORED, int UNITS, int TAPS, class Value, class Neighbours>
OPSMITH_DEVICE void convolve(
    Value (&sums)[UNITS], const Value (&values)[UNITS], const Value (&taps)[TAPS], Neighbours& neighbours) {
  const auto add = [&](int v, Value value) {
#pragma unroll
    for (int u = 0; u < UNITS; ++u) {
      const int tap = TAPS / 2 + (MIRRORED ? u - v : v - u);
      if (tap >= 0 && tap < TAPS) sums[u] = fma(taps[tap], value, sums[u]);
    }
  };
#pragma unroll
  for (int v = 0; v < UNITS; ++v) add(v, values[v]);
  neighbours.visit_others(values, add);
}

template <bool IN_BLOCK, int UNITS, int TAPS, class Value>
OPSMITH_DEVICE auto make_neighbours(char*& shared) {
  if constexpr (IN_BLOCK) {
    return Block<UNITS, TAPS, Value>(shared);
  } else {
    return Warp<UNITS, TAPS, Value>();
  }
}

template <int TAPS, class Element, class Value>
OPSMITH_DEVICE void read_taps(Value (&taps)[TAPS], const Element* kernel) {
#pragma unroll
  for (int k = 0; k < TAPS; ++k) taps[k] = widen(kernel[k]);
}

// --- Forward ----------------------------------------------------------------------------------------------------

// A warp, or IN_BLOCK a block, computes a sequence. MOST_THREADS, of a block, is what registers are given out for: with
// 32 a step takes 56 ns on an H200, with 128 or more up to 77. Dynamic shared memory: a Stream's AHEAD elements a unit and thread; for
// a block, after them, the two copies of its state.
template <class Element, int TAPS, int UNITS, int VECTOR, bool WHOLE, bool IN_BLOCK, int MOST_THREADS, int ACTIVATION,
          int AHEAD>
__global__ void __launch_bounds__(MOST_THREADS) forward(
    const Element* __restrict__ x,       // [batch, steps, width]
    const Element* __restrict__ kernel,  // [TAPS]
    const Element* __restrict__ hidden,  // [batch, width]
    Element* __restrict__ output,        // [batch, steps, width]
    int64_t batch, int steps, int width) {
  using V = Value<Element>;
  using Here = Place<IN_BLOCK, UNITS, VECTOR, WHOLE>;
  extern __shared__ __align__(16) char shared_memory[];
  char* shared = shared_memory;
  const Here place(width);
  if (place.sequence >= batch) return;
  Stream<Element, Here, AHEAD> inputs(shared, place);
  auto neighbours = make_neighbours<IN_BLOCK, UNITS, TAPS, V>(shared);
  V taps[TAPS];
  read_taps(taps, kernel);
  V state[UNITS];
  place.read(state, hidden + place.sequence * width);

  const Element* source = x + place.sequence * steps * width;
  Element* target = output + place.sequence * steps * width;
  V input[UNITS];
  const auto fetch = [&](int t) {
    inputs.fetch(t, source);
    source += width;
  };
  const auto take = [&](int t) { inputs.take(input, t); };
  run<AHEAD>(steps, fetch, take, [&](int, auto prefetch) {
    V sums[UNITS];
#pragma unroll
    for (int u = 0; u < UNITS; ++u) sums[u] = input[u];
    prefetch();
    convolve<false>(sums, state, taps, neighbours);
#pragma unroll
    for (int u = 0; u < UNITS; ++u) state[u] = place.has(u) ? activate<ACTIVATION>(sums[u]) : V(0);
    place.write(target, state);
    target += width;
  });
}

// --- The sum over all blocks --------------------------------------------------------------------------------------

// The sum of each of COUNT values over the threads of the block, in its first thread; every thread calls it.
template <int COUNT, class Value>
OPSMITH_DEVICE void add_over_block(Value (&values)[COUNT]) {
  __shared__ Value of_warps[lanes][COUNT];
  const int thread = threadIdx.y * blockDim.x + threadIdx.x;
  const int warps = blockDim.x * blockDim.y / lanes;
#pragma unroll
  for (int k = 0; k < COUNT; ++k) {
#pragma unroll
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      values[k] += __shfl_down_sync(everyone, values[k], distance);
    }
    if (thread % lanes == 0) of_warps[thread / lanes][k] = values[k];
  }
  __syncthreads();
  if (thread == 0) {
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
      for (int warp = 1; warp < warps; ++warp) values[k] += of_warps[warp][k];
    }
  }
}

// result[k] = the sum of values[k] over all threads of the grid. The same bits in every run: which block comes last does
// not matter, because it adds the blocks' sums by their numbers.
template <int COUNT, class Value, class Element>
OPSMITH_DEVICE void add_over_blocks(Value (&values)[COUNT], Value* of_blocks, int* finished, Element* result) {
  __shared__ bool is_last;
  const int thread = threadIdx.y * blockDim.x + threadIdx.x;
  add_over_block(values);
  if (thread == 0) {
#pragma unroll
    for (int k = 0; k < COUNT; ++k) of_blocks[int64_t(blockIdx.x) * COUNT + k] = values[k];
    __threadfence();
    is_last = atomicAdd(finished, 1) == int(gridDim.x) - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
#pragma unroll
  for (int k = 0; k < COUNT; ++k) values[k] = Value(0);
  for (int64_t block = thread; block < gridDim.x; block += blockDim.x * blockDim.y) {
#pragma unroll
    for (int k = 0; k < COUNT; ++k) values[k] += __ldcg(of_blocks + block * COUNT + k);
  }
  add_over_block(values);
  if (thread == 0) {
#pragma unroll
    for (int k = 0; k < COUNT; ++k) result[k] = narrow_to(values[k], Element{});
    *finished = 0;
  }
}

// --- Backward ---------------------------------------------------------------------------------------------------

// From the last step to the first, with d_t the gradient of the sum before the activation:
//   d_t = act'(t) * (grad_t + transposed convolution of d_{t+1}),   grad_x_t = d_t,
//   grad_hidden = transposed convolution of d_1,   grad_kernel[k] = sum over sequences, steps and units of
//   d_t[i] * h_{t-1}[i + k - radius].
// act' comes from h_t as it was stored. tanh in a half type is the exception: 1 - h^2 of a rounded h near 1 has no digit
// left, so there the sum is computed again from x_t and h_{t-1}.
//
// grad_kernel: a thread adds up its share, a block its threads', in an order that does not change, and the last block to
// finish adds the blocks'. `finished` is 0 before and after.
// Dynamic shared memory as in `forward`, with two Streams, for tanh in a half type three.
template <class Element, int TAPS, int UNITS, int VECTOR, bool WHOLE, bool IN_BLOCK, int MOST_THREADS, int ACTIVATION,
          int AHEAD, bool GRAD_X, bool GRAD_KERNEL>
__global__ void __launch_bounds__(MOST_THREADS) backward(
    const Element* __restrict__ grad,    // [batch, steps, width]
    const Element* __restrict__ x,       // [batch, steps, width]; read for tanh in a half type only
    const Element* __restrict__ kernel,  // [TAPS]
    const Element* __restrict__ hidden,  // [batch, width]
    const Element* __restrict__ output,  // [batch, steps, width]
    Element* __restrict__ grad_x,        // [batch, steps, width], where GRAD_X
    Element* __restrict__ grad_hidden,   // [batch, width], or null
    Element* __restrict__ grad_kernel,   // [TAPS], where GRAD_KERNEL
    Value<Element>* __restrict__ partial_sums,  // [blocks, TAPS]
    int* __restrict__ finished,                 // [1]
    int64_t batch, int steps, int width) {
  using V = Value<Element>;
  using Here = Place<IN_BLOCK, UNITS, VECTOR, WHOLE>;
  constexpr bool again = ACTIVATION == tanh && sizeof(Element) == 2;
  extern __shared__ __align__(16) char shared_memory[];
  char* shared = shared_memory;
  const Here place(width);
  V totals[TAPS] = {};
  if (place.sequence < batch) {
    Stream<Element, Here, AHEAD> grads(shared, place), pasts(shared, place);
    char* const after_two = shared;
    Stream<Element, Here, AHEAD> inputs(shared, place);
    if constexpr (!again) shared = after_two;
    auto neighbours = make_neighbours<IN_BLOCK, UNITS, TAPS, V>(shared);
    V taps[TAPS];
    read_taps(taps, kernel);

    const int64_t newest = (place.sequence * steps + steps - 1) * width;
    const Element* const hidden_row = hidden + place.sequence * width;
    const Element *grad_row = grad + newest, *past_row = output + newest - width, *input_row = x + newest;
    Element* target = grad_x + newest;
    V grad_now[UNITS], past[UNITS], input[UNITS], present[UNITS];
    if (steps > 0) place.read(present, output + newest);
    const auto fetch = [&](int s) {  // step s from the last: its gradient, h_{t-1}, and x_t where it is needed
      grads.fetch(s, grad_row);
      pasts.fetch(s, s == steps - 1 ? hidden_row : past_row);
      if constexpr (again) inputs.fetch(s, input_row);
      grad_row -= width;
      past_row -= width;
      input_row -= width;
    };
    const auto take = [&](int s) {
      grads.take(grad_now, s);
      pasts.take(past, s);
      if constexpr (again) inputs.take(input, s);
    };
    V delta[UNITS] = {};
    V subtotals[TAPS] = {};
    run<AHEAD>(steps, fetch, take, [&](int s, auto prefetch) {
      V sums[UNITS], before[UNITS], slopes[UNITS];
#pragma unroll
      for (int u = 0; u < UNITS; ++u) {
        sums[u] = grad_now[u];
        before[u] = past[u];
        slopes[u] = again ? input[u] : slope<ACTIVATION>(present[u]);
      }
      prefetch();
      convolve<true>(sums, delta, taps, neighbours);

      V around[UNITS][TAPS];  // h_{t-1} about each unit: the factors of the taps
      if constexpr (GRAD_KERNEL || again) {
        const auto place_in = [&](int v, V value) {
#pragma unroll
          for (int u = 0; u < UNITS; ++u) {
            const int k = v - u + TAPS / 2;
            if (k >= 0 && k < TAPS) around[u][k] = value;
          }
        };
#pragma unroll
        for (int u = 0; u < UNITS; ++u) {
#pragma unroll
          for (int k = 0; k < TAPS; ++k) around[u][k] = V(0);
        }
#pragma unroll
        for (int v = 0; v < UNITS; ++v) place_in(v, before[v]);
        neighbours.visit_others(before, place_in);
      }
      if constexpr (again) {
#pragma unroll
        for (int u = 0; u < UNITS; ++u) {
#pragma unroll
          for (int k = 0; k < TAPS; ++k) slopes[u] = fma(taps[k], around[u][k], slopes[u]);
          slopes[u] = slope_of_tanh_at(slopes[u]);
        }
      }
#pragma unroll
      for (int u = 0; u < UNITS; ++u) {
        delta[u] = place.has(u) ? sums[u] * slopes[u] : V(0);
        if constexpr (GRAD_KERNEL) {
#pragma unroll
          for (int k = 0; k < TAPS; ++k) subtotals[k] = fma(delta[u], around[u][k], subtotals[k]);
        }
        present[u] = before[u];
      }
      if constexpr (GRAD_X) place.write(target, delta);
      target -= width;
      // Sums of sums, because a thread's share may be thousands of products.
      const bool full = s % 16 == 15;
#pragma unroll
      for (int k = 0; k < TAPS; ++k) {
        totals[k] += full ? subtotals[k] : V(0);
        subtotals[k] = full ? V(0) : subtotals[k];
      }
    });
#pragma unroll
    for (int k = 0; k < TAPS; ++k) totals[k] += subtotals[k];
    if (grad_hidden != nullptr) {
      V sums[UNITS] = {};
      convolve<true>(sums, delta, taps, neighbours);
      place.write(grad_hidden + place.sequence * width, sums);
    }
  }
  if constexpr (GRAD_KERNEL) add_over_blocks(totals, partial_sums, finished, grad_kernel);
}

}  // namespace convrnn
