// Refused: tensor cores.
#error "opsmith's emulator does not run tensor cores (mma.h)"
