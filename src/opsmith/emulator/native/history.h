// Who touched each word of memory last, and when.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace opsmith::emulator {

// An access to a word of four bytes, and as much of its time as is needed to know whether another is ordered after it.
struct Access {
  int32_t pc = 0;         // from the kernel's entry
  uint32_t serial = 0;    // of the block, from 1; 0: none
  uint32_t epoch = 0;     // barriers of the block before it
  uint32_t clock = 0;     // synchronisations of the thread's warp before it
  uint32_t releases = 0;  // of the block, before it
  uint32_t own_releases = 0;  // of the thread, before it
  uint16_t thread = 0;
  uint8_t bytes = 0;  // which of the four
  uint8_t how = 0;    // Manner
};

enum Manner : uint8_t { plain = 0, volatile_access = 1, atomic_operation = 2, compare_and_swap = 3 };

// Of two threads that write one half each, both writes are kept.
struct Word {
  Access write, other_write, read, other_read;
};

// Memory for words that are all empty. Of a launch that is not large it is that of the one before, emptied: to map other
// memory, page by page, takes longer than such a launch does. For a large one, what is never touched takes none.
class Words {
 public:
  Words() = default;
  explicit Words(size_t count) : bytes_(count * sizeof(Word)) {
    if (count == 0) return;
    if (bytes_ > kMedium) {
      words_ = mapped(bytes_, 0);
    } else if ((words_ = spare(size()).exchange(nullptr)) != nullptr) {
      std::memset(static_cast<void*>(words_), 0, bytes_);
    } else {
      words_ = mapped(size(), size() == kSmall ? MAP_POPULATE : 0);  // page by page takes longer
    }
  }
  Words(Words&& other) noexcept { *this = std::move(other); }
  Words& operator=(Words&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(words_, other.words_);
    return *this;
  }
  ~Words() {
    if (words_ == nullptr) return;
    if (bytes_ > kMedium) {
      munmap(words_, bytes_);
    } else if (Word* const another = spare(size()).exchange(words_)) {
      munmap(another, size());
    }
  }

  Word* get() const { return words_; }

 private:
  static constexpr size_t kSmall = 128 << 10, kMedium = 8 << 20;

  // Of the memory that is mapped.
  size_t size() const { return bytes_ > kSmall ? kMedium : kSmall; }

  static Word* mapped(size_t bytes, int also) {
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | also, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("the system has no memory to record accesses in");
    return static_cast<Word*>(memory);
  }

  // Memory of this size from a launch that has ended, for the next one.
  static std::atomic<Word*>& spare(size_t size) {
    static std::atomic<Word*> small{nullptr}, medium{nullptr};
    return size == kSmall ? small : medium;
  }

  size_t bytes_ = 0;
  Word* words_ = nullptr;
};

// The words of a piece of memory, by address.
class Shadow {
 public:
  Shadow() = default;
  Shadow(uintptr_t begin, Word* words) : begin_(begin & ~uintptr_t{3}), words_(words) {}

  static size_t count(uintptr_t begin, uintptr_t end) { return (end - (begin & ~uintptr_t{3}) + 3) / 4; }

  Word& at(uintptr_t address) const {
    Word& word = words_[(address - begin_) / 4];
#if defined(__x86_64__)
    // The first access to a page of words must be a write: a read would map a page of zeros, which the write that
    // follows would have to replace, on all cores.
    asm volatile("orl $0, %0" : "+m"(word.write.serial));
#endif
    return word;
  }

 private:
  uintptr_t begin_ = 0;
  Word* words_ = nullptr;
};

}  // namespace opsmith::emulator
