// A table from bytes to values that is read without a lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace opsmith __attribute__((visibility("hidden"))) {

// Entries are added and never removed, so that readers need no lock; writers use one.
template <typename Value>
class Table {
 public:
  Table() = default;
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;
  ~Table() {
    for (std::atomic<Entry*>& bucket : buckets_) {
      for (Entry* entry = bucket; entry != nullptr;) delete std::exchange(entry, entry->next);
    }
  }

  const Value* find(const uint8_t* bytes, size_t size) const {
    const Entry* entry = buckets_[bucket(bytes, size)].load(std::memory_order_acquire);
    for (; entry != nullptr; entry = entry->next) {
      if (entry->key.size() == size && std::memcmp(entry->key.data(), bytes, size) == 0) return &entry->value;
    }
    return nullptr;
  }

  // An existing entry stays.
  void add(const uint8_t* bytes, size_t size, Value value) {
    if (find(bytes, size) != nullptr) return;
    std::atomic<Entry*>& head = buckets_[bucket(bytes, size)];
    head.store(new Entry{std::vector<uint8_t>(bytes, bytes + size), std::move(value), head.load()},
               std::memory_order_release);
  }

 private:
  static constexpr size_t kBuckets = 16;
  struct Entry {
    std::vector<uint8_t> key;
    Value value;
    Entry* next;
  };

  static size_t bucket(const uint8_t* bytes, size_t size) {
    uint64_t hash = size;
    for (; size >= 8; size -= 8, bytes += 8) {
      uint64_t part;
      std::memcpy(&part, bytes, 8);
      hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 32;
    }
    uint64_t part = 0;
    std::memcpy(&part, bytes, size);
    hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
    return hash >> 60;
  }

  std::array<std::atomic<Entry*>, kBuckets> buckets_{};
};

}  // namespace opsmith
