// Operators of a 16-bit floating-point type and of the pair of it. Included once for each type.

#define OPSMITH_ARITHMETIC(type, sign, function)                                                          \
  __forceinline__ type operator sign(const type& a, const type& b) { return function(a, b); }             \
  __forceinline__ type& operator sign##=(type& a, const type& b) { return a = function(a, b); }
#define OPSMITH_STEP(type, sign, function, one)                                          \
  __forceinline__ type& operator sign##sign(type& a) { return a = function(a, one); }    \
  __forceinline__ type operator sign##sign(type& a, int) {                               \
    const type before = a;                                                               \
    a = function(before, one);                                                           \
    return before;                                                                       \
  }
#define OPSMITH_COMPARISON(type, sign, function) \
  __forceinline__ bool operator sign(const type& a, const type& b) { return function(a, b); }

#if OPSMITH_OPERATORS
OPSMITH_ARITHMETIC(OPSMITH_HALF, +, __hadd)
OPSMITH_ARITHMETIC(OPSMITH_HALF, -, __hsub)
OPSMITH_ARITHMETIC(OPSMITH_HALF, *, __hmul)
OPSMITH_ARITHMETIC(OPSMITH_HALF, /, __hdiv)
OPSMITH_STEP(OPSMITH_HALF, +, __hadd, OPSMITH_ROUNDED(1.0f))
OPSMITH_STEP(OPSMITH_HALF, -, __hsub, OPSMITH_ROUNDED(1.0f))
__forceinline__ OPSMITH_HALF operator+(const OPSMITH_HALF& a) { return a; }
__forceinline__ OPSMITH_HALF operator-(const OPSMITH_HALF& a) { return __hneg(a); }
OPSMITH_COMPARISON(OPSMITH_HALF, ==, __heq)
OPSMITH_COMPARISON(OPSMITH_HALF, !=, __hneu)
OPSMITH_COMPARISON(OPSMITH_HALF, <, __hlt)
OPSMITH_COMPARISON(OPSMITH_HALF, <=, __hle)
OPSMITH_COMPARISON(OPSMITH_HALF, >, __hgt)
OPSMITH_COMPARISON(OPSMITH_HALF, >=, __hge)
#endif

// A comparison of pairs holds where it holds for both; so != of (1, 2) and (1, 3) is false, as on a GPU.
#if OPSMITH_OPERATORS2
OPSMITH_ARITHMETIC(OPSMITH_HALF2, +, __hadd2)
OPSMITH_ARITHMETIC(OPSMITH_HALF2, -, __hsub2)
OPSMITH_ARITHMETIC(OPSMITH_HALF2, *, __hmul2)
OPSMITH_ARITHMETIC(OPSMITH_HALF2, /, __h2div)
OPSMITH_STEP(OPSMITH_HALF2, +, __hadd2, OPSMITH_HALF2(OPSMITH_ROUNDED(1.0f), OPSMITH_ROUNDED(1.0f)))
OPSMITH_STEP(OPSMITH_HALF2, -, __hsub2, OPSMITH_HALF2(OPSMITH_ROUNDED(1.0f), OPSMITH_ROUNDED(1.0f)))
__forceinline__ OPSMITH_HALF2 operator+(const OPSMITH_HALF2& a) { return a; }
__forceinline__ OPSMITH_HALF2 operator-(const OPSMITH_HALF2& a) { return __hneg2(a); }
OPSMITH_COMPARISON(OPSMITH_HALF2, ==, __hbeq2)
OPSMITH_COMPARISON(OPSMITH_HALF2, !=, __hbneu2)
OPSMITH_COMPARISON(OPSMITH_HALF2, <, __hblt2)
OPSMITH_COMPARISON(OPSMITH_HALF2, <=, __hble2)
OPSMITH_COMPARISON(OPSMITH_HALF2, >, __hbgt2)
OPSMITH_COMPARISON(OPSMITH_HALF2, >=, __hbge2)
#endif

#undef OPSMITH_ARITHMETIC
#undef OPSMITH_STEP
#undef OPSMITH_COMPARISON
