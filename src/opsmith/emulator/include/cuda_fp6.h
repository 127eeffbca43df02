// Refused: 6-bit floating-point types.
#error "opsmith's emulator does not run 6-bit floating-point types (cuda_fp6.h)"
