/* The loops of cpu_simd.inc for what every processor has. */
#pragma GCC optimize("O3,no-trapping-math,fp-contract=off")
#define SET rc__cpu_base
#define SET_NAME "base"
#include "train_backend/kernels/cpu_simd.inc"
