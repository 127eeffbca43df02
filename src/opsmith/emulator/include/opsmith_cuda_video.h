// Arithmetic on the two halves or the four bytes of a word at once: __vadd2, __vmaxs4.
#pragma once

#include <stdint.h>

namespace opsmith::emulator {

// The parts of a word as numbers of a type; `apply` puts a word together from what a function makes of each part.
template <typename Part>
struct Parts {
  static constexpr int count = 4 / sizeof(Part), bits = 8 * sizeof(Part);
  static constexpr int least = Part(-1) < Part(0) ? -(1 << (bits - 1)) : 0;
  static constexpr int greatest = least + (1 << bits) - 1;

  static int part(unsigned word, int number) { return static_cast<Part>(word >> (bits * number)); }

  template <typename Function, typename... Words>
  static unsigned apply(Function function, Words... words) {
    unsigned result = 0;
    for (int i = 0; i < count; ++i) {
      result |= (static_cast<unsigned>(function(part(words, i)...)) & ((1u << bits) - 1)) << (bits * i);
    }
    return result;
  }

  template <typename Function>
  static unsigned sum(Function function, unsigned a, unsigned b) {
    unsigned result = 0;
    for (int i = 0; i < count; ++i) result += static_cast<unsigned>(function(part(a, i), part(b, i)));
    return result;
  }

  static int within(int value) { return value < least ? least : value > greatest ? greatest : value; }
};

}  // namespace opsmith::emulator

// `expression` of the parts a and b, which are ints; `within` keeps a number in the range of the parts' type.
#define OPSMITH_OF_PARTS(name, type, expression)                                         \
  inline unsigned name(unsigned x, unsigned y) {                                         \
    using Parts = opsmith::emulator::Parts<type>;                                        \
    return Parts::apply([](int a, int b) -> int { return expression; }, x, y);           \
  }
#define OPSMITH_OF_ONE(name, type, expression)                                           \
  inline unsigned name(unsigned x) {                                                     \
    using Parts = opsmith::emulator::Parts<type>;                                        \
    return Parts::apply([](int a) -> int { return expression; }, x);                     \
  }
#define OPSMITH_SUM_OF_PARTS(name, type, expression)                                     \
  inline unsigned name(unsigned x, unsigned y) {                                         \
    using Parts = opsmith::emulator::Parts<type>;                                        \
    return Parts::sum([](int a, int b) -> int { return expression; }, x, y);             \
  }
// As a mask, all bits of a part where it holds, and as the number 1.
#define OPSMITH_COMPARISON_OF_PARTS(name, parts, type, expression)                       \
  OPSMITH_OF_PARTS(__vcmp##name##parts, type, (expression) ? -1 : 0)                     \
  OPSMITH_OF_PARTS(__vset##name##parts, type, (expression) ? 1 : 0)

#define OPSMITH_SIMD(parts, of_signed, of_unsigned)                                      \
  OPSMITH_OF_ONE(__vabs##parts, of_signed, a < 0 ? -a : a)                               \
  OPSMITH_OF_ONE(__vabsss##parts, of_signed, Parts::within(a < 0 ? -a : a))              \
  OPSMITH_OF_ONE(__vneg##parts, of_signed, -a)                                           \
  OPSMITH_OF_ONE(__vnegss##parts, of_signed, Parts::within(-a))                          \
  OPSMITH_OF_PARTS(__vadd##parts, of_unsigned, a + b)                                    \
  OPSMITH_OF_PARTS(__vaddss##parts, of_signed, Parts::within(a + b))                     \
  OPSMITH_OF_PARTS(__vaddus##parts, of_unsigned, Parts::within(a + b))                   \
  OPSMITH_OF_PARTS(__vsub##parts, of_unsigned, a - b)                                    \
  OPSMITH_OF_PARTS(__vsubss##parts, of_signed, Parts::within(a - b))                     \
  OPSMITH_OF_PARTS(__vsubus##parts, of_unsigned, Parts::within(a - b))                   \
  OPSMITH_OF_PARTS(__vavgs##parts, of_signed, (a + b + (a + b >= 0)) >> 1)               \
  OPSMITH_OF_PARTS(__vavgu##parts, of_unsigned, (a + b + 1) >> 1)                        \
  OPSMITH_OF_PARTS(__vhaddu##parts, of_unsigned, (a + b) >> 1)                           \
  OPSMITH_OF_PARTS(__vabsdiffs##parts, of_signed, a < b ? b - a : a - b)                 \
  OPSMITH_OF_PARTS(__vabsdiffu##parts, of_unsigned, a < b ? b - a : a - b)               \
  OPSMITH_OF_PARTS(__vmaxs##parts, of_signed, a < b ? b : a)                             \
  OPSMITH_OF_PARTS(__vmaxu##parts, of_unsigned, a < b ? b : a)                           \
  OPSMITH_OF_PARTS(__vmins##parts, of_signed, b < a ? b : a)                             \
  OPSMITH_OF_PARTS(__vminu##parts, of_unsigned, b < a ? b : a)                           \
  OPSMITH_SUM_OF_PARTS(__vsads##parts, of_signed, a < b ? b - a : a - b)                 \
  OPSMITH_SUM_OF_PARTS(__vsadu##parts, of_unsigned, a < b ? b - a : a - b)               \
  OPSMITH_COMPARISON_OF_PARTS(eq, parts, of_unsigned, a == b)                            \
  OPSMITH_COMPARISON_OF_PARTS(ne, parts, of_unsigned, a != b)                            \
  OPSMITH_COMPARISON_OF_PARTS(ges, parts, of_signed, a >= b)                             \
  OPSMITH_COMPARISON_OF_PARTS(geu, parts, of_unsigned, a >= b)                           \
  OPSMITH_COMPARISON_OF_PARTS(gts, parts, of_signed, a > b)                              \
  OPSMITH_COMPARISON_OF_PARTS(gtu, parts, of_unsigned, a > b)                            \
  OPSMITH_COMPARISON_OF_PARTS(les, parts, of_signed, a <= b)                             \
  OPSMITH_COMPARISON_OF_PARTS(leu, parts, of_unsigned, a <= b)                           \
  OPSMITH_COMPARISON_OF_PARTS(lts, parts, of_signed, a < b)                              \
  OPSMITH_COMPARISON_OF_PARTS(ltu, parts, of_unsigned, a < b)
OPSMITH_SIMD(2, int16_t, uint16_t)
OPSMITH_SIMD(4, int8_t, uint8_t)
#undef OPSMITH_SIMD
#undef OPSMITH_COMPARISON_OF_PARTS
#undef OPSMITH_SUM_OF_PARTS
#undef OPSMITH_OF_ONE
#undef OPSMITH_OF_PARTS
