// The plan of one call of a generated program: its shape, the layout of its results, and the launches that compute
// them.
//
// The caller allocates, so there are three steps:
//   find_shape      shape and loop order of the call; result_sizes and result_strides describe the results
//   bind            addresses, and the allocated results
//   next            one launch after another; `place` gives each the scratch memory it needs
#pragma once

#include <optional>

#include "launches.h"
#include "loops.h"
#include "program.h"
#include "rows.h"
#include "tuning.h"

namespace opsmith {

class Plan {
 public:
  Plan(const Program& program, const Target& target)
      : program_(program), target_(target), reads_(static_cast<int>(program.reads.size())) {}
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // --- shape and results -----------------------------------------------------------------------------------------

  // `tensors`: one per slot, out= last; they must outlive the plan. False where one kernel cannot compute the call.
  bool find_shape(const Strided* tensors, int count) {
    given_ = tensors_ = tensors;
    if (has_rows() && !align(count)) return false;
    for (const Program::Cover& cover : program_.covers) {
      for (int slot : cover.slots) {
        if (!broadcast(shape_, tensors_[slot].sizes)) return false;
      }
    }
    for (const Program::Cover& cover : program_.covers) {
      if (program_.covers.size() == 1 && cover.dimensions == 0) break;  // it gave the shape
      Dimensions own;
      for (int slot : cover.slots) broadcast(own, tensors_[slot].sizes);
      if (!covered(cover, own, shape_)) return false;
    }
    for (const Program::Result& result : program_.results) {
      // The gradient of an input that the function does not use may have another shape.
      if (result.like >= 0 && !broadcasts_to(tensors_[result.like].sizes, shape_.view())) return false;
    }
    count_ = shape_.product();
    if (has_rows()) {
      find_order();
      order_ = row_order(program_.rows, order_);
      return count_ != 0;  // A row of no elements has a mean and a maximum of its own.
    }
    linear_ = count_ != 0 && is_linear(count);
    if (linear_) {
      order_ = natural_order(shape_.count);
    } else {
      find_order();
    }
    return true;
  }

  Sizes shape() const { return shape_.view(); }
  int64_t count() const { return count_; }
  // Whether every tensor has the full shape and is contiguous.
  bool linear() const { return linear_; }

  Dimensions result_sizes(int result) const {
    const int like = program_.results[result].like;
    Dimensions sizes;
    if (like >= 0) {
      for (int d = 0; d < given_[like].sizes.count; ++d) sizes.push(given_[like].sizes[d]);
      return sizes;
    }
    for (int d = 0; d < shape_.count; ++d) {
      const bool along = like != Program::kFull && program_.rows.has(d, shape_.count);
      if (!along || like == Program::kKept) sizes.push(along ? 1 : shape_.at[d]);
    }
    return sizes;
  }
  Dimensions result_strides(int result) const {
    const int like = program_.results[result].like;
    const bool squeezed = like == Program::kSqueezed || (like >= 0 && program_.rows.is_squeezed(like));
    return dense_strides(result_sizes(result).view(), squeezed ? squeezed_order(program_.rows, order_) : order_);
  }

  // --- launches --------------------------------------------------------------------------------------------------

  // `addresses`: of the inputs that are read, then of the results. False where one kernel cannot compute the call.
  bool bind(const Strided* results, const int64_t* addresses, const int64_t* scalars) {
    const int operands = program_.operands();
    std::copy(addresses, addresses + operands, parameters_);
    std::copy(addresses, addresses + operands, addresses_);
    std::copy(scalars, scalars + program_.scalars, parameters_ + operands);
    first_ = true;
    left_ = 0;
    if (linear_) {
      bind_linear();
      return true;
    }
    if (has_rows()) return bind_rows(results);
    int64_t expanded[kMaxOperands][kMaxDimensions];
    for (int k = 0; k < reads_; ++k) expand(tensors_[program_.reads[k].slot], shape(), expanded[k]);
    for (int k = reads_; k < operands; ++k) {
      const Strided& result = results[k - reads_];
      expand(result, shape(), expanded[k]);
      int64_t numel = 1;
      for (int d = 0; d < result.sizes.count; ++d) numel *= result.sizes[d];
      if (numel != count_) waiting_[left_++] = k;
    }
    merge(shape(), order_, expanded, operands, loops_);
    return true;
  }

  // Whether the kernel has found an argument that only the reference can refuse.
  bool refused() const { return row_.has_value() && row_->refused != 0; }

  // The next launch, or null after the last. Its launch and its combinations run in this order, on one stream.
  Pass* next() {
    if (left_ > 0) {
      plan_sums();
    } else if (!first_) {
      return nullptr;
    } else if (has_rows()) {
      plan_rows();
    } else {
      plan_stream();
    }
    first_ = false;
    return &pass_;
  }

  // Puts the partial sums of the current pass into memory of `scratch_bytes`.
  void place(int64_t scratch) {
    for (int i = 0; i < sums_; ++i) {
      if (sum_[i].offset < 0) continue;
      parameters_[sum_[i].operand] = scratch + sum_[i].offset;
      jobs_[4 * i] = scratch + sum_[i].offset;
    }
  }

  int64_t blocks_of_stream(const Tiles& tiles) const { return stream_blocks(target_, count_, tiles); }

 private:
  struct Sum {
    int operand;
    int64_t rows;
    int64_t columns;
    int64_t offset;  // in scratch memory; -1: the pass writes the result itself
  };

  // --- shape -----------------------------------------------------------------------------------------------------

  bool has_rows() const { return program_.rows.dimensions != 0; }

  bool align(int count) {
    row_.emplace();
    std::copy(given_, given_ + count, row_->tensors);
    for (int slot : program_.rows.squeezed) {
      Strided& tensor = row_->tensors[slot];
      if (tensor.present && !row_->alignment.align(program_.rows, tensor)) return false;
    }
    tensors_ = row_->tensors;
    return true;
  }

  bool is_linear(int count) const {
    bool any_placeholder = false;
    for (int slot = 0; slot < count; ++slot) {
      const Strided& tensor = tensors_[slot];
      if (!tensor.present) continue;
      if (!(tensor.sizes == shape_.view())) return false;
      if (slot < program_.inputs && tensor.placeholder) {
        any_placeholder = true;
      } else if (!is_contiguous(tensor)) {
        return false;
      }
    }
    if (!any_placeholder) return true;
    // A placeholder leaves the order to the other tensors, unusual strides of dimensions of size one included.
    const Dimensions natural = dense_strides(shape_.view(), natural_order(shape_.count));
    return std::all_of(tensors_, tensors_ + count, [&](const Strided& tensor) {
      return !tensor.present || tensor.placeholder || tensor.strides == natural.view();
    });
  }

  void find_order() {
    Strided present[kMaxSlots];
    int candidates = 0, count = 0;
    for (int slot = 0; slot < program_.inputs; ++slot) candidates += tensors_[slot].present;
    const bool some_unused = reads_ < candidates;  // An input that the function does not use may have any shape.
    for (int slot = 0; slot < program_.inputs; ++slot) {
      const Strided& tensor = tensors_[slot];
      if (!tensor.present || (some_unused && !broadcasts_to(tensor.sizes, shape_.view()))) continue;
      present[count++] = tensor;
    }
    order_ = order_of(shape_.view(), present, count);
  }

  void bind_linear() {
    loops_.sizes.count = 0;
    loops_.sizes.push(count_);
    loops_.operands = program_.operands();
    for (int k = 0; k < loops_.operands; ++k) loops_.strides[k][0] = count_ == 1 ? 0 : 1;
  }

  // --- a launch --------------------------------------------------------------------------------------------------

  void begin(Path path) {
    layout_.path = path;
    layout_.outer = layout_.inner = 0;
    layout_.vector = layout_.wide = 1;
    layout_.index = static_cast<uint8_t>(target_.index);
    layout_.held = layout_.cluster = layout_.warps = layout_.resident = layout_.ahead = 0;
    parameter_count_ = program_.operands() + program_.scalars;
    sums_ = 0;
    const Tuning& tuning = target_.tuning;
    pass_ = {};
    pass_.layout = reinterpret_cast<uint8_t*>(&layout_);
    pass_.layout_size = kLayoutHead + program_.operands();
    pass_.parameters = parameters_;
    pass_.threads = path == kStream    ? tuning.stream_threads
                    : path == kSegment ? tuning.segment_threads
                                       : tuning.column_threads;
    pass_.combines = combines_;
  }

  void add(int64_t parameter) { parameters_[parameter_count_++] = parameter; }
  void add_size(int64_t size) { add(!target_.is_gpu || layout_.wide ? size : with_multiplier(size)); }

  void plan_stream() {
    begin(kStream);
    bool strided = false;
    for (int k = 0; k < loops_.operands; ++k) {
      layout_.modes[k] = indexed_mode(loops_, k);
      strided |= is_strided(layout_.modes[k]);
    }
    const int dimensions = strided ? loops_.sizes.count : 0;
    layout_.inner = static_cast<uint8_t>(dimensions);
    find_width(strided ? loops_.sizes.at[0] : 0);
    add(count_);
    for (int d = 0; d < dimensions; ++d) add_size(loops_.sizes.at[d]);
    for (int k = 0; k < loops_.operands; ++k) {
      if (!is_strided(layout_.modes[k])) continue;
      for (int d = 0; d < dimensions; ++d) add(loops_.strides[k][d]);
    }
    pass_.parameter_count = parameter_count_;
    pass_.tasks = count_;
    pass_.grain = target_.tuning.cpu_grain;
  }

  // The first pass writes the results of the full size and the sums that fit together; other sums take further passes.
  void plan_sums() {
    const Grouping grouping = group(loops_, waiting_, left_);
    const bool by_column = grouping.by_column();
    begin(by_column ? kColumn : kSegment);
    find_modes(grouping);

    int kept[kMaxDimensions], dropped[kMaxDimensions];
    int64_t kept_count = 1, length = 1;  // `length`: elements of a sum
    const int64_t columns = by_column ? loops_.sizes.at[0] : 1;
    for (int d = 0; d < loops_.sizes.count; ++d) {
      if ((grouping.kept >> d & 1) == 0) {
        dropped[layout_.inner++] = d;
        length *= loops_.sizes.at[d];
      } else if (d != 0) {
        kept[layout_.outer++] = d;
        kept_count *= loops_.sizes.at[d];
      }
    }
    find_width(loops_.sizes.at[0]);
    const Chunks chunks = by_column ? column_chunks(target_, columns, kept_count, length, layout_.vector)
                                    : segment_chunks(target_, length, kept_count, layout_.vector);
    find_sums(chunks, kept_count, columns);

    if (by_column) add(columns);
    add(by_column ? kept_count : length);
    add(by_column ? length : kept_count);
    add(chunks.count);
    add(chunks.extent);
    for (int i = 0; i < layout_.outer; ++i) add_size(loops_.sizes.at[kept[i]]);
    for (int i = 0; i < layout_.inner; ++i) add_size(loops_.sizes.at[dropped[i]]);
    for (int k = 0; k < loops_.operands; ++k) {
      if (!is_strided(layout_.modes[k])) continue;
      if (by_column) add(loops_.strides[k][0]);
      for (int i = 0; i < layout_.outer; ++i) add(loops_.strides[k][kept[i]]);
      for (int i = 0; i < layout_.inner; ++i) add(loops_.strides[k][dropped[i]]);
    }
    pass_.parameter_count = parameter_count_;
    pass_.tasks = kept_count * chunks.count * chunks.tiles;
    pass_.grain = at_least_one(divide_up(target_.tuning.cpu_grain * pass_.tasks, count_));
    if (target_.is_gpu) {
      pass_.blocks =
          by_column ? column_blocks(kept_count, chunks) : segment_blocks(target_.tuning, kept_count, chunks);
    }
    int still = 0;
    for (int i = 0; i < left_; ++i) {
      if (grouping.roles[i] == kAbsent) waiting_[still++] = waiting_[i];
    }
    left_ = still;
  }

  void find_modes(const Grouping& grouping) {
    // A GPU's kernel has the element's own index where no dimension except the columns is kept.
    const bool has_index = target_.is_gpu && grouping.kept <= 1;
    for (int k = 0; k < loops_.operands; ++k) {
      const bool absent = k >= reads_ && (!first_ || std::count(waiting_, waiting_ + left_, k) != 0);
      layout_.modes[k] = absent      ? kAbsent
                         : has_index ? indexed_mode(loops_, k)
                                     : strided_mode(loops_.strides[k], loops_.sizes.count);
      if (k >= reads_) parameters_[k] = absent ? 0 : addresses_[k];
    }
    for (int i = 0; i < left_; ++i) layout_.modes[waiting_[i]] = grouping.roles[i];
  }

  // The width of packs and indices on a GPU; `inner` elements are contiguous in every row.
  void find_width(int64_t inner) {
    if (!target_.is_gpu) return;
    layout_.vector = static_cast<uint8_t>(vector(inner));
    layout_.wide = is_wide();
  }

  bool is_aligned(int k, int64_t width) const {
    return addresses_[k] % std::min<int64_t>(16, width * program_.itemsize(k)) == 0;
  }

  // Elements that can be moved at once: operands that are moved in packs must be aligned in every row.
  int64_t vector(int64_t inner) const {
    int64_t least = 0;
    for (int k = 0; k < loops_.operands; ++k) {
      if (!is_packed(layout_.modes[k])) continue;
      least = least == 0 ? program_.itemsize(k) : std::min<int64_t>(least, program_.itemsize(k));
    }
    const int64_t width = least == 0 ? 1 : pack_width(least);
    if (inner % width != 0) return 1;
    for (int k = 0; k < loops_.operands; ++k) {
      if (!is_packed(layout_.modes[k])) continue;
      if (!has_rows() && !is_aligned(k, width)) return 1;
      for (int d = 1; d < loops_.sizes.count; ++d) {
        if (loops_.strides[k][d] % width != 0) return 1;
      }
      for (int d = 0; has_rows() && d < row_->kept.sizes.count; ++d) {
        if (row_->kept.strides[k][d] % width != 0) return 1;
      }
    }
    return width;
  }

  // Whether an index or an offset exceeds 32 bits.
  bool is_wide() const {
    constexpr int64_t limit = INT32_MAX;
    if (count_ > limit) return true;
    for (int k = 0; k < loops_.operands; ++k) {
      int64_t reach = 0;
      for (int d = 0; d < loops_.sizes.count; ++d) reach += (loops_.sizes.at[d] - 1) * loops_.strides[k][d];
      for (int d = 0; has_rows() && d < row_->kept.sizes.count; ++d) {
        reach += (row_->kept.sizes.at[d] - 1) * row_->kept.strides[k][d];
      }
      if (reach > limit) return true;
    }
    return false;
  }

  // --- sums ------------------------------------------------------------------------------------------------------

  const Program::Result& result_of(const Sum& sum) const { return program_.results[sum.operand - reads_]; }

  // The sums of this pass, those of one dtype side by side, and the launches that combine them.
  void find_sums(const Chunks& chunks, int64_t kept, int64_t columns) {
    for (int k = reads_; k < loops_.operands; ++k) {
      switch (layout_.modes[k]) {
        case kReducedAll:
          sum_[sums_++] = {k, chunks.count, kept * columns, -1};
          break;
        case kReducedInner:
          sum_[sums_++] = {k, chunks.count * kept, columns, -1};
          break;
        case kReducedOuter:
          sum_[sums_++] = {k, chunks.count * chunks.tiles, kept, -1};
          break;
        case kReducedNone:
          sum_[sums_++] = {k, chunks.count * chunks.tiles * kept, 1, -1};
          break;
        default:
          break;
      }
    }
    combine_sums();
  }

  // `direct`: whether the pass writes sums of one row into the results.
  void combine_sums(bool direct = true) {
    std::sort(sum_, sum_ + sums_, [&](const Sum& a, const Sum& b) {
      const int first = result_of(a).dtype, second = result_of(b).dtype;
      return first != second ? first < second : a.operand < b.operand;
    });
    for (int begin = 0; begin < sums_;) {
      int end = begin + 1;
      while (end < sums_ && result_of(sum_[end]).dtype == result_of(sum_[begin]).dtype) ++end;
      find_combines(begin, end, direct);
      begin = end;
    }
  }

  // For the sums of one dtype. If each has one row, the pass writes the results directly: kernels for a GPU round to
  // their dtype, those for a CPU do not.
  void find_combines(int begin, int end, bool direct) {
    constexpr int64_t alignment = 256;
    bool whole = direct && (target_.is_gpu || !result_of(sum_[begin]).rounds);
    for (int i = begin; i < end && whole; ++i) whole = sum_[i].rows == 1;
    int64_t most_columns = 0;
    for (int i = begin; i < end; ++i) {
      Sum& sum = sum_[i];
      parameters_[sum.operand] = addresses_[sum.operand];
      if (whole) continue;
      sum.offset = pass_.scratch_bytes;
      const int64_t bytes = sum.rows * sum.columns * (result_of(sum).itemsize == 8 ? 8 : 4);
      pass_.scratch_bytes += divide_up(bytes, alignment) * alignment;
      const int64_t job[] = {0, addresses_[sum.operand], sum.rows, sum.columns};
      std::copy(job, job + 4, jobs_ + 4 * i);
      most_columns = std::max(most_columns, sum.columns);
      if (!target_.is_gpu) add_combine(i, i + 1, sum.columns);
    }
    if (!whole && target_.is_gpu) add_combine(begin, end, most_columns);
  }

  void add_combine(int begin, int end, int64_t columns) {
    combines_[pass_.combine_count++] = {result_of(sum_[begin]).dtype, end - begin, columns, combine_blocks(columns),
                                        jobs_ + 4 * begin};
  }

  // --- rows: row_plan.h ------------------------------------------------------------------------------------------

  bool is_squeezed(int result) const;
  bool has_row(int k) const;
  int summed_along(int k) const;
  int summed_over(int k) const;
  Dimensions kept_order(const int64_t (*expanded)[kMaxDimensions]) const;
  bool bind_rows(const Strided* results);
  uint8_t row_mode(int k) const;
  uint8_t row_role(int k) const;
  bool find_groups();
  RowTeam find_team() const;
  void move_apart();
  void enter(const RowTeam& team);
  int64_t row_teams(const RowTeam& team, int64_t rows) const;
  void plan_rows();

  const Program& program_;
  const Target& target_;
  const int reads_;
  const Strided* given_ = nullptr;
  const Strided* tensors_ = nullptr;  // aligned, in a row program
  Dimensions shape_;  // of all results, before any is summed
  Dimensions order_;
  int64_t count_ = 0;
  bool linear_ = false;
  Loops loops_;  // in a row program, along the row
  std::optional<RowPart> row_;

  bool first_ = true;
  int waiting_[kMaxOperands];  // operands whose sums no pass has computed yet
  int left_ = 0;
  Pass pass_;
  LayoutClass layout_;
  int64_t addresses_[kMaxOperands];
  int64_t parameters_[kMaxParameters];
  int parameter_count_ = 0;
  Sum sum_[kMaxOperands];
  int sums_ = 0;
  int64_t jobs_[4 * kMaxOperands];
  Combine combines_[kMaxOperands];
};

}  // namespace opsmith

#include "row_plan.h"
