// The shape of a launch: grid, block and dynamic shared memory, each refused where CUDA could not take it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "errors.h"

namespace opsmith __attribute__((visibility("hidden"))) {

// Blocks or threads along x, y and z. A number alone is along x.
struct Extent {
  unsigned x, y, z;

  Extent(int64_t x, int64_t y = 1, int64_t z = 1) : x(positive(x)), y(positive(y)), z(positive(z)) {}

  std::string text() const {
    std::ostringstream text;
    text << "(" << x << ", " << y << ", " << z << ")";
    return text.str();
  }

 private:
  static unsigned positive(int64_t count) {
    if (count <= 0) fail("a launch of ", count, " blocks or threads; return before it where there is nothing to do");
    constexpr int64_t most = std::numeric_limits<int32_t>::max();
    if (count > most) fail("a launch of ", count, " blocks or threads; ", most, " are the most");
    return static_cast<unsigned>(count);
  }
};

struct Geometry {
  Extent grid;
  Extent block;
  int64_t shared_bytes;

  Geometry(Extent grid, Extent block, int64_t shared_bytes = 0) : grid(grid), block(block), shared_bytes(shared_bytes) {
    if (shared_bytes < 0) fail("a launch with ", shared_bytes, " bytes of dynamic shared memory");
  }
};

// Blocks of so many threads that have a thread for each of `count` elements.
inline int64_t blocks_for(int64_t count, int64_t threads) { return count / threads + (count % threads != 0); }

}  // namespace opsmith
