// Generated kernels as C++ finds them: programs by the kinds of their arguments, and each program's kernels by layout
// class. It uses no more of torch than its C shim: shipped libraries (shipping/library) have the same tables.
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "../../include/opsmith/table.h"
#include "../../launch/planner/plan.h"
#include "devices.h"

namespace opsmith {

// What decides which program runs a call, as a short string of bytes: the default dtype, then each argument in order.
// A tensor adds its dtype and whether it has no dimensions, in row programs also how many; a value that is compiled in
// adds a letter and its bytes.
struct Key {
  static constexpr size_t kCapacity = 120;
  size_t size = 0;
  bool fits = true;
  uint8_t bytes[kCapacity];

  void add(uint8_t byte) {
    if (size < kCapacity) {
      bytes[size++] = byte;
    } else {
      fits = false;
    }
  }
  void add(const void* data, size_t length) {
    if (size + length <= kCapacity) {
      std::memcpy(bytes + size, data, length);
      size += length;
    } else {
      fits = false;
    }
  }
  void add_dtype(int dtype) { add(static_cast<uint8_t>(dtype)); }
  void add_count(size_t count) { add(static_cast<uint8_t>(count)); }
  void add_tensor(int dtype, int64_t dimensions, bool counted) {
    add(static_cast<uint8_t>(dtype << 1 | (dimensions == 0)));
    if (counted) add(static_cast<uint8_t>(dimensions));
  }
  void add_absent() { add(0xFF); }
  void add_none() { add('N'); }
  void add_bool(bool value) { add(value ? 'T' : 'F'); }
  void add_int(int64_t value) {
    add('I');
    add(&value, sizeof value);
  }
  void add_double(double value) {
    add('D');
    add(&value, sizeof value);
  }
  void add_string(const char* text, size_t length) {
    add('S');
    add_count(std::min<size_t>(length, 255));
    add(text, length);
  }
  void add_list(size_t length) {
    add('L');
    add_count(std::min<size_t>(length, 255));
  }
};

// A program as the planner knows it, what else a call needs, and its compiled kernels: launch.py's Prepared for one
// operator.
struct Prepared {
  struct Scalar {
    int position;  // among the operator's arguments; negative: a size, which the plan knows
    bool floating;
    bool is_size() const { return position < 0; }
  };
  Program program;
  std::vector<Scalar> scalars;
  std::vector<int> outs;  // the slots that are written, in the results' order; empty: new tensors
  bool returns_list = false;
  Table<Loaded> kernels;  // by layout class
};

// Reads the row of numbers that generate/publish.py writes.
inline void read_prepared(Row row, Prepared& prepared) {
  prepared.program = read_program(row);
  row.repeat([&] {
    const int position = row.small();
    prepared.scalars.push_back({position, row.flag()});
  });
  row.repeat([&] { prepared.outs.push_back(row.small()); });
  prepared.returns_list = row.flag();
}

// What the generated kernels of all operators share.
struct Devices {
  Tuning tuning;
  static constexpr size_t kMaxGpus = 64;
  std::array<std::atomic<int64_t>, kMaxGpus> multiprocessors{};  // by GPU; 0: not known yet
  std::array<std::atomic<int64_t>, kMaxGpus> clusters{};         // the most blocks of a cluster
  std::array<std::atomic<bool>, kMaxGpus> overlaps{};            // whether a launch may begin while another ends
  Table<Loaded> combines;  // the kernels that add partial sums, by {device, index, dtype, results of a launch}

  static Devices& get() {
    static Devices& devices = *new Devices;  // Never destroyed: a thread may outlive the end of main.
    return devices;
  }
  // Where a call runs; nothing if the GPU is not known yet.
  std::optional<Target> target(size_t device, int index) const {
    if (device == 0) return Target{0, 0, 1, 0, tuning};
    const size_t place = static_cast<size_t>(index);
    const int64_t count = place < multiprocessors.size() ? multiprocessors[place].load() : 0;
    if (count == 0) return std::nullopt;
    return Target{1, count, clusters[place].load(), index, tuning};
  }
  bool overlaps_on(int index) const {
    const size_t place = static_cast<size_t>(index);
    return place < overlaps.size() && overlaps[place].load(std::memory_order_relaxed);
  }
  const Loaded* combine(size_t device, int index, int64_t dtype, int64_t jobs) const {
    const uint8_t key[] = {static_cast<uint8_t>(device), static_cast<uint8_t>(index), static_cast<uint8_t>(dtype),
                           static_cast<uint8_t>(jobs)};
    return combines.find(key, sizeof key);
  }
};

}  // namespace opsmith
