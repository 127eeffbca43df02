// Refused: the CUB library.
#error "opsmith's emulator does not run the CUB library (cub/block/block_scan.cuh)"
