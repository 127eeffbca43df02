// A 16-bit floating-point type and the pair of it, with their conversions. Included once for each type.
//
// The conversions are CUDA's own, no more and no fewer, so that what is ambiguous to nvcc is ambiguous here. The macros
// are those of opsmith_cuda_half.h.

struct alignas(2) OPSMITH_HALF_RAW {
  unsigned short x;
};

struct alignas(4) OPSMITH_HALF2_RAW {
  unsigned short x, y;
};

struct alignas(2) OPSMITH_HALF {
  unsigned short __x;

  OPSMITH_HALF() = default;
  constexpr OPSMITH_HALF(const OPSMITH_HALF_RAW& raw) : __x(raw.x) {}
  __forceinline__ void operator=(const OPSMITH_HALF_RAW& raw) volatile { __x = raw.x; }
  __forceinline__ constexpr operator OPSMITH_HALF_RAW() const { return {__x}; }
  __forceinline__ operator OPSMITH_HALF_RAW() const volatile { return {__x}; }

#if OPSMITH_CONVERTS
  __forceinline__ constexpr OPSMITH_HALF(float value) : __x(opsmith::emulator::rounded<OPSMITH_FORMAT>(value)) {}
  __forceinline__ constexpr OPSMITH_HALF(double value) : __x(opsmith::emulator::rounded<OPSMITH_FORMAT>(value)) {}
  explicit OPSMITH_HALF(OPSMITH_OTHER_HALF value);  // declared here, defined where both types are known
  __forceinline__ operator float() const { return opsmith::emulator::widened<OPSMITH_FORMAT>(__x); }
  __forceinline__ constexpr operator bool() const { return (__x & 0x7fff) != 0; }

#define OPSMITH_FROM_INTEGER(type)                   \
  __forceinline__ constexpr OPSMITH_HALF(type value) \
      : __x(opsmith::emulator::rounded_integer<OPSMITH_FORMAT, opsmith::emulator::Rounding::rn>(value)) {}
  OPSMITH_FROM_INTEGER(short)
  OPSMITH_FROM_INTEGER(unsigned short)
  OPSMITH_FROM_INTEGER(int)
  OPSMITH_FROM_INTEGER(unsigned)
  OPSMITH_FROM_INTEGER(long)
  OPSMITH_FROM_INTEGER(unsigned long)
  OPSMITH_FROM_INTEGER(long long)
  OPSMITH_FROM_INTEGER(unsigned long long)
#undef OPSMITH_FROM_INTEGER

#define OPSMITH_TO_INTEGER(type)                                                                           \
  __forceinline__ operator type() const {                                                                  \
    return opsmith::emulator::integer<type>(trunc(opsmith::emulator::widened<OPSMITH_FORMAT>(__x)));     \
  }
  OPSMITH_TO_INTEGER(char)
  OPSMITH_TO_INTEGER(signed char)
  OPSMITH_TO_INTEGER(unsigned char)
  OPSMITH_TO_INTEGER(short)
  OPSMITH_TO_INTEGER(unsigned short)
  OPSMITH_TO_INTEGER(int)
  OPSMITH_TO_INTEGER(unsigned)
  OPSMITH_TO_INTEGER(long)
  OPSMITH_TO_INTEGER(unsigned long)
  OPSMITH_TO_INTEGER(long long)
  OPSMITH_TO_INTEGER(unsigned long long)
#undef OPSMITH_TO_INTEGER
#endif
};

struct alignas(4) OPSMITH_HALF2 {
  OPSMITH_HALF x, y;

  OPSMITH_HALF2() = default;
  constexpr OPSMITH_HALF2(const OPSMITH_HALF& x, const OPSMITH_HALF& y) : x(x), y(y) {}
  constexpr OPSMITH_HALF2(const OPSMITH_HALF2_RAW& raw) : x(OPSMITH_HALF_RAW{raw.x}), y(OPSMITH_HALF_RAW{raw.y}) {}
  __forceinline__ constexpr operator OPSMITH_HALF2_RAW() const {
    return {static_cast<OPSMITH_HALF_RAW>(x).x, static_cast<OPSMITH_HALF_RAW>(y).x};
  }
};

namespace opsmith::emulator {

constexpr uint16_t bits_of(OPSMITH_HALF value) { return static_cast<OPSMITH_HALF_RAW>(value).x; }
constexpr float number(OPSMITH_HALF value) { return widened<OPSMITH_FORMAT>(bits_of(value)); }

}  // namespace opsmith::emulator
