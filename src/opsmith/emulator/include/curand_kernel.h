// Refused: cuRAND's generators.
#error "opsmith's emulator does not run cuRAND's generators (curand_kernel.h)"
