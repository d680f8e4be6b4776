/* The loops of cpu_simd.inc for AVX2 with FMA and F16C (x86-64-v3). */
#include "train_backend/kernels/internal.h"

#ifdef RC__X86_SETS
#pragma GCC optimize("O3,no-trapping-math,fp-contract=off")
#pragma GCC target("avx2,fma,f16c")
#include <immintrin.h>

#define HAVE_F16C
#define SET rc__cpu_avx2
#define SET_NAME "avx2"
#include "train_backend/kernels/cpu_simd.inc"
#endif
