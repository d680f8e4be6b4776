/* The loops of cpu_simd.inc for AVX-512 (x86-64-v4). */
#include "train_backend/kernels/internal.h"

#ifdef RC__X86_SETS
#pragma GCC optimize("O3,no-trapping-math,fp-contract=off")
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,prefer-vector-width=512")
#include <immintrin.h>

#define HAVE_F16C
#define SET rc__cpu_avx512
#define SET_NAME "avx512"
#include "train_backend/kernels/cpu_simd.inc"
#endif
