// Refused: the CUB library.
#error "opsmith's emulator does not run the CUB library (cub/warp/warp_scan.cuh)"
