// Refused: 8-bit floating-point types.
#error "opsmith's emulator does not run 8-bit floating-point types (cuda_fp8.h)"
