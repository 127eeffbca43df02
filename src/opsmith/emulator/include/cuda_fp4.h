// Refused: 4-bit floating-point types.
#error "opsmith's emulator does not run 4-bit floating-point types (cuda_fp4.h)"
