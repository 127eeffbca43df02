// The part of the plan that only row programs have: operands, groups of rows, teams of threads.
#pragma once

#include "plan.h"

namespace opsmith {

inline bool is_sum(uint8_t mode) { return mode == kReducedInner || mode == kReducedNone || mode == kReducedSegments; }

inline bool Plan::is_squeezed(int result) const {
  const int like = program_.results[result - reads_].like;
  return like == Program::kSqueezed || (like >= 0 && program_.rows.is_squeezed(like));
}

// Whether an operand has an element for each of the row's, or may be broadcast along it.
inline bool Plan::has_row(int k) const {
  if (k < reads_) return !program_.rows.is_squeezed(program_.reads[k].slot);
  return !is_squeezed(k) && program_.results[k - reads_].like != Program::kKept;
}

// The innermost dimensions of a row, or of the rows, that a result has one value for; -1: others as well.
inline int Plan::summed_along(int k) const { return has_row(k) ? repeated_along(loops_, k) : loops_.sizes.count; }
inline int Plan::summed_over(int k) const {
  return row_->kept.sizes.product() == 1 ? 0 : repeated_along(row_->kept, k);
}

inline bool Plan::bind_rows(const Strided* results) {
  const int operands = program_.operands();
  int64_t expanded[kMaxOperands][kMaxDimensions];
  for (int k = 0; k < reads_; ++k) expand(tensors_[program_.reads[k].slot], shape(), expanded[k]);
  for (int k = reads_; k < operands; ++k) {
    Strided result = results[k - reads_];
    if (is_squeezed(k) && !row_->alignment.align(program_.rows, result)) return false;
    expand(result, shape(), expanded[k]);
  }
  merge(shape(), part_of(program_.rows, order_, true), expanded, operands, loops_);
  merge(shape(), kept_order(expanded), expanded, operands, row_->kept);
  if (loops_.sizes.product() == 1) {
    for (int k = 0; k < operands; ++k) loops_.strides[k][0] = has_row(k);
  }
  for (int s = 0; s < program_.scalars; ++s) {
    const int dimension = program_.rows.sizes[s];
    if (dimension < 0) parameters_[operands + s] = shape_.at[shape_.count + dimension];
  }
  for (int k = 0; k < operands; ++k) {
    layout_.modes[k] = k < reads_ ? row_mode(k) : row_role(k);
    if (layout_.modes[k] == kAbsent) return false;
  }
  if (!find_groups()) return false;
  if (!target_.is_gpu) return true;
  find_width(loops_.sizes.at[0]);
  row_->team = find_team();
  move_apart();
  // Segments are added up from what is held.
  return (row_->team.held > 0 || row_->segment == 1) && row_->groups < (1 << 26);
}

inline uint8_t Plan::row_mode(int k) const {
  const bool same = all_zero(row_->kept, k);  // for every row
  if (same && all_zero(loops_, k)) return kScalar;
  if (same && target_.is_gpu && row_->kept.sizes.product() > 1 && loops_.sizes.count == 1 && loops_.strides[k][0] == 1) {
    return kShared;
  }
  return loops_.strides[k][0] == 0 ? kRepeated : loops_.strides[k][0] == 1 ? kContiguous : kStrided;
}

// The order of the dimensions that are not along the row: innermost those that a result is summed over.
inline Dimensions Plan::kept_order(const int64_t (*expanded)[kMaxDimensions]) const {
  const Dimensions order = part_of(program_.rows, order_, false);
  Dimensions summed;
  for (int i = 0; i < order.count; ++i) {
    for (int k = reads_; k < program_.operands(); ++k) {
      if (expanded[k][order.at[i]] != 0 || shape_.at[order.at[i]] == 1) continue;
      summed.push(order.at[i]);
      break;
    }
  }
  return brought_forward(order, summed);
}

// How a result is written: each element, one value per row, or sums over rows or over segments of them.
inline uint8_t Plan::row_role(int k) const {
  const int along = summed_along(k), over = summed_over(k);
  if (along < 0 || over < 0) return kAbsent;
  if (along == 0 && over == 0) return loops_.strides[k][0] == 1 ? kContiguous : kStrided;
  if (along == 0) return kReducedInner;
  if (along < loops_.sizes.count) return kReducedSegments;
  return over == 0 ? kPerRow : kReducedNone;
}

// The rows that sums are over. False: one launch cannot compute all of them.
inline bool Plan::find_groups() {
  constexpr int64_t most_shared = 1024;  // groups that a sum over all rows has a partial sum for
  const Loops& kept = row_->kept;
  int over = -1, along = -1;
  for (int k = reads_; k < loops_.operands; ++k) {
    if (!is_sum(layout_.modes[k])) continue;
    row_->sums = true;
    const int own = summed_over(k);
    int64_t step = 1;
    if (!is_dense(loops_, k, summed_along(k), step) || !is_dense(kept, k, own, step)) return false;
    if (layout_.modes[k] == kReducedSegments) {
      if (along >= 0 && along != summed_along(k)) return false;
      along = summed_along(k);
    }
    if (own == kept.sizes.count) continue;
    if (over >= 0 && over != own) return false;
    over = own;
  }
  row_->segment = row_->groups = 1;
  for (int d = 0; d < along; ++d) row_->segment *= loops_.sizes.at[d];
  for (int d = over; over >= 0 && d < kept.sizes.count; ++d) row_->groups *= kept.sizes.at[d];
  for (int k = reads_; k < loops_.operands; ++k) {
    const bool shared = is_sum(layout_.modes[k]) && summed_over(k) != over;
    if (shared && row_->groups > most_shared) return false;
  }
  return true;
}

// The threads that share a row.
inline RowTeam Plan::find_team() const {
  constexpr int64_t register_bytes = 4;
  int64_t inputs = 0, summed = 0;  // bytes of a pack, in the registers of a thread
  for (int k = 0; k < loops_.operands; ++k) {
    const uint8_t mode = layout_.modes[k];
    if (k < reads_ && has_row(k) && (mode == kContiguous || mode == kStrided)) {
      inputs += std::max<int64_t>(register_bytes, layout_.vector * program_.itemsize(k));
    }
    if (mode == kReducedInner) summed += layout_.vector * (program_.itemsize(k) == 8 ? 8 : 4);
  }
  const int64_t bytes = at_least_one(inputs + summed + layout_.vector * program_.rows.carried);
  const int64_t packs = loops_.sizes.product() / layout_.vector;
  RowTeam team = row_team(target_, packs, row_->kept.sizes.product(), bytes, row_->sums);
  find_residence(target_.tuning, inputs, bytes, row_->sums, team);
  return team;
}

// Moves the elements of packs one by one where an operand's memory is not aligned. The packs stay, and with them the
// threads that share a row: where memory begins does not change the order of a reduction.
inline void Plan::move_apart() {
  for (int k = 0; k < loops_.operands; ++k) {
    if (is_packed(layout_.modes[k]) && !is_aligned(k, layout_.vector)) layout_.modes[k] = kStrided;
  }
}

inline void Plan::enter(const RowTeam& team) {
  layout_.held = static_cast<uint8_t>(team.held);
  layout_.cluster = static_cast<uint8_t>(team.cluster);
  layout_.warps = static_cast<uint8_t>(team.warps());
  layout_.resident = static_cast<uint8_t>(team.resident);
  layout_.ahead = team.ahead;
}

// Teams for the rows of a group: one for each, or as many as the GPU holds at once where each has sums of its own.
// Teams that share a block count as one.
inline int64_t Plan::row_teams(const RowTeam& team, int64_t rows) const {
  constexpr int64_t limit = 1 << 30;
  const int64_t cluster = at_least_one(team.cluster);
  const int64_t teams = std::min(divide_up(rows, team.teams_of_block()), limit / cluster);
  if (!row_->sums) return teams;
  return std::min(teams, at_least_one(team.resident * target_.multiprocessors / (cluster * row_->groups)));
}

inline void Plan::plan_rows() {
  const int64_t length = loops_.sizes.product(), rows = row_->kept.sizes.product();
  const LayoutClass bound = layout_;
  const uint8_t* modes = bound.modes;
  begin(kRow);
  std::copy(modes, modes + loops_.operands, layout_.modes);
  layout_.vector = bound.vector;
  layout_.wide = bound.wide;
  layout_.inner = static_cast<uint8_t>(loops_.sizes.count);
  layout_.outer = static_cast<uint8_t>(row_->kept.sizes.count);
  const int64_t groups = row_->groups, rows_of_group = rows / groups;
  Chunks chunks{};  // of the rows of a group
  if (target_.is_gpu) {
    enter(row_->team);
    chunks.count = row_teams(row_->team, rows_of_group);
    pass_.blocks = chunks.count * groups * at_least_one(row_->team.cluster);
    pass_.threads = row_->team.threads;
  } else {
    chunks = cpu_row_chunks(target_.tuning, length, rows_of_group, row_->sums);
  }
  const int64_t blocks = at_least_one(row_->team.cluster);
  bool direct = true;  // the launch writes the sums themselves
  for (int k = reads_; k < loops_.operands; ++k) {
    if (!is_sum(modes[k])) continue;
    int64_t columns = 1;
    for (int d = summed_along(k); d < loops_.sizes.count; ++d) columns *= loops_.sizes.at[d];
    const bool grouped = summed_over(k) < row_->kept.sizes.count;
    const int64_t parts = chunks.count * (modes[k] == kReducedSegments ? blocks : 1);
    sum_[sums_++] = {k, grouped ? parts : parts * groups, grouped ? columns * groups : columns, -1};
    if (target_.is_gpu) direct = direct && sum_[sums_ - 1].rows == 1 && modes[k] != kReducedSegments;
  }
  combine_sums(direct);
  row_->refused = 0;
  add(length);
  add(rows);
  add(target_.is_gpu ? row_->team.lanes : chunks.extent);
  add(target_.is_gpu ? direct : reinterpret_cast<int64_t>(&row_->refused));
  add(rows_of_group);
  add(row_->segment);
  for (int d = 0; d < row_->kept.sizes.count; ++d) add_size(row_->kept.sizes.at[d]);
  for (int d = 0; d < loops_.sizes.count; ++d) add_size(loops_.sizes.at[d]);
  for (int k = 0; k < loops_.operands; ++k) {
    if (!is_strided(layout_.modes[k]) && layout_.modes[k] != kPerRow) continue;
    for (int d = 0; d < row_->kept.sizes.count; ++d) add(row_->kept.strides[k][d]);
    for (int d = 0; d < loops_.sizes.count; ++d) add(loops_.strides[k][d]);
  }
  pass_.parameter_count = parameter_count_;
  pass_.tasks = chunks.count * groups;
  pass_.grain = at_least_one(divide_up(target_.tuning.cpu_grain * pass_.tasks, count_));
}

}  // namespace opsmith
