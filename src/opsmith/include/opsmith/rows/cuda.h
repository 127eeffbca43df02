// Drivers of row kernels on the GPU: which threads share a row, where its elements are held, how it is reduced.
//
// A team of threads has one row at a time: neighbouring lanes of a warp, a block, or the blocks of a cluster, which
// read each other's shared memory. A row that fits is read once: each thread of the team holds `held` packs of it in
// registers, and every pass goes through them. A longer row is read again by every pass.
//
// A kernel K is a struct with
//   vector, held, threads, cluster   elements of a pack; packs per thread, 0 if rows do not fit; the most threads of a
//                                    block; blocks of a cluster, 0 if a team is part of a warp
//   ahead                            whether a team loads its next row while it computes one
//   start, locate, load              where a row and its elements are, and what is loaded of them
//   compute                          the passes over a row, as calls of `elements.each` and `team.reduce`
//   Sums, finish                     the sums over rows that a team has
// Reductions and sums are made in an order that depends on sizes alone.
#pragma once

#include <opsmith/rows/cuda_division.h>
#include <opsmith/rows/cuda_pairs.h>
#include <opsmith/rows/cuda_sums.h>
#include <opsmith/rows/cuda_teams.h>

namespace opsmith {

// An index that is out of range ends the kernel with an error, as torch's own kernels do.
#ifdef __CUDA_ARCH__
extern "C" __device__ void __assertfail(
    const char* message, const char* file, unsigned int line, const char* function, decltype(sizeof(0)) width);
OPSMITH_DEVICE void refuse_index() { __assertfail("index out of range", __FILE__, __LINE__, "opsmith", 1); }
#else
OPSMITH_DEVICE void refuse_index() { __builtin_trap(); }
#endif

// ---- the elements of a row -----------------------------------------------------------------------------------------

// What a pass writes element by element: nothing, by default.
struct Nothing {};

// The packs of a row that a thread holds.
template <class Kernel>
class HeldElements {
  using Index = typename Kernel::Index;
  using Place = typename Kernel::Place;
  static constexpr int V = Kernel::vector;
  static constexpr int U = Kernel::held;
  // Slots that every thread uses; the others may be beyond the end of the row. A thread holds 1, 2, 3, 4, 6, 8, 12, ...
  // packs, and a row needs more than the number before U (held_before in tuning.h).
  static constexpr int full = U <= 3 ? U - 1 : (U & (U - 1)) == 0 ? U / 4 * 3 : U / 3 * 2;

 public:
  OPSMITH_DEVICE HeldElements(const Kernel& kernel, const Place& start, Index rank, Index size, bool mine)
      : kernel_(kernel), first_(rank), size_(size) {
    load(start, mine);
  }

  // Another row's elements. The loads are issued here and waited for where a pass uses them.
  OPSMITH_DEVICE void load(const Place& start, bool mine) {
    start_ = start;
    mine_ = mine;
    const Index packs = kernel_.loops.length / V;
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const Index pack = first_ + u * size_;
      inputs_[u] = kernel_.template load<V>(place(u < full || pack < packs ? pack : 0));
    }
  }

  OPSMITH_DEVICE void take(const HeldElements& other) {
    start_ = other.start_;
    mine_ = other.mine_;
#pragma unroll
    for (int u = 0; u < U; ++u) inputs_[u] = other.inputs_[u];
  }

  // pass(inputs, shared, outputs, lane, column, slot) for each element; then store(outputs, place) for each pack.
  template <class Outputs, class Pass, class Store>
  OPSMITH_DEVICE void each(const Pass& pass, const Store& store) const {
    const Index packs = kernel_.loops.length / V;
#pragma unroll
    for (int u = 0; u < U; ++u) {
      const Index pack = first_ + u * size_;
      if (u >= full && pack >= packs) continue;
      const auto shared = kernel_.template load_shared<V>(pack * V);
      Outputs outputs;
#pragma unroll
      for (int lane = 0; lane < V; ++lane) {
        pass(inputs_[u], shared, outputs, lane, int64_t(pack) * V + lane, u * V + lane);
      }
      if constexpr (!same_type<Outputs, Nothing>) {
        if (mine_) store(outputs, place(pack));
      }
    }
  }

 private:
  OPSMITH_DEVICE Place place(Index pack) const { return kernel_.locate(start_, pack * V); }

  const Kernel& kernel_;
  const Index first_, size_;
  Place start_;
  bool mine_;
  typename Kernel::template Inputs<V> inputs_[U > 0 ? U : 1];
};

// The packs of a row that is too long to be held: loaded again by every pass, a few at a time.
template <class Kernel>
class StreamedElements {
  using Index = typename Kernel::Index;
  using Place = typename Kernel::Place;
  static constexpr int V = Kernel::vector;
  static constexpr int U = 2;

 public:
  OPSMITH_DEVICE StreamedElements(const Kernel& kernel, const Place& start, Index rank, Index size, bool mine)
      : kernel_(kernel), start_(start), first_(rank), size_(size), mine_(mine) {}

  template <class Outputs, class Pass, class Store>
  OPSMITH_DEVICE void each(const Pass& pass, const Store& store) const {
    const Index packs = kernel_.loops.length / V;
    for (Index from = first_; from < packs; from += U * size_) {
      typename Kernel::template Inputs<V> inputs[U];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const Index pack = from + u * size_;
        inputs[u] = kernel_.template load<V>(place(pack < packs ? pack : from));
      }
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const Index pack = from + u * size_;
        if (pack >= packs) continue;
        const auto shared = kernel_.template load_shared<V>(pack * V);
        Outputs outputs;
#pragma unroll
        for (int lane = 0; lane < V; ++lane) pass(inputs[u], shared, outputs, lane, int64_t(pack) * V + lane, 0);
        if constexpr (!same_type<Outputs, Nothing>) {
          if (mine_) store(outputs, place(pack));
        }
      }
    }
  }

 private:
  OPSMITH_DEVICE Place place(Index pack) const { return kernel_.locate(start_, pack * V); }

  const Kernel& kernel_;
  const Place start_;
  const Index first_, size_;
  const bool mine_;
};

template <bool First, class A, class B>
struct Either {
  using type = A;
};
template <class A, class B>
struct Either<false, A, B> {
  using type = B;
};

// ---- the driver ----------------------------------------------------------------------------------------------------

template <class Kernel>
OPSMITH_DEVICE void rows(const Kernel& kernel) {
  using Index = typename Kernel::Index;
  using Team = typename Either<Kernel::cluster == 0, LaneTeam<Kernel>, BlockTeam<Kernel>>::type;
  using Elements = typename Either<(Kernel::held > 0), HeldElements<Kernel>, StreamedElements<Kernel>>::type;
  await_launch_before();
  const auto& loops = kernel.loops;
  if (Kernel::has_sums && !loops.direct) admit_launch_after();  // which combines them
  Team team(loops);
  team.arrive();
  const Share<Kernel> share(loops);
  typename Kernel::Sums sums(kernel, share);
  // All threads of a block run the same iterations. A team without a row computes the last row and stores nothing.
  const Index step = share.parts * team.count();
  Index first = share.part * team.count();
  const auto is_row = [&](Index first) { return first + team.number() < share.rows; };
  const auto start = [&](Index first) {
    return kernel.start(share.origin + lesser<Index>(first + team.number(), share.rows - 1));
  };
  if constexpr (Kernel::ahead) {
    // The next row is loaded while this one is computed.
    if (first < share.rows) {
      Elements elements(kernel, start(first), team.rank(), team.size(), is_row(first));
      team.wait();
      for (; first < share.rows; first += step) {
        const Index next = first + step < share.rows ? first + step : first;
        const Elements following(kernel, start(next), team.rank(), team.size(), is_row(next));
        kernel.compute(team, elements, start(first), is_row(first), sums);
        sums.next_row();
        elements.take(following);
      }
    }
  } else {
    for (bool waited = false; first < share.rows; first += step) {
      const Elements elements(kernel, start(first), team.rank(), team.size(), is_row(first));
      if (!waited) team.wait();
      waited = true;
      kernel.compute(team, elements, start(first), is_row(first), sums);
      sums.next_row();
    }
  }
  kernel.finish(team, share, sums);
}

}  // namespace opsmith
