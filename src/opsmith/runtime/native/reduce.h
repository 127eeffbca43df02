// The passes of a call whose results are in part sums: launch.py's _reduce, _pass and what they call.
#pragma once

#include "call.h"

namespace opsmith {

// Its words hold the addresses of what is read and the scalars, its walk is found, its results are there.
class Reduction {
 public:
  explicit Reduction(Call& call) : call_(call), words_before_(call.word_count) {}

  // One pass writes the results of the full size and sums those that fit together; others take passes of their own.
  // False where a kernel is missing.
  bool run() {
    int waiting[kMaxOperands];
    int left = 0;
    for (int i = 0; i < static_cast<int>(call_.results.size()); ++i) {
      if (call_.is_summed(i)) waiting[left++] = call_.reads() + i;
    }
    for (bool first = true; left > 0; first = false) {
      const Grouping grouping = group(call_.walk, waiting, left);
      if (!pass(grouping, waiting, left, first)) return false;
      int still = 0;
      for (int i = 0; i < left; ++i) {
        if (grouping.roles[i] == kAbsent) waiting[still++] = waiting[i];
      }
      left = still;
    }
    return true;
  }

 private:
  // The dimensions of a pass but for the columns.
  struct Extents {
    int kept[kMaxDimensions];
    int dropped[kMaxDimensions];
    int64_t columns = 1;
    int64_t kept_count = 1;
    int64_t length = 1;  // of what is summed
  };

  // Partial sums of one result of a pass.
  struct Partial {
    int result;
    int64_t rows;
    int64_t columns;
    int64_t address;
  };

  bool pass(const Grouping& grouping, const int* waiting, int left, bool first) {
    Layout layout;
    Extents extents;
    find_layout(grouping, waiting, left, first, layout, extents);
    const Loaded* kernel = call_.prepared.find(layout);
    const std::optional<Chunks> chunks = cut_up(layout, extents);
    if (kernel == nullptr || !chunks.has_value()) return false;
    find_partials(layout, extents, *chunks);
    alignas(64) char small[kSmallScratch];
    at::Tensor large;
    if (!place_partials(small, large)) return false;
    write_words(layout, extents, *chunks);
    if (call_.device == 0) {
      const int64_t grain = Devices::get().cpu.grain;
      const int64_t tasks = extents.kept_count * chunks->count * chunks->tiles;
      launch_on_cpu(kernel->function, tasks, std::max<int64_t>(1, divide_up(grain * tasks, call_.count)), call_.words);
    } else {
      const int64_t blocks = layout.path == kColumn ? column_blocks(extents.kept_count, *chunks)
                                                    : segment_blocks(Devices::get().cuda, extents.kept_count, *chunks);
      call_.launch_on_gpu(*kernel, layout.path, blocks);
    }
    combine();
    return true;
  }

  void find_layout(const Grouping& grouping, const int* waiting, int left, bool first, Layout& layout,
                   Extents& extents) const {
    const Walk& walk = call_.walk;
    const int reads = call_.reads();
    // A GPU's kernel has the element's own index at hand where no dimension but the columns is kept.
    const bool has_index = call_.device != 0 && grouping.kept <= 1;
    layout.path = grouping.by_column() ? kColumn : kSegment;
    for (int k = 0; k < walk.operands; ++k) {
      const bool whole = k < reads || (first && !call_.is_summed(k - reads));
      layout.modes[k] = !whole      ? kAbsent
                        : has_index ? indexed_mode(walk, k)
                                    : strided_mode(walk.strides[k], walk.sizes.count);
    }
    for (int i = 0; i < left; ++i) layout.modes[waiting[i]] = grouping.roles[i];
    if (grouping.by_column()) extents.columns = walk.sizes.at[0];
    for (int d = 0; d < walk.sizes.count; ++d) {
      if ((grouping.kept >> d & 1) == 0) {
        extents.dropped[layout.inner++] = d;
        extents.length *= walk.sizes.at[d];
      } else if (d != 0) {
        extents.kept[layout.outer++] = d;
        extents.kept_count *= walk.sizes.at[d];
      }
    }
    call_.find_width(layout, walk.sizes.at[0]);
  }

  std::optional<Chunks> cut_up(const Layout& layout, const Extents& extents) const {
    const Devices& devices = Devices::get();
    const auto [columns, kept, length] = std::make_tuple(extents.columns, extents.kept_count, extents.length);
    const bool by_column = layout.path == kColumn;
    if (call_.device == 0) {
      return by_column ? column_chunks(devices.cpu, columns, kept, length) : segment_chunks(devices.cpu, length, kept);
    }
    const int64_t multiprocessors = devices.multiprocessors_of(call_.index);
    if (multiprocessors == 0) return std::nullopt;
    return by_column ? column_chunks(devices.cuda, columns, kept, length, layout.vector, multiprocessors)
                     : segment_chunks(devices.cuda, length, kept, layout.vector, multiprocessors);
  }

  void find_partials(const Layout& layout, const Extents& extents, const Chunks& chunks) {
    const int64_t kept = extents.kept_count, columns = extents.columns;
    sums_ = 0;
    for (int i = 0; i < static_cast<int>(call_.results.size()); ++i) {
      switch (layout.modes[call_.reads() + i]) {
        case kReducedAll:
          partials_[sums_++] = {i, chunks.count, kept * columns, 0};
          break;
        case kReducedInner:
          partials_[sums_++] = {i, chunks.count * kept, columns, 0};
          break;
        case kReducedOuter:
          partials_[sums_++] = {i, chunks.count * chunks.tiles, kept, 0};
          break;
        case kReducedNone:
          partials_[sums_++] = {i, chunks.count * chunks.tiles * kept, 1, 0};
          break;
        default:
          break;
      }
    }
  }

  void write_words(const Layout& layout, const Extents& extents, const Chunks& chunks) {
    const Walk& walk = call_.walk;
    const int reads = call_.reads();
    for (int k = reads; k < walk.operands; ++k) {
      call_.words[k] = layout.modes[k] == kAbsent ? 0 : call_.address(k - reads);
    }
    for (int i = 0; i < sums_; ++i) call_.words[reads + partials_[i].result] = partials_[i].address;
    call_.word_count = words_before_;
    const bool by_column = layout.path == kColumn;
    if (by_column) {
      call_.add_word(extents.columns);
      call_.add_word(extents.kept_count);
      call_.add_word(extents.length);
    } else {
      call_.add_word(extents.length);
      call_.add_word(extents.kept_count);
    }
    call_.add_word(chunks.count);
    call_.add_word(chunks.extent);
    for (int i = 0; i < layout.outer; ++i) call_.add_size(layout, walk.sizes.at[extents.kept[i]]);
    for (int i = 0; i < layout.inner; ++i) call_.add_size(layout, walk.sizes.at[extents.dropped[i]]);
    for (int k = 0; k < walk.operands; ++k) {
      if (!is_strided(layout.modes[k])) continue;
      if (by_column) call_.add_word(walk.strides[k][0]);
      for (int i = 0; i < layout.outer; ++i) call_.add_word(walk.strides[k][extents.kept[i]]);
      for (int i = 0; i < layout.inner; ++i) call_.add_word(walk.strides[k][extents.dropped[i]]);
    }
  }

  // --- adding up -----------------------------------------------------------------------------------------------

  static constexpr int64_t kSmallScratch = 4096;

  at::ScalarType dtype_of(const Partial& partial) const { return call_.prepared.results[partial.result].dtype; }

  // Whether every partial sum of this dtype is a sum already: one row each, and in the result's own dtype. Kernels for a
  // GPU round to it themselves (emit_cuda.py asks the same).
  bool is_whole(at::ScalarType dtype) const {
    const bool is_accumulator = dtype == at::kFloat || dtype == at::kDouble;
    const bool is_half = dtype == at::kHalf || dtype == at::kBFloat16;
    if (!is_accumulator && !(is_half && call_.device != 0)) return false;
    for (int i = 0; i < sums_; ++i) {
      if (dtype_of(partials_[i]) == dtype && partials_[i].rows != 1) return false;
    }
    return true;
  }

  // On a GPU one launch serves all results of a dtype.
  const Loaded* combine_kernel(at::ScalarType dtype) const {
    int results = 0;
    for (int i = 0; i < sums_; ++i) results += dtype_of(partials_[i]) == dtype;
    return Devices::get().combine(call_.device, call_.index, dtype, call_.device == 0 ? 1 : results);
  }

  // Memory for the partial sums; the result's own where there is nothing to add up. False where the kernel that would
  // add them is not known.
  bool place_partials(char* small, at::Tensor& large) {
    constexpr int64_t alignment = 256;
    int64_t bytes = 0;
    for (int i = 0; i < sums_; ++i) {
      Partial& partial = partials_[i];
      const at::ScalarType dtype = dtype_of(partial);
      if (is_whole(dtype)) {
        partial.address = call_.address(partial.result);
        continue;
      }
      if (combine_kernel(dtype) == nullptr) return false;
      partial.address = -1 - bytes;  // an offset, until the memory is there
      bytes += divide_up(partial.rows * partial.columns * (dtype == at::kDouble ? 8 : 4), alignment) * alignment;
    }
    if (bytes == 0) return true;
    int64_t base = reinterpret_cast<int64_t>(small);
    if (call_.device != 0 || bytes > kSmallScratch) {
      large = call_.empty({bytes}, {1}, at::kByte);
      base = reinterpret_cast<int64_t>(large.mutable_data_ptr());
    }
    for (int i = 0; i < sums_; ++i) {
      if (partials_[i].address < 0) partials_[i].address = base - (partials_[i].address + 1);
    }
    return true;
  }

  void combine() {
    uint64_t done = 0;  // partial sums, as bits
    for (int i = 0; i < sums_; ++i) {
      const at::ScalarType dtype = dtype_of(partials_[i]);
      if ((done >> i & 1) != 0 || is_whole(dtype)) continue;
      const Loaded& kernel = *combine_kernel(dtype);
      int64_t words[4 * kMaxOperands];
      int jobs = 0;
      int64_t most_columns = 0;
      for (int j = i; j < sums_; ++j) {
        const Partial& partial = partials_[j];
        if (dtype_of(partial) != dtype) continue;
        done |= uint64_t(1) << j;
        int64_t* job = words + 4 * jobs++;
        job[0] = partial.address;
        job[1] = call_.address(partial.result);
        job[2] = partial.rows;
        job[3] = partial.columns;
        most_columns = std::max(most_columns, partial.columns);
        if (call_.device == 0) launch_on_cpu(kernel.function, partial.columns, Devices::get().cpu.grain, job);
      }
      if (call_.device != 0) {
        const int64_t threads = Devices::get().cuda.combine_threads;
        call_.launch_on_gpu(kernel, {combine_blocks(most_columns), jobs, threads}, words);
      }
    }
  }

  Call& call_;
  const int words_before_;
  Partial partials_[kMaxOperands];
  int sums_ = 0;
};

}  // namespace opsmith
