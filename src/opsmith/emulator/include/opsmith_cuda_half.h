// One of CUDA's two 16-bit floating-point types, whole. Included by cuda_fp16.h and cuda_bf16.h, which say which one:
//
//   OPSMITH_WORD          what functions call it: `half` in __float2half
//   OPSMITH_HALF, OPSMITH_HALF2, OPSMITH_HALF_RAW, OPSMITH_HALF2_RAW   its types
//   OPSMITH_OTHER_HALF    the other type, which converts only explicitly
//   OPSMITH_FORMAT        how its bits are meant
//   OPSMITH_CONVERTS, OPSMITH_OPERATORS, OPSMITH_OPERATORS2   0 where the author has asked CUDA to leave these out

#include "opsmith_cuda_rounding.h"

#define OPSMITH_JOINED(before, word, after) before##word##after
#define OPSMITH_JOIN(before, word, after) OPSMITH_JOINED(before, word, after)
#define OPSMITH_NAMED(before, after) OPSMITH_JOIN(before, OPSMITH_WORD, after)

// A value of the type: with these bits, or nearest to this number.
#define OPSMITH_OF_BITS(bits) OPSMITH_HALF(OPSMITH_HALF_RAW{static_cast<unsigned short>(bits)})
#define OPSMITH_ROUNDED(number) OPSMITH_OF_BITS(opsmith::emulator::rounded<OPSMITH_FORMAT>(number))

#include "opsmith_cuda_half_type.h"
#include "opsmith_cuda_half_conversions.h"
#include "opsmith_cuda_half_functions.h"
#include "opsmith_cuda_half_operators.h"

#undef OPSMITH_JOINED
#undef OPSMITH_JOIN
#undef OPSMITH_NAMED
#undef OPSMITH_OF_BITS
#undef OPSMITH_ROUNDED
#undef OPSMITH_WORD
#undef OPSMITH_HALF
#undef OPSMITH_HALF2
#undef OPSMITH_HALF_RAW
#undef OPSMITH_HALF2_RAW
#undef OPSMITH_OTHER_HALF
#undef OPSMITH_FORMAT
#undef OPSMITH_CONVERTS
#undef OPSMITH_OPERATORS
#undef OPSMITH_OPERATORS2
