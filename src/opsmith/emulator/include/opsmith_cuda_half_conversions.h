// Functions that convert a 16-bit floating-point type, and put pairs together. Included once for each type.

// --- From and to float and double --------------------------------------------------------------------------------------

inline OPSMITH_HALF OPSMITH_NAMED(__float2, )(float x) { return OPSMITH_ROUNDED(x); }
inline OPSMITH_HALF OPSMITH_NAMED(__double2, )(double x) { return OPSMITH_ROUNDED(x); }
inline float OPSMITH_NAMED(__, 2float)(OPSMITH_HALF a) { return opsmith::emulator::number(a); }

#define OPSMITH_FROM_FLOAT(mode)                                                                               \
  inline OPSMITH_HALF OPSMITH_NAMED(__float2, _##mode)(float x) {                                              \
    return OPSMITH_OF_BITS((opsmith::emulator::rounded<OPSMITH_FORMAT, opsmith::emulator::Rounding::mode>(x))); \
  }
OPSMITH_FROM_FLOAT(rn)
OPSMITH_FROM_FLOAT(rz)
OPSMITH_FROM_FLOAT(rd)
OPSMITH_FROM_FLOAT(ru)
#undef OPSMITH_FROM_FLOAT

// --- From and to integers ----------------------------------------------------------------------------------------------

#define OPSMITH_INTEGER(name, type, mode, whole)                                                       \
  inline OPSMITH_HALF OPSMITH_NAMED(__##name##2, _##mode)(type x) {                                    \
    using opsmith::emulator::Rounding;                                                                 \
    return OPSMITH_OF_BITS((opsmith::emulator::rounded_integer<OPSMITH_FORMAT, Rounding::mode>(x)));   \
  }                                                                                                    \
  inline type OPSMITH_NAMED(__, 2##name##_##mode)(OPSMITH_HALF a) {                                    \
    return opsmith::emulator::integer<type>(whole(opsmith::emulator::number(a)));                      \
  }
#define OPSMITH_INTEGERS(name, type)       \
  OPSMITH_INTEGER(name, type, rn, rintf)   \
  OPSMITH_INTEGER(name, type, rz, truncf)  \
  OPSMITH_INTEGER(name, type, rd, floorf)  \
  OPSMITH_INTEGER(name, type, ru, ceilf)
OPSMITH_INTEGERS(short, short)
OPSMITH_INTEGERS(ushort, unsigned short)
OPSMITH_INTEGERS(int, int)
OPSMITH_INTEGERS(uint, unsigned)
OPSMITH_INTEGERS(ll, long long)
OPSMITH_INTEGERS(ull, unsigned long long)
#undef OPSMITH_INTEGERS
#undef OPSMITH_INTEGER
inline signed char OPSMITH_NAMED(__, 2char_rz)(OPSMITH_HALF a) {
  return opsmith::emulator::integer<signed char>(truncf(opsmith::emulator::number(a)));
}
inline unsigned char OPSMITH_NAMED(__, 2uchar_rz)(OPSMITH_HALF a) {
  return opsmith::emulator::integer<unsigned char>(truncf(opsmith::emulator::number(a)));
}

// --- The bits ------------------------------------------------------------------------------------------------------------

inline OPSMITH_HALF OPSMITH_NAMED(__short_as_, )(short bits) { return OPSMITH_OF_BITS(bits); }
inline OPSMITH_HALF OPSMITH_NAMED(__ushort_as_, )(unsigned short bits) { return OPSMITH_OF_BITS(bits); }
inline short OPSMITH_NAMED(__, _as_short)(OPSMITH_HALF a) { return static_cast<short>(opsmith::emulator::bits_of(a)); }
inline unsigned short OPSMITH_NAMED(__, _as_ushort)(OPSMITH_HALF a) { return opsmith::emulator::bits_of(a); }

// --- Pairs ---------------------------------------------------------------------------------------------------------------

inline OPSMITH_HALF2 OPSMITH_NAMED(make_, 2)(OPSMITH_HALF x, OPSMITH_HALF y) { return {x, y}; }
inline OPSMITH_HALF2 OPSMITH_NAMED(__halves2, 2)(OPSMITH_HALF low, OPSMITH_HALF high) { return {low, high}; }
inline OPSMITH_HALF2 OPSMITH_JOIN(__, OPSMITH_WORD, OPSMITH_NAMED(2, 2))(OPSMITH_HALF a) { return {a, a}; }
inline OPSMITH_HALF2 OPSMITH_NAMED(__float2, 2_rn)(float x) { return {OPSMITH_ROUNDED(x), OPSMITH_ROUNDED(x)}; }
inline OPSMITH_HALF2 OPSMITH_NAMED(__floats2, 2_rn)(float low, float high) {
  return {OPSMITH_ROUNDED(low), OPSMITH_ROUNDED(high)};
}
inline OPSMITH_HALF2 OPSMITH_NAMED(__float22, 2_rn)(float2 a) { return {OPSMITH_ROUNDED(a.x), OPSMITH_ROUNDED(a.y)}; }
inline float2 OPSMITH_NAMED(__, 22float2)(OPSMITH_HALF2 a) {
  return {opsmith::emulator::number(a.x), opsmith::emulator::number(a.y)};
}
inline float __low2float(OPSMITH_HALF2 a) { return opsmith::emulator::number(a.x); }
inline float __high2float(OPSMITH_HALF2 a) { return opsmith::emulator::number(a.y); }
inline OPSMITH_HALF OPSMITH_NAMED(__low2, )(OPSMITH_HALF2 a) { return a.x; }
inline OPSMITH_HALF OPSMITH_NAMED(__high2, )(OPSMITH_HALF2 a) { return a.y; }
inline OPSMITH_HALF2 OPSMITH_NAMED(__low2, 2)(OPSMITH_HALF2 a) { return {a.x, a.x}; }
inline OPSMITH_HALF2 OPSMITH_NAMED(__high2, 2)(OPSMITH_HALF2 a) { return {a.y, a.y}; }
inline OPSMITH_HALF2 OPSMITH_NAMED(__lows2, 2)(OPSMITH_HALF2 a, OPSMITH_HALF2 b) { return {a.x, b.x}; }
inline OPSMITH_HALF2 OPSMITH_NAMED(__highs2, 2)(OPSMITH_HALF2 a, OPSMITH_HALF2 b) { return {a.y, b.y}; }
inline OPSMITH_HALF2 __lowhigh2highlow(OPSMITH_HALF2 a) { return {a.y, a.x}; }
