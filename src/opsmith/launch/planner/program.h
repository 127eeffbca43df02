// What the planner knows about a generated program, which Python describes as a row of numbers.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "dimensions.h"

namespace opsmith {

constexpr int kMaxScalars = 64;
constexpr int kMaxSlots = 64;

struct Program {
  struct Read {
    int slot;
    int itemsize;
  };
  struct Result {
    int dtype;  // any number that identifies it
    int like;   // the slot whose shape it has, or its form
    int itemsize;
    bool rounds;  // a half type: sums are added up in float32 and rounded
  };
  // Slots that together must have the full size along some dimensions, or along all.
  struct Cover {
    uint64_t dimensions;  // as bits, the last dimension first; 0: all
    std::vector<int> slots;
  };
  // Of a program that reduces rows; `dimensions` is 0 for a pointwise one.
  struct Rows {
    uint64_t dimensions = 0;         // those along the row, as bits, the last dimension first
    std::vector<int> sizes;          // by scalar: a dimension counted from the last, whose size it is, or an argument
    std::vector<int> squeezed;       // the slots that have no dimensions along the row
    bool checks = false;             // whether the kernel can refuse an argument
    int carried = 0;                 // bytes of an element that passes carry on, on a GPU

    bool has(int dimension, int count) const { return (dimensions >> (count - 1 - dimension) & 1) != 0; }
    bool is_squeezed(int slot) const { return std::count(squeezed.begin(), squeezed.end(), slot) != 0; }
  };
  // Forms of results (expression.py's Form), as the value of `like`.
  static constexpr int kFull = -1, kKept = -2, kSqueezed = -3;

  std::vector<Read> reads;
  std::vector<Result> results;
  std::vector<Cover> covers;
  int inputs = 0;  // the slots that are arguments; the rest are out=
  int scalars = 0;
  Rows rows;

  int operands() const { return static_cast<int>(reads.size() + results.size()); }
  int itemsize(int operand) const {
    const int count = static_cast<int>(reads.size());
    return operand < count ? reads[operand].itemsize : results[operand - count].itemsize;
  }
  bool fits() const { return operands() <= kMaxOperands && scalars <= kMaxScalars; }
};

// Reads a row of numbers that Python wrote.
class Row {
 public:
  Row(const int64_t* numbers, size_t count) : next_(numbers), end_(numbers + count) {}

  int64_t one() {
    if (next_ == end_) throw std::out_of_range("a row of numbers is too short");
    return *next_++;
  }
  int small() { return static_cast<int>(one()); }
  bool flag() { return one() != 0; }
  // A count, then `each` that many times.
  template <typename Each>
  void repeat(Each&& each) {
    for (int64_t left = one(); left > 0; --left) each();
  }
  Sizes several(int count) {
    if (end_ - next_ < count) throw std::out_of_range("a row of numbers is too short");
    const Sizes found{next_, count};
    next_ += count;
    return found;
  }

 private:
  const int64_t* next_;
  const int64_t* end_;
};

inline Program read_program(Row& row) {
  Program program;
  row.repeat([&] {
    const int slot = row.small();
    program.reads.push_back({slot, row.small()});
  });
  row.repeat([&] {
    Program::Result result;
    result.dtype = row.small();
    result.like = row.small();
    result.itemsize = row.small();
    result.rounds = row.flag();
    program.results.push_back(result);
  });
  row.repeat([&] {
    Program::Cover& cover = program.covers.emplace_back();
    cover.dimensions = static_cast<uint64_t>(row.one());
    row.repeat([&] { cover.slots.push_back(row.small()); });
  });
  program.inputs = row.small();
  program.scalars = row.small();
  program.rows.dimensions = static_cast<uint64_t>(row.one());
  if (program.rows.dimensions != 0) {
    row.repeat([&] { program.rows.sizes.push_back(row.small()); });
    row.repeat([&] { program.rows.squeezed.push_back(row.small()); });
    program.rows.checks = row.flag();
    program.rows.carried = row.small();
  }
  return program;
}

}  // namespace opsmith
